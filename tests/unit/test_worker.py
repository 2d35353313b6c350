"""The worker: each way in which a delivery can end, and that nothing is lost by any of them."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import random
import signal
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError, ReadTimeoutError

from labkit import Lab
from labkit.control.envelope import Envelope
from labkit.models.retry import Fixed, Wait
from labkit.state.idempotency import IdempotencyStore, Work
from labkit.state.objects import Objects
from labkit.work import loops
from labkit.work.queues import BatchError, Message, Queue, QueueError
from labkit.work.worker import Event, Poison, Task, Worker, WorkerError
from tests.clock import Clock
from tests.waiting import until


def step_of(n: int, **payload: Any) -> Envelope:
    return Envelope.new(conversation_id="1", step=n, agent_class="researcher", payload={"n": n, **payload})


def send(queue: Queue, *envelopes: Envelope, group: str | None = None) -> None:
    for envelope in envelopes:
        fifo = {"MessageDeduplicationId": f"{group}-{envelope.trace_id}"} if group else {}
        queue.send(envelope.detail(), group=group, **fifo)


@pytest.fixture
def queue(lab: Lab) -> Queue:
    return Queue.create(lab, "work", visibility=30, dlq=True, max_receives=3)


@pytest.fixture
def store(lab: Lab) -> IdempotencyStore:
    return IdempotencyStore.create(lab, "steps", lease=20)


class Log:
    """Hooks that remember."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.ran: list[str] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def step(self, task: Task) -> str:
        self.ran.append(task.trace_id)
        return f"did {task.trace_id}"


def drain(
    queue: Queue,
    step: Callable[[Task], Any],
    store: IdempotencyStore | None,
    *,
    every: float | None = None,
    **options: Any,
) -> dict[str, int]:
    """Run a worker until the queue is empty. ``every``: seconds between two beats; it makes up for a late one."""
    settings = {"visibility": 30, "wait": 0, "consumer": "researcher", "grace": 60, **options}
    worker = Worker(queue, step, store=store, **settings)
    worker._handler.every = every or worker._handler.every
    return dict(worker.run(until_empty=True, seconds=60))


def told(worker: Worker, events: int = 1) -> dict[str, int]:
    """Run a worker until it has said so much."""
    seen: list[Event] = []

    def on_event(event: Event) -> None:
        seen.append(event)
        if len(seen) >= events:
            worker.stop()

    worker.on_event = on_event
    return dict(worker.run(seconds=60))


# -- the ordinary ways -------------------------------------------------------------------------------------------------


def test_done_recorded_followed_deleted(queue: Queue, store: IdempotencyStore) -> None:
    log, followed = Log(), []
    send(queue, *map(step_of, range(6)))
    counts = drain(
        queue,
        log.step,
        store,
        threads=3,
        on_event=log,
        then=lambda task, result: followed.append((task.attempt, result)),
    )
    assert counts == {"done": 6}
    assert sorted(followed) == [(1, f"did conv-1-step-{n}") for n in range(6)]
    assert queue.depth().total == 0
    record = store.look(Work.of(step_of(4), "researcher"))
    assert record is not None
    assert (record.done, record.result) == (True, '"did conv-1-step-4"')
    assert {event.trace_id for event in log.events} == set(log.ran)
    assert all(0 < event.seconds < 60 for event in log.events)


def test_a_duplicate_is_answered_from_the_record_and_followed_again(queue: Queue, store: IdempotencyStore) -> None:
    log, followed = Log(), []
    send(queue, step_of(1), step_of(1), step_of(1))
    counts = drain(queue, log.step, store, then=lambda task, result: followed.append(result))
    assert counts == {"done": 1, "replayed": 2}
    assert log.ran == ["conv-1-step-1"]
    assert followed == ["did conv-1-step-1"] * 3


def test_without_a_store_any_body_will_do(queue: Queue) -> None:
    queue.send({"any": "thing"})
    seen = []
    assert drain(queue, lambda task: seen.append((task.body, task.attempt)), None, parse=json.loads) == {"done": 1}
    assert seen == [({"any": "thing"}, 1)]


