"""The ordinary path: which events a rule matches, and the form in which they arrive."""

from __future__ import annotations

import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from .conftest import Aws
from .events_kit import DETAIL_TYPE, GUIDE, MODEL, PATTERN, RECORDED, SOURCE, Events
from .rows import row

PROBLEM = "a problem reported in public, and AWS's documented semantics of patterns"
RULER = "AWS's Event Ruler, with which EventBridge matches: README"


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


@row("events.pattern.dots", "A dot in a key, of pattern or event, is a step down", source=f"{RECORDED}; {GUIDE}")
def test_dots(events: Events) -> None:
    for pattern in ({"state": {"status": ["running"]}}, {"state.status": ["running"]}):
        for detail in ({"state": {"status": "running"}}, {"state.status": "running"}):
            assert matches(events, {"detail": pattern}, detail)
        assert not matches(events, {"detail": pattern}, {"state.status": {"status": "running"}})
        assert not matches(events, {"detail": pattern}, {"state.status": "stopped"})
    assert matches(events, {"detail": {"a.b": {"c": [1]}}}, {"a": {"b.c": 1}})
    assert matches(events, {"detail": {"a.b": [{"exists": False}]}}, {"a.c": 1})
    assert not matches(events, {"detail": {"a.b": [{"exists": False}]}}, {"a.b": 1})


@row(
    "events.pattern.array_of_objects",
    "What a pattern asks of objects in an array must hold in one of them",
    source=RULER,
)
def test_array_of_objects(events: Events) -> None:
    team = [{"first": "Anna", "last": "Smith"}, {"first": "John", "last": "Doe"}]
    for detail in ({"team": team}, {"team": [team]}, {"team": [[team[1]], [], [team[0]]]}):
        assert matches(events, {"detail": {"team": {"first": ["Anna"], "last": ["Smith"]}}}, detail)
        assert not matches(events, {"detail": {"team": {"first": ["Anna"], "last": ["Doe"]}}}, detail)
        assert matches(events, {"detail": {"team": {"first": ["Anna", "John"], "last": ["Doe"]}}}, detail)
    parts = {"x": [{"a": 1}, {"b": 2}], "y": [{"a": 1}]}
    assert not matches(events, {"detail": {"x": {"a": [1], "b": [2]}}}, parts)
    assert matches(events, {"detail": {"x": {"b": [2]}, "y": {"a": [1]}}}, parts)  # two arrays are two


@row(
    "events.pattern.exists_leaf", "exists asks for a value: no object, no empty array (P22)", source=f"{GUIDE}; {RULER}"
)
def test_exists_asks_for_a_leaf(events: Events) -> None:
    for detail in ({"k": {"j": 1}}, {"k": {}}, {"k": []}, {"k": [{}, []]}, {}):
        assert matches(events, {"detail": {"k": [{"exists": False}]}}, detail | {"other": 1})
        assert not matches(events, {"detail": {"k": [{"exists": True}]}}, detail | {"other": 1})
    for value in (None, "", 0, False, [1], [[None]]):
        assert matches(events, {"detail": {"k": [{"exists": True}]}}, {"k": value})
        assert not matches(events, {"detail": {"k": [{"exists": False}]}}, {"k": value})
    assert matches(events, {"detail": {"k": {"j": [{"exists": True}]}}}, {"k": [{"i": 1}, {"j": 2}]})


