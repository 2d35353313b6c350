"""The words of the five brokers: a clock that is moved by hand, a delivery, a line of the history."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from labkit.models._input import number

__all__ = ["NEVER", "Answer", "Clock", "Delivery", "Event", "Item", "What"]

Answer = Literal["ok", "ignored", "refused"]
What = Literal[
    "published", "dropped", "delivered", "acked", "ack ignored", "ack refused", "nacked", "nack ignored",
    "nack refused", "lapsed", "superseded", "reopened", "extended", "extend ignored", "extend refused",
    "dead-lettered", "lost",
]  # fmt: skip
NEVER = math.inf


class Clock:
    """Seconds since the start, moved by hand: ``clock.advance(30)``; ``clock()`` reads it."""

    def __init__(self) -> None:
        self._now = 0.0

    def __call__(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """Go on by ``seconds``, 0 or more."""
        self._now += number("seconds", seconds, unit="s")

    def until(self, moment: float) -> None:
        """Go on to ``moment``; stay where that is past."""
        self._now = max(self._now, moment)


@dataclass(frozen=True)
class Delivery:
    """One message in one worker's hands. ``attempt`` is 1 for the first; ``handle`` is new with each delivery.

    ``deadline``: the second at which it lapses, unless it was extended; infinite when it was settled as it was sent.
    """

    id: str
    body: str
    key: str
    attempt: int
    handle: int
    by: str
    at: float
    deadline: float


@dataclass(frozen=True)
class Event:
    """One line of the history: at second ``at``, ``what`` happened to which message; ``note`` says why.

    ``message``: its number in the order of publication (an ``id`` may be there twice). ``handle``: of the delivery, 0
    where it is about none.
    """

    at: float
    what: What
    body: str
    key: str
    id: str
    message: int
    attempt: int = 0
    handle: int = 0
    note: str = ""


@dataclass(eq=False)
class Item:
    """A message that the broker holds. ``change_at``: when something of the broker's own happens to it."""

    message: int
    id: str
    body: str
    key: str
    published_at: float
    ready_at: float
    expires_at: float = NEVER
    change_at: float = NEVER
    failures: int = 0  # nacks and lapses
    deliveries: int = 0
    lease: Delivery | None = None
    until: float = NEVER  # of the lease, extensions included
    acked: bool = False  # and kept, because it may come again
    rule: Any = None  # what a broker remembers of it besides
