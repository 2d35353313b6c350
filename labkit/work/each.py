"""Each: do something for every one of several, also where it fails for one of them.

Whoever repairs goes through what is broken. If the first that cannot be mended ended the round, it would end every
round, and all that come after it in the order would wait for ever.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def each(items: Iterable[T], act: Callable[[T], R]) -> list[R]:
    """What ``act`` returned for every item, in order. Raises the first error when all have had their turn.

    The error carries a note with what became of the others.
    """
    done: list[R] = []
    troubles: list[Exception] = []
    for item in items:
        try:
            done.append(act(item))
        except Exception as error:  # noqa: BLE001 - it is raised when the others are done
            troubles.append(error)
    if troubles:
        troubles[0].add_note(f"It was so for {len(troubles)} of {len(troubles) + len(done)}; the others are done.")
        raise troubles[0]
    return done
