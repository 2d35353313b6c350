"""ReceiveRequestAttemptId: what an earlier receive with the same id returned.

**On AWS** (API reference ReceiveMessage) a receive from a FIFO queue that is repeated with its ReceiveRequestAttemptId
within five minutes returns the same messages with the same handles, and hides them anew; not when one of them was
deleted, or its visibility changed or expired.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

WINDOW = 300.0  # seconds in which an id is remembered


class Received(NamedTuple):
    """One message of a batch. While nothing has happened to it, all three are still so."""

    message_id: str
    handle: str
    visible_at: float


class Attempts:
    """The attempts of one queue."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, tuple[float, list[Received]]] = OrderedDict()

    def known(self, attempt: str, now: float) -> list[Received] | None:
        while self._known and next(iter(self._known.values()))[0] <= now:
            self._known.popitem(last=False)
        return self._known[attempt][1] if attempt in self._known else None

    def remember(self, attempt: str, batch: Iterable[Received], now: float) -> None:
        self._known.pop(attempt, None)
        self._known[attempt] = (now + WINDOW, list(batch))

    def replayed(self, attempt: str, batch: Iterable[Received]) -> None:
        """The batch was given out again, hidden until other moments: the five minutes go on."""
        self._known[attempt] = (self._known[attempt][0], list(batch))

    def clear(self) -> None:
        self._known.clear()
