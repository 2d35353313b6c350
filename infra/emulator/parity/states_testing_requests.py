"""What a request to TestState may ask: its mock and its context object.

**On AWS** a mock is for a Task, Map or Parallel state, has a result or an error, and its result has the shape of the
state's; the context object that comes with it has the fields of the real one (Step Functions API Reference,
"TestState"; refusals recorded on AWS).

**MiniStack** does not look at them.

**Here** they are refused as recorded. Not verified: the texts about JSON that does not parse, and about a part of a
context object that is no object.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from .states_tokens import Refused, check_size

WITHOUT_MOCK = ("Task", "Wait", "Pass", "Succeed", "Fail", "Choice")
MOCKABLE = ("Task", "Map", "Parallel")
NO_CONTEXT = "Invalid Context object provided: "
CONTEXT = {
    "Execution": ("Id", "Input", "Name", "RoleArn", "StartTime", "RedriveCount", "RedriveTime"),
    "State": ("EnteredTime", "Name", "RetryCount"),
    "StateMachine": ("Id", "Name"),
    "Task": ("Token",),
}


def invalid(message: str) -> Refused:
    return Refused("ValidationException", message)


def check_mock(state: Mapping[str, Any], data: Mapping[str, Any]) -> None:
    """Raise :class:`Refused` unless a state of this type can be tried with or without this mock."""
    mock, kind = data.get("mock"), state["Type"]
    counted = (data.get("stateConfiguration") or {}).get("mapIterationFailureCount")
    if mock is None:
        if counted is not None:
            raise invalid("TestState does not support MapIterationFailureCount when a mock is not specified.")
        if kind not in WITHOUT_MOCK:
            supported = f"Supported state types include: [{', '.join(WITHOUT_MOCK)}]"
            raise Refused("InvalidDefinition", f"TestState API does not support Map or Parallel states. {supported}")
        if kind == "Task" and not data.get("roleArn"):
            raise invalid("RoleArn must be specified when testing a Task state")
        return
    if kind not in MOCKABLE:
        raise invalid(f"State type '{kind}' is not supported when a mock is specified")
    if data.get("revealSecrets"):
        raise invalid("TestState does not support RevealSecrets when a mock is specified.")
    if "result" in mock and "errorOutput" in mock:
        raise invalid("A test mock should have only one of the following fields: [result, errorOutput].")
    if "result" in mock:
        _check_result(state, mock["result"], counted)


def _check_result(state: Mapping[str, Any], text: str, failed: int | None) -> None:
    result = parsed("result", text, "Mocked result must be valid JSON")
    if state["Type"] == "Map" and "ResultWriter" in state:
        if not isinstance(result, dict):
            raise invalid("Mocked result must be a JSON object.")
    elif state["Type"] != "Task":
        if not isinstance(result, list):
            raise invalid("Mocked result must be an array.")
        if state["Type"] == "Parallel" and len(result) != len(state["Branches"]):
            raise invalid("Mocked result must contain the same number of items as number of Parallel branches.")
        if failed is not None and failed > len(result):
            raise invalid("Map iteration failure count must be less than or equal to the number of Map iterations")


def context(data: Mapping[str, Any], state: Mapping[str, Any]) -> dict[str, Any]:
    """The context object that the caller gives, or :class:`Refused`."""
    given = parsed("context", data.get("context") or "{}", f"{NO_CONTEXT}it must be valid JSON")
    if not isinstance(given, dict):
        raise invalid(f"{NO_CONTEXT}it must be a JSON object")
    if "Map" in given:
        raise invalid(f"{NO_CONTEXT}'Map' field is not supported when mocking a Context object")
    waits = str(state.get("Resource", "")).endswith((".sync", ".sync:2", ".waitForTaskToken"))
    if "Task" in given and not waits:
        told = "with a '.sync' or '.waitForTaskToken' service integration pattern"
        raise invalid(f"{NO_CONTEXT}Context object contains 'Task' when state is not a Task state {told}")
    for name, part in given.items():
        if name not in CONTEXT:
            raise invalid(f"{NO_CONTEXT}Field '{name}' is not allowed")
        if not isinstance(part, dict):
            raise invalid(f"{NO_CONTEXT}{name} must be an object")
        for field, value in part.items():
            if field not in CONTEXT[name]:
                raise invalid(f"{NO_CONTEXT}Field '{field}' is not allowed")
            if field not in ("Input", "RetryCount", "RedriveCount") and not isinstance(value, str):
                raise invalid(f"{NO_CONTEXT}{name}.{field} must be a string")
    return given


def parsed(member: str, text: str, message: str) -> Any:
    """A member that is JSON in a string."""
    check_size(member, text)
    try:
        return json.loads(text)
    except ValueError:
        raise invalid(message) from None
