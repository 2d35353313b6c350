"""A synchronous chain on paper: how long it takes, what a retry re-pays, how its availability multiplies.

A chain is N steps that a caller waits for, one after another. A step's time is Erlang distributed (a sum of ``shape``
equal exponentials): never negative, skewed to the right as model calls are, and the sum of N steps is Erlang again, so
that each answer has a closed form beside the seeded simulation. The two agree; the tests hold them together.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from labkit.models._input import ModelError, number, whole

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@dataclass(frozen=True)
class Chain:
    """``steps`` steps one after another, each ``mean`` seconds on average.

    ``shape``: 1 is exponential (long tail), 4 is a mild skew, 50 nearly constant. The standard deviation of a step is
    ``mean / sqrt(shape)`` seconds. ``price``: what one paid step costs, in any currency.
    """

    steps: int
    mean: float
    shape: int = 4
    price: float = 0.0

    def __post_init__(self) -> None:
        whole("steps", self.steps)
        whole("shape", self.shape)
        number("mean", self.mean, low=1e-9, unit="s")
        number("price", self.price)

    @property
    def total_mean(self) -> float:
        """Mean of the whole chain, seconds."""
        return self.steps * self.mean

    def over(self, ceiling: float) -> float:
        """Probability (0 to 1) that the chain takes longer than ``ceiling`` seconds: closed form.

        P(Erlang(k, r) > t) is P(Poisson(r t) < k), with k = steps x shape phases and r = shape / mean per second.
        """
        x = number("ceiling", ceiling, unit="s") * self.shape / self.mean
        if math.isinf(x):
            return 0.0
        if x == 0:
            return 1.0
        terms = (math.exp(n * math.log(x) - x - math.lgamma(n + 1)) for n in range(self.steps * self.shape))
        return min(1.0, math.fsum(terms))

    def times(self, runs: int = 20_000, *, seed: int = 0) -> NDArray[np.float64]:
        """Simulated total times in seconds, an array of shape (runs,)."""
        import numpy as np

        rng = np.random.default_rng(seed)
        each = rng.gamma(self.shape, self.mean / self.shape, size=(whole("runs", runs), self.steps))
        return np.asarray(each.sum(axis=1), dtype=np.float64)

    def percentile(self, percent: float) -> float:
        """The time in seconds that ``percent`` of the chains stay within, by bisection of the closed form."""
        target = 1 - number("percent", percent, high=99.9999) / 100
        low, high = 0.0, self.total_mean
        while self.over(high) > target:
            high *= 2
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.over(middle) > target else (low, middle)
        return high

    def with_timeout(self, ceiling: float, attempts: int = 1) -> ClientView:
        """What a caller sees who gives up after ``ceiling`` seconds and starts over, ``attempts`` times in all."""
        late = self.over(ceiling)
        tries = float(attempts) if late == 1 else (1 - late ** whole("attempts", attempts)) / (1 - late)
        paid = tries * self.steps
        return ClientView(late, 1 - late**attempts, tries, paid, paid * self.price)


@dataclass(frozen=True)
class ClientView:
    """A caller with a timeout. Probabilities are 0 to 1, the rest are expected values per request.

    ``paid_steps`` assumes that nobody tells the chain to stop when its caller has gone: a timed-out attempt runs on,
    and is paid, to its end.
    """

    timeout: float
    answered: float
    attempts: float
    paid_steps: float
    cost: float


@dataclass(frozen=True)
class Bill:
    """Steps paid for one finished chain: when a failure starts over at the first step, and when it resumes."""

    restart: float
    resume: float

    @property
    def ratio(self) -> float:
        """How many times more the restart pays."""
        return self.restart / self.resume


def bill_of_one_failure(steps: int, failed_at: int) -> Bill:
    """Steps paid when step ``failed_at`` (1 to ``steps``) fails once: the failed step is paid, being bought already."""
    if not 1 <= failed_at <= whole("steps", steps):
        raise ModelError(f"failed_at must be a step from 1 to {steps}; got {failed_at!r}.")
    return Bill(restart=failed_at + steps, resume=steps + 1)


def expected_bill(steps: int, failure: float) -> Bill:
    """Expected steps paid until the chain is through, each try of a step failing with probability ``failure``.

    Closed form, with q = 1 - failure: resuming pays N/q; starting over waits for N successes in a row, which takes
    (q^-N - 1) / (1 - q) tries.
    """
    whole("steps", steps)
    number("failure", failure, high=0.999)
    q = 1 - failure
    restart = float(steps) if failure == 0 else math.expm1(-steps * math.log1p(-failure)) / failure
    return Bill(restart=restart, resume=steps / q)


def simulated_bill(steps: int, failure: float, *, runs: int = 20_000, seed: int = 0) -> Bill:
    """The mean of :func:`expected_bill`'s two counts over ``runs`` simulated chains."""
    import numpy as np

    expected = expected_bill(steps, failure)  # checks the input
    if expected.restart > 100_000:
        raise ModelError(f"failure {failure:g} over {steps} steps needs {expected.restart:.0f} tries: too many to run.")
    rng = np.random.default_rng(seed)
    resume = rng.geometric(1 - failure, size=(whole("runs", runs), steps)).sum(axis=1).mean()
    paid, done, going = 0, np.zeros(runs, dtype=np.int64), runs
    while going:
        paid += going
        failed = rng.random(going) < failure
        done = np.where(failed, 0, done + 1)
        done = done[done < steps]
        going = len(done)
    return Bill(restart=paid / runs, resume=float(resume))


def amplification(attempts: int, layers: int) -> int:
    """Calls that reach the bottom when each of ``layers`` nested callers makes ``attempts`` tries of its own."""
    return int(whole("attempts", attempts) ** whole("layers", layers))


def availability(*parts: float) -> float:
    """Availability (0 to 1) of something that needs each of ``parts`` at once: their product."""
    return math.prod(number("an availability", part, high=1.0) for part in parts)


def fleet_availability(agents: int, dependencies: int, each: float) -> float:
    """Availability of ``agents`` agents in a row, each calling ``dependencies`` synchronous parts of ``each`` (0 to 1).

    Five agents with four dependencies at 0.999 give 0.98019 (fact F194).
    """
    return availability(*[each] * (whole("agents", agents) * whole("dependencies", dependencies)))


def downtime(available: float, period: float = 30 * 86_400) -> float:
    """Seconds of downtime in ``period`` seconds (30 days) at an availability of 0 to 1."""
    return (1 - availability(available)) * number("period", period, unit="s")
