"""The event that a function gets for a batch of messages.

**On AWS** (recorded) the event is ``{"Records": […]}`` and each record has the message's id, its receipt handle, body,
system attributes, message attributes in camel case with two lists that are always empty, the digests, and the queue.
The digest of the message attributes is left out when there are none; with a batching window it is null instead. The
whole event, with everything that Lambda adds to the messages, is at most 6 MB (API reference CreateEventSourceMapping,
BatchSize).

**MiniStack** leaves the digest of the message attributes out, and the two lists, and the attributes that say which
queue a dead letter came from.

**Here** :func:`record_of` makes a record of a message, and :func:`size_of` measures it."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

MAX_EVENT = 6_291_456  # bytes of the event as JSON
_FRAME = len('{"Records":[]}')

Message = Mapping[str, Any]
Record = dict[str, Any]


def record_of(message: Message, *, arn: str, digest: str | None, sender: str = "", window: float = 0) -> Record:
    """The record of a received message.

    ``arn`` is the queue's; ``digest`` the MD5 of the message attributes; ``sender`` who sent the message, if it does
    not say so itself; ``window`` the mapping's batching window in seconds.
    """
    record: Record = {
        "messageId": message["id"],
        "receiptHandle": message["receipt_handle"],
        "body": message["body"],
        "attributes": _attributes(message, sender),
        "messageAttributes": {name: _value(given) for name, given in (message.get("message_attributes") or {}).items()},
    }
    if digest or window:
        record["md5OfMessageAttributes"] = digest or None
    record |= {
        "md5OfBody": message["md5_body"],
        "eventSource": "aws:sqs",
        "eventSourceARN": arn,
        "awsRegion": arn.split(":")[3],
    }
    return record


def _attributes(message: Message, sender: str) -> dict[str, str]:
    system = message.get("sys") or {}
    first = message.get("first_receive_at") or message["sent_at"]
    found = {
        "ApproximateReceiveCount": message["receive_count"],
        "AWSTraceHeader": system.get("AWSTraceHeader"),
        "SentTimestamp": system.get("SentTimestamp") or int(message["sent_at"] * 1000),
        "SequenceNumber": message.get("seq"),
        "MessageGroupId": message.get("group_id"),
        "SenderId": system.get("SenderId") or sender,
        "MessageDeduplicationId": message.get("dedup_id"),
        "ApproximateFirstReceiveTimestamp": int(first * 1000),
        "DeadLetterQueueSourceArn": system.get("DeadLetterQueueSourceArn"),
    }
    return {name: str(value) for name, value in found.items() if value is not None}


def _value(given: Mapping[str, Any]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    if given.get("StringValue") is not None:
        value["stringValue"] = given["StringValue"]
    if given.get("BinaryValue") is not None:
        binary = given["BinaryValue"]
        value["binaryValue"] = binary if isinstance(binary, str) else base64.b64encode(binary).decode()
    return value | {"stringListValues": [], "binaryListValues": [], "dataType": given.get("DataType") or "String"}


def size_of(record: Record) -> int:
    """What a record takes in the event, in bytes, with the comma before it."""
    return len(json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")) + 1


def event_size(records: int) -> int:
    """The size of the event whose records have this size together."""
    return _FRAME + max(records - 1, 0)


def event_of(records: Sequence[Record]) -> dict[str, Any]:
    return {"Records": list(records)}
