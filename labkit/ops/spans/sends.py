"""Sends: the spans of who causes work, and how their context gets to whoever does it.

Names, kinds and attributes follow OpenTelemetry's conventions for messaging spans (status: Development). The context
that goes along with a message is its *creation context*:

* One message: the context of the span ``send <destination>``, of kind producer.
* Several in one call: each has a span ``create <destination>`` of its own, so that each has a context of its own, and
  the one span ``send``, of kind client, has links to them. Ten conversations published together are ten traces.
* An envelope that carries a context which somebody chose keeps it, as the conventions ask, and the send has a link to
  it. One that :meth:`~labkit.control.envelope.Envelope.next` gave it, the current span's, is replaced by the send's.

**On a bus the context is in the envelope alone.** PutEvents takes no attributes, and what a rule's target receives has
none of ours. (It has a ``TraceHeader``, which AWS hands on to SQS and Lambda as X-Ray's header; that is X-Ray's format,
and one more place to keep in step.) A message that is sent to a queue directly has it in its attributes too, as
``traceparent`` and ``tracestate``, where other instrumentations look for it.

**What has no room for it goes without**: a message, an event or an input that only the context would make too large.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from labkit.control import trace_context
from labkit.control.bus import Bus, Published, PublishError
from labkit.control.definitions import MachineError
from labkit.control.envelope import Envelope
from labkit.control.trace_context import TraceContext
from labkit.facts import facts
from labkit.models.sizes import message_size
from labkit.ops.spans.record import WORK

if TYPE_CHECKING:
    from labkit.control.executions import Execution
    from labkit.control.machines import Machine
    from labkit.ops.tracing import Tracing
    from labkit.work.queues import Queue

__all__ = ["about", "publish", "send", "start"]

BUS, SQS = "aws_eventbridge", "aws_sqs"  # messaging.system; EventBridge has no name in the conventions
_BESIDE = 1_024  # bytes of an event beside its detail, and of the attributes: ample


def publish(tracing: Tracing, bus: Bus, envelopes: Sequence[Envelope], options: Mapping[str, Any]) -> Published:
    """:meth:`labkit.control.bus.Bus.publish` with spans. Raises what that raises: the error is the span's too."""
    from labkit.ops.spans import bridge

    stamped, contexts = [], []
    single = len(envelopes) == 1
    for envelope in envelopes:
        own = _chosen(envelope)
        if own is None and not single:
            made = tracing.begin(f"create {bus.name}", "producer", {**_to(BUS, "create", bus.name), **about(envelope)})
            own = bridge.of(made)
            made.end()
            envelope = _stamp(envelope, own)
        stamped.append(envelope)
        contexts.append(own)
    links = [bridge.link(each) for each in contexts if each]
    attributes = {
        **_to(BUS, "send", bus.name),
        **(about(envelopes[0]) if single else {"messaging.batch.message_count": len(envelopes)}),
    }
    fresh = single and contexts[0] is None
    span = tracing.begin(f"send {bus.name}", "producer" if fresh else "client", attributes, links=links)
    try:
        if fresh:
            stamped = [_stamp(stamped[0], bridge.of(span))]
        done = bus.publish(stamped, **options)
        span.set_attribute("labkit.calls", done.calls)
        if done.retried:
            span.set_attribute("labkit.retried", done.retried)
        if single:
            span.set_attribute("messaging.message.id", done.ids[0])
        return done
    except BaseException as error:
        if isinstance(error, PublishError):
            span.set_attribute("labkit.failed", len(error.failed))
        tracing.fails(span, error)
        raise
    finally:
        span.end()


