"""Send, receive, delete, change visibility: the message plane of SQS, on top of :mod:`parity.sqs_store`.

**On AWS**: see the modules that this one puts together: :mod:`parity.sqs_store` (handles, visibility, redrive),
:mod:`parity.sqs_order` (order, groups), :mod:`parity.sqs_fair` (tenants), :mod:`parity.sqs_requests` (what is refused).
Besides:

* *In-flight cap.* A standard queue has at most about 120,000 messages in flight. A receive beyond that is
  ``OverLimit`` when it polls short, and comes back empty after its wait when it polls long; a FIFO queue comes back
  empty and never reports an error (API reference ChangeMessageVisibility; Developer Guide, "Queue quotas"). The tag
  ``lab:in-flight-cap`` turns the cap down.
* *ReceiveRequestAttemptId* on a FIFO queue gives the same batch again (API reference ReceiveMessage).
* *Deduplication*: five minutes from the send; the queue's purge forgets it (recorded).

**MiniStack** runs handlers on its event loop while threads (Step Functions, event source mappings, deliveries) append
to the same list, which handlers replace: messages get lost. Each receive looks at every message, each FIFO send at
every deduplication id. Long polls look every 100 ms.

**Here** a queue's messages are in a :class:`parity.sqs_mailbox.Mailbox`. A long poll sleeps until a message comes or is
due. No lock is held across an await.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import time
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from parity import settings
from parity import sqs_errors as errors
from parity import sqs_requests as requests
from parity.sqs_errors import SqsError
from parity.sqs_mailbox import Mailbox, Queue, complete, mailbox, number, queues_of, redrive_policy
from parity.sqs_polls import client
from parity.sqs_store import LOCK, DeadLetter

IN_FLIGHT_CAP = 120_000
LONGEST_NAP = 1.0  # seconds; a long poll looks at least this often, so that no lost wake-up can hold it up

logger = logging.getLogger("parity.sqs")


class Plane:
    """The actions, on the queues of MiniStack's ``sqs`` module."""

    def __init__(self, sqs: Any) -> None:
        self.sqs = sqs

    def _queue(self, data: Mapping[str, Any], url: str, action: str) -> tuple[Queue, Mailbox]:
        queue = self.sqs._get_q(data.get("QueueUrl") or url, f"sqs:{action}")
        return queue, mailbox(queue)

    # -- sending ---------------------------------------------------------------------------------------------------

    def send(self, data: dict[str, Any], url: str, *, in_batch: bool = False) -> dict[str, Any]:
        queue, box = self._queue(data, url, "SendMessage")
        delay = requests.check_send(
            data,
            max_size=number(queue, "MaximumMessageSize", 1_048_576),
            queue_delay=number(queue, "DelaySeconds", 0),
            fifo=box.fifo,
            content_based=self._content_based(queue),
            in_batch=in_batch,
        )
        group = data.get("MessageGroupId")
        with LOCK:
            answer = self._digests(data)
            key = dedup = None
            if box.fifo:
                dedup = requests.deduplication_id(data)
                by_group = queue["attributes"].get("DeduplicationScope") == "messageGroup"
                key = f"{group}\n{dedup}" if by_group else dedup
                known = box.duplicate(key)
                if known is not None:
                    box.tell("deduplicated")
                    return {**answer, **known}
                queue["fifo_seq"] = queue.get("fifo_seq", 0) + 1
            now = time.time()
            identity = {"MessageId": str(uuid.uuid4())}
            if box.fifo:
                identity["SequenceNumber"] = str(queue["fifo_seq"]).zfill(20)
            record = complete(
                {
                    "id": identity["MessageId"],
                    "body": data["MessageBody"],
                    "md5_body": answer["MD5OfMessageBody"],
                    "md5_attrs": answer.get("MD5OfMessageAttributes"),
                    "sent_at": now,
                    "visible_at": now + delay,
                    "message_attributes": data.get("MessageAttributes") or {},
                    "sys": self.sqs._build_send_sys_attrs(now, data.get("MessageSystemAttributes") or {}),
                    "group_id": group,
                    "dedup_id": dedup,
                    "seq": identity.get("SequenceNumber"),
                }
            )
            box.put(record)
            if key is not None:
                box.remember_send(key, identity)
            box.tell("sent", requests.size_of(data))
        self.sqs.esm_wake.set()
        return {**answer, **identity}

    def send_batch(self, data: dict[str, Any], url: str) -> dict[str, Any]:
        queue, box = self._queue(data, url, "SendMessage")
        entries = data.get("Entries") or []
        requests.check_batch(entries, "SendMessageBatchRequestEntry")
        requests.check_batch_size(entries)
        if box.fifo:
            for entry in entries:
                requests.check_fifo(entry, content_based=self._content_based(queue), in_batch=True)
        return requests.answer_each(
            entries, lambda entry: self.send({**entry, "QueueUrl": queue["url"]}, url, in_batch=True)
        )

    @staticmethod
    def _content_based(queue: Queue) -> bool:
        return str(queue["attributes"].get("ContentBasedDeduplication", "")).lower() == "true"

    def _digests(self, data: Mapping[str, Any]) -> dict[str, str]:
        answer = {"MD5OfMessageBody": hashlib.md5(data["MessageBody"].encode()).hexdigest()}
        attributes = self.sqs._md5_msg_attrs(data.get("MessageAttributes"))
        if attributes:
            answer["MD5OfMessageAttributes"] = attributes
        return answer

    # -- receiving -------------------------------------------------------------------------------------------------

    async def receive(self, data: dict[str, Any], url: str) -> dict[str, Any]:
        queue, box = self._queue(data, url, "ReceiveMessage")
        limit = requests.max_messages(data)
        visibility = requests.visibility(data, number(queue, "VisibilityTimeout", 30))
        wait = requests.wait_seconds(data, number(queue, "ReceiveMessageWaitTimeSeconds", 0))
        attempt = requests.token(data, "ReceiveRequestAttemptId") if box.fifo else None
        # Everything is read before a message goes in flight.
        names = [*(data.get("AttributeNames") or []), *(data.get("MessageSystemAttributeNames") or [])]
        wanted = data.get("MessageAttributeNames") or []

        batch = box.receive_again(attempt, visibility) if attempt else None
        if batch is None:
            batch = self.collect(queue, limit, visibility)
            if batch is None and not wait and not box.fifo:
                raise errors.over_limit(queue["name"], self._cap(queue))
            if not batch and wait:
                batch = await self._poll(queue, box, limit, visibility, time.time() + wait)
            if attempt and batch:
                box.remember(attempt, batch)
        if batch:
            box.tell("received", len(batch))
        else:
            box.tell("empty")
            return {}
        return {"Messages": [self._show(message, names, wanted) for message in batch]}

    async def _poll(
        self, queue: Queue, box: Mailbox, limit: int, visibility: int, until: float
    ) -> list[dict[str, Any]]:
        """Wait for messages until the moment ``until``."""
        loop = asyncio.get_running_loop()
        here = client()
        fruitless = -1  # looks that found nothing; the first one is no wake-up
        while not (box.closed or here.gone) and (left := until - time.time()) > 0:
            changed = asyncio.Event()

            def wake(changed: asyncio.Event = changed) -> None:
                with contextlib.suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(changed.set)

            box.on_change(wake)
            here.wake = changed.set
            try:
                # Look after registering: what came in between would not wake us.
                batch = self.collect(queue, limit, visibility)
                if batch:
                    return batch
                fruitless += 1
                due = box.next_change()
                nap = min(left, LONGEST_NAP, left if due is None else max(due - time.time(), 0.001))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), nap)
            finally:
                box.forget(wake)
            # Two queues that are each other's dead-letter queue pass messages to and fro while both are polled.
            await asyncio.sleep(min(fruitless, 20) / 1000)
        return [] if box.closed or here.gone else self.collect(queue, limit, visibility) or []

    @staticmethod
    def _cap(queue: Queue) -> int:
        return settings.positive_int(queue.get("tags") or {}, settings.IN_FLIGHT_CAP, IN_FLIGHT_CAP)

    def collect(self, queue: Queue, limit: int, visibility: float) -> list[dict[str, Any]] | None:
        """Receive at once; ``None`` when as many messages are in flight as may be."""
        box = mailbox(queue)
        with LOCK:
            room = self._cap(queue) - box.counts()[1]
            if room <= 0:
                return None
            policy = redrive_policy(queue)
            target = self.sqs._queue_by_arn(policy[0]) if policy else None
            dead_letter = DeadLetter(mailbox(target), policy[1]) if policy and target else None
            return box.receive(min(limit, room), visibility, dead_letter)

    def _show(self, message: dict[str, Any], names: list[str], wanted: list[str]) -> dict[str, Any]:
        entry = {
            "MessageId": message["id"],
            "ReceiptHandle": message["receipt_handle"],
            "MD5OfBody": message["md5_body"],
            "Body": message["body"],
        }
        system = self.sqs._build_sys_attrs(message, names)
        if system:
            entry["Attributes"] = system
        attributes = self.sqs._filter_msg_attrs(message["message_attributes"], wanted)
        if attributes:
            entry["MessageAttributes"] = attributes
            entry["MD5OfMessageAttributes"] = self.sqs._md5_msg_attrs(attributes)
        return entry

    # -- afterwards ------------------------------------------------------------------------------------------------

    def _delete(self, box: Mailbox, data: Mapping[str, Any]) -> dict[str, Any]:
        box.delete(self._handle(data))
        box.tell("deleted")  # AWS counts every deletion with a valid handle, also of a message that is gone
        return {}

    def delete(self, data: dict[str, Any], url: str) -> dict[str, Any]:
        return self._delete(self._queue(data, url, "DeleteMessage")[1], data)

    def delete_batch(self, data: dict[str, Any], url: str) -> dict[str, Any]:
        _, box = self._queue(data, url, "DeleteMessage")
        entries = data.get("Entries") or []
        requests.check_batch(entries, "DeleteMessageBatchRequestEntry")
        return requests.answer_each(entries, lambda entry: self._delete(box, entry))

    def _change(self, box: Mailbox, data: Mapping[str, Any]) -> dict[str, Any]:
        handle = self._handle(data)
        if data.get("VisibilityTimeout") is None:
            raise errors.missing("VisibilityTimeout")
        box.change_visibility(handle, requests.visibility(data, 0))
        self.sqs.esm_wake.set()
        return {}

    def change(self, data: dict[str, Any], url: str) -> dict[str, Any]:
        return self._change(self._queue(data, url, "ChangeMessageVisibility")[1], data)

    def change_batch(self, data: dict[str, Any], url: str) -> dict[str, Any]:
        _, box = self._queue(data, url, "ChangeMessageVisibility")
        entries = data.get("Entries") or []
        requests.check_batch(entries, "ChangeMessageVisibilityBatchRequestEntry")
        return requests.answer_each(entries, lambda entry: self._change(box, entry))

    @staticmethod
    def _handle(data: Mapping[str, Any]) -> str:
        if not data.get("ReceiptHandle"):
            raise errors.missing("ReceiptHandle")
        return str(data["ReceiptHandle"])

    # -- for MiniStack's event source mappings ---------------------------------------------------------------------

    def receive_for_mapping(self, url: str, limit: int) -> list[dict[str, Any]]:
        queue = self.sqs._get_q(url)
        batch = self.collect(queue, min(int(limit or 1), 10), number(queue, "VisibilityTimeout", 30)) or []
        if batch:
            mailbox(queue).tell("received", len(batch))
        return batch

    def delete_for_mapping(self, url: str, handles: Iterable[str]) -> None:
        box = mailbox(self.sqs._get_q(url))
        for handle in handles:
            try:
                self._delete(box, {"ReceiptHandle": handle})
            except SqsError as error:
                logger.warning("event source mapping: message of %s not deleted: %s", url, error.message)

    # -- counters --------------------------------------------------------------------------------------------------

    @staticmethod
    def refresh_counts(queue: Queue) -> None:
        visible, in_flight, delayed = mailbox(queue).counts()
        queue["attributes"]["ApproximateNumberOfMessages"] = str(visible)
        queue["attributes"]["ApproximateNumberOfMessagesNotVisible"] = str(in_flight)
        queue["attributes"]["ApproximateNumberOfMessagesDelayed"] = str(delayed)


