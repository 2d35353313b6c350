"""Order of delivery: standard queues, FIFO groups, tenants of a fair queue, polls."""

from __future__ import annotations

import http.client
import json
import threading
import time
import urllib.parse

from .conftest import Aws
from .rows import ours, row
from .sqs_helpers import API, GUIDE, RECORDED, bodies, counts, drain, fail, queue, read, receive, refused, until


@row(
    "sqs.order.poison_to_back",
    "Standard queue: a message received three times and not deleted goes to the back of the queue.",
    source=f"{GUIDE}: available CloudWatch metrics",
)
def test_poison_goes_to_the_back(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    sqs.send_message(QueueUrl=url, MessageBody="poison")
    for body in ("a", "b"):
        sqs.send_message(QueueUrl=url, MessageBody=body)
    for _ in range(3):
        assert bodies(receive(sqs, url, 1, VisibilityTimeout=0)) == ["poison"]
    assert bodies(receive(sqs, url, 10)) == ["a", "b", "poison"]


@row("sqs.receive.empty", "An empty receive has no Messages member.", source=RECORDED)
def test_empty_receive(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    started = time.monotonic()
    assert "Messages" not in sqs.receive_message(QueueUrl=url, WaitTimeSeconds=1)
    assert time.monotonic() - started >= 0.95


@row(
    "sqs.receive.long_poll",
    "A long poll returns as soon as a message arrives.",
    source=f"{GUIDE}: short and long polling",
)
def test_long_poll_returns_early(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    timer = threading.Timer(0.3, lambda: sqs.send_message(QueueUrl=url, MessageBody="a"))
    started = time.monotonic()
    timer.start()
    assert bodies(receive(sqs, url, WaitTimeSeconds=20)) == ["a"]
    assert 0.25 < time.monotonic() - started < 18  # not at the end of the wait
    timer.join()


@ours("a long poll whose client has gone takes no message with it: AWS does so as a rule, without a promise")
def test_abandoned_poll(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    host = urllib.parse.urlsplit(aws.endpoint).netloc
    abandoned = http.client.HTTPConnection(host, timeout=5)
    abandoned.request(
        "POST",
        "/",
        json.dumps({"QueueUrl": url, "WaitTimeSeconds": 20}),
        {
            "X-Amz-Target": "AmazonSQS.ReceiveMessage",
            "Content-Type": "application/x-amz-json-1.0",
            "Authorization": f"AWS4-HMAC-SHA256 Credential={aws.account}/20260101/{aws.region}/sqs/aws4_request",
        },
    )
    time.sleep(0.3)
    abandoned.close()
    until(lambda: read(aws, "NumberOfEmptyReceives"), seconds=15)  # the poll has ended, and not with its wait
    sqs.send_message(QueueUrl=url, MessageBody="a")
    time.sleep(0.2)
    assert bodies(receive(sqs, url)) == ["a"]


@row(
    "sqs.send.delay",
    "A delayed message counts as delayed and cannot be received before its time.",
    source=f"{GUIDE}: delay queues and message timers",
)
def test_delay(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    sqs.send_message(QueueUrl=url, MessageBody="later", DelaySeconds=4)
    assert counts(sqs, url) == (0, 0, 1)
    assert receive(sqs, url) == []
    assert bodies(receive(sqs, url, WaitTimeSeconds=20)) == ["later"]


@row(
    "sqs.fifo.order",
    "FIFO queue: strict order in a group; a receive takes one group's messages first.",
    source=RECORDED,
)
def test_fifo_order(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs, "work.fifo", ContentBasedDeduplication="true")
    for body in ("g1-1", "g2-1", "g1-2", "g1-3"):
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=body[:2])
    messages = receive(sqs, url, 10)
    assert bodies(messages) == ["g1-1", "g1-2", "g1-3", "g2-1"]
    numbers = [message["Attributes"]["SequenceNumber"] for message in messages[:3]]
    assert numbers == sorted(numbers)


@row(
    "sqs.fifo.group_blocked",
    "FIFO queue: while a message of a group is in flight, those behind it wait; other groups go on.",
    source=RECORDED,
)
def test_fifo_group_blocked(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs, "work.fifo", ContentBasedDeduplication="true")
    for body in ("g1-1", "g1-2", "g1-3", "g2-1"):
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=body[:2])
    first = receive(sqs, url, 2)
    assert bodies(first) == ["g1-1", "g1-2"]
    assert bodies(receive(sqs, url, 10)) == ["g2-1"]
    assert receive(sqs, url, 10) == []
    for message in first:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    assert bodies(receive(sqs, url, 10)) == ["g1-3"]


@row(
    "sqs.fifo.change_visibility.group",
    "FIFO queue: the message made visible comes again, those behind it that are in flight do not.",
    source=RECORDED,
)
def test_fifo_visibility_inside_a_group(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs, "work.fifo", ContentBasedDeduplication="true")
    for body in ("g1-1", "g1-2", "g2-1"):
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=body[:2])
    first, _ = receive(sqs, url, 2)
    sqs.change_message_visibility(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=0)
    assert bodies(receive(sqs, url, 10)) == ["g2-1", "g1-1"]


@row(
    "sqs.fifo.visibility_zero",
    "FIFO queue: groups received with VisibilityTimeout=0 go to the end of the line.",
    source=RECORDED,
)
def test_fifo_groups_take_turns(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs, "work.fifo", ContentBasedDeduplication="true")
    for body in ("g1-1", "g2-1", "g2-2", "g3-1", "g1-2"):
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=body[:2])
    assert bodies(receive(sqs, url, 3, VisibilityTimeout=0)) == ["g1-1", "g1-2", "g2-1"]
    assert bodies(receive(sqs, url, 10, VisibilityTimeout=0)) == ["g3-1", "g1-1", "g1-2", "g2-1", "g2-2"]


@row(
    "sqs.fifo.dedup",
    "FIFO queue: the same deduplication id within five minutes is accepted and not delivered, also after a delete.",
    source=RECORDED,
)
def test_fifo_deduplication(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs, "work.fifo")
    send = {"QueueUrl": url, "MessageGroupId": "g", "MessageDeduplicationId": "1"}
    first = sqs.send_message(MessageBody="a", **send)
    again = sqs.send_message(MessageBody="b", **send)
    assert (first["MessageId"], first["SequenceNumber"]) == (again["MessageId"], again["SequenceNumber"])
    assert bodies(drain(sqs, url)) == ["a"]
    sqs.send_message(MessageBody="c", **send)
    assert drain(sqs, url) == []


@row(
    "sqs.fifo.dedup.scope",
    "FIFO queue with DeduplicationScope=messageGroup: the same id in two groups is two messages.",
    source=RECORDED,
)
def test_fifo_deduplication_scope(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs, "work.fifo", DeduplicationScope="messageGroup", FifoThroughputLimit="perMessageGroupId")
    for group in ("g1", "g2", "g1"):
        sqs.send_message(QueueUrl=url, MessageBody=group, MessageGroupId=group, MessageDeduplicationId="1")
    assert bodies(drain(sqs, url)) == ["g1", "g2"]


@row(
    "sqs.fifo.attempt.replay",
    "FIFO queue: a receive with the same ReceiveRequestAttemptId returns the same messages and handles.",
    source=f"{API}: ReceiveMessage",
)
def test_attempt_is_replayed(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs, "work.fifo", ContentBasedDeduplication="true")
    for body in ("a", "b", "c"):
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId="g")
    first = receive(sqs, url, 2, ReceiveRequestAttemptId="try-1")
    again = receive(sqs, url, 2, ReceiveRequestAttemptId="try-1")
    assert [(m["MessageId"], m["ReceiptHandle"]) for m in first] == [
        (m["MessageId"], m["ReceiptHandle"]) for m in again
    ]
    assert [m["Attributes"]["ApproximateReceiveCount"] for m in again] == ["1", "1"]
    assert receive(sqs, url, 2, ReceiveRequestAttemptId="try-2") == []