@row(
    "events.pattern.types",
    "A text is no number, true is not 1, null is not the empty text; texts match as they are",
    source=f"{RECORDED}; {GUIDE}",
)
@pytest.mark.parametrize(
    ("condition", "yes", "no"),
    [
        (1, [1, 1.0, [2, 1]], ["1", True, [True], 1.5]),
        (True, [True], [1, "true", False]),
        (None, [None], ["", "null", 0, False, [], {}]),
        ("", [""], [None, " ", []]),
        ("A", ["A"], ["a", "A "]),
        ({"numeric": [">=", 1]}, [1, 2.5, 1e3], ["1", True, None]),
        ({"prefix": ""}, ["a", ""], [1, None, True]),
        ({"suffix": "1"}, ["1", "21"], [1, 21]),
        ({"prefix": {"equals-ignore-case": "AB"}}, ["abc", "Abc"], [1, None, "a"]),
        ({"suffix": {"equals-ignore-case": "AB"}}, ["cab"], [1, None, "b"]),
        ({"wildcard": "*"}, ["", "a"], [1, None, True]),
        ({"wildcard": "a\\*b"}, ["a*b"], ["acb", "a\\*b"]),
        ({"equals-ignore-case": "TRUE"}, ["true", "True"], [True]),
        ({"anything-but": "a"}, ["b", 1, None, True, ["a", "b"]], ["a", ["a"], [], {}]),
        ({"anything-but": [1, 2]}, [3, "1", None], [1, 2.0, [1, 2]]),
        ({"anything-but": {"prefix": "a"}}, ["b", 1, None], ["ab", "a"]),
        ({"anything-but": {"suffix": ["a", "b"]}}, ["c", 1, None], ["ca", "cb"]),
        ({"anything-but": {"equals-ignore-case": ["a", "b"]}}, ["c", 1, None], ["A", "B"]),
        ({"anything-but": {"wildcard": "a*"}}, ["b", 1, None], ["a", "abc"]),
        ({"cidr": "10.0.0.5/24"}, ["10.0.0.255"], ["10.0.1.0", "x", None]),
        ({"cidr": "2001:db8::/32"}, ["2001:db8::1"], ["2001:db9::1", "10.0.0.1"]),
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_types(events: Events, condition: Any, yes: list, no: list) -> None:
    wrong = [
        value
        for expected, values in ((True, yes), (False, no))
        for value in values
        if matches(events, {"detail": {"k": [condition]}}, {"k": value}) is not expected
    ]
    assert not wrong
    assert not matches(events, {"detail": {"k": [condition]}}, {"j": 1})  # a key that is not there: never


@row("events.pattern.duplicates", "Of a key that a pattern or an event has twice the last one counts", source=GUIDE)
def test_duplicates(events: Events) -> None:
    event = (
        '{"version": "0", "id": "1", "detail-type": "t", "source": "first", "source": "last", "account": "1", '
        '"time": "2026-01-01T00:00:00Z", "region": "us-east-1", "resources": [], "detail": {"k": 1, "k": 2}}'
    )
    for pattern, expected in (
        ('{"source": ["last"], "detail": {"k": [2]}}', True),
        ('{"source": ["first"], "source": ["last"], "detail": {"k": [1], "k": [2]}}', True),
        ('{"source": ["last"], "source": ["first"]}', False),
        ('{"detail": {"k": [1]}}', False),
        ('{"detail": {"a": {"b": [3]}, "a.b": [{"exists": false}]}}', True),
    ):
        assert events.api.test_event_pattern(EventPattern=pattern, Event=event)["Result"] is expected, pattern


@row(
    "events.pattern.event",
    "TestEventPattern needs an object with id, account, source, time, region and detail-type; a text is no detail",
    source=f"{RECORDED}; {MODEL}",
)
def test_event_of_a_test(events: Events) -> None:
    whole = dict.fromkeys(("id", "account", "source", "time", "region", "detail-type"), "x")
    pattern = json.dumps({"source": ["x"]})
    assert events.api.test_event_pattern(EventPattern=pattern, Event=json.dumps(whole))["Result"]
    lacking = [{key: value for key, value in whole.items() if key != missing} for missing in whole]
    for event in ("plain text", '["a"]', "{}", "1", *map(json.dumps, lacking)):
        with pytest.raises(ClientError) as refused:
            events.api.test_event_pattern(EventPattern=pattern, Event=event)
        error = refused.value.response["Error"]
        assert (error["Code"], error["Message"]) == ("ValidationException", "Parameter Event is not valid.")
    assert matches(events, {"detail": {"k": ["v"]}}, {"k": "v"})
    assert not matches(events, {"detail": {"k": ["v"]}}, '{"k": "v"}')


@row(
    "events.pattern.refused",
    "A pattern that is not valid is refused with InvalidEventPatternException and AWS's reason",
    source=RECORDED,
)
@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (42, '"k" must be an object or an array'),
        ("a", '"k" must be an object or an array'),
        ([], "Empty arrays are not allowed"),
        ([{"EXISTS": True}], "Unrecognized match type EXISTS"),
        ([{"NUMERIC": ["=", 5]}], "Unrecognized match type NUMERIC"),
        ([{"numeric": 10}], "Value of numeric must be an array."),
        ([{"numeric": [">", 0, ">", 0]}], "Bad numeric range operator: >"),
        ([{"numeric": [">", 0, "<"]}], "Value of < must be numeric"),
        ([{"prefix": 123}], "prefix match pattern must be a string"),
        ([{"suffix": ["a"]}], "suffix match pattern must be a string"),
        ([{"equals-ignore-case": ["a"]}], "equals-ignore-case match pattern must be a string"),
        ([{"wildcard": 123}], "wildcard match pattern must be a string"),
        ([{"wildcard": "a:**:b"}], "Consecutive wildcard characters at pos"),
        ([{"cidr": ["10.0.0.0/8"]}], "prefix match pattern must be a string"),
        ([{"cidr": "10.0.0.0"}], "Malformed CIDR, one '/' required"),
        ([{"cidr": "10.0.0.0/x"}], "Malformed CIDR, mask bits must be an integer"),
        ([{"cidr": "xx.11.xx/8"}], "Nonstandard IP address: xx.11.xx"),
        ([{"anything-but": None}], "Value of anything-but must be an array or single string/number value."),
        ([{"anything-but": ["a", None]}], "Inside anything but list, start|null|boolean is not supported."),
        ([{"anything-but": {"prefix": ""}}], "Null prefix/suffix not allowed"),
        ([{"anything-but": {"prefix": [1, "a"]}}], "prefix/suffix match pattern must be a string"),
        ([{"anything-but": {"suffix": 1}}], "prefix/suffix match pattern must be a string"),
        ([{"anything-but": {"wildcard": [1, "a"]}}], "wildcard match pattern must be a string"),
        (
            [{"anything-but": {"equals-ignore-case": 1}}],
            "Inside anything-but/equals-ignore-case list, number|start|null|boolean is not supported.",
        ),
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_refused(events: Events, value: Any, reason: str) -> None:
    for pattern in ({"detail": {"k": value}}, {"detail": {"$or": [{"k": value}, {"j": [1]}]}}):
        with pytest.raises(ClientError) as refused:
            matches(events, pattern, {})
        error = refused.value.response["Error"]
        assert error["Code"] == "InvalidEventPatternException"
        if "$or" not in pattern["detail"]:  # within it, the reason is that of the second reading, in which $or is a key
            assert error["Message"].startswith(f"Event pattern is not valid. Reason: {reason}")
        with pytest.raises(ClientError, match="InvalidEventPatternException"):
            events.rule(pattern=pattern)


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
