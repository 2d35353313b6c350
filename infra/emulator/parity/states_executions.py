"""Starting, stopping and describing executions.

**On AWS** StartExecution of a Standard state machine is idempotent by name and input while the execution runs;
another input, or a name that was used in the last 90 days, is ExecutionAlreadyExists. Executions of an Express state
machine cannot be described, listed or stopped; StartSyncExecution runs one and answers with its output (Step Functions
API Reference, "StartExecution", "StartSyncExecution"; refusals recorded on AWS).

**MiniStack** refuses every name that it knows, takes inputs of any size and form, and keeps Express executions like
Standard ones.

**Here** they are as documented. More than :data:`parity.states_runs.MAX_RUNNING` executions at a time are refused with
ExecutionLimitExceeded. A version or an alias runs the definition that was published. Not verified: that inputs are
compared as JSON and not as text; the answer to stopping an execution that ended (here: when it ended); that deleting a
state machine ends its executions (here it does; on AWS it takes until they have ended).
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from .states_callbacks import Response, refusable
from .states_events import redrive
from .states_runs import RUNS, Machine, Run, iso, new_record
from .states_tokens import Refused, check_size

NOT_IN_NAMES = re.compile(r'[\s<>{}\[\]?*"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f]')
MAX_NAME = 80
NO_INPUT = "{}"
UNSUPPORTED = "This operation is not supported by this type of state machine"
MEMORY_STEP = 64  # MB, in which Express executions are billed

_starting = threading.Lock()


def check_name(name: str) -> None:
    """Raise :class:`Refused` unless an execution can be called so."""
    if not 1 <= len(name) <= MAX_NAME or NOT_IN_NAMES.search(name):
        raise Refused("InvalidName", f"Invalid Name: '{name}'")


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


def check_standard(arn: str) -> None:
    """Raise :class:`Refused` for the ARN of an Express execution."""
    if arn.split(":")[5:6] == ["express"]:
        raise Refused("InvalidArn", "Invalid Arn: 'Resource type not valid in this context: express'")


def description(record: dict[str, Any]) -> dict[str, Any]:
    """What DescribeExecution shows of a record."""
    hidden = {"events", *(() if record["status"] == "SUCCEEDED" else ("output", "outputDetails"))}
    shown = {key: value for key, value in record.items() if key not in hidden and value is not None}
    possible, reason = redrive(record["status"])
    shown |= {"redriveCount": 0, "redriveStatus": possible}
    return shown if reason is None else shown | {"redriveStatusReason": reason}


def machine_of(arn: str) -> tuple[Machine, dict[str, str]]:
    """The state machine behind its ARN, a version's or an alias's; and what describes the way there."""
    from ministack.services import stepfunctions as sfn

    base = sfn._resolve_state_machine_arn(arn)
    if base is None:
        raise Refused("StateMachineDoesNotExist", f"State Machine Does Not Exist: '{arn}'")
    stored = sfn._state_machines[base]
    version_arn = sfn._execution_version_arn(arn)
    version = sfn._state_machine_versions.get(version_arn) or {}
    found = {**stored, **{key: version[key] for key in ("definition", "roleArn") if key in version}}
    way = {"stateMachineVersionArn": version_arn} if version_arn else {}
    if arn in sfn._state_machine_aliases:
        way["stateMachineAliasArn"] = arn
    return Machine(base, stored["name"], found["definition"], found["roleArn"], stored["type"]), way


def known_execution(data: dict[str, Any]) -> dict[str, Any]:
    """The record of the execution that a request names, or :class:`Refused`."""
    from ministack.services import stepfunctions as sfn

    arn = data.get("executionArn", "")
    check_standard(arn)
    found: dict[str, Any] | None = sfn._executions.get(arn)
    if found is None:
        raise Refused("ExecutionDoesNotExist", f"Execution Does Not Exist: '{arn}'")
    return found


def _new_run(machine: Machine, way: dict[str, str], data: dict[str, Any], value: Any, arn: str, name: str) -> Run:
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
    hidden = {"events", "stateMachineVersionArn", "stateMachineAliasArn"}
    shown = {key: value for key, value in record.items() if key not in hidden and value is not None}
    if shown["status"] != "SUCCEEDED":
        shown.pop("output", None)
        shown["status"] = "TIMED_OUT" if shown["status"] == "TIMED_OUT" else "FAILED"
    seconds = datetime.fromisoformat(record["stopDate"]) - datetime.fromisoformat(record["startDate"])
    billed = max(1, -(-int(seconds.total_seconds() * 1000) // 100)) * 100
    shown["billingDetails"] = {"billedMemoryUsedInMB": MEMORY_STEP, "billedDurationInMilliseconds": billed}
    answer: Response = json_response(shown)
    return answer


@refusable
def stop_execution(data: dict[str, Any]) -> Response:
    from ministack.core.responses import json_response

    record = known_execution(data)
    run = RUNS.get(record["executionArn"])
    if run is not None:
        run.stop(data.get("error"), data.get("cause"))
    answer: Response = json_response({"stopDate": record["stopDate"] or iso(datetime.now(UTC))})
    return answer


@refusable
def describe_execution(data: dict[str, Any]) -> Response:
    from ministack.core.responses import json_response

    answer: Response = json_response(description(known_execution(data)))
    return answer


def install() -> None:
    from ministack.services import stepfunctions as sfn

    def of_known(operation: Callable[[dict[str, Any]], Response]) -> Callable[[dict[str, Any]], Response]:
        @refusable
        def asked(data: dict[str, Any]) -> Response:
            known_execution(data)
            return operation(data)

        return asked

    def of_standard(operation: Callable[[dict[str, Any]], Response]) -> Callable[[dict[str, Any]], Response]:
        @refusable
        def asked(data: dict[str, Any]) -> Response:
            if data.get("stateMachineArn") and machine_of(data["stateMachineArn"])[0].kind != "STANDARD":
                raise Refused("StateMachineTypeNotSupported", UNSUPPORTED)
            status, headers, body = operation(data)
            page = json.loads(body)
            for item in page.get("executions", ()):
                item["redriveCount"] = 0
            return status, headers, json.dumps(page).encode()

        return asked

    _ = sfn._start_execution, sfn._start_sync_execution, sfn._stop_execution, sfn._describe_execution
    _ = sfn._executions, sfn._state_machines, sfn._state_machine_versions, sfn._state_machine_aliases
    _ = sfn._resolve_state_machine_arn, sfn._execution_version_arn
    sfn._start_execution = start_execution
    sfn._start_sync_execution = start_sync_execution
    sfn._stop_execution = stop_execution
    sfn._describe_execution = describe_execution
    sfn._get_execution_history = of_known(sfn._get_execution_history)
    sfn._describe_state_machine_for_execution = of_known(sfn._describe_state_machine_for_execution)
    sfn._list_executions = of_standard(sfn._list_executions)
    # Threads of their own: these begin, end or wait for an execution, and the first of them loads the interpreter.
    sfn._OFF_LOOP_ACTIONS |= {"StartExecution", "StopExecution"}
