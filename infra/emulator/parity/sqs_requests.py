"""What SQS refuses before it looks at the queue's messages, with AWS's texts.

**On AWS** parameters out of range, oversized or empty bodies, bad ids and malformed batches are refused; a batch is
refused as a whole for its form (number and ids of entries, total size, a FIFO entry without group or deduplication id)
and entry by entry for the rest. The texts were recorded on AWS, except the one for a DelaySeconds out of range and the
one for an empty batch.

**MiniStack** measures the body without its attributes, has other texts for some, and checks fewer parameters.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from parity import sqs_errors as errors
from parity.sqs_attributes import (
    FORBIDDEN,
    check_attributes,
    check_system_attributes,
    size_of_attributes,
    size_of_text,
)
from parity.sqs_errors import SqsError

MAX_ENTRIES = 10
MAX_BATCH_BYTES = 1_048_576
_ENTRY_ID = re.compile(r"[A-Za-z0-9_-]{1,80}")
_TOKEN = re.compile(r"[!-~]{1,128}")  # letters, digits and punctuation; no space

Data = Mapping[str, Any]

logger = logging.getLogger("parity.sqs")


def integer(data: Data, name: str, default: int, low: int, high: int, reason: str) -> int:
    """The parameter ``name`` as a number in ``low`` … ``high``, ``default`` when it is absent."""
    given = data.get(name)
    if given is None:
        return default
    try:
        number = int(given)
    except (TypeError, ValueError):
        raise errors.invalid_value(name, given, reason) from None
    if not low <= number <= high:
        raise errors.invalid_value(name, given, reason)
    return number


def max_messages(data: Data) -> int:
    return integer(data, "MaxNumberOfMessages", 1, 1, 10, "Must be between 1 and 10, if provided.")


def wait_seconds(data: Data, default: int) -> int:
    return integer(data, "WaitTimeSeconds", default, 0, 20, "Must be >= 0 and <= 20, if provided.")


def visibility(data: Data, default: int) -> int:
    """Recorded for ReceiveMessage; that ChangeMessageVisibility has the same text is not verified."""
    return integer(data, "VisibilityTimeout", default, 0, 43_200, "Must be >= 0 and <= 43200, if provided.")


def delay_seconds(data: Data, default: int, *, fifo: bool) -> int:
    """A FIFO queue takes no delay from the message: 0 is accepted, and the queue's own delay counts all the same."""
    if fifo:
        reason = "The request include parameter that is not valid for this queue type."
        integer(data, "DelaySeconds", 0, 0, 0, reason)
        return default
    return integer(data, "DelaySeconds", default, 0, 900, "DelaySeconds must be >= 0 and <= 900.")


def token(data: Data, name: str) -> str | None:
    """A MessageGroupId, MessageDeduplicationId or ReceiveRequestAttemptId: 1 to 128 letters, digits, punctuation."""
    value = data.get(name)
    if value is not None and not _TOKEN.fullmatch(value):
        reason = f"{name} can only include alphanumeric and punctuation characters. 1 to 128 in length."
        raise errors.invalid_value(name, value, reason)
    return value


def size_of(data: Data) -> int:
    """Bytes of a message that count against the limit: the body, and name, type and value of each attribute."""
    return size_of_text(data.get("MessageBody")) + size_of_attributes(data.get("MessageAttributes") or {})


def check_message(data: Data, max_size: int, *, in_batch: bool) -> None:
    """Body and attributes of one message."""
    body = data.get("MessageBody")
    if not body:
        raise errors.missing("MessageBody")
    if FORBIDDEN.search(body):
        raise SqsError("InvalidMessageContents", "The message contains characters outside the allowed set.")
    check_attributes(data.get("MessageAttributes") or {})
    check_system_attributes(data.get("MessageSystemAttributes") or {})
    if size_of(data) > max_size:
        verdict = "cannot be validated" if in_batch else "are invalid"
        text = f"One or more parameters {verdict}. Reason: Message must be shorter than {max_size} bytes."
        raise SqsError("InvalidParameterValue", text)


