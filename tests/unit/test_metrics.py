"""Metrics: what was counted between two readings."""

from __future__ import annotations

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
