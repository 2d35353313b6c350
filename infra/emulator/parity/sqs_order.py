"""Which message is next: the order of a standard queue and that of a FIFO queue.

**On AWS**

* *Standard queue*: about the order of sending. A message that was received three times or more and not deleted goes to
  the back of the queue (Amazon SQS Developer Guide, "Available CloudWatch metrics", ``ApproximateAgeOfOldestMessage``).
  Tenants: see :mod:`parity.sqs_fair`.
* *FIFO queue*: strict order within a message group. A receive takes as many messages of one group as it can, then goes
  on to the next group; a message that is not visible holds back those behind it in its group, not those before it, and
  a group that was received from goes to the end of the line (recorded on AWS: messages of a group in one batch, the
  group's later messages blocked, visibility of one message changed in the middle of a group).

**MiniStack** scans the whole list on each receive, lets a message that failed a hundred times stay in front, and hands
out the first and the third message of a group while the second is in flight.

**Here** each order is a small structure that finds the next message in O(log n), whatever the backlog.
"""

from __future__ import annotations

import heapq
from collections import Counter, OrderedDict
from itertools import count, islice
from typing import Any

from parity.sqs_fair import Tenants

READY, IN_FLIGHT, DELAYED, GONE, NEW = "ready", "in flight", "delayed", "gone", "new"
BACK_OF_QUEUE = 3  # receives in this queue without deletion


class Message(dict[str, Any]):
    """One message: the emulator's record of it as a dict, and where it stands in its queue as attributes."""

    __slots__ = ("entries", "rank", "state")

    def __init__(self, record: dict[str, Any]) -> None:
        super().__init__(record)
        self.state = NEW
        self.rank = 0  # place in the line of a standard queue
        self.entries: dict[str, int] = {}  # of each kind of heap, the entry that counts

    @property
    def receives_here(self) -> int:
        """Receives since the message came to this queue: a dead-letter queue goes on with the count of the source."""
        return int(self["receive_count"]) - int(self.get("received_elsewhere", 0))


class LazyHeap:
    """A heap of messages from which nothing has to be removed: an entry counts only while it is the newest one of its
    message in heaps of this ``kind``, and while the message's state is one of ``states``."""

    _tickets = count(1)

    def __init__(self, kind: str, states: tuple[str, ...]) -> None:
        self._kind = kind
        self._states = states
        self._heap: list[tuple[float, int, Message]] = []

    def _counts(self, entry: tuple[float, int, Message]) -> bool:
        _, ticket, message = entry
        return message.state in self._states and message.entries.get(self._kind) == ticket

    def push(self, key: float, message: Message, live: int) -> None:
        """Add ``message``; ``live`` is how many messages there are, so that leftovers can be swept out in time."""
        ticket = message.entries[self._kind] = next(self._tickets)
        heapq.heappush(self._heap, (key, ticket, message))
        if len(self._heap) > 64 and len(self._heap) > 3 * live:
            self._heap = [entry for entry in self._heap if self._counts(entry)]
            heapq.heapify(self._heap)

    def peek(self) -> Message | None:
        while self._heap:
            if self._counts(self._heap[0]):
                return self._heap[0][2]
            heapq.heappop(self._heap)
        return None

    def pop(self) -> Message | None:
        message = self.peek()
        if message is not None:
            heapq.heappop(self._heap)
        return message


class StandardOrder:
    def __init__(self) -> None:
        self.tenants = Tenants()
        self._ranks = count(1)
        self._live = 0
        self._ready = self._heap()
        self._held: dict[str, LazyHeap] = {}  # of noisy tenants

    @staticmethod
    def _heap() -> LazyHeap:
        return LazyHeap("ready", (READY,))

    def moved(self, message: Message, before: str, now: float) -> None:
        """The state of ``message`` has changed from ``before``."""
        if before == NEW:
            self._live += 1
            message.rank = next(self._ranks)
        if message.state == GONE:
            self._live -= 1
        if message.state == READY:
            if message.receives_here >= BACK_OF_QUEUE:
                message.rank = next(self._ranks)
            self._ready.push(message.rank, message, self._live)
        tenant = message.get("group_id")
        if tenant:
            if before == NEW:
                self.tenants.sent(tenant, now)
            waits = (READY, DELAYED)
            self.tenants.moved(
                tenant,
                in_flight=(message.state == IN_FLIGHT) - (before == IN_FLIGHT),
                backlog=(message.state in waits) - (before in waits),
            )

    def candidates(self, limit: int, in_flight: int, now: float) -> list[Message]:
        """Up to ``limit`` visible messages, the next one first. They must leave the state READY at once."""
        for tenant in self.tenants.judge(in_flight, now):
            held = self._held.pop(tenant, None)
            while held and (message := held.pop()):
                self._ready.push(message.rank, message, self._live)
        found: list[Message] = []
        while len(found) < limit and (message := self._ready.pop()):
            tenant = message.get("group_id")
            if tenant in self.tenants.noisy:
                self._held.setdefault(tenant, self._heap()).push(message.rank, message, self._live)
            else:
                found.append(message)
        taken: Counter[str] = Counter()
        while len(found) < limit and self._held:
            tenant = self.tenants.next_noisy(self._held, taken)
            message = self._held[tenant].pop() if tenant else None
            if message is None:
                self._held.pop(tenant or "", None)
            else:
                found.append(message)
                taken[tenant or ""] += 1
        return found


class FifoOrder:
    def __init__(self) -> None:
        self._groups: dict[str, OrderedDict[str, Message]] = {}
        self._open: OrderedDict[str, None] = OrderedDict()  # groups whose first message is visible

    def moved(self, message: Message, before: str, now: float) -> None:
        """The state of ``message`` has changed from ``before``."""
        name = message.get("group_id") or ""
        if before == NEW:
            self._groups.setdefault(name, OrderedDict())[message["id"]] = message
        if message.state == GONE:
            del self._groups[name][message["id"]]
        group = self._groups[name]
        first = next(iter(group.values()), None)
        if first is None:
            del self._groups[name]
        if first is not None and first.state == READY:
            self._open.setdefault(name, None)
        else:
            self._open.pop(name, None)

    def candidates(self, limit: int, in_flight: int, now: float) -> list[Message]:
        """Up to ``limit`` visible messages, group by group, each group in order up to its first invisible message."""
        found: list[Message] = []
        for name in self._open:
            for message in islice(self._groups[name].values(), limit - len(found)):
                if message.state != READY:
                    break
                found.append(message)
            if len(found) >= limit:
                break
        return found