def check_fifo(data: Data, *, content_based: bool, in_batch: bool) -> None:
    """A FIFO message needs a group, and something to deduplicate by. In a batch the whole request is refused."""
    if data.get("MessageGroupId") is None:
        error = errors.missing("MessageGroupId")
        raise SqsError("InvalidParameterValue", error.message) if in_batch else error
    if data.get("MessageDeduplicationId") is None and not content_based:
        raise SqsError(
            "InvalidParameterValue",
            "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided "
            "explicitly",
        )


def check_send(data: Data, *, max_size: int, queue_delay: int, fifo: bool, content_based: bool, in_batch: bool) -> int:
    """Raise unless a queue may be sent this message. Returns the seconds that it is delayed."""
    check_message(data, max_size, in_batch=in_batch)
    for name in ("MessageGroupId", "MessageDeduplicationId"):
        token(data, name)
    delay = delay_seconds(data, queue_delay, fifo=fifo)
    if fifo:
        check_fifo(data, content_based=content_based, in_batch=in_batch)
    return delay


def deduplication_id(data: Data) -> str:
    return data.get("MessageDeduplicationId") or hashlib.sha256(data["MessageBody"].encode()).hexdigest()


def check_batch(entries: Sequence[Data], entry_name: str) -> None:
    """The form of a batch: how many entries, and their ids."""
    if not entries:
        raise SqsError("EmptyBatchRequest", f"There should be at least one {entry_name} in the request.")
    if len(entries) > MAX_ENTRIES:
        text = f"Maximum number of entries per request are {MAX_ENTRIES}. You have sent {len(entries)}."
        raise SqsError("TooManyEntriesInBatchRequest", text)
    seen: set[str] = set()
    for entry in entries:
        name = entry.get("Id") or ""
        if not _ENTRY_ID.fullmatch(name):
            raise SqsError(
                "InvalidBatchEntryId",
                "A batch entry id can only contain alphanumeric characters, hyphens and underscores. "
                "It can be at most 80 letters long.",
            )
        if name in seen:
            raise SqsError("BatchEntryIdsNotDistinct", f"Id {name} repeated.")
        seen.add(name)


def check_batch_size(entries: Sequence[Data]) -> None:
    """All messages of a batch together: 1 MiB, whatever the queue's own maximum."""
    total = sum(size_of(entry) for entry in entries)
    if total > MAX_BATCH_BYTES:
        text = f"Batch requests cannot be longer than {MAX_BATCH_BYTES} bytes. You have sent {total} bytes."
        raise SqsError("BatchRequestTooLong", text)


def batch_result(done: list[dict[str, Any]], failed: list[dict[str, Any]]) -> dict[str, Any]:
    """A batch response: a list without members is left out."""
    return {name: members for name, members in (("Successful", done), ("Failed", failed)) if members}


def batch_error(entry: Data, error: SqsError) -> dict[str, Any]:
    """How a batch reports a failed entry. What a single call calls an invalid parameter because the handle is too old,
    a batch has been seen to call ReceiptHandleIsInvalid, without the handle in the text."""
    code, message = error.code, error.message
    if message.endswith("The receipt handle has expired."):
        code, message = "ReceiptHandleIsInvalid", "The receipt handle has expired"
    return {"Id": entry.get("Id", ""), "SenderFault": True, "Code": code, "Message": message}


def internal_error(entry: Data) -> dict[str, Any]:
    """How a batch reports an entry that the service itself could not handle; code and text are not verified."""
    text = "An internal error occurred. The entry has not been handled; try it again."
    return {"Id": entry.get("Id", ""), "SenderFault": False, "Code": "InternalError", "Message": text}


def answer_each(entries: Iterable[Data], act: Callable[[Any], dict[str, Any]]) -> dict[str, Any]:
    """The answer to a batch, of which ``act`` does one entry."""
    done: list[dict[str, Any]] = []
    failed: list[dict[str, Any]] = []
    for entry in entries:
        try:
            done.append({"Id": entry["Id"], **act(entry)})
        except SqsError as error:
            failed.append(batch_error(entry, error))
        except Exception:  # the entries before it are done: the caller must hear of them, or would repeat them
            logger.exception("the entry %r of a batch broke", entry["Id"])
            failed.append(internal_error(entry))
    return batch_result(done, failed)
