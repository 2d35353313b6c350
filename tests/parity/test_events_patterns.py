"""The ordinary path: which events a rule matches, and the form in which they arrive."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from .conftest import Aws
from .events_kit import DETAIL_TYPE, GUIDE, PATTERN, RECORDED, SOURCE, Events
from .rows import row

PROBLEM = "a problem reported in public, and AWS's documented semantics of patterns"


@pytest.fixture
def events(aws: Aws) -> Events:
    return Events(aws)


def matches(events: Events, pattern: dict[str, Any], detail: Any) -> bool:
    event = {
        "version": "0",
        "id": "1",
        "detail-type": DETAIL_TYPE,
        "source": SOURCE,
        "account": events.aws.account,
        "time": "2026-01-01T00:00:00Z",
        "region": events.aws.region,
        "resources": [],
        "detail": detail,
    }
    answer = events.api.test_event_pattern(EventPattern=json.dumps(pattern), Event=json.dumps(event))
    return bool(answer["Result"])


@row(
    "events.pattern.operators",
    "Patterns match by value, prefix, suffix, anything-but, numeric, exists, wildcard",
    source=RECORDED,
)
@pytest.mark.parametrize(
    ("condition", "yes", "no"),
    [
        (["a", "b"], {"k": "b"}, {"k": "c"}),
        ([1], {"k": 1.0}, {"k": "1"}),
        ([None], {"k": None}, {"k": ""}),
        ([{"prefix": "ag"}], {"k": "agent"}, {"k": "magent"}),
        ([{"prefix": {"equals-ignore-case": "AG"}}], {"k": "agent"}, {"k": "gent"}),
        ([{"suffix": ".png"}], {"k": "x.png"}, {"k": "x.jpg"}),
        ([{"equals-ignore-case": "YES"}], {"k": "yes"}, {"k": "no"}),
        ([{"anything-but": ["a", "b"]}], {"k": "c"}, {"k": "a"}),
        ([{"anything-but": "a"}], {"k": "b"}, {}),
        ([{"anything-but": {"prefix": "in"}}], {"k": "out"}, {"k": "init"}),
        ([{"numeric": [">", 0, "<=", 5]}], {"k": 5}, {"k": 5.1}),
        ([{"numeric": ["=", 3]}], {"k": 3}, {"k": "3"}),
        ([{"exists": True}], {"k": None}, {"j": 1}),
        ([{"exists": False}], {"j": 1}, {"k": 1}),
        ([{"wildcard": "a*z"}], {"k": "abcz"}, {"k": "abc"}),
        ([{"cidr": "10.0.0.0/24"}], {"k": "10.0.0.255"}, {"k": "10.0.1.0"}),
        (["a", {"numeric": ["<", 0]}], {"k": -1}, {"k": 1}),
    ],
)
def test_operators(events: Events, condition: list, yes: dict, no: dict) -> None:
    pattern = PATTERN | {"detail": {"k": condition}}
    assert matches(events, pattern, yes)
    assert not matches(events, pattern, no)


@row("events.pattern.array", "An array in the event matches when any element does (P19)", source=RECORDED)
def test_array_matches_by_intersection(events: Events) -> None:
    pattern = {"detail": {"type": ["1", "2"]}}
    assert matches(events, pattern, {"type": ["3", "1"]})
    assert not matches(events, pattern, {"type": ["3", "4"]})
    assert not matches(events, pattern, {"type": []})


@row(
    "events.pattern.anything_but_wildcard",
    "anything-but takes a wildcard as an object, not in a list (P21)",
    source=PROBLEM,
)
def test_anything_but_wildcard(events: Events) -> None:
    pattern = {"detail": {"path": [{"anything-but": {"wildcard": "*/tmp/*"}}]}}
    assert matches(events, pattern, {"path": "a/b"})
    assert not matches(events, pattern, {"path": "a/tmp/b"})
    with pytest.raises(ClientError, match="InvalidEventPatternException"):
        matches(events, {"detail": {"path": [{"anything-but": [{"wildcard": "*"}]}]}}, {})


@row("events.pattern.or", "$or needs one of its alternatives; a key that the event lacks fails (P22)", source=PROBLEM)
def test_or(events: Events) -> None:
    pattern = {"detail": {"$or": [{"a": [1]}, {"b": [{"numeric": [">", 5]}]}], "c": ["x"]}}
    assert matches(events, pattern, {"a": 1, "c": "x"})
    assert matches(events, pattern, {"b": 6, "c": "x"})
    assert not matches(events, pattern, {"a": 2, "b": 5, "c": "x"})
    assert not matches(events, pattern, {"c": "x"})
    assert not matches(events, pattern, {"a": 1})


@row("events.pattern.unknown_key", "A key that the event does not have makes a pattern fail (P22)", source=PROBLEM)
def test_key_that_is_not_there(events: Events) -> None:
    assert not matches(events, PATTERN | {"detail": {"missing": ["x"]}}, {"a": 1})
    assert not matches(events, PATTERN | {"nonesuch": ["x"]}, {"a": 1})


@row("events.pattern.several_rules", "Every rule that matches gets the event, all with the same id", source=RECORDED)
def test_several_rules(events: Events) -> None:
    queues = {name: events.queue(name) for name in ("by-source", "by-detail", "other")}
    events.target(events.rule("by-source"), queues["by-source"].arn)
    events.target(events.rule("by-detail", pattern={"detail": {"n": [1]}}), queues["by-detail"].arn)
    events.target(events.rule("other", pattern={"source": ["other"]}), queues["other"].arn)
    identity = events.put({"n": 1})
    assert events.events(queues["by-source"])[0]["id"] == identity
    assert events.events(queues["by-detail"])[0]["id"] == identity
    events.nothing_in(queues["other"], within=0.1)


@row("events.pattern.buses", "A rule sees the events of its own bus only", source=GUIDE)
def test_buses_are_apart(events: Events) -> None:
    queue = events.queue("q")
    events.target(events.rule(bus="fleet"), queue.arn)
    events.put()
    events.nothing_in(queue)


@row("events.pattern.disabled", "A disabled rule matches nothing until it is enabled", source=GUIDE)
def test_disabled_rule(events: Events) -> None:
    queue = events.queue("q")
    events.target(events.rule(), queue.arn)
    events.api.disable_rule(Name="rule")
    events.put()
    events.api.enable_rule(Name="rule")
    identity = events.put()
    assert [event["id"] for event in events.events(queue, settle=0.1)] == [identity]


@row("events.envelope", "The body is compact JSON in AWS's order of members; detail is an object", source=RECORDED)
def test_envelope(events: Events) -> None:
    queue = events.queue("q")
    events.target(events.rule(), queue.arn)
    identity = events.put({"a": {"b": [1, "ü"]}}, Resources=["arn:aws:lab:::x"])
    body = events.messages(queue)[0]["Body"]
    event = json.loads(body)
    assert event == {
        "version": "0",
        "id": identity,
        "detail-type": DETAIL_TYPE,
        "source": SOURCE,
        "account": events.aws.account,
        "time": event["time"],
        "region": events.aws.region,
        "resources": ["arn:aws:lab:::x"],
        "detail": {"a": {"b": [1, "ü"]}},
    }
    assert list(event) == [
        "version", "id", "detail-type", "source", "account", "time", "region", "resources", "detail"
    ]  # fmt: skip
    assert body == json.dumps(event, separators=(",", ":"), ensure_ascii=False)


@row("events.input", "Input, InputPath and InputTransformer shape what the target receives", source=RECORDED)
@pytest.mark.parametrize(
    ("given", "body"),
    [
        ({"Input": '{"fixed": true}'}, '{"fixed": true}'),
        ({"InputPath": "$.detail"}, '{"command":"update","payload":{"id":"7","tags":["a","b"]}}'),
        ({"InputPath": "$.detail.payload.id"}, '"7"'),
        (
            {"InputTransformer": {"InputPathsMap": {"c": "$.detail.command"}, "InputTemplate": '{"command": <c>}'}},
            '{"command": "update"}',
        ),
        (
            {"InputTransformer": {"InputPathsMap": {"p": "$.detail.payload"}, "InputTemplate": '"got <p>"'}},
            '"got {id:7,tags:[a,b]}"',
        ),
        (
            {"InputTransformer": {"InputPathsMap": {"p": "$.detail.payload"}, "InputTemplate": '{"p": <p>}'}},
            '{"p": {"id":"7","tags":["a","b"]}}',
        ),
        (
            {"InputTransformer": {"InputPathsMap": {"x": "$.detail.none"}, "InputTemplate": '"type <x>!"'}},
            '"type !"',
        ),
        ({"InputTransformer": {"InputTemplate": '"<aws.events.rule-name>"'}}, '"rule"'),
    ],
)
def test_input(events: Events, given: dict, body: str) -> None:
    queue = events.queue("q")
    events.target(events.rule(), queue.arn, **given)
    events.put({"command": "update", "payload": {"id": "7", "tags": ["a", "b"]}})
    received = events.messages(queue)[0]["Body"]
    if body.startswith("{"):
        assert json.loads(received) == json.loads(body)  # white space around a template's own members is not recorded
    else:
        assert received == body
