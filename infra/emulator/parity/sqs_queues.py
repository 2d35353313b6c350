"""Names and attributes of queues, and lists of them: what CreateQueue and its neighbours refuse.

**On AWS**

* a name has 1 to 80 letters, digits, ``-`` and ``_`` (API reference CreateQueue). Recorded: FifoQueue and a name that
  ends in ``.fifo``, which counts among the 80, go together; one without the other is InvalidParameterValue. The texts
  are LocalStack's, not recorded.
* an attribute that is unknown, read-only or not for this type of queue is InvalidAttributeName (recorded in
  CreateQueue, SetQueueAttributes, GetQueueAttributes), and a queue's type does not change (recorded).
* MaxResults is 1 to 1000 (API reference ListQueues). A NextToken that no call gave is refused; code and text are not
  verified.

**MiniStack** takes any name, stores any attribute, and fails with HTTP 500 for a NextToken of letters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from parity import sqs_errors as errors
from parity.sqs_errors import SqsError

MAX_RESULTS = 1000
SETTABLE = frozenset(
    {
        "DelaySeconds",
        "KmsDataKeyReusePeriodSeconds",
        "KmsMasterKeyId",
        "MaximumMessageSize",
        "MessageRetentionPeriod",
        "Policy",
        "ReceiveMessageWaitTimeSeconds",
        "RedriveAllowPolicy",
        "RedrivePolicy",
        "SqsManagedSseEnabled",
        "VisibilityTimeout",
    }
)
HIGH_THROUGHPUT = frozenset({"DeduplicationScope", "FifoThroughputLimit"})
FIFO_ONLY = HIGH_THROUGHPUT | {"ContentBasedDeduplication", "FifoQueue"}
READ_ONLY = frozenset(
    {
        "ApproximateNumberOfMessages",
        "ApproximateNumberOfMessagesDelayed",
        "ApproximateNumberOfMessagesNotVisible",
        "CreatedTimestamp",
        "LastModifiedTimestamp",
        "QueueArn",
    }
)
READABLE = SETTABLE | FIFO_ONLY | READ_ONLY | {"All"}
_NAME = re.compile(r"[A-Za-z0-9_-]{1,80}")
_FIFO_NAME = re.compile(r"[A-Za-z0-9_-]{1,75}\.fifo")


def asks_for_fifo(attributes: Mapping[str, Any]) -> bool:
    return str(attributes.get("FifoQueue", "")).lower() == "true"


def check_name(name: str, *, fifo: bool) -> None:
    """Raise unless a queue of this type may have this name."""
    rule = "only include alphanumeric characters, hyphens, or underscores"
    if fifo and not _FIFO_NAME.fullmatch(name):
        text = f"The name of a FIFO queue can {rule}, must end with .fifo suffix and be 1 to 80 in length"
        raise SqsError("InvalidParameterValue", text)
    if not fifo and not _NAME.fullmatch(name):
        raise SqsError("InvalidParameterValue", f"Can {rule}. 1 to 80 in length")


def unknown(name: str) -> SqsError:
    return SqsError("InvalidAttributeName", f"Unknown Attribute {name}.")


def check_settable(names: Iterable[str], *, fifo: bool) -> None:
    """Raise unless a queue of this type can be given all these attributes."""
    for name in names:
        if name in SETTABLE or (fifo and name in FIFO_ONLY):
            continue
        if name in HIGH_THROUGHPUT:
            text = f"You can specify the {name} only when FifoQueue is set to true."
            raise SqsError("InvalidAttributeName", text)
        raise unknown(name)


def check_readable(names: Iterable[str]) -> None:
    for name in names:
        if name not in READABLE:
            raise unknown(name)


def page_limit(given: Any) -> int | None:
    """MaxResults of a list of queues, or None when the caller wants what there is."""
    if given is None:
        return None
    try:
        limit = int(given)
    except ValueError:
        limit = 0
    if not 1 <= limit <= MAX_RESULTS:
        raise errors.invalid_value("MaxResults", given, f"Must be between 1 and {MAX_RESULTS}, if provided.")
    return limit


def page_start(token: str | None) -> int:
    """Where the page of a NextToken starts."""
    if not token:
        return 0
    if not (token.isascii() and token.isdigit() and len(token) <= 9):
        raise SqsError("InvalidParameterValue", "Invalid or expired next token.")
    return int(token)


def page(items: list[str], limit: int | None, token: str | None) -> tuple[list[str], str | None]:
    """One page of a list, and the token of the next one. Without a limit there is no next one."""
    start = page_start(token)
    if limit is None:
        return items[start : start + MAX_RESULTS], None
    more = start + limit < len(items)
    return items[start : start + limit], str(start + limit) if more else None


def install() -> None:
    from ministack.services import sqs

    create, change = sqs._HANDLERS["CreateQueue"], sqs._HANDLERS["SetQueueAttributes"]
    describe, show = sqs._HANDLERS["GetQueueAttributes"], sqs._HANDLERS["ListQueues"]

    def create_queue(data: dict[str, Any], url: str) -> dict[str, Any]:
        if not data.get("QueueName"):
            raise errors.missing("QueueName")
        attributes = data.get("Attributes") or {}
        fifo = asks_for_fifo(attributes)
        check_name(data["QueueName"], fifo=fifo)
        check_settable(attributes, fifo=fifo)
        return create(data, url)

    def set_queue_attributes(data: dict[str, Any], url: str) -> dict[str, Any]:
        queue = sqs._get_q(data.get("QueueUrl") or url, "sqs:SetQueueAttributes")
        attributes = data.get("Attributes") or {}
        check_settable(attributes, fifo=queue["is_fifo"])
        if "FifoQueue" in attributes and not asks_for_fifo(attributes):
            reason = "Modifying queue type is not supported."
            raise SqsError("InvalidAttributeValue", f"Invalid value for the parameter FifoQueue. Reason: {reason}")
        return change(data, url)

    def get_queue_attributes(data: dict[str, Any], url: str) -> dict[str, Any]:
        check_readable(data.get("AttributeNames") or [])
        return describe(data, url)

    def list_queues(data: dict[str, Any], url: str) -> dict[str, Any]:
        page_limit(data.get("MaxResults"))
        page_start(data.get("NextToken"))
        return show(data, url)

    sqs._HANDLERS["CreateQueue"] = sqs._act_create_queue = create_queue
    sqs._HANDLERS["SetQueueAttributes"] = sqs._act_set_queue_attributes = set_queue_attributes
    sqs._HANDLERS["GetQueueAttributes"] = sqs._act_get_queue_attributes = get_queue_attributes
    sqs._HANDLERS["ListQueues"] = sqs._act_list_queues = list_queues
