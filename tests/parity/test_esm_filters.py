"""Filter criteria: which messages a function gets to see, and what becomes of the others."""

from __future__ import annotations

import json
from typing import Any

from .conftest import Aws
from .esm_kit import GUIDE, RECORDED, mapped, prepared
from .rows import ours, row
from .sqs_helpers import counts, refused

FILTERS = f"{GUIDE}, Using event filtering with an Amazon SQS event source"


def criteria(*patterns: Any) -> dict[str, Any]:
    texts = [pattern if isinstance(pattern, str) else json.dumps(pattern) for pattern in patterns]
    return {"Filters": [{"Pattern": text} for text in texts]}


def delivered(aws: Aws, bodies: list[str], *patterns: Any, **attributes: Any) -> list[str]:
    """Which of ``bodies`` a function sees through filters. What it does not see must be gone, from both queues."""
    work = prepared(aws, max_receives=1)
    work.send(*bodies, **attributes)
    work.map(FilterCriteria=criteria(*patterns))
    work.drained()
    assert work.dead
    assert counts(aws.client("sqs"), work.dead) == (0, 0, 0)
    return sorted(body for call in work.told() for body in call.bodies)


@row(
    "lambda.esm.filter",
    "A message that matches no pattern is deleted: the function does not see it, and no dead-letter queue gets it.",
    source=f"{FILTERS}; {RECORDED} test_sqs_event_filter",
)
def test_what_does_not_match_is_deleted(aws: Aws) -> None:
    good, bad = json.dumps({"kind": "a"}), json.dumps({"kind": "b"})
    assert delivered(aws, [good, bad], {"body": {"kind": ["a"]}}) == [good]


# Of each: a rule for the body, a body that it takes, one that it does not.
Rules = list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]]


def check(aws: Aws, rules: Rules) -> None:
    """See that each rule takes the one body and not the other: a queue for each, one function for all."""
    first = prepared(aws)
    works = [first, *(prepared(aws, f"work-{number}", shared=first) for number in range(1, len(rules)))]
    for work, (rule, good, bad) in zip(works, rules, strict=True):
        work.send(json.dumps(bad), json.dumps(good))
        work.map(wait=False, FilterCriteria=criteria({"body": rule}))
    for work in works:
        work.drained()
    calls = first.told()
    seen = {record["eventSourceARN"]: record["body"] for call in calls for record in call.records}
    assert sum(call.count for call in calls) == len(rules)
    assert seen == {work.arn: json.dumps(good) for work, (_, good, _) in zip(works, rules, strict=True)}


@row(
    "lambda.esm.filter.operators",
    "Patterns on the body have the operators of EventBridge: exact values, and, or, prefix, numeric, exists, "
    "anything-but …",
    source=f"{RECORDED} test_sqs_event_filter; {GUIDE}, Filter rule syntax",
)
def test_operators(aws: Aws) -> None:
    check(
        aws,
        [
            ({"k": ["a", "b"]}, {"k": "b"}, {"k": "c"}),
            ({"k": ["a"], "n": [1]}, {"k": "a", "n": 1}, {"k": "a", "n": 2}),
            ({"k": [{"prefix": "yes"}]}, {"k": "yes-1"}, {"k": "no"}),
            ({"n": [{"numeric": [">=", 100, "<", 200]}]}, {"n": 100}, {"n": 200}),
            ({"k": [{"exists": True}]}, {"k": "any"}, {"other": "any"}),
            ({"k": [{"anything-but": ["a"]}]}, {"k": "b"}, {"k": "a"}),
            ({"a": {"b": [None]}}, {"a": {"b": None}}, {"a": {"b": 1}}),
        ],
    )


@row(
    "lambda.esm.filter.operators.more",
    "The whole pattern language of EventBridge holds: suffix, equals-ignore-case, wildcard, $or, nested anything-but.",
    source=f"{GUIDE}, Filter rule syntax: the same set of syntax and rules as EventBridge",
)
def test_the_rest_of_the_language(aws: Aws) -> None:
    check(
        aws,
        [
            ({"k": [{"suffix": ".png"}]}, {"k": "a.png"}, {"k": "a.jpg"}),
            ({"k": [{"equals-ignore-case": "ALICE"}]}, {"k": "alice"}, {"k": "bob"}),
            ({"k": [{"wildcard": "a*c"}]}, {"k": "abc"}, {"k": "abd"}),
            ({"$or": [{"a": [1]}, {"b": [1]}]}, {"b": 1}, {"b": 2}),
            ({"k": [{"anything-but": {"prefix": "x"}}]}, {"k": "ab"}, {"k": "xb"}),
        ],
    )


