"""How long messages stay: the retention period, and PurgeQueue once in 60 seconds.

**On AWS** a message is gone when its retention period is over, also in flight (Developer Guide, "Message retention").
For PurgeQueue and QueueDeletedRecently see :mod:`parity.sqs_purge`.

**LocalStack** has all three behind settings that are off, and never drops a message that is in flight or delayed.

**Here** the first two are on; the third is off unless ``LAB_QUEUE_DELETED_RECENTLY=1``, as in the embedded stand-in."""

from __future__ import annotations

import heapq
import os
import time
from typing import Any

from parity.sqs_purge import SETTING


def expired(messages: Any, retention: float, now: float) -> list[Any]:
    return [message for message in messages if message.created <= now - retention]


def install() -> None:
    from localstack import config
    from localstack.services.sqs.models import FifoQueue, StandardQueue

    _ = config.SQS_DELAY_PURGE_RETRY, config.SQS_DELAY_RECENTLY_DELETED, config.SQS_ENABLE_MESSAGE_RETENTION_PERIOD
    config.SQS_DELAY_PURGE_RETRY = config.SQS_ENABLE_MESSAGE_RETENTION_PERIOD = True
    config.SQS_DELAY_RECENTLY_DELETED = os.environ.get(SETTING) == "1"

    def drop_unseen(queue: Any) -> None:
        """Drop messages that are in flight or delayed."""
        now, retention = time.time(), queue.message_retention_period
        for message in expired([*queue.inflight, *queue.delayed], retention, now):
            queue.inflight.pop(message, None)
            queue.delayed.discard(message)
            for handle in message.receipt_handles:
                queue.receipts.pop(handle, None)

    def expire_standard(self: Any) -> None:
        with self.mutex:
            drop_unseen(self)
            with self.visible.mutex:
                # Not in the order of sending: see hostmode.sqs_order.
                for message in expired(self.visible.queue, self.message_retention_period, time.time()):
                    self.visible.queue.remove(message)
                heapq.heapify(self.visible.queue)

    def expire_fifo(self: Any) -> None:
        with self.mutex:
            in_flight = list(self.inflight)
            drop_unseen(self)
            for message in in_flight:
                if message not in self.inflight:
                    self.update_message_group_visibility(self.get_message_group(message.message_group_id))
        expire(self)

    expire = FifoQueue.remove_expired_messages
    _ = FifoQueue.update_message_group_visibility, StandardQueue.remove_expired_messages
    StandardQueue.remove_expired_messages, FifoQueue.remove_expired_messages = expire_standard, expire_fifo
