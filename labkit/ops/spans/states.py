"""States: the spans of an execution, made afterwards from its history.

Step Functions exports no spans of ours. But it keeps, for ninety days, when each attempt at each state began and ended
(:mod:`labkit.control.history`), and the execution's input says what caused it. That is enough::

    start agent-step                   whoever called StartExecution; its context is in the input
        agent-step                     the execution
            Dispatch                   one attempt: from the dispatch to SendTaskSuccess, a time-out or a failure
                process agent-work     the worker's own span

The last step needs the attempt's span id before there is a span. ``infra/machines/agent_step.asl.json`` makes one of
the task token's hash, and sends it along in the message's ``traceparent``. So an attempt that was retried has two spans
with a worker each. From a hash nobody gets the token back; the parameters that hold the token itself are read here for
their ``traceparent`` alone.

An execution whose input carries no context gets a trace of its own, always the same one.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from labkit.control import trace_context
from labkit.control.attempts import CALLBACK, Follower
from labkit.control.executions import Execution
from labkit.ops.spans.record import Record

__all__ = ["spans_of"]


def spans_of(execution: Execution) -> list[Record]:
    """The execution's span and one for each attempt at a state, in the order in which they began.

    What is under way ends now, in the picture: its ``labkit.outcome`` is "standing". Raises
    :class:`~labkit.control.machines.MachineError` for an execution that cannot be asked.
    """
    described = execution.describe()
    events = list(_events(execution))
    context = trace_context.carried(_parsed(described.get("input")))
    name = execution.arn.split(":")[6]
    trace = context.trace_id if context else _hash("trace", execution.arn, length=32)
    own = _hash(execution.arn)
    now = datetime.now(tz=described["startDate"].tzinfo)
    status = str(described["status"])
    made = [
        _record(
            trace, own, context.span_id if context else "", name, described["startDate"],
            described.get("stopDate") or now, status.lower(), str(described.get("error") or ""),
            {"labkit.execution": execution.arn},
        )
    ]  # fmt: skip
    sent = _sent(events)
    followed = Follower(iter(events))
    spans: dict[tuple[int, int], str] = {}
    for place, stay in enumerate(followed.stays):
        for number, each in enumerate(stay.attempts):
            identity = sent.pop((stay.name, each.asked), None) if each.asked else None
            spans[id(stay), number] = identity or _hash(execution.arn, str(place), str(number))
            parent = own
            if stay.parent is not None:  # the attempt of the Parallel or Map that was at work when this one began
                before = [i for i, other in enumerate(stay.parent.attempts) if other.began <= each.began]
                parent = spans.get((id(stay.parent), before[-1] if before else 0), own)
            says = {"labkit.entered": each.entered, "labkit.attempt": number + 1}
            made.append(
                _record(
                    trace, spans[id(stay), number], parent, stay.name, each.began, each.ended or now,
                    each.outcome or "standing", each.error or "", says,
                )
            )  # fmt: skip
    return made


def _record(
    trace: str, span: str, parent: str, name: str, began: datetime, ended: datetime, outcome: str, error: str,
    says: Mapping[str, Any],
) -> Record:  # fmt: skip
    attributes = {**says, "labkit.outcome": outcome, **({"error.type": error} if error else {})}
    failed = outcome not in ("succeeded", "standing", "running")
    return Record(
        trace, span, parent, name, "internal", _ns(began), max(_ns(ended), _ns(began)), attributes,
        status="error" if failed else "", says=error if failed else "", service="states",
    )  # fmt: skip


def _events(execution: Execution) -> Iterator[Mapping[str, Any]]:
    pages = execution.client.get_paginator("get_execution_history").paginate(
        executionArn=execution.arn, PaginationConfig={"PageSize": 1000}
    )
    return (event for page in pages for event in page["events"])


def _sent(events: list[Mapping[str, Any]]) -> dict[tuple[str, str], str]:
    """The span id that each dispatch with a token has sent along, by what :class:`Attempt` remembers of it."""
    found: dict[tuple[str, str], str] = {}
    entered = {event["id"]: event["stateEnteredEventDetails"]["name"] for event in events if _enters(event)}
    state: dict[int, str] = {}
    for event in events:
        state[event["id"]] = entered.get(event["id"]) or state.get(event.get("previousEventId", 0), "")
        details = event.get("taskScheduledEventDetails")
        if details is None or not str(details.get("resource", "")).endswith(CALLBACK):
            continue
        asked = json.dumps([details.get(key) for key in ("resource", "parameters", "input")])
        if context := _within(_parsed(details.get("parameters"))):
            found[state[event["id"]], asked] = context.span_id
    return found


def _enters(event: Mapping[str, Any]) -> bool:
    return str(event["type"]).endswith("StateEntered")


def _within(sent: Any) -> trace_context.TraceContext | None:
    """The context in what was sent: a message's body, a function's payload, an event's entries."""
    left = [sent]
    while left:
        part = _parsed(left.pop())
        if isinstance(part, Mapping):
            if context := trace_context.carried(part):
                return context
            left.extend(part.values())
        elif isinstance(part, list):
            left.extend(part)
    return None


def _parsed(text: Any) -> Any:
    if not isinstance(text, str) or not text.lstrip().startswith(("{", "[")):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _hash(*parts: str, length: int = 16) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:length]


def _ns(moment: datetime) -> int:
    return round(moment.timestamp() * 1e6) * 1_000
