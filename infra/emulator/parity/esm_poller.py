"""One mapping at work: it receives, gathers, has the function invoked, and deletes what was processed.

**On AWS** (Lambda Developer Guide, "Using Lambda with Amazon SQS", "Handling errors for an SQS event source")

* *success*: the batch is deleted from the queue;
* *error of the function*: nothing is done. The batch stays invisible until its visibility timeout ends and then comes
  back, with a receive count that is one higher, or goes to the dead-letter queue by the queue's redrive policy;
* *throttle*, as when the reserved concurrency is reached: Lambda goes on trying, less and less often, until the
  visibility timeout ends, and then lets the batch go. The receive counts although the function never ran: with
  maxReceiveCount=1 the message is a dead letter that nobody has looked at;
* *FIFO queue*: the order within a group is kept, since SQS gives out nothing of a group while one of its messages is
  invisible. A message that failed holds back its group, no other.

How often a throttled batch is tried again is not documented; nor is what becomes of the rest of a FIFO batch that is
too large for one event: here it follows when the first part has succeeded, and comes back otherwise.

**MiniStack** waits for a second after each error, lets FIFO queues have one batch at a time, and starts no more batches
than the reserved concurrency allows, so that no throttle ever costs a receive.

**Here** :class:`Poller` takes small steps on the thread of :mod:`parity.esm_loop`; the function runs on another."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from parity.esm_gather import Batch, Gatherer, Held
from parity.esm_records import Record
from parity.esm_response import failed
from parity.esm_scaling import Bounds, Scaling

SETTLE = 0.005  # seconds after a change in the queue, so that messages that are sent together arrive together
MOST_FRUITLESS = 20  # two queues that are each other's dead-letter queue would keep two mappings busy
SHORTEST_NAP = 0.005
RECEIVES_PER_STEP = 100  # then it is another mapping's turn


class Queue(Protocol):
    """What a poller needs of its queue."""

    def receive(self, limit: int) -> list[Held]: ...
    def delete(self, batch: Batch) -> None: ...
    def backlog(self) -> bool:
        """Whether a message is visible."""

    def next_change(self) -> float | None:
        """When the next message becomes visible by itself."""

    def on_change(self, waiter: Callable[[], None]) -> None: ...
    def forget(self, waiter: Callable[[], None]) -> None: ...


@dataclass(frozen=True)
class Settings:
    batch_size: int = 10
    window: float = 0
    fifo: bool = False
    reports: bool = False  # the function's answer says which messages failed
    bounds: Bounds = field(default_factory=lambda: Bounds.of({}, fifo=False))


@dataclass(frozen=True)
class Outcome:
    """What became of an invocation. ``answer`` is what the function returned, if it did."""

    error: bool = False
    throttled: bool = False
    answer: Any = None


@dataclass(eq=False)
class Job:
    """One or, from a FIFO queue, several batches that must be processed one after the other."""

    parts: list[Batch]
    throttles: int = 0

    @property
    def batch(self) -> Batch:
        return self.parts[0]

    def until(self) -> float:
        """When the first of the batch's messages becomes visible again."""
        return min(held.until for held in self.batch)


def backoff(throttles: int) -> float:
    """Seconds until a throttled batch is tried again, after so many throttles."""
    return float(min(0.25 * 2 ** (throttles - 1), 5.0))


