"""Which executions can be redriven, and which requests to do it are the same one again.

**On AWS** a Standard execution that failed, timed out or was aborted can be redriven within 14 days of its end and a
year of its start, while its history has fewer than 24,999 events. A child of a Map run is redriven with its parent
alone. A client token with which an execution was redriven is answered again, whatever the execution does by now, with
the date of that redrive; that holds for the last ten such tokens, and for 15 minutes. A request that was refused does
not use its token (botocore: stepfunctions service model; Step Functions Developer Guide, "Restarting state machine
executions with redrive"; recorded on AWS).

**MiniStack** does not know RedriveExecution.

**Here** the rules are those. One is ours: where an execution stood is kept for the last :data:`KEPT` that ended
without success; an earlier one cannot be redriven any more. Not verified: the texts of the reasons that need time or
25,000 events to see; what a child shows whose Map run succeeded in spite of it (here: REDRIVABLE_BY_MAP_RUN).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

UNSUCCESSFUL = frozenset({"FAILED", "TIMED_OUT", "ABORTED"})
WINDOW = timedelta(days=14)
LONGEST = timedelta(days=365)  # an execution is open at most
MAX_EVENTS = 24_999
MAX_MAP_REDRIVES = 1000  # of one Map run
TOKENS = 10
TOKEN_LIFE = timedelta(minutes=15)
KEPT = 1000


def why_not(record: Mapping[str, Any], now: datetime, kept: bool = True) -> str | None:
    """Why this execution cannot be redriven, or None when it can."""
    status = record["status"]
    if status not in UNSUCCESSFUL:
        return f"Execution is {status} and cannot be redriven"
    if now - datetime.fromisoformat(record["startDate"]) >= LONGEST:
        return "Execution has exceeded the max execution time"
    if record.get("stopDate") and now - datetime.fromisoformat(record["stopDate"]) > WINDOW:
        return "Execution redrivable period exceeded"
    if len(record["events"]) >= MAX_EVENTS:
        return "Execution history event limit exceeded"
    if not kept:
        return f"The stand-in knows where the last {KEPT} unsuccessful executions stood, and this is an earlier one"
    return None


def fields(record: Mapping[str, Any], now: datetime | None = None, kept: bool = True) -> dict[str, Any]:
    """What a description and an event say about redriving an execution; ``now`` is its last change by default."""
    moment = now or datetime.fromisoformat(record.get("stopDate") or record["startDate"])
    child = "mapRunArn" in record
    reason = why_not(record, moment, kept or child)
    possible = "REDRIVABLE_BY_MAP_RUN" if child else "REDRIVABLE"
    return {
        "redriveCount": record.get("redriveCount", 0),
        "redriveDate": record.get("redriveDate"),
        "redriveStatus": possible if reason is None else "NOT_REDRIVABLE",
        "redriveStatusReason": reason,
    }


class Requests:
    """The client tokens with which one execution was redriven."""

    def __init__(self) -> None:
        self._answers: OrderedDict[str, tuple[str, datetime]] = OrderedDict()

    def answer(self, token: str | None, now: datetime) -> str | None:
        """The date of the redrive that this token stands for, while it stands for one."""
        date, used = self._answers.get(token or "", ("", now))
        return date if date and now - used <= TOKEN_LIFE else None

    def remember(self, token: str | None, date: str, now: datetime) -> None:
        if token:
            self._answers.pop(token, None)
            self._answers[token] = (date, now)
            while len(self._answers) > TOKENS:
                self._answers.popitem(last=False)


class Last:
    """The last so many things, by their names."""

    def __init__(self, most: int = KEPT) -> None:
        self._most = most
        self._things: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()

    def put(self, name: str, thing: Any) -> None:
        with self._lock:
            self._things.pop(name, None)
            self._things[name] = thing
            while len(self._things) > self._most:
                self._things.popitem(last=False)

    def get(self, name: str) -> Any:
        return self._things.get(name)

    def take(self, name: str) -> Any:
        with self._lock:
            return self._things.pop(name, None)

    def clear(self) -> None:
        with self._lock:
            self._things.clear()

    def __contains__(self, name: str) -> bool:
        return name in self._things

    def __len__(self) -> int:
        return len(self._things)


REDRIVABLE = Last()
