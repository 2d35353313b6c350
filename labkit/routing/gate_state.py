"""A gate as it stood at one moment, and what the size of its item allows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from labkit.models._input import limit

# Sizes by AWS's rules (developer guide, item sizes): a number has a byte for two digits and one more, an entry of a map
# one more. Epoch milliseconds have 13 digits, a place is assumed to have up to 9.
_ID = 11
_PERMIT = _ID + 8 + 1
_PLACE = (_ID + 6 + 1) + (_ID + 8 + 1)
_FIXED = 80  # names of the attributes, cap, fence, the empty maps; the gate's name comes on top


class Limits(NamedTuple):
    """What one item can do: its ``size`` in bytes, the ``units`` of each write, and ``permits`` a second at most."""

    size: int
    units: int
    permits: float


def limits(cap: int, waiting: int = 0, *, name: str = "") -> Limits:
    """The most that a gate of ``cap`` permits can grant a second on AWS, with ``waiting`` places taken.

    Two writes a permit where nobody waits; four where somebody does (the try, the place, the grant, the release), and
    renewals come on top.

    >>> limits(10), limits(50, 100)
    (Limits(size=280, units=1, permits=500.0), Limits(size=4880, units=5, permits=50.0))
    """
    size = _FIXED + len(name.encode()) + cap * _PERMIT + waiting * _PLACE
    units = math.ceil(size / limit("dynamodb.write_unit.bytes"))
    return Limits(size, units, limit("dynamodb.partition.write_units") / units / (4 if waiting else 2))


@dataclass(frozen=True)
class State:
    """A gate as it stood at one moment. Ends of leases are texts of epoch seconds, as DynamoDB gave them."""

    cap: int
    fence: int
    permits: Mapping[str, str]
    waiting: Mapping[str, int]
    alive: Mapping[str, str]

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> State:
        def entries(name: str) -> dict[str, str]:
            return {id: value["N"] for id, value in item[name]["M"].items()}

        waiting = {id: int(number) for id, number in entries("waiting").items()}
        return cls(int(item["cap"]["N"]), int(item["fence"]["N"]), entries("permits"), waiting, entries("alive"))

    @property
    def taken(self) -> int:
        return len(self.permits)

    @property
    def next_end(self) -> float | None:
        """Epoch seconds at which the first lease ends; None while no permit is out."""
        return min(map(float, self.permits.values()), default=None)

    def dead(self, before: float) -> tuple[dict[str, str], dict[str, str]]:
        """Permits whose lease ended ``before`` this moment, and places that nobody has kept until it."""
        return (
            {id: end for id, end in self.permits.items() if float(end) < before},
            {id: end for id, end in self.alive.items() if float(end) < before},
        )

    def ahead(self, me: str, before: float) -> int:
        """How many who still look have a place before mine; all of them where I have none."""
        mine = self.waiting.get(me, math.inf)
        _, gone = self.dead(before)
        return sum(number < mine and id not in gone for id, number in self.waiting.items())

    def free(self, before: float) -> int:
        """Permits that can be had, those whose lease is over among them; negative after the cap was lowered."""
        return self.cap - len(self.permits) + len(self.dead(before)[0])
