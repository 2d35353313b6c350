"""Triage: every dead letter is counted once, under its reason, and is back in its queue afterwards."""

from __future__ import annotations

import json
import time

import pytest
from botocore.exceptions import EndpointConnectionError

from labkit import Lab
from labkit.ops.triage import MOVED, UNKNOWN, TriageError, held, move_ended, piles, survey
from labkit.work.dead_letters import bury
from labkit.work.queues import Queue


def text(value: str) -> dict[str, str]:
    return {"DataType": "String", "StringValue": value}


@pytest.fixture
def queue(lab: Lab) -> Queue:
    """A queue that nothing is redriven from."""
    return Queue.create(lab, "dead", visibility=30)


def test_by_reason_from_wherever_it_is_said(lab: Lab) -> None:
    queue = Queue.create(lab, "work", visibility=30, dlq=True, max_receives=1)
    dead = queue.dlq
    assert dead is not None
    queue.send("moved by SQS")
    queue.receive(visibility=0)
    assert queue.receive() == []
    queue.send("a worker's")
    [message] = queue.receive()
    assert bury(queue, message, ValueError("no"), trace_id="t-1")
    dead.send("a rule's", MessageAttributes={"ERROR_CODE": text("NO_PERMISSIONS"), "RULE_ARN": text("arn:rule")})
    dead.send("a function's", MessageAttributes={"ErrorCode": text("200")})
    dead.send(json.dumps({"requestContext": {"condition": "RetriesExhausted"}, "requestPayload": {}}))
    dead.send(json.dumps({"errorCode": "THROTTLING", "detail": {}}))
    for body in ("words", "[1]", '{"errorCode": 1}'):
        dead.send(body)
    found = survey(dead)
    assert found.counts == {
        MOVED: 1,
        "ValueError": 1,
        "NO_PERMISSIONS": 1,
        "200": 1,
        "RetriesExhausted": 1,
        "THROTTLING": 1,
        UNKNOWN: 3,
    }
    assert found.rows()[0] == (UNKNOWN, 3)
    assert found.sources[queue.arn] == 2
    assert found.sources["arn:rule"] == 1
    assert dead.depth().visible == found.total == 9


def test_each_is_counted_once_and_all_are_given_back(queue: Queue) -> None:
    queue.send_batch(range(137))
    found = survey(queue)
    assert found.total == 137
    assert (queue.depth().visible, queue.depth().in_flight) == (137, 0)


def test_a_sample_leaves_the_rest(queue: Queue) -> None:
    queue.send_batch(range(60))
    assert 20 <= survey(queue, threads=1, at_most=20).total < 30
    assert queue.depth().visible == 60


def test_an_error_in_the_block_gives_them_back_too(queue: Queue) -> None:
    queue.send_batch(range(12))

    def look() -> None:
        with held(queue):
            raise KeyError("reader's mistake")

    with pytest.raises(KeyError):
        look()
    assert queue.depth().visible == 12


def test_a_look_renews_what_it_holds(queue: Queue) -> None:
    queue.send_batch(range(23))
    with held(queue, hold=8) as messages:
        time.sleep(10)  # longer than one hold
        assert (queue.depth().visible, len(messages)) == (0, 23)
    assert (queue.depth().visible, queue.depth().in_flight) == (23, 0)


def test_a_look_that_cannot_renew_is_refused_and_leaves_to_others_what_may_be_theirs(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.send_batch(range(3))

    def refuses(**_: object) -> None:
        raise EndpointConnectionError(endpoint_url="http://nowhere")

    def look() -> None:
        with held(queue, hold=6):
            monkeypatch.setattr(queue.client, "change_message_visibility_batch", refuses)
            time.sleep(7)
            monkeypatch.undo()
            queue.receive(visibility=60)  # somebody else takes them; our handles would end their hold

    with pytest.raises(TriageError, match="hold them longer"):
        look()
    assert (queue.depth().visible, queue.depth().in_flight) == (0, 3)


def test_what_cannot_be_given_back_is_said(queue: Queue) -> None:
    queue.send_batch(range(3))

    def look() -> None:
        with held(queue) as messages:
            queue.delete(messages[0])

    with pytest.raises(TriageError, match=r"^1 messages of dead stay hidden for 120 s, none is lost"):
        look()


def test_what_is_taken_off_the_list_is_decided(lab: Lab, queue: Queue) -> None:
    target = Queue.create(lab, "target", visibility=30)
    for n in range(25):
        queue.send(n, MessageAttributes={"ERROR_CODE": text("Busy" if n % 5 else "Bad")})
    with held(queue) as messages:
        assert {why: len(pile) for why, pile in sorted(piles(messages).items())} == {"Bad": 5, "Busy": 20}
        for message in piles(messages)["Bad"]:
            target.send(message.body)
            queue.delete(message)
            messages.remove(message)
        assert (queue.depth().visible, queue.depth().in_flight) == (0, 20)
    assert (queue.depth().visible, queue.depth().in_flight) == (20, 0)
    assert survey(queue).counts == {"Busy": 20}
    assert sorted(message.json() for message in target.receive()) == [0, 5, 10, 15, 20]


def test_an_error_between_two_decisions_gives_the_undecided_back(queue: Queue) -> None:
    queue.send_batch(range(3))

    def decide() -> None:
        with held(queue) as messages:
            first = messages[0]
            queue.delete(first)
            messages.remove(first)
            raise KeyError("reader's mistake")

    with pytest.raises(KeyError):
        decide()
    assert (queue.depth().visible, queue.depth().in_flight) == (2, 0)


def test_the_end_of_a_move(lab: Lab) -> None:
    queue = Queue.create(lab, "work", visibility=30, dlq=True, max_receives=1)
    dead = queue.dlq
    assert dead is not None
    with pytest.raises(TriageError, match=r"^no move task was ever started on work-dlq"):
        move_ended(dead)
    queue.send_batch(range(30))
    while queue.receive(visibility=0):
        pass
    start = queue.client.start_message_move_task
    slow = start(SourceArn=dead.arn, DestinationArn=queue.arn, MaxNumberOfMessagesPerSecond=1)
    with pytest.raises(TriageError, match="is RUNNING after 0 s"):
        move_ended(dead, seconds=0)
    queue.client.cancel_message_move_task(TaskHandle=slow["TaskHandle"])
    assert move_ended(dead)["Status"] == "CANCELLED"
    start(SourceArn=dead.arn)
    assert move_ended(dead)["Status"] == "COMPLETED"
    assert (queue.depth().visible, dead.depth().total) == (30, 0)


def test_a_queue_that_redrives_is_refused(lab: Lab) -> None:
    queue = Queue.create(lab, "work", visibility=30, dlq=True)
    with pytest.raises(TriageError, match="would use up a receive"):
        survey(queue)


@pytest.mark.parametrize("options", [{"threads": 0}, {"hold": 0}, {"at_most": 0}, {"hold": 43_201}])
def test_bad_settings_are_refused(queue: Queue, options: dict[str, int]) -> None:
    with pytest.raises(TriageError):
        survey(queue, **options)  # type: ignore[arg-type]
