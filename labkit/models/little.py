"""Little's law: work in progress = arrival rate x time in the system. Agent steps are long, so few are many.

A received, not yet deleted message is *in flight*. A queue allows only so many of them at once; past that, a short
poll gets ``OverLimit`` and a long poll gets nothing, silently.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from labkit.models._input import limit, number


def in_flight(rate: float, seconds: float) -> float:
    """Messages in flight on average: ``rate`` messages per second, each held for ``seconds``."""
    return number("rate", rate, unit="messages/s") * number("seconds", seconds, unit="s")


@dataclass(frozen=True)
class Load:
    """A steady load on one queue: ``rate`` messages per second, each in flight for ``seconds``.

    ``cap``: the queue's in-flight cap in messages; by default the standard queue's (``sqs.inflight.cap``).
    """

    rate: float
    seconds: float
    cap: float | None = None

    def __post_init__(self) -> None:
        in_flight(self.rate, self.seconds)
        if self.cap is not None:
            number("cap", self.cap, low=1, unit="messages")

    @property
    def limit(self) -> float:
        """The in-flight cap in messages."""
        return float(limit("sqs.inflight.cap")) if self.cap is None else self.cap

    @property
    def in_flight(self) -> float:
        """Messages in flight on average."""
        return in_flight(self.rate, self.seconds)

    @property
    def percent(self) -> float:
        """Share of the cap in per cent; 100 or more means OverLimit."""
        return 100 * self.in_flight / self.limit

    @property
    def room(self) -> float:
        """How many times the load may grow before the cap; below 1 it is already over."""
        return float("inf") if self.in_flight == 0 else self.limit / self.in_flight

    @property
    def rate_at_cap(self) -> float:
        """Messages per second at which the cap is reached, at this step time."""
        return float("inf") if self.seconds == 0 else self.limit / self.seconds

    def scaled(self, *, rate: float = 1.0, seconds: float = 1.0) -> Load:
        """The load with its rate and its step time multiplied: ``scaled(rate=2, seconds=2)`` doubles both."""
        return replace(self, rate=self.rate * rate, seconds=self.seconds * seconds)