def send(tracing: Tracing, queue: Queue, body: Any, options: Mapping[str, Any]) -> str:
    """:meth:`labkit.work.queues.Queue.send` with a span. ``body`` is an envelope, or what send takes: then the context
    is in the message's attributes alone, as far as ten of them leave room for it."""
    from labkit.ops.spans import bridge

    own = _chosen(body) if isinstance(body, Envelope) else None
    span = tracing.begin(
        f"send {queue.name}",
        "client" if own else "producer",
        {**_to(SQS, "send", queue.name), **about(body)},
        links=[bridge.link(own)] if own else [],
    )
    try:
        context = own or bridge.of(span)
        if isinstance(body, Envelope):
            body = _stamp(body, context).detail()
        attributes = dict(options.get("MessageAttributes", {}))
        wanted = context.headers() if context else {}
        more = attributes | {name: {"DataType": "String", "StringValue": text} for name, text in wanted.items()}
        if len(more) <= int(facts("sqs.message.max_attributes")) and _fits(body, more):
            attributes = more
        identity = queue.send(body, **{**options, "MessageAttributes": attributes})
        span.set_attribute("messaging.message.id", identity)
        return identity
    except BaseException as error:
        tracing.fails(span, error)
        raise
    finally:
        span.end()


def start(tracing: Tracing, machine: Machine, input: Mapping[str, Any], name: str | None) -> Execution:
    """:meth:`labkit.control.machines.Machine.start` with a span. The input gets ``traceparent`` (and ``tracestate``),
    unless it has one.

    A start with a name is idempotent for the same input only, and each delivery of the same work has another context.
    So an execution of this name that runs, and whose input is the same but for that, is the one that was asked for.
    """
    from labkit.ops.spans import bridge

    with tracing.span(f"start {machine.name}", kind="producer") as span:
        span.set_attribute("aws.step_functions.state_machine.arn", machine.arn)
        given = dict(input)
        if trace_context.parse(given.get("traceparent")) is None and (context := bridge.of(span)):
            carried = given | context.headers()
            given = carried if _bytes(carried) <= int(facts("sfn.payload.max_bytes")) else given
        try:
            execution = machine.start(given, name=name)
        except MachineError as error:
            found = _same(machine, name, given) if name and error.code == "ExecutionAlreadyExists" else None
            if found is None:
                raise
            execution = found
            span.set_attribute("labkit.outcome", "was running")
        span.set_attribute("labkit.execution", execution.arn)
        return execution


def _same(machine: Machine, name: str, input: Mapping[str, Any]) -> Execution | None:
    execution = machine.execution(name)
    described = execution.describe()
    same = _untraced(json.loads(described.get("input") or "{}")) == _untraced(input)
    return execution if same and described["status"] == "RUNNING" else None


def _untraced(input: Any) -> dict[str, Any]:
    if not isinstance(input, Mapping):  # somebody else's execution: it may have any JSON
        return {"": input}
    return {key: value for key, value in input.items() if key not in ("traceparent", "tracestate")}


def about(body: Any) -> dict[str, Any]:
    """What a span may say of an envelope, or of its dictionary: names and numbers, nothing of its payload."""
    if isinstance(body, Envelope):
        return {
            WORK: body.trace_id,
            "messaging.message.conversation_id": body.conversation_id,
            "labkit.step": body.step,
            "labkit.agent_class": body.agent_class,
        }
    if isinstance(body, Mapping):
        found = body.get("detail", body)
        if isinstance(found, Mapping) and isinstance(found.get("trace_id"), str):
            return {WORK: found["trace_id"][:128]}
    return {}


def _to(system: str, operation: str, name: str) -> dict[str, Any]:
    return {
        "messaging.system": system,
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": name,
    }


def _chosen(envelope: Envelope) -> TraceContext | None:
    """The context that an envelope carries, if it is not just the place where we are."""
    own = trace_context.carried(envelope)
    here = trace_context.current()
    return None if own is None or (here is not None and own.span_id == here.span_id) else own


def _stamp(envelope: Envelope, context: TraceContext | None) -> Envelope:
    if context is None:
        return envelope
    stamped = envelope.model_copy(update={"traceparent": context.traceparent, "tracestate": context.state})
    return stamped if stamped.size() + _BESIDE <= int(facts("sqs.message.max_bytes")) else envelope


def _fits(body: Any, attributes: Mapping[str, Any]) -> bool:
    return _bytes(body) + message_size({"MessageAttributes": attributes}) <= int(facts("sqs.message.max_bytes"))


def _bytes(body: Any) -> int:
    """Of a body's text, or a little more; what is no JSON is refused by whoever sends it."""
    try:
        return len((body if isinstance(body, str) else json.dumps(body)).encode(errors="replace"))
    except (TypeError, ValueError, RecursionError):
        return 0
