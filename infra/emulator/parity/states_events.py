"""The events that an execution puts on the default event bus.

**On AWS** a Standard execution puts «Step Functions Execution Status Change», from ``aws.states``, when it starts and
when it ends. Times are in milliseconds. An input or output whose escaped form is over 248 KiB is left out, which
``inputDetails`` or ``outputDetails`` then says (Step Functions Developer Guide, "Automating event delivery", with an
event for each status).

**MiniStack** knows RUNNING, SUCCEEDED, FAILED and ABORTED; an aborted execution's error is not in its event.

**Here** the event is made from the execution's record, whatever ended it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from .states_redrive_rules import fields

PAYLOAD = 248 * 1024
SOURCE = "aws.states"
KIND = "Step Functions Execution Status Change"
FAILURES = frozenset({"FAILED", "TIMED_OUT", "ABORTED"})


def milliseconds(moment: str | None) -> int | None:
    """A moment as the record has it, since 1970."""
    return None if moment is None else round(datetime.fromisoformat(moment).timestamp() * 1000)


def detail(record: Mapping[str, Any]) -> dict[str, Any]:
    """The detail of the event for the status that an execution has now."""
    status = record["status"]
    redrive = fields(record)
    output = record.get("output") if status == "SUCCEEDED" else None
    found: dict[str, Any] = {
        "executionArn": record["executionArn"],
        "stateMachineArn": record["stateMachineArn"],
        "name": record["name"],
        "status": status,
        "startDate": milliseconds(record["startDate"]),
        "stopDate": milliseconds(record.get("stopDate")),
        "input": record.get("input"),
        "output": output,
        "inputDetails": {"included": True},
        "outputDetails": None if output is None else {"included": True},
        "stateMachineVersionArn": record.get("stateMachineVersionArn"),
        "stateMachineAliasArn": record.get("stateMachineAliasArn"),
        **redrive,
        "redriveDate": milliseconds(redrive["redriveDate"]),
        "error": record.get("error") if status in FAILURES else None,
        "cause": record.get("cause") if status in FAILURES else None,
    }
    for name in ("input", "output"):
        if found[name] is not None and len(json.dumps(found[name]).encode()) > PAYLOAD:
            found[name] = None
            found[f"{name}Details"] = {"included": False}
    return found


def announce(record: Mapping[str, Any]) -> None:
    """Put the event for the execution's status, in the account and Region of the request."""
    from ministack.services import eventbridge

    entry = {
        "Source": SOURCE,
        "DetailType": KIND,
        "Detail": json.dumps(detail(record)),
        "Resources": [record["executionArn"]],
    }
    eventbridge._put_events({"Entries": [entry]}, allow_aws_source=True)


def install() -> None:
    from ministack.services import eventbridge, stepfunctions

    _ = eventbridge._put_events, stepfunctions._emit_execution_status_event
    stepfunctions._emit_execution_status_event = announce
