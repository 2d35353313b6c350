"""EventBridge and one target: a day of retries in silence, and what they do to an order.

- A failed attempt is retried with exponential backoff and jitter, by default 185 times within 24 hours; whichever ends
  first sends the event to the target's dead-letter queue, or drops it when there is none.
- NO_PERMISSIONS and NO_RESOURCE are not retried.
- A classic bus promises no order. A V2 bus has FIFO subscribers, with 5 retries within 5 minutes by default: as long as
  a failing event is retried, it holds the later ones of its *group* (AWS's page on ordering) or of *all* groups (its
  page on retries).
- A V2 bus drops a repeated deduplication id of the same group for 5 minutes. A classic bus has no such check.

Left out: failures that a V2 bus retries inside itself without limit, whatever the retry policy says.

AWS does not publish the waits. These are the lab's, as in :mod:`labkit.models.delivery` (one event, target down from
the start) and in the stand-in. The target is an API destination: it has 5 s to answer.
Sources: EventBridge User Guide: eb-rule-retry-policy, eb-rule-dlq, eb-custom-bus-retry, eb-custom-bus-ordering.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from labkit.facts import facts
from labkit.models._input import ModelError, limit, number, whole
from labkit.models.clouds.broker import Push
from labkit.models.clouds.vocabulary import NEVER, Clock, Item
from labkit.models.delivery import waits

__all__ = ["EventBridge"]


class EventBridge(Push):
    """A rule's target, or with ``hold`` a FIFO subscriber of a V2 bus. Times in seconds.

    ``max_retries`` and ``max_age`` None: the defaults of the bus. ``hold``: what a failing event holds up. ``seed``: of
    the jitter. Raises :class:`~labkit.models._input.ModelError` for what EventBridge refuses.
    """

    def __init__(
        self, clock: Clock, *, max_retries: int | None = None, max_age: float | None = None, dead_letter: bool = True,
        hold: Literal["group", "all"] | None = None, timeout: float | None = None, seed: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(clock)
        if hold not in (None, "group", "all"):
            raise ModelError(f"hold must be 'group', 'all' or None; got {hold!r}.")
        bus = "eventbridgev2" if hold else "events"
        tries = limit(f"{bus}.retry.default_attempts") if max_retries is None else max_retries
        low, high = limit(f"{bus}.retry.min_attempts"), limit(f"{bus}.retry.max_attempts")
        self.max_retries = whole("max_retries", tries, low=low, high=high)
        age = limit(f"{bus}.retry.default_age") if max_age is None else max_age
        low, high = limit(f"{bus}.retry.min_age"), limit(f"{bus}.retry.max_age")
        self.max_age = number("max_age", age, low=low, high=high, unit="s")
        wait = limit("events.api_destination.timeout") if timeout is None else timeout
        self.term = number("timeout", wait, low=1e-3, unit="s")
        self.dead_letter, self.hold, self.seed = dead_letter, hold, seed
        self.final = set(str(facts("events.retry.skipped_errors")).split("|"))
        self._names: dict[tuple[str, str], float] = {}

    def _repeats(self, name: str | None, key: str, now: float) -> bool:
        if self.hold is None or name is None:
            return False
        if now - self._names.get((key, name), -NEVER) < limit("eventbridgev2.dedup_window"):
            return True
        self._names[key, name] = now
        return False

    def _pick(self, by: str) -> Iterator[Item]:
        now = self.clock()
        if self.hold is None:
            ready = [item for item in self._live if not item.lease and item.ready_at <= now]
            yield from sorted(ready, key=lambda item: item.ready_at)
            return
        seen: set[str] = set()
        for item in list(self._live):
            first = item.key not in seen or not item.key
            seen.add(item.key)
            if first and not item.lease and item.ready_at <= now:
                yield item
            if self.hold == "all" and item.failures:
                return

    def _failed(self, item: Item, moment: float, why: str) -> None:
        retries = item.failures
        item.failures += 1
        end = item.published_at + self.max_age
        if retries >= self.max_retries:
            self._give_up(item, moment, "MaximumRetryAttempts")
            return
        wait = waits(f"{self.seed}/{item.id}")(item.failures)
        if moment + wait < end:
            item.ready_at = moment + wait
        else:  # given up at that age, and not before
            item.ready_at, item.change_at = NEVER, max(moment, end)

    def _change(self, item: Item, moment: float) -> None:
        self._give_up(item, moment, "MaximumEventAgeInSeconds")

    def _give_up(self, item: Item, moment: float, reason: str) -> None:
        (self._bury if self.dead_letter else self._lose)(item, moment, reason)