def install() -> None:
    from ministack.services import sqs

    plane = Plane(sqs)
    handlers = {
        "SendMessage": ("_act_send_message", plane.send),
        "SendMessageBatch": ("_act_send_message_batch", plane.send_batch),
        "ReceiveMessage": ("_act_receive_message", plane.receive),
        "DeleteMessage": ("_act_delete_message", plane.delete),
        "DeleteMessageBatch": ("_act_delete_message_batch", plane.delete_batch),
        "ChangeMessageVisibility": ("_act_change_visibility", plane.change),
        "ChangeMessageVisibilityBatch": ("_act_change_visibility_batch", plane.change_batch),
    }
    helpers = {
        "_receive_messages_for_esm": plane.receive_for_mapping,
        "_delete_messages_for_esm": plane.delete_for_mapping,
        "_refresh_counts": plane.refresh_counts,
        "_collect_msgs": lambda queue, limit, visibility: plane.collect(queue, limit, visibility) or [],
        "_ensure_msg_fields": complete,
        # Parts of a receive now, in the store:
        "_expire_retained": lambda queue: mailbox(queue).counts(),
        "_dlq_sweep": lambda queue: None,
    }
    needed = ["_get_q", "_queue_by_arn", "_build_send_sys_attrs", "_build_sys_attrs", "_filter_msg_attrs"]
    for name in [*needed, *helpers, "_md5_msg_attrs", "_queues", "esm_wake", *(name for name, _ in handlers.values())]:
        getattr(sqs, name)
    for action, (name, handler) in handlers.items():
        _ = sqs._HANDLERS[action]
        sqs._HANDLERS[action] = handler
        setattr(sqs, name, handler)
    for name, helper in helpers.items():
        setattr(sqs, name, helper)
    sqs._queues = queues_of(type(sqs._queues))()
