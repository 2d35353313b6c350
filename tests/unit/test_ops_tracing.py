"""Tracing in one process: spans, errors, secrets, sampling; nothing global, nothing left behind."""

from __future__ import annotations

import contextlib
import json
import math
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from labkit import Lab
from labkit.control import trace_context
from labkit.control.bus import Published, PublishError
from labkit.control.definitions import MachineError
from labkit.control.envelope import Envelope
from labkit.facts import facts
from labkit.ops.spans import sends as tracing_sends
from labkit.ops.spans.record import Record, read_line
from labkit.ops.spans.sdk import line
from labkit.ops.tracing import WORK, TraceError, Tracing

TOKEN = "AQCEAAAAKgAAAAMAAAAAAAAAAaSecretSecretSecret0123456789abcdefghijk"
PROMPT = "the customer's secret is 4711"


@pytest.fixture
def tracing() -> Iterator[Tracing]:
    with Tracing("test", keep=True) as made:
        yield made


def envelope(n: int = 1, **fields: Any) -> Envelope:
    return Envelope.new(conversation_id=str(n), step=1, agent_class="researcher", payload={"prompt": PROMPT}, **fields)


class FakeBus:
    """As much of a bus as is used; ``raises`` what it is told."""

    name = "agents"

    def __init__(self, raises: Exception | None = None) -> None:
        self.sent: list[Envelope] = []
        self._raises = raises

    def publish(self, envelopes: list[Envelope], **options: Any) -> Published:
        if self._raises:
            raise self._raises
        self.sent += envelopes
        return Published(tuple(f"event-{n}" for n in range(len(envelopes))), 1, 0)


class FakeQueue:
    name = "work"

    def __init__(self) -> None:
        self.sent: list[tuple[Any, dict[str, Any]]] = []

    def send(self, body: Any, **options: Any) -> str:
        self.sent.append((body, options))
        return "message-1"


def named(tracing: Tracing, name: str) -> Record:
    (found,) = [each for each in tracing.records() if each.name == name]
    return found


# -- spans -----------------------------------------------------------------------------------------------------------


def test_spans_nest_and_an_error_is_theirs_and_raised_on(tracing: Tracing) -> None:
    with pytest.raises(ValueError, match="bad"), tracing.span("outer", kind="server", a__b=1), tracing.span("inner"):
        raise ValueError(f"bad {PROMPT}")
    inner, outer = tracing.records()
    assert (inner.parent_id, inner.trace_id) == (outer.span_id, outer.trace_id)
    assert (outer.kind, outer.attributes["a.b"], outer.parent_id) == ("server", 1, "")
    assert [(each.status, each.says, each.attributes["error.type"]) for each in (inner, outer)] == [
        ("error", "ValueError", "ValueError")
    ] * 2
    assert [note.name for note in inner.notes] == ["exception"]
    assert inner.began <= inner.ended <= outer.ended


def test_texts_of_exceptions_are_recorded_when_asked_for_and_without_tokens() -> None:
    with Tracing("test", keep=True, texts=True) as tracing:
        with pytest.raises(ValueError, match="hello"), tracing.span("step"):
            raise ValueError(f"hello {TOKEN} {'x ' * 500}")
        (found,) = tracing.records()
    (note,) = found.notes
    assert note.attributes["exception.message"].startswith("hello «token» x x")
    assert len(note.attributes["exception.message"]) <= 200
    assert TOKEN not in repr(found)


def test_a_token_that_is_cut_is_none_of_it_recorded() -> None:
    with Tracing("test", keep=True, texts=True) as tracing:
        with contextlib.suppress(ValueError), tracing.span("one"):
            raise ValueError("x " * 95 + TOKEN)  # 200 characters end within the token
        (note,) = tracing.records()[0].notes
    assert TOKEN[:8] not in note.attributes["exception.message"]
    assert note.attributes["exception.message"].endswith("«token»")


def test_a_span_is_bounded_and_odd_names_and_kinds_are_spans(tracing: Tracing) -> None:
    odd: Any = None
    with tracing.span("x" * 100_000, text="y" * 1_000_000, kind="bogus"), tracing.span(odd):
        pass
    inner, outer = tracing.records()
    assert (inner.name, outer.kind) == ("None", "internal")
    assert len(outer.name) == len(outer.attributes["text"]) == 4_096


