"""The event that a function gets, and mappings whose queue or function comes and goes."""

from __future__ import annotations

import hashlib
import json
import threading
import time

from .conftest import Aws
from .esm_kit import HANDLER, RECORDED, RECORDED_API, REPORTS, mapped, prepared
from .lambda_kit import GUIDE, function, until
from .rows import ours, row
from .sqs_helpers import arn_of, queue

ATTRIBUTES = {
    "Title": {"DataType": "String", "StringValue": "The Whistler"},
    "Author": {"DataType": "String", "StringValue": "John Grisham"},
    "WeeksOn": {"DataType": "Number", "StringValue": "6"},
}


@row(
    "lambda.esm.event",
    "A record has the message's ids, body, system attributes, digests and queue.",
    source=f"{RECORDED} test_failing_lambda_retries_after_visibility_timeout",
)
def test_a_record(aws: Aws) -> None:
    work = mapped(aws)
    work.send("hello")
    record = work.calls(1)[0].records[0]
    attributes, handle = record.pop("attributes"), record.pop("receiptHandle")
    assert handle
    assert record == {
        "messageId": work.sent["hello"],
        "body": "hello",
        "messageAttributes": {},
        "md5OfBody": hashlib.md5(b"hello").hexdigest(),
        "eventSource": "aws:sqs",
        "eventSourceARN": work.arn,
        "awsRegion": aws.region,
    }
    names = {"ApproximateReceiveCount", "SentTimestamp", "SenderId", "ApproximateFirstReceiveTimestamp"}
    assert set(attributes) == names
    assert attributes["ApproximateReceiveCount"] == "1"
    assert int(attributes["SentTimestamp"]) <= int(attributes["ApproximateFirstReceiveTimestamp"])


@row(
    "lambda.esm.event.attributes",
    "Message attributes come in camel case, with two empty lists, and with their digest.",
    source=f"{RECORDED} test_message_body_and_attributes_passed_correctly",
)
def test_message_attributes(aws: Aws) -> None:
    work = mapped(aws)
    work.send("hello", MessageAttributes=ATTRIBUTES)
    record = work.calls(1)[0].records[0]
    assert record["messageAttributes"] == {
        name: {
            "stringValue": value["StringValue"],
            "stringListValues": [],
            "binaryListValues": [],
            "dataType": value["DataType"],
        }
        for name, value in ATTRIBUTES.items()
    }
    assert record["md5OfMessageAttributes"] == "d25a6aea97eb8f585bfa92d314504a92"


@row(
    "lambda.esm.event.window",
    "With a batching window, the digest of message attributes that are not there is null instead of absent.",
    source=f"{RECORDED} test_sqs_event_source_mapping",
)
def test_the_digest_with_a_window(aws: Aws) -> None:
    work = mapped(aws, MaximumBatchingWindowInSeconds=1)
    work.send("hello")
    record = work.calls(1)[0].records[0]
    assert record["md5OfMessageAttributes"] is None


@row(
    "lambda.esm.event.fifo",
    "A record of a FIFO queue has its group, its deduplication id and its sequence number.",
    source=f"{RECORDED} test_report_batch_item_failures",
)
def test_a_fifo_record(aws: Aws) -> None:
    work = prepared(aws, fifo=True)
    work.map(FunctionResponseTypes=REPORTS)
    sent = aws.client("sqs").send_message(
        QueueUrl=work.url, MessageBody="a", MessageGroupId="1", MessageDeduplicationId="dedup-1"
    )
    attributes = work.calls(1)[0].records[0]["attributes"]
    assert attributes["MessageGroupId"] == "1"
    assert attributes["MessageDeduplicationId"] == "dedup-1"
    assert attributes["SequenceNumber"] == sent["SequenceNumber"]


@row(
    "lambda.esm.event.system",
    "A record says where a dead letter came from and carries the trace header.",
    source="Amazon SQS API reference ReceiveMessage, MessageSystemAttributeNames",
)
def test_dead_letter_source_and_trace_header(aws: Aws) -> None:
    sqs = aws.client("sqs")
    work = prepared(aws, "undertaker")
    policy = {"deadLetterTargetArn": work.arn, "maxReceiveCount": 1}
    source = queue(sqs, "source", VisibilityTimeout=0, RedrivePolicy=policy)
    trace = "Root=1-5759e988-bd862e3fe1be46a994272793;Sampled=1"
    sqs.send_message(
        QueueUrl=source,
        MessageBody="a",
        MessageSystemAttributes={"AWSTraceHeader": {"DataType": "String", "StringValue": trace}},
    )
    for _ in range(2):
        sqs.receive_message(QueueUrl=source)
    work.map()
    attributes = work.calls(1)[0].records[0]["attributes"]
    assert attributes["DeadLetterQueueSourceArn"] == arn_of(sqs, source)
    assert attributes["AWSTraceHeader"] == trace
    assert int(attributes["ApproximateReceiveCount"]) >= 2


