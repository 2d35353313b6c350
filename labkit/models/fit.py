"""Should this workload be an event-driven fleet at all? A verdict with reasons, which can be no.

The pattern sells one thing: work that outlives a worker, a client and an outage. It is paid for with a bus, queues,
dead letters, an idempotency table, at-least-once everywhere, and seconds of latency. So four kinds of work should be
built otherwise, two should wait, and the rest should be able to say what it buys.

Three answers: ``no`` names what to use instead; ``not yet`` names what has to be true first; ``yes`` names what the
fleet is for. A *no* outweighs a *not yet*, and that a *yes*; all reasons are given. The boundaries are judgements (five
steps, a minute), the ceiling of a waiting client is a fact. Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from labkit.models._input import flag, limit, number, whole

__all__ = ["Case", "Reason", "Verdict", "judge"]

Answer = Literal["yes", "not yet", "no"]
FEW_STEPS = 5
LONG_STEP = 1.0  # minutes
_MINUTE = 60


@dataclass(frozen=True)
class Case:
    """The stated facts about a workload. Raises :class:`~labkit.models._input.ModelError`.

    ``interactive``: a user watches the answer appear. ``steps`` of one conversation, ``minutes`` of one step,
    ``classes`` of agents. ``fan_out``: one step starts many. ``human``: a person is asked in between.
    ``exactly_once``: a second execution of a step would be wrong and cannot be undone or recognised (money, stock).
    ``schema_discipline``: events have owned, versioned contracts. ``gpu_batch``: the work is throughput on GPUs.
    """

    interactive: bool = False
    steps: int = 10
    minutes: float = 1.0
    classes: int = 3
    fan_out: bool = False
    human: bool = False
    exactly_once: bool = False
    schema_discipline: bool = True
    gpu_batch: bool = False

    def __post_init__(self) -> None:
        whole("steps", self.steps)
        whole("classes", self.classes)
        number("minutes", self.minutes, unit="min", finite=True)
        for name in ("interactive", "fan_out", "human", "exactly_once", "schema_discipline", "gpu_batch"):
            flag(name, getattr(self, name))


@dataclass(frozen=True)
class Reason:
    """One reason: which answer it argues for, why, and what to do instead or first (empty for a yes)."""

    answer: Answer
    field: str
    why: str
    instead: str = ""


@dataclass(frozen=True)
class Verdict:
    """The answer, and every reason, those for the answer first."""

    answer: Answer
    reasons: tuple[Reason, ...]

    @property
    def instead(self) -> list[str]:
        """What to use, or to do first, according to the reasons for the answer."""
        return [reason.instead for reason in self.reasons if reason.answer == self.answer and reason.instead]

    def rows(self) -> list[tuple[str, str, str, str]]:
        """(argues for, about, why, instead or first)."""
        return [(reason.answer, reason.field, reason.why, reason.instead) for reason in self.reasons]


def judge(case: Case) -> Verdict:
    """The verdict on ``case``.

    >>> judge(Case()).answer, judge(Case(interactive=True)).answer, judge(Case(schema_discipline=False)).answer
    ('yes', 'no', 'not yet')
    """
    found = [*_against(case), *_early(case)]
    gains = _gains(case)
    if not gains:
        found.append(
            Reason("not yet", "gain", "nothing here outlives a client, a worker or a class of agents",
                   "keep one synchronous service until something does")
        )  # fmt: skip
    for answer in ("no", "not yet", "yes"):
        if any(reason.answer == answer for reason in [*found, *gains]):
            order = {answer: 0}
            reasons = sorted([*found, *gains], key=lambda reason: order.get(reason.answer, 1))
            return Verdict(answer, tuple(reasons))
    raise AssertionError("a case with no reasons has one: nothing is gained")


def _against(case: Case) -> list[Reason]:
    reasons = []
    if case.interactive:
        reasons.append(
            Reason("no", "interactive", "who watches an answer appear wants latency, and a queue adds it",
                   "a synchronous gateway that streams; a queue behind it for slow tools")
        )  # fmt: skip
    if case.exactly_once:
        reasons.append(
            Reason("no", "exactly_once", "every hop delivers at least once, and no hop delivers exactly once",
                   "a relational database with a transactional outbox, and a worker that reads it")
        )  # fmt: skip
    if case.gpu_batch:
        reasons.append(
            Reason("no", "gpu_batch", "one message a request takes apart the batches that make a GPU cheap",
                   "a server with continuous batching; events around the batch, not inside it")
        )  # fmt: skip
    return reasons


def _early(case: Case) -> list[Reason]:
    reasons = []
    if not case.schema_discipline:
        reasons.append(
            Reason("not yet", "schema_discipline", "a shared bus without owned contracts breaks its consumers unseen",
                   "version the envelope, name an owner for each detail-type, check it in both pipelines")
        )  # fmt: skip
    small = case.classes == 1 and case.steps < FEW_STEPS and case.minutes < LONG_STEP
    if small and not (case.fan_out or case.human):
        reasons.append(
            Reason("not yet", "steps", "one agent with a few short steps does not repay bus, rules and tables",
                   "one function and one queue with a dead-letter queue")
        )  # fmt: skip
    return reasons


def _gains(case: Case) -> list[Reason]:
    reasons = []
    waits = case.steps * case.minutes * _MINUTE
    if waits > limit("apigateway.rest.timeout"):
        reasons.append(Reason("yes", "minutes", f"{waits:,.0f} s of steps outlive a client that waits"))
    if case.classes > 1:
        reasons.append(Reason("yes", "classes", f"{case.classes} classes of agents scale and fail apart"))
    if case.fan_out:
        reasons.append(Reason("yes", "fan_out", "one step starts many, and some of them fail"))
    if case.human:
        reasons.append(Reason("yes", "human", "a person answers in hours, and waiting with a token is free"))
    return reasons