def test_busy_comes_back_when_the_other_lease_ends(queue: Queue, store: IdempotencyStore) -> None:
    clock = Clock()
    store.clock, store.lease = clock, 2
    store.claim(Work.of(step_of(1), "researcher"))  # by a worker that has died since
    send(queue, step_of(1))

    def on_event(event: Event) -> None:
        clock.now += 3 * (event.kind == "busy")

    began = time.monotonic()
    assert drain(queue, Log().step, store, on_event=on_event) == {"busy": 1, "done": 1}
    assert time.monotonic() - began > 1.9, "it came back before that lease had ended"


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_step_that_fails_comes_back_and_ends_with_its_reason(queue: Queue, store: IdempotencyStore) -> None:
    attempts = []

    def broken(task: Task) -> None:
        attempts.append(task.attempt)
        raise ValueError("no such topic: 茶\x00")

    queue.send(step_of(1).detail(), MessageAttributes={"tenant": {"DataType": "String.name", "StringValue": "acme"}})
    assert drain(queue, broken, store, retry=Fixed(0)) == {"failed": 2, "dead": 1}
    assert attempts == [1, 2, 3]  # an exception releases the claim: no wait for the lease
    assert queue.dlq is not None
    [letter] = queue.dlq.receive()
    assert Envelope.parse(letter.body).trace_id == "conv-1-step-1"
    original = letter.attributes.pop("ORIGINAL_MESSAGE_ID")  # type: ignore[attr-defined]
    assert letter.attributes == {
        "ERROR_CODE": "ValueError",
        "ERROR_MESSAGE": "no such topic: 茶\ufffd",
        "TRACE_ID": "conv-1-step-1",
        "RECEIVE_COUNT": "3",
        "SOURCE_QUEUE_ARN": queue.arn,
        "tenant": "acme",
    }
    assert letter.wire["tenant"]["DataType"] == "String.name"
    assert original != letter.id


@pytest.mark.parametrize("body", ["no json", "{}", '{"detail": {}}', "[1]"])
def test_an_unreadable_body_is_dead_at_once(queue: Queue, store: IdempotencyStore, body: str) -> None:
    queue.send(body)
    assert drain(queue, Log().step, store) == {"dead": 1}
    assert queue.dlq is not None
    [letter] = queue.dlq.receive()
    assert (letter.body, letter.attributes["ERROR_CODE"]) == (body, "EnvelopeError")


def test_poison_does_not_use_up_its_receives(queue: Queue, store: IdempotencyStore) -> None:
    def step(task: Task) -> None:
        raise Poison("this customer is gone")

    send(queue, step_of(1))
    assert drain(queue, step, store) == {"dead": 1}


def test_the_same_name_for_other_work_is_dead_and_not_answered(queue: Queue, store: IdempotencyStore) -> None:
    send(queue, step_of(1), step_of(1, amount=2))
    assert drain(queue, Log().step, store) == {"done": 1, "dead": 1}
    assert queue.dlq is not None
    assert queue.dlq.receive()[0].attributes["ERROR_CODE"] == "PayloadMismatch"


def test_a_step_that_exits_is_a_step_that_failed(queue: Queue, store: IdempotencyStore) -> None:
    def step(task: Task) -> str:
        if task.attempt == 1:
            raise SystemExit(1)
        return "well"

    send(queue, step_of(1))
    assert drain(queue, step, store, retry=Fixed(0)) == {"failed": 1, "done": 1}


def test_without_room_for_a_reason_sqs_moves_it(queue: Queue, store: IdempotencyStore) -> None:
    attributes = {f"a{n}": {"DataType": "String", "StringValue": "x"} for n in range(10)}
    queue.send("no json", MessageAttributes=attributes)
    assert drain(queue, Log().step, store, retry=Fixed(0)) == {"failed": 3}
    assert queue.dlq is not None
    [letter] = queue.dlq.receive()
    assert set(letter.attributes) == set(attributes)


def test_without_a_dead_letter_queue_it_stays(lab: Lab, store: IdempotencyStore) -> None:
    queue = Queue.create(lab, "alone", visibility=30)
    queue.send("no json")
    worker = Worker(queue, Log().step, store=store, visibility=30, wait=0, retry=Fixed(0))
    assert told(worker, 2) == {"failed": 2}
    assert queue.depth().total == 1


def test_a_result_that_cannot_be_recorded_is_a_failure(queue: Queue, store: IdempotencyStore) -> None:
    send(queue, step_of(1))
    assert drain(queue, lambda task: object(), store, retry=Fixed(0)) == {"failed": 2, "dead": 1}


def test_what_follows_is_tried_again_and_the_step_is_not(queue: Queue, store: IdempotencyStore) -> None:
    log, tries = Log(), []

    def then(task: Task, result: Any) -> None:
        tries.append(result)
        if len(tries) == 1:
            raise EndpointConnectionError(endpoint_url="http://127.0.0.1")

    send(queue, step_of(1))
    assert drain(queue, log.step, store, then=then, retry=Fixed(0)) == {"failed": 1, "replayed": 1}
    assert (len(log.ran), len(tries)) == (1, 2)


