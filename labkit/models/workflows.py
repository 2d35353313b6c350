"""Standard or Express: what each costs, what each can wait for, and how close five minutes are.

They sell different things. A Standard workflow sells *transitions*, and waits for nothing::

    0.025 USD per 1,000 transitions, each retry one more        a wait of a year costs what a wait of a second does

An Express workflow sells *time*, and counts no transitions::

    1 USD per million requests + GB-hours (in steps of 100 ms and 64 MB)    a wait for a model is paid by the second

So it is not the length of the workflow that decides, but seconds per transition: see :func:`crossover`. And an Express
workflow takes no task token: it cannot wait for a human at all (``sfn.express.waits_for_token``), and it ends at
``sfn.express.max_duration``. Prices: https://aws.amazon.com/step-functions/pricing/, us-east-1, in facts
``sfn.price.*``, without the free transitions. AWS counts a transition each time a step is executed; whether it also
counts the start and the end of an execution is not verified, and here it does not. Standard library only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from labkit.facts import facts
from labkit.models._input import ModelError, limit, number, one_of, whole
from labkit.models.prices import KB, price

__all__ = ["Ceiling", "Express", "crossover", "express_ceiling", "human_gate", "poll_events", "poll_for_human",
           "saga", "standard"]  # fmt: skip

_HOUR = 3600.0
_MILLION = 1e6
_POLL = 9  # events of a round: Wait and Choice are entered and left, Task is also scheduled, started, succeeded
_ENDS = 2  # … and of the execution: started, succeeded


def standard(transitions: float) -> float:
    """USD for so many state transitions of Standard workflows.

    >>> standard(1_000_000)
    25.0
    """
    return number("transitions", transitions, finite=True) * price("sfn.price.standard_per_1000") / 1000


@dataclass(frozen=True)
class Express:
    """One Express execution: ``seconds`` long; sizes in KB of its definition and of the data that a step carries.

    ``branches``: steps of its Map or Parallel states, which hold a copy of the data each. Raises
    :class:`~labkit.models._input.ModelError`, also for one that is longer than AWS lets it run, or carries more data
    than a state may (``sfn.payload.max_bytes``).

    >>> Express(60).billed_mb, Express(0.25).billed_seconds
    (64, 0.3)
    """

    seconds: float
    definition_kb: float = 10.0
    data_kb: float = 10.0
    branches: int = 1

    def __post_init__(self) -> None:
        number("seconds", self.seconds, high=limit("sfn.express.max_duration"), unit="s")
        number("definition_kb", self.definition_kb, unit="KB", finite=True)
        number("data_kb", self.data_kb, high=limit("sfn.payload.max_bytes") / KB, unit="KB")
        whole("branches", self.branches)

    @property
    def billed_seconds(self) -> float:
        """Its time, rounded up to the next step of the bill."""
        step = price("sfn.express.billing.step")
        return round(math.ceil(round(self.seconds / step, 6)) * step, 6)

    @property
    def billed_mb(self) -> int:
        """Its memory by AWS's estimate, rounded up to whole chunks."""
        chunk = limit("sfn.express.billing.memory_chunk")
        used = limit("sfn.express.billing.memory_base") + (self.definition_kb + self.data_kb * self.branches) / KB
        return math.ceil(used / chunk) * chunk

    @property
    def gb_hours(self) -> float:
        """GB-hours of one execution."""
        return self.billed_seconds * self.billed_mb / KB / _HOUR

    def month(self, executions: float) -> float:
        """USD for so many executions in one month: the price of a GB-hour falls in two steps."""
        bounds = [0.0, *map(float, str(facts("sfn.price.express_gb_h.tiers")).split("|")), math.inf]
        total = number("executions", executions, finite=True) * self.gb_hours
        hours = (max(0.0, min(total, high) - low) for low, high in pairwise(bounds))
        time = sum(each * price(f"sfn.price.express_gb_h.{tier}") for tier, each in enumerate(hours, 1))
        return time + executions * price("sfn.price.express_per_million") / _MILLION

    @property
    def usd(self) -> float:
        """USD of one execution at the first, dearest price."""
        return self.gb_hours * price("sfn.price.express_gb_h.1") + price("sfn.price.express_per_million") / _MILLION


