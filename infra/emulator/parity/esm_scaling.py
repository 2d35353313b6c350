"""How many batches of one mapping are processed at once.

**On AWS** (Lambda Developer Guide, "Configuring scaling behavior for SQS event source mappings", "Backoff strategy for
failed invocations")

* *standard queue*: five batches at first; while messages remain, up to 300 more a minute, 1,250 at most; five again
  when traffic is low;
* *FIFO queue*: as many as there are message groups;
* ``ScalingConfig.MaximumConcurrency`` (2 to 1,000) is an upper bound for both. The function's reserved concurrency is
  not looked at: what the mapping sends beyond it is throttled;
* *provisioned mode* (``ProvisionedPollerConfig``): ten batches for each poller, up to 1,000 more a minute;
* *errors and throttles* reduce the concurrency, gradually, unless the mapping reports batch item failures: then errors
  of the function do not.

By how much and how fast it is reduced is not documented. Ours: one batch less for each invocation that failed or was
throttled, two at least; one more for each that succeeded; and no growth until one has succeeded.

**MiniStack** always processes five, or MaximumConcurrency, and never more than the reserved concurrency, so that
nothing is ever throttled.

**Here** :class:`Scaling` says how many may be processed. Each is a process on the reader's machine, so there are never
more than :data:`CEILING`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

START = 5
MOST = 1_250
PER_MINUTE = 300
PROVISIONED_PER_MINUTE = 1_000
PER_POLLER = 10
MIN_POLLERS, MAX_POLLERS = 2, 200  # unless set
FEWEST = 2
CEILING = 50


@dataclass(frozen=True)
class Bounds:
    """Where the concurrency of a mapping starts, where it ends, and how fast it grows."""

    start: int
    most: int
    per_minute: int

    @classmethod
    def of(cls, mapping: Mapping[str, Any], *, fifo: bool) -> Bounds:
        pollers = mapping.get("ProvisionedPollerConfig") or {}
        if pollers:
            fewest = int(pollers.get("MinimumPollers") or MIN_POLLERS)
            most = int(pollers.get("MaximumPollers") or MAX_POLLERS)
            return cls(fewest * PER_POLLER, most * PER_POLLER, PROVISIONED_PER_MINUTE)
        most = int((mapping.get("ScalingConfig") or {}).get("MaximumConcurrency") or MOST)
        return cls(most if fifo else min(START, most), most, PER_MINUTE)


class Scaling:
    def __init__(self, bounds: Bounds, *, ceiling: int = CEILING) -> None:
        self._ceiling = ceiling
        self._since: float | None = None  # when the mapping was last seen to be busy
        self._healthy = True
        self.bounds = bounds
        self._level = float(self._bounded(bounds.start))

    def _bounded(self, level: float) -> float:
        return min(level, self.bounds.most, self._ceiling)

    @property
    def limit(self) -> int:
        return int(self._level + 1e-3)  # a fifth of a second gives one more, give or take a rounding error

    def change(self, bounds: Bounds) -> None:
        """The mapping was updated."""
        if bounds != self.bounds:
            self.bounds = bounds
            self._level = float(self._bounded(bounds.start))

    def busy(self, now: float) -> None:
        """All that may be processed is, and messages remain."""
        if self._since is not None and self._healthy:
            grown = self._level + (now - self._since) * self.bounds.per_minute / 60
            self._level = max(self._level, self._bounded(grown))
        self._since = now

    def calm(self) -> None:
        """Not all that may be processed is."""
        self._since = None

    def idle(self) -> None:
        """Nothing is processed and no message remains."""
        self._level = max(min(self._level, self._bounded(self.bounds.start)), min(FEWEST, self._level))

    def growing(self) -> bool:
        return self._healthy and self._level < self._bounded(self.bounds.most)

    def failed(self) -> None:
        self._healthy = False
        self._level = max(self._level - 1, min(FEWEST, self._level))

    def succeeded(self) -> None:
        self._healthy = True
        if self._level < self.bounds.start:
            self._level = self._bounded(self._level + 1)
