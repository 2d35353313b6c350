"""Expressions in JSONata: the functions that Step Functions adds, and what is said of those that fail."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Aws
from .rows import row
from .states_kit import GUIDE, RECORDED, States, caught, inside, one

DOCUMENTED = f"{GUIDE}: Transforming data with JSONata"
UNDEFINED = f"{RECORDED}/assign/test_assign_reference_variables"
ERROR = "States.QueryEvaluationError"
JSONATA = {"QueryLanguage": "JSONata"}
SEND = "arn:aws:states:::sqs:sendMessage"


@pytest.fixture
def states(aws: Aws) -> States:
    return States(aws)


def output(states: States, expression: Any, value: Any = None) -> Any:
    run = states.run(one({"Type": "Pass", "Output": expression}, **JSONATA), value)
    assert run["status"] == "SUCCEEDED", run["cause"]
    return json.loads(run["output"])


def failure(states: States, state: dict[str, Any]) -> tuple[str, str]:
    """Where an expression of the state failed, and what is said of it; the one event and the execution agree."""
    run = states.run(one(state, **JSONATA))
    assert (run["status"], run["error"]) == ("FAILED", ERROR)
    [event] = [event for event in states.history(run) if event["type"] == "EvaluationFailed"]
    details = event["evaluationFailedEventDetails"]
    assert (details["error"], details["state"], details["cause"]) == (ERROR, "T", run["cause"])
    start = "An error occurred while executing the state 'T' (entered at the event id #2). "
    assert details["cause"].startswith(start)
    return details.get("location", ""), details["cause"].removeprefix(start)


@row(
    "sfn.jsonata.arrays",
    "JSONata has $partition and $range",
    source=f"{RECORDED}/intrinsic_functions/test_array_jsonata",
)
def test_arrays(states: States) -> None:
    assert output(states, "{% $partition([0, 1, 2], 2) %}") == [[0, 1], [2]]
    assert output(states, "{% $partition([0], 5) %}") == [[0]]
    assert output(states, "{% $partition([1, 2, 3], 2.9) %}") == [[1, 2], [3]]
    assert output(states, "{% $range(0, 10, 2) %}") == [0, 2, 4, 6, 8, 10]
    assert output(states, "{% $range(3, 0, -2) %}") == [3, 1]


@row("sfn.jsonata.random", "$random takes a seed, with which it gives the same number again", source=DOCUMENTED)
def test_random(states: States) -> None:
    first, again, other, free = output(
        states, ["{% $random(7) %}", "{% $random(7) %}", "{% $random(8) %}", "{% $random() %}"]
    )
    assert first == again != other
    assert all(0 <= number < 1 for number in (first, other, free))


@row("sfn.jsonata.parse", "$parse reads JSON, and $eval is not there", source=DOCUMENTED)
def test_parse(states: States) -> None:
    assert output(states, "{% $parse($states.input.text).list[1] %}", {"text": '{"list": [1, "b"]}'}) == "b"
    where, _ = failure(states, {"Type": "Pass", "Output": "{% $eval('1') %}"})
    assert where == "Output"
    assert failure(states, {"Type": "Pass", "Output": "{% $parse('{') %}"})[0] == "Output"
    assert output(states, "{% $partition([1, 2], 1)[0] %}") == [1]


@row(
    "sfn.jsonata.unknown",
    "A function that is not there fails, also $randomSeeded",
    source=f"{RECORDED}/intrinsic_functions/test_math_operations_jsonata",
)
def test_unknown(states: States) -> None:
    where, cause = failure(states, {"Type": "Pass", "Output": {"n": "{% $randomSeeded(1) %}"}})
    assert where == "Output/n"
    assert cause == (
        "The JSONata expression '$randomSeeded(1)' specified for the field 'Output/n' "
        "threw an error during evaluation. T1006: Attempted to invoke a non-function"
    )


@row("sfn.jsonata.undefined", "An expression that comes to nothing fails, with the field's name", source=UNDEFINED)
def test_undefined(states: States) -> None:
    def nothing(field: str) -> tuple[str, str]:
        text = f"The JSONata expression '$no' specified for the field '{field}' returned nothing (undefined)."
        return field, text

    assert failure(states, {"Type": "Pass", "Output": "{% $no %}"}) == nothing("Output")
    assert failure(states, {"Type": "Pass", "Output": {"a": {"b": "{% $no %}"}}}) == nothing("Output/a/b")
    assert failure(states, {"Type": "Pass", "Assign": {"a": "{% $no %}"}}) == nothing("Assign/a")
    task = {"Type": "Task", "Resource": SEND}
    assert failure(states, {**task, "Arguments": "{% $no %}"}) == nothing("Arguments")
    assert failure(states, {**task, "Arguments": {"QueueUrl": "{% $no %}"}}) == nothing("Arguments/QueueUrl")
    mapped = {"Type": "Map", "ItemProcessor": inside({"Type": "Pass"}), "Items": "{% $no %}"}
    assert failure(states, mapped) == nothing("Items")


@row("sfn.jsonata.null", "Null is a value, also beside what is undefined", source=DOCUMENTED)
def test_null(states: States) -> None:
    value = {"a": None, "list": [None, 1]}
    assert output(states, "{% $states.input.a %}", value) is None
    assert output(states, {"a": "{% $states.input.a %}", "l": "{% $states.input.list %}"}, value) == {
        "a": None,
        "l": [None, 1],
    }
    assert output(states, "{% $exists($states.input.b) %}", value) is False


@row("sfn.jsonata.type", "A field that needs a number takes nothing else", source=f"{DOCUMENTED}; {RECORDED}/scenarios")
def test_type(states: States) -> None:
    task = {"Type": "Task", "Resource": SEND, "Arguments": {"QueueUrl": "q"}, "TimeoutSeconds": "{% 'soon' %}"}
    where, cause = failure(states, task)
    assert where == "TimeoutSeconds"
    assert cause.endswith("returned an unexpected result type. Expected 'number', but was 'string' for value: \"soon\"")
    mapped = {"Type": "Map", "ItemProcessor": inside({"Type": "Pass"}), "Items": "{% 1 %}"}
    assert failure(states, mapped) == (
        "Items",
        (
            "The JSONata expression '1' specified for the field 'Items' returned an unexpected result type. "
            "Expected 'array', but was 'number' for value: 1"
        ),
    )


@row("sfn.jsonata.function", "A function is no result", source=f"{RECORDED}/scenarios")
def test_function(states: States) -> None:
    where, cause = failure(states, {"Type": "Pass", "Output": "{% function($x){$x} %}"})
    assert (where, cause) == (
        "Output",
        (
            "The JSONata expression 'function($x){$x}' specified for the field 'Output' "
            "returned an unsupported result type."
        ),
    )


@row("sfn.jsonata.caught", "A Task's failed expression can be caught", source=DOCUMENTED)
def test_caught(states: States) -> None:
    task = {"Type": "Task", "Resource": SEND, "Arguments": {"QueueUrl": "{% $no %}"}}
    definition = caught(task, ERROR)
    definition["States"][ERROR] = {"Type": "Pass", "Output": "{% 'caught' %}", "End": True}
    assert states.run({**definition, **JSONATA})["output"] == '"caught"'


@row("sfn.jsonata.context", "$states.context has the execution, the state and the state machine", source=DOCUMENTED)
def test_context(states: States) -> None:
    definition = one({"Type": "Pass", "Output": "{% $states.context %}"}, **JSONATA)
    run = states.run(definition, {"n": 1})
    found = json.loads(run["output"])
    assert (found["Execution"]["Id"], found["Execution"]["Input"]) == (run["executionArn"], {"n": 1})
    assert found["Execution"].keys() >= {"Name", "RoleArn", "StartTime", "RedriveCount"}
    assert (found["State"]["Name"], found["StateMachine"]["Id"]) == ("T", run["stateMachineArn"])
    assert found["State"]["EnteredTime"] >= found["Execution"]["StartTime"]