@pytest.mark.parametrize("name", ["OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT"])
def test_limits_that_are_none_are_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "many")
    with pytest.raises(TraceError, match=name):
        Tracing("test")


def test_the_users_own_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT", "5")
    with Tracing("test", keep=True) as tracing:
        with tracing.span("one", text="123456789"):
            pass
        assert tracing.records()[0].attributes["text"] == "12345"


def test_no_secret_gets_into_a_span(tracing: Tracing) -> None:
    secret = envelope(task_token=TOKEN)
    bus, queue = FakeBus(), FakeQueue()
    tracing.publish(bus, [secret])  # type: ignore[arg-type]
    tracing.publish(bus, [secret, envelope(2)])  # type: ignore[arg-type]
    tracing.send(queue, secret)  # type: ignore[arg-type]
    tracing.send(queue, {"detail": {"trace_id": "t", "task_token": TOKEN, "payload": PROMPT}})  # type: ignore[arg-type]
    answer = {"output": PROMPT, "usage": {"inputTokens": 1, "outputTokens": 2}, "stopReason": "end_turn"}
    with contextlib.suppress(RuntimeError), tracing.chat("nova") as call:
        assert call.answered(answer) is answer
        raise RuntimeError(PROMPT)
    said = repr(tracing.records())
    assert len(tracing.records()) == 7
    assert TOKEN not in said
    assert PROMPT not in said
    assert bus.sent[0].detail().count(TOKEN) == 1  # and it still travels


def test_wrap_puts_a_span_around_a_hook(tracing: Tracing) -> None:
    def then(task: Any, result: Any) -> str:
        """Says."""
        return f"{task} {result}"

    wrapped = tracing.wrap("callback", then)
    assert wrapped("a", result="b") == "a b"
    assert wrapped.__doc__ == "Says."
    assert named(tracing, "callback").kind == "internal"


def test_records_are_of_the_sampled_traces_and_the_decision_travels() -> None:
    with Tracing("test", keep=True, share=0.0) as tracing:
        bus = FakeBus()
        with tracing.span("outer"):
            tracing.publish(bus, [envelope()])  # type: ignore[arg-type]
        assert tracing.records() == []
        (sent,) = bus.sent
        context = trace_context.carried(sent)
        assert context is not None  # whoever comes after is told that nobody keeps it
        assert not context.sampled
    with Tracing("next", keep=True) as following:
        with following.span("process", parent=context):
            pass
        assert following.records() == []
        with following.span("process", parent=context._replace(flags=1)):
            pass
        assert [each.trace_id for each in following.records()] == [context.trace_id]


@pytest.mark.parametrize("share", [-0.1, 1.1, "half", True, float("nan")])
def test_shares_that_are_none(share: Any) -> None:
    with pytest.raises(TraceError, match="share"):
        Tracing("test", share=share)


@pytest.mark.parametrize("service", ["", "x" * 65, None, 5])
def test_services_that_have_no_name(service: Any) -> None:
    with pytest.raises(TraceError, match="service is a name"):
        Tracing(service)


def test_without_keep_there_is_nothing_to_look_at() -> None:
    with Tracing("test") as tracing, pytest.raises(TraceError, match="keep=True"):
        tracing.records()


# -- nothing global, nothing left ------------------------------------------------------------------------------------


def test_the_global_provider_is_left_alone(tracing: Tracing) -> None:
    from opentelemetry import trace

    before = trace.get_tracer_provider()
    with tracing.span("ours"), trace.get_tracer("theirs").start_as_current_span("theirs"):
        pass
    assert trace.get_tracer_provider() is before
    assert [each.name for each in tracing.records()] == ["ours"]


def test_the_global_provider_can_be_joined_in_one_line() -> None:
    script = """
from opentelemetry import trace
from labkit.ops.tracing import Tracing
tracing = Tracing("agent", keep=True)
trace.set_tracer_provider(tracing.provider)
with tracing.span("process"), trace.get_tracer("strands").start_as_current_span("execute_event_loop_cycle"):
    pass
theirs, ours = tracing.records()
print(theirs.name, theirs.parent_id == ours.span_id)
"""
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.split() == ["execute_event_loop_cycle", "True"]


