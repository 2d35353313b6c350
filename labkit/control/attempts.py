"""Attempts: which events of a history belong to which attempt at which state.

Only some events name their state. The others say which event came before them (``previousEventId``), and with branches
and iterations under way at once that is not the event above. So each event is followed back to the *stay* that it
belongs to: a state, from entered to left, inside a branch or an iteration of another stay. A stay has attempts, because
a Retry leaves no event of its own: the state is just scheduled (or, for Parallel and Map, started) once more::

    TaskStateEntered ─ TaskScheduled ─ TaskSubmitted ─ TaskTimedOut ─ TaskScheduled ─ … TaskSucceeded ─ TaskStateExited
    |<-------------------- attempt 1 ---------------------------->|   |<----- attempt 2 ----------->|
    |<-------------------------------------------- one stay ------------------------------------------------>|

After a redrive a state is not entered again: its next attempt follows its old entry (recorded on AWS). An event that
follows ExecutionRedriven itself goes to the state that failed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

Event = Mapping[str, Any]

CALLBACK = ".waitForTaskToken"
_FAILED = ("Failed", "TimedOut", "Aborted")  # how the names of such events end
_BY_STATE = ("StateEntered", "StateExited")


@dataclass(eq=False)
class Attempt:
    """One attempt at a state. ``outcome`` is "" while it is under way."""

    began: datetime
    entered: str
    outcome: str = ""
    error: str | None = None
    ended: datetime | None = None
    asked: str | None = None  # what was scheduled, to find it again after a redrive
    resource: str = ""
    submitted: bool = False

    def end(self, outcome: str, when: datetime, error: str | None = None) -> None:
        if not self.outcome:
            self.outcome, self.ended, self.error = outcome, when, error


@dataclass(eq=False)
class Stay:
    """A state from entered to left. ``where``: the branch or iteration that it is in, the outermost first."""

    name: str
    kind: str  # Task, Pass, Choice, Wait, Parallel, Map, Succeed, Fail
    parent: Stay | None
    where: tuple[str, ...]
    attempts: list[Attempt] = field(default_factory=list)
    left: bool = False
    redrives: int = 0  # of the execution, when this stay last went on
    exhausted: bool = False  # an event says that it failed, and not only one of its attempts

    @property
    def last(self) -> Attempt:
        return self.attempts[-1]

    @property
    def stands(self) -> bool:
        """Entered and not left, nor given up."""
        return not self.left and (not self.last.outcome or self.last.outcome == "retried")

    @property
    def parked(self) -> bool:
        """Its work has begun, and has not ended: for a callback, the token has been handed on."""
        if self.left or self.last.outcome:
            return False
        if self.kind != "Task":
            return True
        return self.last.submitted or (self.last.asked is not None and not self.last.resource.endswith(CALLBACK))

    def up(self) -> Iterator[Stay]:
        """This stay, and those around it."""
        stay: Stay | None = self
        while stay is not None:
            yield stay
            stay = stay.parent


class Follower:
    """Goes through events in order; ``stays`` are the states that were entered, in order."""

    def __init__(self, events: Iterator[Event]) -> None:
        self.stays: list[Stay] = []
        self.status = "RUNNING"
        self._at: dict[int, Stay | None] = {}  # event id → the stay that it belongs to
        self._inside: dict[int, tuple[str, ...]] = {}  # event id → the branch or iteration that begins with it
        self._after: dict[int, str] = {}  # event id → how a state that follows it is entered
        self._redrives = 0
        for event in events:
            self._follow(event)

    def _follow(self, event: Event) -> None:
        kind, before, when = str(event["type"]), int(event.get("previousEventId", 0)), event["timestamp"]
        stay = self._at.get(before)
        details: Event = next((value for key, value in event.items() if key.endswith("EventDetails")), {})
        name = details.get("name", "")
        if kind.endswith("StateEntered"):
            stay = self._enter(kind.removesuffix("StateEntered"), name, before, when)
        elif kind.endswith("StateExited"):
            stay = self._named(stay, name)
            self._exit(stay, details, when, event["id"])
        elif kind.startswith("Execution"):
            self._execution(kind.removeprefix("Execution"), stay, details, when)
        elif kind.startswith("MapIteration"):
            stay = self._iteration(kind, stay, details, int(event["id"]))
        elif kind.endswith("StateStarted") or kind == "MapRunRedriven":
            stay = self._container(stay, kind[: 3 if kind.startswith("Map") else 8], when)
        elif kind.endswith("Scheduled"):
            stay = self._scheduled(stay, details, when)
        elif kind.endswith("Submitted") and stay:
            stay.last.submitted = True
        elif kind.endswith("Succeeded") and stay:
            stay = self._holder(stay, kind) or stay
            stay.last.end("succeeded", when)
        elif kind.endswith(_FAILED) and stay:
            stay = self._failed(stay, kind, details, when)
        self._at[int(event["id"])] = stay

    def _enter(self, kind: str, name: str, before: int, when: datetime) -> Stay:
        previous = self._at.get(before)
        if undone := next((each for each in self.stays if each.name == name and self._due(each)), None):
            self._again(undone, when)
            return undone
        if before in self._inside:
            parent, where = previous, self._inside[before]
        elif previous is None:
            parent, where = None, ()
        elif previous.left:
            parent, where = previous.parent, previous.where
        else:  # the first state of a branch
            again = f", attempt {len(previous.attempts)}" if len(previous.attempts) > 1 else ""
            parent, where = previous, (*previous.where, f"{previous.name}: {name}{again}")
        first = Attempt(when, self._after.get(before, "start"))
        stay = Stay(name, kind, parent, where, [first], redrives=self._redrives)
        self.stays.append(stay)
        return stay

    def _exit(self, stay: Stay | None, details: Event, when: datetime, event: int) -> None:
        if stay is None:
            return
        self._after[event] = "catch" if stay.last.outcome else "next"
        if stay.last.outcome == "succeeded":
            self._after[event] = "next"
        elif stay.last.outcome:
            stay.last.outcome = "caught"
            stay.last.error = stay.last.error or _error_in(details.get("output"))
        stay.last.end("succeeded", when)
        stay.left = True
        self._cut_off(stay, when)

    def _iteration(self, kind: str, stay: Stay | None, details: Event, event: int) -> Stay | None:
        found = self._named(stay, details.get("name", ""))
        if found and kind == "MapIterationStarted":
            again = f", attempt {len(found.attempts)}" if len(found.attempts) > 1 else ""
            self._inside[event] = (*found.where, f"{found.name} {details.get('index', 0)}{again}")
            self._after[event] = "start"
        return found

    def _container(self, stay: Stay | None, kind: str, when: datetime) -> Stay | None:
        """A Parallel or a Map begins its work: for the first time, or as another attempt."""
        around = [each for each in (stay.up() if stay else ()) if each.kind == kind and not each.left]
        found = next((each for each in around if not each.exhausted), around[0] if around else None)
        if found is None:
            found = next((each for each in self.stays if each.kind == kind and self._due(each)), None)
        if found is None:
            return stay
        if found.last.outcome or found.last.asked is not None:
            if not found.last.outcome:
                self._fail_up(stay, found, when)
            if self._due(found):
                self._again(found, when)
            else:
                self._retry(found, when)
        found.last.asked = ""
        return found

    def _scheduled(self, stay: Stay | None, details: Event, when: datetime) -> Stay | None:
        asked = json.dumps([details.get(key) for key in ("resource", "parameters", "input")])
        if stay is None or stay.left or stay.kind != "Task":
            due = [each for each in self.stays if each.kind == "Task" and self._due(each)]
            stay = next((each for each in due if each.last.asked == asked), next(iter(due), stay))
        if stay is None:
            return None
        if stay.last.outcome:
            if self._due(stay):
                self._again(stay, when)
            else:
                self._retry(stay, when)
        elif stay.last.asked is not None:
            self._retry(stay, when)
        stay.last.asked, stay.last.resource = asked, str(details.get("resource", ""))
        return stay

    def _failed(self, stay: Stay, kind: str, details: Event, when: datetime) -> Stay:
        """An attempt has failed, or for a Parallel, a Map or a Map Run, the state."""
        outcome = _outcome(kind)
        holder = self._holder(stay, kind)
        if holder is None:
            stay.last.end(outcome, when, details.get("error"))
            return stay
        self._fail_up(stay, holder, when, outcome, details.get("error"))
        holder.exhausted = True
        return holder

    def _execution(self, what: str, stay: Stay | None, details: Event, when: datetime) -> None:
        if what == "Redriven":
            self.status = "RUNNING"
            self._redrives += 1
            return
        self.status = {"Started": "RUNNING", "TimedOut": "TIMED_OUT"}.get(what, what.upper())
        if what in ("Started", "Succeeded"):
            for each in self.stays if what == "Succeeded" else ():
                if each.kind == "Succeed":  # it is entered, and some are never left
                    each.last.end("succeeded", when)
            return
        if what == "Failed":
            self._fail_up(stay, None, when, "failed", details.get("error"))
        for each in self.stays:
            if not each.left:
                each.last.end("aborted" if what == "Failed" else _outcome(what), when, details.get("error"))

    # -- the stays ---------------------------------------------------------------------------------------------------

    def _named(self, stay: Stay | None, name: str) -> Stay | None:
        """The stay of this name that ``stay`` is, or is in."""
        around = list(stay.up()) if stay else []
        for each in (*around, *reversed(self.stays)):
            if each.name == name and not each.left:
                return each
        return None

    def _holder(self, stay: Stay, kind: str) -> Stay | None:
        """The Parallel or Map that an event of this kind is about; None for those of a task."""
        if not kind.startswith(("Parallel", "Map")):
            return None
        wanted = "Map" if kind.startswith("Map") else "Parallel"
        return next((each for each in stay.up() if each.kind == wanted and not each.left), None)

    def _due(self, stay: Stay) -> bool:
        """Whether the execution was redriven, and has not gone on here since."""
        undone = not stay.left and stay.last.outcome in ("failed", "timed out", "aborted")
        return undone and stay.redrives < self._redrives

    def _retry(self, stay: Stay, when: datetime) -> None:
        stay.last.end("failed", when)
        stay.last.outcome = "retried"
        stay.exhausted = False
        stay.attempts.append(Attempt(when, "retry"))
        self._cut_off(stay, when)

    def _again(self, stay: Stay, when: datetime) -> None:
        """A redrive: this stay goes on, and with it those around it."""
        for each in stay.up():
            if self._due(each):
                each.redrives, each.exhausted = self._redrives, False
                each.attempts.append(Attempt(when, "redrive", asked=None if each is stay else ""))

    def _fail_up(
        self, stay: Stay | None, top: Stay | None, when: datetime, outcome: str = "failed", error: str | None = None
    ) -> None:
        """What was under way from ``stay`` up to ``top`` has failed; its error is known at the innermost place."""
        for each in stay.up() if stay else ():
            error = each.last.error or error
            if not each.left:
                each.last.end(outcome, when, error)
            if each is top:
                break
        if top:
            top.last.end(outcome, when, error)
            self._cut_off(top, when)

    def _cut_off(self, top: Stay, when: datetime) -> None:
        """What is still under way inside of a state whose attempt is over has been aborted."""
        for each in self.stays:
            if each is not top and not each.left and top in each.up():
                each.last.end("aborted", when)


def _outcome(kind: str) -> str:
    return "timed out" if kind.endswith("TimedOut") else "aborted" if kind.endswith("Aborted") else "failed"


def _error_in(output: Any) -> str | None:
    """The error's name in what a Catch handed on."""
    try:
        found = json.loads(output)
    except (TypeError, ValueError):
        return None
    name = found.get("Error") if isinstance(found, dict) else None
    return name if isinstance(name, str) else None