def crossover(seconds: float, *, definition_kb: float = 10.0, data_kb: float = 10.0) -> float:
    """Transitions at which a Standard workflow costs what an Express one of ``seconds`` does; with fewer, Standard is
    the cheaper one. At 64 MB this is one transition for each 24 seconds."""
    return Express(seconds, definition_kb, data_kb).usd / standard(1)


@dataclass(frozen=True)
class Ceiling:
    """A chain against the time that an Express workflow has. ``seconds``: what it may take."""

    seconds: float
    limit: float

    @property
    def fits(self) -> bool:
        return self.seconds <= self.limit

    @property
    def percent(self) -> float:
        """Share of the limit in per cent."""
        return 100 * self.seconds / self.limit


def express_ceiling(steps: int, p95: float, *, attempts: int = 1, backoff: float = 0.0) -> Ceiling:
    """``steps`` one after another, each up to ``p95`` seconds and ``attempts`` times, ``backoff`` s between attempts.

    An upper bound on purpose: all steps slow, and all retried. For the probability that a chain is late,
    :meth:`labkit.models.chains.Chain.over` has the closed form.

    >>> express_ceiling(12, 30).seconds, express_ceiling(12, 30).fits
    (360.0, False)
    """
    number("p95", p95, unit="s", finite=True)
    waits = number("backoff", backoff, unit="s", finite=True) * (whole("attempts", attempts) - 1)
    seconds = float(whole("steps", steps) * (p95 * attempts + waits))
    return Ceiling(seconds, float(limit("sfn.express.max_duration")))


def human_gate(wait: float, *, kind: str = "STANDARD") -> float:
    """USD of a state that waits ``wait`` seconds for a human with a task token: one transition, however long.

    Raises :class:`~labkit.models._input.ModelError` for an Express workflow, which takes no token, whatever the wait.
    """
    if one_of("kind", kind, ("STANDARD", "EXPRESS")) == "EXPRESS":
        raise ModelError("kind must be STANDARD for a human gate: an Express workflow cannot wait for a task token.")
    number("wait", wait, high=limit("sfn.token.max_wait"), unit="s")
    return standard(1)


def poll_for_human(wait: float, *, every: float, transitions: int = 3) -> float:
    """USD of the loop that asks a table each ``every`` seconds instead: Wait, Task and Choice are 3 transitions.

    A price only: :func:`poll_events` says whether the execution lives as long.
    """
    return standard(_rounds(wait, every) * whole("transitions", transitions))


def poll_events(wait: float, *, every: float) -> int:
    """Events in the history of that loop: 9 a round. Over ``sfn.history.max_events`` the execution fails.

    Five for the Task, two each for Choice and Wait:
    https://cloudonaut.io/step-functions-pitfall-maximum-number-of-history-events/

    >>> poll_events(3600, every=60)
    542
    """
    return _rounds(wait, every) * _POLL + _ENDS


def _rounds(wait: float, every: float) -> int:
    return math.ceil(number("wait", wait, unit="s", finite=True) / number("every", every, low=1, unit="s"))


def saga(steps: int, failed_at: int | None = None, *, retries: int = 0) -> int:
    """Transitions of a saga of ``steps`` steps: all of them, or those up to ``failed_at`` with its ``retries`` (each
    one more transition), and one undo for each step before it.

    >>> saga(5), saga(5, failed_at=4, retries=2)
    (5, 9)
    """
    whole("steps", steps)
    whole("retries", retries, low=0)
    if failed_at is None:
        return steps
    whole("failed_at", failed_at, high=steps)
    return failed_at + retries + (failed_at - 1)
