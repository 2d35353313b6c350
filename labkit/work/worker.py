"""Worker: the loop that a fleet is made of. Receive, claim, keep alive, run, record, delete.

In this order, because each step makes the next one safe to repeat. The message is deleted last, when its result stands:
a worker that dies anywhere before leaves a message that comes back, and whoever receives it takes the abandoned claim
over or finds the result. ``kill -9`` at any point costs time, never a step::

    receive ─ parse ─ claim ─┬─ done before ───────────────────┬─ then ─ delete
                  │     │    └─ step, with heartbeat ─ record ─┘
                  │     └─ busy: hidden until that lease ends
                  └─ unreadable: to the dead-letter queue, with the reason
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from labkit.control.envelope import Envelope
from labkit.models.retry import Wait
from labkit.state.idempotency import IdempotencyStore
from labkit.work.handler import Handler
from labkit.work.queues import BatchError, Message, Queue
from labkit.work.tasks import Event, Poison, Stopped, Task, WorkerError

__all__ = ["Event", "Poison", "Stopped", "Task", "Worker", "WorkerError"]


class Worker:
    """Run ``step(task)`` for every message of ``queue``, in ``threads`` threads.

    ``store`` records results; without one, a step may run again although it succeeded. ``consumer`` names this worker
    in the key of the work. ``parse`` makes a message's body into what the step gets (with a store: an envelope or its
    dictionary); what it raises sends the message to the dead-letter queue at once, because a body does not become
    readable by trying again. ``visibility`` seconds are renewed at a third or sooner, together with the lease and
    with what ``keep_alive(task)`` returns (a task token's heartbeat), for ``limit`` seconds at most. ``retry`` says
    how long a failed message is hidden, by its receives; without it, until its visibility ends. ``then(task, result)``
    follows a recorded result and runs at least once: a completion event, a callback. ``prefetch`` messages come with
    one receive and are handled one after the other. ``on_event`` is called from the threads.
    """

    def __init__(
        self,
        queue: Queue,
        step: Callable[[Task], Any],
        *,
        store: IdempotencyStore | None = None,
        consumer: str = "",
        parse: Callable[[str], Any] = Envelope.parse,
        threads: int = 1,
        prefetch: int = 1,
        visibility: int = 60,
        limit: float = 3_600.0,
        wait: int = 20,
        grace: float = 20.0,
        retry: Wait | None = None,
        then: Callable[[Task, Any], object] | None = None,
        keep_alive: Callable[[Task], Iterable[Callable[[], object]]] = lambda task: (),
        on_event: Callable[[Event], object] = lambda event: None,
    ) -> None:
        if not 1 <= threads <= 256 or not 1 <= prefetch <= 10 or not 0 <= wait <= 20 or visibility < 1:
            raise WorkerError(
                "a worker has 1 to 256 threads, a prefetch of 1 to 10, a wait of 0 to 20 s and a visibility of 1 s or "
                f"more; got {threads}, {prefetch}, {wait}, {visibility}."
            )
        if store is not None and not store.lease < visibility:
            raise WorkerError(
                f"a lease of {store.lease:g} s must be shorter than the visibility of {visibility} s: the message that "
                "comes back after a crash would meet a lease that still holds."
            )
        self.queue, self.threads, self.prefetch = queue, threads, prefetch
        self.wait, self.visibility, self.grace, self.on_event = wait, visibility, grace, on_event
        self._handler = Handler(
            queue, step, store, consumer or queue.name, parse, visibility, limit, retry, then, keep_alive
        )
        # Often enough that a beat is never much later than it is due, and a signal never waits long.
        self._tick = min(0.1, self._handler.every / 8)
        self._stop = threading.Event()
        self._guard = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._broken: BaseException | None = None

    # -- the run ---------------------------------------------------------------------------------------------------

    def run(self, *, until_empty: bool = False, seconds: float | None = None) -> Counter[str]:
        """Work until :meth:`stop`, SIGTERM (in the main thread), ``seconds``, or until nothing is left in the queue.

        Then it receives nothing more, lets the steps at work finish within ``grace`` seconds, and gives back what is
        not finished. Returns how many deliveries ended how, by :class:`Event` kind. Raises :class:`WorkerError` when a
        hook broke: no message is lost by that.
        """
        self._stop.clear()
        self._counts, self._broken = Counter(), None
        end = math.inf if seconds is None else time.monotonic() + seconds
        loops = [
            threading.Thread(target=self._loop, args=(until_empty,), name=f"labkit-worker-{number}", daemon=True)
            for number in range(self.threads)
        ]
        with self._ended_by_sigterm():
            try:
                for loop in loops:
                    loop.start()
                while self._beating(loops) and not self._stop.is_set() and time.monotonic() < end:
                    _join(loops, self._tick)
            finally:
                self._stop.set()
                last = time.monotonic() + self.grace
                while self._beating(loops) and time.monotonic() < last:
                    _join(loops, min(self._tick, last - time.monotonic()))
                for event in self._handler.give_back():
                    self._tell(event)
                _join(loops, 1.0)
        if self._broken is not None:
            raise WorkerError(f"the worker stopped because a hook broke: {self._broken!r}.") from self._broken
        with self._guard:
            return Counter(self._counts)

    def stop(self) -> None:
        """Have :meth:`run` end: finish or give back. From any thread; returns at once."""
        self._stop.set()

    def _beating(self, loops: Sequence[threading.Thread]) -> bool:
        """Let the steps at work keep their messages; True while there is a loop that could have one."""
        self._handler.beat()
        return any(loop.is_alive() for loop in loops)

    @contextmanager
    def _ended_by_sigterm(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield  # signals are the main thread's affair
            return
        before = signal.signal(signal.SIGTERM, lambda number, frame: self.stop())
        try:
            yield
        finally:
            signal.signal(signal.SIGTERM, before)

    def _loop(self, until_empty: bool) -> None:
        from botocore.exceptions import BotoCoreError, ClientError

        failures = 0
        try:
            while not self._stop.is_set():
                try:
                    batch = self.queue.receive(self.prefetch, wait=self.wait, visibility=self.visibility)
                    if not batch and until_empty and self.queue.depth().total == 0:
                        return
                except (BotoCoreError, ClientError) as error:
                    failures += 1
                    self._tell(Event("poll_failed", error=error))
                    self._stop.wait(min(30.0, 0.25 * 2 ** min(failures, 8)))
                else:
                    failures = 0
                    self._batch(batch, time.monotonic())
        except BaseException as error:  # noqa: BLE001 - a thread has nobody to raise to: run() raises it
            self._broken = error
            self._stop.set()

    def _batch(self, batch: Sequence[Message], received_at: float) -> None:
        finished: list[Event] = []
        held_up: set[str | None] = set()  # groups of a FIFO queue in which a failure has come first
        try:
            for message in batch:
                if self._stop.is_set() or (self.queue.fifo and message.group in held_up):
                    self._handler.hide(message, 0)
                    self._tell(Event("released", message))
                    continue
                event = self._handler.deliver(message, received_at)
                if event is None:
                    continue
                if event.kind in ("done", "replayed"):
                    finished.append(event)
                    if time.monotonic() - received_at > self._handler.every:
                        self._delete(finished)
                    continue
                if event.kind != "dead":
                    held_up.add(message.group)
                self._tell(event)
        finally:
            self._delete(finished)

    def _delete(self, finished: list[Event]) -> None:
        """Delete what is done, and only now say that it is."""
        events, finished[:] = list(finished), []
        left: dict[int, tuple[str, str]] = {}
        try:
            self.queue.delete(*(event.message for event in events if event.message))
        except BatchError as error:
            left = error.failed
        for number, event in enumerate(events):
            self._tell(replace(event, kind="undeleted") if number in left else event)

    def _tell(self, event: Event) -> None:
        with self._guard:
            self._counts[event.kind] += 1
        self.on_event(event)


def _join(threads: Iterable[threading.Thread], seconds: float) -> None:
    """Wait for all of them, ``seconds`` together at most."""
    end = time.monotonic() + seconds
    for thread in threads:
        if thread.ident is not None:
            thread.join(max(0.0, end - time.monotonic()))