@row(
    "sqs.fifo.attempt.changed",
    "FIFO queue: no replay once a message of the batch was deleted or its visibility changed.",
    source=f"{API}: ReceiveMessage",
)
def test_attempt_is_not_replayed_after_a_change(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs, "work.fifo", ContentBasedDeduplication="true")
    for body in ("a", "b", "c"):
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=body)
    first, _ = receive(sqs, url, 2, ReceiveRequestAttemptId="try-1")
    sqs.delete_message(QueueUrl=url, ReceiptHandle=first["ReceiptHandle"])
    assert bodies(receive(sqs, url, 2, ReceiveRequestAttemptId="try-1")) == ["c"]


@row(
    "sqs.fair.quiet_first",
    "Fair queue: with 30 messages of one tenant in flight, a quiet tenant's message overtakes its backlog.",
    source=f"{GUIDE}: how fair queues work",
)
def test_quiet_tenant_overtakes(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    for start in range(0, 60, 10):
        sqs.send_message_batch(
            QueueUrl=url,
            Entries=[{"Id": str(n), "MessageBody": f"noisy-{start + n}", "MessageGroupId": "noisy"} for n in range(10)],
        )
    taken = [message for _ in range(3) for message in receive(sqs, url, 10)]
    assert len(taken) == 30
    sqs.send_message(QueueUrl=url, MessageBody="quiet", MessageGroupId="quiet")
    sqs.send_message(QueueUrl=url, MessageBody="alone")
    assert bodies(receive(sqs, url, 3)) == ["quiet", "alone", "noisy-30"]
    rest = drain(sqs, url)
    assert sorted(bodies(rest)) == sorted(f"noisy-{n}" for n in range(31, 60))


@row(
    "sqs.fair.below_threshold",
    "Fair queue: below 30 messages in flight nobody is noisy, and messages come in order.",
    source=f"{GUIDE}: how fair queues work",
)
def test_nobody_is_noisy_below_the_threshold(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    for n in range(22):
        sqs.send_message(QueueUrl=url, MessageBody=f"a{n}", MessageGroupId="a")
    receive(sqs, url, 10), receive(sqs, url, 10)
    sqs.send_message(QueueUrl=url, MessageBody="quiet", MessageGroupId="b")
    assert bodies(receive(sqs, url, 3)) == ["a20", "a21", "quiet"]


@row(
    "sqs.in_flight.over_limit",
    "Standard queue at its in-flight cap: a short poll is OverLimit, a long poll comes back empty after its wait.",
    source=f"{GUIDE}: queue quotas; {API}: ChangeMessageVisibility",
)
def test_in_flight_cap(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs, tags={"lab:in-flight-cap": "3"})
    for n in range(5):
        sqs.send_message(QueueUrl=url, MessageBody=str(n))
    messages = receive(sqs, url, 10)
    assert len(messages) == 3
    with refused("OverLimit", status=403):
        sqs.receive_message(QueueUrl=url)
    started = time.monotonic()
    assert receive(sqs, url, WaitTimeSeconds=1) == []
    assert time.monotonic() - started >= 0.95
    sqs.delete_message(QueueUrl=url, ReceiptHandle=messages[0]["ReceiptHandle"])
    assert bodies(receive(sqs, url, 10)) == ["3"]


@row(
    "sqs.in_flight.fifo",
    "FIFO queue at its in-flight cap: empty, never an error.",
    source=f"{API}: ChangeMessageVisibility",
)
def test_in_flight_cap_of_a_fifo_queue(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs, "work.fifo", tags={"lab:in-flight-cap": "1"}, ContentBasedDeduplication="true")
    for group in ("g1", "g2"):
        sqs.send_message(QueueUrl=url, MessageBody=group, MessageGroupId=group)
    assert bodies(receive(sqs, url, 10)) == ["g1"]
    assert receive(sqs, url, 10) == []


@row(
    "sqs.retention.purge",
    "PurgeQueue takes messages in flight and delayed ones, and forgets deduplication ids.",
    source=RECORDED,
)
def test_purge_takes_everything(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs, "work.fifo")
    send = {"QueueUrl": url, "MessageGroupId": "g", "MessageDeduplicationId": "1"}
    sqs.send_message(MessageBody="a", **send)
    fail(sqs, url)
    receive(sqs, url)
    sqs.purge_queue(QueueUrl=url)
    assert counts(sqs, url) == (0, 0, 0)
    sqs.send_message(MessageBody="b", **send)
    assert bodies(receive(sqs, url)) == ["b"]


@row(
    "sqs.purge.in_progress",
    "A second PurgeQueue within 60 seconds is PurgeQueueInProgress.",
    source=RECORDED,
)
def test_purge_in_progress(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs, "busy")
    sqs.purge_queue(QueueUrl=url)
    text = "Only one PurgeQueue operation on busy is allowed every 60 seconds."
    with refused("AWS.SimpleQueueService.PurgeQueueInProgress", text, 403) as refusal:
        sqs.purge_queue(QueueUrl=url)
    assert refusal.shape == "PurgeQueueInProgress"
