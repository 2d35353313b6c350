"""Lambda's event source mapping on a standard queue: how many batches are worked on at once, and how fast that grows.

Lambda polls the queue for you, and scales what it polls with. Two modes, each with a start, a slope and a ceiling in
concurrent invocations::

    standard      5, while messages remain 300 more a minute, 1,250 at most    (MaximumConcurrency: a lower ceiling)
    provisioned   10 for each of the minimum pollers, 1,000 more a minute, 10 for each of the maximum pollers

A backlog is therefore not worked off by as many as it needs, but by as many as the slope has reached by then. And
where steps are long the ceiling is what counts: at 90 seconds a step, 1,250 invocations do 14 steps a second.

How many pollers? One drives 10 invocations at once; so by Little's law::

    pollers = events a second x seconds a batch / batch size / 10

AWS gives a formula for the events a second of *one* poller, and divides the peak by that. It rounds up on the way, so
that for a batch of more than 10 seconds it promises more than 10 invocations can do. :func:`pollers` takes the worse.

Sources: Lambda Developer Guide, "Configuring scaling behavior for SQS event source mappings"; the numbers are facts
(``lambda.esm.*``). Not documented, and so not here: when a quiet mapping goes down to two invocations, how fast
pollers go away again, by how much errors and throttles slow it down. FIFO queues: as many as there are groups.
Standard library only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from labkit.models._input import ModelError, limit, number, whole

__all__ = ["Curve", "Esm", "Pollers", "events_per_poller", "pollers"]

_MINUTE = 60.0
_KB = 1024  # in a MB


@dataclass(frozen=True)
class Pollers:
    """``ProvisionedPollerConfig`` of a mapping on a queue. Raises :class:`~labkit.models._input.ModelError`."""

    minimum: int = limit("lambda.esm.min_pollers.default")
    maximum: int = limit("lambda.esm.max_pollers.default")

    def __post_init__(self) -> None:
        lowest, highest = (limit(f"lambda.esm.min_pollers.{end}") for end in ("min", "max"))
        whole("minimum", self.minimum, low=lowest, high=highest)
        lowest, highest = (limit(f"lambda.esm.max_pollers.{end}") for end in ("min", "max"))
        whole("maximum", self.maximum, low=max(lowest, self.minimum), high=highest)


@dataclass(frozen=True)
class Curve:
    """Concurrent invocations: where they start, how many more there may be each minute, and where they end.

    >>> Curve.of().after(60), Curve.of(provisioned=Pollers()).after(60), Curve.of(max_concurrency=50).after(60)
    (305, 1020, 50)
    """

    start: int
    per_minute: int
    most: int

    @classmethod
    def of(cls, *, max_concurrency: int | None = None, provisioned: Pollers | None = None) -> Curve:
        """Of a mapping with these settings. AWS refuses both together, and so does this."""
        if provisioned is not None:
            if max_concurrency is not None:
                raise ModelError(f"max_concurrency must be None in provisioned mode; got {max_concurrency}.")
            each = limit("lambda.esm.poller.invocations")
            growth = limit("lambda.esm.provisioned.growth")
            return cls(provisioned.minimum * each, growth, provisioned.maximum * each)
        most = limit("lambda.esm.standard.cap")
        if max_concurrency is not None:
            lowest, highest = limit("lambda.esm.concurrency.min"), limit("lambda.esm.concurrency.max")
            most = whole("max_concurrency", max_concurrency, low=lowest, high=highest)
        return cls(min(limit("lambda.esm.standard.start"), most), limit("lambda.esm.standard.growth"), most)

    def after(self, seconds: float) -> int:
        """Invocations at once after so many seconds of a queue that is never empty."""
        grown = self.start + number("seconds", seconds, unit="s") * self.per_minute / _MINUTE
        return min(self.most, _floor(grown))

    def until(self, concurrency: int) -> float:
        """Seconds of a full queue until there are so many; infinite above the ceiling."""
        whole("concurrency", concurrency)
        return math.inf if concurrency > self.most else max(0, concurrency - self.start) * _MINUTE / self.per_minute


class Esm:
    """One mapping's concurrency as time goes by. ``why`` says what the last step did.

    >>> esm = Esm(Curve.of())
    >>> [esm.step(second, visible=1000, running=esm.concurrency) for second in (0, 1, 2, 60)]
    [5, 10, 15, 305]
    """

    def __init__(self, curve: Curve) -> None:
        self.curve = curve
        self.why = "it starts"
        self._level = float(curve.start)
        self._busy_since: float | None = None
        self._now = 0.0

    @property
    def concurrency(self) -> int:
        """Invocations that may run at once."""
        return _floor(self._level)

    def step(self, now: float, *, visible: int, running: int) -> int:
        """The concurrency at second ``now``, with so many messages waiting and so many invocations at work.

        It grows for the time between two steps if all that may run did run, and messages remained, at both.
        """
        whole("visible", visible, low=0)
        whole("running", running, low=0)
        now = self._now = number("now", now, low=self._now, unit="s")
        if not visible or running < self.concurrency:
            self._busy_since = None
            if not visible and not running:
                self._level = min(self._level, float(self.curve.start))
            self.why = "messages wait, but not all that may run does" if visible else "no message waits"
            return self.concurrency
        if self._busy_since is not None:
            grown = self._level + (now - self._busy_since) * self.curve.per_minute / _MINUTE
            self._level = min(grown, float(self.curve.most))
        self._busy_since = now
        end = (
            f"the ceiling of {self.curve.most}"
            if self._level >= self.curve.most
            else f"{self.curve.per_minute} a minute"
        )
        self.why = f"all are busy and messages wait: {end}"
        return self.concurrency


def events_per_poller(*, kilobytes: float, seconds: float, batch: int) -> float:
    """Events a second of one provisioned poller by AWS's formula: events of so many KB, so many seconds a batch.

    >>> events_per_poller(kilobytes=3, seconds=1, batch=10), events_per_poller(kilobytes=3, seconds=90, batch=1)
    (100.0, 1.0)
    """
    _positive(kilobytes=kilobytes, seconds=seconds)
    moved = math.ceil(limit("lambda.esm.poller.mb_per_s") * _KB / kilobytes)
    invoked = math.ceil(limit("lambda.esm.poller.invocations") / seconds) * whole("batch", batch)
    polls = limit("lambda.esm.poller.polls")
    return float(min(moved, invoked, polls * min(batch, limit("sqs.receive.max"))))


def pollers(rate: float, *, seconds: float, batch: int, kilobytes: float = 1.0) -> int:
    """Pollers for ``rate`` events a second: as many as AWS's formula says, or as 10 invocations each, if that is more.

    >>> pollers(1000, seconds=1, batch=10), pollers(125, seconds=90, batch=1)
    (10, 1125)
    """
    number("rate", rate, unit="events/s")
    by_formula = math.ceil(rate / events_per_poller(kilobytes=kilobytes, seconds=seconds, batch=batch))
    by_little = math.ceil(round(rate * seconds / batch / limit("lambda.esm.poller.invocations"), 9))
    return max(by_formula, by_little)


def _positive(**values: float) -> None:
    for name, value in values.items():
        if not number(name, value):
            raise ModelError(f"{name} must be more than 0; got 0.")


def _floor(level: float) -> int:
    return int(level + 1e-3)  # a fifth of a second gives one more, give or take a rounding error
