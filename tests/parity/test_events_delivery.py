"""Deliveries that fail: what is retried, what goes to the dead-letter queue, what is lost."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from .conftest import Aws
from .events_kit import GUIDE, RECORDED, Events, attributes_of, policy
from .lambda_kit import until
from .rows import ours, row

FAST = {"lab:clock-scale": "20000"}  # a day of waiting in 4 s
FASTER = {"lab:clock-scale": "200000"}
ONE_RETRY = {"MaximumRetryAttempts": 1, "MaximumEventAgeInSeconds": 86_400}


@pytest.fixture
def events(aws: Aws) -> Events:
    return Events(aws)


def untag(events: Events, url: str) -> None:
    events.sqs.untag_queue(QueueUrl=url, TagKeys=["lab:fault"])


@row(
    "events.delivery.success",
    "A delivered message has no attributes; the dead-letter queue stays empty",
    source=RECORDED,
)
def test_success(events: Events) -> None:
    rule = events.rule()
    queue, dlq = events.queue("q", rule=rule.arn), events.queue("dlq", rule=rule.arn)
    events.target(rule, queue.arn, dlq=dlq)
    identity = events.put({"n": 1})
    [message] = events.messages(queue, settle=0.2)
    assert "MessageAttributes" not in message
    assert json.loads(message["Body"])["id"] == identity
    events.nothing_in(dlq, within=0.1)


@row("events.delivery.at_once", "The first attempt comes at once", source=GUIDE)
def test_first_attempt_at_once(events: Events) -> None:
    queue = events.queue("q")
    events.target(events.rule(), queue.arn)
    events.put()
    events.messages(queue, within=30)


@row(
    "events.delivery.no_permissions",
    "A queue whose policy does not let the rule send: NO_PERMISSIONS, no retry",
    source=GUIDE,
)
@pytest.mark.parametrize("allowed", [None, "another rule", "another action", "denied"])
def test_no_permissions(events: Events, allowed: str | None) -> None:
    rule = events.rule()
    queue, dlq = events.queue("q", rule=None), events.queue("dlq", rule=rule.arn)
    document = {
        None: "",
        "another rule": policy("sqs:SendMessage", queue.arn, events.aws.arn("events", "rule/other")),
        "another action": policy("sqs:ReceiveMessage", queue.arn, rule.arn),
        "denied": policy("sqs:SendMessage", queue.arn, rule.arn).replace('"Allow"', '"Deny"'),
    }[allowed]
    if document:
        events.sqs.set_queue_attributes(QueueUrl=queue.url, Attributes={"Policy": document})
    events.target(rule, queue.arn, dlq=dlq)
    identity = events.put({"n": 1})
    [message] = events.messages(dlq)
    attributes = attributes_of(message)
    assert attributes.pop("ERROR_MESSAGE")
    assert attributes == {
        "RULE_ARN": rule.arn,
        "TARGET_ARN": queue.arn,
        "ERROR_CODE": "NO_PERMISSIONS",
        "RETRY_ATTEMPTS": "0",
    }
    event = json.loads(message["Body"])
    assert (event["id"], event["detail"]) == (identity, {"n": 1})
    events.nothing_in(queue, within=0.1)


@row(
    "events.delivery.policy_forms",
    "ArnLike, a wildcard and aws:SourceAccount in the queue's policy are honoured",
    source=GUIDE,
)
def test_forms_of_policy(events: Events) -> None:
    rule, account = events.rule(), events.aws.account
    conditions: list[dict[str, Any]] = [
        {"ArnLike": {"aws:SourceArn": f"arn:aws:events:*:{account}:rule/*"}},
        {"StringEquals": {"aws:SourceAccount": account}},
        {"ArnEquals": {"aws:SourceArn": rule.arn}},
    ]
    queues = []
    for number, condition in enumerate(conditions):
        queue = events.queue(f"q{number}")
        document = json.loads(policy("sqs:SendMessage", queue.arn, "*"))
        document["Statement"][0]["Condition"] = condition
        events.sqs.set_queue_attributes(QueueUrl=queue.url, Attributes={"Policy": json.dumps(document)})
        events.target(rule, queue.arn, identity=f"t{number}")
        queues.append(queue)
    events.put()
    for queue in queues:
        events.messages(queue)


@row("events.delivery.no_resource", "A target that is gone: NO_RESOURCE, no retry", source=GUIDE)
@pytest.mark.parametrize(
    ("service", "resource", "more"),
    [
        ("sqs", "gone", {}),
        ("sns", "gone", {}),
        ("lambda", "function:gone", {}),
        ("states", "stateMachine:gone", {"RoleArn": "arn:aws:iam::123456789012:role/r"}),
        ("events", "event-bus/gone", {"RoleArn": "arn:aws:iam::123456789012:role/r"}),
    ],
)
def test_no_resource(events: Events, service: str, resource: str, more: dict[str, str]) -> None:
    rule = events.rule()
    dlq = events.queue("dlq", rule=rule.arn)
    arn = events.aws.arn(service, resource)
    events.target(rule, arn, dlq=dlq, **more)
    events.put()
    attributes = attributes_of(events.messages(dlq)[0])
    assert attributes["ERROR_CODE"] == "NO_RESOURCE"
    assert attributes["TARGET_ARN"] == arn
    assert attributes["RETRY_ATTEMPTS"] == "0"
    assert "EXHAUSTED_RETRY_CONDITION" not in attributes


@row(
    "events.delivery.retries_exhausted",
    "After MaximumRetryAttempts retries the event goes to the dead-letter queue",
    source=GUIDE,
)
@pytest.mark.parametrize("retries", [0, 1, 4])
def test_attempts_exhausted(events: Events, retries: int) -> None:
    rule = events.rule(tags=FAST)
    queue, dlq = events.queue("q", fault="THROTTLING"), events.queue("dlq", rule=rule.arn)
    events.target(rule, queue.arn, dlq=dlq, RetryPolicy={"MaximumRetryAttempts": retries})
    identity = events.put()
    [message] = events.messages(dlq, settle=0.1)
    attributes = attributes_of(message)
    assert set(attributes) == {
        "RULE_ARN",
        "TARGET_ARN",
        "ERROR_CODE",
        "ERROR_MESSAGE",
        "EXHAUSTED_RETRY_CONDITION",
        "RETRY_ATTEMPTS",
    }
    assert attributes["ERROR_CODE"] == "THROTTLING"
    assert attributes["EXHAUSTED_RETRY_CONDITION"] == "MaximumRetryAttempts"
    assert attributes["RETRY_ATTEMPTS"] == str(retries)
    assert json.loads(message["Body"])["id"] == identity
    untag(events, queue.url)
    events.nothing_in(queue, within=0.1)


@row(
    "events.delivery.default_policy",
    "Without a RetryPolicy there are 185 retries, and they end within 24 hours",
    source=GUIDE,
)
def test_default_policy(events: Events) -> None:
    rule = events.rule(tags=FASTER)
    queue, dlq = events.queue("q", fault="TIMEOUT"), events.queue("dlq", rule=rule.arn)
    events.target(rule, queue.arn, dlq=dlq)
    events.put()
    attributes = attributes_of(events.messages(dlq)[0])
    assert attributes["RETRY_ATTEMPTS"] == "185"
    assert attributes["EXHAUSTED_RETRY_CONDITION"] == "MaximumRetryAttempts"


@row("events.delivery.age_exhausted", "An event older than MaximumEventAgeInSeconds is not tried again", source=GUIDE)
def test_age_exhausted(events: Events) -> None:
    rule = events.rule(tags={"lab:clock-scale": "600"})  # 60 s in 0.1 s
    queue, dlq = events.queue("q", fault="CONNECTION_FAILURE"), events.queue("dlq", rule=rule.arn)
    policy = {"MaximumEventAgeInSeconds": 60, "MaximumRetryAttempts": 185}
    events.target(rule, queue.arn, dlq=dlq, RetryPolicy=policy)
    events.put()
    attributes = attributes_of(events.messages(dlq)[0])
    assert attributes["EXHAUSTED_RETRY_CONDITION"] == "MaximumEventAgeInSeconds"
    assert attributes["ERROR_CODE"] == "CONNECTION_FAILURE"
    assert 1 <= int(attributes["RETRY_ATTEMPTS"]) < 20


@row(
    "events.delivery.recovers",
    "A target that works again receives the event once, and the dead-letter queue nothing",
    source=GUIDE,
)
def test_delivered_once_after_the_fault(events: Events) -> None:
    rule = events.rule(tags={"lab:clock-scale": "20"})
    queue, dlq = events.queue("q", fault="INTERNAL_ERROR"), events.queue("dlq", rule=rule.arn)
    events.target(rule, queue.arn, dlq=dlq)
    sent = {events.put({"n": n}) for n in range(5)}
    time.sleep(0.2)
    events.nothing_in(queue, within=0.1)
    untag(events, queue.url)
    assert {event["id"] for event in events.events(queue, 5, settle=0.3)} == sent
    events.nothing_in(dlq, within=0.1)


@row("events.delivery.retry_meets_no_permissions", "A retry that meets a missing permission ends there", source=GUIDE)
def test_retry_turns_into_no_permissions(events: Events) -> None:
    rule = events.rule(tags={"lab:clock-scale": "5"})
    queue, dlq = events.queue("q", fault="THROTTLING"), events.queue("dlq", rule=rule.arn)
    events.target(rule, queue.arn, dlq=dlq)
    events.put()
    until(lambda: events.total("InvocationAttempts", RuleName=rule.name) >= 1)
    events.sqs.set_queue_attributes(QueueUrl=queue.url, Attributes={"Policy": ""})
    attributes = attributes_of(events.messages(dlq)[0])
    assert attributes["ERROR_CODE"] == "NO_PERMISSIONS"
    assert int(attributes["RETRY_ATTEMPTS"]) >= 1
    assert "EXHAUSTED_RETRY_CONDITION" not in attributes


@row(
    "events.delivery.fault_codes",
    "NO_PERMISSIONS and NO_RESOURCE are not retried, whatever the policy says",
    source=GUIDE,
)
@pytest.mark.parametrize("code", ["NO_PERMISSIONS", "NO_RESOURCE"])
def test_codes_that_are_not_retried(events: Events, code: str) -> None:
    rule = events.rule()
    queue, dlq = events.queue("q", fault=code), events.queue("dlq")
    events.target(rule, queue.arn, dlq=dlq)
    events.put()
    attributes = attributes_of(events.messages(dlq)[0])
    assert (attributes["ERROR_CODE"], attributes["RETRY_ATTEMPTS"]) == (code, "0")


@row("events.delivery.dlq_policy", "A dead-letter queue that does not let the rule send loses the event", source=GUIDE)
def test_dead_letter_queue_needs_a_policy(events: Events) -> None:
    rule = events.rule()
    queue, dlq = events.queue("q", rule=None), events.queue("dlq", rule=events.aws.arn("events", "rule/other"))
    events.target(rule, queue.arn, dlq=dlq)
    events.put()
    events.nothing_in(dlq)
    events.nothing_in(queue, within=0.1)


@row(
    "events.delivery.no_dlq",
    "Without a dead-letter queue the event is lost, and other targets have theirs",
    source=GUIDE,
)
def test_without_dead_letter_queue(events: Events) -> None:
    rule = events.rule()
    good = events.queue("good")
    events.target(rule, events.aws.arn("sqs", "gone"), identity="bad")
    events.target(rule, good.arn, identity="good")
    identity = events.put()
    assert events.events(good, settle=0.1)[0]["id"] == identity


@row("events.delivery.dlq_per_target", "Each target has its own retry policy and dead-letter queue", source=GUIDE)
def test_targets_are_independent(events: Events) -> None:
    rule = events.rule(tags=FAST)
    slow, one, two = events.queue("slow", fault="THROTTLING"), events.queue("dlq1"), events.queue("dlq2")
    events.target(rule, slow.arn, identity="a", dlq=one, RetryPolicy={"MaximumRetryAttempts": 3})
    events.target(rule, events.aws.arn("sqs", "gone"), identity="b", dlq=two)
    events.put()
    assert attributes_of(events.messages(one)[0])["RETRY_ATTEMPTS"] == "3"
    assert attributes_of(events.messages(two)[0])["ERROR_CODE"] == "NO_RESOURCE"


@row(
    "events.delivery.dlq_original",
    "The dead-letter queue receives the original event, whatever the target's input "
    "(not verified for an input transformer)",
    source=GUIDE,
)
@pytest.mark.parametrize(
    "given",
    [
        {"Input": '{"fixed": true}'},
        {"InputPath": "$.detail"},
        {"InputTransformer": {"InputPathsMap": {"n": "$.detail.n"}, "InputTemplate": '{"n": <n>}'}},
    ],
)
def test_original_event(events: Events, given: dict[str, Any]) -> None:
    dlq = events.queue("dlq")
    events.target(events.rule(), events.aws.arn("sqs", "gone"), dlq=dlq, **given)
    identity = events.put({"n": 1})
    event = events.events(dlq)[0]
    assert (event["id"], event["detail"]) == (identity, {"n": 1})


@ours("the event bus's clock scale holds for its rules, a rule's own wins: a teaching setting")
def test_scale_of_the_bus(events: Events) -> None:
    events.api.create_event_bus(Name="fleet", Tags=[{"Key": "lab:clock-scale", "Value": "20000"}])
    fast, slow = events.rule("fast", bus="fleet"), events.rule("slow", bus="fleet", tags={"lab:clock-scale": "1"})
    dlqs = []
    for rule in (fast, slow):
        queue, dlq = events.queue(f"q-{rule.name}", fault="THROTTLING"), events.queue(f"dlq-{rule.name}")
        events.target(rule, queue.arn, dlq=dlq, RetryPolicy={"MaximumRetryAttempts": 6})
        dlqs.append(dlq)
    events.put(bus="fleet")
    events.messages(dlqs[0])
    events.nothing_in(dlqs[1])
    events.api.remove_targets(Rule="slow", EventBusName="fleet", Ids=["t"])


@ours("not verified: a target that is removed while a retry is pending gets no more")
def test_removed_target_ends_the_retries(events: Events) -> None:
    rule = events.rule(tags={"lab:clock-scale": "5"})
    queue, dlq = events.queue("q", fault="THROTTLING"), events.queue("dlq")
    events.target(rule, queue.arn, dlq=dlq)
    events.put()
    events.api.remove_targets(Rule=rule.name, Ids=["t"])
    untag(events, queue.url)
    events.nothing_in(queue, within=0.4)
    events.nothing_in(dlq, within=0.1)


@row(
    "events.delivery.conservation",
    "Of many events each ends once: delivered, or in the dead-letter queue",
    source=GUIDE,
)
def test_conservation(events: Events) -> None:
    rule = events.rule(tags=FAST)
    queue, dlq = events.queue("q", fault="THROTTLING"), events.queue("dlq")
    events.target(rule, queue.arn, dlq=dlq, RetryPolicy={"MaximumRetryAttempts": 12})
    sent = [events.put({"n": n}) for n in range(40)]
    untag(events, queue.url)
    sent += [events.put({"n": n}) for n in range(40, 60)]
    ended: list[str] = []
    end = time.monotonic() + 60
    while len(ended) < len(sent) and time.monotonic() < end:
        for place in (queue, dlq):
            for message in events.sqs.receive_message(QueueUrl=place.url, MaxNumberOfMessages=10).get("Messages", []):
                ended.append(json.loads(message["Body"])["id"])
                events.sqs.delete_message(QueueUrl=place.url, ReceiptHandle=message["ReceiptHandle"])
    assert sorted(ended) == sorted(sent)


@row(
    "events.delivery.rejected_body", "A message that the queue refuses is not retried (code not verified)", source=GUIDE
)
def test_message_that_the_queue_refuses(events: Events) -> None:
    rule = events.rule()
    queue, dlq = events.queue("q", MaximumMessageSize="1024"), events.queue("dlq")
    events.target(rule, queue.arn, dlq=dlq)
    events.put({"x": "x" * 2000})
    attributes = attributes_of(events.messages(dlq)[0])
    assert (attributes["ERROR_CODE"], attributes["RETRY_ATTEMPTS"]) == ("INVALID_PARAMETER", "0")
