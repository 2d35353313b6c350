"""Executions described and listed.

**On AWS** executions are listed from the last to the first (those that run by their start or redrive, the others by
their end), by their state machine, its version or its alias, and by their status. Filters for redrives, and for
executions that wait for one, are for Map runs alone: with a state machine they are a ValidationException.
DescribeStateMachineForExecution shows the state machine as it was when the execution began (Step Functions API
Reference, "ListExecutions", "DescribeStateMachineForExecution"; botocore's service model; answers recorded on AWS).

**MiniStack** lists by the state machine alone, and shows the state machine as it is now.

**Here** they are as recorded. Not verified: the texts when a list is asked for by neither or both of its ARNs, by a Map
run that is not known, or with such a filter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from .states_callbacks import Response, refusable
from .states_executions import HIDDEN, MACHINE, UNSUPPORTED, known_execution, machine_of
from .states_machines import NO_TRACING, json_answer
from .states_map_runs import known_run
from .states_redrive_rules import REDRIVABLE, fields
from .states_requests import Row, check_enum, page
from .states_tokens import Refused

STATUSES = ("SUCCEEDED", "TIMED_OUT", "PENDING_REDRIVE", "ABORTED", "FAILED", "RUNNING")
LONGEST_TOKEN = 3096
LISTED = (
    "executionArn",
    "stateMachineArn",
    "stateMachineVersionArn",
    "stateMachineAliasArn",
    "mapRunArn",
    "itemCount",
    "name",
    "status",
    "startDate",
    "stopDate",
    "redriveDate",
)


def description(record: dict[str, Any], now: datetime | None = None, kept: bool = True) -> dict[str, Any]:
    """What DescribeExecution shows of a record; ``kept``: whether it is known where the execution stood."""
    hidden = HIDDEN | (frozenset() if record["status"] == "SUCCEEDED" else {"output", "outputDetails"})
    shown = {key: value for key, value in record.items() if key not in hidden and value is not None}
    redrive = fields(record, now, kept)
    return shown | {key: value for key, value in redrive.items() if value is not None}


@refusable
def describe_execution(data: dict[str, Any]) -> Response:
    record = known_execution(data)
    return json_answer(description(record, datetime.now(UTC), record["executionArn"] in REDRIVABLE))


@refusable
def describe_state_machine_for_execution(data: dict[str, Any]) -> Response:
    record = known_execution(data)
    made = dict(record.get(MACHINE) or {})
    moment = made.pop("creationDate", record["startDate"])
    found = {"stateMachineArn": record["stateMachineArn"], "tracingConfiguration": dict(NO_TRACING)}
    found |= {key: value for key, value in made.items() if value is not None}
    found.setdefault("updateDate", moment)
    if data.get("includedData") == "METADATA_ONLY":
        found["definition"] = "{}"
    return json_answer(found)


@refusable
def list_executions(data: dict[str, Any]) -> Response:
    from ministack.services import stepfunctions as sfn

    check_list(data, lambda arn: machine_of(arn)[0].kind, known_run)
    return json_answer(listed(data, list(sfn._executions.values())))


def check_list(data: Mapping[str, Any], kind_of: Callable[[str], str], look: Callable[[str], Any]) -> None:
    """Raise :class:`Refused` unless executions can be listed so.

    ``kind_of(arn)`` is the type of a state machine, and ``look(arn)`` looks a Map run up; both refuse what is unknown.
    """
    check_enum("statusFilter", data.get("statusFilter"), STATUSES)
    check_enum("redriveFilter", data.get("redriveFilter"), ("REDRIVEN", "NOT_REDRIVEN"))
    arn, run = data.get("stateMachineArn"), data.get("mapRunArn")
    if (arn is None) == (run is None):
        raise Refused("ValidationException", "Exactly one of stateMachineArn and mapRunArn must be given")
    if arn is None:
        look(str(run))
        return
    if data.get("redriveFilter") or data.get("statusFilter") == "PENDING_REDRIVE":
        raise Refused("ValidationException", "Filters for redrives can be used with mapRunArn only")
    if kind_of(arn) != "STANDARD":
        raise Refused("StateMachineTypeNotSupported", UNSUPPORTED)


def listed(data: Mapping[str, Any], records: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """The page that a request asks for, of all the records in the order of their starts."""
    rows: list[Row] = []
    for record in _asked_for(data, records):
        item = {key: record[key] for key in LISTED if record.get(key)}
        rows.append((moment(record), record["executionArn"], item | {"redriveCount": record.get("redriveCount", 0)}))
    rows.reverse()  # of those of one millisecond too the last one first
    rows.sort(key=lambda row: row[0], reverse=True)
    return page(data, "executions", rows, newest_first=True, longest=LONGEST_TOKEN)


def moment(record: Mapping[str, Any]) -> str:
    """When an execution began to be as it is, by which lists are ordered."""
    since = record.get("redriveDate") or record["startDate"]
    return str(since if record["status"] == "RUNNING" else record.get("stopDate") or since)


def _asked_for(data: Mapping[str, Any], records: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    arn, run = data.get("stateMachineArn"), data.get("mapRunArn")
    status, redriven = data.get("statusFilter"), data.get("redriveFilter")
    names = ("stateMachineArn", "stateMachineVersionArn", "stateMachineAliasArn") if arn else ("mapRunArn",)
    return [
        record
        for record in records
        if (arn or run) in [record.get(key) for key in names]
        and not (arn and record.get("mapRunArn"))
        and status in (None, record["status"])
        and redriven in (None, "REDRIVEN" if record.get("redriveCount") else "NOT_REDRIVEN")
    ]


def install() -> None:
    from ministack.services import stepfunctions as sfn

    _ = sfn._describe_execution, sfn._describe_state_machine_for_execution, sfn._list_executions, sfn._executions
    sfn._describe_execution = describe_execution
    sfn._describe_state_machine_for_execution = describe_state_machine_for_execution
    sfn._list_executions = list_executions
