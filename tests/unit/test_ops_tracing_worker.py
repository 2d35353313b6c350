"""Traces through the real hops: bus, queue, worker, retry, batch, dead letters, redrive, replay, state machine."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from labkit import Lab, targets
from labkit.control import trace_context
from labkit.control.bus import Bus
from labkit.control.callbacks import Callbacks
from labkit.control.envelope import Envelope
from labkit.control.machines import Machine, MachineError
from labkit.control.trace_context import TraceContext
from labkit.models.retry import Fixed
from labkit.ops import trace_view
from labkit.ops.spans import files as tracing_files
from labkit.ops.spans.record import Record
from labkit.ops.spans.states import spans_of
from labkit.ops.trace_view import Trace
from labkit.ops.tracing import Tracing
from labkit.state.idempotency import IdempotencyStore
from labkit.work.processes import Processes
from labkit.work.queues import Queue
from labkit.work.worker import Event, Poison, Task, Worker

from . import killed_fleet


@pytest.fixture
def tracing(lab: Lab) -> Tracing:
    return Tracing("researcher", keep=True, lab=lab)


@pytest.fixture
def queue(lab: Lab) -> Queue:
    return Queue.create(lab, "agent-researcher", visibility=30, dlq=True, max_receives=3)


def envelope(n: int = 1, **fields: Any) -> Envelope:
    return Envelope.new(conversation_id=str(n), step=1, agent_class="researcher", payload={"n": n}, **fields)


def processed(records: list[Record], kind: str = "process") -> list[Record]:
    return [each for each in records if each.name.startswith(kind)]


def outcomes(records: list[Record]) -> Counter[str]:
    return Counter(str(each.attributes["labkit.outcome"]) for each in processed(records))


def until(true: Callable[[], bool], seconds: float = 40) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def lines(trace: Trace) -> list[str]:
    """The tree as text: names, indented."""
    return [f"{'  ' * row.depth}{row.record.name}" for row in trace.rows]


# -- one trace through everything ------------------------------------------------------------------------------------


def test_one_trace_from_the_first_event_to_the_last(lab: Lab, tracing: Tracing, queue: Queue) -> None:
    """PutEvents, rule, queue, worker, model call, completion event, rule, queue, worker."""
    bus, done = Bus.create(lab, "agents"), Queue.create(lab, "completed", visibility=30)
    bus.rule("work", {"detail-type": ["agent.step.requested"]}, queue)
    bus.rule("completed", {"detail-type": ["agent.step.completed"]}, done)

    def step(task: Task) -> str:
        with tracing.chat("amazon.nova-lite-v1:0") as call:
            call.answered({"usage": {"inputTokens": 3, "outputTokens": 5}, "stopReason": "end_turn"})
        return "well"

    def then(task: Task, result: Any) -> None:
        following = task.body.next(payload={"result": result})
        tracing.publish(bus, [following], detail_type="agent.step.completed")

    store = IdempotencyStore.create(lab, "steps", lease=10)
    first = Worker(queue, step, store=store, parse=Envelope.from_event, visibility=30, wait=1, then=then)
    last = Worker(done, lambda task: None, parse=Envelope.from_event, visibility=30, wait=1)
    with tracing.span("coordinator"):
        tracing.publish(bus, [envelope()])
    for worker, its in ((first, queue), (last, done)):
        until(lambda: its.depth().total == 1)  # noqa: B023 - called at once
        assert tracing.watch(worker).run(until_empty=True, seconds=40) == {"done": 1}
    (trace,) = trace_view.gather(tracing.records())
    assert lines(trace) == [
        "coordinator",
        "  send agents",
        "    process agent-researcher",
        "      chat amazon.nova-lite-v1:0",
        "      send agents",
        "        process completed",
    ]
    assert trace.works == ["conv-1-step-1", "conv-1-step-2"]
    chat = next(each for each in trace.records if each.name.startswith("chat"))
    assert (chat.kind, chat.attributes["gen_ai.usage.output_tokens"]) == ("client", 5)
    assert [each.trace_id for each in trace_view.find(tracing.records(), "conv-1-step-2")] == [trace.trace_id]


def test_a_message_that_was_sent_directly_carries_it_in_its_attributes(tracing: Tracing, queue: Queue) -> None:
    tracing.send(queue, json.dumps({"trace_id": "plain", "n": 1}))
    tracing.watch(Worker(queue, lambda task: None, parse=json.loads, visibility=30, wait=1)).run(
        until_empty=True, seconds=40
    )
    send, process = tracing.records()
    assert (process.parent_id, process.trace_id, process.work) == (send.span_id, send.trace_id, "plain")
    assert process.kind == "consumer"


@pytest.mark.parametrize("bad", ["", "00-zz", "00-" + "0" * 32 + "-" + "0" * 16 + "-01"])
def test_a_broken_context_begins_a_new_trace_and_the_work_is_done(tracing: Tracing, queue: Queue, bad: str) -> None:
    queue.send({**json.loads(envelope().detail()), "traceparent": bad, "tracestate": "x=y"})
    worker = tracing.watch(Worker(queue, lambda task: None, visibility=30, wait=1))
    assert worker.run(until_empty=True, seconds=40) == {"done": 1}
    (span,) = tracing.records()
    assert (span.parent_id, span.attributes["labkit.outcome"]) == ("", "done")


# -- what goes wrong -------------------------------------------------------------------------------------------------


def test_retries_are_siblings_and_a_burial_is_an_event(tracing: Tracing, queue: Queue) -> None:
    def step(task: Task) -> None:
        if task.body.payload["n"] == 2:
            raise Poison("never")
        if task.body.payload["n"] == 1 or task.message.receives == 1:
            raise TimeoutError("the model")

    for n in range(3):
        tracing.send(queue, envelope(n))
    worker = tracing.watch(Worker(queue, step, visibility=30, wait=1, retry=Fixed(0)))
    counts = worker.run(until_empty=True, seconds=60)
    assert outcomes(tracing.records()) == counts == {"done": 1, "failed": 3, "dead": 2}
    for n, expected in enumerate((["failed", "done"], ["failed", "failed", "dead"], ["dead"])):
        (trace,) = trace_view.find(tracing.records(), f"conv-{n}-step-1")
        send, *deliveries = trace.records
        assert {each.parent_id for each in deliveries} == {send.span_id}
        assert [each.attributes["labkit.outcome"] for each in deliveries] == expected
        assert [each.attributes["labkit.receives"] for each in deliveries] == list(range(1, len(expected) + 1))
        assert [each.status for each in deliveries] == ["" if each == "done" else "error" for each in expected]
        if expected[-1] == "dead":
            assert [note.name for note in deliveries[-1].notes] == ["exception", "dead-lettered"]
            assert deliveries[-1].notes[-1].attributes["messaging.destination.name"] == "agent-researcher-dlq"


def test_a_dead_letter_that_is_redriven_comes_back_into_its_trace(tracing: Tracing, queue: Queue) -> None:
    mended = threading.Event()

    def step(task: Task) -> str:
        if not mended.is_set():
            raise Poison("a bug")
        return "well"

    tracing.send(queue, envelope())
    worker = tracing.watch(Worker(queue, step, visibility=30, wait=1))
    assert worker.run(until_empty=True, seconds=40) == {"dead": 1}
    assert queue.dlq is not None
    (letter,) = queue.dlq.receive(1, wait=5, visibility=60)
    assert letter.attributes["TRACE_ID"] == "conv-1-step-1"  # the work's name, which is no id of W3C's …
    (trace,) = trace_view.find(tracing.records(), str(letter.attributes["TRACE_ID"]))
    context = trace_context.carried(Envelope.parse(letter.body))
    assert context is not None  # … and that stands in the letter too
    assert [each.trace_id for each in trace_view.find(tracing.records(), context.trace_id)] == [trace.trace_id]
    mended.set()
    queue.send(letter.body)  # read, send, delete: what a redrive is
    queue.dlq.delete(letter)
    assert worker.run(until_empty=True, seconds=40) == {"done": 1}
    (trace,) = trace_view.find(tracing.records(), "conv-1-step-1")
    assert lines(trace) == ["send agent-researcher", "  process agent-researcher", "  process agent-researcher"]


def test_a_replay_is_another_trace_with_a_link_and_the_same_work(lab: Lab, tracing: Tracing, queue: Queue) -> None:
    first = TraceContext.root()
    event = {
        "id": "1",
        "replay-name": "yesterday",
        "detail": json.loads(envelope(traceparent=first.traceparent).detail()),
    }
    store = IdempotencyStore.create(lab, "steps", lease=10)
    worker = Worker(queue, lambda task: "well", store=store, parse=Envelope.from_event, visibility=30, wait=1)
    tracing.watch(worker)
    queue.send({"id": "0", "detail": event["detail"]})
    assert worker.run(until_empty=True, seconds=40) == {"done": 1}
    queue.send(event)
    assert worker.run(until_empty=True, seconds=40) == {"replayed": 1}  # and no PayloadMismatch
    original, replay = tracing.records()
    assert original.trace_id == first.trace_id
    assert (replay.trace_id != first.trace_id, replay.parent_id) == (True, "")
    assert [(each.trace_id, each.span_id, each.attributes) for each in replay.links] == [
        (first.trace_id, first.span_id, {"labkit.why": "replay"})
    ]
    assert [each.trace_id for each in trace_view.find(tracing.records(), "conv-1-step-1")] == [
        original.trace_id, replay.trace_id
    ]  # fmt: skip


def test_what_nobody_can_read_has_a_span_too(tracing: Tracing, queue: Queue) -> None:
    queue.send("no envelope")
    tracing.send(queue, "none either")
    worker = tracing.watch(Worker(queue, lambda task: None, visibility=30, wait=1))
    assert worker.run(until_empty=True, seconds=40) == {"dead": 2}
    found = {each.parent_id: each for each in processed(tracing.records())}
    (send,) = processed(tracing.records(), "send")
    assert set(found) == {"", send.span_id}
    assert {each.attributes["error.type"] for each in found.values()} == {"EnvelopeError"}


def test_a_batch_is_one_receive_with_links_and_a_span_for_each(tracing: Tracing, queue: Queue) -> None:
    for n in range(5):
        tracing.send(queue, envelope(n))
    sends = {each.span_id: each.trace_id for each in tracing.records(clear=True)}
    until(lambda: queue.depth().visible == 5)
    worker = tracing.watch(Worker(queue, lambda task: None, prefetch=10, visibility=30, wait=1))
    assert worker.run(until_empty=True, seconds=40) == {"done": 5}
    receives, deliveries = processed(tracing.records(), "receive"), processed(tracing.records())
    assert {each.parent_id: each.trace_id for each in deliveries} == sends  # each in its own trace
    assert sum(len(each.links) for each in receives) == sum(
        int(each.attributes["messaging.batch.message_count"]) for each in receives
    )
    for receive in receives:  # one, unless SQS has given them in parts
        assert (receive.kind, receive.parent_id) == ("client", "")
        assert {each.span_id for each in receive.links} <= set(sends)
        assert {each.attributes["messaging.message.id"] for each in receive.links} <= {
            str(each.attributes["messaging.message.id"]) for each in deliveries
        }
    batched = [each for each in deliveries if each.links]
    assert {each.links[0].span_id for each in batched} == {each.span_id for each in receives}


def test_a_step_that_outlives_its_worker_ends_its_span_when_it_ends(tracing: Tracing, queue: Queue) -> None:
    free, begun = threading.Event(), threading.Event()

    def step(task: Task) -> None:
        begun.set()
        free.wait(60)

    tracing.send(queue, envelope())
    worker = tracing.watch(Worker(queue, step, visibility=30, wait=1, grace=0.1))
    threading.Thread(target=lambda: (begun.wait(40), worker.stop()), daemon=True).start()
    assert worker.run(seconds=60) == {"released": 1}
    assert processed(tracing.records()) == []
    free.set()
    until(lambda: len(processed(tracing.records())) == 1)
    assert processed(tracing.records())[0].attributes["labkit.outcome"] == "released"


def test_tracing_that_breaks_costs_no_message(
    tracing: Tracing, queue: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("no span today")

    monkeypatch.setattr(tracing, "begin", broken)
    queue.send_batch([envelope(n).detail() for n in range(4)])
    worker = tracing.watch(Worker(queue, lambda task: None, prefetch=10, visibility=30, wait=1))
    assert worker.run(until_empty=True, seconds=40) == {"done": 4}
    assert queue.depth().total == 0
    assert "a span of a delivery was not made" in caplog.text


def test_the_counts_are_the_same_with_and_without(lab: Lab, tracing: Tracing) -> None:
    def step(task: Task) -> str:
        if task.body.payload["n"] % 5 == 0 and task.message.receives == 1:
            raise ValueError("again")
        return "well"

    found = []
    for name in ("plain", "traced"):
        queue = Queue.create(lab, name, visibility=30, dlq=True, max_receives=4)
        store = IdempotencyStore.create(lab, f"{name}-steps", lease=10)
        told: list[Event] = []
        worker = Worker(
            queue, step, store=store, threads=4, prefetch=3, visibility=30, wait=1, retry=Fixed(0), on_event=told.append
        )
        if name == "traced":
            tracing.watch(worker)
        queue.send_batch([envelope(n).detail() for n in (*range(20), 3, 4)])
        found.append(worker.run(until_empty=True, seconds=60))
        assert len(told) == found[-1].total()
    plain, traced = found
    assert plain == traced == {"done": 20, "replayed": 2, "failed": 4}
    assert outcomes(tracing.records()) == traced


def test_an_observer_that_is_taken_away_sees_no_more(tracing: Tracing, queue: Queue) -> None:
    worker = tracing.watch(Worker(queue, lambda task: None, visibility=30, wait=1))
    worker.observe(None)
    queue.send(envelope().detail())
    assert worker.run(until_empty=True, seconds=40) == {"done": 1}
    assert tracing.records() == []


def test_context_does_not_leak_from_one_delivery_to_the_next(tracing: Tracing, queue: Queue) -> None:
    seen = []

    def step(task: Task) -> None:
        here = trace_context.current()
        assert here is not None
        seen.append((here.trace_id, task.body.traceparent))

    for n in range(3):
        queue.send(envelope(n, traceparent=TraceContext.root().traceparent).detail())
    queue.send(envelope(9).detail())
    after: list[TraceContext | None] = []
    worker = Worker(queue, step, visibility=30, wait=1, on_event=lambda event: after.append(trace_context.current()))
    tracing.watch(worker).run(until_empty=True, seconds=40)
    assert after == [None] * 4
    assert len({trace for trace, _ in seen}) == 4
    assert all(parent is None or trace in parent for trace, parent in seen)


def test_a_killed_workers_step_leaves_no_span_and_the_next_delivery_does(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tracing: Tracing
) -> None:
    queue = Queue.create(lab, "work", visibility=killed_fleet.VISIBILITY, dlq=True, max_receives=50)
    store = IdempotencyStore.create(lab, "steps", lease=killed_fleet.LEASE)
    for name, said in {"ACCOUNT": lab.account, "QUEUE": queue.url, "TABLE": store.table}.items():
        monkeypatch.setenv(f"FLEET_{name}", said)
    monkeypatch.setenv("FLEET_FOLDER", str(tmp_path))
    queue.send(envelope(traceparent=TraceContext.root().traceparent).detail())
    with Processes("tests.unit.test_ops_tracing_worker:hangs", 1) as fleet:
        until(lambda: (tmp_path / "ran").exists(), 60)
        os.kill(fleet.pids[0], signal.SIGKILL)
        worker = Worker(queue, lambda task: "well", store=store, consumer="researcher", visibility=3, wait=1)
        counts = tracing.watch(worker).run(until_empty=True, seconds=60)
    assert counts["done"] == 1
    assert processed(list(tracing_files.read(tmp_path / "traces"))) == []  # it had not ended: nobody has written it
    done = processed(tracing.records())[-1]
    assert done.attributes["labkit.outcome"] == "done"
    assert int(done.attributes["labkit.receives"]) > 1  # and this says that there had been another one
    assert int(done.attributes["labkit.attempt"]) > 1


def hangs() -> Worker:
    """A traced worker whose steps do not end, for the test that kills it."""
    target, account = targets.connect(), os.environ["FLEET_ACCOUNT"]

    def step(task: Task) -> None:
        killed_fleet.note("ran", task.trace_id)
        time.sleep(60)

    worker = Worker(
        Queue(target.client("sqs", account), os.environ["FLEET_QUEUE"]),
        step,
        store=IdempotencyStore(target.client("dynamodb", account), os.environ["FLEET_TABLE"], lease=killed_fleet.LEASE),
        consumer="researcher", visibility=killed_fleet.VISIBILITY, wait=1,
    )  # fmt: skip
    return Tracing.open("killed", folder=Path(os.environ["FLEET_FOLDER"]) / "traces", environ={}).watch(worker)


# -- the state machine -----------------------------------------------------------------------------------------------


@pytest.fixture
def machine(lab: Lab, queue: Queue) -> Machine:
    values = {"QueueUrl": queue.url, "HeartbeatWindow": 20, "StepTimeout": 60, "RetryAfter": 1, "Retries": 2}
    return Machine.create(lab, "agent-step", "agent-step", values=values)


def test_the_token_loop_is_one_tree_with_its_retries(
    lab: Lab, tracing: Tracing, queue: Queue, machine: Machine
) -> None:
    callbacks = Callbacks(lab)
    failed = []

    def step(task: Task) -> str:
        if not failed:
            failed.append(True)
            callbacks.give_up(task, type("TransientError", (Exception,), {})("throttled"))
            raise Poison("this attempt is over")
        return "well"

    asked = {"conversation_id": "9", "step": 3, "agent_class": "writer", "payload": {}}
    execution = tracing.start(machine, asked, name="conv-9")
    worker = Worker(queue, step, visibility=30, wait=1, then=tracing.wrap("SendTaskSuccess", callbacks.then))
    tracing.watch(worker)
    counts: Counter[str] = Counter()
    end = time.monotonic() + 60
    while execution.outcome is None and time.monotonic() < end:
        counts += worker.run(seconds=3)
    assert execution.wait(30).output == "well"
    assert counts == {"dead": 1, "done": 1}
    states = spans_of(execution)
    (trace,) = trace_view.find([*tracing.records(), *states], "conv-9-step-3")
    assert lines(trace) == [
        "start agent-step",
        "  agent-step",
        "    Dispatch",
        "      process agent-researcher",
        "    Dispatch",
        "      process agent-researcher",
        "        SendTaskSuccess",
    ]
    assert [each.attributes["labkit.outcome"] for each in states] == ["succeeded", "retried", "succeeded"]
    assert [each.status for each in states] == ["", "error", ""]
    assert states[1].attributes["error.type"] == "TransientError"
    assert spans_of(execution) == states  # the same ids each time


def test_an_execution_without_a_context_has_a_trace_of_its_own(
    tracing: Tracing, queue: Queue, machine: Machine
) -> None:
    asked = {"conversation_id": "9", "step": 3, "agent_class": "writer", "payload": {}}
    for bad in ({}, {"traceparent": 7, "tracestate": [1]}, {"traceparent": "short"}, {"traceparent": "x" * 300}):
        execution = machine.start({**asked, **bad})
        execution.until("Dispatch", 30)
        (message,) = queue.receive(1, wait=20)
        assert trace_context.carried(Envelope.parse(message.body)) is None  # and the work is there all the same
        queue.delete(message)
        top, dispatch = spans_of(execution)
        assert (top.parent_id, dispatch.parent_id, dispatch.attributes["labkit.outcome"]) == (
            "",
            top.span_id,
            "standing",
        )
        assert top.status == dispatch.status == ""
        execution.stop()
        assert spans_of(execution)[0].status == "error"
        assert spans_of(execution)[0].trace_id == top.trace_id


def test_a_start_with_a_name_is_idempotent_although_each_has_a_context_of_its_own(
    lab: Lab, tracing: Tracing, machine: Machine
) -> None:
    """The step that starts a workflow is delivered twice: one execution, in the trace of the first delivery."""
    asked = {"conversation_id": "9", "step": 3, "agent_class": "writer", "payload": {}}
    first, second = (tracing.start(machine, asked, name="conv-9") for _ in range(2))
    assert first.arn == second.arn
    assert [each.attributes.get("labkit.outcome") for each in tracing.records()] == [None, "was running"]
    assert spans_of(first)[0].trace_id == tracing.records()[0].trace_id
    with pytest.raises(MachineError, match="ExecutionAlreadyExists"):
        tracing.start(machine, {**asked, "step": 4}, name="conv-9")  # another work
    first.stop()
    with pytest.raises(MachineError, match="ExecutionAlreadyExists"):
        tracing.start(machine, asked, name="conv-9")  # it has ended: a start is idempotent while it runs


def test_no_token_gets_out_of_a_history(queue: Queue, machine: Machine) -> None:
    asked = {"conversation_id": "9", "step": 3, "agent_class": "writer", "payload": {"prompt": "secret-4711"}}
    execution = machine.start({**asked, "traceparent": TraceContext.root().traceparent})
    (message,) = queue.receive(1, wait=20)
    found = repr(spans_of(execution))
    assert json.loads(message.body)["task_token"] not in found
    assert "secret-4711" not in found
    execution.stop()


def test_maps_and_parallels_hold_what_runs_in_them(lab: Lab) -> None:
    inner, branch = ({"StartAt": name, "States": {name: {"Type": "Pass", "End": True}}} for name in ("Each", "One"))
    definition = {
        "QueryLanguage": "JSONata", "StartAt": "All",
        "States": {
            "All": {"Type": "Map", "Items": [1, 2], "ItemProcessor": inner, "Next": "Both"},
            "Both": {"Type": "Parallel", "Branches": [branch], "End": True},
        },
    }  # fmt: skip
    context = TraceContext.root()
    execution = Machine.create(lab, "nested", definition).start({"traceparent": context.traceparent})
    execution.wait(30)
    (trace,) = trace_view.gather(spans_of(execution))
    assert trace.trace_id == context.trace_id
    assert lines(trace) == ["nested", "  All", "    Each", "    Each", "  Both", "    One"]
    assert trace.rows[0].orphan  # its parent is whoever has started it
