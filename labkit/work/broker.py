"""Broker: one function takes every event, a model says which agents it is for, and the work goes to their queues.

Callers know the bus and no agent; agents know their queue and no caller. Between them stands what agents can do
(:mod:`~labkit.work.capabilities`) and who chooses among them (:mod:`~labkit.work.decisions`)::

    event ─ read ─ claim ── ask the model ── check ── RECORD the decision ── send ─┬─ researcher's queue
              │      └─ decided before: that decision, and the model is not asked  └─ coder's queue
              └─ unreadable, too old: to the dead-letter queue, with the reason

A model does not decide the same thing twice, so the decision is recorded before the first send. **What is promised**,
within the window of the store, however often the event comes and wherever the broker is killed:

* One event has one decision. Nothing is sent that was not recorded: of two brokers at one event, one records.
* Each piece of work of that decision is sent at least once: no kill loses it, and no failure leaves it half sent for
  good, because the event is deleted only after the last send.
* A second copy is sent only if the broker ends between its first send and the record that all were sent, if SQS refuses
  a part of them, or if sending outlasts the lease. Copies are the same, byte by byte, under one key: trace id and
  agent. Consumers that claim by that key (:meth:`Work.of <labkit.state.records.Work.of>`, as every
  :class:`~labkit.work.worker.Worker` with a store does) do the work once.

Not promised: that the model is asked once. A broker that dies with an answer in its hands has paid for nothing.

An event is known by its trace id: another payload under the same one is refused (``PayloadMismatch``). What an agent
gets is an envelope with the trace id, conversation, time and policy of the event, one step on, and its own agent class;
a task token stays behind. Its payload is ``{"input": …, "event": …}``: what the model filled in, and what came in (or
``"event_ref"``, where that lies in S3).
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from labkit.errors import LabError
from labkit.state.idempotency import Claim, IdempotencyStore, PayloadMismatch, Work
from labkit.work.capabilities import Capabilities
from labkit.work.decisions import Decider, not_json
from labkit.work.queues import Queue

__all__ = ["HOPELESS", "Broker", "BrokerError", "Dispatched", "EventExpired", "EventUnreadable"]

# Fields of an envelope, as labkit.control.envelope checks them; its library is compiled and would not travel.
_AGENT = re.compile(r"[a-z][a-z0-9-]*")
_VERSION = re.compile(r"1\.\d+", re.ASCII)
_POLICY, _TTL = "default", 86_400


class BrokerError(LabError):
    """Base of what a broker refuses; the name of the class is the reason that a dead letter carries."""


class EventUnreadable(BrokerError):
    """The event holds no envelope, or one that is not as the contract says; the sentence names the field."""


class EventExpired(BrokerError):
    """The event is older than its ``ttl_seconds``: the work is no longer wanted."""


HOPELESS = (EventUnreadable, EventExpired, PayloadMismatch)  # what no later delivery can cure


@dataclass(frozen=True)
class Dispatched:
    """What became of an event: the ``agents`` that it went to. ``replayed``: nothing was sent now, all was before."""

    trace_id: str
    agents: tuple[str, ...]
    replayed: bool


class Broker:
    """Dispatch events by ``decider`` among ``capabilities``, with a client ``sqs``; ``store`` records the decisions.

    ``name`` is the consumer under which the store knows this broker: two brokers at the same events need two names.
    ``clock`` gives epoch seconds. Threads may share one.
    """

    def __init__(
        self,
        decider: Decider,
        capabilities: Capabilities,
        store: IdempotencyStore,
        sqs: Any,
        *,
        name: str = "broker",
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.decider, self.capabilities, self.store, self.name = decider, capabilities, store, name
        self._sqs, self._clock = sqs, clock
        self._queues: dict[str, Queue] = {}

    def dispatch(
        self, event: Any, *, left: Callable[[], float] = lambda: math.inf, store: IdempotencyStore | None = None
    ) -> Dispatched:
        """Decide on ``event`` and send; or finish what an earlier delivery began. Returns which agents got work.

        ``event`` is as EventBridge delivers it, or an envelope alone; a dictionary, or JSON text. ``left`` says how
        many seconds there are; ``store`` is one with a lease for this invocation. Whatever this raises, the event is to
        come again, except for :data:`HOPELESS`: :class:`EventUnreadable`, :class:`EventExpired`,
        :class:`~labkit.state.idempotency.PayloadMismatch`. Else :class:`~labkit.work.decisions.DecisionError`,
        :class:`~labkit.work.capabilities.CapabilityError`, :class:`~labkit.work.queues.QueueError` with what was not
        sent, :class:`~labkit.state.idempotency.Busy` and ``Fenced``; the clients' errors come through as they are.
        """
        store = store or self.store
        found = Inbound.of(event)
        decision = store.run(Work.of(found.fields, self.name), lambda _: self._decide(found, left))
        sending = Work.named(found.fields["trace_id"], f"{self.name}/sent", decision)
        fresh: list[str] = []

        def send(claim: Claim) -> list[str]:
            self._send(found, decision)
            fresh.extend(one["agent"] for one in decision)
            return fresh

        agents = store.run(sending, send)
        return Dispatched(found.fields["trace_id"], tuple(agents), not fresh)

    def _decide(self, found: Inbound, left: Callable[[], float]) -> list[dict[str, Any]]:
        late = self._clock() - found.expires_at  # only here: what was decided in time is sent, however late
        if late >= 0:
            ttl = found.fields["ttl_seconds"]
            raise EventExpired(f"{found.fields['trace_id']} expired {late:.0f} s ago: ttl_seconds is {ttl}.")
        capabilities = self.capabilities.get()
        calls = self.decider.decide(found.shown, capabilities, left=left)
        # With the queue: to finish a decision, nothing is needed but the decision.
        queues = {call.agent: capabilities[call.agent].queue_url for call in calls}
        return [{"agent": each.agent, "queue_url": queues[each.agent], "input": each.input} for each in calls]

    def _send(self, found: Inbound, decision: list[dict[str, Any]]) -> None:
        by_queue: dict[str, list[str]] = {}
        for one in decision:
            by_queue.setdefault(one["queue_url"], []).append(found.work_for(one["agent"], one["input"]))
        for url, bodies in by_queue.items():
            if url not in self._queues:
                self._queues[url] = Queue(self._sqs, url)
            queue = self._queues[url]
            # On a FIFO queue a conversation is a group; its duplicates go by content, which it must be set to.
            queue.send_batch(bodies, group=(lambda _: found.fields["conversation_id"]) if queue.fifo else None)

    def __repr__(self) -> str:
        return f"<Broker {self.name}, {self.decider.model}>"


@dataclass(frozen=True)
class Inbound:
    """An event that came in: ``fields`` of its envelope, checked, and what the event says around it."""

    fields: Mapping[str, Any]
    detail_type: str
    source: str
    expires_at: float  # epoch seconds

    @classmethod
    def of(cls, event: Any) -> Inbound:
        """Read an event. Raises :class:`EventUnreadable`."""
        if isinstance(event, str | bytes):
            try:
                event = json.loads(event)
            except (ValueError, RecursionError) as error:
                raise EventUnreadable(f"an event is a JSON object; this is no JSON: {error}.") from error
        if not isinstance(event, Mapping):
            raise EventUnreadable(f"an event is a JSON object; this is {type(event).__name__}.")
        said = event.get("detail", event)
        if not isinstance(said, Mapping):
            raise EventUnreadable(f"an envelope is a JSON object; this is {type(said).__name__}.")
        fields = {"schema_version": "1.0", "model_policy": _POLICY, "ttl_seconds": _TTL, **said}
        for name, most in (("trace_id", 128), ("conversation_id", 64)):
            _text(fields, name, most, _is_id, ": letters, digits and _.:-")
        _text(fields, "agent_class", 64, _AGENT.fullmatch, ": lower-case letters, digits and hyphens, a letter first")
        _text(fields, "model_policy", 64)
        _text(fields, "schema_version", 16, _VERSION.fullmatch, " like 1.0: this reader knows major version 1")
        _count(fields, "step", 0)
        _count(fields, "ttl_seconds", 1)
        if isinstance(fields.get("payload"), Mapping) == isinstance(fields.get("payload_ref"), Mapping):
            raise EventUnreadable("the envelope needs either payload or payload_ref, an object, and not both.")
        if fault := not_json(fields.get("payload")):
            raise EventUnreadable(f"the payload is not what JSON can hold: {fault}.")
        try:
            issued = datetime.fromisoformat(_text(fields, "issued_at", 64))
            if issued.tzinfo is None:
                raise ValueError("it must say its time zone")
            if not 1970 <= issued.year < 9999:
                raise ValueError("it is no year that work is issued in")
            expires = issued.timestamp() + fields["ttl_seconds"]
        except (ValueError, OverflowError) as error:
            raise EventUnreadable(f"envelope field issued_at is {fields['issued_at']!r:.80}: {error}.") from error
        return cls(fields, str(event.get("detail-type", "")), str(event.get("source", "")), expires)

    @property
    def shown(self) -> dict[str, Any]:
        """What the model is shown: nothing that could end a task, and no address."""
        what = {"detail_type": self.detail_type, "source": self.source, "agent_class": self.fields["agent_class"]}
        if self.fields.get("payload") is not None:
            return {**what, "payload": self.fields["payload"]}
        return {**what, "payload": f"(in S3, {self.fields['payload_ref'].get('size')} bytes)"}

    def work_for(self, agent: str, given: Any) -> str:
        """The envelope of one agent's work, as the body of a message: the same text whenever it is made."""
        kept = ("schema_version", "trace_id", "conversation_id", "model_policy", "issued_at", "ttl_seconds")
        whole = self.fields.get("payload") is not None
        came = {"event": self.fields["payload"]} if whole else {"event_ref": self.fields["payload_ref"]}
        envelope = {
            **{name: self.fields[name] for name in kept},
            "step": self.fields["step"] + 1,
            "agent_class": agent,
            "payload": {"input": given, **came},
        }
        text = json.dumps(envelope, separators=(",", ":"), sort_keys=True, ensure_ascii=False)
        # Two characters are good JSON, and SQS takes neither as it is.
        return text.replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")


def _text(fields: Mapping[str, Any], name: str, most: int, like: Callable[[str], object] = bool, rule: str = "") -> str:
    value = fields.get(name)
    if not isinstance(value, str) or not 1 <= len(value) <= most or not like(value):
        raise EventUnreadable(f"envelope field {name} is {value!r:.80}; it is a text of 1 to {most} characters{rule}.")
    return value


def _is_id(value: str) -> bool:
    # What a "word" is, beyond these, Python and the library that reads envelopes do not agree on.
    return all(each in "_.:-" or each.isalpha() or each.isdecimal() for each in value)


def _count(fields: Mapping[str, Any], name: str, least: int) -> None:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise EventUnreadable(f"envelope field {name} is {value!r:.80}; it is a whole number of at least {least}.")
