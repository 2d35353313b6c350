"""Starting and stopping executions.

**On AWS** StartExecution of a Standard state machine is idempotent by name and input while the execution runs;
another input, or a name that was used in the last 90 days, is ExecutionAlreadyExists. Executions of an Express state
machine cannot be described, listed or stopped; StartSyncExecution runs one and answers with its output (Step Functions
API Reference, "StartExecution", "StartSyncExecution"; refusals recorded on AWS).

**MiniStack** refuses every name that it knows, takes inputs of any size and form, and keeps Express executions like
Standard ones.

**Here** they are as documented. More than :data:`parity.states_runs.MAX_RUNNING` executions at a time are refused with
ExecutionLimitExceeded. A version or an alias runs the definition that was published; of an alias's versions one is
chosen by their weights. Not verified: that inputs are compared as JSON and not as text; the answer to stopping an
execution that ended (here: when it ended); the texts about an input that is no JSON.
"""

from __future__ import annotations

import json
import random
import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from .states_callbacks import Response, refusable
from .states_machines import unknown_machine
from .states_map_live import LIVE
from .states_records import RUNS, Machine, iso, new_record
from .states_requests import check_arn, check_name
from .states_runs import Run
from .states_tokens import Refused, check_size

NO_INPUT = "{}"
UNSUPPORTED = "This operation is not supported by this type of state machine"
MEMORY_STEP = 64  # MB, in which Express executions are billed
MACHINE = "_machine"  # of a record: the state machine as it was when the execution began
HIDDEN = frozenset({"events", MACHINE})
KEPT = (
    "loggingConfiguration",
    "tracingConfiguration",
    "encryptionConfiguration",
    "variableReferences",
    "creationDate",
    "updateDate",
)

_starting = threading.Lock()


def parsed_input(text: str) -> Any:
    """The input of an execution, or :class:`Refused`."""
    check_size("input", text)
    try:
        return json.loads(text)
    except ValueError:
        raise Refused(
            "InvalidExecutionInput", "Invalid State Machine Execution Input: 'Invalid execution input.'"
        ) from None


def same_execution(record: dict[str, Any], value: Any) -> bool:
    """Whether a second start with this input is the first one again."""
    return record["status"] == "RUNNING" and bool(json.loads(record["input"]) == value)


def execution_arn(machine: Machine, name: str) -> str:
    """The ARN; one of an Express execution has a part more, because its name may be used again."""
    kind = "execution" if machine.kind == "STANDARD" else "express"
    arn = f"{machine.arn.replace(':stateMachine:', f':{kind}:')}:{name}"
    return arn if kind == "execution" else f"{arn}:{uuid.uuid4()}"


def machine_of(arn: str) -> tuple[Machine, dict[str, Any]]:
    """The state machine behind its ARN, a version's or an alias's; and what describes the way there."""
    from ministack.services import stepfunctions as sfn

    check_arn(arn, "stateMachine")
    alias = sfn._state_machine_aliases.get(arn)
    version_arn = arn if alias is None else chosen(alias["routingConfiguration"])
    version = sfn._state_machine_versions.get(version_arn)
    base = arn if version is None else version["stateMachineArn"]
    stored = sfn._state_machines.get(base)
    if stored is None:
        raise unknown_machine(arn)
    found = {**stored, **{key: version[key] for key in ("definition", "roleArn") if version}}
    way: dict[str, Any] = {} if version is None else {"stateMachineVersionArn": version_arn}
    if alias is not None:
        way["stateMachineAliasArn"] = arn
    kept: tuple[str, ...] = (
        "loggingConfiguration",
        "tracingConfiguration",
        "updateDate",
        "creationDate",
        "encryptionConfiguration",
    )
    kept += ("variableReferences",)
    way[MACHINE] = {key: stored[key] for key in kept if key in stored}
    way[MACHINE] |= {"definition": found["definition"], "roleArn": found["roleArn"], "name": stored["name"]}
    way[MACHINE]["revisionId"] = (version or {}).get("stateMachineRevisionId") or stored.get("revisionId")
    return Machine(base, stored["name"], found["definition"], found["roleArn"], stored["type"]), way


def chosen(routes: list[dict[str, Any]]) -> str:
    """The version that an alias leads to this time."""
    arns, weights = ([route[key] for route in routes] for key in ("stateMachineVersionArn", "weight"))
    return str(random.choices(arns, weights)[0])


def known_execution(data: dict[str, Any]) -> dict[str, Any]:
    """The record of the execution that a request names, or :class:`Refused`."""
    from ministack.services import stepfunctions as sfn

    arn = data.get("executionArn", "")
    found: dict[str, Any] | None = sfn._executions.get(arn)  # also an Express child of a Map run
    if found is None:
        check_arn(arn, "execution")
        raise Refused("ExecutionDoesNotExist", f"Execution Does Not Exist: '{arn}'")
    return found


