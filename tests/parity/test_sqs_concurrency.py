"""Many clients at once: every message is delivered, deleted once, and none is lost."""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import Any

import boto3
from botocore.config import Config

from .conftest import Aws
from .rows import row
from .sqs_helpers import GUIDE, counts, queue


def client(aws: Aws) -> Any:
    """A client for one thread: boto3's own creation is not thread-safe, so make them before the threads start."""
    return boto3.client(
        "sqs",
        endpoint_url=aws.endpoint,
        region_name=aws.region,
        aws_access_key_id=aws.account,
        aws_secret_access_key="test",
        config=Config(retries={"total_max_attempts": 1}),
    )


@row(
    "sqs.conservation",
    "Eight threads send, receive and delete on one queue while others send: sent = deleted, nothing lost.",
    source=f"{GUIDE}: at-least-once delivery",
)
def test_nothing_is_lost(aws: Aws) -> None:
    url = queue(aws.client("sqs"), VisibilityTimeout=60)
    sent: list[str] = []
    received: Counter[str] = Counter()
    deleted: list[str] = []
    errors: list[BaseException] = []
    lock = threading.Lock()
    finished: list[str] = []  # the threads that have sent all of their messages
    names = [f"p{n}" for n in range(2)] + [f"w{n}" for n in range(8)]

    def produce(sqs: Any, name: str) -> None:
        for start in range(0, 100, 5):
            entries = [{"Id": str(n), "MessageBody": json.dumps([name, start + n])} for n in range(5)]
            answer = sqs.send_message_batch(QueueUrl=url, Entries=entries)
            with lock:
                sent.extend(done["MessageId"] for done in answer["Successful"])
        finished.append(name)

    def work(sqs: Any, name: str) -> None:
        left = 20
        while not errors:
            if left:
                one = sqs.send_message(QueueUrl=url, MessageBody="one")
                with lock:
                    sent.append(one["MessageId"])
                left -= 1
                if not left:
                    finished.append(name)
            last = len(finished) == len(names)  # before looking: what is received then was sent by now
            batch = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=int(last)).get("Messages")
            if not batch and last:
                return
            if not batch:
                continue
            with lock:
                received.update(message["MessageId"] for message in batch)
            entries = [{"Id": str(n), "ReceiptHandle": m["ReceiptHandle"]} for n, m in enumerate(batch)]
            answer = sqs.delete_message_batch(QueueUrl=url, Entries=entries)
            with lock:
                deleted.extend(batch[int(done["Id"])]["MessageId"] for done in answer["Successful"])

    def guarded(function: Any, *arguments: Any) -> None:
        try:
            function(*arguments)
        except BaseException as error:  # noqa: BLE001 - shown below, in the test's own thread
            errors.append(error)

    works = [(work if name.startswith("w") else produce, client(aws), name) for name in names]
    threads = [threading.Thread(target=guarded, args=arguments, daemon=True) for arguments in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not errors
    assert not any(thread.is_alive() for thread in threads)
    assert len(sent) == 2 * 100 + 8 * 20
    assert set(received.values()) == {1}
    assert Counter(deleted) == received == Counter(sent)
    assert counts(aws.client("sqs"), url) == (0, 0, 0)
