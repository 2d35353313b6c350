"""The messages of one queue: stored, in flight, deleted, expired, moved to a dead-letter queue.

Pure: no emulator, no sleeping, the clock is given. What AWS does and where we know it from:

* *Receipt handles, standard queue.* Deleting with the newest handle deletes, also after the visibility timeout as long
  as nobody has received the message again (recorded). With a superseded handle the call succeeds, but the message stays
  (API reference: "might not be deleted"). Deleting twice succeeds (recorded). A handle of garbage, or of another queue,
  is ``ReceiptHandleIsInvalid``. A handle more than 12 hours old has expired (reported once, boto3 issue 2898).
* *Receipt handles, FIFO queue.* Once the visibility timeout is over, the handle has expired: rejected in DeleteMessage
  (recorded) and in ChangeMessageVisibility (reported, kombu issue 1391).
* *ChangeMessageVisibility, standard queue.* After expiry it succeeds and hides the message again (recorded). It takes a
  superseded handle as well (recorded: the handle of an earlier receive ended the visibility timeout of the later one).
  For a deleted message it is InvalidParameterValue (recorded). The total since the receive is at most 12 hours.
* *MessageNotInflight* is in the service model, but nobody has seen AWS answer it: the recording above shows 200, the
  maintainers of two emulators tried in vain to provoke it on AWS (moto pull request 3586, LocalStack pull request
  9632). So it is never answered here either.
* *Redrive.* On the receive that would exceed maxReceiveCount, the message goes to the dead-letter queue instead: same
  MessageId, the receive count goes on, ``DeadLetterQueueSourceArn`` says where it came from (recorded). A FIFO
  dead-letter queue starts a new retention period, a standard one does not (Developer Guide). If the dead-letter queue
  is gone, the message stays where it is.

MiniStack keeps a list that handlers replace while other threads append to it: a message can be lost. All state here
changes in place, under one lock that all queues share, since a redrive touches two of them.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from parity import sqs_errors as errors
from parity.sqs_attempts import Attempts, Received
from parity.sqs_handles import Receipt, check_change, check_delete, decode, encode
from parity.sqs_order import (
    BACK_OF_QUEUE,
    DELAYED,
    GONE,
    IN_FLIGHT,
    NEW,
    READY,
    FifoOrder,
    LazyHeap,
    Message,
    StandardOrder,
)

LOCK = threading.RLock()


@dataclass(frozen=True)
class DeadLetter:
    """Where a message goes that has been received ``max_receives`` times."""

    store: MessageStore
    max_receives: int


def _received(batch: Sequence[dict[str, Any]]) -> list[Received]:
    return [Received(m["id"], m["receipt_handle"], m["visible_at"]) for m in batch]


class MessageStore:
    def __init__(self, arn: str, *, fifo: bool = False, clock: Callable[[], float] = time.time) -> None:
        self.arn = arn
        self.fifo = fifo
        self.retention = 345_600.0
        self.closed = False
        self.observe: Callable[[str, float], None] = lambda event, value: None
        self._clock = clock
        self._order: StandardOrder | FifoOrder = FifoOrder() if fifo else StandardOrder()
        self._messages: dict[str, Message] = {}
        self._counts: Counter[str] = Counter()
        self._waiting = LazyHeap("waiting", (IN_FLIGHT, DELAYED))  # by the moment at which they become visible
        self._ageing = LazyHeap("ageing", (READY, IN_FLIGHT, DELAYED))  # by the moment from which retention counts
        self._attempts = Attempts()
        self._waiters: list[Callable[[], None]] = []

    # -- looking ---------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._messages)

    def __iter__(self) -> Iterator[Message]:
        with LOCK:
            return iter(list(self._messages.values()))

    def counts(self) -> tuple[int, int, int]:
        """How many messages are visible, in flight, delayed."""
        with LOCK:
            self.advance()
            return self._counts[READY], self._counts[IN_FLIGHT], self._counts[DELAYED]

    def oldest(self) -> float | None:
        """Since when the oldest message waits (epoch seconds), poison pills of a standard queue left out."""
        with LOCK:
            self.advance()
            return min(
                (
                    m.get("moved_at", m["enqueued_at"])
                    for m in self._messages.values()
                    if self.fifo or m.receives_here < BACK_OF_QUEUE
                ),
                default=None,
            )

    def groups_in_flight(self) -> int:
        with LOCK:
            return len({m.get("group_id") for m in self._messages.values() if m.state == IN_FLIGHT})

    def next_change(self) -> float | None:
        """When the next message becomes visible by itself (epoch seconds)."""
        with LOCK:
            message = self._waiting.peek()
            return None if message is None else float(message["visible_at"])

    def on_change(self, waiter: Callable[[], None]) -> None:
        """Call ``waiter`` once, at the next change that a receive might be waiting for."""
        with LOCK:
            self._waiters.append(waiter)

    def forget(self, waiter: Callable[[], None]) -> None:
        with LOCK:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    # -- the life of a message -------------------------------------------------------------------------------------

    def put(self, record: dict[str, Any], *, wake: bool = True) -> Message:
        """Store a message. ``record`` has at least ``id``, ``body``, ``sent_at``, ``visible_at``, ``receive_count``."""
        with LOCK:
            message = Message(record)
            message.setdefault("enqueued_at", message["sent_at"])
            self._messages[message["id"]] = message
            self._set(message, DELAYED if message["visible_at"] > self._clock() else READY)
            self._ageing.push(message["enqueued_at"], message, len(self._messages))
            if wake:
                self._wake()
            return message

    def receive(self, limit: int, visibility: float, dead_letter: DeadLetter | None = None) -> list[dict[str, Any]]:
        """Receive up to ``limit`` messages. What comes back is a copy: the message may change hands meanwhile."""
        with LOCK:
            now = self.advance()
            found: list[Message] = []
            spent: list[Message] = []
            while len(found) < limit:
                batch = self._order.candidates(limit - len(found), self._counts[IN_FLIGHT], now)
                for message in batch:
                    if dead_letter and message["receive_count"] >= dead_letter.max_receives:
                        self._remove(message, now, wake=False)
                        spent.append(message)
                    else:
                        self._deliver(message, now, visibility)
                        found.append(message)
                if not batch:
                    break
            # Only now does a message become visible again, or go to a dead-letter queue, which may be this very queue:
            # so one receive looks at each message once at most, and ends.
            if not visibility:
                for message in found:
                    self._set(message, READY)
            if dead_letter:
                for message in spent:
                    self._redrive(message, dead_letter.store, now)
            return [dict(message) for message in found]

    def receive_again(self, attempt: str, visibility: float) -> list[dict[str, Any]] | None:
        """The batch of an earlier receive with this ReceiveRequestAttemptId: same messages, same handles, and the
        visibility timeout starts anew. ``None`` when something of it was deleted, changed or expired."""
        with LOCK:
            now = self.advance()
            known = self._attempts.known(attempt, now)
            if known is None:
                return None
            batch = [self._messages.get(received.message_id) for received in known]
            messages = [m for m in batch if m is not None and m.state == IN_FLIGHT]
            if _received(messages) != known:
                return None
            for message in messages:
                self._hide(message, visibility, now)
            self._attempts.replayed(attempt, _received(messages))
            return [dict(message) for message in messages]

    def remember(self, attempt: str, batch: Sequence[dict[str, Any]]) -> None:
        """Let :meth:`receive_again` know what the receive with this ReceiveRequestAttemptId returned."""
        with LOCK:
            self._attempts.remember(attempt, _received(batch), self._clock())

    def delete(self, handle: str) -> bool:
        """Delete by receipt handle. False when the message stays, or is gone already: AWS calls that a success too."""
        with LOCK:
            receipt, now = self._read(handle), self.advance()
            message = self._messages.get(receipt.message_id)
            if message is None:
                return False
            newest, in_flight = message["receive_count"] == receipt.receive, message.state == IN_FLIGHT
            if not check_delete(handle, fifo=self.fifo, newest=newest, in_flight=in_flight, age=now - receipt.at):
                return False
            self._remove(message, now)
            return True

    def change_visibility(self, handle: str, seconds: int) -> None:
        with LOCK:
            receipt, now = self._read(handle), self.advance()
            message = self._messages.get(receipt.message_id)
            if message is None:
                raise errors.not_available(handle)
            newest, age = message["receive_count"] == receipt.receive, now - message["received_at"]
            in_flight = message.state == IN_FLIGHT
            check_change(handle, seconds, fifo=self.fifo, newest=newest, in_flight=in_flight, age=age)
            self._hide(message, seconds, now)
            self._wake()

    def movable(self, since: float) -> list[Message]:
        """Visible messages that came before ``since`` (epoch seconds), oldest first."""
        with LOCK:
            self.advance()
            # In a FIFO queue, nothing may overtake a message of its group that is in flight.
            visible = self._order.candidates(len(self), 0, since) if self.fifo else self._messages.values()
            return sorted(
                (m for m in visible if m.state == READY and m.get("moved_at", m["enqueued_at"]) <= since),
                key=lambda m: (m["enqueued_at"], m.get("seq") or "", m.rank),
            )

    def move(self, message: Message, destination: MessageStore, record: dict[str, Any]) -> bool:
        """Take a visible message out and put ``record`` into ``destination``, in one step. False if it cannot be."""
        with LOCK:
            now = self.advance()
            if self.closed or self._messages.get(message["id"]) is not message or message.state != READY:
                return False
            self._remove(message, now)
            destination.put(record)
            return True

    def clear(self) -> None:
        with LOCK:
            for message in list(self._messages.values()):
                self._remove(message, self._clock())
            self._attempts.clear()

    def close(self) -> None:
        """The queue is deleted: whoever waits for a message shall look again."""
        with LOCK:
            self.closed = True
            self._wake()

    def advance(self) -> float:
        """Bring the queue to the present: show what is due, drop what is too old. Returns the time."""
        now = self._clock()
        while (message := self._waiting.peek()) is not None and message["visible_at"] <= now:
            self._waiting.pop()
            self._set(message, READY)
        while (message := self._ageing.peek()) is not None and message["enqueued_at"] <= now - self.retention:
            self._remove(message, now)
        return now

    # -- steps of it -----------------------------------------------------------------------------------------------

    def _set(self, message: Message, state: str) -> None:
        before, message.state = message.state, state
        if before != NEW:
            self._counts[before] -= 1
        if state != GONE:
            self._counts[state] += 1
        self._order.moved(message, before, self._clock())
        if state in (IN_FLIGHT, DELAYED):
            self._waiting.push(message["visible_at"], message, len(self._messages))

    def _deliver(self, message: Message, now: float, visibility: float) -> None:
        message["receive_count"] += 1
        message["received_at"] = now
        message["visible_at"] = now + visibility
        if message.get("first_receive_at") is None:
            message["first_receive_at"] = now
        message["receipt_handle"] = encode(Receipt(self.arn, message["id"], message["receive_count"], now))
        self._set(message, IN_FLIGHT)

    def _hide(self, message: Message, seconds: float, now: float) -> None:
        """Put a received message out of sight for ``seconds``, or back into sight for 0."""
        message["visible_at"] = now + seconds
        state = IN_FLIGHT if seconds else READY
        if message.state != state:
            self._set(message, state)
        elif seconds:
            self._waiting.push(message["visible_at"], message, len(self._messages))

    def _remove(self, message: Message, now: float, *, wake: bool = True) -> None:
        del self._messages[message["id"]]
        self._set(message, GONE)
        if wake:
            self._wake()

    def _redrive(self, message: Message, target: MessageStore, now: float) -> None:
        moved = {**message, "receipt_handle": None, "visible_at": now, "moved_at": now}
        moved["sys"] = {**message.get("sys", {}), "DeadLetterQueueSourceArn": self.arn}
        moved["received_elsewhere"] = message["receive_count"]
        if target.fifo:
            moved["enqueued_at"] = now
            moved["dedup_id"] = message["id"]  # so that deduplication cannot swallow it
        # A queue that is its own dead-letter queue has got nothing that its pollers could receive.
        target.put(moved, wake=target is not self)

    def _read(self, handle: str) -> Receipt:
        receipt = decode(handle)
        if receipt is None or receipt.queue_arn != self.arn:
            raise errors.illegal_handle(handle)
        return receipt

    def _wake(self) -> None:
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            waiter()
