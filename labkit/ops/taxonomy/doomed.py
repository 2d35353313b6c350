"""A worker that dies: it takes a message in the fleet's place, and is never heard of again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from labkit.ops.taxonomy.fleet import WITHIN, Fleet
from labkit.work.queues import Message

__all__ = ["doomed"]


@contextmanager
def doomed(fleet: Fleet, meet: Callable[[Message], object]) -> Iterator[None]:
    """Another worker takes the first message that comes, does ``meet`` to it, and ends. Then the fleet's own goes on.

    That is all that can be seen of a crash from outside: no error and no call, a message that stays hidden for a while.
    """
    over = threading.Event()

    def run() -> None:
        try:
            while not over.is_set():
                for message in fleet.queue.receive(1, wait=1, visibility=fleet.visibility):
                    over.set()
                    meet(message)
        finally:
            fleet.start()

    fleet.stop()
    thread = threading.Thread(target=run, name="labkit-taxonomy-doomed", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(WITHIN)
        fleet.start()
