"""An Event Grid subscription that pushes: a fixed schedule, a time to live looked at late, a delayed dead letter.

- An attempt that is not answered with 200 to 204 within 30 s has failed. The next one follows after 10 s, 30 s, 1 min,
  5 min, 10 min, 30 min, 1 h, 3 h, 6 h, then every 12 h. So a day has 11 attempts; 30 are never reached.
- Some answers set a least wait: 503 30 s, 408 2 min, and of an Azure resource 401 and 404 5 min.
- 400, 413, 403 and, of a webhook, 401 are not retried.
- The time to live is looked at only when an attempt is due. With a wait of 12 h that is long after.
- A dead letter is written 5 minutes after the decision. When its store cannot be written for 4 hours, the event is
  dropped; without a dead-letter location it is dropped at once.
- No order is promised: what waits for a retry is overtaken.
- An answer after 30 s but within 3 minutes takes the event off the retry queue as a best effort; here it never does.

Left out, because it has no numbers: the randomness of each wait, skipped retries, and "delayed delivery", which after
repeated failures holds back new events too, for hours. Namespace topics have pull delivery as well, much like a queue.
Source: Microsoft, Event Grid: delivery-and-retry (February 2026). Its example of 30 minutes and 10 attempts has the
dead letter at 30 minutes, its text at the next attempt; the text is followed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from labkit.facts import facts
from labkit.models._input import ModelError, limit, number, whole
from labkit.models.clouds.broker import Push
from labkit.models.clouds.vocabulary import NEVER, Clock, Item

__all__ = ["EventGrid", "schedule"]

_LEAST = "eventgrid.retry.at_least"  # waits that some answers ask for


def _list(key: str) -> list[int]:
    return [int(part) for part in str(facts(key)).split("|")]


def schedule(attempt: int) -> int:
    """Seconds from failed attempt number ``attempt`` (from 1) to the next one; some answers set a least wait."""
    waits = _list("eventgrid.retry.schedule")
    return waits[min(whole("attempt", attempt), len(waits)) - 1]


class EventGrid(Push):
    """A push subscription. ``ttl`` in seconds, whole minutes. ``dead_letter``: has it a location for dead letters?

    ``store_down``: spans (from, to) in seconds in which that location cannot be written. ``endpoint`` decides about
    401. Raises :class:`~labkit.models._input.ModelError` for what Event Grid refuses.
    """

    own_id = True
    final_word = "answered {}"

    def __init__(
        self, clock: Clock, *, ttl: float | None = None, max_attempts: int | None = None, dead_letter: bool = True,
        store_down: Sequence[tuple[float, float]] = (), endpoint: Literal["webhook", "azure"] = "webhook",
    ) -> None:  # fmt: skip
        super().__init__(clock)
        self.term = float(limit("eventgrid.response_timeout"))
        ttl = limit("eventgrid.ttl.default") if ttl is None else ttl
        self.ttl = number("ttl", ttl, low=limit("eventgrid.ttl.min"), high=limit("eventgrid.ttl.max"), unit="s")
        if self.ttl % 60:
            raise ModelError(f"ttl must be whole minutes; got {ttl!r} s.")
        count = limit("eventgrid.attempts.default") if max_attempts is None else max_attempts
        low, high = limit("eventgrid.attempts.min"), limit("eventgrid.attempts.max")
        self.max_attempts = whole("max_attempts", count, low=low, high=high)
        if endpoint not in ("webhook", "azure"):
            raise ModelError(f"endpoint must be 'webhook' or 'azure'; got {endpoint!r}.")
        final = _list("eventgrid.not_retried")
        self.final = {str(code) for code in final if endpoint == "webhook" or code != 401}
        self.least = {"408": limit(f"{_LEAST}.timeout_408"), "503": limit(f"{_LEAST}.unavailable_503")}
        if endpoint == "azure":
            self.least |= dict.fromkeys(("401", "404"), limit(f"{_LEAST}.azure_401_404"))
        self.dead_letter = dead_letter
        self.store_down = sorted(store_down)

    def _pick(self, by: str) -> Iterator[Item]:
        now = self.clock()
        ready = [item for item in self._live if not item.lease and item.ready_at <= now]
        yield from sorted(ready, key=lambda item: item.ready_at)

    def _failed(self, item: Item, moment: float, why: str) -> None:
        item.failures += 1
        if item.failures >= self.max_attempts:
            self._give_up(item, moment, "MaxDeliveryAttemptsExceeded")
            return
        item.ready_at = moment + max(schedule(item.failures), self.least.get(why, 0))
        if item.ready_at >= item.published_at + self.ttl:  # found out then, and not before
            item.ready_at, item.change_at = NEVER, item.ready_at

    def _give_up(self, item: Item, moment: float, reason: str) -> None:
        if not self.dead_letter:
            self._lose(item, moment, reason)
            return
        first = moment + limit("eventgrid.dead_letter.delay")
        last = first + limit("eventgrid.dead_letter.give_up")
        write = first
        for start, end in self.store_down:
            if start <= write < end:
                write = end
        written = write < last
        item.ready_at, item.change_at = NEVER, min(write, last)
        item.rule = (written, reason if written else f"dead-letter location unavailable ({reason})")

    def _change(self, item: Item, moment: float) -> None:
        item.change_at = NEVER
        if item.rule is None:
            self._give_up(item, moment, "time to live")
            return
        written, reason = item.rule
        if written:
            self._bury(item, moment, reason)
        else:
            self._lose(item, moment, reason)