def test_a_lab_closes_it_and_no_thread_stays(lab: Lab, tmp_path: Path) -> None:
    before = set(threading.enumerate())
    tracing = Tracing.open("test", folder=tmp_path, environ={}, lab=lab)
    assert [each.name for each in threading.enumerate() if each not in before] == ["labkit-traces"]
    with tracing.span("one"):
        pass
    lab.close(quiet=True)
    assert set(threading.enumerate()) <= before
    (file,) = tmp_path.iterdir()
    assert [each.name for each in read_line(file.read_text())] == ["one"]
    tracing.close()
    with tracing.span("too late"):  # and no error
        pass
    assert len(file.read_text().splitlines()) == 1


def test_switched_off_by_the_environment_it_stamps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    bus, queue = FakeBus(), FakeQueue()
    with Tracing("test", keep=True) as tracing:
        tracing.publish(bus, [envelope()])  # type: ignore[arg-type]
        tracing.publish(bus, [envelope(), envelope(2)])  # type: ignore[arg-type]
        tracing.send(queue, envelope())  # type: ignore[arg-type]
        with tracing.span("nothing"):
            pass
        assert tracing.records() == []
    assert [each.traceparent for each in bus.sent] == [None] * 3
    assert queue.sent[0][1] == {"MessageAttributes": {}}


# -- sends -----------------------------------------------------------------------------------------------------------


def test_one_event_carries_the_send(tracing: Tracing) -> None:
    bus = FakeBus()
    with tracing.span("coordinator"):
        tracing.publish(bus, [envelope()])  # type: ignore[arg-type]
    span = named(tracing, "send agents")
    assert bus.sent[0].traceparent == f"00-{span.trace_id}-{span.span_id}-03"[:-2] + bus.sent[0].traceparent[-2:]  # type: ignore[index]
    assert (span.kind, span.work, span.parent_id) == (
        "producer",
        "conv-1-step-1",
        named(tracing, "coordinator").span_id,
    )
    assert span.attributes["messaging.system"] == "aws_eventbridge"
    assert span.attributes["messaging.message.id"] == "event-0"


def test_each_of_several_events_has_a_context_of_its_own(tracing: Tracing) -> None:
    bus = FakeBus()
    tracing.publish(bus, [envelope(n) for n in range(3)])  # type: ignore[arg-type]
    *creates, send = tracing.records()
    assert len({each.trace_id for each in creates}) == 3  # three conversations that nothing had caused: three traces
    assert [trace_context.carried(each).span_id for each in bus.sent] == [each.span_id for each in creates]  # type: ignore[union-attr]
    assert (send.kind, send.attributes["messaging.batch.message_count"]) == ("client", 3)
    assert [each.span_id for each in send.links] == [each.span_id for each in creates]


def test_a_context_that_somebody_chose_is_kept_and_linked(tracing: Tracing) -> None:
    bus, chosen = FakeBus(), trace_context.TraceContext.root()
    tracing.publish(bus, [envelope(traceparent=chosen.traceparent)])  # type: ignore[arg-type]
    assert trace_context.carried(bus.sent[0]) == chosen
    (span,) = tracing.records()
    assert span.kind == "client"
    assert [each.trace_id for each in span.links] == [chosen.trace_id]


def test_what_next_noted_gives_way_to_the_send(tracing: Tracing) -> None:
    bus = FakeBus()
    with tracing.span("process") as process:
        tracing.publish(bus, [envelope().next(payload={})])  # type: ignore[arg-type]
    send = named(tracing, "send agents")
    assert trace_context.carried(bus.sent[0]).span_id == send.span_id  # type: ignore[union-attr]
    assert send.parent_id == f"{process.get_span_context().span_id:016x}"


def test_a_refused_publish_is_the_spans_error(tracing: Tracing) -> None:
    refused = PublishError(1, {"t": ("InternalFailure", "no")})
    with pytest.raises(PublishError):
        tracing.publish(FakeBus(refused), [envelope()])  # type: ignore[arg-type]
    (span,) = tracing.records()
    assert (span.status, span.attributes["labkit.failed"]) == ("error", 1)


