"""A fleet's workload in numbers: how many conversations, how many steps, how long, how large, how often tried.

One description for all that is asked of it: :mod:`labkit.models.amplification` counts its API calls,
:mod:`labkit.models.costs` prices them, :mod:`labkit.models.limits` holds them against AWS's quotas. The defaults are
the course's worked example (facts ``fleet.*``): 500 conversations a minute, 15 steps each, 90 seconds a step.
Standard library only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from labkit.facts import facts
from labkit.models._input import ModelError, limit, number, whole
from labkit.models.little import Load, in_flight

__all__ = ["DAY", "Workload"]

DAY = 86_400.0  # seconds
KB = 1024
_MINUTE = 60.0


@dataclass(frozen=True)
class Workload:
    """A steady fleet. Raises :class:`~labkit.models._input.ModelError` for what cannot be.

    ``conversations`` start each minute; each has ``steps`` steps of ``step_seconds``. ``deliveries``: how often a
    step's message is received until it is deleted, 1.0 where nothing is ever tried again.
    ``messages_per_call`` and ``entries_per_call``: how full your requests to SQS and PutEvents are;
    ``messages_per_send``: those that AWS makes for you, 1 for a classic bus or a state machine, up to
    ``eventbridgev2.sqs.batch`` for a V2 bus. ``message_kb``, ``event_kb``, ``item_kb``: sizes in KB of 1,024 bytes.
    For each step: ``events``, ``writes`` (claim, result), ``transitions`` of a Standard workflow, ``callbacks`` with a
    task token, ``claim_checks`` through S3. ``heartbeat``: seconds between two heartbeats of a step, 0 for none.
    ``input_tokens`` and ``output_tokens`` of one delivery; ``memory_tokens`` of one conversation that long-term memory
    extracts from. The token counts are an example of ours.

    >>> Workload().steps_per_second, Workload().in_flight
    (125.0, 11250.0)
    """

    conversations: float = float(facts("fleet.conversations_per_min"))
    steps: int = limit("fleet.steps_per_conversation")
    step_seconds: float = float(facts("fleet.step_time"))
    deliveries: float = 1.0
    messages_per_call: float = 1.0
    messages_per_send: float = 1.0
    entries_per_call: float = float(facts("events.put.entries"))
    message_kb: float = 1.0
    event_kb: float = 1.0
    item_kb: float = 1.0
    events: float = 1.0
    writes: float = 2.0
    transitions: float = 1.0
    callbacks: float = 1.0
    claim_checks: float = 0.0
    heartbeat: float = 0.0
    input_tokens: float = 2_000.0
    output_tokens: float = 500.0
    memory_tokens: float = 0.0

    def __post_init__(self) -> None:
        whole("steps", self.steps)
        number("step_seconds", self.step_seconds, low=1e-3, unit="s", finite=True)
        number("deliveries", self.deliveries, low=1.0, finite=True)
        number("messages_per_call", self.messages_per_call, low=1.0, high=limit("sqs.batch.entries"))
        number("messages_per_send", self.messages_per_send, low=1.0, high=limit("eventbridgev2.sqs.batch"))
        number("entries_per_call", self.entries_per_call, low=1.0, high=limit("eventbridgev2.put.entries"))
        number("message_kb", self.message_kb, high=limit("sqs.message.max_bytes") / KB, unit="KB")
        number("event_kb", self.event_kb, high=limit("events.put.request_bytes") / KB, unit="KB")
        number("item_kb", self.item_kb, high=limit("dynamodb.item.max_bytes") / KB, unit="KB")
        for name in ("conversations", "events", "writes", "transitions", "callbacks", "claim_checks"):
            number(name, getattr(self, name), finite=True)
        for name in ("input_tokens", "output_tokens", "memory_tokens"):
            number(name, getattr(self, name), finite=True)
        if number("heartbeat", self.heartbeat, finite=True):
            number("heartbeat", self.heartbeat, low=1.0, unit="s, or 0 for none", finite=True)
        if self.events:
            self._fit("entries_per_call", self.entries_per_call, self.event_kb, limit("events.put.request_bytes"))
        full = "messages_per_send" if self.sent_by_aws else "messages_per_call"
        self._fit(full, self.send_batch, self.message_kb, limit("sqs.batch.max_bytes"))

    @staticmethod
    def _fit(field: str, items: float, kb: float, most: int) -> None:
        """So many items of so many KB go into one request?"""
        if items * kb * KB > most * (1 + 1e-9):
            raise ModelError(
                f"{field} must be at most {most / KB / kb:g} with {kb:g} KB each, "
                f"for a request holds {most / KB:g} KB; got {items:g}."
            )

    @property
    def steps_per_minute(self) -> float:
        """Steps that start each minute."""
        return self.conversations * self.steps

    @property
    def steps_per_second(self) -> float:
        """Steps that start each second."""
        return self.steps_per_minute / _MINUTE

    @property
    def steps_per_day(self) -> float:
        """Steps that start in 24 hours."""
        return self.steps_per_second * DAY

    @property
    def conversations_per_day(self) -> float:
        """Conversations that start in 24 hours."""
        return self.conversations * DAY / _MINUTE

    @property
    def load(self) -> Load:
        """What the queues hold, by Little's law: each delivery of a step is in flight for its whole time."""
        return Load(self.steps_per_second * self.deliveries, self.step_seconds)

    @property
    def in_flight(self) -> float:
        """Steps under way at once, on average."""
        return self.load.in_flight

    @property
    def conversation_seconds(self) -> float:
        """How long one conversation is open: its steps, one after another, without any waiting in queues."""
        return self.steps * self.step_seconds * self.deliveries

    @property
    def open_conversations(self) -> float:
        """Conversations open at once, on average: also the open executions, where each is one."""
        return in_flight(self.conversations / _MINUTE, self.conversation_seconds)

    @property
    def sent_by_aws(self) -> bool:
        """Does a state machine or a rule send the messages? Else you do."""
        return bool(self.callbacks or self.events)

    @property
    def send_batch(self) -> float:
        """Messages in one request that sends, whoever makes it."""
        return self.messages_per_send if self.sent_by_aws else self.messages_per_call

    @property
    def heartbeats(self) -> float:
        """Heartbeats of one delivery: at each interval, and none at the very end."""
        return math.ceil(self.step_seconds / self.heartbeat) - 1.0 if self.heartbeat else 0.0

    @property
    def writes_of_a_step(self) -> float:
        """Writes of one step: each delivery that comes to nothing has written its claim before."""
        return self.writes + (self.deliveries - 1 if self.writes else 0.0)

    def but(self, **changes: Any) -> Workload:
        """The same workload with some of its numbers changed."""
        return replace(self, **changes)

    def scaled(self, times: float) -> Workload:
        """So many times as many conversations."""
        return self.but(conversations=self.conversations * number("times", times, finite=True))
