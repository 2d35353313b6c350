"""Reported: queues that feed Lambda functions, batches that fail in part, messages that are gone without a trace."""

from __future__ import annotations

import json
import textwrap
import time
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from labkit import Lab
from labkit.ops import metrics
from labkit.work.batch import AllFailed, BatchResponseError, Record, check_response, process
from labkit.work.functions import Function, FunctionError
from labkit.work.mappings import QueueMapping, visibility_for
from labkit.work.queues import Queue

Event = dict[str, Any]


def batch_of(*names: str, fifo: bool = False) -> Event:
    """The event that Lambda gives a function for messages of these ids, all of one group."""
    arn = "arn:aws:sqs:us-east-1:123456789012:work" + (".fifo" if fifo else "")
    system = {"ApproximateReceiveCount": "1", **({"MessageGroupId": "8842"} if fifo else {})}
    return {"Records": [{"messageId": n, "body": n, "attributes": system, "eventSourceARN": arn} for n in names]}


def failing(*names: str, tried: list[str] | None = None) -> Callable[[Record], None]:
    def handle(record: Record) -> None:
        if tried is not None:
            tried.append(record.id)
        if record.id in names:
            raise ValueError(f"{record.id} cannot be done")

    return handle


def reported(response: Any) -> list[str]:
    return [item["itemIdentifier"] for item in response["batchItemFailures"]]


