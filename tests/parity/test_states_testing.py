"""TestState: one state, tried alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Aws
from .rows import row
from .states_kit import RECORDED, REFERENCE, States, refused

TRIED = f"{RECORDED}/test_state"
CALL = {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "Parameters": {"FunctionName": "f"}, "End": True}


@pytest.fixture
def states(aws: Aws) -> States:
    return States(aws)


def tried(states: States, state: dict[str, Any], value: Any = None, **more: Any) -> dict[str, Any]:
    """The answer of TestState."""
    answer: dict[str, Any] = states.unchecked().test_state(
        definition=json.dumps(state), input=json.dumps({} if value is None else value), roleArn=states.role, **more
    )
    return answer


@row("sfn.test_state.pass", "A state that is tried gives its output and the state that follows", source=TRIED)
def test_pass(states: States) -> None:
    found = tried(states, {"Type": "Pass", "Result": 1, "ResultPath": "$.n", "Next": "B"}, {"a": 2})
    assert (found["status"], found["nextState"]) == ("SUCCEEDED", "B")
    assert json.loads(found["output"]) == {"a": 2, "n": 1}
    assert "nextState" not in tried(states, {"Type": "Succeed"})


@row("sfn.test_state.debug", "DEBUG shows the steps from the input to the output", source=TRIED)
def test_debug(states: States) -> None:
    state = {"Type": "Pass", "InputPath": "$.a", "Parameters": {"x.$": "$.b"}, "ResultPath": "$.c", "End": True}
    found = tried(states, state, {"a": {"b": 1}}, inspectionLevel="DEBUG")
    assert {name: json.loads(value) for name, value in found["inspectionData"].items()} == {
        "input": {"a": {"b": 1}},
        "afterInputPath": {"b": 1},
        "afterParameters": {"x": 1},
        "afterResultSelector": {"x": 1},
        "afterResultPath": {"a": {"b": 1}, "c": {"x": 1}},
    }


@row("sfn.test_state.fail", "A Fail state that is tried gives its error and cause", source=TRIED)
def test_fail(states: States) -> None:
    found = tried(states, {"Type": "Fail", "Error": "E", "Cause": "so it is"})
    assert (found["status"], found["error"], found["cause"]) == ("FAILED", "E", "so it is")


@row("sfn.test_state.choice", "A Choice state that is tried says which state follows", source=TRIED)
def test_choice(states: States) -> None:
    rule = {"Variable": "$.n", "NumericEquals": 1, "Next": "One"}
    state = {"Type": "Choice", "Choices": [rule], "Default": "Other"}
    assert [tried(states, state, {"n": number})["nextState"] for number in (1, 2)] == ["One", "Other"]


@row("sfn.test_state.name", "A state of a whole definition is tried by its name", source=TRIED)
def test_name(states: States) -> None:
    inner = {"StartAt": "I", "States": {"I": {"Type": "Pass", "Output": "{% 1 + 1 %}", "End": True}}}
    whole = {
        "QueryLanguage": "JSONata",
        "StartAt": "A",
        "States": {"A": {"Type": "Map", "ItemProcessor": inner, "End": True}},
    }
    assert tried(states, whole, stateName="I")["output"] == "2"
    error = ("ValidationException", "State not found in definition")
    assert refused(states.unchecked().test_state, definition=json.dumps(whole), stateName="X") == error


@row("sfn.test_state.variables", "A state that is tried sees the variables that are given", source=TRIED)
def test_variables(states: States) -> None:
    state = {
        "Type": "Pass",
        "QueryLanguage": "JSONata",
        "Assign": {"y": "{% $x + 1 %}"},
        "Output": "{% $x %}",
        "End": True,
    }
    found = tried(states, state, variables='{"x": 1}', inspectionLevel="DEBUG")
    assert found["output"] == "1"
    assert json.loads(found["inspectionData"]["variables"]) == {"x": 1, "y": 2}


@row("sfn.test_state.mock", "A mock stands for the result of a task", source=TRIED)
def test_mock(states: States) -> None:
    mock = {"result": json.dumps({"StatusCode": 200, "Payload": "done"})}
    found = tried(states, {**CALL, "ResultSelector": {"p.$": "$.Payload"}}, mock=mock)
    assert json.loads(found["output"]) == {"p": "done"}
    error = ("ValidationException", "State type 'Pass' is not supported when a mock is specified")
    definition = json.dumps({"Type": "Pass", "End": True})
    assert refused(states.unchecked().test_state, definition=definition, mock=mock) == error


@row("sfn.test_state.errors", "An error that Retry or Catch takes is RETRIABLE or CAUGHT_ERROR", source=TRIED)
def test_errors(states: States) -> None:
    mock = {"errorOutput": {"error": "E", "cause": "so it is"}}
    retry = [{"ErrorEquals": ["F"]}, {"ErrorEquals": ["E"], "IntervalSeconds": 3, "MaxAttempts": 2}]
    catch = [{"ErrorEquals": ["States.ALL"], "Next": "K", "ResultPath": "$.error"}]
    state = {**CALL, "Retry": retry, "Catch": catch}
    again = tried(states, state, mock=mock, inspectionLevel="DEBUG", stateConfiguration={"retrierRetryCount": 1})
    assert (again["status"], again["error"], again["cause"]) == ("RETRIABLE", "E", "so it is")
    assert again["inspectionData"]["errorDetails"] == {"retryIndex": 1, "retryBackoffIntervalSeconds": 6}
    last = tried(states, state, {"a": 1}, mock=mock, stateConfiguration={"retrierRetryCount": 2})
    assert (last["status"], last["nextState"]) == ("CAUGHT_ERROR", "K")
    assert json.loads(last["output"]) == {"a": 1, "error": {"Error": "E", "Cause": "so it is"}}
    assert tried(states, CALL, mock=mock)["status"] == "FAILED"


@row("sfn.test_state.refused", "A Map needs a mock, a task a role, and the definition has to be one", source=TRIED)
def test_refused(states: States) -> None:
    call = states.unchecked().test_state
    inner = {"StartAt": "I", "States": {"I": {"Type": "Succeed"}}}
    code, message = refused(call, definition=json.dumps({"Type": "Map", "ItemProcessor": inner, "End": True}))
    assert code == "InvalidDefinition"
    assert message.startswith("TestState API does not support Map or Parallel states.")
    error = ("ValidationException", "RoleArn must be specified when testing a Task state")
    assert refused(call, definition=json.dumps(CALL)) == error
    code, message = refused(call, definition=json.dumps({"Type": "Parallel", "Branches": [], "End": True}))
    text = "SCHEMA_VALIDATION_FAILED: Value cannot be empty at /States/StateName/Branches"
    assert (code, message) == ("InvalidDefinition", f"Invalid State Machine Definition: '{text}'")


@row("sfn.test_state.task", "A task that is tried calls its service", source=f"{TRIED}; {REFERENCE}")
def test_task(states: States) -> None:
    queue = states.queue()
    parameters = {"QueueUrl": queue, "MessageBody.$": "$.text"}
    state = {"Type": "Task", "Resource": "arn:aws:states:::sqs:sendMessage", "Parameters": parameters, "End": True}
    assert tried(states, state, {"text": "hello"})["status"] == "SUCCEEDED"
    [message] = states.sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20)["Messages"]
    assert message["Body"] == "hello"


@row("sfn.test_state.mock.model", "A mocked result that the API could not give is refused", source=TRIED)
def test_mock_model(states: States) -> None:
    call = states.unchecked().test_state
    parameters = {"Entries": [{"Source": "s", "DetailType": "t", "Detail": "{}"}]}
    state = {"Type": "Task", "Resource": "arn:aws:states:::events:putEvents", "Parameters": parameters, "End": True}
    wrong = {"result": json.dumps({"Entries": "none"})}
    text = "Mock result schema validation error: Field 'Entries' must be an array"
    assert refused(call, definition=json.dumps(state), mock=wrong) == ("ValidationException", text)
    assert tried(states, state, mock={**wrong, "fieldValidationMode": "NONE"})["status"] == "SUCCEEDED"
