"""What hostmode adds to EventBridge that LocalStack is not needed for: policies, wildcards, input templates."""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from parity.events_delivery import Failure

HOSTMODE = Path(__file__).parents[2] / "infra" / "localstack"
QUEUE = "arn:aws:sqs:us-east-1:123456789012:q"
RULE = "arn:aws:events:us-east-1:123456789012:rule/r"
SERVICE = "events.amazonaws.com"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Modules of ``hostmode`` by name: they are installed beside LocalStack, not here."""
    monkeypatch.syspath_prepend(str(HOSTMODE))

    def load(name: str) -> Any:
        return importlib.import_module(f"hostmode.{name}")

    return load


def statement(effect: str = "Allow", **members: Any) -> dict[str, Any]:
    base = {"Principal": {"Service": SERVICE}, "Action": "sqs:SendMessage", "Resource": QUEUE}
    return {"Effect": effect, **{name: value for name, value in (base | members).items() if value is not None}}


def condition(operator: str, wanted: Any, key: str = "aws:SourceArn") -> dict[str, Any]:
    return {operator: {key: wanted}}


@pytest.mark.parametrize(
    ("statements", "allowed"),
    [
        ([], False),
        ([statement()], True),
        (statement(), True),
        ([statement(), statement("Deny")], False),
        ([statement(), statement("Deny", Action="sqs:ReceiveMessage")], True),
        ([statement(Principal="*")], True),
        ([statement(Principal={"AWS": ["123456789012", "*"]})], True),
        ([statement(Principal={"AWS": "123456789012"})], False),
        ([statement(Principal={"Service": ["sns.amazonaws.com", SERVICE]})], True),
        ([statement(Principal={"Service": "sns.amazonaws.com"})], False),
        ([statement(Principal=None, NotPrincipal={"Service": "sns.amazonaws.com"})], True),
        ([statement(Action=["SQS:send*"])], True),
        ([statement(Action=None, NotAction="sqs:ReceiveMessage")], True),
        ([statement(Resource=["arn:aws:sqs:*:123456789012:?"])], True),
        ([statement(Resource="arn:aws:sqs:us-east-1:123456789012:Q")], False),
        ([statement(Condition=condition("ArnEquals", RULE))], True),
        ([statement(Condition=condition("ArnLike", "arn:aws:events:*:*:rule/*"))], True),
        ([statement(Condition=condition("ArnNotLike", "arn:aws:events:*:*:rule/*"))], False),
        ([statement(Condition=condition("StringEquals", ["x", RULE], "AWS:SOURCEARN"))], True),
        ([statement(Condition=condition("StringNotEquals", ["x", RULE]))], False),
        ([statement(Condition=condition("StringEquals", "x", "aws:SourceOwner"))], False),
        ([statement(Condition=condition("StringNotEquals", "x", "aws:SourceOwner"))], True),
        ([statement(Condition=condition("StringEqualsIfExists", "x", "aws:SourceOwner"))], True),
        ([statement(Condition=condition("Null", "true", "aws:SourceOwner"))], True),
        ([statement(Condition=condition("Null", False, "aws:SourceOwner"))], False),
        ([statement(Condition=condition("Bool", True, "aws:PrincipalIsAWSService"))], True),
        ([statement(Condition=condition("NumericLessThan", "5", "aws:MultiFactorAuthAge"))], False),
        ([statement(Condition=condition("ArnEquals", RULE) | condition("Null", "true"))], False),
    ],
)
def test_policy(module: Callable[[str], Any], statements: Any, allowed: bool) -> None:
    keys = {"aws:sourcearn": RULE, "aws:sourceaccount": "123456789012", "aws:principalisawsservice": "true"}
    policy = {"Version": "2012-10-17", "Statement": statements}
    for given in (policy, json.dumps(policy)):
        answer = module("events_policies").allows(
            given, service=SERVICE, action="sqs:SendMessage", resource=QUEUE, keys=keys
        )
        assert answer is allowed


@pytest.mark.parametrize("policy", [None, "", {}])
def test_no_policy_allows_nothing(module: Callable[[str], Any], policy: Any) -> None:
    arguments = {"service": SERVICE, "action": "sqs:SendMessage", "resource": QUEUE, "keys": {}}
    assert not module("events_policies").allows(policy, **arguments)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("a*z", ["az", "abcz", "a\nz"], ["a", "azb", "AZ"]),
        ("*", ["", "x"], []),
        ("a.b", ["a.b"], ["axb"]),
        (r"a\*", ["a*"], ["ab", "a"]),
        (r"a\\*", ["a\\", "a\\b"], ["ab"]),
    ],
)
def test_wildcard(module: Callable[[str], Any], pattern: str, yes: list[str], no: list[str]) -> None:
    compiled = module("events_patterns").wildcard(pattern)
    assert [text for text in (*yes, *no) if compiled.fullmatch(text)] == yes


@pytest.mark.parametrize(
    ("condition", "bad"),
    [
        ({"anything-but": ["a", 1, 1.5]}, False),
        ({"anything-but": {"wildcard": "a*"}}, False),
        ({"anything-but": [{"wildcard": "a*"}]}, True),
        ({"anything-but": [None]}, True),
        ({"anything-but": [True]}, True),
        ({"prefix": ["a"]}, False),
        ("anything-but", False),
    ],
)
def test_anything_but_list(module: Callable[[str], Any], condition: Any, bad: bool) -> None:
    assert module("events_patterns").bad_list(condition) is bad


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", None),
        ("a*b*", None),
        (r"a\**", None),
        (r"\\*", None),
        ("a**", "Consecutive wildcard characters at pos 2"),
        ("ü**", "Consecutive wildcard characters at pos 3"),
        (r"a\b", "Invalid escape character at pos 2"),
        ("\\", "Invalid escape character at pos 1"),
    ],
)
def test_wildcards_that_are_refused(module: Callable[[str], Any], text: str, reason: str | None) -> None:
    assert module("events_patterns").bad_wildcard(text) == reason


@pytest.mark.parametrize(
    ("condition", "refused"),
    [
        ({"anything-but": True}, True),
        ({"anything-but": []}, True),
        ({"anything-but": ["a", 1]}, True),
        ({"anything-but": [1, 1.5]}, False),
        ({"suffix": {}}, True),
        ({"suffix": {"equals-ignore-case": 1}}, True),
        ({"prefix": {"equals-ignore-case": "a"}}, False),
        ({"numeric": [">", 1, "<", True]}, True),
        ({"numeric": [">", 1, "<", 2]}, False),
        ({"numeric": []}, False),  # these two LocalStack refuses itself
        ({}, False),
        (None, False),
    ],
)
def test_conditions_that_are_refused(module: Callable[[str], Any], condition: Any, refused: bool) -> None:
    assert (module("events_patterns").refusal(condition) is not None) is refused


@pytest.mark.parametrize(
    ("value", "condition", "verdict"),
    [
        (1, True, False),
        (True, 1, False),
        (1.0, 1, True),
        (None, "", False),
        (True, {"numeric": [">=", 1]}, False),
        (1, {"prefix": {"equals-ignore-case": "1"}}, False),
        ("10.0.0.9", {"cidr": "10.0.0.5/24"}, True),
        (1, {"cidr": "0.0.0.0/0"}, False),
        ("x", {"cidr": "0.0.0.0/0"}, False),
        (True, {"anything-but": [1, 2]}, True),
        (2.0, {"anything-but": [1, 2]}, False),
        ("a", {"prefix": "a"}, None),
    ],
)
def test_values_that_localstack_judges_wrongly(
    module: Callable[[str], Any], value: Any, condition: Any, verdict: bool | None
) -> None:
    assert module("events_patterns").apart(value, condition) is verdict


VALUES = {"n": 3, "zero": 0, "no": False, "list": [1, 2], "text": "a b", "object": {"k": "v"}, "missing": ""}


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ('"n is <n>, <zero>, <no>, <list>, <missing>."', "n is 3, 0, false, [1,2], ."),
        ('"<object>"', "{k:v}"),
        (
            '{"n": <n>, "t": <text>, "in": "<n> of <text>", "m": <missing>}',
            {"n": 3, "t": "a b", "in": "3 of a b", "m": ""},
        ),
        ('{"o": <object>, "q": "\\"<n>\\""}', {"o": {"k": "v"}, "q": '"3"'}),
        ("[<n>, <list>]", [3, [1, 2]]),
        ('"<unknown> stays"', "<unknown> stays"),
    ],
)
def test_template(module: Callable[[str], Any], template: str, value: Any) -> None:
    assert module("events_input").filled(template, VALUES) == value


def test_template_that_is_no_json(module: Callable[[str], Any]) -> None:
    with pytest.raises(Failure) as raised:
        module("events_input").filled('{"n": <n>', VALUES)
    assert raised.value.code == "INVALID_JSON"
    assert not raised.value.retried


def test_values_of_a_template(module: Callable[[str], Any]) -> None:
    event = {"detail": {"zero": 0, "null": None}}
    paths = {"zero": "$.detail.zero", "null": "$.detail.null", "missing": "$.detail.none"}
    assert module("events_input").template_values(paths, event) == {"zero": 0, "null": None, "missing": ""}
