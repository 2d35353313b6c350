"""Which message of a standard queue is next; and which send to a FIFO queue is a duplicate.

**On AWS**: see :mod:`parity.sqs_order` (messages that fail again and again go to the back), :mod:`parity.sqs_fair` (a
quiet tenant overtakes a noisy one), :mod:`parity.sqs_messages` (deduplication, which answers with the first send).

**LocalStack** delivers by the time of sending, has no tenants, answers a duplicate with a SequenceNumber of its own,
and with DeduplicationScope=messageGroup forgets an id as soon as another group has used it.

**Here** the line of a standard queue is LocalStack's priority queue with another choice of the next message; the
numbers that the choice needs are counted before each receive, on queues with message groups alone.
"""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from parity.sqs_fair import Tenants
from parity.sqs_order import BACK_OF_QUEUE


def choose(messages: list[Any], tenants: Tenants, taken: Counter[str]) -> Any:
    """The next of LocalStack's ``messages``: a quiet one, or else one of the noisy tenant with the fewest in flight."""
    quiet = [message for message in messages if message.message_group_id not in tenants.noisy]
    if not quiet:
        tenant = tenants.next_noisy({message.message_group_id for message in messages}, taken)
        taken[str(tenant)] += 1
        quiet = [message for message in messages if message.message_group_id == tenant]
    return min(quiet, key=lambda message: message.priority)


def line_of(base: type) -> type:
    """LocalStack's priority queue with the rules."""

    class Line(base):  # type: ignore[misc, valid-type]
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            self.tenants = Tenants()
            self.taken: Counter[str] = Counter()  # in the receive that is under way

        def _put(self, item: Any) -> None:
            if item.receive_count >= BACK_OF_QUEUE:
                item.priority = time.time()
            super()._put(item)

        def _get(self) -> Any:
            if not self.tenants.noisy:
                return super()._get()
            message = choose(self.queue, self.tenants, self.taken)
            self.queue.remove(message)
            heapq.heapify(self.queue)
            return message

    return Line


def judge(queue: Any) -> None:
    """Find out who is noisy in a standard queue. A queue without message groups pays for none of it."""
    tenants: Tenants = queue.visible.tenants
    if not (tenants.last_send or tenants.noisy):
        return
    with queue.mutex, queue.visible.mutex:
        in_flight = list(queue.inflight)
        waiting = [*queue.visible.queue, *queue.delayed]
        tenants.recount(
            *(Counter(m.message_group_id for m in some if m.message_group_id) for some in (in_flight, waiting))
        )
        tenants.judge(len(in_flight), time.time())
        queue.visible.taken.clear()


class Recent(dict[Any, Any]):
    """LocalStack's memory of deduplication ids: each message group has its own, when ``group`` is set."""

    group: str | None = None

    def get(self, key: str, default: Any = None) -> Any:
        return super().get((self.group, key), default)

    def __setitem__(self, key: str, message: Any) -> None:
        super().__setitem__((self.group, key), message)


def install() -> None:
    from localstack.services.sqs import models

    standard, fifo = models.StandardQueue, models.FifoQueue
    put: Callable[..., Any] = standard.put
    put_fifo: Callable[..., Any] = fifo.put
    _ = fifo.get_message_group

    def put_for(self: Any, message: Any, **more: Any) -> Any:
        with self.mutex:  # others look at the messages of a queue while it is held
            if more.get("message_group_id"):
                self.visible.tenants.sent(more["message_group_id"], time.time())
            return put(self, message, **more)

    def put_once(self: Any, message: Any, **more: Any) -> Any:
        with self.mutex:
            if not isinstance(self.deduplication, Recent):
                self.deduplication = Recent()
            by_group = self.deduplication_scope == "messageGroup"
            self.deduplication.group = more.get("message_group_id") if by_group else None
            own_id = message["MessageId"]
            stored = put_fifo(self, message, **more)
            if message["MessageId"] != own_id:
                stored.duplicate = True
                stored.sequence_number = self.deduplication.get(stored.message_deduplication_id).sequence_number
            return stored

    models.InterruptiblePriorityQueue = line_of(models.InterruptiblePriorityQueue)
    standard.put, fifo.put = put_for, put_once
