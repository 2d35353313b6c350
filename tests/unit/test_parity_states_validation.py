"""What is wrong with a definition, without the interpreter."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parity import states_validation
from parity.states_schema import FIELDS
from parity.states_validation import diagnostics

LAMBDA = "arn:aws:states:::lambda:invoke"
PASS = {"Type": "Pass", "End": True}
DONE = {"Type": "Succeed"}
SCALARS = ["$.a", "{% 1 %}", "States.ALL"]
NAMES = st.sampled_from(["StartAt", "Next", "a"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2) | st.text(max_size=3) | st.sampled_from(SCALARS),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
ALL_FIELDS = st.sampled_from(sorted({name for names in FIELDS.values() for name in names}))
NEEDED = ("Type", "Next", "End", "Choices", "Resource", "Seconds", "Branches", "ItemProcessor")
SCHEMA = "SCHEMA_VALIDATION_FAILED"


def told(definition: Any, kind: str = "STANDARD") -> list[tuple[str, str | None]]:
    """Code and place of all that is found."""
    text = definition if isinstance(definition, str) else json.dumps(definition)
    return [(one.code, one.location) for one in diagnostics(text, kind)]


def texts(definition: Any, kind: str = "STANDARD") -> list[str]:
    return [one.text() for one in diagnostics(json.dumps(definition), kind)]


def one(state: Any, **more: Any) -> dict[str, Any]:
    return {"StartAt": "T", "States": {"T": state, **more}}


def task(**more: Any) -> dict[str, Any]:
    return {"Type": "Task", "Resource": LAMBDA, "End": True, **more}


@st.composite
def definitions(draw: st.DrawFn, depth: int = 1, prefix: str = "") -> dict[str, Any]:
    """A definition that is valid: a chain of states in which each leads to the next, some of them to an end besides."""
    length = draw(st.integers(1, 4))
    names = [f"{prefix}S{number}" for number in range(length)]
    states: dict[str, Any] = {}
    for number, name in enumerate(names):
        following = names[number + 1] if number + 1 < length else None
        kinds = ["Pass", "Wait", "Task", "Choice", *(["Parallel", "Map"] if depth else [])]
        states[name] = draw(_state(draw(st.sampled_from(kinds)), name, following, depth))
    if any(state.get("Default", "") == f"{prefix}Z" for state in states.values()) or draw(st.booleans()):
        last = states[names[-1]]
        if "End" in last:
            del last["End"]
            last["Next"] = f"{prefix}Z"
        states[f"{prefix}Z"] = dict(DONE)
    return {"StartAt": names[0], "States": states}


@st.composite
def _state(draw: st.DrawFn, kind: str, name: str, following: str | None, depth: int) -> dict[str, Any]:
    way: dict[str, Any] = {"End": True} if following is None else {"Next": following}
    if kind == "Choice":
        target = following if following is not None else f"{name.rpartition('S')[0]}Z"
        rule = {"Variable": "$.n", draw(st.sampled_from(["IsPresent", "BooleanEquals"])): True, "Next": target}
        return {"Type": "Choice", "Choices": [rule], "Default": f"{name.rpartition('S')[0]}Z"}
    fields: dict[str, Any] = {
        "Pass": {"Result": draw(st.integers())},
        "Wait": {"Seconds": draw(st.integers(0, 99))},
        "Task": {"Resource": LAMBDA, "TimeoutSeconds": 9, "Retry": [{"ErrorEquals": ["States.ALL"]}]},
    }.get(kind, {})
    if kind == "Parallel":
        fields["Branches"] = [draw(definitions(depth - 1, f"{name}b")), draw(definitions(depth - 1, f"{name}c"))]
    if kind == "Map":
        fields["ItemProcessor"] = draw(definitions(depth - 1, f"{name}i"))
    return {"Type": kind, **fields, **way}


@settings(max_examples=60, deadline=None)
@given(definitions())
def test_a_valid_definition_has_no_diagnostics(definition: dict[str, Any]) -> None:
    assert texts(definition) == []
    assert texts(definition, "EXPRESS") == []


@settings(max_examples=60, deadline=None)
@given(definitions(), st.data())
def test_it_has_some_when_something_is_taken_away(definition: dict[str, Any], data: st.DataObject) -> None:
    broken = copy.deepcopy(definition)
    state = broken["States"][data.draw(st.sampled_from(sorted(broken["States"])))]
    needed = [name for name in NEEDED if name in state]
    taken = data.draw(st.sampled_from(["StartAt", "States", *needed]))
    del (broken if taken in broken else state)[taken]
    assert texts(broken)


@settings(max_examples=60, deadline=None)
@given(definitions(), st.data())
def test_it_has_some_when_a_state_is_renamed_or_added(definition: dict[str, Any], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(definition["States"])))
    renamed = {key + "?" if key == name else key: state for key, state in definition["States"].items()}
    assert ("MISSING_TRANSITION_TARGET", "/StartAt") in told({**definition, "States": renamed}) or any(
        code == "MISSING_TRANSITION_TARGET" and str(place).endswith(("/Next", "/Default"))
        for code, place in told({**definition, "States": renamed})
    )
    added = {**definition["States"], "Alone": dict(DONE)}
    assert ("MISSING_TRANSITION_TARGET", "/States/Alone") in told({**definition, "States": added})


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(ALL_FIELDS, JSON, max_size=6),
    st.sampled_from(sorted(FIELDS)),
    st.sampled_from(["JSONPath", "JSONata", 1]),
)
def test_whatever_stands_in_a_state_is_looked_at_without_an_accident(fields: Any, kind: str, language: Any) -> None:
    diagnostics(json.dumps({**one({"Type": kind, **fields}), "QueryLanguage": language}), "STANDARD")


@settings(max_examples=80, deadline=None)
@given(JSON)
def test_whatever_is_no_definition_is_refused_without_an_accident(document: Any) -> None:
    assert diagnostics(json.dumps(document), "EXPRESS")


def test_what_is_no_json_is_told_with_the_place() -> None:
    [found] = diagnostics("not a definition", "STANDARD")
    assert (found.code, found.location) == (
        "INVALID_JSON_DESCRIPTION",
        '[Source: (String)"not a definition"; line: 1, column: 4]',
    )
    assert found.message.startswith("Unrecognized token 'not': was expecting (JSON String")
    assert told("{") == [("INVALID_JSON_DESCRIPTION", '[Source: (String)"{"; line: 1, column: 2]')]
    assert texts([]) == ["SCHEMA_VALIDATION_FAILED: Definition must be a valid JSON object at null"]
    for depth in (400, 900, 5000, 100_000):
        deep = (
            '{"StartAt":"T","States":{"T":{"Type":"Pass","End":true,"Parameters":' + "[" * depth + "]" * depth + "}}}"
        )
        assert told(deep) in ([], [("TOO_DEEPLY_NESTED", None)])
    assert told("[" * 100_000) == [("TOO_DEEPLY_NESTED", None)]


def test_what_a_definition_must_have() -> None:
    assert texts({}) == ["SCHEMA_VALIDATION_FAILED: These fields are required: [States, StartAt] at /"]
    assert texts({"StartAt": "T", "States": {}}) == ["SCHEMA_VALIDATION_FAILED: Value cannot be empty at /States"]
    assert texts({**one(PASS), "Nonsense": 1}) == ["SCHEMA_VALIDATION_FAILED: Field 'Nonsense' is not supported at /"]


def test_targets_that_do_not_exist() -> None:
    nowhere = "MISSING_TRANSITION_TARGET: Missing 'Next' target: X at"
    choice = {"Type": "Choice", "Choices": [{"Variable": "$", "IsNull": True, "Next": "X"}], "Default": "X"}
    catch = [{"ErrorEquals": ["States.ALL"], "Next": "X"}]
    assert texts({"StartAt": "X", "States": {"T": PASS}})[0] == f"{nowhere} /StartAt"
    assert texts(one(choice))[:2] == [f"{nowhere} /States/T/Default", f"{nowhere} /States/T/Choices[0]/Next"]
    assert texts(one(task(Catch=catch))) == [f"{nowhere} /States/T/Catch[0]/Next"]
    lost = {"Type": "Pass", "Next": "X"}
    ending = "MISSING_END_STATE: Workflow has no terminal state at null"
    assert texts(one(lost)) == [f"{nowhere} /States/T/Next", ending]


def test_a_branch_is_a_world_of_its_own() -> None:
    branch = {"StartAt": "B", "States": {"B": {"Type": "Pass", "Next": "Z"}, "D": DONE}}
    definition = one({"Type": "Parallel", "Branches": [branch], "Next": "Z"}, Z=DONE)
    at = "/States/T/Branches[0]/States"
    assert told(definition) == [("MISSING_TRANSITION_TARGET", f"{at}/B/Next"), ("MISSING_TRANSITION_TARGET", f"{at}/D")]


def test_states_that_nothing_leads_to() -> None:
    lead = {"StartAt": "A", "States": {"A": PASS, "B": {"Type": "Pass", "Next": "C"}, "C": DONE}}
    assert texts(lead) == ['MISSING_TRANSITION_TARGET: State "B" is not reachable. at /States/B']
    circle = {
        "B": {"Type": "Pass", "Next": "C"},
        "C": {"Type": "Pass", "Next": "B"},
        "D": {"Type": "Pass", "Next": "D"},
    }
    assert told({"StartAt": "A", "States": {"A": PASS, **circle}}) == [
        ("MISSING_TRANSITION_TARGET", "/States/D"),
        ("MISSING_TRANSITION_TARGET", "/States/B"),
    ]


def test_names_that_stand_twice() -> None:
    text = '{"StartAt": "A", "States": {"A": {"Type": "Pass", "End": true}, "A": {"Type": "Succeed"}}}'
    assert told(text) == [("DUPLICATE_STATE_NAME", "/States/A")]
    inner = one({"Type": "Parallel", "Branches": [{"StartAt": "T", "States": {"T": PASS}}], "End": True})
    assert told(inner) == [("DUPLICATE_STATE_NAME", "/States/T/Branches[0]/States/T")]


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"Type": "Pass"}, "This object should have only one of the following fields: [Next, End] at /States/T"),
        ({**PASS, "Next": "T"}, "There should only be one of the following fields: [Next, End] at /States/T"),
        ({**PASS, "End": False}, "This object should have only one of the following fields: [Next, End] at /States/T"),
        ({"Type": "Fail", "End": True}, "Field 'End' is not supported at /States/T"),
        ({**PASS, "Catch": []}, "Field 'Catch' is not supported at /States/T"),
        ({"Type": "Task", "End": True}, "These fields are required: [Resource] at /States/T"),
        (task(Resource="send"), "Value is not a valid resource ARN at /States/T/Resource"),
        (task(TimeoutSeconds=0), "Minimum value is 1 at /States/T/TimeoutSeconds"),
        (task(TimeoutSeconds=10**8), "Maximum value is 99999999 at /States/T/TimeoutSeconds"),
        (task(TimeoutSeconds="9"), "Expected value of type Integer at /States/T/TimeoutSeconds"),
        (
            task(TimeoutSeconds=9, HeartbeatSeconds=9),
            "Value must be smaller than the value of 'TimeoutSeconds' at /States/T/HeartbeatSeconds",
        ),
        (
            task(TimeoutSeconds=9, TimeoutSecondsPath="$.t"),
            "There should only be one of the following fields: [TimeoutSeconds, TimeoutSecondsPath] at /States/T",
        ),
        (task(Retry=[{}]), "These fields are required: [ErrorEquals] at /States/T/Retry[0]"),
        (task(Retry=[{"ErrorEquals": []}]), "Value cannot be empty at /States/T/Retry[0]/ErrorEquals"),
        (
            task(Retry=[{"ErrorEquals": ["States.ALL"]}, {"ErrorEquals": ["E"]}]),
            "States.ALL must appear alone and at end of list at /States/T/Retry[0]/ErrorEquals[0]",
        ),
        (
            task(Retry=[{"ErrorEquals": ["E", "States.ALL"]}]),
            "States.ALL must appear alone and at end of list at /States/T/Retry[0]/ErrorEquals[1]",
        ),
        (
            task(Retry=[{"ErrorEquals": ["E"], "BackoffRate": 0.5}]),
            "Minimum value is 1.0 at /States/T/Retry[0]/BackoffRate",
        ),
        (task(Catch=[{"ErrorEquals": ["E"]}]), "These fields are required: [Next] at /States/T/Catch[0]"),
        ({**PASS, "ResultPath": "$.a[*]"}, "Value is not a Reference Path at /States/T/ResultPath"),
        ({**PASS, "InputPath": "a"}, "Value must be a valid JSONPath. at /States/T/InputPath"),
        (
            {**PASS, "Parameters": {"a.$": "b"}},
            (
                "The value for the field 'a.$' must be a valid JSONPath or a valid intrinsic function call "
                "at /States/T/Parameters"
            ),
        ),
        (
            {**PASS, "Output": 1},
            (
                "The QueryLanguage is set to 'JSONPath', but field 'Output' is only supported for the 'JSONata' "
                "QueryLanguage at /States/T"
            ),
        ),
        (
            {**PASS, "QueryLanguage": "JSONata", "ResultPath": "$"},
            (
                "The QueryLanguage is set to 'JSONata', but field 'ResultPath' is only supported for the 'JSONPath' "
                "QueryLanguage at /States/T"
            ),
        ),
        (
            {"Type": "Wait", "Timestamp": "2026-13-01T00:00:00Z", "End": True},
            "String does not match RFC3339 timestamp at /States/T/Timestamp",
        ),
        ({"Type": "Choice", "Choices": []}, "Value cannot be empty at /States/T/Choices"),
        (
            {"Type": "Choice", "Choices": [{"Variable": "$", "IsNull": True}]},
            "These fields are required: [Next] at /States/T/Choices[0]",
        ),
        (
            {"Type": "Choice", "Choices": [{"Not": {"Variable": "$", "IsNull": True, "Next": "T"}, "Next": "T"}]},
            "Field 'Next' is not supported at /States/T/Choices[0]/Not",
        ),
        (
            {"Type": "Choice", "Choices": [{"And": [], "Next": "T"}]},
            "Value cannot be empty at /States/T/Choices[0]/And",
        ),
        (
            {"Type": "Choice", "Choices": [{"Next": "T"}]},
            (
                "The object must have only one of the following fields, [And, Or, Not, Variable, Condition] "
                "at /States/T/Choices[0]"
            ),
        ),
        (
            {"Type": "Choice", "Choices": [{"Variable": "a", "IsNull": True, "Next": "T"}]},
            "Value is not a Reference Path: Reference path didn't start with '$' at /States/T/Choices[0]/Variable",
        ),
        (
            {"Type": "Map", "End": True},
            "This object should have only one of the following fields: [ItemProcessor, Iterator] at /States/T",
        ),
        (
            {"Type": "Map", "End": True, "ItemProcessor": {"ProcessorConfig": {"Mode": "DISTRIBUTED"}, **one(PASS)}},
            "These fields are required: [ExecutionType] at /States/T/ItemProcessor/ProcessorConfig",
        ),
        ({"Type": "Parallel", "End": True, "Branches": []}, "Value cannot be empty at /States/T/Branches"),
        (
            {"Type": "Sleep"},
            (
                "The field 'Type' should have one of these values: "
                "[Task, Wait, Pass, Succeed, Fail, Choice, Parallel, Map] at /States/T/Type"
            ),
        ),
    ],
)
def test_what_a_state_cannot_be(state: dict[str, Any], text: str) -> None:
    assert texts(one(state)) == [f"SCHEMA_VALIDATION_FAILED: {text}"]


@pytest.mark.parametrize(
    ("resource", "exists"),
    [
        ("arn:aws:states:::sqs:sendMessage.waitForTaskToken", True),
        ("arn:aws:states:::sqs:SendMessage", False),
        ("arn:aws:states:::dynamodb:query", False),
        ("arn:aws:states:::dynamodb:getItem.waitForTaskToken", False),
        ("arn:aws:states:::states:startExecution.sync:2", True),
        ("arn:aws:states:::aws-sdk:dynamodb:query", True),
        ("arn:aws:lambda:us-east-1:1:function:f", True),
        ("arn:aws:states:us-east-1:1:activity:a", True),
    ],
)
def test_integrations_that_exist(resource: str, exists: bool) -> None:
    assert (texts(one(task(Resource=resource))) == []) is exists


def test_what_an_express_state_machine_cannot_have_is_found_everywhere() -> None:
    wait = one(task(Resource=f"{LAMBDA}.waitForTaskToken"))
    inline = one({"Type": "Map", "ItemProcessor": wait, "End": True})
    renamed = json.loads(json.dumps(inline).replace('"T"', '"U"', 1).replace('"T"', '"U"', 1))
    assert told(renamed) == []
    assert told(renamed, "EXPRESS") == [("SCHEMA_VALIDATION_FAILED", "/States/U/ItemProcessor/States/T/Resource")]
    express = {"ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "EXPRESS"}, **wait}
    distributed = {"StartAt": "U", "States": {"U": {"Type": "Map", "ItemProcessor": express, "End": True}}}
    assert told(distributed) == [("SCHEMA_VALIDATION_FAILED", "/States/U/ItemProcessor/States/T/Resource")]
    assert ("SCHEMA_VALIDATION_FAILED", "/States/U/ItemProcessor/ProcessorConfig/Mode") in told(distributed, "EXPRESS")


def test_states_inside_have_the_language_of_the_whole_definition() -> None:
    inner = {"StartAt": "P", "States": {"P": {**PASS, "QueryLanguage": "JSONPath"}}}
    outer = {"Type": "Map", "QueryLanguage": "JSONata", "ItemProcessor": inner, "End": True}
    assert texts(one(outer)) == []
    assert texts({**one({**PASS, "QueryLanguage": "JSONPath"}), "QueryLanguage": "JSONata"}) == [
        f"{SCHEMA}: 'QueryLanguage' can not be 'JSONPath' if set to 'JSONata' for whole state machine at /States/T"
    ]


def test_warnings_do_not_refuse() -> None:
    state = {**PASS, "Result": {"a": "$.b"}}
    [found] = diagnostics(json.dumps(one(state)), "STANDARD")
    assert (found.severity, found.code, found.location) == ("WARNING", "PASS_RESULT_IS_STATIC", "/States/T/Result/a")
    rule = {"Variable": "$.a", "StringEquals": "$.b", "Next": "D"}
    choice = one({"Type": "Choice", "Choices": [rule]}, D=DONE)
    assert told(choice) == [("NO_PATH", "/States/T/Choices[0]/StringEquals")]
    assert told(one({**PASS, "Parameters": {"a": "$.b"}})) == [("NO_DOLLAR", "/States/T/Parameters/a")]


def test_as_many_as_were_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    many = json.dumps(one({**PASS, **dict.fromkeys("abc", 1)}))
    monkeypatch.setattr("parity.states_engine.check", lambda definition, kind: None)
    found = states_validation.validation(many, "STANDARD", most=2)
    assert (found["result"], len(found["diagnostics"]), found["truncated"]) == ("FAIL", 2, True)
    whole = states_validation.validation(many, "STANDARD")
    assert (len(whole["diagnostics"]), whole["truncated"]) == (3, False)
    warned = json.dumps(one({**PASS, "Result": "$.a"}))
    assert states_validation.validation(warned, "STANDARD")["diagnostics"] == []
    both = states_validation.validation(warned, "STANDARD", "WARNING")
    assert (both["result"], [one["severity"] for one in both["diagnostics"]]) == ("OK", ["WARNING"])
