"""Tasks and events: what a worker hands to a step, and what it says of each delivery."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from labkit.errors import LabError
from labkit.state.idempotency import Claim
from labkit.work.heartbeat import Heartbeat
from labkit.work.queues import Message

Kind = Literal["done", "replayed", "busy", "failed", "dead", "lost", "released", "undeleted", "poll_failed"]


class WorkerError(LabError):
    """A worker cannot run as asked, or a hook of it broke; the sentence says what."""


class Poison(LabError):
    """Raised by a step: this message can never succeed. It goes to the dead-letter queue now, not after more tries."""


class Stopped(LabError):
    """Raised by :meth:`Task.check` when the worker was told to stop and its grace is over."""


@dataclass(frozen=True)
class Event:
    """What became of one delivery, for counters, logs and traces; ``seconds`` since the receive.

    =============== ==============================================================================
    ``done``        the step ran, its result stands, the message is deleted
    ``replayed``    the same with a result that was recorded before: the step did not run
    ``busy``        another worker is at it; the message comes back when that lease ends
    ``failed``      the message comes back
    ``dead``        the message is in the dead-letter queue, with ``error`` as its reason
    ``lost``        not known to be held any more, and perhaps another worker's: this one leaves it alone
    ``released``    given back because the worker stops, or because its FIFO group must wait
    ``undeleted``   done, but the delete did not come through: a replay will follow
    ``poll_failed`` no delivery: the queue did not answer
    =============== ==============================================================================
    """

    kind: Kind
    message: Message | None = None
    trace_id: str = ""
    seconds: float = 0.0
    error: BaseException | None = None


@dataclass(eq=False)
class Task:
    """What a step is given: the parsed ``body`` (an :class:`~labkit.control.envelope.Envelope` unless told otherwise).

    A step that takes long calls :meth:`check` now and then, and passes :attr:`attempt` on to whatever it writes to.
    """

    message: Message
    received_at: float  # on the monotonic clock
    beat: Heartbeat
    body: Any = None
    trace_id: str = ""
    claim: Claim | None = None
    begun: bool = False  # its turn in its batch has come
    unclaimed: bool = False  # the store did not answer: that is no fault of the message
    abandoned: bool = False  # given back while its step was at work
    span: Any = None  # of whoever looks on

    @property
    def attempt(self) -> int:
        """How often this work has been claimed: grows with every takeover (without a store: how often received)."""
        return self.claim.attempt if self.claim else self.message.receives

    def check(self) -> None:
        """Raise if this step should end: the message or the lease is no longer held, or the worker stops."""
        self.keep_on()
        self.beat.check()
        if self.claim:
            self.claim.check()

    def keep_on(self) -> None:
        """Raise :class:`Stopped` if the message was given back meanwhile."""
        if self.abandoned:
            raise Stopped(f"the worker stops; {self.trace_id} was given back.")

    def ended(self, kind: Kind, error: BaseException | None = None) -> Event:
        """The event that says how this delivery ended."""
        return Event(kind, self.message, self.trace_id, time.monotonic() - self.received_at, error)


class Observer(Protocol):
    """Who looks on at each delivery, such as :class:`labkit.ops.spans.deliveries.Deliveries`.

    All of it is called from the thread that handles the delivery, and must neither raise nor wait.
    """

    def received(self, tasks: Sequence[Task], began: int) -> None:
        """A receive that began at ``began`` (nanoseconds since the epoch) has brought these."""

    def begins(self, task: Task) -> None:
        """Its turn has come."""

    def parsed(self, task: Task) -> None:
        """It has a body and a name."""

    def ends(self, task: Task, event: Event | None) -> None:
        """It is over; without an event when it was given back meanwhile."""

    def over(self, tasks: Sequence[Task]) -> None:
        """So are all that came with it."""
