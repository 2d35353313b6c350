"""Dead letters: a message that nobody can handle goes to the dead-letter queue with the reason on it.

SQS moves a message by itself once it has been received too often, but it cannot say why: the reason is in some worker's
log. A worker that knows sends the message there, with the reason in attributes, and deletes it. The names are those
that EventBridge gives its own dead letters, so that one triage reads both.

Two calls are not one: a worker that dies between them leaves the message in both queues. Nothing is lost, and
``ORIGINAL_MESSAGE_ID`` tells the copies.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any

from labkit.facts import facts
from labkit.state.records import said
from labkit.work.queues import Message, Queue

CODE, TEXT, SOURCE, TRACE = "ERROR_CODE", "ERROR_MESSAGE", "SOURCE_QUEUE_ARN", "TRACE_ID"
ORIGINAL, RECEIVES = "ORIGINAL_MESSAGE_ID", "RECEIVE_COUNT"
_MOST_TEXT = 1_000  # characters; the whole story is in the log
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what SQS takes no text with

logger = logging.getLogger(__name__)


def reason(message: Message, error: BaseException, *, source: str, trace_id: str = "") -> dict[str, str]:
    """The attributes that say why, the most important first."""
    found = {
        CODE: type(error).__name__,
        TEXT: said(error, _MOST_TEXT) or type(error).__name__,
        ORIGINAL: message.id,
        TRACE: trace_id,
        RECEIVES: str(message.receives),
        SOURCE: source,
    }
    return {name: _FORBIDDEN.sub("\ufffd", value) for name, value in found.items() if value}


def attributes(message: Message, why: Mapping[str, str]) -> dict[str, Any]:
    """The message's own attributes with those of ``why``, as many as SQS still takes; the message's own come first."""
    room = int(facts("sqs.message.max_attributes")) - len(message.wire)
    added = {name: {"DataType": "String", "StringValue": value} for name, value in list(why.items())[: max(0, room)]}
    return {**message.wire, **added}


def bury(queue: Queue, message: Message, error: BaseException, *, trace_id: str = "") -> bool:
    """Send ``message`` to the dead-letter queue of ``queue`` with the reason, then delete it. False if it stays.

    It stays where there is no dead-letter queue, no room for the reason (ten attributes of its own, a body of the
    largest size), or no answer: SQS's own redrive moves it then, without the reason.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    if queue.dlq is None:
        return False
    carried = attributes(message, reason(message, error, source=queue.arn, trace_id=trace_id))
    if CODE not in carried:
        logger.warning("message %s has no room for its reason; SQS's own redrive will move it", message.id)
        return False
    options: dict[str, Any] = {"MessageAttributes": carried}
    if queue.dlq.fifo:
        options.update(MessageGroupId=message.group or "none", MessageDeduplicationId=message.id)
    try:
        queue.dlq.client.send_message(QueueUrl=queue.dlq.url, MessageBody=message.body, **options)
    except (BotoCoreError, ClientError) as trouble:
        logger.warning("message %s could not be sent to %s: %s", message.id, queue.dlq.name, trouble)
        return False
    queue.delete(message)
    return True
