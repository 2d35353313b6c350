"""What five brokers have in common: a clock, a vocabulary and a history. One module each says what is its own.

Every broker hides a message instead of handing it over, and everything follows from when the hiding ends::

    publish ─▶ waiting ─▶ delivered ─┬─ ack ────────────▶ gone
                  ▲                  ├─ nack ──┐
                  └── wait, if any ──┴─ lapse ─┴─ too often ─▶ dead-lettered, or lost

========  =====================  ====================  ============  ===========  ====================
here      SQS                    Pub/Sub               Service Bus   Event Grid   EventBridge
========  =====================  ====================  ============  ===========  ====================
key       message group          ordering key          session       (none)       event group (V2)
receive   ReceiveMessage         Pull                  receive       a push       a push
ack       DeleteMessage          Acknowledge           Complete      HTTP 2xx     success
nack      visibility timeout 0   ack deadline 0        Abandon       other code   error
extend    visibility timeout     ModifyAckDeadline     RenewLock     (none)       (none)
lapse     visible again          deadline exceeded     lock lost     no answer    time-out
========  =====================  ====================  ============  ===========  ====================

Nothing sleeps: a :class:`Clock` is moved by whoever runs the model, and :meth:`Broker.tick` does what is due by then.

The brokers follow the vendors' documentation, not measurements. Where it says "best effort" or "may", the model takes
the worse case that it allows: code that survives here survives there. Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, ClassVar, Literal, cast

from labkit.models._input import ModelError, whole
from labkit.models.clouds.vocabulary import NEVER, Answer, Clock, Delivery, Event, Item, What

__all__ = ["Broker", "Push"]


class Broker:
    """What the five share. Calls take and give the same things everywhere; what they do is each broker's own.

    ``history``: everything that happened, in order. ``own_id``: does a message go by the name that its producer gave
    it? ``pushes``: does the broker call the consumer? Then :meth:`receive` is "the attempts that are due now".
    """

    own_id: ClassVar[bool] = False
    pushes: ClassVar[bool] = False
    term: float  # seconds from a delivery to its lapse

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.history: list[Event] = []
        self._live: list[Item] = []
        self._given: dict[int, Item] = {}
        self._published = 0

    def publish(self, body: str, *, key: str = "", name: str | None = None) -> str | None:
        """Take a message; its id, or None when it was accepted and dropped as a repeat of ``name``.

        ``name``: the producer's own name for it (MessageDeduplicationId, MessageId, an event's id).
        """
        self.tick()
        self._published += 1
        now = self.clock()
        given = name if self.own_id and name else f"m{self._published}"
        item = Item(self._published, given, body, key, now, now)
        if self._repeats(name, key, now):
            self._note("dropped", item, now)
            return None
        self._prepare(item)
        self._live.append(item)
        self._note("published", item, now)
        return item.id

    def receive(self, most: int = 1, *, by: str = "worker") -> list[Delivery]:
        """Up to ``most`` messages for the worker ``by``, oldest first; of a pushing broker, the attempts due now."""
        whole("most", most)
        self.tick()
        given = []
        for item in self._pick(by):
            given.append(self._deliver(item, by))
            if len(given) == most:
                break
        return given

    def ack(self, delivery: Delivery) -> Answer:
        """Say that it is done: ``ok``, ``refused``, or ``ignored`` (the call succeeds and changes nothing)."""
        return self._call("ack", delivery)

    def nack(self, delivery: Delivery, why: str = "") -> Answer:
        """Give it back. ``why``: what a push was answered with, an HTTP code or an error's name."""
        return self._call("nack", delivery, why)

    def extend(self, delivery: Delivery, seconds: float | None = None) -> Answer:
        """Keep it for ``seconds`` from now; None for as long as a delivery has."""
        return self._call("extend", delivery, seconds)

    def close(self, by: str) -> None:
        """The worker ``by`` says that it takes nothing more. Only a broker with sessions listens."""

    def tick(self) -> None:
        """Do what is due by now, in order of time."""
        while (moment := self._next()) <= self.clock():
            late = [item for item in self._live if item.lease and item.until <= moment]
            for item in late:  # all of them, even if the first one's lapse takes the others' leases
                item.lease, lease = None, item.lease
                self._note("lapsed", item, moment, lease)
                self._lapse(item, moment)
            for item in [i for i in self._live if min(i.expires_at, i.change_at) <= moment]:
                if item in self._live:  # another one's end may have taken it along
                    self._change(item, moment)

    def due(self) -> float | None:
        """The next second at which something happens by itself, or a message is ready again; None for never."""
        self.tick()
        now = self.clock()
        ready = [i.ready_at for i in self._live if not i.lease and not i.acked and i.ready_at > now]
        moment = min([self._next(), *ready])
        return None if moment == NEVER else moment

    @property
    def left(self) -> list[str]:
        """Bodies of the messages that it still has to deliver, or waits for."""
        return [item.body for item in self._live if not item.acked]

    @property
    def dead(self) -> list[Event]:
        """What was dead-lettered, with the moment and the reason."""
        return [event for event in self.history if event.what == "dead-lettered"]

    def rows(self) -> list[dict[str, object]]:
        """The history as rows, for a table."""
        return [{k: v for k, v in asdict(event).items() if k != "handle"} for event in self.history]

    # What a broker says for itself.

    def _prepare(self, item: Item) -> None:
        """Set what a new message has besides."""

    def _repeats(self, name: str | None, key: str, now: float) -> bool:
        """Is this publication dropped?"""
        return False

    def _pick(self, by: str) -> Iterator[Item]:
        """What may be delivered now, in order."""
        raise NotImplementedError

    def _ack(self, item: Item, delivery: Delivery) -> Answer:
        raise NotImplementedError

    def _nack(self, item: Item, delivery: Delivery, why: str) -> Answer:
        raise NotImplementedError

    def _extend(self, item: Item, delivery: Delivery, seconds: float | None) -> Answer:
        return "refused"  # a push has nothing to extend

    def _lapse(self, item: Item, moment: float) -> None:
        """Its time ran out without an answer; its lease is gone already."""
        raise NotImplementedError

    def _change(self, item: Item, moment: float) -> None:
        """It is too old, or something of the broker's own is due."""
        raise NotImplementedError

    # What they are made of.

    def _deliver(self, item: Item, by: str) -> Delivery:
        now = self.clock()
        item.deliveries += 1
        handle = len(self._given) + 1
        lease = Delivery(item.id, item.body, item.key, item.deliveries, handle, by, now, now + self.term)
        item.lease, item.until = lease, lease.deadline
        self._given[handle] = item
        self._note("delivered", item, now, lease)
        return lease

    def _call(self, verb: Literal["ack", "nack", "extend"], delivery: Delivery, *more: Any) -> Answer:
        self.tick()
        item = self._given.get(delivery.handle)
        if item is None or item.id != delivery.id:
            raise ModelError(f"delivery must be one that this broker gave; {delivery.body!r} is not.")
        rule: Any = {"ack": self._ack, "nack": self._nack, "extend": self._extend}[verb]
        place = len(self.history)
        answer: Answer = rule(item, delivery, *more)
        done = {"ack": "acked", "nack": "nacked", "extend": "extended"}[verb]
        what = cast("What", done if answer == "ok" else f"{verb} {answer}")
        self._note(what, item, self.clock(), delivery, str(more[0]) if verb == "nack" and more else "", place)
        return answer

    def _holds(self, item: Item, delivery: Delivery) -> bool:
        return item.lease is not None and item.lease.handle == delivery.handle

    def _next(self) -> float:
        return min((min(i.until if i.lease else NEVER, i.expires_at, i.change_at) for i in self._live), default=NEVER)

    def _remove(self, item: Item) -> None:
        item.lease = None
        self._live.remove(item)

    def _bury(self, item: Item, moment: float, reason: str) -> None:
        self._remove(item)
        self._note("dead-lettered", item, moment, note=reason)

    def _lose(self, item: Item, moment: float, reason: str) -> None:
        self._remove(item)
        self._note("lost", item, moment, note=reason)

    def _note(
        self, what: What, item: Item, at: float, lease: Delivery | None = None, note: str = "", place: int | None = None
    ) -> None:
        attempt, handle = (lease.attempt, lease.handle) if lease else (item.deliveries, 0)
        event = Event(at, what, item.body, item.key, item.id, item.message, attempt, handle, note)
        self.history.insert(len(self.history) if place is None else place, event)


class Push(Broker):
    """A broker that calls its consumer: it hears one answer to each attempt, and some answers end the retries.

    ``final``: those answers; ``final_word``: what the dead letter says of one.
    """

    pushes = True
    final: set[str]
    final_word: ClassVar[str] = "{}"

    def _ack(self, item: Item, delivery: Delivery) -> Answer:
        if not self._holds(item, delivery):
            return "ignored"
        self._remove(item)
        return "ok"

    def _nack(self, item: Item, delivery: Delivery, why: str) -> Answer:
        if not self._holds(item, delivery):
            return "ignored"
        item.lease = None
        if why in self.final:
            item.failures += 1
            self._give_up(item, self.clock(), self.final_word.format(why))
        else:
            self._failed(item, self.clock(), why)
        return "ok"

    def _lapse(self, item: Item, moment: float) -> None:
        self._failed(item, moment, "")

    def _failed(self, item: Item, moment: float, why: str) -> None:
        """An attempt has failed: say when the next one comes, or give up."""
        raise NotImplementedError

    def _give_up(self, item: Item, moment: float, reason: str) -> None:
        raise NotImplementedError
