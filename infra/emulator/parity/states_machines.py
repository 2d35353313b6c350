"""What is checked when a state machine is made, changed or removed.

**On AWS** CreateStateMachine and UpdateStateMachine refuse a definition that does not follow the language, with
InvalidDefinition; an Express state machine cannot wait for a task token, an activity or another job.
ValidateStateMachineDefinition says the same without making anything (refusals recorded on AWS; Step Functions
Developer Guide, "Choosing workflow type").

**MiniStack** checks JSONata expressions alone.

**Here** the interpreter has to understand the definition first. Not verified: the order of this check and those of
roles and encryption.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import states_engine
from .states_callbacks import Response, refusable
from .states_runs import RUNS
from .states_tokens import Refused


def check_definition(definition: Any, kind: str) -> None:
    """Raise :class:`Refused` unless a state machine of this type can have this definition."""
    try:
        states_engine.check(str(definition), kind)
    except states_engine.InvalidDefinition as error:
        raise Refused("InvalidDefinition", f"Invalid State Machine Definition: '{error}'") from None


def validation(definition: Any, kind: str) -> dict[str, Any]:
    """The answer of ValidateStateMachineDefinition."""
    try:
        check_definition(definition, kind)
    except Refused as error:
        found = {"severity": "ERROR", "code": "SCHEMA_VALIDATION_FAILED", "message": error.message}
        return {"result": "FAIL", "diagnostics": [found], "truncated": False}
    return {"result": "OK", "diagnostics": [], "truncated": False}


def install() -> None:
    from ministack.core.responses import json_response
    from ministack.services import stepfunctions as sfn

    Operation = Callable[[dict[str, Any]], Response]
    create: Operation = sfn._create_state_machine
    update: Operation = sfn._update_state_machine
    delete: Operation = sfn._delete_state_machine
    _ = sfn._validate_state_machine_definition

    @refusable
    def create_state_machine(data: dict[str, Any]) -> Response:
        check_definition(data.get("definition"), data.get("type") or "STANDARD")
        return create(data)

    @refusable
    def update_state_machine(data: dict[str, Any]) -> Response:
        stored = sfn._state_machines.get(data.get("stateMachineArn"))
        if stored and data.get("definition") is not None:
            check_definition(data["definition"], stored["type"])
        return update(data)

    def delete_state_machine(data: dict[str, Any]) -> Response:
        arn = data.get("stateMachineArn", "")
        if arn not in sfn._state_machines:
            answer: Response = json_response({})  # deleting twice is no error
            return answer
        for run in RUNS.all():
            if run.machine.arn == arn:
                run.stop(None, None)
        return delete(data)

    def validate(data: dict[str, Any]) -> Response:
        answer: Response = json_response(validation(data.get("definition"), data.get("type") or "STANDARD"))
        return answer

    sfn._create_state_machine = create_state_machine
    sfn._update_state_machine = update_state_machine
    sfn._delete_state_machine = delete_state_machine
    sfn._validate_state_machine_definition = validate
    sfn._OFF_LOOP_ACTIONS |= {
        "CreateStateMachine",
        "UpdateStateMachine",
        "DeleteStateMachine",
        "ValidateStateMachineDefinition",
    }
