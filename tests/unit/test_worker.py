"""The worker: each way in which a delivery can end, and that nothing is lost by any of them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from labkit import Lab
from labkit.control.envelope import Envelope
from labkit.models.retry import Fixed
from labkit.state.idempotency import IdempotencyStore, Work
from labkit.work.queues import BatchError, Message, Queue
from labkit.work.worker import Event, Poison, Task, Worker, WorkerError


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
    return IdempotencyStore.create(lab, "steps", lease=2)


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


def drain(queue: Queue, step: Callable[[Task], Any], store: IdempotencyStore | None, **options: Any) -> dict[str, int]:
    settings = {"visibility": 3, "wait": 0, "consumer": "researcher", "grace": 5, **options}
    return dict(Worker(queue, step, store=store, **settings).run(until_empty=True, seconds=20))


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
    assert all(0 < event.seconds < 20 for event in log.events)


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
    store.claim(Work.of(step_of(1), "researcher"))  # by a worker that has died since
    send(queue, step_of(1))
    assert drain(queue, Log().step, store) == {"busy": 1, "done": 1}


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
    worker = Worker(queue, Log().step, store=store, visibility=3, wait=0, retry=Fixed(0))
    assert worker.run(seconds=0.5)["failed"] > 1
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


# -- slow steps, heartbeats --------------------------------------------------------------------------------------------


def test_a_step_longer_than_its_visibility_runs_once(queue: Queue, store: IdempotencyStore) -> None:
    store.lease = 1
    log = Log()

    def slow(task: Task) -> str:
        for _ in range(10):
            time.sleep(0.3)
            task.check()
        return log.step(task)

    send(queue, step_of(1), step_of(2))
    assert drain(queue, slow, store, visibility=2, threads=3) == {"done": 2}
    assert sorted(log.ran) == ["conv-1-step-1", "conv-1-step-2"]


def test_a_worker_that_was_replaced_records_nothing(queue: Queue, store: IdempotencyStore) -> None:
    def replaced(task: Task) -> str:
        assert task.claim is not None
        if task.attempt == 1:
            store.release(task.claim)  # as when its lease had run out …
            other = store.claim(Work.of(task.body, "researcher"))  # … and another worker was faster
            other.complete("the other's")
        return "mine"

    send(queue, step_of(1))
    assert drain(queue, replaced, store, visibility=3) == {"lost": 1, "replayed": 1}
    record = store.look(Work.of(step_of(1), "researcher"))
    assert record is not None
    assert record.result == '"the other\'s"'


def test_a_token_that_died_ends_the_step(queue: Queue, store: IdempotencyStore) -> None:
    def dead_token() -> None:
        raise ClientError({"Error": {"Code": "TaskTimedOut", "Message": "Task Timed Out"}}, "SendTaskHeartbeat")

    checked = []

    def step(task: Task) -> str:
        if task.attempt > 1:
            return "second try"
        for _ in range(40):
            time.sleep(0.1)
            task.check()
            checked.append(1)
        return "never"

    send(queue, step_of(1))
    counts = drain(queue, step, store, keep_alive=lambda task: [dead_token] if task.attempt == 1 else [])
    assert counts == {"lost": 1, "done": 1}
    assert len(checked) < 20


def test_prefetched_messages_wait_and_are_not_lost(queue: Queue, store: IdempotencyStore) -> None:
    log = Log()

    def step(task: Task) -> str:
        time.sleep(0.5)
        return log.step(task)

    send(queue, *map(step_of, range(6)))
    counts = drain(queue, step, store, prefetch=6, visibility=3)
    assert counts["done"] == 6
    assert len(log.ran) == 6


# -- ends --------------------------------------------------------------------------------------------------------------


def stopping(worker: Worker, started: threading.Event) -> dict[str, int]:
    def stop() -> None:
        started.wait(10)
        worker.stop()

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        return dict(worker.run(seconds=20))
    finally:
        thread.join()


def test_a_stop_lets_the_step_finish(queue: Queue, store: IdempotencyStore) -> None:
    started = threading.Event()

    def step(task: Task) -> str:
        started.set()
        time.sleep(0.5)
        return "finished"

    send(queue, step_of(1), step_of(2))
    worker = Worker(queue, step, store=store, consumer="researcher", visibility=30, wait=1, grace=5)
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
        ({"threads": 0}, "1 to 256 threads"),
        ({"prefetch": 11}, "prefetch of 1 to 10"),
        ({"wait": 21}, "wait of 0 to 20 s"),
        ({"visibility": 2}, r"a lease of 2 s must be shorter than the visibility of 2 s"),
    ],
)
def test_bad_settings_are_refused(queue: Queue, store: IdempotencyStore, options: dict[str, Any], says: str) -> None:
    with pytest.raises(WorkerError, match=says):
        Worker(queue, Log().step, store=store, **options)


def test_a_queue_that_is_gone_is_said_and_waited_for(queue: Queue, store: IdempotencyStore) -> None:
    worker = Worker(queue, Log().step, store=store, wait=0)
    queue.client.delete_queue(QueueUrl=queue.url)
    assert set(worker.run(seconds=0.4)) == {"poll_failed"}
