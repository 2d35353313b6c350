"""The child executions of Map runs that run now, and what ends one of them alone.

**On AWS** a Standard child can be stopped like any execution, with its error and its cause, while the others go on; its
history has at most 25,000 events. An Express child lasts five minutes at most (Step Functions API Reference,
"StopExecution"; Developer Guide, "Quotas").

**MiniStack** has no child executions. moto's interpreter has none either.

**Here** they are as documented. Not verified: that a child which was stopped is no failure for the run's thresholds
(the documentation counts failed and timed out ones).
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

from . import states_waits
from .states_records import EXPRESS_SECONDS, iso
from .states_redrive_history import end_history
from .states_redrive_places import silence

STOP_WAIT = 5.0  # seconds, until the history says so


def halt(frame: Any, error: str | None = None, cause: str | None = None) -> None:
    """Stop what runs in this environment, wherever it waits."""
    frame.set_stop(stop_date=datetime.now(UTC), error=error, cause=cause)
    hush(frame)


def hush(frame: Any) -> None:
    frame.event_history_context.closed = True
    silence(frame)
    states_waits.wake(frame)


class Live:
    """A child execution that runs: ``frame`` is its environment, ``record`` its record."""

    def __init__(self, frame: Any, record: dict[str, Any], kind: str) -> None:
        self.frame, self.record, self.kind = frame, record, kind
        self.stopped: dict[str, Any] | None = None  # with which error and cause somebody stopped it
        self.late = False
        self.over = threading.Event()
        self._clock: threading.Timer | None = None

    def stop(self, error: str | None, cause: str | None) -> None:
        """End it as ABORTED, unless it has ended, and wait a moment until its history says so."""
        self.stopped = {"error": error, "cause": cause}
        halt(self.frame, error, cause)
        self.over.wait(STOP_WAIT)

    def fill(self, cause: str) -> None:
        """Fail it because its history is full."""
        if self.frame.is_running():
            self.frame.set_error({"error": "States.Runtime", "cause": cause})
            self.frame.set_error = lambda error: None  # what the state that is cut off fails with is no reason
            states_waits.wake(self.frame)

    def begin(self, seconds: float = EXPRESS_SECONDS) -> None:
        LIVE.add(self)
        if self.kind == "EXPRESS":
            self._clock = threading.Timer(seconds, self._late)
            self._clock.daemon = True
            self._clock.start()

    def ended(self) -> tuple[str, dict[str, Any]] | None:
        """The status and what to write down, when it was stopped alone or took too long."""
        from moto.stepfunctions.parser.asl.eval import program_state as states

        state = self.frame.program_state()
        if isinstance(state, states.ProgramStopped) and self.stopped is not None:
            return "ABORTED", dict(self.stopped)
        return ("TIMED_OUT", {}) if isinstance(state, states.ProgramTimedOut) and self.late else None

    def end(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
        LIVE.remove(self)
        self.over.set()

    def _late(self) -> None:
        with self.frame._state_mutex:
            if self.frame.is_running():
                self.late = True
                self.frame.set_timed_out()
        hush(self.frame)


class Running:
    """The children that run, by their ARNs."""

    def __init__(self) -> None:
        self._by_arn: dict[str, Live] = {}
        self._lock = threading.Lock()

    def add(self, live: Live) -> None:
        with self._lock:
            self._by_arn[live.record["executionArn"]] = live

    def remove(self, live: Live) -> None:
        with self._lock:
            if self._by_arn.get(live.record["executionArn"]) is live:
                del self._by_arn[live.record["executionArn"]]

    def get(self, arn: str) -> Live | None:
        return self._by_arn.get(arn)

    def with_history(self, events: Any) -> Live | None:
        """The Standard child whose history this list is."""
        with self._lock:
            found = [live for live in self._by_arn.values() if live.record["events"] is events]
        return found[0] if found and found[0].kind == "STANDARD" else None


LIVE = Running()


def write_end(children: Any, child: Any, status: str, found: dict[str, Any], counter: str) -> None:
    """Write down how one child of an attempt at a Map run ended, unless the attempt is over."""
    with children._lock:
        if children._closed or child.scope.done:
            return
        found = {"stopDate": iso(datetime.now(UTC)), **found}
        end_history(child.manager, status, found)
        child.record.update(found)
        child.record["status"] = status
        children._count(child, "running", counter)
