"""From rules to subscribers: how long a move to V2 buses takes, and how often it may be corrected.

A V2 bus has subscribers instead of rules, each with one target, and fixed limits on changing them:

- one subscriber of a bus is created or deleted at a time, whichever account asks; a second call fails with
  ConcurrentModificationException (``eventbridgev2.subscriber.concurrent_changes``);
- the filter of a subscriber changes 24 times in *any* 24 hours (``eventbridgev2.subscriber.filter_changes_per_day``): a
  rolling window, so that the 25th change waits for the first one to be a day old;
- an account has five buses in a Region, until AWS raises it (``eventbridgev2.buses``).

How long one creation takes is not documented: it is an argument, to be measured. Standard library only.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from labkit.models._input import ModelError, limit, number, whole
from labkit.models.workload import DAY

__all__ = ["Migration", "RollingWindow"]


class RollingWindow:
    """At most ``most`` changes in any ``seconds``. Raises :class:`~labkit.models._input.ModelError`.

    >>> window = RollingWindow(2, 10)
    >>> [window.take(now) for now in (0, 1, 2)]
    [0, 1, 10]
    """

    def __init__(
        self, most: int = limit("eventbridgev2.subscriber.filter_changes_per_day"), seconds: float = DAY
    ) -> None:
        self.most = whole("most", most)
        self.seconds = number("seconds", seconds, low=1e-3, unit="s", finite=True)
        self._taken: deque[float] = deque(maxlen=most)

    def earliest(self, now: float) -> float:
        """The second at which one more change is allowed, ``now`` or later."""
        if len(self._taken) < self.most:
            return now
        return max(now, self._taken[0] + self.seconds)

    def take(self, now: float) -> float:
        """Make a change as early as it is allowed; returns when. Changes are taken in the order of time."""
        number("now", now, low=self._taken[-1] if self._taken else 0.0, unit="s", finite=True)
        at = self.earliest(now)
        self._taken.append(at)
        return at


@dataclass(frozen=True)
class Migration:
    """``targets`` of all rules, each to become one subscriber, on ``buses`` V2 buses.

    ``create_seconds``: how long one creation takes, an assumption until you have measured it.

    >>> Migration(targets=60, create_seconds=30).seconds
    1800.0
    """

    targets: int
    create_seconds: float
    buses: int = 1

    def __post_init__(self) -> None:
        whole("targets", self.targets, low=0)
        number("create_seconds", self.create_seconds, unit="s", finite=True)
        most = limit("eventbridgev2.buses")
        if whole("buses", self.buses) > most:
            raise ModelError(f"buses must be at most {most} until AWS raises the quota; got {self.buses}.")

    @property
    def seconds(self) -> float:
        """Seconds until the last subscriber is there: one at a time on each bus, the buses side by side."""
        side_by_side = self.buses * limit("eventbridgev2.subscriber.concurrent_changes")
        return float(math.ceil(self.targets / side_by_side) * self.create_seconds)

    def refused(self, at_once: int) -> int:
        """Creations that fail if so many are asked for at once, the buses taken in turn: all but one for each bus."""
        busy = self.buses * limit("eventbridgev2.subscriber.concurrent_changes")
        return max(0, whole("at_once", at_once, low=0) - busy)

    @staticmethod
    def corrections(count: int, *, every: float = 0.0) -> list[float]:
        """Seconds at which ``count`` changes of one filter can be made, one wanted every so many seconds."""
        window = RollingWindow()
        done: list[float] = []
        for n in range(whole("count", count, low=0)):
            wanted = n * number("every", every, unit="s", finite=True)
            done.append(window.take(max(wanted, done[-1] if done else 0.0)))
        return done
