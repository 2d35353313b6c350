"""Where the record of an asynchronous invocation goes, and where an event goes that was given up.

**On AWS** a destination (OnSuccess, OnFailure) gets the invocation record: a standard queue or topic as the message, a
function as its event, a bus as the detail of an event from the source ``lambda``. A dead-letter queue (a queue or
topic) gets the event as it came, with three attributes. Both may be configured; what cannot be delivered is lost, and
counted (Lambda Developer Guide, "Capturing records of Lambda asynchronous invocations"; recorded on AWS: the messages,
the attributes, the event on the bus).

**MiniStack** sends the record to a dead-letter queue too, or the other way round neither of them, knows no OnSuccess
and no event bus, and appends to queues past their own checks.

**Here** queues and topics are written through their own API. A function as a destination is invoked asynchronously
(``forward``). Not done: S3 as a destination; the permissions of the function's role, which would have to allow it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from .sqs_attributes import printable

DETAIL_TYPE = "Lambda Function Invocation Result - {}"

Attributes = Mapping[str, Mapping[str, str]]


class Undelivered(Exception):
    """A record or an event that its destination did not take."""


def text_of(value: Any) -> str:
    """A record as text. Half of a surrogate pair, which no message can carry, stays escaped."""
    text = json.dumps(value, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(value)
    return text


def send_record(arn: str, record: Mapping[str, Any], forward: Callable[[str, Any], None]) -> None:
    """Send an invocation record. ``forward(arn, event)`` invokes a function. Raises :class:`Undelivered`."""
    service = arn.split(":")[2]
    if service == "lambda":
        forward(arn, record)
    elif service == "events":
        put_event(arn, record)
    else:
        send_message(arn, text_of(record))


def send_message(arn: str, body: str, attributes: Attributes | None = None) -> None:
    """Send ``body`` to a standard queue or topic. Raises :class:`Undelivered`."""
    sender = {"sqs": _to_queue, "sns": _to_topic}[standard(arn)]
    sender(arn, body, shown(attributes or {}))


def standard(arn: str) -> str:
    """The service of a standard queue or topic. Raises :class:`Undelivered` for what is neither."""
    service = arn.split(":")[2]
    if service not in ("sqs", "sns") or arn.endswith(".fifo"):
        raise Undelivered(f"{arn} is neither a standard queue nor a standard topic")
    return service


def shown(attributes: Attributes) -> dict[str, dict[str, str]]:
    """Message attributes without characters that no message can carry."""
    return {
        name: {**attribute, "StringValue": printable(attribute["StringValue"])}
        for name, attribute in attributes.items()
    }


def _to_queue(arn: str, body: str, attributes: Attributes) -> None:
    from ministack.core.responses import request_scope
    from ministack.services import sqs

    queue = sqs._queue_by_arn(arn)
    if queue is None:
        raise Undelivered(f"{arn} does not exist")
    message: dict[str, Any] = {"QueueUrl": queue["url"], "MessageBody": body}
    if attributes:
        message["MessageAttributes"] = attributes
    _, _, _, region, account, _ = arn.split(":", 5)
    with request_scope(account, region):
        try:
            sqs._act_send_message(message, queue["url"])
        except sqs._Err as error:
            raise Undelivered(error.message) from error


def _to_topic(arn: str, body: str, attributes: Attributes) -> None:
    from ministack.services import sns

    try:
        if sns.publish_internal(arn, body, message_attributes=dict(attributes)) is None:
            raise Undelivered(f"{arn} does not exist")
    except sns.SnsPublishError as error:
        raise Undelivered(str(error)) from error


def event_entry(arn: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """The entry of PutEvents for an invocation record that goes to the bus ``arn``."""
    outcome = "Success" if record["requestContext"]["condition"] == "Success" else "Failure"
    return {
        "Source": "lambda",
        "DetailType": DETAIL_TYPE.format(outcome),
        "Detail": text_of(record),
        "Resources": [arn, record["requestContext"]["functionArn"]],
        "EventBusName": arn.split(":", 5)[5].split("/", 1)[-1],
    }


def put_event(arn: str, record: Mapping[str, Any]) -> None:
    """Put an invocation record on the bus ``arn``. Raises :class:`Undelivered`."""
    from ministack.core.responses import request_scope
    from ministack.services import eventbridge

    _, _, _, region, account, _ = arn.split(":", 5)
    entry = event_entry(arn, record)
    with request_scope(account, region):
        if entry["EventBusName"] not in eventbridge._event_buses and entry["EventBusName"] != "default":
            raise Undelivered(f"{arn} does not exist")
        status, _, body = eventbridge._put_events({"Entries": [entry]})
    if status >= 400 or json.loads(body)["FailedEntryCount"]:
        raise Undelivered(body.decode())


def install() -> None:
    """Nothing is replaced here; a release without one of these names fails at the start, not at the first delivery."""
    from ministack.services import eventbridge, sns, sqs

    _ = sqs._queue_by_arn, sqs._act_send_message, sqs._Err
    _ = sns.publish_internal, sns.SnsPublishError, eventbridge._put_events, eventbridge._event_buses
