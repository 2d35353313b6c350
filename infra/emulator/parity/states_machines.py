"""State machines: made, changed, described, removed.

**On AWS** making the same state machine again is no error; another definition, type or configuration under its name
is StateMachineAlreadyExists. A state machine has no revision id until its first change, and a new one with each change
of its definition, role or configuration; an update that changes nothing keeps it (Step Functions API Reference,
"CreateStateMachine", "UpdateStateMachine"; answers recorded on AWS). A definition is checked first
(:mod:`parity.states_validation`).

**MiniStack** has a revision id from the start, a new one with each update, no tracing configuration, and keeps the
versions of a state machine that was removed.

**Here** they are as recorded. Removing a state machine ends its executions at once (on AWS it takes until they have
ended). DescribeStateMachine shows the encryption configuration, which the recordings of 2023 could not have. Not
verified: the order of the checks of name, definition, role and encryption.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping
from typing import Any

from . import states_definition
from .states_callbacks import Response, refusable
from .states_records import RUNS
from .states_requests import Row, check_arn, check_name, page
from .states_schema import is_expression
from .states_tokens import Refused
from .states_validation import check_definition

CHANGES = ("definition", "roleArn", "loggingConfiguration", "tracingConfiguration")
NOTHING_TO_CHANGE = (
    "Either the definition, the role ARN, the LoggingConfiguration, or the TracingConfiguration must be specified"
)
NO_TRACING = {"enabled": False}
HIDDEN = frozenset({"updateDate"})
INSIDE = frozenset({"Branches", "ItemProcessor", "Iterator"})
VARIABLE = re.compile(r"\$([A-Za-z_]\w*)")
changing = threading.RLock()


def unknown_machine(arn: Any) -> Refused:
    return Refused("StateMachineDoesNotExist", f"State Machine Does Not Exist: '{arn}'")


def stored_machine(arn: Any) -> dict[str, Any]:
    """The record of a state machine by its own ARN, or :class:`Refused`."""
    from ministack.services import stepfunctions as sfn

    check_arn(arn, "stateMachine")
    found: dict[str, Any] | None = sfn._state_machines.get(arn)
    if found is None:
        raise unknown_machine(arn)
    return found


def check_description(data: Mapping[str, Any]) -> None:
    if data.get("versionDescription") is not None and not data.get("publish"):
        raise Refused("ValidationException", "Version description can only be set when publish is true")


def shown(machine: Mapping[str, Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """What a description shows of MiniStack's: nothing empty, and no definition when it was not asked for."""
    found = {key: value for key, value in machine.items() if value not in (None, "") and key not in HIDDEN}
    found.setdefault("tracingConfiguration", dict(NO_TRACING))
    if data.get("includedData") == "METADATA_ONLY":
        found["definition"] = "{}"
    return found


def expressions(value: Any) -> Iterator[str]:
    """The JSONata expressions in a part of a definition."""
    if is_expression(value):
        yield value
    elif isinstance(value, dict | list):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from expressions(inner)


def references(definition: str) -> dict[str, list[str]]:
    """Which states refer in JSONata to which of the variables that the definition assigns."""
    scopes = list(states_definition.scopes(json.loads(definition)))
    states = [(name, state) for scope, _ in scopes for name, state in scope["States"].items()]
    assigned: set[str] = set()
    for _, state in states:
        parts = [state, *state.get("Catch", ()), *state.get("Choices", ())]
        assigned |= {name.removesuffix(".$") for part in parts for name in part.get("Assign", ())}
    found: dict[str, list[str]] = {}
    for name, state in states:
        own = {key: value for key, value in state.items() if key not in INSIDE}
        used = {word for text in expressions(own) for word in VARIABLE.findall(text) if word in assigned}
        if used:
            found[name] = sorted({*found.get(name, ()), *used})
    return found


def variable_references(definition: str) -> dict[str, list[str]] | None:
    """What a description says of a definition's variables: what the interpreter finds, and JSONata's."""
    from moto.stepfunctions.parser.asl.static_analyser.variable_references_static_analyser import (
        VariableReferencesStaticAnalyser,
    )

    found = {name: set(names) for name, names in references(definition).items()}
    for name, names in VariableReferencesStaticAnalyser.process_and_get(definition=definition).items():
        found.setdefault(name, set()).update(names)
    return {name: sorted(names) for name, names in found.items()} or None


def set_references(machine: dict[str, Any]) -> None:
    machine["variableReferences"] = variable_references(machine["definition"])


def body_of(answer: Response) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answer[2])
    return found


