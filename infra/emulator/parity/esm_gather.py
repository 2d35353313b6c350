"""How messages become batches: by number, by time, by size.

**On AWS** (Lambda Developer Guide, "Batching behavior"; API reference CreateEventSourceMapping) a function is invoked
as soon as one of three things happens: the batch has ``BatchSize`` messages (at most 10,000 from a standard queue, 10
from a FIFO queue), the batching window is over (up to 300 seconds), or the event has reached 6 MB. Without a window it
is invoked with what one receive gave. The queue's visibility timeout starts with the receive, so it has to cover the
window as well.

On AWS each of five or more pollers gathers a batch of its own, and on a quiet queue a window may last up to 20 seconds
whatever was set. Here one batch is gathered at a time, and its window is counted from the receive of its first message.
Not documented: what becomes of a message that no longer fits, and of one whose visibility timeout ends while it waits
for the batch. Ours: the first opens the next batch, with the receive that it had; the second is in the queue again, so
the batch lets go of it unless it was received once more, with a receive count that says so.

**MiniStack** receives up to ten messages once a second and ignores the window.

**Here** :class:`Gatherer` holds what has been received and says when a batch is complete. It never loses a message,
never has one twice, and keeps the three limits."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from parity.esm_records import MAX_EVENT, Record, event_size

MAX_RECEIVE = 10  # messages of one ReceiveMessage


@dataclass(frozen=True)
class Held:
    """A message that the mapping has received and not yet deleted or let go."""

    id: str
    handle: str  # of the receive that counts
    record: Record
    size: int  # bytes in the event
    since: float  # epoch seconds: when it was received
    until: float  # epoch seconds: when it becomes visible again


Batch = list[Held]


class Gatherer:
    def __init__(self, batch_size: int = 10, window: float = 0, *, max_event: int = MAX_EVENT) -> None:
        self.batch_size = batch_size
        self.window = window
        self._max_event = max_event
        self._held: dict[str, Held] = {}
        self._bytes = 0
        self._earliest = math.inf  # no held message becomes visible before this

    def __len__(self) -> int:
        return len(self._held)

    def room(self) -> int:
        """How many messages may be received now; none while a batch is complete."""
        return max(min(MAX_RECEIVE, self.batch_size - len(self._held)), 0) if self._all_fit() else 0

    def add(self, held: Held) -> None:
        known = self._held.get(held.id)
        if known is not None:  # it became visible while it waited, and was received once more: the window goes on
            held = replace(held, since=known.since)
            self._bytes -= known.size
        self._held[held.id] = held
        self._bytes += held.size
        self._earliest = min(self._earliest, held.until)

    def due(self) -> float | None:
        """When the batching window ends (epoch seconds); None when nothing is held."""
        first = next(iter(self._held.values()), None)
        return None if first is None else first.since + self.window

    def take(self, now: float) -> Batch | None:
        """The next batch, when it is complete at the moment ``now``."""
        self._let_go(now)
        due = self.due()
        if due is None:
            return None
        fits = self._all_fit()
        if fits and len(self._held) < self.batch_size and now < due:
            return None
        batch = list(self._held.values()) if fits else self._fitting()
        for held in batch:
            del self._held[held.id]
            self._bytes -= held.size
        return batch

    def _let_go(self, now: float) -> None:
        """Drop what is visible in the queue again."""
        if now < self._earliest:
            return
        self._held = {name: held for name, held in self._held.items() if held.until > now}
        self._bytes = sum(held.size for held in self._held.values())
        self._earliest = min((held.until for held in self._held.values()), default=math.inf)

    def _all_fit(self) -> bool:
        """Whether one batch takes all that is held."""
        few = len(self._held) <= self.batch_size and event_size(self._bytes) <= self._max_event
        return few or len(self._held) == 1

    def _fitting(self) -> Batch:
        """As many of the oldest as one batch takes, and one at least."""
        batch: Batch = []
        size = 0
        for held in self._held.values():
            size += held.size
            if batch and (len(batch) == self.batch_size or event_size(size) > self._max_event):
                break
            batch.append(held)
        return batch
