"""Which pipes are at work, and their executions, each on a thread of its own.

**On AWS** the poller of a pipe is that of an event source mapping: five batches at once at first, more while messages
remain, fewer after failures; one batch of a message group at a time (User Guide, "Amazon Simple Queue Service as a
source"). Messages are filtered before anything else, by what the sender of a message sent: what the poller adds
(eventSource, awsRegion …) cannot be matched, and what does not match is deleted. With a batching window the visibility
timeout of the queue does not count: the poller hides what it receives for 7 minutes, 30 seconds and the window, and
that is how long a failure waits for its next attempt.
**MiniStack** polls DynamoDB streams only.

**Here** the parts of the event source mappings are used (:mod:`parity.esm_poller` and its neighbours), with a loop of
their own; where the queue is, and how it is read, is the business of :mod:`parity.pipes_services`. A pipe stops itself
when its queue is gone. Nothing of a pipe is left when it is deleted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from parity import neighbour, pipes_beside, pipes_inside
from parity import pipes_states as states
from parity.esm_filter import Filter
from parity.esm_loop import Loop
from parity.esm_poller import Job, Outcome, Poller, Settings
from parity.esm_scaling import Bounds
from parity.pipes_checks import batch_size, service_of, window
from parity.pipes_executions import Executions, Key, Pipe
from parity.pipes_services import Services, Source, Takes

ADDED = frozenset({"awsRegion", "eventSource", "eventSourceARN", "eventVersion", "eventID", "eventName"})


def settings_of(pipe: Mapping[str, Any], *, fifo: bool) -> Settings:
    return Settings(batch_size(pipe), float(window(pipe)), fifo, reports=True, bounds=Bounds.of({}, fifo=fifo))


def patterns_of(pipe: Mapping[str, Any]) -> list[str]:
    criteria = (pipe.get("SourceParameters") or {}).get("FilterCriteria") or {}
    return [str(entry.get("Pattern") or "") for entry in criteria.get("Filters") or []]


def filter_of(patterns: list[str], matches: Callable[[str, Any], bool]) -> Takes:
    """Whether the pipe gets a record."""
    takes = Filter(patterns, matches).takes
    return lambda record: takes({name: value for name, value in record.items() if name not in ADDED})


class PipePoller(Poller):
    """A poller that becomes slower when executions fail, although the target's reports are read."""

    def finished(self, job: Job, outcome: Outcome) -> None:
        if outcome.error and not outcome.throttled:
            with self._lock:
                self._scaling.failed()
        super().finished(job, outcome)


@dataclass
class Work:
    """A pipe that is at work."""

    pipe: Pipe
    source: Source
    poller: Poller
    wants: tuple[Settings, list[str]]


class PipePollers:
    """Starts and stops pollers, so that those pipes are at work that should be."""

    def __init__(self, loop: Loop, pipes: Any, services: Services, matches: Any, scope: Any) -> None:
        self.services = services
        self._loop = loop
        self._pipes = pipes
        self._matches = matches
        self._scope = scope
        self._lock = threading.Lock()
        self._working: dict[Key, Work] = {}
        self._over = False

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
            wanted = {} if self._over else dict(self._wanted())
            for key in self._working.keys() - wanted.keys():
                self._end(key)
            for key, (pipe, queue) in wanted.items():
                self._have(key, pipe, queue)

    def _all(self) -> Iterator[tuple[str, str, Pipe]]:
        return ((account, region, pipe) for account, region, pipe in self._pipes._iter_all_pipes() if is_ours(pipe))

    def _wanted(self) -> Iterator[tuple[Key, tuple[Pipe, Mapping[str, Any]]]]:
        now = time.time()
        for account, region, pipe in self._all():
            if states.deleted(pipe, now):
                self._pipes._pipes.pop_scoped(account, region, pipe["Name"], None)
            elif states.receives(pipe, now):
                with self._scope(account, region):
                    queue = self.services.glance(pipe["Source"])
                if queue is None:
                    states.stop(pipe, no_queue(pipe), now)
                else:
                    yield (account, region, pipe["Name"]), (pipe, queue)

    def _have(self, key: Key, pipe: Pipe, queue: Mapping[str, Any]) -> None:
        wants = settings_of(pipe, fifo=bool(queue.get("is_fifo"))), patterns_of(pipe)
        work = self._working.get(key)
        if work is None:
            self._begin(key, pipe, queue, wants)
        elif not work.source.serves(queue) or work.pipe is not pipe or work.poller.closed:
            self._end(key)
            self._begin(key, pipe, queue, wants)
        elif work.wants != wants:
            work.wants = wants
            work.poller.configure(wants[0], work.source.configure(window(pipe), filter_of(wants[1], self._matches)))
            self._loop.wake(work.poller)

    def _begin(self, key: Key, pipe: Pipe, queue: Mapping[str, Any], wants: tuple[Settings, list[str]]) -> None:
        executions = Executions(key, pipe, self._scope, self.services)
        with self._scope(*key[:2]):
            source = self.services.source(pipe, queue, lambda: executions.stop(no_queue(pipe)))
        poller = executions.poller = PipePoller(
            source,
            wants[0],
            invoke=executions.invoke,
            wake=lambda at: self._loop.wake(poller, at),
            clock=self._loop.clock,
            takes=source.configure(window(pipe), filter_of(wants[1], self._matches)),
        )
        self._working[key] = Work(pipe, source, poller, wants)
        self._loop.wake(poller)

    def _end(self, key: Key) -> Source:
        work = self._working.pop(key)
        work.poller.close()
        work.source.close()
        self._loop.forget(work.poller)
        return work.source

    def end(self, within: float) -> bool:
        """Stop for good, at the end of the process. True when nothing is at work any more, within so many seconds."""
        limit = time.monotonic() + within
        with self._lock:
            self._over = True
            sources = [self._end(key) for key in list(self._working)]
        return all(source.ended(max(limit - time.monotonic(), 0)) for source in sources)


def no_queue(pipe: Mapping[str, Any]) -> str:
    return f"The queue {pipe['Source']} does not exist."


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
    from ministack.services import eventbridge, pipes

    _ = eventbridge._compiled_pattern, eventbridge._matches_detail, pipes._iter_all_pipes, pipes._poll_loop

    def matches(pattern: str, record: Mapping[str, Any]) -> bool:
        alternatives = eventbridge._compiled_pattern(pattern) or []
        return any(eventbridge._matches_detail(record, alternative) for alternative in alternatives)

    scope = partial(request_scope)
    beside = neighbour.current()
    services: Services = pipes_inside.services(scope) if beside is None else pipes_beside.services(beside)
    working = _pollers = PipePollers(Loop(), pipes, services, matches, scope)
    poll_once, reset = pipes._poll_once, pipes.reset

    def poll_all() -> None:
        working.compare()
        poll_once()

    def forget() -> None:
        reset()
        working.compare()

    pipes._poll_once = poll_all
    pipes.reset = forget
