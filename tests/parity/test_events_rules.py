"""Rules and event buses: what is refused, and with which words."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from .conftest import Aws
from .events_kit import GUIDE, MODEL, PATTERN, RECORDED, REPORTED, Events
from .rows import row

TEXT = json.dumps(PATTERN)


@pytest.fixture
def events(aws: Aws) -> Events:
    return Events(aws)


def error(call: Any, **arguments: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as raised:
        call(**arguments)
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    found = raised.value.response["Error"]
    return found["Code"], found["Message"]


@row("events.rule.pattern_or_schedule", "A rule needs a pattern or a schedule (text not verified)", source=GUIDE)
def test_pattern_or_schedule(events: Events) -> None:
    assert error(events.api.put_rule, Name="r") == (
        "ValidationException",
        "Parameter(s) EventPattern or ScheduleExpression must be specified.",
    )


@row("events.rule.name", "A rule's name has 1 to 64 letters, digits, dots, hyphens, underscores", source=MODEL)
def test_name(events: Events) -> None:
    code, message = error(events.api.put_rule, Name="two words", EventPattern=TEXT)
    assert code == "ValidationException"
    assert message.endswith(
        r"at 'name' failed to satisfy constraint: Member must satisfy regular expression pattern: "
        r"[\.\-_A-Za-z0-9]+"
    )
    code, message = error(events.api.put_rule, Name="x" * 65, EventPattern=TEXT)
    assert code == "ValidationException"
    assert message.endswith("Member must have length less than or equal to 64")
    events.api.put_rule(Name="x" * 64, EventPattern=TEXT)


@row("events.rule.no_such_bus", "A rule on a bus that does not exist is refused", source=RECORDED)
def test_no_such_bus(events: Events) -> None:
    missing = ("ResourceNotFoundException", "Event bus nowhere does not exist.")
    assert error(events.api.put_rule, Name="r", EventPattern=TEXT, EventBusName="nowhere") == missing
    assert error(events.api.describe_event_bus, Name="nowhere") == missing
    assert error(events.api.delete_rule, Name="r", EventBusName="nowhere") == missing


@row("events.rule.pattern_size", "A pattern has at most 2,048 characters by default (text not verified)", source=GUIDE)
def test_size_of_pattern(events: Events) -> None:
    overhead = len('{"source": [""]}')
    events.api.put_rule(Name="r", EventPattern=json.dumps({"source": ["x" * (2048 - overhead)]}))
    with pytest.raises(ClientError):
        events.api.put_rule(Name="r", EventPattern=json.dumps({"source": ["x" * (2049 - overhead)]}))


@row("events.rule.bus_arn", "A rule's bus may be named by its ARN", source=MODEL)
def test_bus_by_arn(events: Events) -> None:
    arn = events.api.create_event_bus(Name="fleet")["EventBusArn"]
    rule = events.api.put_rule(Name="r", EventPattern=TEXT, EventBusName=arn)["RuleArn"]
    assert rule == events.aws.arn("events", "rule/fleet/r")
    assert events.api.describe_rule(Name="r", EventBusName="fleet")["EventBusName"] == "fleet"
    queue = events.queue("q")
    events.api.put_targets(Rule="r", EventBusName=arn, Targets=[{"Id": "t", "Arn": queue.arn}])
    assert [rule["Name"] for rule in events.api.list_rules(EventBusName=arn)["Rules"]] == ["r"]
    events.put(bus="fleet")
    events.messages(queue)


@row("events.rule.arn", "A rule's ARN names its bus, unless it is the default one", source=RECORDED)
def test_arn(events: Events) -> None:
    assert events.rule("a").arn == events.aws.arn("events", "rule/a")
    assert events.rule("a", bus="fleet").arn == events.aws.arn("events", "rule/fleet/a")


@row("events.rule.bad_pattern", "A pattern that cannot match anything is refused with the reason", source=RECORDED)
@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ({"source": "x"}, '"source" must be an object or an array'),
        ({"source": []}, "Empty arrays are not allowed"),
        ({"source": [{"EXISTS": True}]}, "Unrecognized match type EXISTS"),
        ({"detail": {"n": [{"numeric": [">", "1"]}]}}, "Value of > must be numeric"),
        ({"source": [{"prefix": 1}]}, "prefix match pattern must be a string"),
    ],
)
def test_bad_pattern(events: Events, pattern: dict, reason: str) -> None:
    code, message = error(events.api.put_rule, Name="r", EventPattern=json.dumps(pattern))
    assert code == "InvalidEventPatternException"
    assert message.startswith(f"Event pattern is not valid. Reason: {reason}")


@row("events.rule.schedule", "A bad schedule is refused; a schedule works on the default bus only", source=RECORDED)
def test_schedule(events: Events) -> None:
    bad = ("ValidationException", "Parameter ScheduleExpression is not valid.")
    assert error(events.api.put_rule, Name="r", ScheduleExpression="every day") == bad
    events.api.create_event_bus(Name="fleet")
    assert error(events.api.put_rule, Name="r", ScheduleExpression="rate(1 day)", EventBusName="fleet") == (
        "ValidationException",
        "ScheduleExpression is supported only on the default event bus.",
    )


@row("events.rule.missing", "A rule that does not exist: ResourceNotFoundException names its bus", source=RECORDED)
def test_rule_that_does_not_exist(events: Events) -> None:
    missing = ("ResourceNotFoundException", "Rule r does not exist on EventBus default.")
    assert error(events.api.describe_rule, Name="r") == missing
    for call in (events.api.enable_rule, events.api.disable_rule):
        assert error(call, Name="r") == missing
    assert error(events.api.list_targets_by_rule, Rule="r") == missing
    assert error(events.api.remove_targets, Rule="r", Ids=["t"]) == missing
    target = {"Id": "t", "Arn": events.aws.arn("sqs", "q")}
    assert error(events.api.put_targets, Rule="r", Targets=[target]) == missing


@row("events.rule.delete_with_targets", "A rule with targets cannot be deleted", source=RECORDED)
def test_delete_with_targets(events: Events) -> None:
    events.target(events.rule(), events.aws.arn("sqs", "q"))
    assert error(events.api.delete_rule, Name="rule") == (
        "ValidationException",
        "Rule can't be deleted since it has targets.",
    )
    events.api.remove_targets(Rule="rule", Ids=["t"])
    events.api.delete_rule(Name="rule")
    assert events.api.list_rules()["Rules"] == []


@row("events.rule.delete_missing", "Deleting a rule that does not exist succeeds", source=MODEL)
def test_delete_twice(events: Events) -> None:
    events.api.delete_rule(Name="nothing")


@row("events.rule.update", "PutRule on a rule that exists changes it and keeps its targets", source=RECORDED)
def test_update_keeps_targets(events: Events) -> None:
    queue = events.queue("q")
    rule = events.rule(pattern={"source": ["other"]})
    events.target(rule, queue.arn)
    events.put()
    events.rule()
    identity = events.put()
    assert [event["id"] for event in events.events(queue, settle=0.1)] == [identity]


@row("events.bus.delete_with_rules", "An event bus with rules cannot be deleted", source=REPORTED)
def test_delete_bus_with_rules(events: Events) -> None:
    events.rule(bus="fleet")
    assert error(events.api.delete_event_bus, Name="fleet") == (
        "ValidationException",
        "EventBus can't be deleted since it has rules.",
    )
    events.api.delete_rule(Name="rule", EventBusName="fleet")
    events.api.delete_event_bus(Name="fleet")


@row("events.bus.delete_default", "The default bus cannot be deleted", source=RECORDED)
def test_delete_default_bus(events: Events) -> None:
    assert error(events.api.delete_event_bus, Name="default") == (
        "ValidationException",
        "Cannot delete event bus default.",
    )


@row("events.bus.delete_missing", "Deleting a bus that does not exist succeeds", source=RECORDED)
def test_delete_missing_bus(events: Events) -> None:
    events.api.delete_event_bus(Name="nowhere")


@row("events.bus.create_twice", "A bus name that is taken is refused", source=RECORDED)
def test_create_twice(events: Events) -> None:
    events.api.create_event_bus(Name="fleet")
    assert error(events.api.create_event_bus, Name="fleet") == (
        "ResourceAlreadyExistsException",
        "Event bus fleet already exists.",
    )


@row("events.bus.name", "A custom bus has no slash in its name", source=MODEL)
def test_name_of_bus(events: Events) -> None:
    assert error(events.api.create_event_bus, Name="a/b")[0] == "ValidationException"