@row(
    "lambda.esm.function_deleted",
    "Deleting the function leaves the mapping, Enabled as it was.",
    source=f"{RECORDED_API} test_event_source_mapping_lifecycle_delete_function",
)
def test_a_mapping_outlives_its_function(aws: Aws) -> None:
    work = mapped(aws)
    aws.client("lambda").delete_function(FunctionName="work")
    assert work.state() == "Enabled"
    aws.client("lambda").delete_event_source_mapping(UUID=work.uuid)


@ours("AWS does not say what becomes of messages while the function is gone: here they stay in the queue")
def test_a_function_that_is_made_again_goes_on(aws: Aws) -> None:
    work = mapped(aws)
    aws.client("lambda").delete_function(FunctionName="work")
    work.send("waits")
    until(lambda: work.depth() == (1, 0, 0))
    function(aws, "work", HANDLER)
    (call,) = work.calls(1)
    assert call.receives == [1]


@ours("AWS does not say how soon a mapping sees that its function is back: here within a second or so")
def test_a_function_that_is_away_for_a_moment_goes_on(aws: Aws) -> None:
    work, sqs = mapped(aws), aws.client("sqs")
    other = queue(sqs, "other")
    for number in range(5):
        sqs.send_message(QueueUrl=other, MessageBody="so that the stand-in has just looked which functions are there")
        aws.client("lambda").delete_function(FunctionName="work")
        work.send(f"waits {number}")
        time.sleep(0.01)  # the mapping looks into its queue 5 ms after a message
        function(aws, "work", HANDLER)
        work.drained()


@ours("AWS does not say that a queue that is made again under its name is polled again")
def test_a_queue_that_is_made_again_goes_on(aws: Aws) -> None:
    work = mapped(aws)
    aws.client("sqs").delete_queue(QueueUrl=work.url)
    assert work.state() == "Enabled"
    queue(aws.client("sqs"), "work")
    work.send("again")
    assert work.calls(1)[0].bodies == ["again"]


@ours("what a deletion does to batches that are being processed is not documented: here they are finished")
def test_a_deletion_lets_the_running_batch_end(aws: Aws) -> None:
    work = mapped(aws)
    work.send("sleep 4")
    until(lambda: work.depth()[1] == 1)
    aws.client("lambda").delete_event_source_mapping(UUID=work.uuid)
    work.drained()


@ours("many learners share one stand-in")
def test_many_accounts_side_by_side(aws: Aws) -> None:
    works = [prepared(Aws(aws.endpoint)) for _ in range(6)]
    for work in works:
        work.map(wait=False, BatchSize=1)

    def send(work: object, number: int) -> None:
        work.send(*[json.dumps([number, n]) for n in range(4)])  # type: ignore[attr-defined]

    threads = [threading.Thread(target=send, args=(work, number)) for number, work in enumerate(works)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for number, work in enumerate(works):
        calls = work.messages(4)
        assert sorted(body for call in calls for body in call.bodies) == [json.dumps([number, n]) for n in range(4)]
        work.drained()


@row(
    "lambda.esm.two_queues",
    "A function may have mappings of several queues, and a queue mappings to several functions.",
    source=f"{GUIDE}, Using Lambda with Amazon SQS",
)
def test_several_queues_and_several_functions(aws: Aws) -> None:
    sqs = aws.client("sqs")
    work = mapped(aws)
    other = queue(sqs, "other")
    aws.client("lambda").create_event_source_mapping(FunctionName="work", EventSourceArn=arn_of(sqs, other))
    sqs.send_message(QueueUrl=other, MessageBody="from the other")
    work.send("from the one")
    calls = work.calls(2)
    assert {(call.records[0]["eventSourceARN"], call.bodies[0]) for call in calls} == {
        (work.arn, "from the one"),
        (arn_of(sqs, other), "from the other"),
    }
    second = prepared(aws, "second")
    aws.client("lambda").create_event_source_mapping(FunctionName="second", EventSourceArn=work.arn)
    work.send(*map(str, range(30)))
    until(lambda: sum(call.count for call in [*work.heard(), *second.heard()]) == 32)
    work.drained()
