"""Dead-letter queues: redrive, who may use which, and message move tasks."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

from .conftest import Aws
from .rows import ours, row
from .sqs_helpers import (
    API,
    GUIDE,
    RECORDED,
    arn_of,
    bodies,
    counts,
    drain,
    fail,
    pair,
    queue,
    receive,
    refused,
    until,
)


@row(
    "sqs.redrive.max_receive_count",
    "The receive that would exceed maxReceiveCount moves the message: id kept, count goes on, source named.",
    source=RECORDED,
)
def test_redrive(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url, dead = pair(sqs, max_receives=2)
    attributes = {"k": {"DataType": "String", "StringValue": "v"}}
    sent = sqs.send_message(QueueUrl=url, MessageBody="a", MessageAttributes=attributes)
    sqs.send_message(QueueUrl=url, MessageBody="b")
    fail(sqs, url, 2)
    assert counts(sqs, dead) == (0, 0, 0)
    assert receive(sqs, url, 10) == []
    [message] = receive(sqs, dead, 1, MessageAttributeNames=["All"])
    assert message["MessageId"] == sent["MessageId"]
    assert message["MessageAttributes"] == attributes
    assert message["Attributes"]["ApproximateReceiveCount"] == "3"
    assert message["Attributes"]["DeadLetterQueueSourceArn"] == arn_of(sqs, url)
    assert counts(sqs, url) == (0, 0, 0)
    assert counts(sqs, dead) == (1, 1, 0)


@row(
    "sqs.redrive.mixed",
    "A receive moves the exhausted message and returns the next one.",
    source=f"{GUIDE}: using dead-letter queues",
)
def test_redrive_goes_on_to_the_next(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url, dead = pair(sqs, max_receives=1)
    sqs.send_message(QueueUrl=url, MessageBody="bad")
    fail(sqs, url)
    sqs.send_message(QueueUrl=url, MessageBody="good")
    assert bodies(receive(sqs, url)) == ["good"]
    assert bodies(receive(sqs, dead)) == ["bad"]


@row(
    "sqs.redrive.dlq_gone",
    "When the dead-letter queue is gone, the message stays in its queue.",
    source=f"{GUIDE}: using dead-letter queues (not verified beyond that no message is lost)",
)
def test_redrive_without_dead_letter_queue(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url, dead = pair(sqs, max_receives=1)
    sqs.send_message(QueueUrl=url, MessageBody="a")
    sqs.delete_queue(QueueUrl=dead)
    fail(sqs, url, 3)
    assert bodies(receive(sqs, url)) == ["a"]


@row(
    "sqs.redrive.fifo",
    "FIFO queue: a message that goes to the dead-letter queue frees its group.",
    source=f"{GUIDE}: using dead-letter queues",
)
def test_redrive_fifo(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url, dead = pair(sqs, "work.fifo", max_receives=1, ContentBasedDeduplication="true")
    for body in ("bad", "next"):
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g")
    receive(sqs, url, 1, VisibilityTimeout=0)
    assert bodies(receive(sqs, url, 10)) == ["next"]
    [moved] = receive(sqs, dead)
    assert (moved["Body"], moved["Attributes"]["MessageGroupId"]) == ("bad", "g")


def refusals(arn: str) -> list[tuple[Any, str]]:
    full = {"deadLetterTargetArn": arn, "maxReceiveCount": 3}
    prefix = "Redrive policy does not contain mandatory attribute: "
    count = "Invalid value for maxReceiveCount: {}, valid values are from 1 to 1000 both inclusive."
    return [
        ({"deadLetterTargetArn": arn}, f"{prefix}maxReceiveCount."),
        ({"maxReceiveCount": 3}, f"{prefix}deadLetterTargetArn."),
        ({**full, "deadLetterTargetArn": f"{arn}-gone"}, "Dead letter target does not exist."),
        ({**full, "maxReceiveCount": 0}, count.format(0)),
        ({**full, "maxReceiveCount": 1001}, count.format(1001)),
        (
            {**full, "deadLetterTargetArn": f"{arn}.fifo"},
            "Dead-letter queue must be same type of queue as the source..",
        ),
    ]


@row(
    "sqs.redrive_policy.refused",
    "A bad RedrivePolicy is refused when it is set: fields, range, target, type.",
    source="texts quoted from AWS in public",
)
def test_redrive_policy_refused(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url, dead = queue(sqs), queue(sqs, "dead")
    queue(sqs, "dead.fifo")
    for policy, reason in refusals(arn_of(sqs, dead)):
        text = json.dumps(policy)
        expected = f"Value {text} for parameter RedrivePolicy is invalid. Reason: {reason}"
        with refused("InvalidParameterValue", expected, 400):
            sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": text})
        with refused("InvalidParameterValue", expected, 400):
            sqs.create_queue(QueueName="new", Attributes={"RedrivePolicy": text})
    assert (
        "QueueUrls" not in sqs.list_queues(QueueNamePrefix="new")
        or not sqs.list_queues(QueueNamePrefix="new")["QueueUrls"]
    )


@row("sqs.redrive_policy.clear", "An empty RedrivePolicy removes it; a count may be a string.", source=RECORDED)
def test_redrive_policy_cleared(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url, dead = queue(sqs), queue(sqs, "dead")
    policy = json.dumps({"deadLetterTargetArn": arn_of(sqs, dead), "maxReceiveCount": "42"})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": policy})
    named = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"])["Attributes"]
    assert named == {"RedrivePolicy": policy}
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": ""})
    assert not sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["RedrivePolicy"]).get("Attributes")


@row(
    "sqs.redrive_allow.deny_all",
    "RedriveAllowPolicy denyAll: no queue may name this one as its dead-letter queue.",
    source=f"{API}: SetQueueAttributes (code of the refusal not verified)",
)
def test_redrive_allow_deny_all(aws: Aws) -> None:
    sqs = aws.client("sqs")
    dead = queue(sqs, "dead", RedriveAllowPolicy={"redrivePermission": "denyAll"})
    policy = {"deadLetterTargetArn": arn_of(sqs, dead), "maxReceiveCount": 3}
    with refused("InvalidParameterValue"):
        queue(sqs, "work", RedrivePolicy=policy)
    url = queue(sqs)
    with refused("InvalidParameterValue"):
        sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": json.dumps(policy)})
    sqs.set_queue_attributes(QueueUrl=dead, Attributes={"RedriveAllowPolicy": '{"redrivePermission":"allowAll"}'})
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": json.dumps(policy)})


@row(
    "sqs.redrive_allow.by_queue",
    "RedriveAllowPolicy byQueue: only the queues listed may name this one as their dead-letter queue.",
    source=f"{API}: SetQueueAttributes (code of the refusal not verified)",
)
def test_redrive_allow_by_queue(aws: Aws) -> None:
    sqs = aws.client("sqs")
    allow = {"redrivePermission": "byQueue", "sourceQueueArns": [aws.arn("sqs", "friend")]}
    dead = queue(sqs, "dead", RedriveAllowPolicy=allow)
    policy = {"deadLetterTargetArn": arn_of(sqs, dead), "maxReceiveCount": 3}
    queue(sqs, "friend", RedrivePolicy=policy)
    with refused("InvalidParameterValue"):
        queue(sqs, "stranger", RedrivePolicy=policy)


@row(
    "sqs.redrive_allow.form",
    "A RedriveAllowPolicy is checked: permission, source ARNs with byQueue only, ten at most.",
    source=f"{API}: SetQueueAttributes (texts not verified)",
)
def test_redrive_allow_policy_form(aws: Aws) -> None:
    sqs = aws.client("sqs")
    arns = [aws.arn("sqs", f"q{n}") for n in range(11)]
    for policy in (
        "no json",
        json.dumps({"redrivePermission": "sometimes"}),
        json.dumps({"redrivePermission": "byQueue"}),
        json.dumps({"redrivePermission": "byQueue", "sourceQueueArns": arns}),
        json.dumps({"redrivePermission": "denyAll", "sourceQueueArns": arns[:1]}),
    ):
        with refused("InvalidParameterValue"):
            queue(sqs, "dead", RedriveAllowPolicy=policy)


@row(
    "sqs.list_dead_letter_sources",
    "ListDeadLetterSourceQueues names the queues that redrive into this one, in pages.",
    source=f"{API}: ListDeadLetterSourceQueues",
)
def test_list_dead_letter_sources(aws: Aws) -> None:
    sqs = aws.client("sqs")
    dead = queue(sqs, "dead")
    policy = {"deadLetterTargetArn": arn_of(sqs, dead), "maxReceiveCount": 3}
    urls = [queue(sqs, f"work-{n}", RedrivePolicy=policy) for n in range(3)]
    queue(sqs, "other")
    assert sorted(sqs.list_dead_letter_source_queues(QueueUrl=dead)["queueUrls"]) == sorted(urls)
    pages = sqs.get_paginator("list_dead_letter_source_queues").paginate(QueueUrl=dead, MaxResults=2)
    found = [page["queueUrls"] for page in pages]
    assert [len(page) for page in found] == [2, 1]
    assert sorted(url for page in found for url in page) == sorted(urls)
    with refused("AWS.SimpleQueueService.NonExistentQueue"):
        sqs.list_dead_letter_source_queues(QueueUrl=f"{dead}-gone")


# -- message move tasks --------------------------------------------------------------------------------------------


def bury(sqs: Any, url: str, names: list[str], **parameters: Any) -> None:
    """Send messages to a queue with maxReceiveCount 1, and let all of them fail."""
    for start in range(0, len(names), 10):
        some = enumerate(names[start : start + 10])
        entries = [{"Id": str(n), "MessageBody": name, **parameters} for n, name in some]
        assert "Failed" not in sqs.send_message_batch(QueueUrl=url, Entries=entries)
    while receive(sqs, url, 10, VisibilityTimeout=0):
        pass


def last_task(sqs: Any, arn: str) -> dict[str, Any]:
    return sqs.list_message_move_tasks(SourceArn=arn)["Results"][0]


def ended(sqs: Any, arn: str) -> dict[str, Any]:
    return until(lambda: (task := last_task(sqs, arn))["Status"] not in ("RUNNING", "CANCELLING") and task)


@row(
    "sqs.move_task.destination",
    "A move task takes messages of a dead-letter queue to a destination as new messages.",
    source=f"{RECORDED}; {GUIDE}: dead-letter queue redrive",
)
def test_move_task(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url, dead = pair(sqs)
    target = queue(sqs, "target")
    bury(sqs, url, ["a", "b"])
    before = receive(sqs, dead, 10, VisibilityTimeout=0)
    source_arn, target_arn = arn_of(sqs, dead), arn_of(sqs, target)
    handle = sqs.start_message_move_task(SourceArn=source_arn, DestinationArn=target_arn)["TaskHandle"]
    assert set(json.loads(base64.b64decode(handle))) == {"taskId", "sourceArn"}
    task = ended(sqs, source_arn)
    assert isinstance(task.pop("StartedTimestamp"), int)
    assert task == {
        "ApproximateNumberOfMessagesMoved": 2,
        "ApproximateNumberOfMessagesToMove": 2,
        "DestinationArn": target_arn,
        "SourceArn": source_arn,
        "Status": "COMPLETED",
    }
    after = receive(sqs, target, 10)
    assert bodies(after) == ["a", "b"]
    assert not {m["MessageId"] for m in before} & {m["MessageId"] for m in after}
    assert [m["Attributes"]["ApproximateReceiveCount"] for m in after] == ["1", "1"]
    assert "DeadLetterQueueSourceArn" not in after[0]["Attributes"]
    assert counts(sqs, dead) == (0, 0, 0)


@row(
    "sqs.move_task.original_sources",
    "Without a destination, each message goes back to the queue it came from.",
    source=RECORDED,
)
def test_move_task_to_original_sources(aws: Aws) -> None:
    sqs = aws.client("sqs")
    first, dead = pair(sqs)
    policy = {"deadLetterTargetArn": arn_of(sqs, dead), "maxReceiveCount": 1}
    second = queue(sqs, "second", RedrivePolicy=policy)
    bury(sqs, first, ["a", "b"])
    bury(sqs, second, ["c"])
    sqs.start_message_move_task(SourceArn=arn_of(sqs, dead))
    task = ended(sqs, arn_of(sqs, dead))
    assert (task["Status"], task["ApproximateNumberOfMessagesMoved"]) == ("COMPLETED", 3)
    assert "DestinationArn" not in task
    assert bodies(drain(sqs, first)) == ["a", "b"]
    assert bodies(drain(sqs, second)) == ["c"]


@row(
    "sqs.move_task.rate",
    "MaxNumberOfMessagesPerSecond holds; one active task a queue; a cancelled task loses and doubles nothing.",
    source=RECORDED,
)
def test_move_task_rate_and_cancel(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url, dead = pair(sqs)
    names = [f"m{n}" for n in range(60)]  # at this rate, more than can be moved while one looks
    bury(sqs, url, names)
    arn = arn_of(sqs, dead)
    began = time.monotonic()
    handle = sqs.start_message_move_task(SourceArn=arn, MaxNumberOfMessagesPerSecond=5)["TaskHandle"]
    running = last_task(sqs, arn)
    assert (running["Status"], running["TaskHandle"]) == ("RUNNING", handle)
    assert running["MaxNumberOfMessagesPerSecond"] == 5
    text = "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
    with refused("InvalidParameterValue", text, 400):
        sqs.start_message_move_task(SourceArn=arn)
    until(lambda: last_task(sqs, arn)["ApproximateNumberOfMessagesMoved"] >= 3)
    cancelled = sqs.cancel_message_move_task(TaskHandle=handle)["ApproximateNumberOfMessagesMoved"]
    assert 3 <= cancelled <= 5 * (time.monotonic() - began) + 2
    task = ended(sqs, arn)
    assert task["Status"] == "CANCELLED"
    assert "TaskHandle" not in task
    back, left = bodies(drain(sqs, url)), bodies(drain(sqs, dead))
    assert len(back) == task["ApproximateNumberOfMessagesMoved"]
    assert back + left == names


@row(
    "sqs.move_task.visible_only",
    "A move task leaves messages that are in flight.",
    source=f"{GUIDE}: dead-letter queue redrive",
)
def test_move_task_leaves_messages_in_flight(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url, dead = pair(sqs)
    bury(sqs, url, ["a", "b"])
    [held] = receive(sqs, dead)
    sqs.start_message_move_task(SourceArn=arn_of(sqs, dead))
    assert ended(sqs, arn_of(sqs, dead))["ApproximateNumberOfMessagesMoved"] == 1
    assert counts(sqs, dead) == (0, 1, 0)
    sqs.delete_message(QueueUrl=dead, ReceiptHandle=held["ReceiptHandle"])
    assert len(drain(sqs, url)) == 1


@row(
    "sqs.move_task.destination_deleted",
    "A task whose destination is deleted fails with NonExistentQueue; the rest stays.",
    source=RECORDED,
)
def test_move_task_fails_without_destination(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url, dead = pair(sqs)
    target = queue(sqs, "target")
    bury(sqs, url, [f"m{n}" for n in range(100)])
    arn = arn_of(sqs, dead)
    sqs.start_message_move_task(SourceArn=arn, DestinationArn=arn_of(sqs, target), MaxNumberOfMessagesPerSecond=10)
    until(lambda: last_task(sqs, arn)["ApproximateNumberOfMessagesMoved"] >= 1)
    sqs.delete_queue(QueueUrl=target)
    task = ended(sqs, arn)
    assert (task["Status"], task["FailureReason"]) == ("FAILED", "AWS.SimpleQueueService.NonExistentQueue")
    assert len(drain(sqs, dead)) == 100 - task["ApproximateNumberOfMessagesMoved"]


@ours("not verified: without a destination, a message that never had a source stays, and the task fails")
def test_move_task_with_unknown_source(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url, dead = pair(sqs)
    sqs.send_message(QueueUrl=dead, MessageBody="stray")
    bury(sqs, url, ["a"])
    sqs.start_message_move_task(SourceArn=arn_of(sqs, dead))
    assert ended(sqs, arn_of(sqs, dead))["Status"] == "FAILED"
    assert bodies(drain(sqs, dead)) == ["stray"]
    assert bodies(drain(sqs, url)) == ["a"]


@row("sqs.move_task.refused", "Move tasks: what is refused, with codes, texts and HTTP status.", source=RECORDED)
def test_move_task_refused(aws: Aws) -> None:
    sqs = aws.client("sqs")
    _, dead = pair(sqs)
    plain, fifo = queue(sqs, "plain"), queue(sqs, "other.fifo")
    arn = arn_of(sqs, dead)
    with refused("InvalidParameterValue", "Source queue must be configured as a Dead Letter Queue.", 400) as refusal:
        sqs.start_message_move_task(SourceArn=arn_of(sqs, plain))
    assert refusal.shape == "InvalidParameterValueException"
    missing = "The resource that you specified for the {} parameter doesn't exist."
    with refused("ResourceNotFoundException", missing.format("DestinationArn"), 404):
        sqs.start_message_move_task(SourceArn=arn, DestinationArn=f"{arn}-gone")
    with refused("ResourceNotFoundException", missing.format("SourceArn"), 404):
        sqs.start_message_move_task(SourceArn=f"{arn}-gone")
    with refused("InvalidParameterValue", "Value for parameter TaskHandle is invalid.", 400):
        sqs.cancel_message_move_task(TaskHandle="foobared")
    for source, code, text in (
        (arn, "ResourceNotFoundException", "Task does not exist."),
        (f"{arn}-gone", "ResourceNotFoundException", missing.format("SourceArn")),
    ):
        data = {"taskId": "10f57157-fc38-4da9-a113-4de7e12d05aa", "sourceArn": source}
        with refused(code, text, 404):
            sqs.cancel_message_move_task(TaskHandle=base64.b64encode(json.dumps(data).encode()).decode())
    for wrong in ({"MaxNumberOfMessagesPerSecond": 501}, {"DestinationArn": arn_of(sqs, fifo)}):
        with refused("InvalidParameterValue"):
            sqs.start_message_move_task(SourceArn=arn, **wrong)
    assert sqs.list_message_move_tasks(SourceArn=arn)["Results"] == []


@row(
    "sqs.move_task.list",
    "ListMessageMoveTasks shows the newest task first, one unless asked for more.",
    source=f"{API}: ListMessageMoveTasks",
)
def test_move_task_list(aws: Aws) -> None:
    sqs = aws.client("sqs")
    _, dead = pair(sqs)
    arn = arn_of(sqs, dead)
    for _ in range(2):
        sqs.start_message_move_task(SourceArn=arn)
        ended(sqs, arn)
    tasks = sqs.list_message_move_tasks(SourceArn=arn, MaxResults=10)["Results"]
    assert len(tasks) == 2
    assert tasks[0]["StartedTimestamp"] >= tasks[1]["StartedTimestamp"]
    assert len(sqs.list_message_move_tasks(SourceArn=arn)["Results"]) == 1


@row(
    "sqs.move_task.fifo",
    "A FIFO dead-letter queue is moved back in order.",
    source=f"{GUIDE}: dead-letter queue redrive",
)
def test_move_task_fifo(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url, dead = pair(sqs, "work.fifo", ContentBasedDeduplication="true")
    bury(sqs, url, ["1", "2", "3"], MessageGroupId="g")
    assert counts(sqs, dead) == (3, 0, 0)
    sqs.start_message_move_task(SourceArn=arn_of(sqs, dead))
    assert ended(sqs, arn_of(sqs, dead))["Status"] == "COMPLETED"
    assert bodies(receive(sqs, url, 10)) == ["1", "2", "3"]
