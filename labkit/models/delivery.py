"""EventBridge's retries over time: when a target is asked again, when the event is given up, and who notices when.

A policy has two limits, the first of which ends the retries (facts ``events.retry.*``, ``eventbridgev2.retry.*``)::

    classic bus, nothing set     185 retries within 24 h
    the guide's                   24 retries within  1 h
    V2 bus, nothing set            5 retries within  5 min

A dead-letter queue fills when they are over, and not before: it says nothing during the outage. ``FailedInvocations``
counts what failed for good, so it is as late. ``RetryInvocationAttempts`` moves with the first retry
(``events.metric.failed``, ``events.metric.retries``).

**Not AWS's**: the waits. AWS says "exponential backoff and jitter" and publishes no numbers. Here, as in the course's
stand-in, the wait before retry *n* is drawn from the upper half of min(600, 2^(n-1)) seconds. Counts and limits are
AWS's; the times between are an example. Standard library only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import takewhile

from labkit.models._input import a, limit, number, whole
from labkit.models.retry import Exponential, Jitter, Wait

__all__ = ["CLASSIC", "GUIDE", "V2", "Alarms", "Policy", "Retries", "waits"]

ATTEMPTS, AGE = "MaximumRetryAttempts", "MaximumEventAgeInSeconds"


@dataclass(frozen=True)
class Policy:
    """``retries`` after the first attempt, for as long as the event is younger than ``age`` seconds."""

    retries: int
    age: int

    def __post_init__(self) -> None:
        for name, value, end in (("retries", self.retries, "attempts"), ("age", self.age, "age")):
            whole(name, value, low=limit(f"events.retry.min_{end}"), high=limit(f"events.retry.max_{end}"))


CLASSIC = Policy(limit("events.retry.default_attempts"), limit("events.retry.default_age"))
GUIDE = Policy(limit("guide.retry.max_attempts"), limit("guide.retry.max_age"))
V2 = Policy(limit("eventbridgev2.retry.default_attempts"), limit("eventbridgev2.retry.default_age"))


@dataclass(frozen=True)
class Alarms:
    """Seconds from the event's first failed attempt until each alarm may ring; infinite for one that never does."""

    retries: float
    dead_letters: float
    failed: float


def waits(seed: int | str) -> Wait:
    """The lab's example of the waits, for one event: seconds before retry 1, 2, …; not AWS's."""
    return Jitter(Exponential(base=1.0, cap=600.0), "equal", seed)


class Retries:
    """One event whose target is down from the start. ``wait``: seconds before retry 1, 2, …

    >>> Retries(Policy(2, 3600), Exponential(base=1)).times()
    [0.0, 1.0, 3.0]
    """

    def __init__(self, policy: Policy, wait: Wait | None = None, *, seed: int = 0) -> None:
        a("policy", policy, Policy, "Policy(24, 3600)")
        if wait is not None:
            a("wait", wait, Wait, "Exponential(base=1)")
        self.policy = policy
        self.wait = wait or waits(seed)

    def times(self) -> list[float]:
        """Seconds of all attempts, the first at 0: a retry that would come when the event is too old is not made."""
        at, times = 0.0, [0.0]
        for retry in range(1, self.policy.retries + 1):
            at += self.wait(retry)
            if at >= self.policy.age:
                break
            times.append(at)
        return times

    @property
    def exhausted(self) -> str:
        """Which limit ends the retries, as the dead letter's ``EXHAUSTED_RETRY_CONDITION`` names it."""
        return ATTEMPTS if len(self.times()) > self.policy.retries else AGE

    @property
    def given_up_at(self) -> float:
        """Seconds until the event is a dead letter: its last attempt, or its age."""
        return self.times()[-1] if self.exhausted == ATTEMPTS else float(self.policy.age)

    def delivered_at(self, down: float) -> float | None:
        """Seconds until delivery if the target comes back after ``down``; None for an event given up before."""
        number("down", down, unit="s")
        return next((at for at in self.times() if at >= down), None)

    def attempts_by(self, seconds: float) -> int:
        """Attempts made within so many seconds."""
        return len(list(takewhile(lambda at: at <= number("seconds", seconds, unit="s"), self.times())))

    def alarms(self, *, period: float = float(limit("events.metric.period"))) -> Alarms:
        """When alarms on the three metrics can ring at the earliest, each one ``period`` after its cause, if the
        target stays down. Metrics are best effort: they may come later."""
        number("period", period, unit="s", finite=True)
        late = self.given_up_at + period
        times = self.times()
        return Alarms(times[1] + period if len(times) > 1 else math.inf, late, late)
