"""StepMetrics: counts equal what the worker did, and counting changes nothing of what it does."""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from prometheus_client import CollectorRegistry

from labkit import Lab
from labkit.control.envelope import Envelope
from labkit.models.retry import Fixed
from labkit.ops import steps as module
from labkit.ops.scrape import MetricsError
from labkit.ops.steps import BUCKETS, StepMetrics
from labkit.routing.router_outcome import Attempt, NoAnswer, Routed
from labkit.state.idempotency import IdempotencyStore, Work
from labkit.work.processes import Processes
from labkit.work.queues import Message, Queue
from labkit.work.worker import Event, Poison, Task, Worker

from . import killed_fleet

A, B = (Attempt(group, "d1", "throttled", "RateLimitError", "", 0.1) for group in ("primary", "second"))
FULL = Attempt("primary", "", "full", "", "", 0.0)
KINDS = ("done", "replayed", "busy", "failed", "dead", "lost", "released", "undeleted")


def fake(**fields: Any) -> Any:
    """As much of a worker as is looked at."""
    return SimpleNamespace(**{"visibility": 60, "threads": 4, "on_event": lambda event: None, **fields})


def message(receives: int = 1) -> Message:
    return Message(id="m", body="b", receipt="r", receives=receives, sent_at=0.0)


def value(metrics: StepMetrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, {"agent_class": metrics.agent_class, **labels})


def counted(metrics: StepMetrics) -> dict[str, int]:
    found = {kind: value(metrics, "agent_deliveries_total", outcome=kind) for kind in KINDS}
    return {kind: int(number) for kind, number in found.items() if number}


def envelopes(count: int, **fields: Any) -> list[str]:
    made = [
        Envelope.new(conversation_id=str(n), step=1, agent_class="researcher", payload={"n": n}) for n in range(count)
    ]
    return [envelope.detail() for envelope in made]


# -- with a real worker ------------------------------------------------------------------------------------------------


@pytest.fixture
def queue(lab: Lab) -> Queue:
    return Queue.create(lab, "work", visibility=30, dlq=True, max_receives=3)


def test_counts_are_the_workers_own_with_failures_retries_poison_and_duplicates(lab: Lab, queue: Queue) -> None:
    def step(task: Task) -> str:
        n = task.body.payload["n"]
        if n == 0:
            raise Poison("never")
        if n == 1 or (n == 2 and task.message.receives == 1):
            raise ValueError("again")
        return "well"

    told: Counter[str] = Counter()
    # Sent when the first one is done: beside it, a duplicate would be told that somebody is at it.
    again = {Envelope.parse(text).trace_id: text for text in envelopes(10)[5:7]}

    def on_event(event: Event) -> None:
        told.update([event.kind])
        if event.kind == "done" and event.trace_id in again:
            queue.send(again.pop(event.trace_id))

    store = IdempotencyStore.create(lab, "steps", lease=20)
    worker = Worker(queue, step, store=store, threads=3, visibility=30, wait=0, retry=Fixed(0), on_event=on_event)
    metrics = StepMetrics(worker, "researcher")
    queue.send_batch(envelopes(10))
    counts = worker.run(until_empty=True, seconds=60)
    assert counts == {"done": 8, "replayed": 2, "failed": 3, "dead": 2}  # 1 twice and 2 once, then 0 and 1
    assert counted(metrics) == counts == told  # and the worker's own hook was told the same
    assert value(metrics, "agent_step_duration_seconds_count") == 8
    assert value(metrics, "agent_redeliveries_total") == 3
    assert 0 < (value(metrics, "agent_step_duration_seconds_sum") or 0) < 8 * 60


def test_a_second_run_goes_on_counting(queue: Queue) -> None:
    worker = Worker(queue, lambda task: None, visibility=30, wait=0)
    metrics = StepMetrics(worker, "researcher")
    for _ in range(2):
        queue.send_batch(envelopes(4))
        worker.run(until_empty=True, seconds=60)
    assert counted(metrics) == {"done": 8}


