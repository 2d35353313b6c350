"""The child executions of Map runs: their records, their histories, their counts, and how they are redriven.

**On AWS** each item or batch of a distributed Map state is an execution of its own. A redrive of the parent redrives
the Map run under its ARN: Standard children that failed or were aborted go on where they stood, Express ones are
started anew under the ARN that they had, those that had not begun are started, and the rest keep their output. While
they wait they are PENDING_REDRIVE. A Map run that fails aborts the Standard children that run (Step Functions Developer
Guide, "Redriving Map Runs"; recorded on AWS).

**MiniStack** gives a child execution no history. moto's interpreter has no child executions.

**Here** a child that has begun has a record, which is what DescribeExecution and GetExecutionHistory show.
"""

from __future__ import annotations

import json
import threading
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from . import states_fields
from .states_records import RUNS, Machine, iso, new_record
from .states_redrive_history import begin_history, end_history, execution_context
from .states_redrive_places import Scope, frozen
from .states_redrive_rules import MAX_MAP_REDRIVES, UNSUCCESSFUL

ABORTED = "The map run execution [{}] which was managing this resource was aborted"
TOO_OFTEN = f"A Map run can be redriven {MAX_MAP_REDRIVES} times."
PENDING = "PENDING_REDRIVE"
COUNTERS = {"SUCCEEDED": "succeeded", "FAILED": "failed", "ABORTED": "aborted", "TIMED_OUT": "timed_out"}
NO_LONGER = {"stopDate": None, "output": None, "error": None, "cause": None}  # once an execution runs again


@dataclass
class Child:
    """One item or batch. It has a record once it has begun."""

    value: Any
    size: int  # how many items are in it
    scope: Scope
    record: dict[str, Any] | None = None
    manager: Any = None  # of its history
    before: str = ""  # its status before it waited to be redriven

    @property
    def status(self) -> str:
        return str(self.record["status"]) if self.record else "PENDING"


