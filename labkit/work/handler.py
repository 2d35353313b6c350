"""Handler: what happens to one delivery. No threads, no loop: :mod:`labkit.work.worker` brings those."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

from labkit.errors import LabError
from labkit.facts import facts
from labkit.models.retry import Wait
from labkit.state.idempotency import Busy, Fenced, IdempotencyStore, PayloadMismatch, Work
from labkit.state.records import said
from labkit.work.dead_letters import bury
from labkit.work.heartbeat import Heartbeat, LeaseLost
from labkit.work.queues import BatchError, Message, Queue
from labkit.work.tasks import Event, Observer, Poison, Task, WorkerError

_AT_ONCE = 32  # threads that give back at the end

logger = logging.getLogger(__name__)


class _Hopeless(Exception):
    """What its cause says of this message, it will say of each delivery."""


@dataclass(eq=False)
class Handler:
    """One message after the other: parse, claim, run, record, follow. The fields are those of the worker.

    Each message is kept from its receive on, also while it waits for its turn in a batch: one that came back from there
    again and again would be carried to the dead-letter queue without having been tried.
    """

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
    in_hand: set[Task] = field(default_factory=set)
    observer: Observer | None = None

    def __post_init__(self) -> None:
        self.every = min(self.visibility, self.store.lease if self.store else math.inf) / 3
        _, self.max_receives = self.queue.redrive()
        self._guard = threading.Lock()

    # -- one delivery ----------------------------------------------------------------------------------------------

    def take(self, messages: Sequence[Message]) -> list[Task]:
        """What has just been received, held from now on."""
        now, tasks = time.monotonic(), []
        for message in messages:
            beat = Heartbeat(
                self.queue,
                message,
                every=self.every,
                extend=self.visibility,
                limit=self.limit,
                held=self.visibility,
                driven=True,
            )
            tasks.append(Task(message, received_at=now, beat=beat))
            beat.__enter__()
        with self._guard:
            self.in_hand.update(tasks)
        return tasks

    def deliver(self, task: Task) -> Event | None:
        """One delivery. After ``done`` and ``replayed``, the delete is due.

        None when the task was given back meanwhile: whoever did that has said so.
        """
        observer, event = self.observer, None
        if observer is None:
            return self._deliver(task)
        observer.begins(task)
        try:
            event = self._deliver(task)
        finally:
            observer.ends(task, event)
        return event

    def _deliver(self, task: Task) -> Event | None:
        error: BaseException | None = None
        try:
            self._handle(task)
        except BaseException as raised:  # noqa: BLE001 - a step that ends its thread is a step that failed
            error = raised
        held = task.beat.holds
        if not self._let_go(task):
            return None
        if error is None:
            return task.ended("replayed" if task.claim and task.claim.replayed else "done")
        if not held or isinstance(error, LeaseLost) or (isinstance(error, Fenced) and error.of(task.claim)):
            # Somebody else may have it in hand: to hide, to give back or to bury it is no longer this worker's affair.
            return task.ended("lost", error)
        if isinstance(error, Busy) and task.claim is None:
            self._hide(task.message, math.ceil(error.retry_in))
            return task.ended("busy", error)
        hopeless = isinstance(error, Poison | _Hopeless)
        return self._failed(task, (error.__cause__ or error) if isinstance(error, _Hopeless) else error, hopeless)

    def put_back(self, task: Task) -> Event | None:
        """Give back what has not begun. None when that was done meanwhile."""
        held = task.beat.holds
        if not self._let_go(task):
            return None
        if held:
            self._hide(task.message, 0)
        return task.ended("released")

    def _handle(self, task: Task) -> None:
        task.beat.check()
        try:
            task.body = body = self.parse(task.message.body)
            task.trace_id = str(body.get("trace_id", "") if isinstance(body, dict) else getattr(body, "trace_id", ""))
            if observer := self.observer:
                observer.parsed(task)
            work = Work.of(body, self.consumer) if self.store else None
        except BaseException as error:  # what a body makes the parser raise now, it will raise again
            raise _Hopeless from error
        try:
            if self.store and work:
                task.claim = self.store.claim(work)
        except PayloadMismatch as error:
            raise _Hopeless from error
        except Exception as error:
            task.unclaimed = not isinstance(error, LabError)  # what labkit says is about this work alone
            raise
        with task.claim or nullcontext():
            fresh = task.claim is None or not task.claim.done
            renew = [task.claim.renew] if task.claim and fresh else []
            task.beat.restart(self.limit, [*renew, *self.keep_alive(task)] if fresh else [])
            task.begun = True
            task.beat.check()
            task.keep_on()
            result = _whole("a step", self.step(task)) if fresh else None
            if task.claim:
                result = task.claim.complete(result) if fresh else task.claim.result
            task.keep_on()
            if self.then:
                _whole("then", self.then(task, result))

    def _failed(self, task: Task, error: BaseException, hopeless: bool) -> Event:
        """The message comes back, unless it has done so often enough."""
        message = task.message
        if (hopeless or message.receives >= self.max_receives) and self._bury(message, error, task.trace_id):
            return task.ended("dead", error)
        if self.retry and (pause := self._pause(self.retry, task)) is not None:
            self._hide(message, pause)
        return task.ended("failed", error)

    def _pause(self, retry: Wait, task: Task) -> int | None:
        """For how long to hide it, in whole seconds; None where ``retry`` gives no such time: as if there were none."""
        try:
            seconds = float(retry(task.message.receives))
            if not seconds >= 0:
                raise ValueError(f"a wait is 0 s or more; it gave {seconds} s")
        except Exception as error:  # noqa: BLE001 - the message comes back all the same, when its visibility ends
            logger.warning("retry has no wait for receive %d: %s", task.message.receives, said(error))
            return None
        # SQS counts from the receive, and refuses what goes beyond.
        most = int(facts("sqs.visibility.total_max")) - math.ceil(time.monotonic() - task.received_at) - 1
        return math.ceil(min(seconds, most))

    # -- what is in hand -------------------------------------------------------------------------------------------

    def beat(self) -> None:
        """Let the heartbeats that are due beat, each in a thread: one that hangs must not hold up the others."""
        with self._guard:
            due = [task.beat for task in self.in_hand if task.beat.due()]
        try:
            for beat in due:
                threading.Thread(target=beat.beat, name="labkit-heartbeat", daemon=True).start()
        except RuntimeError as error:  # no more threads now: a later tick tries again
            logger.warning("a heartbeat is late: %s", error)

    def overdue(self, seconds: float) -> int:
        """How many steps have not ended ``seconds`` after their limit."""
        with self._guard:
            return sum(task.begun and task.beat.overdue > seconds for task in self.in_hand)

    def give_back(self, seconds: float, tell: Callable[[Event], object]) -> None:
        """Let go of everything in hand, so that another worker can begin at once, and ``tell`` of each.

        It takes ``seconds`` at most: what a service without an answer holds up comes back when its visibility ends.
        """
        with self._guard:
            left = list(self.in_hand)
            self.in_hand.clear()
            for task in left:
                task.abandoned = True
        todo = list(left)

        def some() -> None:
            while todo:
                with suppress(IndexError):  # another one was faster
                    self._give_back(todo.pop(), tell)

        helpers = [threading.Thread(target=some, name="labkit-give-back", daemon=True) for _ in left[:_AT_ONCE]]
        for helper in helpers:
            helper.start()
        end = time.monotonic() + seconds
        for helper in helpers:
            helper.join(max(0.0, end - time.monotonic()))

    def _give_back(self, task: Task, tell: Callable[[Event], object]) -> None:
        held = task.beat.holds
        task.beat.end()
        try:
            if task.claim:
                task.claim.release("its worker stopped")
        except Exception as error:  # noqa: BLE001 - the lease ends by itself; the message is to be let go, too
            logger.warning("%s could not be released: %s", task.trace_id, said(error))
        if held:
            self._hide(task.message, 0)
        tell(task.ended("released"))

    def _let_go(self, task: Task) -> bool:
        """No more beats. False when the task was given back before."""
        task.beat.__exit__(None, None, None)
        with self._guard:
            self.in_hand.discard(task)
            return not task.abandoned

    # -- the message -----------------------------------------------------------------------------------------------

    def _hide(self, message: Message, seconds: int) -> None:
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


def _whole(what: str, returned: Any) -> Any:
    """What a hook returned, unless nobody has run it yet: ``async def`` and ``yield`` make a call that does nothing."""
    if isinstance(returned, Awaitable | AsyncIterator | Generator):
        if hasattr(returned, "close"):
            returned.close()
        raise WorkerError(
            f"{what} returned a {type(returned).__name__}, which has not run: it is to be a plain function."
        )
    return returned