class Poller:
    """``invoke(job)`` starts an invocation for ``job.batch`` and has :meth:`finished` called with its outcome;
    ``wake(at)`` has :meth:`step` called at that moment; ``takes`` is the mapping's filter."""

    def __init__(
        self,
        queue: Queue,
        settings: Settings,
        *,
        invoke: Callable[[Job], None],
        wake: Callable[[float], None],
        clock: Callable[[], float],
        takes: Callable[[Record], bool] = lambda record: True,
    ) -> None:
        self._queue = queue
        self._invoke = invoke
        self._wake = wake
        self._clock = clock
        self._lock = threading.RLock()
        self._gatherer = Gatherer()
        self._scaling = Scaling(settings.bounds)
        self._throttled: list[tuple[float, int, Job]] = []
        self._order = itertools.count()
        self._running = 0  # jobs that are invoked, or wait to be tried again
        self._fruitless = 0
        self._watching = False
        self.closed = False
        self.configure(settings, takes)

    def configure(self, settings: Settings, takes: Callable[[Record], bool]) -> None:
        with self._lock:
            self.settings = settings
            self._takes = takes
            self._gatherer.batch_size, self._gatherer.window = settings.batch_size, settings.window
            self._scaling.change(settings.bounds)

    def close(self) -> None:
        """Receive no more. What is being processed is still deleted; what is held becomes visible in its time."""
        with self._lock:
            self.closed = True
            self._throttled.clear()
        self._queue.forget(self._changed)

    # -- steps -----------------------------------------------------------------------------------------------------

    def step(self) -> float | None:
        with self._lock:
            if self.closed:
                return None
            now = self._clock()
            if not self._watching:  # before looking: what comes in between would not wake us
                self._watching = True
                self._queue.on_change(self._changed)
            self._try_again(now)
            self._scale(now)
            more = self._receive_and_start()
            return now + SHORTEST_NAP if more else self._next_step(now)

    def _scale(self, now: float) -> None:
        if self._wants_more():
            self._scaling.busy(now)
        else:
            self._scaling.calm()

    def _wants_more(self) -> bool:
        """Whether the concurrency has reason to grow: all of it is used, and messages remain."""
        return self._running >= self._scaling.limit and self._scaling.growing() and self._queue.backlog()

    def _try_again(self, now: float) -> None:
        while self._throttled and self._throttled[0][0] <= now:
            job = heapq.heappop(self._throttled)[2]
            if job.until() > now:
                self._invoke(job)
            else:
                self._running -= 1

    def _receive_and_start(self) -> bool:
        """Start as many jobs as there are and may be. True when there may be more in the queue."""
        for _ in range(RECEIVES_PER_STEP):
            if self._running >= self._scaling.limit:
                return False
            received = self._receive()
            job = self._next_job()
            if job is not None:
                self._fruitless = 0
                self._running += 1
                self._invoke(job)
            elif not received:
                self._fruitless = min(self._fruitless + 1, MOST_FRUITLESS)
                return False
        return True

    def _receive(self) -> bool:
        room = self._gatherer.room()
        received = self._queue.receive(room) if room else []
        unwanted = []
        for held in received:
            if self._takes(held.record):
                self._gatherer.add(held)
            else:
                unwanted.append(held)
        if unwanted:
            self._queue.delete(unwanted)
        return bool(received)

    def _next_job(self) -> Job | None:
        now = self._clock()
        batch = self._gatherer.take(now)
        if batch is None:
            return None
        job = Job([batch])
        while self.settings.fifo and (rest := self._gatherer.take(now)):
            job.parts.append(rest)
        return job

    def _next_step(self, now: float) -> float | None:
        dues = [self._throttled[0][0]] if self._throttled else []
        if self._wants_more():
            self._scaling.busy(now)
            dues.append(now + 60 / self._scaling.bounds.per_minute)
        elif self._running < self._scaling.limit:
            if not self._running and not len(self._gatherer):
                self._scaling.idle()
            dues += [due for due in (self._gatherer.due(), self._queue.next_change()) if due is not None]
        return max(min(dues), now + SHORTEST_NAP) if dues else None

    def _changed(self) -> None:
        # Called with the lock of all queues held, so ours must not be taken.
        self._watching = False
        self._wake(self._clock() + SETTLE + self._fruitless / 1000)

    # -- afterwards ------------------------------------------------------------------------------------------------

    def finished(self, job: Job, outcome: Outcome) -> None:
        """The invocation for ``job.batch`` is over."""
        if outcome.throttled:
            self._postpone(job)
            return
        reports = self.settings.reports
        ids = [held.id for held in job.batch]
        back = frozenset(ids) if outcome.error else failed(outcome.answer, ids) if reports else frozenset()
        done = [held for held in job.batch if held.id not in back]
        if done:
            self._queue.delete(done)
        with self._lock:
            if not outcome.error:
                self._scaling.succeeded()
            elif not reports:
                self._scaling.failed()
            job.parts.pop(0)
            job.throttles = 0
            if not back and job.parts and not self.closed and job.until() > self._clock():
                self._invoke(job)
                return
            self._running -= 1
        self._wake(self._clock())

    def _postpone(self, job: Job) -> None:
        with self._lock:
            self._scaling.failed()
            job.throttles += 1
            again = self._clock() + backoff(job.throttles)
            if again < job.until() and not self.closed:
                heapq.heappush(self._throttled, (again, next(self._order), job))
            else:
                self._running -= 1
                again = self._clock()
        self._wake(again)
