"""What a receipt handle may do: delete its message, or change how long it is hidden.

**On AWS**: see :mod:`parity.sqs_store`, "Receipt handles" and "ChangeMessageVisibility".

**LocalStack** lets any handle that it ever gave delete the message, does nothing when the visibility of a message is
changed after its timeout, and knows no total of 12 hours.

**Here** the rules decide. A handle of LocalStack tells the moment of its receive: so it is seen which one is the
newest.
"""

from __future__ import annotations

import heapq
import time
from typing import Any

from parity import sqs_errors as errors
from parity.sqs_handles import check_change, check_delete


def take(queue: Any, message: Any) -> bool:
    """Take a visible message of a standard queue out of its line. False when it is not there (any more)."""
    with queue.visible.mutex:
        if message not in queue.visible.queue:
            return False
        queue.visible.queue.remove(message)
        heapq.heapify(queue.visible.queue)
        return True


def install() -> None:
    from localstack.services.sqs.models import FifoQueue, SqsQueue
    from localstack.services.sqs.utils import extract_receipt_handle_info

    remove, change = SqsQueue.remove, SqsQueue.update_visibility_timeout
    _ = SqsQueue.validate_receipt_handle, FifoQueue._pre_delete_checks

    def told(queue: Any, message: Any, handle: str) -> dict[str, bool]:
        receive = extract_receipt_handle_info(handle).last_received
        return {
            "fifo": isinstance(queue, FifoQueue),
            "newest": receive == str(message.last_received),
            "in_flight": message in queue.inflight and not message.is_visible,
        }

    def remove_by(self: Any, receipt_handle: str) -> None:
        with self.mutex:
            self.validate_receipt_handle(receipt_handle)
            message = self.receipts.get(receipt_handle)
            if message is not None:
                age = time.time() - float(extract_receipt_handle_info(receipt_handle).last_received)
                seen = told(self, message, receipt_handle)
                if not check_delete(receipt_handle, **seen, age=age):
                    return
                if not seen["fifo"] and message not in self.inflight:
                    take(self, message)  # LocalStack would, but without the lock that receives hold
            remove(self, receipt_handle)

    def change_by(self: Any, receipt_handle: str, visibility_timeout: int) -> None:
        with self.mutex:
            self.validate_receipt_handle(receipt_handle)
            message = self.receipts.get(receipt_handle)
            if message is None:
                raise errors.not_available(receipt_handle)
            age = time.time() - message.last_received
            check_change(receipt_handle, visibility_timeout, **told(self, message, receipt_handle), age=age)
            if visibility_timeout and message not in self.inflight and take(self, message):
                self.add_inflight_message(message)
            change(self, receipt_handle, visibility_timeout)

    SqsQueue.remove, SqsQueue.update_visibility_timeout = remove_by, change_by
