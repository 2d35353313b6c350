"""PutTargets and RemoveTargets."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from .conftest import Aws
from .events_kit import GUIDE, MODEL, RECORDED, REPORTED, Events
from .rows import row


@pytest.fixture
def events(aws: Aws) -> Events:
    return Events(aws)


def refused(events: Events, *targets: dict[str, Any]) -> tuple[str, str]:
    with pytest.raises(ClientError) as raised:
        events.unchecked().put_targets(Rule="rule", Targets=list(targets))
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    error = raised.value.response["Error"]
    return error["Code"], error["Message"]


def targets(events: Events, *identities: str) -> list[dict[str, str]]:
    return [{"Id": identity, "Arn": events.aws.arn("sqs", f"q-{identity}")} for identity in identities]


def ids(events: Events) -> list[str]:
    return sorted(target["Id"] for target in events.api.list_targets_by_rule(Rule="rule")["Targets"])


@row(
    "events.targets.five",
    "A rule has at most five targets; the call that exceeds them changes nothing",
    source=RECORDED,
)
def test_five_targets(events: Events) -> None:
    events.rule()
    error = ("LimitExceededException", "The requested resource exceeds the maximum number allowed.")
    assert refused(events, *targets(events, *"abcdefg")) == error
    assert ids(events) == []
    events.api.put_targets(Rule="rule", Targets=targets(events, *"abcd"))
    assert refused(events, *targets(events, *"ef")) == error
    events.api.put_targets(Rule="rule", Targets=targets(events, *"de"))
    assert ids(events) == list("abcde")


@row("events.targets.id", "A target's id has 1 to 64 letters, digits, dots, hyphens, underscores", source=RECORDED)
def test_id(events: Events) -> None:
    events.rule()
    prefix = (
        "1 validation error detected: Value '{}' at 'targets.1.member.id' failed to satisfy constraint: Member must "
    )
    assert refused(events, *targets(events, "!@#$@!#$")) == (
        "ValidationException",
        prefix.format("!@#$@!#$") + r"satisfy regular expression pattern: [\.\-_A-Za-z0-9]+",
    )
    assert refused(events, *targets(events, "x" * 65)) == (
        "ValidationException",
        prefix.format("x" * 65) + "have length less than or equal to 64",
    )


@row("events.targets.replace", "A target with an id that is there already replaces it", source=RECORDED)
def test_same_id_replaces(events: Events) -> None:
    rule, first, second = events.rule(), events.queue("first"), events.queue("second")
    events.target(rule, first.arn)
    events.target(rule, second.arn)
    events.put()
    events.messages(second)
    events.nothing_in(first, within=0.1)
    assert len(events.api.list_targets_by_rule(Rule="rule")["Targets"]) == 1


@row("events.targets.arn", "A target whose ARN has no such form is refused", source=REPORTED)
def test_arn(events: Events) -> None:
    events.rule()
    assert refused(events, {"Id": "t", "Arn": "queue"}) == (
        "ValidationException",
        "Parameter queue is not valid. Reason: Provided Arn is not in correct format.",
    )


@row("events.targets.retry_policy", "RetryPolicy: 0-185 attempts, 60-86,400 seconds (text by form)", source=MODEL)
@pytest.mark.parametrize(
    ("policy", "where", "bound"),
    [
        ({"MaximumRetryAttempts": 186}, "maximumRetryAttempts", "less than or equal to 185"),
        ({"MaximumEventAgeInSeconds": 59}, "maximumEventAgeInSeconds", "greater than or equal to 60"),
        ({"MaximumEventAgeInSeconds": 86_401}, "maximumEventAgeInSeconds", "less than or equal to 86400"),
    ],
)
def test_retry_policy(events: Events, policy: dict, where: str, bound: str) -> None:
    events.rule()
    value = next(iter(policy.values()))
    target = targets(events, "t")[0] | {"RetryPolicy": policy}
    assert refused(events, target) == (
        "ValidationException",
        (
            f"1 validation error detected: Value '{value}' at 'targets.1.member.retryPolicy.{where}' failed to "
            f"satisfy constraint: Member must have value {bound}"
        ),
    )


@row("events.targets.fifo_group", "A FIFO queue as target needs SqsParameters.MessageGroupId", source=REPORTED)
def test_fifo_needs_a_group(events: Events) -> None:
    events.rule()
    target = {"Id": "t", "Arn": events.aws.arn("sqs", "q.fifo")}
    assert refused(events, target) == (
        "ValidationException",
        "Parameter(s) SqsParameters must be specified for target: t.",
    )
    events.api.put_targets(Rule="rule", Targets=[target | {"SqsParameters": {"MessageGroupId": "g"}}])


@row("events.targets.role", "A state machine as target needs a RoleArn", source=REPORTED)
def test_state_machine_needs_a_role(events: Events) -> None:
    events.rule()
    arn = events.aws.arn("states", "stateMachine:flow")
    assert refused(events, {"Id": "t", "Arn": arn}) == ("ValidationException", f"RoleArn is required for target {arn}.")


@row(
    "events.targets.dlq_kind",
    "A dead-letter queue is a standard queue in the rule's Region (where and how AWS refuses others is not verified)",
    source=GUIDE,
)
def test_kind_of_dead_letter_queue(events: Events) -> None:
    events.rule()
    target = targets(events, "t")[0]
    for arn in (
        events.aws.arn("sqs", "dlq.fifo"),
        f"arn:aws:sqs:eu-west-1:{events.aws.account}:dlq",
        events.aws.arn("sns", "topic"),
    ):
        assert refused(events, target | {"DeadLetterConfig": {"Arn": arn}})[0] == "ValidationException"
    assert ids(events) == []


@row("events.targets.one_input", "Input, InputPath and InputTransformer exclude each other", source=RECORDED)
def test_one_input(events: Events) -> None:
    events.rule()
    target = targets(events, "t")[0] | {
        "InputPath": "$.detail",
        "InputTransformer": {"InputPathsMap": {"a": "$.id"}, "InputTemplate": '"<a>"'},
    }
    assert refused(events, target) == (
        "ValidationException",
        "Only one of Input, InputPath, or InputTransformer must be provided for target t.",
    )


@row("events.targets.placeholder", "A template that names what is not defined is refused", source=RECORDED)
def test_placeholder(events: Events) -> None:
    events.rule()
    transformer = {"InputPathsMap": {"a": "$.id"}, "InputTemplate": '"<a> <b> <aws.events.rule-name>"'}
    assert refused(events, targets(events, "t")[0] | {"InputTransformer": transformer}) == (
        "ValidationException",
        "InputTemplate for target t contains invalid placeholder b.",
    )


@row(
    "events.targets.remove_unknown",
    "Removing an unknown id is reported as a failed entry (text not verified)",
    source=MODEL,
)
def test_remove_unknown_id(events: Events) -> None:
    events.rule()
    events.api.put_targets(Rule="rule", Targets=targets(events, "a", "b"))
    answer = events.api.remove_targets(Rule="rule", Ids=["a", "nothing"])
    assert answer["FailedEntryCount"] == 1
    assert answer["FailedEntries"][0]["TargetId"] == "nothing"
    assert answer["FailedEntries"][0]["ErrorCode"] == "ResourceNotFoundException"
    assert ids(events) == ["b"]


@row("events.targets.list_pages", "ListTargetsByRule gives pages of Limit", source=RECORDED)
def test_list_pages(events: Events) -> None:
    events.rule()
    events.api.put_targets(Rule="rule", Targets=targets(events, *"abcde"))
    first = events.api.list_targets_by_rule(Rule="rule", Limit=3)
    second = events.api.list_targets_by_rule(Rule="rule", Limit=3, NextToken=first["NextToken"])
    assert [len(page["Targets"]) for page in (first, second)] == [3, 2]
    assert "NextToken" not in second
