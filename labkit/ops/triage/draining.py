"""Draining: receive in many threads until nothing is visible, or until it is enough.

One empty answer is not the end: a short poll asks only some of SQS's servers, a long one all of them (AWS docs,
sqs-short-and-long-polling). But a long poll that finds nothing takes a second, so it comes last: when no other thread
is at work, whose batch might be all that was wanted.
"""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from labkit.facts import facts
from labkit.work.queues import Message

__all__ = ["Batch", "Drain"]

_AGAIN, _LONGEST = 0.2, 2.0  # seconds after which a thread that found nothing asks again, while others are at work


class Batch(list[Message]):
    """What one receive brought, and until when it is hidden (on the clock of its :class:`Hold`)."""

    until: float = 0.0


class Source(Protocol):
    """What is drained: a :class:`~labkit.ops.triage.holding.Hold`."""

    threads: int

    def receive(self, limit: int, *, sure: bool) -> Batch: ...
    def keep(self, batch: Batch) -> None: ...


class Drain:
    """One draining of ``source``; the arguments are those of :meth:`labkit.ops.triage.holding.Hold.drain`."""

    def __init__(
        self,
        source: Source,
        decide: Callable[[Batch], object],
        *,
        at_most: int | None,
        together: bool,
        enough: Callable[[], bool],
    ) -> None:
        self._source, self._decide, self._enough = source, decide, enough
        self._one_by_one = contextlib.nullcontext() if together else threading.Lock()
        self._room = math.inf if at_most is None else at_most
        self._most = int(facts("sqs.receive.max"))
        self._stop = threading.Event()
        self._working = 0  # threads that ask by a short poll, or decide about what they got
        self._turn = threading.Condition()  # guards the room and the count

    def run(self) -> None:
        threads = self._source.threads
        with ThreadPoolExecutor(threads, thread_name_prefix="labkit-triage") as pool:
            running = [pool.submit(self._loop, number) for number in range(threads)]
            try:
                for one in running:
                    one.result()
            except BaseException:
                self._end()  # before the pool waits for its threads
                raise

    def _loop(self, _: int) -> None:
        last = False  # whether this thread ends if it finds nothing now
        pause = _AGAIN
        try:
            while not self._over() and (limit := self._ask()):
                batch = self._source.receive(limit, sure=True) if last else None
                with self._at_work():
                    if batch is None:
                        batch = self._source.receive(limit, sure=False)
                    self._answered(limit - len(batch))
                    if some := bool(batch):  # before what is decided is taken off it
                        self._handle(batch)
                if last and not some:
                    return
                last = not some and self._nobody_works(pause)
                pause = _AGAIN if some else min(_LONGEST, 2 * pause)
        except BaseException:
            self._end()
            raise

    def _end(self) -> None:
        self._stop.set()
        with self._turn:
            self._turn.notify_all()

    def _over(self) -> bool:
        return self._stop.is_set() or self._enough()

    def _ask(self) -> int:
        """For how many to ask. They count as taken, until it is known better."""
        with self._turn:
            limit = int(min(self._room, self._most))
            self._room -= limit
            return limit

    def _answered(self, fewer: int) -> None:
        with self._turn:
            self._room += fewer

    def _handle(self, batch: Batch) -> None:
        try:
            with self._one_by_one:
                self._decide(batch)
        finally:
            self._source.keep(batch)

    @contextlib.contextmanager
    def _at_work(self) -> Iterator[None]:
        with self._turn:
            self._working += 1
        try:
            yield
        finally:
            with self._turn:
                self._working -= 1
                self._turn.notify_all()

    def _nobody_works(self, within: float) -> bool:
        """Wait until no other thread is at work, or what they did is enough; False if they still are after ``within``
        seconds."""
        with self._turn:
            return self._turn.wait_for(lambda: not self._working or self._over(), timeout=within)
