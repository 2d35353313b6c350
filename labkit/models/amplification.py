"""One conversation is many API calls: which, how many, and who makes them.

A step that goes through a queue, a table and a bus costs, without a single retry::

    send    1   by AWS: the bus, or the state machine, sends the message
    receive 1   by you
    claim   1   by you: the conditional write before the work
    result  1   by you: the write after it
    publish 1   by you: the completion event, up to ten of them in a request
    answer  1   by you, where a task token waits
    delete  1   by you

A count that leaves out the send, or the second write, is a third or a half too low; and a bill does not follow calls
everywhere (:mod:`labkit.models.prices`). SQS bills every action, and so the sends of a bus: no page of AWS was
found that says this of a bus by name, so it is not verified. Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from labkit.models._input import a, limit, number, whole
from labkit.models.workload import DAY, Workload

__all__ = ["Calls", "Line", "calls", "idle_receives"]

By = Literal["you", "AWS"]


@dataclass(frozen=True)
class Line:
    """One operation: calls for each step, and who makes them. ``items``: messages, events or writes in those calls."""

    service: str
    operation: str
    by: By
    per_step: float
    items: float


@dataclass(frozen=True)
class Calls:
    """The calls of a workload, operation by operation.

    >>> found = calls(Workload())
    >>> found.per_day("SQS"), found.per_day("SQS", without=["SendMessage"])
    (32400000.0, 21600000.0)
    """

    workload: Workload
    lines: tuple[Line, ...]

    def _of(self, service: str | None, by: By | None, without: Iterable[str]) -> list[Line]:
        left_out = set(without)
        return [
            line
            for line in self.lines
            if service in (None, line.service) and by in (None, line.by) and line.operation not in left_out
        ]

    def per_step(self, service: str | None = None, *, by: By | None = None, without: Iterable[str] = ()) -> float:
        """Calls of one step: to one service or all, by you or AWS or both, some operations left out."""
        return sum(line.per_step for line in self._of(service, by, without))

    def per_conversation(
        self, service: str | None = None, *, by: By | None = None, without: Iterable[str] = ()
    ) -> float:
        """Calls of one conversation. The last request of a batch is counted by the share that it is full."""
        return self.per_step(service, by=by, without=without) * self.workload.steps

    def per_day(self, service: str | None = None, *, by: By | None = None, without: Iterable[str] = ()) -> float:
        """Calls in 24 hours."""
        return self.per_step(service, by=by, without=without) * self.workload.steps_per_day

    def per_second(self, operation: str) -> float:
        """Calls a second of one operation; 0 for one that the workload does not make."""
        return sum(line.per_step for line in self.lines if line.operation == operation) * self.workload.steps_per_second

    def rows(self) -> list[tuple[str, str, str, float, float]]:
        """(service, operation, by, calls of a conversation, calls a day), in the order of a step."""
        steps, day = self.workload.steps, self.workload.steps_per_day
        return [(x.service, x.operation, x.by, x.per_step * steps, x.per_step * day) for x in self.lines]


def calls(workload: Workload) -> Calls:
    """The calls that ``workload`` makes; operations that it never makes are left out."""
    a("workload", workload, Workload, "Workload(conversations=500)")
    w = workload
    beats = w.heartbeats * w.deliveries
    sender: By = "AWS" if w.sent_by_aws else "you"
    lines = [
        Line("SQS", "SendMessage", sender, 1 / w.send_batch, 1.0),
        Line("SQS", "ReceiveMessage", "you", w.deliveries / w.messages_per_call, w.deliveries),
        Line("DynamoDB", "writes", "you", w.writes_of_a_step, w.writes_of_a_step),
        Line("S3", "PutObject", "you", w.claim_checks, w.claim_checks),
        Line("S3", "GetObject", "you", w.claim_checks * w.deliveries, w.claim_checks * w.deliveries),
        Line("SQS", "ChangeMessageVisibility", "you", beats, beats),
        Line("Step Functions", "SendTaskHeartbeat", "you", beats * w.callbacks, beats * w.callbacks),
        Line("EventBridge", "PutEvents", "you", w.events / w.entries_per_call, w.events),
        Line("Step Functions", "SendTaskSuccess", "you", w.callbacks, w.callbacks),
        Line("SQS", "DeleteMessage", "you", 1 / w.messages_per_call, 1.0),
    ]
    return Calls(workload, tuple(line for line in lines if line.per_step))


def idle_receives(workers: int, *, wait: float = float(limit("sqs.long_poll.max")), round_trip: float = 0.02) -> float:
    """ReceiveMessage calls a day of ``workers`` that find an empty queue: each waits ``wait`` seconds and asks again.

    ``round_trip``: seconds that a call itself takes, an assumption of ours. A short poll (``wait`` 0) asks without end.

    >>> round(idle_receives(1)), round(idle_receives(1, wait=0))
    (4316, 4320000)
    """
    whole("workers", workers, low=0)
    number("wait", wait, high=limit("sqs.long_poll.max"), unit="s")
    return workers * DAY / (wait + number("round_trip", round_trip, low=1e-4, unit="s", finite=True))
