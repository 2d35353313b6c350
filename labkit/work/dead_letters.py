"""Dead letters: a message that nobody can handle goes to the dead-letter queue with the reason on it.

SQS moves a message by itself once it has been received too often, but it cannot say why: the reason is in some worker's
log. A worker that knows sends the message there, with the reason in attributes, and deletes it. The names are those
that EventBridge gives its own dead letters, so that one triage reads both.

Two calls are not one: a worker that dies between them leaves the message in both queues. Nothing is lost, and
``ORIGINAL_MESSAGE_ID`` tells the copies. It is the id of the message that was buried first, and stays for as long as
the work does: a letter that is sent back and buried again is another message, with a newer reason and the same
original. ``LAST_MESSAGE_ID`` is then the one that was buried last.
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
ORIGINAL, LAST, RECEIVES = "ORIGINAL_MESSAGE_ID", "LAST_MESSAGE_ID", "RECEIVE_COUNT"
_MOST_TEXT = 1_000  # characters; the whole story is in the log
_FORBIDDEN = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # what SQS takes no text with

logger = logging.getLogger(__name__)


def reason(message: Message, error: BaseException, *, source: str, trace_id: str = "") -> dict[str, str]:
    """The attributes that say why, the most important first."""
    first = message.attributes.get(ORIGINAL)
    original = first if isinstance(first, str) and first else message.id
    found = {
        CODE: type(error).__name__,
        TEXT: said(error, _MOST_TEXT) or type(error).__name__,
        ORIGINAL: original,
        TRACE: trace_id,
        RECEIVES: str(message.receives),
        SOURCE: source,
        LAST: message.id if message.id != original else "",
    }
    return {name: _FORBIDDEN.sub("\ufffd", value) for name, value in found.items() if value}


def attributes(message: Message, why: Mapping[str, str]) -> dict[str, Any]:
    """The message's own attributes with those of ``why``, as many as SQS still takes; the message's own come first.

    What is there already from an earlier burial takes no further room: it is replaced.
    """
    carried, most = dict(message.wire), int(facts("sqs.message.max_attributes"))
    for name, value in why.items():
        if name in carried or len(carried) < most:
            carried[name] = {"DataType": "String", "StringValue": value}
    return carried


def bury(queue: Queue, message: Message, error: BaseException, *, trace_id: str = "") -> bool:
    """Send ``message`` to the dead-letter queue of ``queue`` with the reason, then delete it. False if it stays.

    It stays where there is no dead-letter queue, no room for the reason (ten other attributes, a body of the largest
    size), or no answer: SQS's own redrive moves it then, without the reason.
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
