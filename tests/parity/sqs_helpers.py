"""Short forms for tests of SQS: queues with and without a dead-letter queue, drained queues, expected errors."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from .conftest import Aws

GUIDE = "Amazon SQS Developer Guide"
API = "Amazon SQS API reference"
RECORDED = "response recorded on AWS"


def queue(sqs: Any, name: str = "work", *, tags: dict[str, str] | None = None, **attributes: Any) -> str:
    """The URL of a new queue. A name that ends in .fifo makes a FIFO queue."""
    if name.endswith(".fifo"):
        attributes.setdefault("FifoQueue", "true")
    values = {key: json.dumps(value) if isinstance(value, dict) else str(value) for key, value in attributes.items()}
    return sqs.create_queue(QueueName=name, Attributes=values, **({"tags": tags} if tags else {}))["QueueUrl"]


def arn_of(sqs: Any, url: str) -> str:
    return sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]


def pair(sqs: Any, name: str = "work", *, max_receives: int = 1, **attributes: Any) -> tuple[str, str]:
    """A queue and its dead-letter queue."""
    stem, dot, suffix = name.partition(".")
    dead = queue(sqs, f"{stem}-dead{dot}{suffix}")
    policy = {"deadLetterTargetArn": arn_of(sqs, dead), "maxReceiveCount": max_receives}
    return queue(sqs, name, RedrivePolicy=policy, **attributes), dead


def receive(sqs: Any, url: str, number: int = 1, **parameters: Any) -> list[dict[str, Any]]:
    answer = sqs.receive_message(
        QueueUrl=url, MaxNumberOfMessages=number, MessageSystemAttributeNames=["All"], **parameters
    )
    return answer.get("Messages", [])


def bodies(messages: list[dict[str, Any]]) -> list[str]:
    return [message["Body"] for message in messages]


def drain(sqs: Any, url: str) -> list[dict[str, Any]]:
    """Receive and delete until the queue is empty."""
    found: list[dict[str, Any]] = []
    while batch := receive(sqs, url, 10):
        found += batch
        for message in batch:
            sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    return found


def counts(sqs: Any, url: str) -> tuple[int, int, int]:
    """Messages visible, in flight, delayed."""
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    names.append("ApproximateNumberOfMessagesDelayed")
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    visible, in_flight, delayed = (int(found[name]) for name in names)
    return visible, in_flight, delayed


def read(aws: Aws, name: str, queue_name: str = "work", stat: str = "Sum") -> float | None:
    """The newest value of a metric, or all of it for a sum or a number of samples."""
    now = datetime.now(UTC)
    metric = {
        "Namespace": "AWS/SQS",
        "MetricName": name,
        "Dimensions": [{"Name": "QueueName", "Value": queue_name}],
    }
    # A gauge is read of its newest minute; what is counted may be spread over two.
    period = 3600 if stat in ("Minimum", "Average") else 60
    query = {"Id": "m", "MetricStat": {"Metric": metric, "Period": period, "Stat": stat}}
    answer = aws.client("cloudwatch").get_metric_data(
        MetricDataQueries=[query], StartTime=now - timedelta(minutes=10), EndTime=now + timedelta(minutes=1)
    )
    result = answer["MetricDataResults"][0]
    points = sorted(zip(result["Timestamps"], result["Values"], strict=True))
    if not points:
        return None
    return sum(value for _, value in points) if stat in ("Sum", "SampleCount") else points[-1][1]


def fail(sqs: Any, url: str, times: int = 1) -> None:
    """Receive and give up at once, ``times`` times."""
    for _ in range(times):
        receive(sqs, url, 10, VisibilityTimeout=0)


@dataclass
class Refusal:
    code: str = ""
    message: str = ""
    status: int = 0
    shape: str | None = None


@contextmanager
def refused(code: str, message: str | None = None, status: int | None = None) -> Iterator[Refusal]:
    """Expect a ClientError with this code, text and HTTP status."""
    refusal = Refusal()
    with pytest.raises(ClientError) as caught:
        yield refusal
    error = caught.value.response["Error"]
    refusal.code, refusal.message, refusal.shape = error["Code"], error["Message"], error.get("QueryErrorCode")
    refusal.status = caught.value.response["ResponseMetadata"]["HTTPStatusCode"]
    assert refusal.code == code
    assert message is None or refusal.message == message
    assert status is None or refusal.status == status


def until(condition: Any, seconds: float = 60.0) -> Any:
    """Wait until ``condition()`` is true, and return what it gave."""
    end = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < end, "did not come true in time"
        time.sleep(0.05)
    return value
