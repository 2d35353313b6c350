"""Queues that are their own dead-letter queue, or each other's; move tasks whose queue goes away."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from .conftest import Aws
from .rows import ours
from .sqs_helpers import arn_of, bodies, counts, pair, queue, receive, until


def redrives_to(sqs: object, url: str, target: str, max_receives: int = 1) -> None:
    policy = {"deadLetterTargetArn": arn_of(sqs, target), "maxReceiveCount": max_receives}
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"RedrivePolicy": json.dumps(policy)})  # type: ignore[attr-defined]


@ours("AWS accepts such a queue (recorded); what a receive then gives is not known, but it ends")
@pytest.mark.parametrize("name", ["work", "work.fifo"])
@pytest.mark.parametrize("visibility", [0, 1])
def test_a_queue_that_is_its_own_dead_letter_queue(aws: Aws, name: str, visibility: int) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs, name, VisibilityTimeout=visibility)
    redrives_to(sqs, url, url)
    for body in "abc":
        fifo = {"MessageGroupId": "g", "MessageDeduplicationId": body} if name.endswith(".fifo") else {}
        sqs.send_message(QueueUrl=url, MessageBody=body, **fifo)
    started = time.monotonic()
    assert bodies(receive(sqs, url, 10)) == ["a", "b", "c"]
    time.sleep(visibility)
    for _ in range(3):
        assert receive(sqs, url, 10) == []
    assert receive(sqs, url, 10, WaitTimeSeconds=1) == []
    assert time.monotonic() - started < 30, "each receive ends"
    assert counts(sqs, url) == (3, 0, 0)


@ours("AWS accepts such queues (recorded); here, two long polls pass messages to and fro, and others are served")
def test_queues_that_are_each_others_dead_letter_queue(aws: Aws) -> None:
    sqs = aws.client("sqs")
    first, second = queue(sqs, "a"), queue(sqs, "b")
    redrives_to(sqs, first, second)
    redrives_to(sqs, second, first)
    sqs.send_message_batch(QueueUrl=first, Entries=[{"Id": str(n), "MessageBody": str(n)} for n in range(10)])
    receive(sqs, first, 10, VisibilityTimeout=0)
    with ThreadPoolExecutor(2) as pool:
        polls = [pool.submit(receive, sqs, url, 10, WaitTimeSeconds=10) for url in (first, second)]
        time.sleep(0.2)
        for _ in range(20):
            sqs.list_queues()
        assert not any(poll.done() for poll in polls), "the polls hold nobody up"
        assert [poll.result() for poll in polls] == [[], []]
    assert sum(counts(sqs, url)[0] for url in (first, second)) == 10


@ours("AWS's task fails when a queue of it is deleted (documented for the destination); how fast is not known")
def test_a_move_task_ends_with_its_source(aws: Aws) -> None:
    sqs = aws.client("sqs")
    work, dead = pair(sqs)
    arn = arn_of(sqs, dead)
    for start in range(0, 100, 10):
        entries = [{"Id": str(n), "MessageBody": str(n)} for n in range(start, start + 10)]
        sqs.send_message_batch(QueueUrl=dead, Entries=entries)
    sqs.start_message_move_task(SourceArn=arn, DestinationArn=arn_of(sqs, work), MaxNumberOfMessagesPerSecond=10)
    until(lambda: counts(sqs, work)[0] >= 2)
    sqs.delete_queue(QueueUrl=dead)
    moved = counts(sqs, work)[0]
    time.sleep(0.5)  # time for five more
    assert counts(sqs, work)[0] <= moved + 1
    queue(sqs, "work-dead")
    task = sqs.list_message_move_tasks(SourceArn=arn)["Results"][0]
    assert (task["Status"], task["FailureReason"]) == ("FAILED", "AWS.SimpleQueueService.NonExistentQueue")
