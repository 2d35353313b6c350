"""Requests of a human gate: a row of the approvals table as it was read, and what an execution did with its answer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from labkit.errors import LabError

State = Literal["pending", "approved", "rejected", "expired"]
Decision = Literal["approved", "rejected"]
PENDING: State = "pending"
EXPIRED: State = "expired"
APPROVED: Decision = "approved"
REJECTED: Decision = "rejected"
_ENDS = ("ExecutionAborted", "ExecutionFailed", "ExecutionSucceeded", "ExecutionTimedOut")


class ApprovalError(LabError):
    """An answer cannot be taken; the sentence says why."""


class NoSuchRequest(ApprovalError):
    """There is no request of this id."""


class AlreadyAnswered(ApprovalError):
    """Another answer stands: ``request`` has it."""

    def __init__(self, request: Request) -> None:
        self.request = request
        super().__init__(f"request {request.id} was {request.state} by {request.decided_by} already.")


class TooLate(ApprovalError):
    """Nobody waits for the answer any more: ``request`` has expired, and the workflow has gone on without it."""

    def __init__(self, request: Request) -> None:
        self.request = request
        super().__init__(f"request {request.id} has expired: the workflow has gone on without an answer.")


@dataclass(frozen=True)
class Request:
    """One request, without its token. ``question`` is parsed; ``group`` was asked; times are ISO 8601."""

    id: str
    state: State
    group: str
    question: Any
    execution: str
    asked_at: str
    answer_until: str
    decided_by: str | None = None
    decided_at: str | None = None
    note: str = ""
    delivered: bool = False
    token: str = field(default="", repr=False, compare=False)

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> Request:
        """From a row. Raises :class:`ApprovalError` for one that no gate has written."""
        text = {key: str(value.get("S", "")) for key, value in item.items()}
        try:
            if text["gate_state"] not in (PENDING, APPROVED, REJECTED, EXPIRED):
                raise ValueError(f"a gate_state {text['gate_state']!r:.40}")
            return cls(
                id=text["pk"],
                state=text["gate_state"],
                group=text["asked_of"],
                question=json.loads(text["question"]).get("asked"),
                execution=text["execution"],
                asked_at=text["asked_at"],
                answer_until=text["answer_until"],
                decided_by=text.get("decided_by"),
                decided_at=text.get("decided_at"),
                note=text.get("note", ""),
                delivered=text["gate_state"] in (APPROVED, REJECTED) and "open_in" not in text,
                token=text["task_token"],
            )
        except (KeyError, ValueError, AttributeError, RecursionError) as error:
            raise ApprovalError(f"row {text.get('pk', '')!r:.80} is no request of a gate: {error!r}.") from None


def fate(events: Iterable[Mapping[str, Any]], request: Request) -> tuple[bool, bool | None]:
    """Whether the history has the attempt of the request's token, and whether this answer ended it; None: not yet."""
    mine: set[int] = set()
    for event in events:
        kind, number = str(event["type"]), int(event["id"])
        if kind == "TaskScheduled":
            if request.token in str((event.get("taskScheduledEventDetails") or {}).get("parameters", "")):
                mine.add(number)
        elif event.get("previousEventId") in mine:
            if kind == "TaskSucceeded":
                return True, _is_of((event.get("taskSucceededEventDetails") or {}).get("output", ""), request)
            if kind not in ("TaskStarted", "TaskSubmitted"):
                return True, False
            mine.add(number)
        elif mine and kind in _ENDS:
            return True, False
    return bool(mine), None


def _is_of(output: str, request: Request) -> bool:
    """Whether a state's result is this decision, and not that of somebody else who had the token."""
    try:
        told = json.loads(output)
    except (ValueError, RecursionError):
        return False
    says = (request.id, request.state == APPROVED)
    return isinstance(told, dict) and (told.get("request"), told.get("approved")) == says


def as_text(question: Any, indent: int | None = None) -> str:
    """What is asked, to be read: a text as it is, anything else as JSON."""
    if isinstance(question, str):
        return question
    try:
        return json.dumps(question, indent=indent, ensure_ascii=False)
    except RecursionError:  # one such question must not hide the others
        return "(nested too deeply to be shown)"
