"""One message's life on a standard queue, on a clock of its own: received, hidden, worked on, deleted, or not.

A receive does not remove a message, it hides it for the visibility timeout. Everything else follows from that:

- :class:`Message` is the queue's side: what each call does at a given second. Time is an argument of every call.
- :func:`live` is the workers' side: a heap of what happens next, read in one sitting.

What the queue does (SQS API reference, ReceiveMessage, DeleteMessage, ChangeMessageVisibility):

- Each receive gives a new receipt handle. A delete with an older handle succeeds and removes nothing; the newest one
  removes the message even when its timeout has run out.
- A changed visibility counts from the call and is forgotten by the next receive. It reaches no further than
  ``sqs.visibility.total_max`` (12 h) from the receive: a call that asks for more fails and changes nothing. A call that
  comes too late does *not* fail, not even with an older handle (recorded on AWS): nobody tells a worker that it has
  lost its message, so a worker has to watch its own clock.
- The receive that would exceed the max receive count moves the message to the dead-letter queue instead.
- Retention counts from the send, and takes the message away whether it is hidden or not.
"""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from labkit.models._input import ModelError, limit, number, whole

Outcome = Literal["working", "deleted", "crashed", "late delete", "gone"]
Ended = Literal["deleted", "dead-lettered", "expired"]
_MOST = 100_000  # deliveries: a bound on the loop, not a limit of AWS


@dataclass(frozen=True)
class Heartbeat:
    """A worker's promise: every ``interval`` seconds hide the message for ``extension`` seconds more, from then on."""

    interval: float
    extension: float

    def __post_init__(self) -> None:
        number("interval", self.interval, low=1e-3, unit="s")
        number("extension", self.extension, high=limit("sqs.visibility.max"), unit="s")


@dataclass(frozen=True)
class Delivery:
    """One receive and what became of it. Times are seconds since the first receive.

    ``visible_again_at``: when its visibility timeout (heartbeats included) ran out, None if the message had gone
    before. ``refused``: heartbeats that SQS refused, or that came when the worker's own time was over.
    ``finished_at``: when the worker came to the end of the step, None if it crashed. ``outcome``:

    - ``deleted``: its delete removed the message
    - ``crashed``: the worker died at ``crashed_at``
    - ``late delete``: finished, but a newer receive holds the message: the delete removed nothing
    - ``gone``: finished when the message had already been dead-lettered, deleted or expired
    """

    number: int
    worker: int
    received_at: float
    visible_again_at: float | None = None
    finished_at: float | None = None
    outcome: Outcome = "working"
    crashed_at: float | None = None
    heartbeats: int = 0
    refused: int = 0

    @property
    def overran(self) -> bool:
        """Was the worker still running when the message reappeared?"""
        again, stopped = self.visible_again_at, self.crashed_at if self.finished_at is None else self.finished_at
        return again is not None and stopped is not None and again < stopped


@dataclass(frozen=True)
class Life:
    """All deliveries of one message, in order, and how it ended (``ended_at`` seconds after the first receive)."""

    deliveries: tuple[Delivery, ...]
    ended: Ended
    ended_at: float

    @property
    def executions(self) -> int:
        """How often the step was started: one per delivery."""
        return len(self.deliveries)

    @property
    def completions(self) -> int:
        """How often the step ran to its end: side effects happened, and were paid, this often."""
        return sum(d.finished_at is not None for d in self.deliveries)

    def rows(self) -> list[dict[str, object]]:
        """One row per delivery, for a table."""
        keys = ("number", "worker", "received_at", "visible_again_at", "finished_at", "outcome")
        return [{key.replace("_", " "): getattr(d, key) for key in keys} for d in self.deliveries]


class Message:
    """The queue's side of one message. ``now`` is in seconds; a handle is the number of its receive."""

    def __init__(self, visibility: float, max_receive_count: int | None, expires_at: float) -> None:
        self.visibility = number("visibility", visibility, high=limit("sqs.visibility.max"), unit="s")
        if max_receive_count is not None:
            whole("max_receive_count", max_receive_count, high=limit("sqs.redrive.max_receives.max"))
        self.max_receive_count = max_receive_count
        self.expires_at = expires_at
        self.handle = 0
        self.received_at = self.hidden_until = 0.0
        self.ended: Ended | None = None
        self.ended_at = 0.0

    def receive(self, now: float) -> int | None:
        """Hide the message and give its new handle; None when there is none to give."""
        if self.gone(now) or now < self.hidden_until:
            return None
        if self.max_receive_count is not None and self.handle >= self.max_receive_count:
            self.ended, self.ended_at = "dead-lettered", now
            return None
        self.handle += 1
        self.received_at, self.hidden_until = now, now + self.visibility
        return self.handle

    def extend(self, now: float, handle: int, seconds: float) -> bool:
        """Hide it until ``seconds`` from now; False when the call fails: the message is gone, or over the cap."""
        if self.gone(now) or not 1 <= handle <= self.handle:
            return False
        if now + seconds > self.received_at + limit("sqs.visibility.total_max"):
            return False
        self.hidden_until = now + seconds
        return True

    def delete(self, now: float, handle: int) -> bool:
        """Remove it; False when nothing was removed. AWS answers both with success."""
        if self.gone(now) or handle != self.handle:
            return False
        self.ended, self.ended_at = "deleted", now
        return True

    def gone(self, now: float) -> bool:
        """Has it left the queue by ``now``: deleted, dead-lettered or expired?"""
        if self.ended is None and now >= self.expires_at:
            self.ended, self.ended_at = "expired", self.expires_at
        return self.ended is not None


