"""What EventBridge counts about itself, in the CloudWatch namespace AWS/Events."""

from __future__ import annotations

import time

import pytest

from .conftest import Aws
from .events_kit import Events
from .rows import row

METRICS = "AWS documentation: EventBridge User Guide, monitoring (metrics and dimensions)"


@pytest.fixture
def events(aws: Aws) -> Events:
    return Events(aws)


def rises(events: Events, metric: str, value: float, **dimensions: str) -> None:
    end = time.monotonic() + 60
    while events.total(metric, **dimensions) < value and time.monotonic() < end:
        time.sleep(0.05)
    assert events.total(metric, **dimensions) == value


@row(
    "events.metrics.success",
    "Matches, invocations and attempts are counted by rule, by bus and for the account",
    source=METRICS,
)
def test_success(events: Events) -> None:
    queue = events.queue("q")
    events.target(events.rule(), queue.arn)
    events.target(events.rule("r2", bus="fleet"), queue.arn)
    events.put()
    events.put()
    events.put(bus="fleet")
    for metric in ("MatchedEvents", "TriggeredRules", "Invocations", "InvocationAttempts"):
        rises(events, metric, 2, RuleName="rule")
        rises(events, metric, 1, EventBusName="fleet", RuleName="r2")
    for metric in ("TriggeredRules", "Invocations", "InvocationAttempts", "SuccessfulInvocationAttempts"):
        listed = events.aws.client("cloudwatch").list_metrics(Namespace="AWS/Events", MetricName=metric)["Metrics"]
        assert [] in [found["Dimensions"] for found in listed]  # the series of the whole account
    for metric in ("MatchedEvents", "TriggeredRules", "InvocationAttempts"):
        rises(events, metric, 1, EventBusName="fleet")
    for metric in ("FailedInvocations", "RetryInvocationAttempts", "InvocationsSentToDlq"):
        assert events.total(metric, RuleName="rule") == 0


@row(
    "events.metrics.retries",
    "A delivery that fails for good is one Invocation, one FailedInvocation, and its attempts",
    source=METRICS,
)
def test_retries(events: Events) -> None:
    queue, dlq = events.queue("q", fault="THROTTLING"), events.queue("dlq")
    rule = events.rule(tags={"lab:clock-scale": "20000"})
    events.target(rule, queue.arn, dlq=dlq, RetryPolicy={"MaximumRetryAttempts": 3})
    events.put()
    events.messages(dlq)
    rises(events, "InvocationsSentToDlq", 1, RuleName="rule")
    rises(events, "FailedInvocations", 1, RuleName="rule")
    rises(events, "Invocations", 1, RuleName="rule")
    rises(events, "InvocationAttempts", 4, RuleName="rule")
    rises(events, "RetryInvocationAttempts", 3, RuleName="rule")
    assert events.total("SuccessfulInvocationAttempts", RuleName="rule") == 0


@row("events.metrics.not_yet", "While it is retried a delivery is no Invocation yet", source=METRICS)
def test_pending_delivery(events: Events) -> None:
    queue = events.queue("q", fault="THROTTLING")
    events.target(events.rule(tags={"lab:clock-scale": "0.01"}), queue.arn)  # the first retry comes after a minute
    events.put()
    rises(events, "InvocationAttempts", 1, RuleName="rule")
    assert events.total("Invocations", RuleName="rule") == 0
    assert events.total("FailedInvocations", RuleName="rule") == 0
    events.api.remove_targets(Rule="rule", Ids=["t"])


@row(
    "events.metrics.lost",
    "An event that not even the dead-letter queue takes: InvocationsFailedToBeSentToDlq",
    source=METRICS,
)
def test_lost_event(events: Events) -> None:
    dlq = events.queue("dlq", rule=None)
    events.target(events.rule(), events.aws.arn("sqs", "gone"), dlq=dlq)
    events.put()
    rises(events, "InvocationsFailedToBeSentToDlq", 1, RuleName="rule")
    rises(events, "FailedInvocations", 1, RuleName="rule")
    assert events.total("InvocationsSentToDlq", RuleName="rule") == 0


@row(
    "events.metrics.no_dlq",
    "Without a dead-letter queue a lost event is a FailedInvocation and nothing more",
    source=METRICS,
)
def test_without_dead_letter_queue(events: Events) -> None:
    events.target(events.rule(), events.aws.arn("sqs", "gone"))
    events.put()
    rises(events, "FailedInvocations", 1, RuleName="rule")
    for metric in ("InvocationsSentToDlq", "InvocationsFailedToBeSentToDlq"):
        assert events.total(metric, RuleName="rule") == 0
