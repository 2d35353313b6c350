"""Spans of a Lambda function: printed, with the standard library, and in the trace of the message that came."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest

from labkit import Lab
from labkit.control import trace_context
from labkit.control.envelope import Envelope
from labkit.control.trace_context import TraceContext
from labkit.ops import trace_view
from labkit.ops.spans import lab as tracing_lab
from labkit.ops.spans.lines import Lines
from labkit.ops.spans.record import Record, read_line
from labkit.ops.tracing import Tracing
from labkit.work import batch
from labkit.work.functions import Function
from labkit.work.queues import Queue

HANDLER = """
from labkit.ops.spans.lines import Lines
from labkit.work import batch

trace = Lines("researcher")

def handler(event, context):
    with trace.invocation(event, context):
        return batch.process(event, trace.each(one))

def one(record):
    envelope = record.json()
    with trace.span("chat nova", "client", gen_ai__request__model="nova"):
        if envelope["payload"]["n"] == 1 and record.receives == 1:
            raise TimeoutError("the model: " + envelope["payload"]["prompt"])
"""
TAKEN = ("work/batch", "ops/spans/lines", "ops/spans/record", "control/trace_context")


def event(*contexts: TraceContext | None, body: Any = None) -> dict[str, Any]:
    records = []
    for n, context in enumerate(contexts):
        carried = context.headers() if context else {}
        text = json.dumps({"trace_id": f"work-{n}", "payload": {"n": n}, **carried}) if body is None else body
        records.append(
            {"messageId": f"m{n}", "body": text, "attributes": {"ApproximateReceiveCount": "2"},
             "eventSourceARN": "arn:aws:sqs:us-east-1:1:agent-researcher"}
        )  # fmt: skip
    return {"Records": records}


def run(event: Any, handle: Any, **options: Any) -> tuple[list[Record], Any]:
    written: list[str] = []
    trace = Lines("researcher", write=written.append, **options)
    with trace.invocation(event):
        answer = batch.process(event, trace.each(handle))
    return [span for text in written for span in read_line(text)], answer


def test_each_record_is_in_its_own_trace_and_the_invocation_has_links() -> None:
    contexts = [TraceContext.root(), TraceContext.root(), None]
    found, answer = run(event(*contexts), lambda record: None)
    *records, invocation = found
    assert answer == {"batchItemFailures": []}
    assert [(each.trace_id, each.parent_id) for each in records[:2]] == [
        (each.trace_id, each.span_id) for each in contexts if each
    ]
    assert (records[2].trace_id, records[2].parent_id) == (invocation.trace_id, invocation.span_id)  # nobody caused it
    assert [(each.trace_id, each.span_id) for each in invocation.links] == [
        (each.trace_id, each.span_id) for each in contexts if each
    ]
    assert [each.work for each in records] == ["work-0", "work-1", "work-2"]
    assert {each.attributes["labkit.receives"] for each in records} == {2}
    assert records[0].attributes["messaging.destination.name"] == "agent-researcher"
    assert (invocation.name, invocation.kind, invocation.attributes["faas.coldstart"]) == (
        "invoke researcher",
        "server",
        True,
    )


def test_a_record_that_fails_has_the_error_and_still_fails() -> None:
    def handle(record: batch.Record) -> None:
        if record.id == "m0":
            raise ValueError("secret prompt")

    found, answer = run(event(TraceContext.root(), TraceContext.root()), handle)
    assert answer == {"batchItemFailures": [{"itemIdentifier": "m0"}]}
    assert [each.status for each in found] == ["error", "", ""]
    assert (found[0].attributes["error.type"], found[0].notes[0].name) == ("ValueError", "exception")
    assert "secret" not in repr(found)


def test_what_runs_inside_is_a_child_and_the_next_envelope_carries_it() -> None:
    written: list[str] = []
    trace = Lines("researcher", write=written.append)
    sent = []

    def handle(record: batch.Record) -> None:
        with trace.span("chat", "client", gen_ai__request__model="nova"):
            made = Envelope.new(conversation_id="1", step=1, agent_class="a", payload={})
            sent.append(made.next(payload={}))

    with trace.invocation(event(TraceContext.root())):
        trace.each(handle)(batch.Record.of(event(TraceContext.root())["Records"][0]))
    chat, process, _ = [span for text in written for span in read_line(text)]
    assert (chat.parent_id, chat.attributes["gen_ai.request.model"]) == (process.span_id, "nova")
    assert trace_context.carried(sent[0]).span_id == chat.span_id  # type: ignore[union-attr]
    assert trace_context.current() is None


def test_what_nobody_keeps_is_not_printed() -> None:
    found, answer = run(event(TraceContext.root()._replace(flags=0)), lambda record: None)
    assert [each.name for each in found] == ["invoke researcher"]
    assert answer == {"batchItemFailures": []}


@pytest.mark.parametrize("body", ["", "no json", "[]", "7", '{"detail": 3}', '{"traceparent": 5}', "[" * 100_000])
def test_bodies_of_any_kind_are_handled(body: str) -> None:
    found, answer = run(event(None, body=body), lambda record: None)
    assert answer == {"batchItemFailures": []}
    assert len(found) == 2


@pytest.mark.parametrize("asked", [None, {}, {"traceparent": TraceContext.root().traceparent}, {"Records": 3}, 5])
def test_invocations_of_any_kind_have_a_span(asked: Any) -> None:
    written: list[str] = []
    with Lines("f", write=written.append).invocation(asked):
        pass
    (found,) = [span for text in written for span in read_line(text)]
    assert bool(found.parent_id) == (isinstance(asked, dict) and "traceparent" in asked)


def test_it_is_posted_where_there_is_a_collector_and_a_dead_one_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    got: list[tuple[str, str, list[str]]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            got.append((self.path, self.headers["Content-Type"], [each.name for each in read_line(body)]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_address[1]}/")
        run(event(TraceContext.root()), lambda record: None)
        server.shutdown()
        thread.join(10)
    assert got == [("/v1/traces", "application/json", ["process agent-researcher", "invoke researcher"])]
    _, answer = run(event(TraceContext.root()), lambda record: None)  # nobody listens there any more
    assert answer == {"batchItemFailures": []}


def fails(text: str) -> None:
    raise BrokenPipeError


def test_a_line_that_cannot_be_written_costs_no_record(capsys: pytest.CaptureFixture[str]) -> None:
    trace = Lines("researcher", write=fails)
    with trace.invocation(event(None)), trace.span("inner"):
        pass
    assert "spans were not written: BrokenPipeError" in capsys.readouterr().err


def test_a_name_that_no_utf8_can_hold_is_printed_all_the_same() -> None:
    script = (
        "import json; from labkit.ops.spans.lines import Lines\n"
        "trace = Lines('f')\n"
        "with trace.invocation({'Records': [{}]}):\n"
        "    assert trace.each(lambda record: 'done')({'body': json.dumps({'trace_id': '\\ud800'})}) == 'done'\n"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    (first, _) = [span for text in done.stdout.splitlines() for span in read_line(text)]
    assert first.work == "?"


@pytest.mark.parametrize(
    "raw",
    [{"messageAttributes": "x"}, {"messageAttributes": [1]}, {"attributes": {"ApproximateReceiveCount": "9" * 5_000}}],
)
def test_records_that_no_queue_sends_are_handled(raw: dict[str, Any]) -> None:
    trace = Lines("f", write=lambda text: None)
    with trace.invocation({"Records": [raw]}):
        assert trace.each(lambda record: "done")(raw) == "done"


def test_without_an_invocation_spans_do_not_pile_up() -> None:
    trace = Lines("f", write=lambda text: None)
    for _ in range(600):
        with trace.span("one"):
            pass
    assert len(trace._ended) == 500


def test_a_collector_that_cannot_be_looked_up_in_time_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answered = threading.Event(), threading.Event()

    def hangs(*args: Any, **options: Any) -> Any:
        asked.set()
        answered.wait(60)
        raise OSError("too late")

    monkeypatch.setattr("urllib.request.urlopen", hangs)
    monkeypatch.setattr("labkit.ops.spans.lines._PATIENCE", 0.05)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    _, answer = run(event(TraceContext.root()), lambda record: None)
    assert answer == {"batchItemFailures": []}
    assert asked.wait(30)
    assert not answered.is_set()  # it is still looking, and the function is done
    answered.set()
    for thread in threading.enumerate():
        if thread.name == "labkit-traces":
            thread.join(30)


def test_the_function_needs_nothing_but_the_standard_library() -> None:
    script = (
        "import sys; before = set(sys.modules); import labkit.ops.spans.lines;"
        "print(sorted({n.split('.')[0] for n in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "['labkit']"


def test_a_deployed_function_is_in_the_trace_of_its_messages(lab: Lab) -> None:
    """Sent by a traced process, through the mapping, in the function's log, and read from there."""
    tracing = Tracing("coordinator", keep=True, lab=lab)
    queue = Queue.create(lab, "work", visibility=4)
    function = Function.deploy(lab, "researcher", source=HANDLER, labkit=TAKEN, timeout=3)
    for n in range(2):
        payload = {"n": n, "prompt": "secret-4711"}
        tracing.send(queue, Envelope.new(conversation_id=str(n), step=1, agent_class="researcher", payload=payload))
    function.map_queue(queue)
    end = time.monotonic() + 60
    while True:
        found = [*tracing.records(), *tracing_lab.from_logs(lab)]
        done = [each for each in found if each.name == "process work" and not each.status]
        if len({each.work for each in done}) == 2 or time.monotonic() > end:
            break
        time.sleep(0.2)
    assert "secret-4711" not in repr(found)
    (once,), (twice,) = (trace_view.find(found, f"conv-{n}-step-1") for n in range(2))
    assert [f"{'  ' * row.depth}{row.record.name}" for row in once.rows] == [
        "send work",
        "  process work",
        "    chat nova",
    ]
    assert [(row.record.name, row.record.status) for row in twice.rows] == [
        ("send work", ""), ("process work", "error"), ("chat nova", "error"), ("process work", ""), ("chat nova", "")
    ]  # fmt: skip
    assert {each.service for each in done} == {"researcher"}
