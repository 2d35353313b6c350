"""The executions of one pipe: each on a thread of its own, and how many may miss what they call.

**On AWS** (User Guide, "Amazon EventBridge Pipes error handling and troubleshooting") a pipe whose target or enrichment
keeps being missing is stopped, with a StateReason ("nearly continuous 4xx errors"); when, is not documented.

**MiniStack** has no executions for queues.

**Here** a pipe stops itself when :data:`MISSES` executions in a row within at least :data:`MISSING_FOR` seconds found
no target or no enrichment. One that reached nobody at all does not count: a service that is away for a while is no
reason to stop."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any

from parity import pipes_states as states
from parity.esm_poller import Job, Outcome, Poller
from parity.pipes_run import Run
from parity.pipes_services import Services

MISSES, MISSING_FOR = 20, 60.0  # executions, seconds

Pipe = dict[str, Any]
Key = tuple[str, str, str]  # account, Region, name
logger = logging.getLogger("parity.pipes")


class Misses:
    """Counts the executions in a row that did not find what they were to call."""

    def __init__(self) -> None:
        self._number = 0
        self._since = 0.0

    def enough(self, missing: bool, now: float) -> bool:
        if not missing:
            self._number = 0
            return False
        if not self._number:
            self._since = now
        self._number += 1
        return self._number >= MISSES and now - self._since >= MISSING_FOR


class Executions:
    """The executions of one pipe. ``stop(reason)`` is what they do when the pipe cannot go on."""

    def __init__(self, key: Key, pipe: Pipe, scope: Any, services: Services) -> None:
        self._account, self._region, _ = key
        self._pipe = pipe
        self._scope = scope
        self._services = services
        self._misses = Misses()
        self._lock = threading.Lock()
        self.poller: Poller | None = None

    def invoke(self, job: Job) -> None:
        """Execute on a thread of its own: a function may call the stand-in, and may take long."""
        thread = threading.Thread(target=self._run, args=(job,), name=f"pipe {self._pipe['Name']}", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # this machine has no more threads
            self._finished(job, Outcome(throttled=True))

    def _run(self, job: Job) -> None:
        run = Run(self._services, self.stop)
        ordered = self.poller is not None and self.poller.settings.fifo
        try:
            with self._scope(self._account, self._region):
                outcome = run.execute(self._pipe, [held.record for held in job.batch], ordered=ordered)
        except Exception:
            logger.exception("an execution of pipe %s broke", self._pipe["Name"])
            outcome = Outcome(error=True)
        if not outcome.throttled:
            with self._lock:
                enough = self._misses.enough(run.missing is not None, time.time())
            if enough:
                self.stop(f"The last {MISSES} executions failed, and the pipe was stopped: {run.missing}")
        self._finished(job, outcome)

    def _finished(self, job: Job, outcome: Outcome) -> None:
        if self.poller is not None:
            self.poller.finished(job, outcome)

    def stop(self, reason: str) -> None:
        states.stop(self._pipe, reason, time.time())
        if self.poller is not None:
            self.poller.close()
