"""The metrics of the namespace AWS/SQS.

**On AWS**: see :mod:`parity.sqs_metrics`, whose names and numbers these are.

**LocalStack** publishes the numbers of messages once a minute, and neither an age nor anything about FIFO queues; it
counts a duplicate as sent, and the size of a message without its attributes.

**Here** LocalStack's own publishing is off. :func:`tell` counts, and gauges are read off the queues when CloudWatch
is asked.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from parity.sqs_metrics import NAMESPACE, counters, gauges
from parity.sqs_order import BACK_OF_QUEUE

from hostmode import metrics


def tell(queue: Any, event: str, value: float = 1) -> None:
    """Count sent (``value``: its size), received, deleted, empty or deduplicated messages of LocalStack's ``queue``."""
    for name, amount, unit in counters(event, value):
        metrics.publish(queue.account_id, queue.region, NAMESPACE, name, {"QueueName": queue.name}, amount, unit)


class Box:
    """LocalStack's queue as :func:`parity.sqs_metrics.gauges` reads one."""

    def __init__(self, queue: Any, *, fifo: bool) -> None:
        self._queue = queue
        self.fifo = fifo

    def _messages(self) -> Iterator[Any]:
        queue = self._queue
        yield from list(queue.inflight)
        yield from list(queue.delayed)
        if self.fifo:
            for group in list(queue.message_groups.values()):
                yield from list(group.messages)
        else:
            yield from list(queue.visible.queue)

    def counts(self) -> tuple[int, int, int]:
        queue = self._queue
        queue.requeue_inflight_messages()
        queue.enqueue_delayed_messages()
        return queue.approximate_number_of_messages, len(queue.inflight), len(queue.delayed)

    def oldest(self) -> float | None:
        waiting = (m for m in self._messages() if self.fifo or m.receive_count < BACK_OF_QUEUE)
        return min((getattr(m, "moved_at", m.created) for m in waiting), default=None)

    def groups_in_flight(self) -> int:
        return len({message.message_group_id for message in self._queue.inflight})


def install() -> None:
    from localstack.services.sqs.models import FifoQueue, sqs_stores
    from localstack.services.sqs.provider import SqsProvider

    def sample(account: str, region: str) -> None:
        if account not in sqs_stores or region not in sqs_stores[account]:
            return
        for queue in list(sqs_stores[account][region].queues.values()):
            with queue.mutex:
                found = list(gauges(Box(queue, fifo=isinstance(queue, FifoQueue)), time.time()))
            for name, value, unit in found:
                metrics.gauge(account, region, NAMESPACE, name, {"QueueName": queue.name}, value, unit)

    def silent(self: Any) -> None:
        self.cloudwatch_disabled = True
        self._cloudwatch_publish_worker = self._cloudwatch_dispatcher = None

    _ = SqsProvider._init_cloudwatch_metrics_reporting
    SqsProvider._init_cloudwatch_metrics_reporting = silent
    metrics.on_query(sample)