def test_a_message_has_it_in_the_body_and_on_it(tracing: Tracing) -> None:
    queue = FakeQueue()
    own = {"x": {"DataType": "String", "StringValue": "y"}}
    tracing.send(queue, envelope(), MessageAttributes=own)  # type: ignore[arg-type]
    body, options = queue.sent[0]
    context = trace_context.carried(Envelope.parse(body))
    assert context is not None
    assert options["MessageAttributes"] == {
        **own, "traceparent": {"DataType": "String", "StringValue": context.traceparent}
    }  # fmt: skip
    tracing.send(queue, "plain text")  # type: ignore[arg-type]
    assert set(queue.sent[1][1]["MessageAttributes"]) == {"traceparent"}
    tracing.send(queue, "full", MessageAttributes={str(n): own["x"] for n in range(10)})  # type: ignore[arg-type]
    assert "traceparent" not in queue.sent[2][1]["MessageAttributes"]  # ten are all that SQS takes


def test_a_machine_is_started_with_it_unless_the_input_has_one(tracing: Tracing) -> None:
    given: list[Any] = []

    def begun(input: Any, name: str | None = None) -> Any:
        given.append(input)
        return SimpleNamespace(arn="arn:execution")

    machine: Any = SimpleNamespace(name="m", arn="arn:machine", start=begun)
    own = trace_context.TraceContext.root().traceparent
    tracing.start(machine, {"a": 1})
    tracing.start(machine, {"traceparent": own})
    first, second = given
    span = tracing.records()[0]
    assert first["traceparent"].startswith(f"00-{span.trace_id}-{span.span_id}-")
    assert second == {"traceparent": own}
    assert span.attributes["labkit.execution"] == "arn:execution"


def test_what_only_the_context_would_make_too_large_goes_without(tracing: Tracing) -> None:
    queue, bus = FakeQueue(), FakeBus()
    most = int(facts("sqs.message.max_bytes"))
    tracing.send(queue, "x" * most)  # type: ignore[arg-type]
    assert queue.sent[0][1]["MessageAttributes"] == {}
    full = envelope()
    full = full.model_copy(update={"payload": {"x": "y" * (most - full.size())}})
    tracing.send(queue, full)  # type: ignore[arg-type]
    assert len(queue.sent[1][0].encode()) <= most
    assert queue.sent[1][1]["MessageAttributes"] == {}
    tracing.publish(bus, [full])  # type: ignore[arg-type]
    tracing.publish(bus, [full, envelope(2)])  # type: ignore[arg-type]
    assert [bool(each.traceparent) for each in bus.sent] == [False, False, True]
    given: list[Any] = []

    def begun(input: Any, name: str | None = None) -> Any:
        given.append(input)
        return SimpleNamespace(arn="arn:execution")

    machine: Any = SimpleNamespace(name="m", arn="arn:machine", start=begun)
    tracing.start(machine, {"x": "y" * (int(facts("sfn.payload.max_bytes")) - 10)})
    assert set(given[0]) == {"x"}


@pytest.mark.parametrize("input", ["[1]", "null", '"text"', '{"a": 2}'])
def test_a_name_that_somebody_elses_execution_has_is_refused_as_ever(tracing: Tracing, input: str) -> None:
    refused = MachineError("it exists")
    refused.code = "ExecutionAlreadyExists"

    def begun(input: Any, name: str | None = None) -> Any:
        raise refused

    running = SimpleNamespace(describe=lambda: {"status": "RUNNING", "input": input})
    machine: Any = SimpleNamespace(name="m", arn="arn:machine", start=begun, execution=lambda name: running)
    with pytest.raises(MachineError) as raised:
        tracing.start(machine, {"a": 1}, name="taken")
    assert raised.value is refused


@pytest.mark.parametrize(
    "body", [None, 5, "text", [], {}, {"detail": 3}, {"trace_id": 7}, {"detail": {"trace_id": None}}]
)
def test_bodies_that_name_no_work_say_nothing(body: Any) -> None:
    assert tracing_sends.about(body) == {}


def test_a_name_without_end_is_cut() -> None:
    assert tracing_sends.about({"trace_id": "x" * 10_000}) == {WORK: "x" * 128}


# -- OTLP's JSON -----------------------------------------------------------------------------------------------------