def test_a_delete_that_does_not_come_through_is_said_and_replayed(
    queue: Queue, store: IdempotencyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete, refused = queue.delete, []

    def flaky(*messages: Message) -> None:
        if messages and not refused:
            refused.append(messages)
            queue.hide(messages[0], 0)  # as when its visibility has ended
            raise BatchError("not deleted", {0: ("InternalError", "try later")})
        delete(*messages)

    monkeypatch.setattr(queue, "delete", flaky)
    log = Log()
    send(queue, step_of(1))
    assert drain(queue, log.step, store) == {"undeleted": 1, "replayed": 1}
    assert log.ran == ["conv-1-step-1"]


def test_a_table_that_does_not_answer_loses_nothing(
    queue: Queue, store: IdempotencyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim, calls = store.claim, []

    def flaky(work: Work) -> Any:
        calls.append(work)
        if len(calls) == 1:
            raise EndpointConnectionError(endpoint_url="http://127.0.0.1")
        return claim(work)

    monkeypatch.setattr(store, "claim", flaky)
    send(queue, step_of(1))
    assert drain(queue, Log().step, store, retry=Fixed(0)) == {"failed": 1, "done": 1}


def test_a_hook_that_breaks_ends_the_worker_and_loses_nothing(queue: Queue, store: IdempotencyStore) -> None:
    def hook(event: Event) -> None:
        raise RuntimeError("metrics are down")

    send(queue, *map(step_of, range(3)))
    with pytest.raises(WorkerError, match="metrics are down"):
        drain(queue, Log().step, store, on_event=hook)
    counts = drain(queue, Log().step, store)
    assert counts.get("done", 0) + counts.get("replayed", 0) >= 2


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    "error",
    [KeyboardInterrupt(), GeneratorExit(), asyncio.CancelledError(), StopIteration(), Wordless(), ValueError("\ud800")],
)
@pytest.mark.parametrize("where", ["step", "parse", "then"])
def test_whatever_is_raised_is_the_failure_of_one_message(
    queue: Queue, store: IdempotencyStore, where: str, error: BaseException
) -> None:
    def broken(*_: Any) -> Any:
        raise error

    log = Log()
    hooks = {"step": log.step, where: broken}
    send(queue, step_of(1))
    counts = drain(queue, hooks.pop("step"), store, retry=Fixed(0), **hooks)
    assert counts == ({"dead": 1} if where == "parse" else {"failed": 2, "dead": 1})
    assert queue.dlq is not None
    assert queue.dlq.receive()[0].attributes["ERROR_CODE"] == type(error).__name__


def test_what_follows_can_fail_for_good_and_the_result_stands(queue: Queue, store: IdempotencyStore) -> None:
    log = Log()

    def then(task: Task, result: Any) -> None:
        raise ConnectionError("nobody listens")

    send(queue, step_of(1))
    assert drain(queue, log.step, store, then=then, retry=Fixed(0)) == {"failed": 2, "dead": 1}
    assert log.ran == ["conv-1-step-1"]
    record = store.look(Work.of(step_of(1), "researcher"))
    assert record is not None
    assert record.done
    followed: list[Any] = []
    assert queue.dlq is not None
    [letter] = queue.dlq.receive()
    queue.send(letter.body)  # a redrive
    assert drain(queue, log.step, store, then=lambda task, result: followed.append(result)) == {"replayed": 1}
    assert (log.ran, followed) == (["conv-1-step-1"], ["did conv-1-step-1"])


async def later(task: Task) -> str:
    return "never"


def lazily(task: Task) -> Iterator[str]:
    yield "never"


@pytest.mark.parametrize("lazy", [later, lazily])
def test_a_step_that_would_not_run_is_not_done(queue: Queue, lazy: Any) -> None:
    with pytest.raises(WorkerError, match="step is a plain function"):
        Worker(queue, lazy)
    with pytest.raises(WorkerError, match="then is a plain function"):
        Worker(queue, Log().step, then=lazy)
    send(queue, step_of(1))
    # One that does not show it is found out by what it returns.
    assert drain(queue, lambda task: lazy(task), None, retry=Fixed(0)) == {"failed": 2, "dead": 1}
    assert queue.dlq is not None
    assert "has not run" in str(queue.dlq.receive()[0].attributes["ERROR_MESSAGE"])


class Gives(Wait):
    def __init__(self, seconds: Any) -> None:
        self.seconds = seconds

    def __call__(self, failure: int) -> float:
        if isinstance(self.seconds, Exception):
            raise self.seconds
        return self.seconds  # type: ignore[no-any-return]


@pytest.mark.parametrize("seconds", [-1, float("nan"), None, "soon", ValueError("no")])
def test_a_retry_without_a_time_leaves_the_message_its_visibility(
    queue: Queue, store: IdempotencyStore, seconds: Any
) -> None:
    def broken(task: Task) -> None:
        raise ValueError("once")

    send(queue, step_of(1))
    worker = Worker(queue, broken, store=store, visibility=30, wait=0, retry=Gives(seconds))
    assert told(worker) == {"failed": 1}
    assert queue.depth().in_flight == 1


@pytest.mark.parametrize("seconds", [50_000, float("inf"), 1e300])
def test_a_retry_is_no_longer_than_sqs_allows(
    queue: Queue, store: IdempotencyStore, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden: list[int] = []
    hide = queue.hide

    def remembered(message: Message, seconds: int) -> None:
        hidden.append(seconds)
        hide(message, seconds)

    def broken(task: Task) -> None:
        raise ValueError("no")

    monkeypatch.setattr(queue, "hide", remembered)
    send(queue, step_of(1))
    assert told(Worker(queue, broken, store=store, visibility=30, wait=0, retry=Gives(seconds))) == {"failed": 1}
    [longest] = hidden
    assert 43_000 < longest < 43_200


def test_a_failure_after_the_message_was_lost_leaves_it_alone(queue: Queue, store: IdempotencyStore) -> None:
    """Somebody else may be at work on it: to bury or to show it would be wrong."""
    send(queue, step_of(1))
    for _ in range(2):
        queue.receive(visibility=0)  # so that the third one is the last

    def late(task: Task) -> None:
        task.beat.end()  # as when its process had slept
        time.sleep(1.5)
        raise ValueError("late")

    worker = Worker(queue, late, store=None, consumer="researcher", visibility=1, wait=0, retry=Fixed(0))
    assert told(worker) == {"lost": 1}
    assert queue.dlq is not None
    assert queue.dlq.depth().total == 0


def test_a_store_that_does_not_answer_does_not_carry_the_queue_to_the_dead_letters(
    queue: Queue, store: IdempotencyStore
) -> None:
    send(queue, *map(step_of, range(40)))
    store.client.delete_table(TableName=store.table)
    worker = Worker(queue, Log().step, store=store, visibility=30, wait=0, retry=Fixed(0))
    assert set(worker.run(seconds=1)) <= {"failed", "dead"}
    assert queue.depth().total >= 38


def test_a_result_that_is_gone_is_no_fault_of_the_stores(lab: Lab, queue: Queue, store: IdempotencyStore) -> None:
    store.objects, store.inline = Objects.create(lab, "results"), 10
    send(queue, step_of(1), step_of(1))
    handler = Worker(queue, Log().step, store=store, visibility=30)._handler
    first, second = handler.take(queue.receive(2))
    done = handler.deliver(first)
    assert done is not None
    assert done.kind == "done"
    [key] = [found["Key"] for found in store.objects.client.list_objects_v2(Bucket=store.objects.bucket)["Contents"]]
    store.objects.client.delete_object(Bucket=store.objects.bucket, Key=key)
    failed = handler.deliver(second)
    assert failed is not None
    assert (failed.kind, type(failed.error).__name__) == ("failed", "ClaimError")
    assert not second.unclaimed, "a worker would wait for the store to answer"


def test_what_was_lost_while_it_waited_is_not_given_back(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is another worker's by now: to show it would have it run a second time."""
    handler = Worker(queue, Log().step)._handler
    send(queue, step_of(1), step_of(2))
    lost, kept = handler.take(queue.receive(2))
    hidden: list[str] = []
    monkeypatch.setattr(queue, "hide", lambda message, seconds: hidden.append(message.id))
    lost.beat.lost = "the last extension ran out"
    for task in (lost, kept):
        released = handler.put_back(task)
        assert released is not None
        assert released.kind == "released"
    assert hidden == [kept.message.id]


def test_failures_are_logged_with_their_trace_id(
    queue: Queue, store: IdempotencyStore, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(task: Task) -> None:
        raise ValueError("no such topic")

    caplog.set_level(logging.INFO, "labkit")
    send(queue, step_of(1))
    drain(queue, broken, store, retry=Fixed(0))
    assert [record.getMessage() for record in caplog.records] == [
        "failed conv-1-step-1: ValueError: no such topic",
        "failed conv-1-step-1: ValueError: no such topic",
        "dead conv-1-step-1: ValueError: no such topic",
    ]


# -- slow steps, heartbeats --------------------------------------------------------------------------------------------


def test_a_step_longer_than_its_visibility_runs_once(queue: Queue, store: IdempotencyStore) -> None:
    store.lease = 5
    log = Log()

    def slow(task: Task) -> str:
        for _ in range(24):
            time.sleep(0.3)
            task.check()
        return log.step(task)

    send(queue, step_of(1), step_of(2))
    assert drain(queue, slow, store, visibility=6, every=0.3, threads=3) == {"done": 2}
    assert sorted(log.ran) == ["conv-1-step-1", "conv-1-step-2"]


def shows(queue: Queue) -> Callable[[Event], object]:
    """A hook that shows a lost message again, as when its visibility has ended."""
    return lambda event: event.kind == "lost" and event.message and queue.hide(event.message, 0)


def test_a_worker_that_was_replaced_records_nothing(queue: Queue, store: IdempotencyStore) -> None:
    def replaced(task: Task) -> str:
        assert task.claim is not None
        if task.attempt == 1:
            store.release(task.claim)  # as when its lease had run out …
            other = store.claim(Work.of(task.body, "researcher"))  # … and another worker was faster
            other.complete("the other's")
        return "mine"

    send(queue, step_of(1))
    assert drain(queue, replaced, store, on_event=shows(queue)) == {"lost": 1, "replayed": 1}
    record = store.look(Work.of(step_of(1), "researcher"))
    assert record is not None
    assert record.result == '"the other\'s"'


def test_a_token_that_died_ends_the_step(queue: Queue, store: IdempotencyStore) -> None:
    def dead_token() -> None:
        raise ClientError({"Error": {"Code": "TaskTimedOut", "Message": "Task Timed Out"}}, "SendTaskHeartbeat")

    def step(task: Task) -> str:
        if task.attempt > 1:
            return "second try"
        for _ in range(150):  # less than its lease: it is not that which ends it
            time.sleep(0.1)
            task.check()
        return "never"

    send(queue, step_of(1))
    tokens = lambda task: [dead_token] if task.attempt == 1 else []  # noqa: E731
    counts = drain(queue, step, store, every=0.5, keep_alive=tokens, on_event=shows(queue))
    assert counts == {"lost": 1, "done": 1}


def test_prefetched_messages_wait_and_are_not_lost(queue: Queue, store: IdempotencyStore) -> None:
    log = Log()

    def step(task: Task) -> str:
        time.sleep(0.5)
        return log.step(task)

    send(queue, *map(step_of, range(6)))
    store.lease = 4
    counts = drain(queue, step, store, prefetch=6, visibility=5)
    assert counts["done"] == 6
    assert len(log.ran) == 6


def test_what_waits_behind_slow_ones_is_kept_and_tried(queue: Queue, store: IdempotencyStore) -> None:
    """Each return would cost it one of its receives, and the last ones would be dead without having been tried."""
    store.lease = 4
    log = Log()

    def step(task: Task) -> str:
        time.sleep(1.1)
        return log.step(task)

    send(queue, *map(step_of, range(6)))
    assert drain(queue, step, store, prefetch=6, visibility=5, every=0.3) == {"done": 6}
    assert len(log.ran) == 6


def test_what_is_done_is_deleted_while_a_slow_one_of_its_batch_is_at_work(queue: Queue) -> None:
    """Without a store it would run again."""
    log = Log()

    def step(task: Task) -> str:
        said = log.step(task)
        if log.ran.index(task.trace_id) == 3:
            until(lambda: queue.depth().total == 1)  # its own message, and no other
        return said

    send(queue, *map(step_of, range(4)))
    counts = drain(queue, step, None, prefetch=10, visibility=30, every=0.3, threads=2)
    assert counts == {"done": 4}
    assert Counter(log.ran) == {f"conv-1-step-{n}": 1 for n in range(4)}


def test_the_message_is_held_while_what_follows_takes_its_time(queue: Queue, store: IdempotencyStore) -> None:
    store.lease, followed = 3, []

    def then(task: Task, result: Any) -> None:
        time.sleep(5)
        followed.append(result)

    send(queue, step_of(1))
    assert drain(queue, Log().step, store, then=then, visibility=4, every=0.3, threads=2) == {"done": 1}
    assert len(followed) == 1


def test_what_is_kept_alive_beside_it_can_hang_and_nothing_is_lost(queue: Queue, store: IdempotencyStore) -> None:
    store.lease, go_on, hung = 3, threading.Event(), list[bool]()

    def slow(task: Task) -> str:
        for _ in range(25):
            time.sleep(0.2)
            task.check()
        return "well"

    send(queue, step_of(1))
    try:
        keep_alive = lambda task: [lambda: hung.append(go_on.wait(60))]  # noqa: E731
        assert drain(queue, slow, store, keep_alive=keep_alive, visibility=4, every=0.3, threads=2) == {"done": 1}
        assert not hung, "it waited for that"
    finally:
        go_on.set()


def test_a_message_that_is_lost_at_the_start_is_not_run(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    log = Log()

    def slow(body: str) -> Envelope:
        time.sleep(1.5)
        return Envelope.parse(body)

    def refuse(message: Message, seconds: int) -> None:
        raise QueueError("it is gone")

    send(queue, step_of(1))
    monkeypatch.setattr(queue, "hide", refuse)
    assert told(Worker(queue, log.step, parse=slow, visibility=1, wait=0)) == {"lost": 1}
    assert log.ran == []


def test_steps_that_go_on_after_their_limit_end_the_worker(queue: Queue, store: IdempotencyStore) -> None:
    store.lease, ended = 0.9, threading.Event()
    send(queue, step_of(1), step_of(2))
    worker = Worker(
        queue, lambda task: ended.wait(90), store=store, visibility=1, wait=0, threads=2, limit=1, grace=0.5
    )
    try:
        with pytest.raises(WorkerError, match="no thread is left: 2 steps went on after their limit"):
            worker.run(seconds=60)
    finally:
        ended.set()
    assert queue.depth().total == 2


# -- ends --------------------------------------------------------------------------------------------------------------


def stopping(worker: Worker, started: threading.Event) -> dict[str, int]:
    def stop() -> None:
        started.wait(60)
        worker.stop()

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        return dict(worker.run(seconds=60))
    finally:
        thread.join()


def test_a_stop_lets_the_step_finish(queue: Queue, store: IdempotencyStore) -> None:
    started = threading.Event()

    def step(task: Task) -> str:
        started.set()
        assert worker._stop.wait(60)
        time.sleep(0.5)
        return "finished"

    send(queue, step_of(1), step_of(2))
    worker = Worker(queue, step, store=store, consumer="researcher", visibility=30, wait=1, grace=60)
    assert stopping(worker, started) == {"done": 1}
    assert queue.depth().visible == 1


def test_after_the_grace_the_work_is_given_back_at_once(queue: Queue, store: IdempotencyStore) -> None:
    started, ended = threading.Event(), threading.Event()

    def endless(task: Task) -> str:
        started.set()
        while not ended.is_set():
            time.sleep(0.05)
            task.check()
        return "never"

    send(queue, step_of(1))
    worker = Worker(queue, endless, store=store, consumer="researcher", visibility=30, wait=1, grace=0.3)
    assert stopping(worker, started) == {"released": 1}
    assert queue.depth().visible == 1
    assert drain(queue, Log().step, store) == {"done": 1}
    ended.set()


def test_a_stop_that_comes_before_the_run_is_not_lost(queue: Queue) -> None:
    worker = Worker(queue, Log().step, wait=0)
    worker.stop()
    assert worker.run() == {}
    send(queue, step_of(1))
    assert worker.run(until_empty=True, seconds=60) == {"done": 1}  # and it counts once


def test_one_run_at_a_time(queue: Queue) -> None:
    started, ended = threading.Event(), threading.Event()

    def step(task: Task) -> None:
        started.set()
        ended.wait(60)

    worker = Worker(queue, step, wait=0)
    send(queue, step_of(1))
    first = threading.Thread(target=worker.run, kwargs={"until_empty": True, "seconds": 60})
    first.start()
    try:
        assert started.wait(60)
        with pytest.raises(WorkerError, match="runs already"):
            worker.run(seconds=1)
    finally:
        ended.set()
        first.join()


def test_a_step_that_outlives_its_run_is_no_thread_of_the_next_one(queue: Queue) -> None:
    stuck, go_on, names = threading.Event(), threading.Event(), []

    def step(task: Task) -> None:
        if task.trace_id == "conv-1-step-1":
            stuck.set()
            go_on.wait(60)
        else:
            names.append(threading.current_thread())
            time.sleep(0.05)

    send(queue, step_of(1))
    worker = Worker(queue, step, visibility=30, wait=0, grace=0.1)
    assert stopping(worker, stuck) == {"released": 1}
    [message] = queue.receive(1)
    queue.delete(message)
    send(queue, *map(step_of, range(2, 22)))
    go_on.set()
    assert worker.run(until_empty=True, seconds=60) == {"done": 20}
    assert len(set(names)) == 1


@pytest.mark.parametrize("hook", ["raises", "blocks"])
def test_a_hook_at_the_end_does_not_keep_the_worker(queue: Queue, hook: str) -> None:
    started, ended, over = threading.Event(), threading.Event(), list[bool]()

    def step(task: Task) -> None:
        started.set()
        over.append(ended.wait(60))

    def on_event(event: Event) -> None:
        if event.kind == "released" and hook == "raises":
            raise RuntimeError("metrics are down")
        over.append(ended.wait(60))

    send(queue, step_of(1))
    worker = Worker(queue, step, wait=0, grace=0.1, on_event=on_event)
    try:
        if hook == "raises":
            with pytest.raises(WorkerError, match="on_event broke: RuntimeError: metrics are down"):
                stopping(worker, started)
        else:
            stopping(worker, started)
        assert not over, "it waited for one of the two"
    finally:
        ended.set()
    assert queue.depth().visible == 1


def test_a_service_without_an_answer_does_not_keep_the_worker(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    started, ended, over = threading.Event(), threading.Event(), list[bool]()
    monkeypatch.setattr("labkit.work.worker._GIVING_BACK", 0.5)
    monkeypatch.setattr(queue, "hide", lambda message, seconds: over.append(ended.wait(60)))

    def step(task: Task) -> None:
        started.set()
        over.append(ended.wait(60))

    send(queue, step_of(1))
    try:
        assert stopping(Worker(queue, step, wait=0, grace=0.1), started) == {}
        assert not over, "it waited for one of the two"
    finally:
        ended.set()


def test_sigterm_lets_the_step_finish_and_leaves_the_handler_as_it_was(queue: Queue) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def step(task: Task) -> None:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGTERM)
            assert worker._stop.wait(60)  # the main thread has heard of it
            time.sleep(0.2)

    send(queue, step_of(1), step_of(2))
    worker = Worker(queue, step, wait=0, grace=60)
    assert worker.run(seconds=60) == {"done": 1}
    assert signal.getsignal(signal.SIGTERM) is before


def test_until_empty_does_not_wait_for_a_queue_that_is_gone(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "_PATIENCE", 0.5)
    worker = Worker(queue, Log().step, wait=0)
    queue.client.delete_queue(QueueUrl=queue.url)
    with pytest.raises(WorkerError, match=r"queue work has not answered for .*does not exist"):
        worker.run(until_empty=True, seconds=60)


def test_short_polls_take_a_breath(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    receive, polls = queue.receive, defaultdict[threading.Thread, list[float]](list)

    def timed(*arguments: Any, **options: Any) -> list[Message]:
        polls[threading.current_thread()].append(time.monotonic())
        if sum(map(len, polls.values())) >= 12:
            worker.stop()
        return receive(*arguments, **options)

    monkeypatch.setattr(queue, "receive", timed)
    worker = Worker(queue, Log().step, wait=0, threads=2)
    worker.run(seconds=60)
    breaths = [later - sooner for times in polls.values() for sooner, later in pairwise(times)]
    assert len(breaths) >= 10
    assert min(breaths) > 0.09


def test_a_fifo_group_keeps_its_order_through_a_failure(lab: Lab, store: IdempotencyStore) -> None:
    queue = Queue.create(lab, "lane.fifo", visibility=30, dlq=True)
    finished: list[str] = []

    def step(task: Task) -> str:
        if task.trace_id == "conv-1-step-1" and task.attempt == 1:
            raise ValueError("once")
        finished.append(task.trace_id)
        return "ok"

    send(queue, *map(step_of, range(4)), group="conversation-1")
    counts = drain(queue, step, store, prefetch=10, retry=Fixed(0))
    assert finished == [f"conv-1-step-{n}" for n in range(4)]
    assert counts == {"done": 4, "failed": 1, "released": 2}


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"threads": 0}, "threads must be a whole number from 1 to 256; got 0"),
        ({"threads": 2.5}, "threads must be"),
        ({"threads": "2"}, "threads must be"),
        ({"prefetch": 11}, "prefetch must be a whole number from 1 to 10; got 11"),
        ({"wait": 21}, "wait must be a whole number from 0 to 20"),
        ({"wait": 0.5}, "wait must be"),
        ({"visibility": 50_000}, "visibility must be a whole number from 1 to 43200"),
        ({"visibility": 3.5}, "visibility must be"),
        ({"limit": 0}, "limit must be"),
        ({"limit": float("nan")}, "limit must be"),
        ({"limit": 50_000}, "limit must be from 1 to 43200 s"),
        ({"grace": -1}, "grace must be"),
        ({"grace": float("inf")}, "grace must be"),
        ({"consumer": "x" * 1025}, "consumer of 1 to 1024 bytes"),
        ({"consumer": 5}, "consumer of 1 to 1024 bytes"),
        ({"then": "hook"}, "then is a plain function"),
        ({"retry": 3}, "retry is a plain function"),
        ({"on_event": None}, "on_event is a plain function"),
        ({"store": "steps"}, "a worker has a Queue and an IdempotencyStore or None"),
        ({"visibility": 20}, r"a lease of 20 s must be shorter than the visibility of 20 s"),
    ],
)
def test_bad_settings_are_refused(queue: Queue, store: IdempotencyStore, options: dict[str, Any], says: str) -> None:
    with pytest.raises(WorkerError, match=says):
        Worker(queue, Log().step, **{"store": store, **options})


@pytest.mark.parametrize("seconds", [-1, float("nan"), "soon"])
def test_a_run_without_a_time_is_refused(queue: Queue, seconds: Any) -> None:
    with pytest.raises(WorkerError, match="seconds must be at least 0 s"):
        Worker(queue, Log().step).run(seconds=seconds)


def test_a_worker_without_its_queue_is_refused(queue: Queue) -> None:
    with pytest.raises(WorkerError, match="a worker has a Queue"):
        Worker(None, Log().step)  # type: ignore[arg-type]
    queue.client.delete_queue(QueueUrl=queue.url)
    with pytest.raises(QueueError, match="queue work could not be asked"):
        Worker(queue, Log().step)


def test_a_queue_that_is_gone_is_said_and_waited_for(queue: Queue, store: IdempotencyStore) -> None:
    worker = Worker(queue, Log().step, store=store, wait=0)
    queue.client.delete_queue(QueueUrl=queue.url)
    assert told(worker, 2) == {"poll_failed": 2}


# -- all at once -------------------------------------------------------------------------------------------------------


class Nasty:
    """The network of one client: some calls are throttled, some answers come late, some are lost."""

    def __init__(self, client: Any, dice: random.Random) -> None:
        self.dice, self.send = dice, client._endpoint.http_session.send
        client._endpoint.http_session.send = self.sent
        client.meta.events.register("before-call", self.throttled)

    def throttled(self, model: Any, **_: Any) -> None:
        if self.dice.random() < 0.05:
            raise ClientError({"Error": {"Code": "ThrottlingException", "Message": "slow down"}}, model.name)

    def sent(self, request: Any) -> Any:
        if self.dice.random() < 0.05:
            time.sleep(self.dice.uniform(0.1, 1.2))
        answer = self.send(request)
        if self.dice.random() < 0.08:  # botocore sends it once more
            raise ReadTimeoutError(endpoint_url=request.url)
        return answer


def test_throttles_lost_answers_and_skewed_clocks_lose_nothing_and_record_nothing_twice(
    lab: Lab, store: IdempotencyStore
) -> None:
    queue = Queue.create(lab, "stormy", visibility=2, dlq=True, max_receives=1_000)
    work = [step_of(n) for n in range(120)]
    queue.send_batch([envelope.detail() for envelope in [*work, *work[:40]]])
    followed: dict[str, set[str]] = defaultdict(set)

    def work_of(seed: int, skew: float) -> None:
        dice = random.Random(seed)

        def step(task: Task) -> str:
            time.sleep(dice.choice([0, 0, 0.05, 0.3]))
            if dice.random() < 0.08:  # as when its process is suspended: the work is taken over meanwhile
                task.beat.end()
                time.sleep(dice.uniform(2, 3.5))
            if dice.random() < 0.05:
                raise dice.choice([ValueError("no"), KeyboardInterrupt(), SystemExit()])
            return uuid.uuid4().hex  # another one each time: two runs cannot pass for one

        def then(task: Task, result: str) -> None:
            followed[task.trace_id].add(result)
            if dice.random() < 0.05:
                raise ValueError("nobody listens")

        sqs, dynamodb = (lab.target.client(service, lab.account) for service in ("sqs", "dynamodb"))
        mine = Queue(sqs, queue.url, arn=queue.arn)
        records = IdempotencyStore(dynamodb, store.table, lease=1, clock=lambda: time.time() + skew)
        options: dict[str, Any] = {"consumer": "researcher", "threads": 4, "prefetch": 3, "visibility": 2, "wait": 0}
        worker = Worker(mine, step, store=records, then=then, grace=0.3, retry=Fixed(0), **options)
        for client in (sqs, dynamodb):
            Nasty(client, dice)
        end = time.monotonic() + 200
        while queue.depth().total and time.monotonic() < end:
            worker.run(until_empty=True, seconds=dice.uniform(1, 5))  # and it is stopped now and then

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work_of, range(3), [0, 0.5, -0.5]))
    assert queue.depth().total == 0
    for envelope in work:
        record = store.look(Work.of(envelope, "researcher"))
        assert record is not None, f"{envelope.trace_id} is lost"
        assert record.done, f"{envelope.trace_id} is lost"
        assert {f'"{result}"' for result in followed[envelope.trace_id]} == {record.result}, "recorded twice"
