"""Which pipes are at work, and their hands in MiniStack: the source queue, and a thread for each execution.

**On AWS** the poller of a pipe is that of an event source mapping: five batches at once at first, more while messages
remain, fewer after failures; one batch of a message group at a time (User Guide, "Amazon Simple Queue Service as a
source"). Messages are filtered before anything else, by what the sender of a message sent: what the poller adds
(eventSource, awsRegion …) cannot be matched, and what does not match is deleted. With a batching window the visibility
timeout of the queue does not count: the poller hides what it receives for 7 minutes, 30 seconds and the window, and
that is how long a failure waits for its next attempt. A pipe whose target keeps being missing is stopped, with a
StateReason ("nearly continuous 4xx errors"); when, is not documented.

**MiniStack** polls DynamoDB streams only.

**Here** the parts of the event source mappings are used (:mod:`parity.esm_poller` and its neighbours), with a loop of
their own. A pipe stops itself when its queue is gone, and when :data:`MISSES` executions in a row within at least
:data:`MISSING_FOR` seconds found no target or no enrichment. Nothing of a pipe is left when it is deleted."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from parity import pipes_states as states
from parity.esm_filter import Filter
from parity.esm_gather import Held
from parity.esm_loop import Loop
from parity.esm_poller import Job, Outcome, Poller, Settings
from parity.esm_pollers import Hands, Key
from parity.esm_records import Record
from parity.esm_scaling import Bounds
from parity.pipes_checks import batch_size, service_of, window
from parity.pipes_run import Run
from parity.pipes_stages import Stages
from parity.sqs_errors import SqsError
from parity.sqs_mailbox import mailbox

HIDDEN = 420 + 30  # seconds, and the window
MISSES, MISSING_FOR = 20, 60.0  # executions, seconds
ADDED = frozenset({"awsRegion", "eventSource", "eventSourceARN", "eventVersion", "eventID", "eventName"})

Pipe = dict[str, Any]
logger = logging.getLogger("parity.pipes")


def settings_of(pipe: Mapping[str, Any], *, fifo: bool) -> Settings:
    return Settings(batch_size(pipe), float(window(pipe)), fifo, reports=True, bounds=Bounds.of({}, fifo=fifo))


def patterns_of(pipe: Mapping[str, Any]) -> list[str]:
    criteria = (pipe.get("SourceParameters") or {}).get("FilterCriteria") or {}
    return [str(entry.get("Pattern") or "") for entry in criteria.get("Filters") or []]


def filter_of(patterns: list[str], matches: Callable[[str, Any], bool]) -> Callable[[Record], bool]:
    """Whether the pipe gets a record."""
    takes = Filter(patterns, matches).takes
    return lambda record: takes({name: value for name, value in record.items() if name not in ADDED})


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


class PipePoller(Poller):
    """A poller that becomes slower when executions fail, although the target's reports are read."""

    def finished(self, job: Job, outcome: Outcome) -> None:
        if outcome.error and not outcome.throttled:
            with self._lock:
                self._scaling.failed()
        super().finished(job, outcome)


class PipeHands(Hands):
    """One pipe's queue and its executions."""

    def __init__(self, key: Key, pipe: Pipe, queue: Pipe, scope: Any, sqs: Any, stages: Stages) -> None:
        shown = {"FunctionArn": pipe["Arn"], "MaximumBatchingWindowInSeconds": window(pipe)}
        super().__init__(key, shown, queue, scope, sqs, None)
        self.pipe = pipe
        self.fifo = bool(queue.get("is_fifo"))
        self._stages = stages
        self._misses = Misses()
        self._missing = threading.Lock()

    def receive(self, limit: int) -> list[Held]:
        wait = window(self.pipe)
        if not wait:
            return super().receive(limit)
        with self._scope(self.account, self.region):
            try:
                queue = self._sqs._get_q(self.url)
            except SqsError:  # the queue is gone
                return []
            messages = self._sqs._collect_msgs(queue, limit, HIDDEN + wait)
            if messages:
                self.box.tell("received", len(messages))
            return [self._held(message) for message in messages]

    def _function(self) -> Any:
        """A pipe polls whatever becomes of its target, and an execution that misses it fails."""
        return self.pipe

    def _run(self, job: Job) -> None:
        run = Run(self._stages, self._stop)
        try:
            with self._scope(self.account, self.region):
                outcome = run.execute(self.pipe, [held.record for held in job.batch], ordered=self.fifo)
        except Exception:
            logger.exception("an execution of pipe %s broke", self.pipe["Name"])
            outcome = Outcome(error=True)
        if not outcome.throttled:
            with self._missing:
                enough = self._misses.enough(run.missing is not None, time.time())
            if enough:
                self._stop(f"The last {MISSES} executions failed, and the pipe was stopped: {run.missing}")
        self._finished(job, outcome)

    def _stop(self, reason: str) -> None:
        states.stop(self.pipe, reason, time.time())
        if self.poller is not None:
            self.poller.close()


