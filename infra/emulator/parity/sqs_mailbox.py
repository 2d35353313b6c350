"""The mailbox of a queue: a message store in the place where MiniStack keeps a plain list.

**MiniStack** stores a queue as a dict whose ``messages`` is a list. Handlers on the event loop replace that list while
threads (Step Functions, event source mappings, deliveries of other services) append to it: a message can be lost.

**Here** the list is a :class:`Mailbox`. It has the list's methods that other services use, and every change goes
through the store's lock. A queue gets its mailbox when it is created, by whatever service."""

from __future__ import annotations

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from parity.sqs_store import LOCK, MessageStore

DEDUPLICATION_WINDOW = 300.0  # seconds

Queue = dict[str, Any]
Observer = Callable[["Mailbox", str, float], None]
_observers: list[Observer] = []


def observe(observer: Observer) -> None:
    """Have ``observer(mailbox, event, value)`` called for sent, received, deleted, empty and deduplicated messages."""
    _observers.append(observer)


class Mailbox(MessageStore):
    """A message store that MiniStack's other services take for the list of a queue's messages."""

    def __init__(self, arn: str, *, fifo: bool, records: Iterable[dict[str, Any]] = ()) -> None:
        super().__init__(arn, fifo=fifo)
        self._recent: OrderedDict[str, tuple[float, dict[str, str]]] = OrderedDict()
        self._newest: dict[str, Any] | None = None
        for record in records:
            self.put(complete(record))

    def tell(self, event: str, value: float = 1) -> None:
        for observer in _observers:
            observer(self, event, value)

    def append(self, record: dict[str, Any]) -> None:
        """A service of MiniStack delivers a message."""
        self._newest = self.put(complete(record))
        self.tell("sent", len(self._newest["body"].encode()))

    def remove(self, record: Mapping[str, Any]) -> None:
        """A service of MiniStack is done with a message that it received."""
        self.delete(record["receipt_handle"])
        self.tell("deleted")

    def clear(self) -> None:
        with LOCK:
            super().clear()
            self._recent.clear()

    def __getitem__(self, index: int) -> dict[str, Any]:
        # MiniStack's EventBridge looks at what it has just appended.
        return self._newest if index == -1 and self._newest is not None else list(self)[index]

    def __deepcopy__(self, memo: dict[int, Any]) -> list[dict[str, Any]]:
        return [dict(message) for message in self]

    def duplicate(self, key: str) -> dict[str, str] | None:
        """What was answered to the send with this deduplication key in the last five minutes."""
        now = time.time()
        while self._recent and next(iter(self._recent.values()))[0] <= now:
            self._recent.popitem(last=False)
        known = self._recent.get(key)
        return known[1] if known else None

    def remember_send(self, key: str, answer: dict[str, str]) -> None:
        self._recent[key] = (time.time() + DEDUPLICATION_WINDOW, answer)


def complete(record: dict[str, Any]) -> dict[str, Any]:
    """Fill in what deliverers leave out of a message."""
    now = time.time()
    record.setdefault("sent_at", now)
    record.setdefault("visible_at", record["sent_at"])
    for name in ("receipt_handle", "first_receive_at", "md5_attrs", "group_id", "dedup_id", "seq"):
        record.setdefault(name, None)
    record.setdefault("receive_count", 0)
    record.setdefault("message_attributes", {})
    record.setdefault("sys", {"SentTimestamp": str(int(record["sent_at"] * 1000))})
    body = record["body"] = str(record.get("body") or "")
    if not record.get("md5_body"):
        record["md5_body"] = hashlib.md5(body.encode()).hexdigest()
    return record


def number(queue: Queue, name: str, default: int) -> int:
    try:
        return int(queue["attributes"].get(name, default))
    except (TypeError, ValueError):
        return default


def mailbox(queue: Queue) -> Mailbox:
    """The messages of a queue. Takes over the plain list of a queue that was made by somebody else."""
    box = queue["messages"]
    if not isinstance(box, Mailbox):
        with LOCK:
            box = queue["messages"]
            if not isinstance(box, Mailbox):
                arn = queue["attributes"].get("QueueArn", "")
                box = queue["messages"] = Mailbox(arn, fifo=bool(queue.get("is_fifo")), records=box)
    box.retention = number(queue, "MessageRetentionPeriod", 345_600)
    return box


def redrive_policy(queue: Queue) -> tuple[str, int] | None:
    """ARN of the dead-letter queue, and maxReceiveCount."""
    try:
        policy = json.loads(queue["attributes"].get("RedrivePolicy") or "null")
        return str(policy["deadLetterTargetArn"]), int(policy["maxReceiveCount"])
    except (KeyError, TypeError, ValueError):
        return None


def queues_of(base: type) -> type:
    """MiniStack's dictionary of queues, which gives each new queue its mailbox and closes that of a deleted one."""

    class Queues(base):  # type: ignore[misc, valid-type]
        __slots__ = ()

        def __setitem__(self, key: str, queue: Queue) -> None:
            mailbox(queue)
            super().__setitem__(key, queue)

        def pop(self, key: str, *default: Any) -> Any:
            return self._closed(super().pop(key, *default))

        def pop_scoped(self, account: str, region: str, key: str, *default: Any) -> Any:
            return self._closed(super().pop_scoped(account, region, key, *default))

        def clear(self) -> None:
            for queue in self.all_values():
                self._closed(queue)
            super().clear()

        @staticmethod
        def _closed(queue: Any) -> Any:
            if isinstance(queue, dict) and isinstance(queue.get("messages"), Mailbox):
                queue["messages"].close()
            return queue

    return Queues
