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
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType

from labkit.errors import LabError
from labkit.facts import facts
from labkit.state.records import said
from labkit.work.entries import passing
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
    that a newer receive has superseded (recorded on AWS), and tells nobody. A call without an answer, a fault of AWS's
    and a throttle are no refusal: the next beat tries again.

    ``also`` are further things to keep alive with each beat, after the message: the lease of a claim, a task token. One
    that raises, or is refused by AWS, ends the beat as a refused extension does; no answer, a throttle and an
    ``OSError`` are tried again. ``held`` says for how many seconds the message is held already (it has just been
    received); the first beat then is not made at once. With ``driven`` there is no thread: somebody calls :meth:`beat`
    when it is :meth:`due`, each time in a thread of its own, and what hangs among ``also`` then holds up itself alone.

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
        self._longest = float(facts("sqs.visibility.total_max"))
        if not isinstance(extend, int) or extend < 1:
            raise LabError(f"a heartbeat extends by whole seconds, 1 or more; extend is {extend!r}.")
        if not 0 < every <= extend / 2:
            raise LabError(
                f"a heartbeat every {every} s is too seldom for {extend} s of visibility: half of it at most."
            )
        if limit is not None and not 0 < limit <= self._longest:
            raise LabError(f"a heartbeat can hold a message for {self._longest:.0f} s at most; limit is {limit}.")
        self.beats = 0
        self.lost: str | None = None
        self._queue, self._message = queue, message
        self._every, self._extend = every, extend
        self._says = self._limit = self._longest if limit is None else limit
        self._held = held
        self._also = [_Kept(each) for each in also]
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
        elif self._at_it.acquire(timeout=10.0):  # an extension under way would hide the message once more
            self._at_it.release()

    def end(self) -> None:
        """No more beats from now on; returns at once."""
        self._end.set()

    def restart(self, limit: float, also: Iterable[Callable[[], object]]) -> None:
        """From now on hold for ``limit`` seconds, and keep ``also`` alive, too: a message's turn in its batch has come.

        SQS's own limit since the receive stays.
        """
        self._also = [_Kept(each) for each in also]
        self._says, self._limit = limit, min(self._longest, self._clock() - self._started + limit)

    @property
    def overdue(self) -> float:
        """For how many seconds the limit has been over; negative before."""
        return self._clock() - self._started - self._limit

    @property
    def holds(self) -> bool:
        """Whether the message is known to be held at this moment."""
        return self.lost is None and self._clock() < self._held_until

    def check(self) -> None:
        """Raise :class:`LeaseLost` if the message is not known to be held at this moment."""
        if not self.holds:
            why = self.lost or "no extension has come through in time"
            raise LeaseLost(f"message {self._message.id} is no longer held: {why}.")

    def due(self) -> bool:
        """Whether it is time for :meth:`beat`."""
        return self.lost is None and self._clock() >= self._next and not self._end.is_set()

    def beat(self) -> None:
        """Make one beat now. One that is under way already is enough."""
        if not self._at_it.acquire(blocking=False):
            return
        try:
            if self._over():
                return
            self.lost = self._extended() or self.lost
        finally:
            self._at_it.release()
        for kept in self._also:
            if self._over():
                return
            self.lost = kept.alive() or self.lost

    def _over(self) -> bool:
        return self.lost is not None or self._end.is_set()

    def _run(self) -> None:
        while self.lost is None and not self._end.wait(self._every):
            self.beat()

    def _extended(self) -> str | None:
        """One extension; returns why the message is no longer held, or None while it is."""
        now = self._clock()
        self._next = now + self._every
        left = self._limit - (now - self._started)
        if left <= 0:
            return f"the limit of {self._says:g} s was reached"
        if (self.beats or self._held is not None) and now >= self._held_until:
            return "the last extension ran out before the next one came through"
        # Never beyond the limit: the message must be free for others when the bound is reached.
        seconds = max(1, min(self._extend, round(left)))

        def extend() -> None:
            self._queue.hide(self._message, seconds)
            self._held_until = now + seconds  # from before the call: SQS counts from a moment after it
            self.beats += 1

        return _refusal(extend)


class _Kept:
    """Something kept alive beside the message."""

    def __init__(self, call: Callable[[], object]) -> None:
        self._call = call
        self._at_it = threading.Lock()

    def alive(self) -> str | None:
        """Keep it alive, unless that is still under way; returns why it could not be."""
        if not self._at_it.acquire(blocking=False):
            return None
        try:
            return _refusal(self._call)
        finally:
            self._at_it.release()


def _refusal(call: Callable[[], object]) -> str | None:
    """Why ``call`` is refused for good; None when it succeeds, or may the next time."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        call()
    except (BotoCoreError, ClientError) as error:
        if passing(error):
            return None  # the endpoint may be back before the visibility ends
        return str(error.response["Error"].get("Message", error)) if isinstance(error, ClientError) else str(error)
    except OSError:
        return None
    except LabError as error:
        return str(error)
    except Exception as error:  # noqa: BLE001 - a thread has nobody to raise to: check() raises it
        return f"{type(error).__name__}: {said(error)}"
    return None
