"""Retry schedules: how long to wait before trying again, and when to stop.

A *wait* answers "how many seconds after failure number n?", a *stop* answers "is that enough?". Both are tiny frozen
callables that compose, in the manner of tenacity: waits wrap each other, stops join with ``|``::

    wait = Jitter(Exponential(base=2, cap=60), seed=7)
    stop = MaxAttempts(5) | MaxElapsed(300)
    list(wait.delays(stop))

Failures are counted from 1. Nothing here sleeps: :func:`call` takes the sleep and the clock. Standard library only.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, TypeVar

from labkit.models._input import ModelError, number, whole

T = TypeVar("T")


class Wait:
    """Base of the waits: called with the failure's number (1, 2, …), answers seconds."""

    def __call__(self, failure: int) -> float:
        raise NotImplementedError

    def delays(self, stop: Stop | None = None, *, attempt_seconds: float = 0.0) -> Iterator[float]:
        """The waits in order, in seconds, until ``stop`` says enough; endless when it is None.

        ``attempt_seconds`` is what each attempt itself takes; it counts towards :class:`MaxElapsed`.
        """
        elapsed = number("attempt_seconds", attempt_seconds, unit="s")
        failure = 1
        while True:
            delay = self(failure)
            if stop is not None and stop(failure, elapsed + delay):
                return
            yield delay
            elapsed += delay + attempt_seconds
            failure += 1


@dataclass(frozen=True)
class Fixed(Wait):
    """The same wait each time."""

    seconds: float

    def __post_init__(self) -> None:
        number("seconds", self.seconds, unit="s")

    def __call__(self, failure: int) -> float:
        return float(self.seconds)


@dataclass(frozen=True)
class Exponential(Wait):
    """``base`` seconds, then ``factor`` times the one before, never more than ``cap`` seconds.

    ``Exponential(base=2)`` is 2, 4, 8, …: a state machine's ``IntervalSeconds`` and ``BackoffRate``.
    """

    base: float = 1.0
    factor: float = 2.0
    cap: float = math.inf

    def __post_init__(self) -> None:
        number("base", self.base, unit="s")
        number("factor", self.factor, low=1.0)
        number("cap", self.cap, unit="s")

    def __call__(self, failure: int) -> float:
        try:
            return float(min(self.cap, self.base * self.factor ** (failure - 1)))
        except OverflowError:  # beyond what a float holds, hence beyond any cap
            return float(self.cap)


@dataclass(frozen=True)
class Jitter(Wait):
    """Spreads another wait, so that clients who failed together do not return together.

    ``full``: uniform between 0 and the wait. ``equal``: half the wait, plus uniform up to the other half. With a
    ``seed`` the same failure number always gets the same wait; give each client a seed of its own, or none.
    """

    wait: Wait
    kind: Literal["full", "equal"] = "full"
    seed: int | str | None = None

    def __post_init__(self) -> None:
        if self.kind not in ("full", "equal"):
            raise ModelError(f"kind must be 'full' or 'equal'; got {self.kind!r}.")

    def __call__(self, failure: int) -> float:
        dice = random.Random() if self.seed is None else random.Random(f"{self.seed}/{failure}")
        whole_wait = self.wait(failure)
        kept = whole_wait / 2 if self.kind == "equal" else 0.0
        return kept + dice.random() * (whole_wait - kept)


class Stop:
    """Base of the stops: called with the number of failures and the seconds that the next try would start at."""

    def __call__(self, failures: int, elapsed: float) -> bool:
        raise NotImplementedError

    def __or__(self, other: Stop) -> Stop:
        return AnyOf((self, other))


@dataclass(frozen=True)
class MaxAttempts(Stop):
    """At most ``attempts`` tries, the first one included.

    A state machine's ``MaxAttempts`` and a rule's ``MaximumRetryAttempts`` count *re*tries: one less than this.
    """

    attempts: int

    def __post_init__(self) -> None:
        whole("attempts", self.attempts)

    def __call__(self, failures: int, elapsed: float) -> bool:
        return failures >= self.attempts


@dataclass(frozen=True)
class MaxElapsed(Stop):
    """No try starts later than ``seconds`` after the first: a rule's ``MaximumEventAgeInSeconds``."""

    seconds: float

    def __post_init__(self) -> None:
        number("seconds", self.seconds, unit="s")

    def __call__(self, failures: int, elapsed: float) -> bool:
        return elapsed > self.seconds


@dataclass(frozen=True)
class AnyOf(Stop):
    """Stops as soon as one of ``stops`` does; written ``a | b``."""

    stops: tuple[Stop, ...]

    def __call__(self, failures: int, elapsed: float) -> bool:
        return any(stop(failures, elapsed) for stop in self.stops)


def call(
    function: Callable[[], T],
    *,
    wait: Wait,
    stop: Stop,
    retry_on: type[Exception] | tuple[type[Exception], ...],
    sleep: Callable[[float], object] = time.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> T:
    """``function()``, tried again after each error of ``retry_on`` until ``stop``; then the last error is raised."""
    began = clock()
    failure = 0
    while True:
        try:
            return function()
        except retry_on:
            failure += 1
            delay = wait(failure)
            if stop(failure, clock() - began + delay):
                raise
        sleep(delay)
