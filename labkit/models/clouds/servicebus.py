"""A Service Bus queue: a lock that tells its holder when it is lost, sessions, and a duplicate check at the entrance.

- Peek-lock: a received message is locked, by default for a minute, at most for five; the receiver may renew. Once the
  lock has run out, complete, abandon and renew fail: the work is done, the receiver is told, the message comes again.
- Receive-and-delete: a message counts as consumed when it is sent. A receiver that fails loses it.
- Sessions: a receiver accepts a session and holds all of its messages under one lock, in order, those that arrive later
  too. When that lock runs out, the delivery count of what was delivered goes up; when the receiver closes the session,
  it does not (so a worker that fails, says nothing and closes has made an endless loop).
- The delivery count goes up with an abandon or a lost lock; at the maximum the message is dead-lettered. It is served
  again in its old place; a dead-lettered one lets its session go on.
- Duplicate detection drops a MessageId that came within the window. The send succeeds.
- Time to live: an expired message is dead-lettered where that is switched on, else it is gone. Here a lock protects it.

Sources: Microsoft, Service Bus: message-transfers-locks-settlement, message-sessions, service-bus-dead-letter-queues,
duplicate-detection; .NET reference of QueueProperties and CreateQueueOptions. Not verified: the shortest lock.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from labkit.models._input import ModelError, limit, number, whole
from labkit.models.clouds.broker import Broker
from labkit.models.clouds.vocabulary import NEVER, Answer, Clock, Delivery, Item

__all__ = ["ServiceBus"]


@dataclass
class _Session:
    by: str
    until: float


class ServiceBus(Broker):
    """A queue. Times in seconds; ``dedup_window`` None is no duplicate detection, ``ttl`` None is for ever.

    Raises :class:`~labkit.models._input.ModelError` for what Service Bus refuses.
    """

    own_id = True

    def __init__(
        self, clock: Clock, *, mode: Literal["peek-lock", "receive-and-delete"] = "peek-lock",
        lock: float | None = None, sessions: bool = False, max_delivery_count: int | None = None,
        dedup_window: float | None = None, ttl: float | None = None, dead_letter_expired: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(clock)
        if mode not in ("peek-lock", "receive-and-delete"):
            raise ModelError(f"mode must be 'peek-lock' or 'receive-and-delete'; got {mode!r}.")
        lock = limit("servicebus.lock.default") if lock is None else lock
        self.lock = number("lock", lock, low=1e-3, high=limit("servicebus.lock.max"), unit="s")
        self.settles = mode == "peek-lock"
        self.term = self.lock if self.settles else NEVER
        count = limit("servicebus.max_delivery_count.default") if max_delivery_count is None else max_delivery_count
        self.max_delivery_count = whole("max_delivery_count", count, low=limit("servicebus.max_delivery_count.min"))
        if dedup_window is not None:
            low, high = limit("servicebus.dedup_window.min"), limit("servicebus.dedup_window.max")
            number("dedup_window", dedup_window, low=low, high=high, unit="s")
        self.dedup_window = dedup_window
        self.ttl = NEVER if ttl is None else number("ttl", ttl, low=1e-3, unit="s")
        self.dead_letter_expired = dead_letter_expired
        self.sessions = sessions
        self._held: dict[str, _Session] = {}
        self._names: dict[str, float] = {}

    def publish(self, body: str, *, key: str = "", name: str | None = None) -> str | None:
        if self.sessions and not key:
            raise ModelError("a queue with sessions takes no message without a key (session id).")
        return super().publish(body, key=key, name=name)

    def _repeats(self, name: str | None, key: str, now: float) -> bool:
        if self.dedup_window is None or name is None:
            return False
        if now - self._names.get(name, -NEVER) < self.dedup_window:
            return True
        self._names[name] = now
        return False

    def _prepare(self, item: Item) -> None:
        item.expires_at = item.published_at + self.ttl

    def _pick(self, by: str) -> Iterator[Item]:
        session = self._accept(by) if self.sessions else None
        for item in list(self._live):
            if not item.lease and (not self.sessions or item.key == session):
                yield item

    def _accept(self, by: str) -> str | None:
        """The session that ``by`` holds, or takes now: the one whose oldest message has waited longest."""
        now = self.clock()
        self._held = {key: held for key, held in self._held.items() if held.until > now}
        for key, held in self._held.items():
            if held.by == by:
                return key
        free = next((item.key for item in self._live if item.key not in self._held), None)
        if free is not None:
            self._held[free] = _Session(by, now + self.lock)
        return free

    def _deliver(self, item: Item, by: str) -> Delivery:
        delivery = super()._deliver(item, by)
        if not self.settles:
            self._remove(item)
            self._note("acked", item, self.clock(), delivery, "settled as it was sent")
        elif self.sessions:
            item.until = self._held[item.key].until
        return delivery

    def close(self, by: str) -> None:
        """Give the sessions of ``by`` back, with what was not settled; no delivery count goes up."""
        self.tick()
        for key in [key for key, held in self._held.items() if held.by == by]:
            del self._held[key]
            for item in self._live:
                if item.lease and item.key == key:
                    item.lease, lease = None, item.lease
                    self._note("superseded", item, self.clock(), lease, "session closed")

    def due(self) -> float | None:
        moment = super().due()
        if all(item.lease for item in self._live):
            return moment
        # At the end of a lock its session is free, and its holder, who may have had an empty one, for another.
        ends = [held.until for held in self._held.values() if held.until > self.clock()]
        return min([*ends, NEVER if moment is None else moment]) if ends else moment

    def _ack(self, item: Item, delivery: Delivery) -> Answer:
        if not self._holds(item, delivery):
            return "refused" if self.settles else "ignored"  # lock lost; or nothing to settle
        self._remove(item)
        return "ok"

    def _nack(self, item: Item, delivery: Delivery, why: str) -> Answer:
        if not self._holds(item, delivery):
            return "refused"
        item.lease = None
        self._lapse(item, self.clock())
        return "ok"

    def _extend(self, item: Item, delivery: Delivery, seconds: float | None) -> Answer:
        if seconds not in (None, self.lock):
            raise ModelError(f"seconds must be the lock's {self.lock:g}: RenewLock takes no time of its own.")
        if not self._holds(item, delivery):
            return "refused"
        until = self.clock() + self.lock
        item.until = until
        if self.sessions:
            self._held[item.key].until = until
            for other in self._live:
                if other.lease and other.key == item.key:
                    other.until = until
        return "ok"

    def dead_letter(self, delivery: Delivery, reason: str) -> Answer:
        """Move it to the dead-letter queue at once, with a reason of one's own; refused when the lock is lost."""
        self.tick()
        item = self._given[delivery.handle]
        if not self._holds(item, delivery):
            return "refused"
        self._bury(item, self.clock(), reason)
        return "ok"

    def _lapse(self, item: Item, moment: float) -> None:
        item.failures += 1
        if item.failures >= self.max_delivery_count:
            self._bury(item, moment, "MaxDeliveryCountExceeded")

    def _change(self, item: Item, moment: float) -> None:
        if item.lease:
            item.expires_at = item.until  # looked at again when its lock ends
        elif self.dead_letter_expired:
            self._bury(item, moment, "TTLExpiredException")
        else:
            self._lose(item, moment, "time to live")
