"""Holding: messages in one's hands for as long as a look takes, in constant memory, and given back after it.

A receive hides a message for a while; to give it back before that needs its receipt handle, a few hundred characters.
100,000 of them would be tens of megabytes, so they go to a temporary file without a name: memory stays flat however
many messages are held, and when the process dies the file goes with it.

Visibility is renewed by a heartbeat, all messages in turn. Whoever kills the process thus hides nothing for longer than
``hold`` seconds: the heartbeat ends, and SQS shows the messages again by itself. Where there are so many messages that
renewing all of them takes longer than a twelfth of that, they are hidden for twelve times what it takes.
"""

from __future__ import annotations

import math
import re
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType

from labkit.facts import facts
from labkit.ops.triage.draining import Batch, Drain
from labkit.ops.triage.letters import TriageError
from labkit.ops.triage.receipts import Receipts, batched, change
from labkit.work.queues import Queue

HOLD = 120  # seconds: for so long a killed look hides what it held
_GONE = re.compile("NotInflight|ReceiptHandle|InvalidParameterValue|NonExistentQueue|QueueDoesNotExist")

_ROOM = 12  # times what a renewal of all takes: for so long it hides, so that the next one is in time on a slow day
Troubles = dict[str, int]  # the code that SQS gave, and for how many messages


