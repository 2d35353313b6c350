"""Queues: batch calls that fail for single entries, the loop, the heartbeat."""

from __future__ import annotations

import threading
import time
from collections import Counter
from itertools import chain, repeat
from typing import Any

import pytest
from botocore.exceptions import ClientError

from labkit import Lab
from labkit.errors import LabError
from labkit.work.heartbeat import Heartbeat, LeaseLost
from labkit.work.queues import BatchError, Message, Queue, QueueError
from tests.waiting import until


class Flaky:
    """An SQS client whose batch calls fail for chosen entries, a given number of times each."""

    def __init__(self, code: str, times: dict[str, int]) -> None:
        self.code, self.times = code, times
        self.calls: list[list[str]] = []

    def send_message(self, **arguments: Any) -> dict[str, Any]:
        self.calls.append(["single"])
        return {"MessageId": "m"}

    def send_message_batch(self, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:
        self.calls.append([entry["Id"] for entry in Entries])
        answer: dict[str, Any] = {"Successful": []}
        for entry in Entries:
            if self.times.get(entry["Id"], 0) > 0:
                self.times[entry["Id"]] -= 1
                sender = self.code == "InvalidMessageContents"
                fault = {"Id": entry["Id"], "Code": self.code, "SenderFault": sender, "Message": "no"}
                answer.setdefault("Failed", []).append(fault)
            else:
                answer["Successful"].append({"Id": entry["Id"], "MessageId": f"m{entry['Id']}"})
        return answer


def flaky(code: str, **times: int) -> tuple[Flaky, Queue]:
    client = Flaky(code, {name.removeprefix("e"): count for name, count in times.items()})
    return client, Queue(client, "http://localhost/1/work", arn="arn:aws:sqs:us-east-1:1:work")


def test_only_the_entries_that_failed_are_sent_again() -> None:
    client, queue = flaky("InternalError", e1=2, e3=1)
    waits: list[float] = []
    assert queue.send_batch(["a", "b", "c", "d"], sleep=waits.append) == ["m0", "m1", "m2", "m3"]
    assert client.calls == [["0", "1", "2", "3"], ["1", "3"], ["1"]]
    assert len(waits) == 2


def test_an_entry_that_is_the_senders_fault_is_not_tried_again() -> None:
    client, queue = flaky("InvalidMessageContents", e1=99)
    with pytest.raises(BatchError) as caught:
        queue.send_batch(["a", "b", "c"], sleep=lambda _: None)
    assert caught.value.failed == {1: ("InvalidMessageContents", "no")}
    assert len(client.calls) == 1


def test_an_entry_that_never_succeeds_is_given_up_and_named() -> None:
    client, queue = flaky("InternalError", e0=99)
    with pytest.raises(BatchError, match="1 of 1 messages were not sent to work: entry 0: InternalError"):
        queue.send_batch(["a"], sleep=lambda _: None)
    assert len(client.calls) == 5


def test_batches_keep_to_ten_entries_and_one_mebibyte(lab: Lab) -> None:
    queue = Queue.create(lab, "big")
    bodies = [f"{index:02d}" + "x" * 300_000 for index in range(7)] + [str(index) for index in range(23)]
    ids = queue.send_batch(bodies)
    assert len(set(ids)) == len(bodies) == queue.depth().total
    received: list[str] = []
    assert queue.consume(lambda message: received.append(message.body)) == len(bodies)
    assert Counter(received) == Counter(bodies)
    assert queue.depth().total == 0


def test_a_message_whose_handler_raised_comes_back_and_the_others_are_done(lab: Lab) -> None:
    queue = Queue.create(lab, "work", visibility=4)
    queue.send_batch(["good", "bad", "fine"])

    def handle(message: Any) -> None:
        if message.body == "bad" and message.receives == 1:
            raise RuntimeError("cannot")

    faults: list[str] = []
    assert queue.consume(handle, on_error=lambda message, error: faults.append(f"{message.body}: {error}")) == 2
    assert faults == ["bad: cannot"]
    assert queue.depth().in_flight == 1
    assert queue.consume(handle, wait=20, limit=1) == 1
    assert queue.depth().total == 0


def test_without_on_error_the_error_is_raised_and_what_was_done_is_deleted(lab: Lab) -> None:
    queue = Queue.create(lab, "fifo.fifo", attributes={"ContentBasedDeduplication": True})
    queue.send_batch(["1", "2", "3"], group=lambda body: "g")

    def handle(message: Any) -> None:
        if message.body == "2":
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        queue.consume(handle)
    assert queue.depth().total == 2


def test_a_dlq_is_made_with_policies_that_name_each_other(lab: Lab) -> None:
    queue = Queue.create(lab, "work", visibility=0, dlq=True, max_receives=2)
    assert queue.dlq is not None
    queue.send("poison")
    receives = [message.receives for _ in range(3) for message in queue.receive()]
    assert receives == [1, 2]
    assert [message.body for message in queue.dlq.receive()] == ["poison"]
    sources = lab.client("sqs").list_dead_letter_source_queues(QueueUrl=queue.dlq.url)["queueUrls"]
    assert [url.rsplit("/", 1)[1] for url in sources] == ["work"]
    with pytest.raises(QueueError):  # the allow policy lets in the one queue
        Queue.create(lab, "other", dlq=queue.dlq)


def test_a_queue_policy_keeps_the_statements_it_has(lab: Lab) -> None:
    queue = Queue.create(lab, "work")
    for rule in ("one", "two", "one"):
        queue.allow("events.amazonaws.com", lab.arn("events", f"rule/bus/{rule}"))
    policy = queue._attributes("Policy")["Policy"]
    assert policy.count("aws:SourceArn") == 2


def test_a_bad_attribute_is_a_sentence(lab: Lab) -> None:
    with pytest.raises(QueueError, match="queue 'work' was not created"):
        Queue.create(lab, "work", visibility=99_999)


def test_a_body_that_is_no_json_is_a_sentence(lab: Lab) -> None:
    queue = Queue.create(lab, "work")
    queue.send("{oops")
    [message] = queue.receive()
    with pytest.raises(QueueError, match=f"message {message.id} holds no JSON"):
        message.json()


def test_a_heartbeat_holds_the_message_and_lets_go_at_the_end(lab: Lab) -> None:
    queue = Queue.create(lab, "work", visibility=4)
    queue.send("slow")
    [message] = queue.receive()
    with Heartbeat(queue, message, every=0.3, extend=4) as beat:
        assert queue.receive(wait=5) == []
        beat.check()
    assert beat.beats >= 3
    queue.delete(message)
    assert queue.depth().total == 0


def test_a_heartbeat_stops_at_its_limit_and_says_so(lab: Lab) -> None:
    queue = Queue.create(lab, "work", visibility=1)
    queue.send("hangs")
    [message] = queue.receive()
    with Heartbeat(queue, message, every=0.2, extend=1, limit=0.5) as beat:
        until(lambda: beat.lost)
        with pytest.raises(LeaseLost, match=r"the limit of 0\.5 s was reached"):
            beat.check()
    assert len(queue.receive(wait=20)) == 1  # somebody else gets it


def test_a_heartbeat_learns_that_its_message_is_gone(lab: Lab) -> None:
    queue = Queue.create(lab, "work", visibility=5)
    queue.send("x")
    [message] = queue.receive()
    queue.delete(message)
    with Heartbeat(queue, message, every=0.1, extend=1) as beat:
        until(lambda: beat.lost)
    with pytest.raises(LeaseLost):
        beat.check()


def test_a_heartbeat_that_was_held_up_knows_that_its_time_was_over(lab: Lab) -> None:
    queue = Queue.create(lab, "work", visibility=5)
    queue.send("x")
    [message] = queue.receive()
    moments = chain([0.0, 0.0], repeat(60.0))  # opened, first beat, and then the process slept for a minute
    with Heartbeat(queue, message, every=0.05, extend=5, clock=lambda: next(moments)) as beat:
        until(lambda: beat.lost)
        with pytest.raises(LeaseLost, match="ran out before the next one came through"):
            beat.check()
    assert beat.beats == 1


def test_a_heartbeat_that_never_came_through_does_not_say_that_the_message_is_held() -> None:
    from botocore.exceptions import EndpointConnectionError

    class Dead:
        def change_message_visibility(self, **_: Any) -> None:
            raise EndpointConnectionError(endpoint_url="http://127.0.0.1:9")

    queue = Queue(Dead(), "http://127.0.0.1:9/1/work", arn="arn")
    message = Message(id="m", body="", receipt="r", receives=1, sent_at=0)
    with Heartbeat(queue, message, every=0.1, extend=1) as beat, pytest.raises(LeaseLost):
        beat.check()
    with pytest.raises(LabError, match="a heartbeat runs once"), beat:
        pass


def driven(hide: Any, **options: Any) -> Heartbeat:
    """A heartbeat without a thread, on a queue that is nothing but ``hide``."""
    client = type("Client", (), {"change_message_visibility": lambda self, **call: hide(call["VisibilityTimeout"])})()
    message = Message(id="m", body="", receipt="r", receives=1, sent_at=0)
    queue = Queue(client, "http://127.0.0.1:9/1/work", arn="arn")
    return Heartbeat(queue, message, **{"every": 1, "extend": 3, "held": 3, "driven": True, **options})


def refused(code: str, status: int = 400) -> ClientError:
    says = {"Error": {"Code": code, "Message": "says no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(says, "ChangeMessageVisibility")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "lost"),
    [
        (refused("RequestThrottled"), None),
        (refused("ProvisionedThroughputExceededException"), None),
        (refused("InternalError", 500), None),
        (refused("ReceiptHandleIsInvalid"), "says no"),
        (refused("AccessDenied", 403), "says no"),
        (TimeoutError("of a client that is not boto3"), None),
        (ValueError("a\ud800"), "ValueError: a?"),
        (LabError("fenced"), "fenced"),
    ],
)
@pytest.mark.parametrize("where", ["message", "also"])
def test_a_heartbeat_knows_a_refusal_from_trouble_that_passes(where: str, error: Exception, lost: str | None) -> None:
    def broken(*_: Any) -> None:
        raise error

    now = [0.0]
    hide, also = (broken, []) if where == "message" else (lambda seconds: None, [broken])
    with driven(hide, also=also, clock=lambda: now[0]) as beat:
        now[0] = 1.0
        beat.beat()
        assert beat.lost == lost
        assert beat.holds is (lost is None)


def test_what_hangs_beside_the_message_holds_up_itself_alone() -> None:
    hidden: list[int] = []
    hangs, go_on, calls = threading.Event(), threading.Event(), []

    def hanging() -> None:
        calls.append(1)
        hangs.set()
        assert go_on.wait(90)

    renewed: list[int] = []
    now = [0.0]
    with driven(hidden.append, also=[lambda: renewed.append(1), hanging], clock=lambda: now[0]) as beat:
        first = threading.Thread(target=beat.beat)
        first.start()
        assert hangs.wait(60)
        for now[0] in (1.0, 2.0, 3.5, 5.0):  # longer than the first extension
            assert beat.due()
            beat.beat()
        beat.check()
        started = time.monotonic()
    assert time.monotonic() - started < 30, "the end waited for what hangs"
    go_on.set()
    first.join()
    assert (len(hidden), len(renewed), len(calls)) == (5, 5, 1)


def test_a_heartbeat_can_begin_anew_when_the_turn_of_its_message_has_come() -> None:
    now, kept = [0.0], []
    with driven(lambda seconds: None, limit=10, clock=lambda: now[0]) as beat:
        for now[0] in (2.0, 4.0, 6.0, 8.0):
            beat.beat()
        beat.restart(6, [lambda: kept.append(1)])
        for now[0] in (9.0, 11.0, 13.0):  # beyond the first limit
            beat.beat()
            beat.check()
        now[0] = 14.5
        assert beat.overdue == 0.5
        beat.beat()
        with pytest.raises(LeaseLost, match="the limit of 6 s was reached"):
            beat.check()
    assert kept == [1, 1, 1]


def test_an_entry_that_the_answer_does_not_name_is_not_taken_for_done() -> None:
    client, queue = flaky("InternalError")
    client.send_message_batch = lambda **call: {"Successful": [{"Id": "0", "MessageId": "m0"}]}  # type: ignore[method-assign]
    with pytest.raises(BatchError) as caught:
        queue.send_batch(["a", "b"], sleep=lambda _: None)
    assert caught.value.failed == {1: ("Unknown", "the answer does not name it")}


def test_a_queue_that_does_not_exist_is_a_sentence(lab: Lab) -> None:
    queue = Queue.create(lab, "work", dlq=True)
    for url in (f"{queue.url}-not", "no url"):
        with pytest.raises(QueueError, match=r"could not be asked for its QueueArn: .*does not exist"):
            Queue(queue.client, url)
    queue.client.delete_queue(QueueUrl=queue.url)
    for asks in (queue.depth, queue.redrive):
        with pytest.raises(QueueError, match="queue work could not be asked"):
            asks()


@pytest.mark.parametrize("body", ["", b"bytes", {1, 2}, "\ud800", float("nan"), object()])
def test_a_body_that_cannot_travel_is_a_sentence(body: Any) -> None:
    client, queue = flaky("InternalError")
    with pytest.raises(QueueError, match="a body"):
        queue.send(body)
    with pytest.raises(QueueError, match="a body"):
        queue.send_batch([1, body])
    assert client.calls == []


@pytest.mark.parametrize("bodies", ["abc", b"abc", {"a": 1}])
def test_one_body_is_not_many(bodies: Any) -> None:
    with pytest.raises(QueueError, match="use send"):
        flaky("InternalError")[1].send_batch(bodies)


def test_a_call_that_broke_off_leaves_no_doubt_about_which_messages_are_in_doubt() -> None:
    from botocore.exceptions import EndpointConnectionError

    client, queue = flaky("InternalError")
    send = client.send_message_batch

    def dies_at_the_second_call(**arguments: Any) -> dict[str, Any]:
        if len(client.calls) == 1:
            raise EndpointConnectionError(endpoint_url="http://127.0.0.1:9")
        return send(**arguments)

    client.send_message_batch = dies_at_the_second_call  # type: ignore[method-assign]
    with pytest.raises(BatchError) as caught:
        queue.send_batch(range(15))
    assert set(caught.value.failed) == set(range(10, 15))
    assert {code for code, _ in caught.value.failed.values()} == {"Unknown"}


@pytest.mark.parametrize("wrong", [{"visibility": 99_999}, {"visibility": -1}, {"max_receives": 0}])
def test_a_refused_queue_leaves_no_dlq_behind(lab: Lab, wrong: dict[str, Any]) -> None:
    with pytest.raises(QueueError):
        Queue.create(lab, "half", dlq=True, **wrong)
    assert not lab.client("sqs").list_queues().get("QueueUrls")


def test_a_fifo_queue_asks_for_the_group(lab: Lab) -> None:
    queue = Queue.create(lab, "lane.fifo", attributes={"ContentBasedDeduplication": True})
    with pytest.raises(QueueError, match="needs a group"):
        queue.send("x")
    with pytest.raises(QueueError, match="needs a group"):
        queue.send_batch(["x"])


@pytest.mark.parametrize(
    ("every", "extend", "limit"), [(0, 10, None), (0.5, 3.5, None), (6, 10, None), (1, 10, 50_000), (1, 10, 0)]
)
def test_a_heartbeat_that_cannot_work_is_refused(every: float, extend: int, limit: float | None) -> None:
    client, queue = flaky("InternalError")
    with pytest.raises(LabError, match="heartbeat"):
        Heartbeat(queue, None, every=every, extend=extend, limit=limit)  # type: ignore[arg-type]
    assert client.calls == []
