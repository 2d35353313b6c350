"""Dead letters of a function: what cannot succeed goes to the dead-letter queue of its queue, with the reason on it.

SQS would move it as well, after the last receive, but cannot say why. So the function does what a worker does
(:mod:`labkit.work.dead_letters`): at once for what no delivery can cure, and at the last receive for everything else.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from typing import Any

from labkit.state.idempotency import Busy
from labkit.work import batch, dead_letters
from labkit.work.broker import HOPELESS
from labkit.work.queues import Message, Queue

_queues: dict[str, Queue] = {}


def or_bury(sqs: Any, record: batch.Record, work: Callable[[], object]) -> None:
    """Do ``work`` for a record. Its error is raised, so that the message comes back, unless the message is buried."""
    try:
        work()
    except Exception as error:
        hopeless = isinstance(error, HOPELESS)
        if isinstance(error, Busy):
            raise  # another invocation has it: no failure of the event's
        queue = queue_of(sqs, record.raw["eventSourceARN"])
        dead, most = queue.redrive()
        if dead is None or not (hopeless or record.receives >= most):
            raise
        if not dead_letters.bury(queue, message(record), error, trace_id=record.trace_id or ""):
            raise
        said = {"broker": "buried", "trace_id": record.trace_id, "receives": record.receives}
        print(json.dumps({**said, "reason": type(error).__name__, "error": str(error)[:1_000]}))


def queue_of(sqs: Any, arn: str) -> Queue:
    """The queue that a record came from, asked for once."""
    if arn not in _queues:
        account, name = arn.split(":")[4:6]
        url = sqs.get_queue_url(QueueName=name, QueueOwnerAWSAccountId=account)["QueueUrl"]
        _queues[arn] = Queue(sqs, url, arn=arn)
    return _queues[arn]


def message(record: batch.Record) -> Message:
    """The message of a record, as if it had been received: Lambda spells the same things in another way."""
    raw = record.raw
    system: Mapping[str, str] = raw.get("attributes", {})
    wire = {name: _attribute(value) for name, value in raw.get("messageAttributes", {}).items()}
    return Message.of(
        {
            "MessageId": record.id,
            "Body": record.body,
            "ReceiptHandle": raw["receiptHandle"],
            "Attributes": system,
            "MessageAttributes": wire,
        }
    )


def _attribute(value: Mapping[str, Any]) -> dict[str, Any]:
    kind = {"DataType": value["dataType"]}
    if value.get("binaryValue") is not None:
        return {**kind, "BinaryValue": base64.b64decode(value["binaryValue"])}
    return {**kind, "StringValue": value["stringValue"]}