def _new_run(machine: Machine, way: dict[str, Any], data: dict[str, Any], value: Any, arn: str, name: str) -> Run:
    from ministack.core.responses import get_account_id, get_region

    if RUNS.full():
        raise Refused("ExecutionLimitExceeded", "The stand-in runs no more executions at the same time.")
    record = new_record(arn, name, machine, data.get("input", NO_INPUT), datetime.now(UTC)) | way
    if data.get("traceHeader"):
        record["traceHeader"] = data["traceHeader"]
    run = Run(record, machine, value, get_account_id(), get_region())
    RUNS.began(run)
    return run


@refusable
def start_execution(data: dict[str, Any]) -> Response:
    from ministack.services import stepfunctions as sfn

    value = parsed_input(data.get("input", NO_INPUT))
    name = data.get("name") or str(uuid.uuid4())
    check_name(name)
    machine, way = machine_of(data.get("stateMachineArn", ""))
    arn = execution_arn(machine, name)
    with _starting:  # of two calls with one name, one starts it
        known: dict[str, Any] | None = sfn._executions.get(arn)
        if known is None:
            run = _new_run(machine, way, data, value, arn, name)
            if run.standard:
                sfn._executions[arn] = run.record
    if known is None:
        run.start()
        return _started(run.record)
    if not same_execution(known, value):
        raise Refused("ExecutionAlreadyExists", f"Execution Already Exists: '{arn}'")
    return _started(known)


def _started(record: dict[str, Any]) -> Response:
    from ministack.core.responses import json_response

    answer: Response = json_response({"executionArn": record["executionArn"], "startDate": record["startDate"]})
    return answer


def billed(record: dict[str, Any]) -> dict[str, int]:
    """What an Express execution is billed for."""
    seconds = datetime.fromisoformat(record["stopDate"]) - datetime.fromisoformat(record["startDate"])
    milliseconds = max(1, -(-int(seconds.total_seconds() * 1000) // 100)) * 100
    return {"billedMemoryUsedInMB": MEMORY_STEP, "billedDurationInMilliseconds": milliseconds}


@refusable
def start_sync_execution(data: dict[str, Any]) -> Response:
    from ministack.core.responses import json_response

    value = parsed_input(data.get("input", NO_INPUT))
    name = data.get("name") or str(uuid.uuid4())
    check_name(name)
    machine, way = machine_of(data.get("stateMachineArn", ""))
    if machine.kind == "STANDARD":
        raise Refused("StateMachineTypeNotSupported", UNSUPPORTED)
    run = _new_run(machine, way, data, value, execution_arn(machine, name), name)
    run.work()
    record = run.record
    hidden = HIDDEN | {"stateMachineVersionArn", "stateMachineAliasArn"}
    shown = {key: value for key, value in record.items() if key not in hidden and value is not None}
    if shown["status"] != "SUCCEEDED":
        shown.pop("output", None)
        shown["status"] = "TIMED_OUT" if shown["status"] == "TIMED_OUT" else "FAILED"
    shown["billingDetails"] = billed(record)
    answer: Response = json_response(shown)
    return answer


@refusable
def stop_execution(data: dict[str, Any]) -> Response:
    from ministack.core.responses import json_response

    check_arn(data.get("executionArn", ""), "execution")  # an Express child is known, and cannot be stopped
    record = known_execution(data)
    arn = record["executionArn"]
    run = RUNS.get(arn) or LIVE.get(arn)
    if run is not None:
        run.stop(data.get("error"), data.get("cause"))
    answer: Response = json_response({"stopDate": record["stopDate"] or iso(datetime.now(UTC))})
    return answer


def install() -> None:
    from ministack.services import stepfunctions as sfn

    def of_known(operation: Callable[[dict[str, Any]], Response]) -> Callable[[dict[str, Any]], Response]:
        @refusable
        def asked(data: dict[str, Any]) -> Response:
            known_execution(data)
            return operation(data)

        return asked

    _ = sfn._start_execution, sfn._start_sync_execution, sfn._stop_execution
    _ = sfn._executions, sfn._state_machines, sfn._state_machine_versions, sfn._state_machine_aliases
    sfn._start_execution = start_execution
    sfn._start_sync_execution = start_sync_execution
    sfn._stop_execution = stop_execution
    sfn._get_execution_history = of_known(sfn._get_execution_history)
    # Threads of their own: these begin, end or wait for an execution, and the first of them loads the interpreter.
    sfn._OFF_LOOP_ACTIONS |= {"StartExecution", "StopExecution"}
