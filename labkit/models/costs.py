"""What a fleet costs, service by service: the calls of a workload at list prices.

The dollars follow steps, not users: whoever cuts a step from a conversation cuts the whole bill by its share. Two lines
are not calls at all, and dwarf the others: the tokens of the model, and what waits for them. A function is paid for
each step that it waits for; a pod waits for as many as it has slots. Standard library only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from labkit.models import prices, workflows
from labkit.models._input import a, number, whole
from labkit.models.workload import Workload

__all__ = ["Bill", "Pod", "bill"]

_HOURS = 24.0


@dataclass(frozen=True)
class Pod:
    """A worker's pod: ``vcpu`` vCPU, ``gb`` GB of memory, ``slots`` steps at once. An example of ours: say your own.

    Raises :class:`~labkit.models._input.ModelError` for what cannot be.

    >>> Pod().needed(Workload())
    1125
    """

    vcpu: float = 1.0
    gb: float = 2.0
    slots: int = 10

    def __post_init__(self) -> None:
        number("vcpu", self.vcpu, finite=True)
        number("gb", self.gb, finite=True)
        whole("slots", self.slots)

    def needed(self, workload: Workload) -> int:
        """Pods for the mean number of steps under way: none to spare for a burst."""
        return math.ceil(workload.in_flight / self.slots)


@dataclass(frozen=True)
class Bill:
    """USD a day by service, in the order of their size; services that cost nothing are left out."""

    workload: Workload
    per_day: dict[str, float]

    @property
    def total(self) -> float:
        """USD a day."""
        return sum(self.per_day.values())

    @property
    def plumbing(self) -> float:
        """USD a day for what carries the work: all but the model's tokens and what the steps run in."""
        return sum(usd for name, usd in self.per_day.items() if name not in _THE_WORK)

    @property
    def per_conversation(self) -> float:
        """USD of one conversation; 0 where there is none."""
        return self.total / self.workload.conversations_per_day if self.workload.conversations else 0.0

    def rows(self) -> list[tuple[str, float, float]]:
        """(service, USD a day, its share in per cent), the largest first."""
        return [(name, usd, 100 * usd / self.total) for name, usd in self.per_day.items()]


_THE_WORK = ("model tokens", "Lambda", "pods")


def bill(workload: Workload, *, model: str = "haiku_4_5", lambda_mb: float = 0.0, pod: Pod | None = None) -> Bill:
    """The bill of ``workload``. ``model``: one of :data:`labkit.models.prices.MODELS`.

    What the steps run in, left out unless you say it: ``lambda_mb``, memory of the function that runs a step, and waits
    in it; ``pod``, of which :meth:`Pod.needed` run all day on Fargate, none of them idle.
    """
    a("workload", workload, Workload, "Workload(conversations=500)")
    if pod is not None:
        a("pod", pod, Pod, "Pod(slots=10)")
    w, steps = workload, workload.steps_per_day
    received = steps * w.deliveries
    beats = received * w.heartbeats
    spent = {
        "SQS": prices.sqs(steps, kb=w.message_kb, per_call=w.send_batch)
        + prices.sqs(received, kb=w.message_kb, per_call=w.messages_per_call)
        + prices.sqs(steps, per_call=w.messages_per_call)
        + prices.sqs(beats),
        "EventBridge": prices.events(steps * w.events, kb=w.event_kb),
        "DynamoDB": prices.writes(steps * w.writes_of_a_step, kb=w.item_kb),
        "S3": prices.objects(steps * w.claim_checks, received * w.claim_checks),
        "Step Functions": workflows.standard(steps * w.transitions),
        "model tokens": prices.tokens(received * w.input_tokens, received * w.output_tokens, model=model),
    }
    if number("lambda_mb", lambda_mb, unit="MB"):
        spent["Lambda"] = prices.invocations(received, seconds=w.step_seconds, mb=lambda_mb)
    if pod:
        spent["pods"] = prices.pods(pod.needed(w), hours=_HOURS, vcpu=pod.vcpu, gb=pod.gb)
    paid = {name: usd for name, usd in spent.items() if usd}
    return Bill(workload, dict(sorted(paid.items(), key=lambda item: -item[1])))
