"""Executions: one run of a state machine. Look, wait with a bound, stop, redrive.

The execution is the workflow's memory: it stands in a state until something happens, for up to a year, and nobody has
to be there. So there is nothing to hold here but its ARN; whoever has that can go on, after a restart as well.

DescribeExecution and ListExecutions may be a moment behind (botocore: both are eventually consistent). Whether an
execution has ended is therefore believed only when it says so itself.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, TypeVar

from labkit.control import payloads
from labkit.control.definitions import MachineError, refused
from labkit.control.history import History, read

__all__ = ["Execution", "Outcome", "wait_all"]

T = TypeVar("T")

_AT_ONCE = 8  # threads that ask for outcomes: fewer than a client's connections
_FIRST, _GROWS = 0.05, 1.6  # seconds before the first look again, and how the pauses grow


@dataclass(frozen=True)
class Outcome:
    """How an execution ended. ``status`` is AWS's (``SUCCEEDED``, ``FAILED``, ``TIMED_OUT``, ``ABORTED``); ``output``
    is parsed, and None unless it succeeded; ``error`` and ``cause`` are what a failure says of itself."""

    status: str
    output: Any = None
    error: str | None = None
    cause: str | None = None

    @property
    def succeeded(self) -> bool:
        return self.status == "SUCCEEDED"

    @classmethod
    def of(cls, described: Any) -> Outcome | None:
        """From what DescribeExecution says; None while it runs."""
        if described["status"] in ("RUNNING", "PENDING_REDRIVE"):
            return None
        output = described.get("output")
        return cls(
            described["status"],
            None if output is None else json.loads(output),
            described.get("error"),
            described.get("cause"),
        )


class Execution:
    """One execution, by client and ARN. Made by :meth:`labkit.control.machines.Machine.start`.

    Raises :class:`MachineError` for what is no ARN of an execution.
    """

    def __init__(self, client: Any, arn: str) -> None:
        if not isinstance(arn, str) or not re.match(
            r"arn:[^:]*:states:[^:]*:[^:]*:(execution|express):[^:]+:[^:]", arn
        ):
            raise MachineError(f"an execution has an ARN, arn:…:states:…:execution:…; got {arn!r:.120}.")
        self.client, self.arn = client, arn

    @property
    def name(self) -> str:
        """The last part of its ARN."""
        return self.arn.split(":")[7]

    @property
    def machine(self) -> str:
        """The ARN of its state machine."""
        parts = self.arn.split(":")
        return ":".join([*parts[:5], "stateMachine", parts[6]])

    @property
    def status(self) -> str:
        """``RUNNING``, or how it ended."""
        return str(self.describe()["status"])

    @property
    def outcome(self) -> Outcome | None:
        """How it ended; None while it runs."""
        return Outcome.of(self.describe())

    def describe(self) -> Any:
        """What DescribeExecution says. Raises :class:`MachineError`."""
        return self._ask("is not to be described", lambda: self.client.describe_execution(executionArn=self.arn))

    def history(self) -> History:
        """Everything that has happened so far: :class:`labkit.control.history.History`."""
        return self._ask("has no history", lambda: read(self.client, self.arn))

    def wait(
        self,
        within: float,
        *,
        every: float = 1.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> Outcome:
        """Wait for the end, looking more and more seldom: ``every`` seconds at last.

        Raises :class:`MachineError`, which names where it stands, when it has not ended after ``within`` seconds. It
        runs on then.
        """
        found = _polled(lambda: self.outcome, within, every, clock, sleep)
        if found is None:
            raise MachineError(f"execution {self.name} has not ended in {within:g} s; {self._where()}.")
        return found

    def until(
        self,
        state: str,
        within: float,
        *,
        every: float = 0.5,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], object] = time.sleep,
    ) -> History:
        """Wait until it stands in ``state``: until the state's work has begun, and for one that waits for a callback,
        until its token has been handed on. Returns the history so far.

        Raises :class:`MachineError` when it ends before, or is not there after ``within`` seconds.
        """

        def look() -> tuple[History, Outcome | None] | None:
            ended = self.outcome  # before the history: what happened between the two calls is in it
            found = self.history()
            return (found, ended) if ended or found.waits_in(state) else None

        came = _polled(look, within, every, clock, sleep)
        if came is None:
            raise MachineError(f"execution {self.name} is not in state {state} after {within:g} s; {self._where()}.")
        found, ended = came
        if ended and not found.waits_in(state):
            why = f": {ended.error}: {ended.cause}" if ended.error else ""
            raise MachineError(f"execution {self.name} has ended ({ended.status}) and is not in state {state}{why}.")
        return found

    def stop(self, error: str | None = None, cause: str | None = None) -> None:
        """End it as ``ABORTED``. A task token that it waits for is dead then. Stopping it twice is harmless."""
        given = {"error": error and payloads.error_name(error), "cause": cause and payloads.cause(cause)}
        arguments = {key: value for key, value in given.items() if value}
        self._ask("was not stopped", lambda: self.client.stop_execution(executionArn=self.arn, **arguments))

    def redrive(self) -> Execution:
        """Go on from where it failed, with the same input; what had succeeded is not run again. Returns itself.

        Raises :class:`MachineError` with the reason when it cannot (``ExecutionNotRedrivable``): it runs, it has
        succeeded, or it ended too long ago (``sfn.redrive.window``).
        """
        self._ask("cannot be redriven", lambda: self.client.redrive_execution(executionArn=self.arn))
        return self

    def _where(self) -> str:
        standing = self.history().standing
        return f"it stands in {', '.join(standing)}" if standing else "it is between two states"

    def _ask(self, what: str, call: Callable[[], T]) -> T:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return call()
        except (BotoCoreError, ClientError) as error:
            raise refused(f"execution {self.name} {what}", error) from error

    def __repr__(self) -> str:
        return f"<Execution {self.name}>"


def wait_all(
    executions: Iterable[Execution],
    within: float,
    *,
    every: float = 1.0,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], object] = time.sleep,
) -> list[Outcome]:
    """Wait for the end of many executions; their outcomes, in the same order.

    A look is one ListExecutions call for each thousand that run, and not one call for each execution; each is described
    once, when it is no longer among them. Raises :class:`MachineError` when some have not ended after ``within``
    seconds: it says how many, and where the first of them stands.
    """
    wanted = list(executions)
    found: dict[str, Outcome] = {}

    def look() -> bool | None:
        waiting = {each.arn: each for each in wanted if each.arn not in found}
        running: set[str] = set()
        for machine, client in {each.machine: each.client for each in waiting.values()}.items():
            running.update(_running(client, machine))
        ended = [each for arn, each in waiting.items() if arn not in running]
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="labkit-outcomes") as pool:
            for each, outcome in zip(ended, pool.map(lambda one: one.outcome, ended), strict=True):
                if outcome is not None:  # else the list is behind: it will be looked at again
                    found[each.arn] = outcome
        return True if len(found) == len({each.arn for each in wanted}) else None

    if _polled(look, within, every, clock, sleep) is None:
        left = [each for each in wanted if each.arn not in found]
        one = f"{left[0].name}, for one: {left[0]._where()}"
        raise MachineError(f"{len(left)} of {len(wanted)} executions have not ended in {within:g} s ({one}).")
    return [found[each.arn] for each in wanted]


def _running(client: Any, machine: str) -> Iterator[str]:
    from botocore.exceptions import BotoCoreError, ClientError

    pages = client.get_paginator("list_executions").paginate(
        stateMachineArn=machine, statusFilter="RUNNING", PaginationConfig={"PageSize": 1000}
    )
    try:
        for page in pages:
            yield from (each["executionArn"] for each in page["executions"])
    except (BotoCoreError, ClientError) as error:
        raise refused("the executions were not listed", error) from error


def _polled(
    look: Callable[[], T | None],
    within: float,
    every: float,
    clock: Callable[[], float],
    sleep: Callable[[float], object],
) -> T | None:
    """What ``look`` finds, or None after ``within`` seconds; it looks once more at their end."""
    if not within >= 0 or not every > 0:
        raise MachineError(f"a wait is 0 s or more, and looks again after more than 0 s; got {within!r}, {every!r}.")
    end, pause = clock() + within, min(_FIRST, every)
    while True:
        found = look()
        left = end - clock()
        if found is not None or left <= 0:
            return found
        sleep(min(pause, left))
        pause = min(every, pause * _GROWS)