def within(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    """Wait until the condition holds; fails when it does not in time."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that in time"
        time.sleep(0.1)


def deploy(lab: Lab, name: str, answer: str, **options: Any) -> Function:
    """A function that logs the bodies of its batch and then returns ``answer``, an expression of ``event``."""
    source = f"""
        def handler(event, context):
            bodies = [record["body"] for record in event["Records"]]
            ids = [record["messageId"] for record in event["Records"]]
            print("ran", *bodies)
            return {answer}
    """
    return Function.deploy(lab, name, source=textwrap.dedent(source), **{"timeout": 5, **options})


def ran(function: Function) -> list[str]:
    """The bodies that the function was given, in all its calls."""
    return [body for line in function.logs() if line.startswith("ran ") for body in line.split()[1:]]


def test_p04_a_mapping_needs_a_visibility_of_at_least_the_timeout_and_six_times_is_the_target(lab: Lab) -> None:
    """A deployment failed: the queue hid messages for 30 s, the function could take longer. Lambda refuses that.

    Equal is accepted, and too little: throttled and slow batches need room. AWS asks for six times, plus the window.
    """
    function = deploy(lab, "step", "None", timeout=5)
    queue = Queue.create(lab, "work", visibility=4)
    with pytest.raises(ClientError) as refused:
        lab.client("lambda").create_event_source_mapping(FunctionName=function.name, EventSourceArn=queue.arn)
    assert refused.value.response["Error"]["Code"] == "InvalidParameterValueException"
    with pytest.raises(FunctionError, match=r"hides a message for 4 s .* a visibility of 30 s"):
        function.map_queue(queue)
    assert visibility_for(5) == 30
    assert visibility_for(5, window=2) == 32
    function.map_queue(Queue.create(lab, "floor", visibility=5))


def test_p06_throttled_deliveries_end_as_dead_letters_that_no_handler_has_seen(lab: Lab) -> None:
    """maxReceiveCount 1 and little reserved concurrency: messages died, and the handler's log does not know them.

    A throttled delivery is a receive. And the alarm on NumberOfMessagesSent slept, because a redrive is no send.
    """
    function = deploy(lab, "step", "__import__('time').sleep(1)", concurrency=1)
    queue = Queue.create(lab, "work", visibility=5, dlq=True, max_receives=1)
    assert queue.dlq is not None
    function.map_queue(queue, batch_size=1)
    sent = {f"m{n}" for n in range(6)}
    queue.send_batch(sent)
    within(lambda: queue.depth().total == 0)
    dead = [message.body for message in queue.dlq.receive(visibility=600)]
    assert dead
    within(lambda: set(dead) | set(ran(function)) == sent)
    assert not set(dead) & set(ran(function))
    names = ("NumberOfMessagesSent", "ApproximateNumberOfMessagesNotVisible")
    counted = metrics.sums(lab, "AWS/SQS", names, {"QueueName": queue.dlq.name})
    assert counted["NumberOfMessagesSent"] == 0
    assert counted["ApproximateNumberOfMessagesNotVisible"] >= len(dead)


def test_p06_a_mapping_that_is_bounded_below_the_reserve_throttles_nothing(lab: Lab) -> None:
    """The cure in the report: bound the mapping, not only the function, and allow five receives or more."""
    function = deploy(lab, "step", "__import__('time').sleep(0.3)", concurrency=3)
    queue = Queue.create(lab, "work", visibility=30, dlq=True, max_receives=5)
    assert queue.dlq is not None
    function.map_queue(queue, batch_size=1, concurrency=2)
    queue.send_batch(f"m{n}" for n in range(8))
    within(lambda: len(ran(function)) >= 8)
    within(lambda: queue.depth().total == 0)
    assert sorted(ran(function)) == [f"m{n}" for n in range(8)]
    assert queue.dlq.depth().total == 0


WRONG_KEY = {"batchItemFailures": [{"ItemIdentifier": "m1"}]}
CAPITALS = {"BatchItemFailures": [{"ItemIdentifier": "m1"}]}
# What a function answers for a batch of m1 and m2, and what Lambda does with the two messages.
RETURNED = {
    "empty": {"batchItemFailures": [{"itemIdentifier": ""}]},
    "null": {"batchItemFailures": [{"itemIdentifier": None}]},
    "unknown": {"batchItemFailures": [{"itemIdentifier": "m9"}]},
    "no object": {"batchItemFailures": ["m1"]},
    "no list": {"batchItemFailures": "m1"},
    "no JSON object": "m1",
}


def test_p08_the_names_in_a_partial_response_are_exact(lab: Lab) -> None:
    """An example in the documentation wrote BatchItemFailures and ItemIdentifier. Neither is read.

    A wrong inner name fails the whole batch; with the outer one, nothing is reported and everything is deleted.
    """
    event = batch_of("m1", "m2")
    with pytest.raises(BatchResponseError, match="has no itemIdentifier") as inner:
        check_response(WRONG_KEY, event)
    assert inner.value.messages == "returned"
    with pytest.raises(BatchResponseError, match="no list batchItemFailures; it has 'BatchItemFailures'") as outer:
        check_response(CAPITALS, event)
    assert outer.value.messages == "deleted"
    assert check_response({"batchItemFailures": [{"itemIdentifier": "m1"}]}, event)

    function = deploy(lab, "step", '{"batchItemFailures": [{"ItemIdentifier": ids[0]}]}')
    queue = Queue.create(lab, "work", visibility=6)
    function.map_queue(queue, batch_size=1)
    queue.send("m1")
    within(lambda: ran(function).count("m1") >= 2)  # it came back


@pytest.mark.parametrize("answer", RETURNED.values(), ids=RETURNED.keys())
def test_p09_a_malformed_partial_response_fails_the_whole_batch(answer: Any) -> None:
    """An emulator took what it could not read for success and deleted the batch. Lambda returns every message."""
    with pytest.raises(BatchResponseError) as refused:
        check_response(answer, batch_of("m1", "m2"))
    assert refused.value.messages == "returned"


def test_p09_nothing_reported_is_success_and_an_unknown_id_is_not(lab: Lab) -> None:
    """Both ends of the report on real mappings: an empty list deletes, the id of no message in the batch returns."""
    done = deploy(lab, "done", '{"batchItemFailures": []}')
    unknown = deploy(lab, "unknown", '{"batchItemFailures": [{"itemIdentifier": "m9"}]}')
    queues = {function: Queue.create(lab, function.name, visibility=6) for function in (done, unknown)}
    for function, queue in queues.items():
        function.map_queue(queue)
        queue.send("m1")
    within(lambda: ran(unknown).count("m1") >= 2)
    within(lambda: queues[done].depth().total == 0 and ran(done) != [])
    assert ran(done) == ["m1"]


def test_p11_without_the_flag_reported_failures_are_deleted(lab: Lab) -> None:
    """A handler named its failures, and they were neither tried again nor in the dead-letter queue.

    The mapping did not carry ReportBatchItemFailures, so a return is success, whatever it says. labkit's mapping
    carries it unless told otherwise.
    """
    answer = '{"batchItemFailures": [{"itemIdentifier": i} for i in ids]}'
    function = deploy(lab, "step", answer)
    plain, flagged = (Queue.create(lab, name, visibility=6, dlq=True, max_receives=2) for name in ("plain", "flagged"))
    function.map_queue(plain, partial=False)
    mapping = function.map_queue(flagged)
    carried = {
        found["EventSourceArn"]: found.get("FunctionResponseTypes")
        for found in lab.client("lambda").list_event_source_mappings(FunctionName=function.name)["EventSourceMappings"]
    }
    assert carried[flagged.arn] == ["ReportBatchItemFailures"]
    assert not carried[plain.arn]
    plain.send("lost")
    flagged.send("kept")
    assert flagged.dlq is not None
    assert plain.dlq is not None
    within(lambda: flagged.dlq.depth().visible == 1)
    assert isinstance(mapping, QueueMapping)
    within(lambda: plain.depth().total == 0)
    within(lambda: len(ran(function)) >= 3)
    assert ran(function).count("kept") == 2
    assert ran(function).count("lost") == 1
    assert plain.dlq.depth().total == 0


@pytest.mark.parametrize("on_failure", ["group", "all"])
def test_p12_on_a_fifo_queue_nothing_behind_a_failure_is_tried(on_failure: Any) -> None:
    """r3 of r1 to r5 fails. To go on to r4 and r5 would break the order: they are returned with r3, untried."""
    tried: list[str] = []
    event = batch_of("r1", "r2", "r3", "r4", "r5", fifo=True)
    response = process(event, failing("r3", tried=tried), on_failure=on_failure)
    assert tried == ["r1", "r2", "r3"]
    assert reported(response) == ["r3", "r4", "r5"]


@pytest.mark.parametrize("fifo", [False, True])
def test_p14_a_batch_of_failures_is_reported_or_raised_as_the_caller_chose(fifo: bool) -> None:
    """Every record failed, and a FIFO processor raised instead of reporting; the choice was missing there.

    The messages come back either way. What differs is whether Lambda counts an error; so it is an argument, for both.
    """
    event = batch_of("m1", "m2", fifo=fifo)
    response = process(event, failing("m1", "m2"))
    assert reported(response) == ["m1", "m2"]
    with pytest.raises(AllFailed) as raised:
        process(event, failing("m1", "m2"), raise_when_all_fail=True)
    assert raised.value.response == response
    assert json.dumps(process(event, failing("m2"), raise_when_all_fail=True))  # one success is enough
