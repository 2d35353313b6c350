"""What one event sets off: the deliveries to its targets, and those of buses that it is passed on to.

**On AWS** an event that came from another bus is passed on to no third one (EventBridge User Guide, "Sending events
between event buses in the same account and Region"); it goes to the dead-letter queue as THIRD_ACCOUNT_HOP_DETECTED,
with the text below (code and text as quoted in public from AWS in 2023). So the rules of two buses that send to each
other make no loop. Not verified: that a rule of a bus that has the bus itself for a target is treated the same way.

**MiniStack** passes an event on while there is a rule that has not seen it: N rules to and fro are N! deliveries, all
of them within the request that brought the event, and nothing else is served meanwhile.

**Here** the hop is refused in :mod:`parity.events_dispatch`. Even so one event may match many rules, each with a bus
for a target: :class:`Cascades` make the deliveries one after another instead of one within the other, the first few in
the call that brought the event, so that a reader finds a message right after ``PutEvents``, the rest in the background,
and no more than a limit; what is beyond is dropped and logged. These two numbers are ours: AWS has no such limit."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial

from .events_delivery import Failure

AT_ONCE = 200  # deliveries in the caller's thread
LIMIT = 10_000  # deliveries in all; 300 rules of 5 targets on one bus are 1500

logger = logging.getLogger("parity.events")

Walk = Iterator[object]  # makes one delivery a step


def second_hop(event_id: str) -> Failure:
    return Failure(
        "THIRD_ACCOUNT_HOP_DETECTED",
        f"Event ingestion rejected for event {event_id} because an event can be sent to an event bus target only once. "
        "This event was previously delivered to an event bus target.",
        retried=False,
    )


class Cascades:
    """Starts a cascade for each event that comes from outside. ``background`` runs a job on another thread, in the
    context of its caller."""

    def __init__(
        self, background: Callable[[Callable[[], object]], object], *, at_once: int = AT_ONCE, limit: int = LIMIT
    ) -> None:
        self._background = background
        self._at_once = at_once
        self._limit = limit
        self._running = threading.local()

    def add(self, walk: Walk, name: str) -> None:
        """Make the deliveries of ``walk``: at once, or after those of the event that set it off."""
        running: Cascade | None = getattr(self._running, "cascade", None)
        if running is not None:
            running.waiting.append(walk)
            return
        cascade = Cascade(walk, name)
        if not self._advance(cascade, self._at_once):
            self._background(partial(self._finish, cascade))

    def _advance(self, cascade: Cascade, until: int) -> bool:
        self._running.cascade = cascade
        try:
            return cascade.advance(until)
        finally:
            self._running.cascade = None

    def _finish(self, cascade: Cascade) -> None:
        if not self._advance(cascade, self._limit):
            logger.warning("%s set off more than %d deliveries; the rest is dropped", cascade.name, self._limit)


class Cascade:
    def __init__(self, walk: Walk, name: str) -> None:
        self.name = name
        self.waiting = deque([walk])
        self.steps = 0

    def advance(self, until: int) -> bool:
        """Go on until ``until`` steps have been made in all. Whether everything is done."""
        while self.waiting:
            try:
                for _ in self.waiting[0]:
                    self.steps += 1
                    if self.steps >= until:
                        return False
            except Exception:  # one event's rules must cost neither the request nor the other events
                logger.exception("%s: a rule broke", self.name)
            self.waiting.popleft()
        return True