# What happens first when several things fall on the same second: a worker's own calls, then the poll for more work.
_FINISH, _BEAT, _CRASH, _POLL = range(4)


def live(
    *,
    visibility: float,
    step: float | Sequence[float],
    crash: float | Mapping[int, float] | None = None,
    heartbeat: Heartbeat | None = None,
    max_receive_count: int | None = None,
    retention: float | None = None,
    polling_delay: float = 0.0,
    waited: float = 0.0,
) -> Life:
    """The life of one message whose first receive is at second 0. All times in seconds.

    ``step``: how long a worker needs; a list gives one per delivery, the last for all further ones. ``crash``: how
    long after its receive a worker dies, by delivery number; a plain number kills every one. ``polling_delay``: from
    reappearing to the next receive. ``waited``: the message's age at the first receive. ``retention``: by default the
    queue's (``sqs.retention.default``). ``max_receive_count`` None: no redrive policy. A worker that is free takes the
    next receive; else there is always another. Raises :class:`ModelError` for a value that a queue refuses, or when
    the life has more than 100,000 deliveries.
    """
    steps = [number("step", s, unit="s") for s in ([step] if isinstance(step, (int, float)) else step)]
    deaths, always = (crash, None) if isinstance(crash, Mapping) else ({}, crash)
    for after in [*deaths.values(), 0.0 if always is None else always]:
        number("crash", after, unit="s")
    number("polling_delay", polling_delay, unit="s")
    kept = limit("sqs.retention.default") if retention is None else retention
    number("retention", kept, low=limit("sqs.retention.min"), high=limit("sqs.retention.max"), unit="s")
    if not steps or number("waited", waited, unit="s") >= kept:
        raise ModelError(f"step needs a time, and waited ({waited:g} s) must be under the retention ({kept:g} s).")

    message = Message(visibility, max_receive_count, expires_at=kept - waited)
    log: list[Delivery] = []
    ends: list[float] = []  # when each delivery's worker stops, by finishing or by dying
    holds: list[float] = []  # until when each delivery's worker knows that it holds the message
    idle: list[int] = []
    hired = 0
    todo: list[tuple[float, int, int]] = [(0.0, _POLL, 0)]

    def note(handle: int, **changes: Any) -> None:
        log[handle - 1] = replace(log[handle - 1], **changes)

    while todo:
        now, what, handle = heapq.heappop(todo)
        again = message.hidden_until
        passed = again < now or (again == now and what == _POLL)
        if log and log[-1].visible_again_at is None and passed and not message.gone(again):
            note(message.handle, visible_again_at=again)

        if (
            what == _POLL and now < message.hidden_until and not message.gone(now)
        ):  # extended meanwhile: ask again later
            heapq.heappush(todo, (message.hidden_until + polling_delay, _POLL, 0))
        elif what == _POLL and (got := message.receive(now)) is not None:
            if got > _MOST:
                raise ModelError(f"more than {_MOST} deliveries: set max_receive_count or a longer visibility.")
            if not idle:
                hired += 1
                heapq.heappush(idle, hired)
            log.append(Delivery(got, heapq.heappop(idle), now))
            needs = steps[min(got, len(steps)) - 1]
            dies = deaths.get(got, always)
            what = _FINISH if dies is None or dies >= needs else _CRASH
            ends.append(now + (needs if dies is None else min(dies, needs)))
            holds.append(message.hidden_until)
            heapq.heappush(todo, (ends[-1], what, got))
            if heartbeat is not None:
                heapq.heappush(todo, (now + heartbeat.interval, _BEAT, got))
            heapq.heappush(todo, (message.hidden_until + polling_delay, _POLL, 0))
        elif what == _BEAT and heartbeat is not None and now < ends[handle - 1]:
            held = now < holds[handle - 1] and message.extend(now, handle, heartbeat.extension)
            holds[handle - 1] = now + heartbeat.extension if held else holds[handle - 1]
            mine = log[handle - 1]
            note(handle, heartbeats=mine.heartbeats + held, refused=mine.refused + (not held))
            heapq.heappush(todo, (now + heartbeat.interval, _BEAT, handle))
        elif what == _CRASH:
            note(handle, outcome="crashed", crashed_at=now)
        elif what == _FINISH:
            heapq.heappush(idle, log[handle - 1].worker)
            outcome = "deleted" if message.delete(now, handle) else "gone" if message.ended else "late delete"
            note(handle, outcome=outcome, finished_at=now)

    assert message.ended is not None  # the poll goes on until it is
    return Life(tuple(log), message.ended, message.ended_at)