class Hold:
    """Messages of ``queue``, hidden for as long as the ``with`` block lasts, and shown again after it.

    ``hold``: seconds for which each receive hides, renewed when a third of it is over. ``threads``: calls at a time.
    :meth:`receive` takes messages; what is to be given back goes to :meth:`keep`. What is decided (sent on and deleted)
    is not kept. ``handles``: where the handles are, if not in a file of its own.

    Raises :class:`TriageError` after the block if something stays hidden, or if the renewals did not come through and
    others may have taken the same messages; where the block raises, its own error with that as a note.
    """

    def __init__(
        self,
        queue: Queue,
        *,
        hold: int = HOLD,
        threads: int = 8,
        handles: Callable[[], Iterable[str]] | None = None,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], object] | None = None,
    ) -> None:
        longest = int(facts("sqs.visibility.max"))
        if not 1 <= threads <= 64 or not 1 <= hold <= longest:
            raise TriageError(f"a look has 1 to 64 threads and holds for 1 to {longest} s; got {threads}, {hold}.")
        self.queue, self.hold, self.threads = queue, hold, threads
        self.capped = False  # SQS hides no more messages of this queue
        self.renewals = 0
        self.kept = 0  # messages to be given back
        self._receipts = None if handles else Receipts()
        self._handles = handles or self._kept
        self._clock = clock
        self._guard = threading.Lock()
        self._end = threading.Event()
        self._pause = pause or self._end.wait
        self._beat = threading.Thread(target=self._renew, name="labkit-triage-hold", daemon=True)

    def __enter__(self) -> Hold:
        self._began = self._clock()
        self._safe_until = self._began + self.hold
        self._soonest = math.inf  # the end of what was kept since the last renewal began
        self._busy = self._each = 0.0
        self._beat.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._end.set()
        try:
            self._beat.join()
            lost = not self.safe
            troubles = self._change(0)
        finally:
            if self._receipts:
                self._receipts.close()
        says = ""
        if lost:
            says = (
                f"{self.queue.name} could not be held: nothing renewed the visibility for {self.hold} s, and others "
                "may have taken the same messages. None is lost: look again, and hold them longer."
            )
            troubles = {}
        elif self._receipts:  # nobody decides about them here: what is gone was deleted elsewhere, or has expired
            troubles = {code: count for code, count in troubles.items() if not _GONE.search(code)}
        if hidden := sum(troubles.values()):
            what = next(iter(troubles))
            says = f"{hidden} messages of {self.queue.name} stay hidden for {self.hold} s, none is lost: {what}"
        if says and error is None:
            raise TriageError(says)
        if says and error is not None:
            error.add_note(says)

    @property
    def safe(self) -> bool:
        """Whether everything is known to be hidden at this moment: nobody else has it, nothing is taken twice."""
        return self._clock() < self._safe_until

    def check(self, batch: Batch | None = None, margin: float = 0.0) -> None:
        """Raise :class:`TriageError` unless everything, and ``batch``, stays hidden for ``margin`` seconds more."""
        if self._clock() + margin >= (self._safe_until if batch is None else min(self._safe_until, batch.until)):
            raise TriageError(
                f"{self.queue.name} is no longer held: nothing renewed the visibility in time. Hold them longer."
            )

    def receive(self, limit: int = 10, *, sure: bool = True) -> Batch:
        """Up to ``limit`` messages that are visible. They are not kept yet.

        Without ``sure`` an empty batch says little: a short poll asks only some of the servers. With it there was none:
        a long poll, which takes a second to find nothing, asks all of them.
        """
        from botocore.exceptions import ClientError

        self.check()
        batch = Batch()
        try:
            for wait in (0, 1) if sure else (0,):
                began, span = self._clock(), self._span()
                if found := self.queue.receive(limit, wait=wait, visibility=span):
                    batch.extend(found)
                    batch.until = began + span
                    break
        except ClientError as error:
            if not error.response["Error"]["Code"].endswith("OverLimit"):
                raise
            self.capped = True
        return batch

    def keep(self, batch: Batch) -> None:
        """Give ``batch`` back at the end, and renew it until then. What is visible again is not ours to keep."""
        if not batch or self._clock() >= batch.until:
            return
        with self._guard:
            if self._receipts:
                self._receipts.add(batch)
            self.kept += len(batch)
            self._busy = self._clock() - self._began
            self._soonest = min(self._soonest, batch.until)
            self._safe_until = min(self._safe_until, batch.until)

    def drain(
        self,
        decide: Callable[[Batch], object],
        *,
        at_most: int | None = None,
        together: bool = False,
        enough: Callable[[], bool] = lambda: False,
    ) -> None:
        """Receive until nothing is visible, ``at_most`` are taken or ``enough()``, in all threads.

        ``decide`` is called with each batch, one call at a time, or with ``together`` in all threads at once. What it
        takes off the batch is decided; what is left is kept. An error, or Ctrl-C, ends the receiving; what has been
        received by then is given back with the rest.
        """
        Drain(self, decide, at_most=at_most, together=together, enough=enough).run()

    def _kept(self) -> Iterable[str]:
        return self._receipts or ()

    def _renew(self) -> None:
        """Renew in time: when two thirds of ``hold`` are left, or three times what a renewal of all takes."""
        longest = float(facts("sqs.visibility.total_max"))
        while not self._end.is_set():
            self._pause(self.hold / 12)
            takes = self._takes()
            if self._end.is_set() or self._safe_until - self._clock() > max(2 * self.hold / 3, 3 * takes):
                continue
            with self._guard:
                began, self._soonest = self._clock(), math.inf
                count = self.kept
            seconds = int(min(self._span(), longest - (began - self._began)))
            if seconds < 1:
                return
            troubles = self._change(seconds, stop=self._end)
            if self._end.is_set() or not self.safe:
                return
            if all(_GONE.search(code) for code in troubles):  # deleted meanwhile, by whoever decided: not ours to hold
                with self._guard:
                    self._safe_until = min(began + seconds, self._soonest)
                    self._each = (self._clock() - began) / max(1, count)
                self.renewals += 1

    def _takes(self) -> float:
        """Seconds that a renewal of all takes: as long for each as the last one, or twice what receiving took."""
        return self._each * self.kept if self.renewals else 2 * self._busy

    def _span(self) -> int:
        """Seconds for which a receive and a renewal hide."""
        return int(min(max(self.hold, _ROOM * self._takes()), int(facts("sqs.visibility.max"))))

    def _change(self, seconds: int, stop: threading.Event | None = None) -> Troubles:
        """Set the visibility of everything that is held; returns what SQS said of those that it was not set for.

        Never with a handle whose time may be over: SQS would take it, and end or renew the hold of whoever has received
        the message since. Such a message comes back by itself.
        """
        troubles: Troubles = {}

        def one(handles: list[str]) -> dict[int, tuple[str, str]]:
            if not self.safe or (stop is not None and stop.is_set()):
                return {}
            return change(self.queue, handles, seconds)

        tens = batched(self._handles(), int(facts("sqs.batch.entries")))
        with ThreadPoolExecutor(self.threads, thread_name_prefix="labkit-triage") as pool:
            for some in batched(tens, 8 * self.threads):  # not all at once: a pool's queue is memory, too
                for failed in pool.map(one, some):
                    for code, _ in failed.values():
                        troubles[code] = troubles.get(code, 0) + 1
        return troubles
