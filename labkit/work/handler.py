"""Handler: what happens to one delivery. No threads, no loop: :mod:`labkit.work.worker` brings those."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

from labkit.models.retry import Wait
from labkit.state.idempotency import Busy, Fenced, IdempotencyStore, PayloadMismatch, Work
from labkit.work.dead_letters import bury
from labkit.work.heartbeat import Heartbeat, LeaseLost
from labkit.work.queues import BatchError, Message, Queue
from labkit.work.tasks import Event, Kind, Poison, Task

logger = logging.getLogger(__name__)


@dataclass(eq=False)
class Handler:
    """One message after the other: parse, claim, run, record, follow. The fields are those of the worker."""

    queue: Queue
    step: Callable[[Task], Any]
    store: IdempotencyStore | None
    consumer: str
    parse: Callable[[str], Any]
    visibility: int
    limit: float
    retry: Wait | None
    then: Callable[[Task, Any], object] | None
    keep_alive: Callable[[Task], Iterable[Callable[[], object]]]
    at_work: set[Task] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.every = min(self.visibility, self.store.lease if self.store else math.inf) / 3
        _, self.max_receives = self.queue.redrive()
        self._guard = threading.Lock()

    def deliver(self, message: Message, received_at: float) -> Event | None:
        """One delivery; ``received_at`` on the monotonic clock. After ``done`` and ``replayed``, the delete is due.

        None when the task was given back meanwhile: whoever did that has said so.
        """
        trace_id = ""

        def ended(kind: Kind, error: BaseException | None = None) -> Event:
            return Event(kind, message, trace_id, time.monotonic() - received_at, error)

        def failed(error: BaseException, *, hopeless: bool = False) -> Event:
            """The message comes back, unless it has done so often enough."""
            if (hopeless or message.receives >= self.max_receives) and self._bury(message, error, trace_id):
                return ended("dead", error)
            if self.retry:
                self.hide(message, math.ceil(self.retry(message.receives)))
            return ended("failed", error)

        age = time.monotonic() - received_at
        if age >= self.visibility:  # it waited behind slow ones of its batch, and is somebody else's by now
            return ended("lost")
        try:
            body = self.parse(message.body)
            trace_id = str(body.get("trace_id", "") if isinstance(body, dict) else getattr(body, "trace_id", ""))
            work = Work.of(body, self.consumer) if self.store else None
        except Exception as error:  # noqa: BLE001 - what a body makes the parser raise now, it will raise again
            return failed(error, hopeless=True)
        task = Task(message, body, trace_id, received_at)
        try:
            if self.store and work:
                task.claim = self.store.claim(work)
        except Busy as busy:
            self.hide(message, math.ceil(busy.retry_in))
            return ended("busy", busy)
        except Exception as error:  # noqa: BLE001 - the table did not answer, or the record is of other work
            return failed(error, hopeless=isinstance(error, PayloadMismatch))
        kind: Kind = "replayed" if task.claim and task.claim.done else "done"
        try:
            result = task.claim.result if task.claim and kind == "replayed" else self._run(task, age)
        except (Fenced, LeaseLost) as error:
            return ended("lost", error)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a step that ends its thread is a step that failed
            return None if task.abandoned else failed(error, hopeless=isinstance(error, Poison))
        try:
            if self.then:
                self.then(task, result)
        except Exception as error:  # noqa: BLE001 - the result stands; the message comes back and tries this again
            return failed(error)
        return ended(kind)

    def _run(self, task: Task, age: float) -> Any:
        renew = [task.claim.renew] if task.claim else []
        # Not held for sure when it has waited in its batch: then the first beat is made at once.
        held = self.visibility - age if age < self.every else None
        with task.claim or nullcontext():
            task.beat = Heartbeat(
                self.queue,
                task.message,
                every=self.every,
                extend=self.visibility,
                limit=self.limit,
                held=held,
                also=[*renew, *self.keep_alive(task)],
                driven=True,
            )
            with self._guard:
                self.at_work.add(task)
            try:
                with task.beat:
                    result = self.step(task)
                    return task.claim.complete(result) if task.claim else result
            finally:
                with self._guard:
                    self.at_work.discard(task)

    def beat(self) -> None:
        """Let the heartbeats that are due beat, each in a thread: one that hangs must not hold up the others."""
        with self._guard:
            due = [task.beat for task in self.at_work if task.beat and task.beat.due()]
        for beat in due:
            threading.Thread(target=beat.beat, name="labkit-heartbeat", daemon=True).start()

    def give_back(self) -> list[Event]:
        """Let go of everything that is at work, so that another worker can begin at once."""
        with self._guard:
            left = list(self.at_work)
        for task in left:
            task.abandoned = True
            if task.beat:
                task.beat.end()
            try:
                if task.claim:
                    task.claim.release("its worker stopped")
            except Exception as error:  # noqa: BLE001 - the lease ends by itself; the others are to be let go, too
                logger.warning("%s could not be released: %s", task.trace_id, error)
            self.hide(task.message, 0)
        now = time.monotonic()
        return [Event("released", task.message, task.trace_id, now - task.received_at) for task in left]

    def hide(self, message: Message, seconds: int) -> None:
        """Hide a message for ``seconds``; where that fails it comes back all the same, when its visibility ends."""
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            self.queue.hide(message, seconds)
        except (BotoCoreError, ClientError) as error:
            logger.info("message %s could not be hidden for %s s: %s", message.id, seconds, error)

    def _bury(self, message: Message, error: BaseException, trace_id: str) -> bool:
        try:
            return bury(self.queue, message, error, trace_id=trace_id)
        except BatchError as trouble:  # it is there, and will come back here as well
            logger.warning("message %s is in the dead-letter queue, but was not deleted: %s", message.id, trouble)
            return True