def json_answer(body: Mapping[str, Any]) -> Response:
    from ministack.core.responses import json_response

    answer: Response = json_response(dict(body))
    return answer


def install() -> None:
    from ministack.services import stepfunctions as sfn

    create, update, delete = sfn._create_state_machine, sfn._update_state_machine, sfn._delete_state_machine
    describe = sfn._describe_state_machine

    @refusable
    def create_state_machine(data: dict[str, Any]) -> Response:
        check_name(data.get("name"))
        check_description(data)
        check_definition(data.get("definition"), data.get("type") or "STANDARD")
        with changing:
            before = len(sfn._state_machines)
            answer: Response = create(data)
            body = body_of(answer)
            if body.get("__type", "").endswith("StateMachineAlreadyExists"):
                arn = next(arn for arn, made in sfn._state_machines.items() if made["name"] == data["name"])
                raise Refused("StateMachineAlreadyExists", f"State Machine Already Exists: '{arn}'")
            if "stateMachineArn" in body and len(sfn._state_machines) > before:
                made = sfn._state_machines[body["stateMachineArn"]]
                tracing = data.get("tracingConfiguration") or dict(NO_TRACING)
                made |= {"revisionId": None, "tracingConfiguration": tracing, "updateDate": body["creationDate"]}
                set_references(made)
                version = sfn._state_machine_versions.get(body.get("stateMachineVersionArn"))
                if version is not None:
                    version["stateMachineRevisionId"] = None
        return answer

    @refusable
    def update_state_machine(data: dict[str, Any]) -> Response:
        from .states_versions import publish

        arn = data.get("stateMachineArn")
        with changing:
            stored = stored_machine(arn)
            check_description(data)
            if not any(data.get(member) is not None for member in (*CHANGES, "encryptionConfiguration")):
                raise Refused("MissingRequiredParameter", NOTHING_TO_CHANGE)
            if data.get("definition") is not None:
                check_definition(data["definition"], stored["type"])
            members = (*CHANGES, "encryptionConfiguration")
            before = {member: stored.get(member) for member in members}
            revision = stored.get("revisionId")
            answer: Response = update({key: value for key, value in data.items() if key != "publish"})
            if answer[0] != 200:
                return answer
            if data.get("tracingConfiguration") is not None:
                stored["tracingConfiguration"] = data["tracingConfiguration"]
            if before == {member: stored.get(member) for member in members}:
                stored["revisionId"] = revision
            set_references(stored)
            moment = body_of(answer)["updateDate"]
            stored["updateDate"] = moment
            body: dict[str, Any] = {"updateDate": moment}
            if stored["revisionId"] is not None:
                body["revisionId"] = stored["revisionId"]
            if data.get("publish"):
                body["stateMachineVersionArn"] = publish(stored, data.get("versionDescription"))[0]
        return json_answer(body)

    @refusable
    def describe_state_machine(data: dict[str, Any]) -> Response:
        arn = data.get("stateMachineArn")
        check_arn(arn, "stateMachine")
        answer: Response = describe(data)
        if answer[0] != 200:
            raise unknown_machine(arn)
        return json_answer(shown(body_of(answer), data))

    @refusable
    def delete_state_machine(data: dict[str, Any]) -> Response:
        arn = data.get("stateMachineArn", "")
        check_arn(arn, "stateMachine")
        with changing:
            if arn not in sfn._state_machines:
                return json_answer({})  # deleting twice is no error
            for run in RUNS.all():
                if run.machine.arn == arn:
                    run.stop(None, None)
            for kept in (sfn._state_machine_versions, sfn._state_machine_aliases):
                for name in [name for name in kept if name.rpartition(":")[0] == arn]:
                    kept.pop(name, None)
            answer: Response = delete(data)
        return answer

    @refusable
    def list_state_machines(data: dict[str, Any]) -> Response:
        rows: list[Row] = [
            (made["name"], arn, {key: made[key] for key in ("stateMachineArn", "name", "type", "creationDate")})
            for arn, made in sfn._state_machines.items()
        ]
        rows.sort(key=lambda row: row[0])
        return json_answer(page(data, "stateMachines", rows, newest_first=False))

    _ = sfn._list_state_machines
    sfn._create_state_machine = create_state_machine
    sfn._update_state_machine = update_state_machine
    sfn._describe_state_machine = describe_state_machine
    sfn._delete_state_machine = delete_state_machine
    sfn._list_state_machines = list_state_machines
    sfn._OFF_LOOP_ACTIONS |= {"CreateStateMachine", "UpdateStateMachine", "DeleteStateMachine"}