def test_a_broken_metric_ends_no_worker_and_is_logged(
    queue: Queue, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker = Worker(queue, lambda task: None, visibility=30, wait=0)
    metrics = StepMetrics(worker, "researcher")
    monkeypatch.setattr(metrics, "_duration", None)
    queue.send_batch(envelopes(3))
    assert worker.run(until_empty=True, seconds=60) == {"done": 3}
    assert queue.depth().total == 0
    assert sum("was not counted" in record.message for record in caplog.records) == 3


def test_it_starts_no_thread(queue: Queue) -> None:
    worker = Worker(queue, lambda task: None, visibility=30, wait=0)
    before = set(threading.enumerate())
    StepMetrics(worker, "researcher")
    assert set(threading.enumerate()) <= before  # of those before, one may have ended


def test_what_a_kill_ended_is_counted_as_a_redelivery_by_the_next(
    lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = Queue.create(lab, "work", visibility=killed_fleet.VISIBILITY, dlq=True, max_receives=50)
    store = IdempotencyStore.create(lab, "steps", lease=killed_fleet.LEASE)
    for name, said in {"ACCOUNT": lab.account, "QUEUE": queue.url, "TABLE": store.table}.items():
        monkeypatch.setenv(f"FLEET_{name}", said)
    monkeypatch.setenv("FLEET_FOLDER", str(tmp_path))
    queue.send_batch(envelopes(4))
    with Processes("tests.unit.test_ops_steps:hangs", 1) as fleet:
        end = time.monotonic() + 60
        while not (tmp_path / "ran").exists() or len((tmp_path / "ran").read_text().splitlines()) < 4:
            assert time.monotonic() < end
            time.sleep(0.05)
        os.kill(fleet.pids[0], signal.SIGKILL)
        worker = Worker(queue, lambda task: "well", store=store, consumer="researcher", visibility=3, wait=1, threads=2)
        metrics = StepMetrics(worker, "researcher")
        counts = worker.run(until_empty=True, seconds=60)
    assert counted(metrics) == counts
    assert counts["done"] == 4
    assert (value(metrics, "agent_redeliveries_total") or 0) == sum(counts.values())  # each of them had been received
    assert value(metrics, "agent_step_duration_seconds_count") == 4
    for text in envelopes(4):
        record = store.look(Work.of(Envelope.parse(text), "researcher"))
        assert record is not None
        assert record.done


def hangs() -> Worker:
    """A worker whose steps do not end, for the test that kills it."""
    worker = killed_fleet.make()

    def step(task: Task) -> None:
        killed_fleet.note("ran", task.trace_id)
        time.sleep(600)

    worker._handler.step = step
    StepMetrics(worker, "researcher")
    return worker


# -- event by event ----------------------------------------------------------------------------------------------------


def test_every_series_is_there_at_0_before_the_first_event() -> None:
    metrics = StepMetrics(fake(), "researcher")
    assert [value(metrics, "agent_deliveries_total", outcome=kind) for kind in KINDS] == [0.0] * len(KINDS)
    for name in ("agent_step_duration_seconds_count", "agent_redeliveries_total", "agent_poll_failures_total"):
        assert value(metrics, name) == 0
    assert value(metrics, "agent_worker_threads") == 4
    assert value(metrics, "agent_visibility_timeout_seconds") == 60


@pytest.mark.parametrize("kind", KINDS)
def test_only_done_is_a_completed_step(kind: Any) -> None:
    metrics = StepMetrics(fake(), "researcher")
    metrics.observe(Event(kind, message(), "t", 7.0))
    assert counted(metrics) == {kind: 1}
    assert value(metrics, "agent_step_duration_seconds_count") == (kind == "done")
    assert value(metrics, "agent_step_duration_seconds_bucket", le="10.0") == (kind == "done")
    assert value(metrics, "agent_step_duration_seconds_bucket", le="5.0") == 0


def test_a_receive_without_an_answer_is_no_delivery() -> None:
    metrics = StepMetrics(fake(), "researcher")
    metrics.observe(Event("poll_failed", error=OSError("silent")))
    assert counted(metrics) == {}
    assert value(metrics, "agent_poll_failures_total") == 1


def test_a_kind_that_nobody_knows_is_logged_and_not_raised(caplog: pytest.LogCaptureFixture) -> None:
    StepMetrics(fake(), "researcher").observe(Event("odd", message()))  # type: ignore[arg-type]
    assert "an event of kind odd was not counted" in caplog.text


def test_every_kind_of_event_that_a_worker_tells_has_its_series() -> None:
    from typing import get_args

    from labkit.work.tasks import Kind

    assert set(get_args(Kind)) == {*KINDS, "poll_failed"}


# -- models ------------------------------------------------------------------------------------------------------------


def attempts(metrics: StepMetrics) -> dict[tuple[str, str], float]:
    return {
        (sample.labels["model"], sample.labels["outcome"]): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == "agent_model_attempts_total"
    }


def refused(operation: str, code: str = "ThrottlingException") -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, operation)


def test_an_answer_counts_what_failed_before_it() -> None:
    metrics = StepMetrics(fake(), "researcher")
    routed = Routed("text", "stop", "second", "d", "primary", 1, 1, 0.1, (A, A, FULL))
    assert metrics.answered(routed) is routed
    assert attempts(metrics) == {("primary", "throttled"): 2, ("primary", "full"): 1, ("second", "answered"): 1}


def test_no_answer_is_counted_with_the_event_wherever_it_hides() -> None:
    metrics = StepMetrics(fake(), "researcher")
    outer = ValueError("the agent gave up")
    outer.__cause__ = NoAnswer("primary", [A, B])
    metrics.observe(Event("failed", message(), error=outer))
    assert attempts(metrics) == {("primary", "throttled"): 1, ("second", "throttled"): 1}


def test_a_throttle_of_a_model_counts_and_one_of_another_service_does_not() -> None:
    class RateLimitError(Exception):  # as OpenAI's and LiteLLM's SDKs name it
        model = "gpt"

    metrics = StepMetrics(fake(), "researcher")
    for error in (
        refused("Converse"),
        RateLimitError("slow down"),
        refused("SendMessage"),
        refused("Converse", "AccessDeniedException"),
        ValueError("x"),
    ):
        metrics.observe(Event("failed", message(), error=error))
    assert attempts(metrics) == {("unknown", "throttled"): 1, ("gpt", "throttled"): 1}


def test_errors_that_lead_in_a_circle_end() -> None:
    one, other = ValueError("a"), ValueError("b")
    one.__cause__, other.__cause__ = other, one
    metrics = StepMetrics(fake(), "researcher")
    metrics.observe(Event("failed", message(), error=one))
    assert attempts(metrics) == {}


def test_models_without_end_are_one_series(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_MODELS", 3)
    metrics = StepMetrics(fake(), "researcher")
    for n in range(9):
        metrics.answered(Routed("", "stop", f"m{n}", "", "", 1, 1, 0.1))
    assert attempts(metrics) == {
        ("m0", "answered"): 1,
        ("m1", "answered"): 1,
        ("m2", "answered"): 1,
        ("other", "answered"): 6,
    }


# -- names and buckets -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("visibility", [1, 60, 61, 900, 3_600, 43_200])
def test_the_visibility_timeout_is_a_bound_with_another_above_it(visibility: int) -> None:
    bounds = StepMetrics(fake(visibility=visibility), "researcher").buckets
    assert visibility in bounds
    assert bounds[-1] > visibility
    assert list(bounds) == sorted(set(bounds))
    assert set(BUCKETS) <= set(bounds)


@pytest.mark.parametrize(
    ("buckets", "says"),
    [
        ([], "upper bounds"),
        ("123", "upper bounds"),
        (5, "upper bounds"),
        ([0, 100], "over 0"),
        ([-1, 100], "over 0"),
        ([1, math.inf], "finite"),
        ([1, math.nan, 100], "finite"),
        ([1, True, 100], "upper bounds"),
        ([1, "5", 100], "upper bounds"),
        ([1, 5, 5, 100], "grow"),
        ([100, 5], "grow"),
        ([1, 60], "over the visibility timeout of 60 s"),
        ([1, 30], "over the visibility timeout of 60 s"),
        (range(1, 100), "at most 40"),
    ],
)
def test_bounds_that_cannot_be_are_refused(buckets: Any, says: str) -> None:
    with pytest.raises(MetricsError, match=says):
        StepMetrics(fake(), "researcher", buckets=buckets)


@pytest.mark.parametrize("name", ["", "Researcher", "1st", "a b", "a_b", "é", "a" * 65, None, 5, 'a"} x'])
def test_names_that_no_envelope_takes_are_refused(name: Any) -> None:
    with pytest.raises(MetricsError, match="agent_class is 1 to 64"):
        StepMetrics(fake(), name)


def test_a_refused_worker_is_left_as_it_was() -> None:
    worker = fake()
    before = worker.on_event
    with pytest.raises(MetricsError):
        StepMetrics(worker, "researcher", buckets=[1])
    assert worker.on_event is before


def test_two_workers_do_not_share_a_registry() -> None:
    registry = CollectorRegistry()
    StepMetrics(fake(), "researcher", registry=registry)
    with pytest.raises(MetricsError, match="counts another worker already"):
        StepMetrics(fake(), "writer", registry=registry)
