"""A Distributed Map on paper: how long one takes, and how many may be open.

A Map Run starts children at a rate (``sfn.map.dispatch.*``), has at most so many open (``sfn.map.concurrency``), and an
account has at most so many Map Runs open in a Region (``sfn.map.open_runs``): none of these quotas is raised. A Map Run
past the last one *waits*, it does not fail (``sfn.map.open_runs.beyond``); so a fleet that starts one for each
conversation does not break, it gets slower without a word. Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass

from labkit.models._input import flag, limit, number, whole
from labkit.models.little import in_flight

__all__ = ["MapRun", "OpenRuns"]


@dataclass(frozen=True)
class MapRun:
    """One Map Run of ``items`` children, each ``child_seconds`` long. ``concurrency``: MaxConcurrency, None for AWS's.

    >>> MapRun(10_000, 60).seconds, MapRun(10_000, 60, express=True).seconds
    (160.0, 120.0)
    """

    items: int
    child_seconds: float
    express: bool = False
    concurrency: int | None = None

    def __post_init__(self) -> None:
        whole("items", self.items, low=0, high=limit("sfn.map.max_items"))
        number("child_seconds", self.child_seconds, unit="s", finite=True)
        if flag("express", self.express):
            number("child_seconds", self.child_seconds, high=limit("sfn.express.max_duration"), unit="s")
        if self.concurrency is not None:
            whole("concurrency", self.concurrency, high=limit("sfn.map.concurrency"))

    @property
    def rate(self) -> float:
        """Children started a second: by the dispatch quota, or by Little's law at the concurrency, if that is less."""
        dispatch = float(limit(f"sfn.map.dispatch.{'express' if self.express else 'standard'}"))
        most = self.concurrency or limit("sfn.map.concurrency")
        return min(dispatch, most / self.child_seconds) if self.child_seconds else dispatch

    @property
    def seconds(self) -> float:
        """Seconds until the last child is done, none of them failing."""
        return self.items / self.rate + self.child_seconds if self.items else 0.0

    @property
    def open_at_once(self) -> float:
        """Children open at once, at the most."""
        return min(float(self.items), in_flight(self.rate, self.child_seconds))


@dataclass(frozen=True)
class OpenRuns:
    """Map Runs that start ``rate`` times a second and are open for ``seconds``, in one account and Region."""

    rate: float
    seconds: float

    def __post_init__(self) -> None:
        number("rate", self.rate, unit="a second", finite=True)
        number("seconds", self.seconds, unit="s", finite=True)

    @property
    def wanted(self) -> float:
        """Open at once, if there were no quota."""
        return in_flight(self.rate, self.seconds)

    @property
    def rate_at_quota(self) -> float:
        """Map Runs a second that the quota lets through: one more and they wait, for longer and longer."""
        return float("inf") if not self.seconds else limit("sfn.map.open_runs") / self.seconds

    def waiting_after(self, seconds: float) -> float:
        """Map Runs that wait after so many seconds of such a load."""
        return max(0.0, self.rate - self.rate_at_quota) * number("seconds", seconds, unit="s", finite=True)
