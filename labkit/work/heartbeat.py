"""Heartbeat: keep a message hidden while its step runs, and stop in time.

A step that outlives the visibility timeout is run twice: the message reappears and somebody else takes it. The answer
is not a timeout for the worst case (a dead worker's message would then wait as long) but a short one that is extended
while the worker lives. The extension needs an upper bound: a step that hangs would otherwise hide its message until
SQS's own limit of 12 hours, and nobody would learn of it.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Sequence
from types import TracebackType

from labkit.errors import LabError
from labkit.facts import facts
from labkit.work.queues import Message, Queue


class LeaseLost(LabError):
    """The message is no longer this worker's: its visibility ended, or the heartbeat's bound was reached."""


class Heartbeat:
    """Extend the visibility of ``message`` by ``extend`` seconds at once and then every ``every`` seconds.

    It runs while the ``with`` block does. ``limit`` bounds the whole stay in seconds (12 h at most: SQS's own limit
    since the receive). ``every`` must be at most half of ``extend``, so that one lost beat does not lose the message.

    After the limit, when SQS refuses, or when the last extension has run out before the next one came through, the beat
    stops and ``lost`` says why; :meth:`check` raises :class:`LeaseLost` then, and the step should stop, because
    somebody else may be running it. The own clock matters most: SQS accepts a late extension, even one with a handle
    that a newer receive has superseded (recorded on AWS), and tells nobody.

    ``also`` are further things to keep alive with each beat, after the message: the lease of a claim, a task token. One
    that raises a :class:`LabError` or is refused by AWS ends the beat as a refused extension does. ``held`` says for
    how many seconds the message is held already (it has just been received); the first beat then is not made at once.

    >>> with Heartbeat(queue, message, every=5, extend=15, limit=600) as beat:      # doctest: +SKIP
    ...     for part in step:
    ...         part()
    ...         beat.check()
    """

    def __init__(
        self,
        queue: Queue,
        message: Message,
        *,
        every: float,
        extend: int,
        limit: float | None = None,
        held: float | None = None,
        also: Sequence[Callable[[], object]] = (),
        driven: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        longest = float(facts("sqs.visibility.max"))
        if not isinstance(extend, int) or extend < 1:
            raise LabError(f"a heartbeat extends by whole seconds, 1 or more; extend is {extend!r}.")
        if not 0 < every <= extend / 2:
            raise LabError(
                f"a heartbeat every {every} s is too seldom for {extend} s of visibility: half of it at most."
            )
        if limit is not None and not 0 < limit <= longest:
            raise LabError(f"a heartbeat can hold a message for {longest:.0f} s at most; limit is {limit}.")
        self.beats = 0
        self.lost: str | None = None
        self._queue, self._message = queue, message
        self._every, self._extend = every, extend
        self._limit = longest if limit is None else limit
        self._held, self._also = held, also
        self._clock = clock
        self._started = self._next = math.inf
        self._at_it = threading.Lock()
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        if not driven:
            self._thread = threading.Thread(target=self._run, name=f"labkit-heartbeat-{message.id[:8]}", daemon=True)

    def __enter__(self) -> Heartbeat:
        if self._started < math.inf:
            raise LabError("a heartbeat runs once; make a new one for each delivery.")
        self._started = self._held_until = self._clock()
        if self._held is None:
            self.beat()  # at once: until SQS has agreed, nobody knows for how long the message is held
        else:
            self._held_until += self._held
            self._next = self._started + self._every
        if self._thread:
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
        if self._thread:
            self._thread.join(timeout=10.0)
        elif self._at_it.acquire(timeout=10.0):  # a beat under way would hide the message once more
            self._at_it.release()

    def end(self) -> None:
        """No more beats from now on; returns at once."""
        self._end.set()

    def check(self) -> None:
        """Raise :class:`LeaseLost` if the message is not known to be held at this moment."""
        lost = self.lost
        if lost is None and self._clock() >= self._held_until:
            lost = "no extension has come through in time"
        if lost:
            raise LeaseLost(f"message {self._message.id} is no longer held: {lost}.")

    def due(self) -> bool:
        """Whether it is time for :meth:`beat`."""
        return self.lost is None and self._clock() >= self._next and not self._end.is_set()

    def beat(self) -> None:
        """Make one beat now. One that is under way already is enough."""
        if self._at_it.acquire(blocking=False):
            try:
                if self.lost is None and not self._end.is_set():
                    self.lost = self._beat()
            finally:
                self._at_it.release()

    def _run(self) -> None:
        while self.lost is None and not self._end.wait(self._every):
            self.beat()

    def _beat(self) -> str | None:
        """One extension; returns why the message is no longer held, or None while it is."""
        from botocore.exceptions import BotoCoreError, ClientError

        now = self._clock()
        self._next = now + self._every
        left = self._limit - (now - self._started)
        if left <= 0:
            return f"the limit of {self._limit:g} s was reached"
        if (self.beats or self._held is not None) and now >= self._held_until:
            return "the last extension ran out before the next one came through"
        # Never beyond the limit: the message must be free for others when the bound is reached.
        seconds = max(1, min(self._extend, round(left)))
        try:
            self._queue.hide(self._message, seconds)
            self._held_until = now + seconds  # from before the call: SQS counts from a moment after it
            for keep_alive in self._also:
                keep_alive()
        except ClientError as error:
            return str(error.response["Error"]["Message"])
        except LabError as error:
            return str(error)
        except BotoCoreError:
            return None  # the endpoint may be back before the visibility ends: the next beat tries again
        self.beats += 1
        return None
