"""The records of executions, and which executions run.

**On AWS** an execution can be described, and its history be read, for 90 days after its end. An Express execution
lasts five minutes at most (Step Functions Developer Guide, "Quotas").

**MiniStack** keeps every record until it ends.

**Here** three bounds are ours: :data:`MAX_RUNNING` executions run at the same time; of those that ended the last
:data:`MAX_KEPT` can be described, and of the child executions of Map runs the last :data:`MAX_CHILDREN`. Where the
records are kept is the emulator's affair: :class:`Keeper`.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

from .states_redrive_places import Scope
from .states_redrive_rules import REDRIVABLE

MAX_RUNNING = 1000
MAX_KEPT = 10_000
MAX_CHILDREN = 10_000
EXPRESS_SECONDS = 300.0


@dataclass(frozen=True)
class Machine:
    """What an execution needs of its state machine; later changes of it concern later executions."""

    arn: str
    name: str
    definition: str
    role: str
    kind: str


@dataclass(frozen=True)
class Ended:
    """What is kept of an execution that ended without success, to redrive it."""

    machine: Any
    value: Any
    scope: Scope
    over: threading.Event  # when all of its end has been written down and announced


def iso(moment: datetime) -> str:
    """A moment as the context object and the records have it."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{moment.microsecond // 1000:03d}Z"


def new_record(arn: str, name: str, machine: Machine, given: str, moment: datetime) -> dict[str, Any]:
    """The record of an execution that begins, as MiniStack's pages read it."""
    return {
        "executionArn": arn,
        "stateMachineArn": machine.arn,
        "name": name,
        "status": "RUNNING",
        "startDate": iso(moment),
        "stopDate": None,
        "input": given,
        "inputDetails": {"included": True},
        "output": None,
        "outputDetails": {"included": True},
        "events": [],
    }


def time_limit(stated: float | None, kind: str) -> float | None:
    """For how long an execution may run."""
    if kind != "EXPRESS":
        return stated
    return EXPRESS_SECONDS if stated is None else min(stated, EXPRESS_SECONDS)


class Keeper(Protocol):
    """Where an emulator keeps the records of executions; ``scope`` is an account and a Region."""

    def put(self, record: dict[str, Any], scope: tuple[str, str]) -> None:
        """Keep the record of a child execution."""

    def drop(self, arn: str, scope: tuple[str, str]) -> None:
        """Forget a record."""


class Runs:
    """The executions that run, and the order in which the others ended."""

    def __init__(self, running: int = MAX_RUNNING, kept: int = MAX_KEPT) -> None:
        self._running: dict[str, Any] = {}
        self._ended: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._children: OrderedDict[str, tuple[str, str]] = OrderedDict()
        self._most, self._kept = running, kept
        self._lock = threading.Lock()

    def full(self) -> bool:
        return len(self._running) >= self._most

    def began(self, run: Any) -> None:
        with self._lock:
            self._ended.pop(run.record["executionArn"], None)
            self._running[run.record["executionArn"]] = run

    def child(self, record: dict[str, Any], scope: tuple[str, str]) -> None:
        """Remember a child execution, and forget those before the last."""
        arn = record["executionArn"]
        KEEPERS[-1].put(record, scope)
        with self._lock:
            self._children[arn] = scope
            old = [self._children.popitem(last=False)] if len(self._children) > MAX_CHILDREN else []
        for name, where in old:
            self.forget(name, where)

    def get(self, arn: str) -> Any:
        return self._running.get(arn)

    def all(self) -> list[Any]:
        with self._lock:
            return list(self._running.values())

    def with_history(self, events: Sequence[Any]) -> Any:
        """The Standard execution whose history this list is."""
        return next((run for run in self.all() if run.standard and run.record["events"] is events), None)

    def ended(self, run: Any) -> None:
        """Forget the run, and of the records that ended whatever is beyond those that are kept."""
        arn = run.record["executionArn"]
        forgotten = []
        with self._lock:
            if self._running.get(arn) is not run:
                return  # it has been redriven already
            self._running.pop(arn)
            if run.standard:
                self._ended[arn] = run.scope
            while len(self._ended) > self._kept:
                forgotten.append(self._ended.popitem(last=False))
        for old, scope in forgotten:
            self.forget(old, scope)

    @staticmethod
    def forget(arn: str, scope: tuple[str, str]) -> None:
        KEEPERS[-1].drop(arn, scope)
        REDRIVABLE.take(arn)

    def clear(self) -> None:
        with self._lock:
            self._ended.clear()
            self._children.clear()


RUNS = Runs()
KEEPERS: list[Keeper] = []  # the last one counts: there is one emulator in a process