def test_a_span_is_read_as_it_was_made(tracing: Tracing) -> None:
    other = trace_context.TraceContext.root()
    from labkit.ops.spans.bridge import link

    with contextlib.suppress(KeyError), tracing.span(
        'quote " \\ line\n é', kind="consumer", links=[link(other, a="b")],
        i=7, big=2**62, f=1.5, yes=True, words=("a", "b"), text='"\u2028\x00',
    ) as span:  # fmt: skip
        span.add_event("dead-lettered", {"n": 1})
        raise KeyError("x")
    assert tracing._kept is not None
    (written,) = read_line(line(list(tracing._kept._spans)))
    (kept,) = tracing.records()
    assert {**written.attributes} == {**kept.attributes}
    for field in ("trace_id", "span_id", "parent_id", "name", "kind", "began", "ended", "status", "says", "service"):
        assert getattr(written, field) == getattr(kept, field)
    assert [(each.name, dict(each.attributes)) for each in written.notes] == [
        ("dead-lettered", {"n": 1}), ("exception", {"exception.type": "KeyError"})
    ]  # fmt: skip
    assert [(each.trace_id, each.span_id, dict(each.attributes)) for each in written.links] == [
        (other.trace_id, other.span_id, {"a": "b"})
    ]


def test_what_is_written_is_what_protobufs_own_json_reads(tracing: Tracing) -> None:
    """Against OTLP's schema, with ids in base64 as protobuf's parser wants them: OTLP's JSON has hex digits there."""
    import base64
    import json

    from google.protobuf import json_format
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
    from opentelemetry.proto.trace.v1.trace_pb2 import TracesData

    with tracing.span("outer", kind="producer", n=3, f=0.5), tracing.span("inner", words=("a",)):
        pass
    assert tracing._kept is not None
    spans = list(tracing._kept._spans)
    document = json.loads(line(spans))
    for span in document["resourceSpans"][0]["scopeSpans"][0]["spans"]:
        for key in ("traceId", "spanId", "parentSpanId"):
            if key in span:
                span[key] = base64.b64encode(bytes.fromhex(span[key])).decode()
    ours = json_format.ParseDict(document, TracesData())
    theirs = encode_spans(spans)
    for mine, other in zip(
        ours.resource_spans[0].scope_spans[0].spans, theirs.resource_spans[0].scope_spans[0].spans, strict=True
    ):
        other.flags = 0  # which of the parents came from elsewhere: not written here
        assert mine == other
    assert ours.resource_spans[0].resource == theirs.resource_spans[0].resource


@pytest.mark.parametrize(
    "text",
    ["", "x", "{}", '{"resourceSpans":', '{"resourceSpans":[{"scopeSpans":[{"spans":[{"traceId":"a"',
     '{"resourceSpans":3}', '{"resourceSpans":[{"scopeSpans":[{"spans":[{}]}]}]}', "[" * 5000,
     '{"resourceSpans":' + "[" * 100_000],
)  # fmt: skip
def test_lines_that_are_none_are_skipped(text: str) -> None:
    assert list(read_line(text)) == []


def test_numbers_and_bytes_that_json_has_not(tracing: Tracing) -> None:
    with tracing.span("odd", nan=math.nan, inf=-math.inf, raw=b"\x00\xff"):
        pass
    assert tracing._kept is not None
    text = line(list(tracing._kept._spans))

    def none(name: str) -> None:
        raise AssertionError(f"{name} is no JSON")

    json.loads(text, parse_constant=none)
    (span,) = read_line(text)
    assert math.isnan(span.attributes["nan"])
    assert (span.attributes["inf"], span.attributes["raw"]) == (-math.inf, b"\x00\xff")


def one(**fields: Any) -> str:
    span = {"traceId": "A" * 32, "spanId": "B" * 16, "name": "x", "startTimeUnixNano": "1", "endTimeUnixNano": "2"}
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span | fields]}]}]}, separators=(",", ":"))


def test_ids_in_capitals_are_the_same_ids() -> None:
    (span,) = read_line(one(parentSpanId="C" * 16, links=[{"traceId": "D" * 32, "spanId": "E" * 16}]))
    assert (span.trace_id, span.span_id, span.parent_id) == ("a" * 32, "b" * 16, "c" * 16)
    assert (span.links[0].trace_id, span.links[0].span_id) == ("d" * 32, "e" * 16)


@pytest.mark.parametrize(
    "fields",
    [{"startTimeUnixNano": "9" * 400}, {"endTimeUnixNano": "-1"}, {"status": {"code": 9}}, {"attributes": None},
     {"kind": 77}, {"events": [{"name": "x", "timeUnixNano": "9" * 30}]}],
)  # fmt: skip
def test_spans_that_cannot_be_are_skipped(fields: dict[str, Any]) -> None:
    assert list(read_line(one())) != []
    assert list(read_line(one(**fields))) == []