@row(
    "lambda.esm.filter.any",
    "Several patterns are joined by OR.",
    source=f"{GUIDE}, Control which events Lambda sends to your function",
)
def test_several_patterns(aws: Aws) -> None:
    bodies = [json.dumps({"k": value}) for value in ("a", "b", "c")]
    assert delivered(aws, bodies, {"body": {"k": ["a"]}}, {"body": {"k": ["c"]}}) == [bodies[0], bodies[2]]


@row(
    "lambda.esm.filter.text_body",
    "A body that is not JSON is dropped when the pattern for the body is JSON.",
    source=f"{FILTERS}; {RECORDED} test_sqs_event_filter[valid-json-filter]",
)
def test_a_body_of_text_against_a_pattern_of_json(aws: Aws) -> None:
    good = json.dumps({"k": "a"})
    assert delivered(aws, [good, "plain"], {"body": {"k": ["a"]}}) == [good]
    assert delivered(aws.__class__(aws.endpoint), ["plain"], {"body": {"k": [{"exists": False}]}}) == []


@row(
    "lambda.esm.filter.text_pattern",
    "A pattern of text matches bodies of text; a body that is JSON is dropped.",
    source=f"{GUIDE} as of 2022, Lambda event filtering: Properly filtering Amazon SQS messages",
)
def test_a_pattern_of_text(aws: Aws) -> None:
    assert delivered(aws, ["plain", "other", json.dumps({"k": "plain"})], {"body": ["plain"]}) == ["plain"]


@row(
    "lambda.esm.filter.no_body",
    "Without a pattern for the body only the other keys are matched, whatever the body is.",
    source=f"{GUIDE} as of 2022, Lambda event filtering: Properly filtering Amazon SQS messages",
)
def test_no_pattern_for_the_body(aws: Aws) -> None:
    attributes = {"MessageAttributes": {"kind": {"DataType": "String", "StringValue": "a"}}}
    bodies = ["plain", json.dumps({"k": 1})]
    wanted = {"messageAttributes": {"kind": {"stringValue": ["a"]}}}
    assert delivered(aws, bodies, wanted, **attributes) == sorted(bodies)
    other = {"messageAttributes": {"kind": {"stringValue": ["b"]}}}
    assert delivered(aws.__class__(aws.endpoint), bodies, other, **attributes) == []


@ours("AWS's guide says 'valid JSON' and no more: whether a bare number is JSON or text is not known")
def test_a_bare_number_is_text(aws: Aws) -> None:
    assert delivered(aws, ["42"], {"body": ["42"]}) == ["42"]


@row(
    "lambda.esm.filter.invalid",
    "A pattern that is null, a text, or has a value that is no list or an empty one is refused.",
    source=f"{RECORDED} test_sqs_invalid_event_filter",
)
def test_invalid_patterns(aws: Aws) -> None:
    work = prepared(aws)
    for pattern in ("null", "simple string", '{"eventSource": "aws:sqs"}', '{"eventSource": []}'):
        with refused("InvalidParameterValueException", "Invalid filter pattern definition.", 400):
            work.map(FilterCriteria=criteria(pattern))


@row(
    "lambda.esm.filter.update",
    "An update changes the filter criteria; an empty object removes them.",
    source=f"{GUIDE}, Control which events Lambda sends to your function",
)
def test_updating_the_filter(aws: Aws) -> None:
    work = mapped(aws, FilterCriteria=criteria({"body": {"k": ["a"]}}))
    work.send(json.dumps({"k": "b"}))
    work.drained()
    work.update(FilterCriteria=criteria({"body": {"k": ["b"]}}))
    work.send(json.dumps({"k": "b"}))
    work.calls(1)
    assert "FilterCriteria" in aws.client("lambda").get_event_source_mapping(UUID=work.uuid)
    work.update(FilterCriteria={})
    assert "FilterCriteria" not in aws.client("lambda").get_event_source_mapping(UUID=work.uuid)
    work.send("anything")
    assert work.calls(2)[1].bodies == ["anything"]


@row(
    "lambda.esm.filter.most",
    "A mapping has at most five filters.",
    source=f"{GUIDE}, Control which events Lambda sends to your function",
)
def test_five_filters(aws: Aws) -> None:
    work = prepared(aws)
    with refused("InvalidParameterValueException"):
        work.map(FilterCriteria=criteria(*[{"body": {"k": [str(number)]}} for number in range(6)]))
    work.map(FilterCriteria=criteria(*[{"body": {"k": [str(number)]}} for number in range(5)]))