class PipePollers:
    """Starts and stops pollers, so that those pipes are at work that should be."""

    def __init__(self, loop: Loop, pipes: Any, sqs: Any, stages: Stages, matches: Any, scope: Any) -> None:
        self._loop = loop
        self._pipes = pipes
        self._sqs = sqs
        self._stages = stages
        self._matches = matches
        self._scope = scope
        self._lock = threading.Lock()
        self._working: dict[Key, tuple[PipeHands, Poller, tuple[Settings, list[str]]]] = {}

    def changed(self) -> None:
        """Look at the pipes as soon as may be."""
        self._loop.wake(self)

    def step(self) -> float | None:
        self.compare()
        # A pipe begins, or ends, when its change is over.
        now = time.time()
        changing = [pipe[states.TRANSITION] for _, _, pipe in self._all() if states.TRANSITION in pipe]
        return min((change["Until"] for change in changing if change["Until"] > now), default=None)

    def compare(self) -> None:
        with self._lock:
            wanted = dict(self._wanted())
            for key in self._working.keys() - wanted.keys():
                self._end(key)
            for key, (pipe, queue) in wanted.items():
                self._have(key, pipe, queue)

    def _all(self) -> Iterator[tuple[str, str, Pipe]]:
        return ((account, region, pipe) for account, region, pipe in self._pipes._iter_all_pipes() if is_ours(pipe))

    def _wanted(self) -> Iterator[tuple[Key, tuple[Pipe, Pipe]]]:
        now = time.time()
        for account, region, pipe in self._all():
            if states.deleted(pipe, now):
                self._pipes._pipes.pop_scoped(account, region, pipe["Name"], None)
            elif states.receives(pipe, now):
                with self._scope(account, region):
                    queue = self._sqs._queue_by_arn(pipe["Source"])
                if queue is None:
                    states.stop(pipe, f"The queue {pipe['Source']} does not exist.", now)
                else:
                    yield (account, region, pipe["Name"]), (pipe, queue)

    def _have(self, key: Key, pipe: Pipe, queue: Pipe) -> None:
        wants = settings_of(pipe, fifo=bool(queue.get("is_fifo"))), patterns_of(pipe)
        if key in self._working:
            hands, poller, before = self._working[key]
            if hands.box is mailbox(queue) and hands.pipe is pipe and not poller.closed:
                if before != wants:
                    hands.mapping["MaximumBatchingWindowInSeconds"] = window(pipe)
                    poller.configure(wants[0], filter_of(wants[1], self._matches))
                    self._working[key] = hands, poller, wants
                    self._loop.wake(poller)
                return
            self._end(key)
        hands = PipeHands(key, pipe, queue, self._scope, self._sqs, self._stages)
        poller = PipePoller(
            hands,
            wants[0],
            invoke=hands.invoke,
            wake=lambda at: self._loop.wake(poller, at),
            clock=self._loop.clock,
            takes=filter_of(wants[1], self._matches),
        )
        hands.poller = poller
        self._working[key] = hands, poller, wants
        self._loop.wake(poller)

    def _end(self, key: Key) -> None:
        _, poller, _ = self._working.pop(key)
        poller.close()
        self._loop.forget(poller)


def is_ours(pipe: Mapping[str, Any]) -> bool:
    """Whether the pipe's source is a queue; those of streams are MiniStack's."""
    return service_of(pipe.get("Source")) == "sqs"


_pollers: PipePollers | None = None


def pollers() -> PipePollers:
    """Those of this process, once installed."""
    if _pollers is None:
        raise RuntimeError("pipes_pollers is not installed")
    return _pollers


def install() -> None:
    global _pollers

    from ministack.core.responses import request_scope
    from ministack.services import eventbridge, lambda_svc, pipes, sqs
    from ministack.services import stepfunctions as sfn

    _ = sqs._queue_by_arn, sqs._act_send_message, sqs._Err, sqs._get_q, sqs._collect_msgs
    _ = lambda_svc._get_func_record_for_ref, lambda_svc._execution_record_for_config, lambda_svc._execute_function
    _ = lambda_svc.invoke_async_with_retry, sfn._resolve_state_machine_arn, sfn._state_machines
    _ = sfn._start_execution, sfn._start_sync_execution, eventbridge._put_events, eventbridge._event_buses
    _ = eventbridge._compiled_pattern, eventbridge._matches_detail, pipes._iter_all_pipes, pipes._poll_loop

    def matches(pattern: str, record: Mapping[str, Any]) -> bool:
        alternatives = eventbridge._compiled_pattern(pattern) or []
        return any(eventbridge._matches_detail(record, alternative) for alternative in alternatives)

    stages = Stages(sqs, lambda_svc, sfn, eventbridge)
    working = _pollers = PipePollers(Loop(), pipes, sqs, stages, matches, partial(request_scope))
    poll_once, reset = pipes._poll_once, pipes.reset

    def poll_all() -> None:
        working.compare()
        poll_once()

    def forget() -> None:
        reset()
        working.compare()

    pipes._poll_once = poll_all
    pipes.reset = forget
