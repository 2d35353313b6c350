"""One execution environment, from its cold start through its invocations to its end.

**On AWS** a cold start runs the Init phase, for which there are 10 s; if it takes longer, it is done again as a part of
the first invocation, within the function's timeout. An exception leaves the environment as it is: the next invocation
finds the module's variables. A time-out or the end of the process resets it: a new process, the same ``/tmp``, the same
log stream, and no Init Duration in the REPORT line (Lambda Developer Guide, "Understanding the Lambda execution
environment lifecycle"; recorded on AWS: variables and files after an exception and after a time-out).

**MiniStack** starts a new process after every exception and has no limit of its own for the Init phase.

**Here** :class:`Sandbox` does it, for any emulator: what it needs of one is its :class:`Host`. On AWS each environment
has its own processor; here all share the reader's. So an Init phase waits for its turn (:class:`Turns`) before it
begins: without this, forty cold starts on two cores take longer than 10 s each, and all of them fail. Not done: AWS
repeats an Init phase that failed before it reports the failure, so that a module's side effects happen twice; here they
happen once.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from . import lambda_logs as logs
from .lambda_environment import Places, search_path
from .lambda_failures import Failure, exited, timed_out, too_large
from .lambda_output import Tail
from .lambda_process import Outcome, Process
from .lambda_request import Request, trace_header

INIT_LIMIT = 10.0  # seconds


class Host(Protocol):
    """What a sandbox needs of the emulator that it belongs to."""

    def places(self) -> Places:
        """Make its folders."""

    def variables(self, places: Places) -> dict[str, str]:
        """The environment of its process."""

    def write(self, events: list[str]) -> None:
        """Write into its log stream."""


@dataclass(frozen=True)
class Ran:
    """What became of an invocation: the payload of the answer or the error, the end of the log, how long it took."""

    payload: bytes
    failed: bool
    log: str
    seconds: float


def parsed(payload: bytes) -> Any:
    """A payload as its callers within an emulator want it: the JSON value, or the bytes when it is none."""
    try:
        return json.loads(payload)
    except ValueError:
        return payload


class Turns:
    """Who may begin: no more than ``most`` at once, of those that began within the last ``longest`` seconds.

    One that takes longer than that holds nobody up, so that each wait has an end: it hangs, or waits for a function
    that it invokes, whose own Init phase needs a turn, too.
    """

    def __init__(self, most: int, longest: float) -> None:
        self._most, self._longest = most, longest
        self._began: list[float] = []
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def turn(self) -> Iterator[None]:
        with self._changed:
            while len(young := self._young()) >= self._most:
                self._changed.wait(young[0] + self._longest - time.monotonic())
            began = time.monotonic()
            self._began.append(began)
        try:
            yield
        finally:
            with self._changed:
                if began in self._began:
                    self._began.remove(began)
                self._changed.notify()

    def _young(self) -> list[float]:
        oldest = time.monotonic() - self._longest
        self._began = [each for each in self._began if each > oldest]
        return self._began


_turns = Turns(most=2 * max(2, os.cpu_count() or 2), longest=5.0)


class Sandbox:
    """An execution environment of a Python function; ``config`` is as GetFunctionConfiguration shows it."""

    def __init__(self, config: Mapping[str, Any], region: str, host: Host) -> None:
        self.config = config
        self._region = region
        self._host = host
        self._lock = threading.Lock()
        self._folders: Places | None = None
        self._process: Process | None = None
        self._fresh = True  # no process has run in it yet
        self._ended = self._killed = False
        self._tail = Tail()

    def run(
        self, event: bytes, request: Request, *, arn: str, values: Mapping[str, str], headers: Mapping[str, str]
    ) -> Ran:
        """Run one invocation. ``values`` are variables for it alone, ``headers`` go with the SDK's calls in it."""
        try:
            return self._run(event, request, arn, values, headers)
        finally:
            if self._ended:
                self.end()

    def _run(
        self, event: bytes, request: Request, arn: str, values: Mapping[str, str], headers: Mapping[str, str]
    ) -> Ran:
        with self._lock:
            timeout = float(self.config["Timeout"])
            active = (self.config.get("TracingConfig") or {}).get("Mode") == "Active"
            trace = trace_header(request.trace, active=active, now=time.time(), chance=secrets.token_hex(20))
            outcome, init = self._initialised()
            self._tail = Tail()
            self._log([logs.start_line(request.identity, self.config["Version"])])
            began = time.monotonic()
            if outcome.kind == "timeout":  # the Init phase is done again, within the invocation
                outcome = self._start(timeout)
            if outcome.kind == "ready":
                header = {
                    "request_id": request.identity,
                    "arn": arn,
                    "deadline": time.time() + timeout - (time.monotonic() - began),
                    "client_context": request.client_context,
                    "variables": {**values, "_X_AMZN_TRACE_ID": trace},
                    "headers": dict(headers),
                }
                assert self._process is not None
                outcome = self._process.invoke(header, event, began + timeout)
            seconds = timeout if outcome.kind == "timeout" else time.monotonic() - began
            return self._finished(outcome, request.identity, seconds, init)

    def initialise(self) -> Outcome:
        """See to it that a process waits for events."""
        try:
            with self._lock:
                return self._initialised()[0]
        finally:
            if self._ended:
                self.end()

    def end(self) -> None:
        """Its end: the process and the folders go, as soon as no invocation is running."""
        self._ended = True
        if not self._lock.acquire(blocking=False):
            return  # whoever has it looks when it is done
        try:
            self._end_process()
            folders, self._folders = self._folders, None
            if folders is not None:
                shutil.rmtree(folders.task.parent, ignore_errors=True)
        finally:
            self._lock.release()

    def kill(self) -> None:
        """Its end, also in the middle of an invocation, or before it has begun."""
        self._ended = self._killed = True
        process = self._process
        if process is not None:
            process.kill()
        self.end()

    def _finished(self, outcome: Outcome, identity: str, seconds: float, init: float | None) -> Ran:
        failure = self._failure(outcome, identity)
        used = self._process.memory if self._process else 0
        if outcome.kind not in ("result", "error"):
            self._end_process()
        if failure is not None and failure.text:
            self._log([failure.text])
        status = failure.status if failure else ""
        if outcome.kind == "failed":
            status = f"Status: error\tError Type: {parsed(outcome.payload)['errorType']}"
        size = int(self.config["MemorySize"])
        report = logs.report_line(identity, seconds, size=size, used=used, init=init, status=status)
        self._log([logs.end_line(identity), report])
        payload = failure.payload if failure else outcome.payload
        return Ran(payload, failure is not None or outcome.kind != "result", str(self._tail), seconds)

    def _failure(self, outcome: Outcome, identity: str) -> Failure | None:
        if outcome.kind == "timeout":
            return timed_out(identity, float(self.config["Timeout"]), logs.moment_text(time.time()))
        if outcome.kind == "exited":
            return exited(identity, outcome.status)
        return too_large(outcome.payload) if outcome.kind == "result" else None

    def _initialised(self) -> tuple[Outcome, float | None]:
        """Start a process where there is none; how that went, and how long a cold start took."""
        if self._process is not None and self._process.alive():
            return Outcome("ready"), None
        cold, self._fresh = self._fresh, False
        self._make_folders()  # now: when its turn comes, the function may be deleted, and its code with it
        with _turns.turn():
            if self._killed:
                return Outcome("exited", status=-signal.SIGKILL), None
            self._log([logs.init_line(self.config["Runtime"], self._region)])
            began = time.monotonic()
            outcome = self._start(INIT_LIMIT)
            took = time.monotonic() - began
        if outcome.kind in ("failed", "exited"):
            kind = parsed(outcome.payload)["errorType"] if outcome.kind == "failed" else "Runtime.ExitError"
            self._log([logs.init_report_line(took, f"Status: error\tError Type: {kind}")])
        elif outcome.kind == "timeout":
            self._log([logs.init_report_line(INIT_LIMIT, "Status: timeout")])
        return outcome, took if cold and outcome.kind == "ready" else None

    def _start(self, limit: float) -> Outcome:
        self._end_process()
        until = time.monotonic() + limit
        places = self._make_folders()
        self._process = Process(places.task, self._host.variables(places), self._log)
        return self._process.start(
            handler=self.config["Handler"],
            task_root=str(places.task),
            layers=search_path(places.layers),
            packages=[str(places.runtime)],
            until=until,
        )

    def _make_folders(self) -> Places:
        """They are made with the first process and stay for the next one."""
        if self._folders is None:
            self._folders = self._host.places()
        return self._folders

    def _log(self, events: list[str]) -> None:
        for event in events:
            self._tail.add(event)
        self._host.write(events)

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()
