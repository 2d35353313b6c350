"""Reported: handles that expire, steps that run twice, redrives that go nowhere."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from botocore.exceptions import ClientError

from labkit import Lab
from labkit.control.bus import Bus
from labkit.control.envelope import Envelope
from labkit.work.heartbeat import Heartbeat, LeaseLost
from labkit.work.queues import BatchError, Message, Queue


def exhaust(queue: Queue, *bodies: str) -> None:
    """Send messages, and fail with them until all are dead letters."""
    queue.send_batch(bodies)
    for _ in range(10):
        if not queue.receive(visibility=0):
            return
    raise AssertionError(f"{queue.name} still has messages")


def move(dlq: Queue, **options: Any) -> dict[str, Any]:
    """Run a move task to its end; returns what the list says of it."""
    dlq.client.start_message_move_task(SourceArn=dlq.arn, **options)
    end = time.monotonic() + 60
    while time.monotonic() < end:
        task: dict[str, Any] = dlq.client.list_message_move_tasks(SourceArn=dlq.arn)["Results"][0]
        if task["Status"] not in ("RUNNING", "CANCELLING"):
            return task
        time.sleep(0.05)
    raise AssertionError(f"the task did not end: {task}")


def refusal(call: Any, **arguments: Any) -> str:
    with pytest.raises(ClientError) as refused:
        call(**arguments)
    return str(refused.value.response["Error"]["Code"])


def test_p01_a_fifo_queue_refuses_a_delete_whose_handle_has_expired(lab: Lab) -> None:
    """One consumer, no rival, and still its delete fails: on a FIFO queue the handle ends with the timeout.

    The delete must not pass as success: the message is delivered again. A heartbeat keeps the handle alive.
    """
    queue = Queue.create(lab, "lane.fifo", visibility=1)
    queue.send("step 7", group="8842", MessageDeduplicationId="7")
    [late] = queue.receive()
    time.sleep(1.1)
    with pytest.raises(BatchError, match="expired"):
        queue.delete(late)
    [again] = queue.receive(wait=20, visibility=4)
    assert (again.id, again.receives) == (late.id, 2)
    with Heartbeat(queue, again, every=0.3, extend=4, limit=60) as beat:
        time.sleep(5)
        beat.check()
        queue.delete(again)
    assert queue.depth().total == 0


def test_p03_a_step_longer_than_its_visibility_runs_twice_unless_a_heartbeat_holds_it(lab: Lab) -> None:
    """A handler of 150 s on a queue of 120 s: a second execution starts while the first is at work.

    A heartbeat holds the message for as long as the step lives, and no longer than its bound.
    """
    queue = Queue.create(lab, "work", visibility=4)
    over = threading.Event()
    running: list[int] = []
    overlaps: list[int] = []

    def step(message: Message) -> None:
        running.append(message.receives)
        overlaps.append(len(running))
        if len(running) > 1:
            over.set()
        over.wait(60)  # as long as it takes another consumer to come, or to have waited in vain
        running.remove(message.receives)

    def rival() -> None:
        for message in queue.receive(wait=7):
            step(message)
        over.set()

    def run(held: bool) -> int:
        """The most executions of one message at a time, with another consumer beside."""
        overlaps.clear()
        over.clear()
        queue.send("150 s of work")
        [message] = queue.receive(wait=20)
        other = threading.Thread(target=rival)
        if held:
            with Heartbeat(queue, message, every=0.3, extend=4, limit=60):
                other.start()
                step(message)
                queue.delete(message)
        else:
            other.start()
            step(message)
        other.join(timeout=60)
        return max(overlaps)

    assert run(held=False) == 2
    for left in queue.receive(wait=20):
        queue.delete(left)
    assert run(held=True) == 1

    queue.send("a step that hangs")
    [stuck] = queue.receive(wait=20)
    with Heartbeat(queue, stuck, every=0.3, extend=1, limit=1) as beat:
        [taken] = queue.receive(wait=20)  # the bound frees it for others
        assert taken.id == stuck.id
        with pytest.raises(LeaseLost):
            beat.check()


def test_p16_a_move_task_only_from_a_dead_letter_queue_to_one_that_exists_and_one_at_a_time(lab: Lab) -> None:
    """An emulator started tasks from any queue, to nowhere, and two at once. AWS refuses all three."""
    work, plain = Queue.create(lab, "work", dlq=True, max_receives=1), Queue.create(lab, "plain")
    assert work.dlq is not None
    exhaust(work, *map(str, range(30)))  # at one a second they last
    start = work.client.start_message_move_task
    assert refusal(start, SourceArn=plain.arn, DestinationArn=work.arn) == "InvalidParameterValue"
    missing = f"{work.arn}-gone"
    assert refusal(start, SourceArn=work.dlq.arn, DestinationArn=missing) == "ResourceNotFoundException"
    first = start(SourceArn=work.dlq.arn, MaxNumberOfMessagesPerSecond=1)
    assert refusal(start, SourceArn=work.dlq.arn) == "InvalidParameterValue"
    work.client.cancel_message_move_task(TaskHandle=first["TaskHandle"])
    assert work.depth().total + work.dlq.depth().total == 30  # refused or cancelled, nothing is lost


def test_p17_without_a_destination_each_letter_goes_back_to_its_own_queue(lab: Lab) -> None:
    """An emulator dropped the messages of a task that named no destination. They belong where they came from."""
    dlq = Queue.create(lab, "dead")
    first, second = (Queue.create(lab, name, dlq=dlq, max_receives=1) for name in ("first", "second"))
    exhaust(first, "a", "b")
    exhaust(second, "c")
    assert dlq.depth().visible == 3
    task = move(dlq)
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 3)
    assert sorted(m.body for m in first.receive()) == ["a", "b"]
    assert [m.body for m in second.receive()] == ["c"]
    assert dlq.depth().total == 0


def test_p17_letters_of_a_rule_are_read_sent_again_and_deleted(lab: Lab) -> None:
    """The other half of the report: a dead-letter queue that EventBridge fills has no source queue to go back to."""
    bus, target, undelivered = Bus.create(lab, "fleet"), Queue.create(lab, "work"), Queue.create(lab, "undelivered")
    arn = bus.rule("work", {"detail": {"agent_class": ["researcher"]}}, target, dlq=undelivered)
    refuse = {"lab:fault": "NO_PERMISSIONS"}
    target.client.tag_queue(QueueUrl=target.url, Tags=refuse)
    step = Envelope.new(conversation_id="8842", step=7, agent_class="researcher", payload={"n": 1})
    bus.publish([step])
    [letter] = undelivered.receive(wait=20)
    target.client.untag_queue(QueueUrl=target.url, TagKeys=list(refuse))
    assert letter.attributes["RULE_ARN"] == arn
    assert "DeadLetterQueueSourceArn" not in letter.system

    code = refusal(target.client.start_message_move_task, SourceArn=undelivered.arn, DestinationArn=target.arn)
    assert code == "InvalidParameterValue"
    target.send(letter.body)
    undelivered.delete(letter)
    [back] = target.receive(wait=20)
    assert Envelope.from_event(back.body).trace_id == step.trace_id
