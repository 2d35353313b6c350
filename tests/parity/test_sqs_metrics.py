"""AWS/SQS metrics in CloudWatch, and alarms on them."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

from .conftest import Aws
from .rows import row
from .sqs_helpers import GUIDE, drain, fail, pair, queue, read, receive, until

SOURCE = f"{GUIDE}: available CloudWatch metrics"


def keep_off_the_hour() -> None:
    """Wait where an hour ends within the next 30 s: what is counted on both sides of it lies in two periods."""
    left = 3600 - time.time() % 3600
    if left < 30:
        time.sleep(left)


def age(aws: Aws, queue_name: str = "work") -> float:
    found = read(aws, "ApproximateAgeOfOldestMessage", queue_name, "Maximum")
    assert found is not None
    return found


@row(
    "sqs.metrics.gauges",
    "Visible, in flight, delayed and age of the oldest message are AWS/SQS metrics.",
    source=SOURCE,
)
def test_gauges(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    began = time.monotonic()
    for body in "abc":
        sqs.send_message(QueueUrl=url, MessageBody=body)
    sqs.send_message(QueueUrl=url, MessageBody="later", DelaySeconds=60)
    receive(sqs, url)
    time.sleep(1.1)
    gauges = {
        name: read(aws, f"Approximate{name}", stat="Maximum")
        for name in ("NumberOfMessagesVisible", "NumberOfMessagesNotVisible", "NumberOfMessagesDelayed")
    }
    assert 1 <= age(aws) <= time.monotonic() - began + 0.5
    assert gauges == {
        "NumberOfMessagesVisible": 2,
        "NumberOfMessagesNotVisible": 1,
        "NumberOfMessagesDelayed": 1,
    }


@row("sqs.metrics.counters", "Sends, receives, deletes, empty receives and sizes are counted.", source=SOURCE)
def test_counters(aws: Aws) -> None:
    keep_off_the_hour()
    sqs = aws.client("sqs")
    url = queue(sqs)
    assert read(aws, "SentMessageSize") is None
    for body in ("aaaa", "bb"):
        sqs.send_message(QueueUrl=url, MessageBody=body)
    messages = receive(sqs, url, 10)
    receive(sqs, url)
    for message in [*messages, messages[0]]:
        sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    found = {name: read(aws, name) for name in ("NumberOfMessagesSent", "NumberOfMessagesReceived")}
    assert found == {"NumberOfMessagesSent": 2, "NumberOfMessagesReceived": 2}
    assert read(aws, "NumberOfEmptyReceives") == 1
    assert read(aws, "NumberOfMessagesDeleted") == 3
    sizes = {stat: read(aws, "SentMessageSize", stat=stat) for stat in ("Minimum", "Average", "Sum", "SampleCount")}
    assert sizes == {"Minimum": 2, "Average": 3, "Sum": 6, "SampleCount": 2}


@row(
    "sqs.metrics.age.poison",
    "ApproximateAgeOfOldestMessage leaves out messages received three times and not deleted.",
    source=SOURCE,
)
def test_age_without_poison(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs)
    sqs.send_message(QueueUrl=url, MessageBody="poison")
    time.sleep(2.1)
    fail(sqs, url, 2)
    assert age(aws) >= 2
    fail(sqs, url)
    began = time.monotonic()  # at least 2.1 s after the poison
    sqs.send_message(QueueUrl=url, MessageBody="new")
    assert age(aws) <= time.monotonic() - began + 0.5


@row(
    "sqs.metrics.redrive",
    "In a dead-letter queue the age counts from the move; a redrive is not counted as sent.",
    source=SOURCE,
)
def test_metrics_of_a_dead_letter_queue(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url, _ = pair(sqs, max_receives=3)
    sqs.send_message(QueueUrl=url, MessageBody="a")
    time.sleep(2.1)
    fail(sqs, url, 3)
    began = time.monotonic()  # at least 2.1 s after the send
    fail(sqs, url)
    assert read(aws, "ApproximateNumberOfMessagesVisible", "work-dead", "Maximum") == 1
    assert age(aws, "work-dead") <= time.monotonic() - began + 0.5
    assert read(aws, "NumberOfMessagesSent", "work-dead") is None
    time.sleep(1.1)
    assert 1 <= age(aws, "work-dead") <= time.monotonic() - began + 0.5


@row("sqs.metrics.fifo", "A FIFO queue reports groups in flight and deduplicated sends.", source=SOURCE)
def test_fifo_metrics(aws: Aws) -> None:
    sqs = aws.client("sqs")
    url = queue(sqs, "work.fifo", ContentBasedDeduplication="true")
    for body, group in (("a", "g1"), ("b", "g2"), ("a", "g1")):
        sqs.send_message(QueueUrl=url, MessageBody=body, MessageGroupId=group)
    receive(sqs, url, 10)
    assert read(aws, "ApproximateNumberOfGroupsWithInflightMessages", "work.fifo", "Maximum") == 2
    assert read(aws, "NumberOfDeduplicatedSentMessages", "work.fifo") == 1
    assert read(aws, "NumberOfMessagesSent", "work.fifo") == 2


@row(
    "sqs.metrics.list",
    "ListMetrics and GetMetricStatistics show AWS/SQS metrics, by QueueName, with units.",
    source=SOURCE,
)
def test_list_metrics(aws: Aws) -> None:
    sqs, cloudwatch = aws.client("sqs"), aws.client("cloudwatch")
    began = datetime.now(UTC)
    url = queue(sqs)
    sqs.send_message(QueueUrl=url, MessageBody="a")
    drain(sqs, url)
    found = cloudwatch.list_metrics(Namespace="AWS/SQS")["Metrics"]
    assert all(metric["Dimensions"] == [{"Name": "QueueName", "Value": "work"}] for metric in found)
    assert {metric["MetricName"] for metric in found} == {
        "ApproximateAgeOfOldestMessage",
        "ApproximateNumberOfMessagesDelayed",
        "ApproximateNumberOfMessagesNotVisible",
        "ApproximateNumberOfMessagesVisible",
        "NumberOfEmptyReceives",
        "NumberOfMessagesDeleted",
        "NumberOfMessagesReceived",
        "NumberOfMessagesSent",
        "SentMessageSize",
    }
    for name, unit in (("SentMessageSize", "Bytes"), ("ApproximateAgeOfOldestMessage", "Seconds")):
        points = cloudwatch.get_metric_statistics(
            Namespace="AWS/SQS",
            MetricName=name,
            Dimensions=[{"Name": "QueueName", "Value": "work"}],
            StartTime=began,  # rounded down to the minute
            EndTime=datetime.now(UTC) + timedelta(minutes=2),
            Period=3600,
            Statistics=["Maximum"],
        )["Datapoints"]
        assert {point["Unit"] for point in points} == {unit}


@row(
    "cloudwatch.alarm.sqs",
    "An alarm on a queue's metric sees that queue alone and follows it to ALARM and back to OK.",
    source="Amazon CloudWatch User Guide: alarm evaluation",
)
def test_alarm(aws: Aws) -> None:
    sqs, cloudwatch = aws.client("sqs"), aws.client("cloudwatch")
    url = queue(sqs)
    sqs.send_message(QueueUrl=queue(sqs, "other"), MessageBody="not ours")

    def alarm(name: str, metric: str) -> dict[str, Any]:
        return {
            "AlarmName": name,
            "Namespace": "AWS/SQS",
            "MetricName": metric,
            "Dimensions": [{"Name": "QueueName", "Value": "work"}],
            "Statistic": "Maximum",
            "Period": 60,
            "EvaluationPeriods": 1,
            "Threshold": 1,
            "ComparisonOperator": "GreaterThanOrEqualToThreshold",
        }

    def state(name: str) -> str:
        return cloudwatch.describe_alarms(AlarmNames=[name])["MetricAlarms"][0]["StateValue"]

    cloudwatch.put_metric_alarm(**alarm("backlog", "ApproximateNumberOfMessagesVisible"))
    cloudwatch.put_metric_alarm(**alarm("duplicates", "NumberOfDeduplicatedSentMessages"))
    until(lambda: state("backlog") == "OK")
    assert state("duplicates") == "INSUFFICIENT_DATA"
    sqs.send_message(QueueUrl=url, MessageBody="a")
    until(lambda: state("backlog") == "ALARM")
    drain(sqs, url)
    until(lambda: state("backlog") == "OK")
