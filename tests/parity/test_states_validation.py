"""Definitions that are checked: ValidateStateMachineDefinition, and what the making of a state machine refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Aws
from .rows import row
from .states_kit import CALLBACK, RECORDED, REFERENCE, States, one, refused

VALIDATION = f"{RECORDED}/test_sfn_api_validation"
DIAGNOSTIC = f"{REFERENCE}: ValidateStateMachineDefinitionDiagnostic"
QUOTED = "texts quoted from AWS in public reports"
PASS = {"Type": "Pass", "End": True}
DONE = {"Type": "Succeed"}


@pytest.fixture
def states(aws: Aws) -> States:
    return States(aws)


def found(states: States, definition: Any, **more: Any) -> list[tuple[str, str, str | None]]:
    text = definition if isinstance(definition, str) else json.dumps(definition)
    answer = states.unchecked().validate_state_machine_definition(definition=text, **more)
    assert answer["result"] == ("FAIL" if any(one["severity"] == "ERROR" for one in answer["diagnostics"]) else "OK")
    return [(one["code"], one["message"], one.get("location")) for one in answer["diagnostics"]]


@row("sfn.validate.ok", "A definition without a fault is OK and has no diagnostics", source=VALIDATION)
def test_ok(states: States) -> None:
    assert found(states, one(PASS)) == []
    assert found(states, {"StartAt": "A", "States": {"A": {"Type": "Pass", "Next": "B"}, "B": DONE}}) == []


@row("sfn.validate.json", "What is no JSON is INVALID_JSON_DESCRIPTION, with the place", source=VALIDATION)
def test_json(states: States) -> None:
    [(code, message, place)] = found(states, "not a definition")
    assert (code, place) == ("INVALID_JSON_DESCRIPTION", '[Source: (String)"not a definition"; line: 1, column: 4]')
    assert message.startswith("Unrecognized token 'not': was expecting (JSON String, Number,")
    assert found(states, " ") == [("SCHEMA_VALIDATION_FAILED", "Definition must be a valid JSON object", None)]


@row("sfn.validate.required", "StartAt and States are required", source=VALIDATION)
def test_required(states: States) -> None:
    code = "SCHEMA_VALIDATION_FAILED"
    assert found(states, {}) == [(code, "These fields are required: [States, StartAt]", "/")]
    assert found(states, {"States": {"A": PASS}}) == [(code, "These fields are required: [StartAt]", "/")]


@row("sfn.validate.target", "A transition to no state is MISSING_TRANSITION_TARGET", source=f"{DIAGNOSTIC}; {QUOTED}")
def test_target(states: States) -> None:
    code = "MISSING_TRANSITION_TARGET"
    lost = {"StartAt": "A", "States": {"A": {"Type": "Pass", "Next": "X"}, "B": DONE}}
    assert found(states, lost) == [
        (code, "Missing 'Next' target: X", "/States/A/Next"),
        (code, 'State "B" is not reachable.', "/States/B"),
    ]
    branch = {"StartAt": "X", "States": {"B": PASS}}
    assert (code, "Missing 'Next' target: X", "/States/T/Branches[0]/StartAt") in found(
        states, one({"Type": "Parallel", "Branches": [branch]})
    )
    text = f"{code}: Missing 'Next' target: X at /States/A/Next, {code}: State \"B\" is not reachable. at /States/B"
    assert refused(states.api.create_state_machine, name="m", definition=json.dumps(lost), roleArn=states.role) == (
        "InvalidDefinition",
        f"Invalid State Machine Definition: '{text}'",
    )
    machine = states.machine(one(PASS))
    update = states.api.update_state_machine
    assert refused(update, stateMachineArn=machine, definition=json.dumps(lost))[0] == "InvalidDefinition"
    assert json.loads(states.api.describe_state_machine(stateMachineArn=machine)["definition"]) == one(PASS)


@row("sfn.validate.end", "A definition that never ends is MISSING_END_STATE", source=f"{DIAGNOSTIC}; {QUOTED}")
def test_end(states: States) -> None:
    circle = {"A": {"Type": "Pass", "Next": "B"}, "B": {"Type": "Pass", "Next": "A"}}
    definition = {"StartAt": "A", "States": circle}
    assert found(states, definition) == [("MISSING_END_STATE", "Workflow has no terminal state", None)]
    code, text = refused(
        states.api.create_state_machine, name="m", definition=json.dumps(definition), roleArn=states.role
    )
    assert code == "InvalidDefinition"
    assert text == "Invalid State Machine Definition: 'MISSING_END_STATE: Workflow has no terminal state at null'"


@row("sfn.validate.fields", "A field that the state's type does not know is refused", source=f"{DIAGNOSTIC}; {QUOTED}")
def test_fields(states: States) -> None:
    code = "SCHEMA_VALIDATION_FAILED"
    assert found(states, one({"Type": "Pass", "Catch": []})) == [(code, "Field 'Catch' is not supported", "/States/T")]
    only = "This object should have only one of the following fields: [Next, End]"
    assert found(states, {"StartAt": "T", "States": {"T": {"Type": "Pass"}}}) == [(code, only, "/States/T")]
    kinds = "[Task, Wait, Pass, Succeed, Fail, Choice, Parallel, Map]"
    text = f"The field 'Type' should have one of these values: {kinds}"
    assert found(states, one({"Type": "Sleep"})) == [(code, text, "/States/T/Type")]


@row("sfn.validate.errors", "States.ALL stands alone and last in Retry and Catch", source=f"{REFERENCE}; {QUOTED}")
def test_errors(states: States) -> None:
    catch = [{"ErrorEquals": ["States.ALL"], "Next": "D"}, {"ErrorEquals": ["E"], "Next": "D"}]
    task = {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "Catch": catch, "Next": "D"}
    text = "States.ALL must appear alone and at end of list"
    place = "/States/T/Catch[0]/ErrorEquals[0]"
    definition = {"StartAt": "T", "States": {"T": task, "D": DONE}}
    assert found(states, definition) == [("SCHEMA_VALIDATION_FAILED", text, place)]


@row("sfn.validate.choice", "A rule of a Choice has a Next and one comparison", source=f"{REFERENCE}; {QUOTED}")
def test_choice(states: States) -> None:
    rule = {"Variable": "$.a", "IsPresent": True}
    definition = {"StartAt": "T", "States": {"T": {"Type": "Choice", "Choices": [rule], "Default": "D"}, "D": DONE}}
    assert found(states, definition) == [
        ("SCHEMA_VALIDATION_FAILED", "These fields are required: [Next]", "/States/T/Choices[0]")
    ]


@row("sfn.validate.language", "A field of the other query language is refused", source=VALIDATION)
def test_language(states: States) -> None:
    text = "'QueryLanguage' can not be 'JSONPath' if set to 'JSONata' for whole state machine"
    definition = one({**PASS, "QueryLanguage": "JSONPath"}, QueryLanguage="JSONata")
    assert found(states, definition) == [("SCHEMA_VALIDATION_FAILED", text, "/States/T")]
    text = (
        "The QueryLanguage is set to 'JSONPath', but field 'Output' is only supported for the 'JSONata' QueryLanguage"
    )
    assert found(states, one({**PASS, "Output": 1})) == [("SCHEMA_VALIDATION_FAILED", text, "/States/T")]
    inside = {"StartAt": "P", "States": {"P": {**PASS, "QueryLanguage": "JSONPath"}}}
    assert found(states, one({"Type": "Map", "QueryLanguage": "JSONata", "ItemProcessor": inside})) == []


@row("sfn.validate.express", "An Express definition that waits for a callback is refused", source=VALIDATION)
def test_express(states: States) -> None:
    text = "Express state machine does not support '.waitForTaskToken' service integration "
    definition = one({"Type": "Task", "Resource": CALLBACK})
    assert found(states, definition, type="EXPRESS") == [
        ("SCHEMA_VALIDATION_FAILED", text, "/States/T/Resource"),
    ]
    assert found(states, definition) == []


@row("sfn.validate.resource", "An integration that does not exist is refused", source=f"{RECORDED}/services")
def test_resource(states: States) -> None:
    [(code, text, place)] = found(states, one({"Type": "Task", "Resource": "arn:aws:states:::dynamodb:query"}))
    assert (code, place) == ("SCHEMA_VALIDATION_FAILED", "/States/T/Resource")
    assert text.startswith("The resource provided arn:aws:states:::dynamodb:query is not recognized.")


@row("sfn.validate.most", "No more diagnostics than maxResults are told, and truncated says so", source=REFERENCE)
def test_most(states: States) -> None:
    text = json.dumps(one({**PASS, **dict.fromkeys("abc", 1)}))
    answer = states.api.validate_state_machine_definition(definition=text, maxResults=2)
    assert (answer["result"], len(answer["diagnostics"]), answer["truncated"]) == ("FAIL", 2, True)
    answer = states.api.validate_state_machine_definition(definition=text)
    assert (len(answer["diagnostics"]), answer["truncated"]) == (3, False)
    code, _ = refused(states.unchecked().validate_state_machine_definition, definition=text, maxResults=101)
    assert code == "ValidationException"


@row("sfn.validate.warning", "A warning is told when it is asked for, and refuses nothing", source=DIAGNOSTIC)
def test_warning(states: States) -> None:
    definition = one({**PASS, "Result": "$.a"})
    assert found(states, definition) == []
    assert [code for code, _, _ in found(states, definition, severity="WARNING")] == ["PASS_RESULT_IS_STATIC"]
    assert states.machine(definition)
