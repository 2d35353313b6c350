"""A Pub/Sub pull subscription, with a rule that no other broker has: what comes again takes its followers along.

- A message not acknowledged within the ack deadline, or nacked, comes again: at once, or after a backoff.
- With ordering, a key has one batch outstanding at a time. When a message of a key is delivered again, so is every
  later one of that key that was delivered before, *acknowledged ones included*.
- With exactly-once delivery nothing that was acknowledged comes again: an ack with an expired or older id fails, and
  with ordering an ack fails until all earlier messages of the key are acknowledged. Published twice still comes twice.
- Delivery attempts are 1 + nacks + lapses; at the maximum the message goes to the dead-letter topic. Google calls that
  a best effort, approximate in number and without order; the model counts exactly.
- Without exactly-once delivery a late ack or extension answers OK. It may count, says Google; here it never does.

The backoff doubles from its minimum to its maximum; Google says "exponential" and no factor.
Sources: Google Cloud, Pub/Sub: ordering, exactly-once-delivery, subscription-properties; API reference (Subscription,
DeadLetterPolicy, RetryPolicy, Acknowledge).
"""

from __future__ import annotations

from collections.abc import Iterator

from labkit.models._input import ModelError, limit, number, whole
from labkit.models.clouds.broker import Broker
from labkit.models.clouds.vocabulary import Answer, Clock, Delivery, Item
from labkit.models.retry import Exponential

__all__ = ["PubSub"]


class PubSub(Broker):
    """A subscription. Times in seconds; ``max_attempts`` None is no dead-letter topic.

    ``backoff``: minimum and maximum wait of a retry policy, None for immediate redelivery. ``deadline`` None: 10 s, or
    60 s with exactly-once delivery. Raises :class:`~labkit.models._input.ModelError` for what Pub/Sub refuses.
    """

    def __init__(
        self, clock: Clock, *, deadline: float | None = None, ordering: bool = False, exactly_once: bool = False,
        max_attempts: int | None = None, backoff: tuple[float, float] | None = None, retention: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(clock)
        usual = "pubsub.ack_deadline.exactly_once" if exactly_once else "pubsub.ack_deadline.default"
        low, high = limit("pubsub.ack_deadline.min"), limit("pubsub.ack_deadline.max")
        self.term = number("deadline", limit(usual) if deadline is None else deadline, low=low, high=high, unit="s")
        self.ordering, self.exactly_once = ordering, exactly_once
        if max_attempts is not None:
            low, high = limit("pubsub.dead_letter.attempts.min"), limit("pubsub.dead_letter.attempts.max")
            whole("max_attempts", max_attempts, low=low, high=high)
        self.max_attempts = max_attempts
        self.backoff = None
        if backoff is not None:
            least, most = (number("backoff", wait, high=limit("pubsub.backoff.limit"), unit="s") for wait in backoff)
            if least > most:
                raise ModelError(f"backoff must not have a minimum ({least:g} s) over its maximum ({most:g} s).")
            self.backoff = Exponential(base=least, cap=most)
        kept = limit("pubsub.retention.default") if retention is None else retention
        low, high = limit("pubsub.retention.min"), limit("pubsub.retention.max")
        self.retention = number("retention", kept, low=low, high=high, unit="s")

    def publish(self, body: str, *, key: str = "", name: str | None = None) -> str | None:
        number("bytes of key", len(key.encode()), high=limit("pubsub.ordering_key.max_bytes"))
        return super().publish(body, key=key, name=name)

    def _prepare(self, item: Item) -> None:
        item.expires_at = item.published_at + self.retention

    def _pick(self, by: str) -> Iterator[Item]:
        now = self.clock()
        busy = {item.key for item in self._live if item.lease and self._orders(item)}
        for item in list(self._live):
            if item.acked or item.lease or item.key in busy:
                continue
            if item.ready_at <= now:
                yield item
            elif self._orders(item):
                busy.add(item.key)

    def _ack(self, item: Item, delivery: Delivery) -> Answer:
        if not self._holds(item, delivery):
            return "refused" if self.exactly_once else "ignored"
        if self.exactly_once and any(not other.acked for other in self._earlier(item)):
            return "refused"  # temporary: in order, please
        item.lease, item.acked = None, True
        self._forget()
        return "ok"

    def _nack(self, item: Item, delivery: Delivery, why: str) -> Answer:
        if not self._holds(item, delivery):
            return "refused" if self.exactly_once else "ignored"
        item.lease = None
        self._again(item, self.clock())
        return "ok"

    def _extend(self, item: Item, delivery: Delivery, seconds: float | None) -> Answer:
        high = limit("pubsub.ack_deadline.max")
        kept = self.term if seconds is None else number("seconds", seconds, high=high, unit="s")
        if kept == 0:
            return self._nack(item, delivery, "")
        if not self._holds(item, delivery):
            return "refused" if self.exactly_once else "ignored"
        item.until = self.clock() + kept
        return "ok"

    def _lapse(self, item: Item, moment: float) -> None:
        self._again(item, moment)

    def _again(self, item: Item, moment: float) -> None:
        item.failures += 1
        if self.max_attempts is not None and item.failures >= self.max_attempts:
            self._bury(item, moment, f"{item.failures} delivery attempts")
            self._forget()
            return
        item.ready_at = moment + (self.backoff(item.failures) if self.backoff else 0.0)
        if not self._orders(item) or self.exactly_once:
            return
        for later in self._live[self._live.index(item) + 1 :]:
            if later.key != item.key:
                continue
            if later.acked:
                later.acked = False
                self._note("reopened", later, moment, note=f"follows {item.body}")
            elif later.lease:
                later.lease, lease = None, later.lease
                self._note("superseded", later, moment, lease, f"follows {item.body}")

    def _change(self, item: Item, moment: float) -> None:
        if item.acked:
            self._remove(item)
        else:
            self._lose(item, moment, "retention")
        self._forget()

    def _orders(self, item: Item) -> bool:
        return self.ordering and bool(item.key)

    def _earlier(self, item: Item) -> list[Item]:
        if not self._orders(item):
            return []
        return [other for other in self._live[: self._live.index(item)] if other.key == item.key]

    def _forget(self) -> None:
        """Drop what is acknowledged and follows nothing that could take it along."""
        for item in list(self._live):
            if item.acked and not self._earlier(item):
                self._remove(item)
