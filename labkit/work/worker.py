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

import inspect
import math
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from labkit.control.envelope import Envelope
from labkit.models._input import ModelError, number, whole
from labkit.models._input import limit as fact
from labkit.models.retry import Wait
from labkit.state.idempotency import IdempotencyError, IdempotencyStore, Work
from labkit.work.handler import Handler
from labkit.work.loops import Run
from labkit.work.queues import Queue
from labkit.work.tasks import Event, Observer, Poison, Stopped, Task, WorkerError

__all__ = ["Event", "Observer", "Poison", "Stopped", "Task", "Worker", "WorkerError"]

_GIVING_BACK = 5.0  # seconds that giving back what is not finished may take at the end


class Worker:
    """Run ``step(task)`` for every message of ``queue``, in ``threads`` threads.

    ``store`` records results; without one, a step may run again although it succeeded. ``consumer`` names this worker
    in the key of the work. ``parse`` makes a message's body into what the step gets (with a store: an envelope or its
    dictionary); what it raises sends the message to the dead-letter queue at once, because a body does not become
    readable by trying again. ``visibility`` seconds are renewed at a third or sooner, together with the lease and
    with what ``keep_alive(task)`` returns (a task token's heartbeat), for ``limit`` seconds at most. A step that goes
    on after that keeps its thread, which nobody can take from it: when all threads are gone so, :meth:`run` ends.

    ``retry`` says how long a failed message is hidden, by its receives; without it, until its visibility ends. Whatever
    a step raises is a failure. At the last receive that the queue allows, a failed message goes to the dead-letter
    queue, with the reason. ``then(task, result)`` follows a recorded result and runs at least once: a completion event,
    a callback. What it raises is a failure of the message and not of the work: the result stands, also where the
    message ends in the dead-letter queue, and a redrive from there runs ``then`` again, not the step.

    ``prefetch`` messages come with one receive and are handled one after the other; those that wait are kept as well.
    On a FIFO queue a failure gives back the rest of its group, and every return counts as a receive: leave it at 1
    there, or give the queue many receives. ``on_event`` is called from the threads. What it raises ends the worker.
    All of these are plain functions, not ``async`` ones. Raises :class:`WorkerError` for settings that cannot work, and
    :class:`~labkit.work.queues.QueueError` when the queue does not answer.
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
        if not isinstance(queue, Queue) or not isinstance(store, IdempotencyStore | None):
            raise WorkerError(
                f"a worker has a Queue and an IdempotencyStore or None; got {queue!r:.80}, {store!r:.80}."
            )
        try:
            whole("threads", threads, high=256)
            whole("prefetch", prefetch, high=fact("sqs.receive.max"))
            whole("visibility", visibility, high=fact("sqs.visibility.max"))
            whole("wait", wait, low=0, high=fact("sqs.long_poll.max"))
            number("limit", limit, low=1, high=fact("sqs.visibility.total_max"), unit="s")
            number("grace", grace, high=fact("sqs.visibility.total_max"), unit="s")
            Work.named("any", consumer or queue.name, None)
        except (ModelError, IdempotencyError) as error:
            raise WorkerError(f"a worker cannot run so: {error}") from error
        needed = {"step": step, "parse": parse, "keep_alive": keep_alive, "on_event": on_event}
        for name, hook in {**needed, "then": then, "retry": retry}.items():
            optional = hook is None and name not in needed
            lazy = inspect.iscoroutinefunction(hook) or inspect.isasyncgenfunction(hook)
            if inspect.isgeneratorfunction(hook) and name != "keep_alive":
                lazy = True
            if lazy or not (optional or callable(hook)):
                raise WorkerError(f"{name} is a plain function, no async one and no generator; got {hook!r:.80}.")
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
        self._tick = max(0.005, min(0.1, self._handler.every / 8))
        self._stop = threading.Event()
        self._runs = threading.Lock()

    def run(self, *, until_empty: bool = False, seconds: float | None = None) -> Counter[str]:
        """Work until :meth:`stop`, SIGTERM (in the main thread), ``seconds``, or until nothing is left in the queue.

        Then it receives nothing more, lets the steps at work finish within ``grace`` seconds, and gives back what is
        not finished. Returns how many deliveries ended how, by :class:`Event` kind.

        A queue or a store that does not answer is asked again, more and more seldom: a service waits for it, however
        long that takes. With ``until_empty`` the queue is waited for a minute, and then that is an error. Raises
        :class:`WorkerError` for that, when a hook broke, when no thread is left that could work, and when the worker
        runs already. No message is lost by any of them. ``KeyboardInterrupt`` ends it like a stop and comes through; a
        second one ends the grace.
        """
        try:
            end = math.inf if seconds is None else time.monotonic() + number("seconds", seconds, unit="s")
        except ModelError as error:
            raise WorkerError(f"a worker cannot run so: {error}") from error
        if not self._runs.acquire(blocking=False):
            raise WorkerError("this worker runs already; for another run at the same time, make another worker.")
        try:
            return self._run(Run(self, self._handler, until_empty, self._stop), end)
        finally:
            # Loops that outlive this run, in a step that does not end, keep the old one: they stay stopped.
            self._stop = threading.Event()
            self._runs.release()

    def observe(self, observer: Observer | None) -> None:
        """Let ``observer`` look on at each delivery, from the next one on; None takes it away."""
        self._handler.observer = observer

    def stop(self) -> None:
        """Have :meth:`run` end: finish or give back. From any thread; returns at once.

        Where the worker does not run, the next run ends at once: a stop that comes too early is no stop that is lost.
        """
        self._stop.set()

    def _run(self, run: Run, end: float) -> Counter[str]:
        loops = [
            threading.Thread(target=run.loop, name=f"labkit-worker-{place}", daemon=True)
            for place in range(self.threads)
        ]
        with _ended_by_sigterm(run):
            try:
                for loop in loops:
                    loop.start()
                while self._beating(run, loops) and not run.ends and time.monotonic() < end:
                    _join(loops, self._tick)
            finally:
                run.stop.set()
                try:
                    last = time.monotonic() + self.grace
                    while self._beating(run, loops) and time.monotonic() < last:
                        _join(loops, min(self._tick, last - time.monotonic()))
                finally:
                    self._handler.give_back(_GIVING_BACK, run.tell)
                    _join([*loops, *run.helpers], 1.0)
        if run.broken is not None:
            raise run.broken
        return run.counts

    def _beating(self, run: Run, loops: Sequence[threading.Thread]) -> bool:
        """Let what is in hand be kept and what is done be deleted; True while there is a loop that works."""
        self._handler.beat()
        run.delete_what_waits()
        if not run.stop.is_set() and self._handler.overdue(self.grace) >= self.threads:
            run.breaks(WorkerError(f"no thread is left: {self.threads} steps went on after their limit was over."))
        return any(thread.is_alive() for thread in (*loops, *run.helpers))


@contextmanager
def _ended_by_sigterm(run: Run) -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are the main thread's affair
        return

    def handle(number: int, frame: object) -> None:
        run.told = True  # and nothing with a lock in it: the main thread may be holding that lock just now

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        if before is not None:  # None: it was not Python that had set it
            signal.signal(signal.SIGTERM, before)


def _join(threads: Iterable[threading.Thread], seconds: float) -> None:
    """Wait for all of them, ``seconds`` together at most."""
    end = time.monotonic() + seconds
    for thread in threads:
        if thread.ident is not None:
            thread.join(max(0.0, end - time.monotonic()))
