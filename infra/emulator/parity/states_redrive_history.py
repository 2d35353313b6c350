"""The beginning and the end of an execution's history, and of each redrive of it.

**On AWS** a redrive goes on with the history: ExecutionRedriven follows the event that ended it, with the number of the
redrive, and ids go on. ``$$.Execution`` has RedriveCount, and RedriveTime once there was one (recorded on AWS).

**MiniStack** does not know RedriveExecution; moto's interpreter has no such events.

**Here** what a redrive adds is in a list of its own with all that was before: what is left of an earlier attempt has
the old list, which is complete and takes no event.
"""

from __future__ import annotations

from typing import Any

from .states_errors import ended

LAST = {
    "SUCCEEDED": ("ExecutionSucceeded", "executionSucceededEventDetails"),
    "FAILED": ("ExecutionFailed", "executionFailedEventDetails"),
    "ABORTED": ("ExecutionAborted", "executionAbortedEventDetails"),
    "TIMED_OUT": ("ExecutionTimedOut", "executionTimedOutEventDetails"),
}


def execution_context(record: dict[str, Any], value: Any, role: str) -> dict[str, Any]:
    """What the context object says about an execution."""
    found = {
        "Id": record["executionArn"],
        "Input": value,
        "StartTime": record["startDate"],
        "Name": record["name"],
        "RoleArn": role,
        "RedriveCount": record.get("redriveCount", 0),
    }
    return found | ({"RedriveTime": record["redriveDate"]} if "redriveDate" in record else {})


def last_details(status: str, found: dict[str, Any]) -> dict[str, Any]:
    """The details of the event that ends a history."""
    if status == "SUCCEEDED":
        return {"output": found["output"], "outputDetails": {"truncated": False}}
    return {name: found[name] for name in ("error", "cause") if found.get(name) is not None}


def begin_history(env: Any, record: dict[str, Any], role: str) -> None:
    """Let the environment write the record's history: a new one, or the rest of one that had ended."""
    from moto.stepfunctions.parser.api import HistoryEventType
    from moto.stepfunctions.parser.asl.eval.event.event_detail import EventDetails
    from moto.stepfunctions.parser.asl.eval.event.event_manager import EventHistoryContext, EventManager

    session = None if env.is_frame() else env.cloud_watch_logging_session  # a child has none of its own
    manager, before = EventManager(session), list(record["events"])
    manager._event_id_gen._next_id = len(before) + 1
    if before:
        details = EventDetails(executionRedrivenEventDetails={"redriveCount": record["redriveCount"]})
        kind, context = HistoryEventType.ExecutionRedriven, EventHistoryContext(before[-1]["id"])
        manager.add_event(context=context, event_type=kind, event_details=details)
        manager._history_event_list[:0] = before
        env.event_history_context.source_event_id = len(before) + 1
    else:
        started = {"input": record["input"], "inputDetails": {"truncated": False}, "roleArn": role}
        manager.add_event(
            context=env.event_history_context,
            event_type=HistoryEventType.ExecutionStarted,
            event_details=EventDetails(executionStartedEventDetails=started),
            update_source_event_id=False,
        )
    env.event_manager = manager
    record["events"] = manager._history_event_list


def end_history(manager: Any, status: str, found: dict[str, Any], after: int | None = None) -> None:
    """Write down the end, unless it is there. It follows the last event, or that with the id ``after``."""
    from moto.stepfunctions.parser.api import HistoryEventType
    from moto.stepfunctions.parser.asl.eval.event.event_detail import EventDetails
    from moto.stepfunctions.parser.asl.eval.event.event_manager import EventHistoryContext

    events = manager._history_event_list
    if ended(events):
        return
    kind, name = LAST[status]
    source = 0 if status == "ABORTED" else events[-1]["id"] if events and after is None else after or 0
    manager.add_event(
        context=EventHistoryContext(source),
        event_type=HistoryEventType(kind),
        event_details=EventDetails(**{name: last_details(status, found)}),
    )
