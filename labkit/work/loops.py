"""Loops: what the threads of a worker do during one run. Receive, hand over, delete, and say what became of it."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from labkit.state.records import said
from labkit.work.handler import Handler
from labkit.work.queues import BatchError, QueueError
from labkit.work.tasks import Event, Kind, Task, WorkerError

if TYPE_CHECKING:
    from labkit.work.worker import Worker

_PATIENCE = 60.0  # seconds without an answer after which a run until the queue is empty gives up
_BREATH = 0.1  # seconds between two short polls of an empty queue: each of them is paid for
# What is logged beside being told to on_event: a worker that cannot work must not do so in silence.
_LEVELS: dict[Kind, int] = {
    "poll_failed": logging.WARNING,
    "undeleted": logging.WARNING,
    "failed": logging.INFO,
    "dead": logging.INFO,
    "lost": logging.INFO,
}

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class _Finished:
    """What a batch has done and not deleted yet: it is deleted together, but not late."""

    received_at: float
    events: list[Event] = field(default_factory=list)

    def take(self) -> list[Event]:
        events, self.events = self.events, []
        return events


class Run:
    """One run of a worker. A step that outlives its run keeps this object, and cannot reach into the next run."""

    def __init__(self, worker: Worker, handler: Handler, until_empty: bool, stop: threading.Event) -> None:
        self.worker, self.handler, self.until_empty, self.stop = worker, handler, until_empty, stop
        self.told = False  # by a signal
        self.broken: WorkerError | None = None
        self.helpers: list[threading.Thread] = []
        self._finished: set[_Finished] = set()
        self._guard = threading.Lock()
        self._counts: Counter[str] = Counter()

    @property
    def ends(self) -> bool:
        return self.told or self.stop.is_set()

    @property
    def counts(self) -> Counter[str]:
        with self._guard:
            return Counter(self._counts)

    def breaks(self, error: WorkerError) -> None:
        """End the run with ``error``; the first one counts."""
        with self._guard:
            self.broken = self.broken or error
        self.stop.set()

    def tell(self, event: Event) -> None:
        """Count, log and pass on what became of a delivery."""
        with self._guard:
            self._counts[event.kind] += 1
        if event.error is not None and event.kind in _LEVELS:
            about = event.trace_id or (event.message.id if event.message else self.worker.queue.name)
            kind = type(event.error).__name__
            logger.log(_LEVELS[event.kind], "%s %s: %s: %s", event.kind, about, kind, said(event.error))
        try:
            self.worker.on_event(event)
        except BaseException as error:  # noqa: BLE001 - a thread has nobody to raise to: run() raises it
            self._faults("on_event broke", error)

    def loop(self) -> None:
        """Receive and hand over until the run ends: the life of one thread."""
        try:
            self._poll()
        except WorkerError as error:
            self.breaks(error)
        except BaseException as error:  # noqa: BLE001 - as above
            self._faults("it has a fault", error)

    def _poll(self) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        worker, failures, silent_since = self.worker, 0, math.inf
        while not self.ends:
            began = time.time_ns()
            try:
                batch = worker.queue.receive(worker.prefetch, wait=worker.wait, visibility=worker.visibility)
                if not batch and self.until_empty and worker.queue.depth().total == 0:
                    return
            except (BotoCoreError, ClientError, QueueError) as error:
                self.tell(Event("poll_failed", error=error))
                silent_since = min(silent_since, time.monotonic())
                silent = time.monotonic() - silent_since
                if self.until_empty and silent >= _PATIENCE:
                    says = f"queue {worker.queue.name} has not answered for {silent:.0f} s: {error}"
                    raise WorkerError(f"nobody knows whether it is empty: {says}") from error
                well = False
            else:
                silent_since = math.inf
                well = not batch or self._batch(self.handler.take(batch), began)
                if not batch and worker.wait == 0:
                    self.stop.wait(_BREATH)
            failures = 0 if well else failures + 1
            if failures:
                self.stop.wait(min(30.0, 0.25 * 2 ** min(failures, 8)))

    def _batch(self, tasks: Sequence[Task], began: int) -> bool:
        """Hand over one after the other. False when the store does not answer: each receive then costs a message one
        of those that it has, and a worker that went on would carry the whole queue to the dead-letter queue untried."""
        finished = _Finished(tasks[0].received_at)
        held_up: set[str | None] = set()  # groups of a FIFO queue in which a failure has come first
        observer = self.handler.observer
        with self._guard:
            self._finished.add(finished)
        try:
            if observer:
                observer.received(tasks, began)
            for task in tasks:
                waits = self.worker.queue.fifo and task.message.group in held_up
                event = self.handler.put_back(task) if self.ends or waits else self.handler.deliver(task)
                if event is None:
                    continue
                if event.kind in ("done", "replayed"):
                    with self._guard:
                        finished.events.append(event)
                    continue
                if event.kind != "dead":
                    held_up.add(task.message.group)
                self.tell(event)
        finally:
            with self._guard:
                self._finished.discard(finished)
                events = finished.take()
            self._delete(events)
            if observer:
                observer.over(tasks)
        return not any(task.unclaimed for task in tasks)

    def delete_what_waits(self) -> None:
        """Delete what was done a while ago and waits for a slow one of its batch: it would come back, and run again."""
        long_ago = time.monotonic() - self.handler.every
        self.helpers = [helper for helper in self.helpers if helper.is_alive()]
        with self._guard:
            taken = [each.take() for each in self._finished if each.events and each.received_at < long_ago]
        for events in taken:
            helper = threading.Thread(target=self._delete, args=(events,), name="labkit-delete", daemon=True)
            self.helpers.append(helper)
            helper.start()

    def _delete(self, events: Sequence[Event]) -> None:
        """Delete what is done, and only now say that it is."""
        left: dict[int, tuple[str, str]] = {}
        trouble: BatchError | None = None
        try:
            self.worker.queue.delete(*(event.message for event in events if event.message))
        except BatchError as error:
            left, trouble = error.failed, error
        for place, event in enumerate(events):
            self.tell(replace(event, kind="undeleted", error=trouble) if place in left else event)

    def _faults(self, what: str, error: BaseException) -> None:
        broken = WorkerError(f"the worker stopped because {what}: {type(error).__name__}: {said(error)}")
        broken.__cause__ = error
        self.breaks(broken)
