"""Metrics: what was counted between two readings, and how things stand now."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from labkit import Lab
from labkit.ops import metrics
from labkit.work.queues import Queue


def test_sums_are_of_exactly_the_named_series(lab: Lab) -> None:
    one, other = Queue.create(lab, "one"), Queue.create(lab, "other")
    one.send_batch(range(3))
    other.send("x")
    one.consume(lambda message: None)
    found = metrics.sums(
        lab, "AWS/SQS", ["NumberOfMessagesSent", "NumberOfMessagesDeleted", "NoSuchMetric"], {"QueueName": "one"}
    )
    assert found == {"NumberOfMessagesSent": 3.0, "NumberOfMessagesDeleted": 3.0, "NoSuchMetric": 0.0}


def test_latest_is_the_newest_value_of_each_gauge(lab: Lab) -> None:
    queue = Queue.create(lab, "one")
    names = ["ApproximateNumberOfMessagesVisible", "ApproximateNumberOfMessagesNotVisible", "NoSuchMetric"]
    queue.send_batch(range(3))
    assert metrics.latest(lab, "AWS/SQS", names, {"QueueName": "one"}) == dict(zip(names, (3, 0, None), strict=True))
    queue.receive(2)
    assert metrics.latest(lab, "AWS/SQS", names, {"QueueName": "one"}) == dict(zip(names, (1, 2, None), strict=True))
    assert metrics.latest(lab, "AWS/SQS", names, {"QueueName": "other"}) == dict.fromkeys(names)


def test_latest_is_of_the_newest_minute_and_of_no_older_than_asked(lab: Lab) -> None:
    now = datetime.now(UTC)
    for minutes, value in ((5, 9.0), (3, 4.0), (3, 6.0), (30, 8.0)):
        point = {"MetricName": "depth", "Timestamp": now - timedelta(minutes=minutes), "Value": value}
        lab.client("cloudwatch").put_metric_data(Namespace="lab", MetricData=[point])
    assert metrics.latest(lab, "lab", ["depth"], {}) == {"depth": 6.0}
    assert metrics.latest(lab, "lab", ["depth"], {}, minutes=2) == {"depth": None}
