"""An SQS queue, standard or FIFO: :mod:`labkit.models.queue_life`'s rules of one message, and those of many.

- Standard: the oldest visible message first (AWS promises no order; the model is kinder here, and duplicates of the
  "at least once" kind do not happen).
- FIFO: while a message of a group is in flight, the group gives nothing; one receive may take several of its messages.
  A failing message is the head of the line until its redrive. Its handle dies with its timeout. A repeated
  deduplication id is accepted and dropped for 5 minutes, also after the first message was deleted.
- The receive that would exceed the max receive count moves the message instead (so nothing moves while nobody polls).

Sources: SQS API reference (ReceiveMessage, DeleteMessage, ChangeMessageVisibility, SendMessage), SQS Developer Guide.
"""

from __future__ import annotations

from collections.abc import Iterator

from labkit.models import queue_life
from labkit.models._input import ModelError, limit, number
from labkit.models.clouds.broker import Broker
from labkit.models.clouds.vocabulary import NEVER, Answer, Clock, Delivery, Item

__all__ = ["Sqs"]


class Sqs(Broker):
    """A queue. Times in seconds; None takes AWS's default, ``max_receive_count`` None is no redrive policy.

    A FIFO queue needs a ``name`` (deduplication id) and a ``key`` (message group) for each message. Raises
    :class:`~labkit.models._input.ModelError` for what a queue refuses.
    """

    def __init__(
        self, clock: Clock, *, fifo: bool = False, visibility: float | None = None,
        max_receive_count: int | None = None, retention: float | None = None,
    ) -> None:  # fmt: skip
        super().__init__(clock)
        self.fifo = fifo
        self.term = float(limit("sqs.visibility.default") if visibility is None else visibility)
        kept = limit("sqs.retention.default") if retention is None else retention
        low, high = limit("sqs.retention.min"), limit("sqs.retention.max")
        self.retention = number("retention", kept, low=low, high=high, unit="s")
        self.max_receive_count = max_receive_count
        queue_life.Message(self.term, max_receive_count, 0.0)  # it checks both
        self._names: dict[str, float] = {}

    def publish(self, body: str, *, key: str = "", name: str | None = None) -> str | None:
        if self.fifo and not (key and name):
            raise ModelError("a FIFO queue needs a key (message group) and a name (deduplication id).")
        return super().publish(body, key=key, name=name)

    def _repeats(self, name: str | None, key: str, now: float) -> bool:
        if not self.fifo or name is None:
            return False
        if now - self._names.get(name, -NEVER) < limit("sqs.fifo.dedup_window"):
            return True
        self._names[name] = now
        return False

    def _prepare(self, item: Item) -> None:
        item.expires_at = item.published_at + self.retention
        item.rule = queue_life.Message(self.term, self.max_receive_count, item.expires_at)

    def _pick(self, by: str) -> Iterator[Item]:
        now = self.clock()
        busy = {item.key for item in self._live if item.lease} if self.fifo else set()
        for item in list(self._live):
            if item.lease or (self.fifo and item.key in busy):
                continue
            if item.rule.receive(now) is not None:
                yield item
            elif item.rule.ended == "dead-lettered":
                self._bury(item, now, "maxReceiveCount")

    def _ack(self, item: Item, delivery: Delivery) -> Answer:
        if self.fifo and not self._holds(item, delivery):
            return "refused" if item in self._live else "ignored"  # its handle has expired
        if not item.rule.delete(self.clock(), delivery.attempt):
            return "ignored"
        self._remove(item)
        return "ok"

    def _nack(self, item: Item, delivery: Delivery, why: str) -> Answer:
        answer = self._hide(item, delivery, 0.0)
        if answer == "ok":
            item.lease = None
        return answer

    def _extend(self, item: Item, delivery: Delivery, seconds: float | None) -> Answer:
        kept = self.term if seconds is None else number("seconds", seconds, high=limit("sqs.visibility.max"), unit="s")
        return self._hide(item, delivery, kept)

    def _hide(self, item: Item, delivery: Delivery, seconds: float) -> Answer:
        if self.fifo and not self._holds(item, delivery):
            return "refused"
        if not item.rule.extend(self.clock(), delivery.attempt, seconds):
            return "refused"
        item.until = item.ready_at = self.clock() + seconds  # of whoever holds it now, or of nobody: no one is told
        return "ok"

    def _lapse(self, item: Item, moment: float) -> None:
        """Visible again, and nothing else: the receive count went up when it was received."""

    def _change(self, item: Item, moment: float) -> None:
        item.rule.gone(moment)
        self._lose(item, moment, "retention")