class Children:
    """The child executions of one attempt at a Map run; ``run`` is the Map run's own record."""

    def __init__(self, run: Any, kind: str, role: str, scope: tuple[str, str]) -> None:
        self.run, self.kind, self.role, self.scope = run, kind, role, scope
        self.children: list[Child] = []
        self._lock = threading.Lock()
        self._closed = False

    def fill(self, inputs: list[tuple[Any, int]]) -> None:
        """The first attempt: each input, and how many items are in it."""
        self.children = [Child(value, size, Scope()) for value, size in inputs]
        for child in self.children:
            self._count(child, None, "total")
            self._count(child, None, "pending")

    def redrive(self) -> None:
        """Another attempt: those that did not succeed wait for it."""
        if getattr(self.run, "redrive_count", 0) >= MAX_MAP_REDRIVES:
            raise RuntimeError(TOO_OFTEN)
        self.run.redrive_count = getattr(self.run, "redrive_count", 0) + 1
        self.run.redrive_date = iso(datetime.now(UTC))
        self.run.status, self.run.stop_date = "RUNNING", None
        for child in self.children:
            if child.record is not None and child.status in UNSUCCESSFUL:
                self._count(child, COUNTERS[child.status], "pending_redrive")
                child.before = child.status
                child.record["status"] = PENDING

    def begin(self, child: Child, env: Any, context: dict[str, Any]) -> bool:
        """Start or redrive this child in its environment, unless the attempt is over."""
        now = iso(datetime.now(UTC))
        with self._lock:
            if self._closed:
                return False
            waiting = "pending" if child.record is None else "pending_redrive"
            if child.record is None:
                child.record = self._new_record(child, now)
            elif self.kind == "EXPRESS":
                child.record.update(NO_LONGER, startDate=now, events=[])
            else:
                again = child.record.get("redriveCount", 0) + 1
                child.record.update(NO_LONGER, redriveCount=again, redriveDate=now)
            child.record["status"] = "RUNNING"
            context["Execution"] = execution_context(child.record, child.value, self.role)
            begin_history(env, child.record, self.role)
            child.manager = env.event_manager
            env.scope = child.scope
            self._count(child, waiting, "running")
        RUNS.child(child.record, self.scope)
        return True

    def end(self, child: Child, error: Any) -> None:
        """Write down how it ended: at its program's end, with an error, or because something ended it."""
        with self._lock:
            if not self._closed:
                self._end(child, error)

    def close(self) -> None:
        """The attempt is over: what still runs or waits does so no more."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for child in self.children:
                if child.status == "RUNNING":
                    self._end(child, None)
                elif child.status == PENDING and child.record is not None:
                    self._count(child, "pending_redrive", COUNTERS[child.before])
                    child.record["status"] = child.before
            if self.run.status == "RUNNING":
                self.run.set_stop("ABORTED")

    def frozen(self) -> Children:
        """A copy with which the Map run can be redriven."""
        self.close()
        copy = Children(self.run, self.kind, self.role, self.scope)
        for child in self.children:
            anew = self.kind == "EXPRESS" and not child.scope.done
            error = child.record.get("error") if child.record else None
            scope = Scope() if anew else frozen(child.scope, error)
            copy.children.append(Child(child.value, child.size, scope, child.record))
        return copy

    def _end(self, child: Child, error: Any) -> None:
        from moto.stepfunctions.parser.asl.utils.encoding import to_json_str

        record = child.record
        assert record is not None
        found: dict[str, Any] = {"stopDate": iso(datetime.now(UTC))}
        if child.scope.done:
            status = "SUCCEEDED"
            found["output"] = to_json_str(child.scope.output, separators=(",", ":"))
        elif error is not None:
            status = "FAILED"
            found |= {"error": error.get("error"), "cause": error.get("cause")}
        else:
            status, found["cause"] = "ABORTED", ABORTED.format(self.run.map_run_arn)
        end_history(child.manager, status, found)
        record.update(found)
        record["status"] = status
        self._count(child, "running", COUNTERS[status])

    def _new_record(self, child: Child, now: str) -> dict[str, Any]:
        from moto.stepfunctions.parser.asl.utils.encoding import to_json_str

        machine = Machine(self.run.map_state_machine_arn, "", "", self.role, self.kind)
        name, kind = str(uuid.uuid4()), "execution" if self.kind == "STANDARD" else "express"
        arn = f"{machine.arn.replace(':stateMachine:', f':{kind}:')}:{name}"
        given = to_json_str(child.value, separators=(",", ":"))
        record = new_record(
            arn if kind == "execution" else f"{arn}:{uuid.uuid4()}", name, machine, given, datetime.fromisoformat(now)
        )
        return record | {"mapRunArn": self.run.map_run_arn, "itemCount": child.size}

    def _count(self, child: Child, before: str | None, after: str) -> None:
        for counter, number in ((self.run.item_counter, child.size), (self.run.execution_counter, 1)):
            if not hasattr(counter, "pending_redrive"):
                counter.pending_redrive = type(counter.pending)()
            if before is not None:
                getattr(counter, before).offset(-number)
            getattr(counter, after).count(number)


def standard_only(definition: str) -> tuple[str, dict[str, bool]]:
    """The definition as the grammar knows it, and the names of the Map states whose children are Express."""
    if '"EXPRESS"' not in definition:
        return definition, {}
    document, found = json.loads(definition), {}
    for name, state in states_fields.every(document):
        processor = state.get("ItemProcessor")
        config = processor.get("ProcessorConfig") if isinstance(processor, dict) else None
        if isinstance(config, dict) and config.get("ExecutionType") == "EXPRESS":
            config["ExecutionType"] = "STANDARD"
            found[name] = True
    return (states_fields.written(document), found) if found else (definition, {})


def change() -> None:
    def give(state: Any, express: Any) -> None:
        state.iteration_component.children_kind = "EXPRESS" if express else "STANDARD"

    states_fields.learn(standard_only, give)


def install() -> None:
    from . import states_engine

    states_engine.on_load(change)
