"""A clock that a test moves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Clock:
    """Seconds since the epoch: ``clock.now += 30``.

    It stands ahead of the real time: a table's TTL goes by that, and deletes records that have expired by it.
    """

    now: float = 1_900_000_000.0

    def __call__(self) -> float:
        return self.now
