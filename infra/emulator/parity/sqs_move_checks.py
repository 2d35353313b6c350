"""What the three actions on message move tasks refuse. Sources: see :mod:`parity.sqs_move_tasks`."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any

from parity import sqs_errors as errors
from parity.sqs_errors import SqsError
from parity.sqs_mailbox import Queue

MAX_RATE = 500
KEPT = 10  # tasks a source queue that ListMessageMoveTasks can show


def read_handle(handle: str) -> tuple[str, str]:
    """Task id and source ARN."""
    try:
        data = json.loads(base64.b64decode(handle, validate=True))
        return str(data["taskId"]), str(data["sourceArn"])
    except (binascii.Error, ValueError, KeyError, TypeError):
        raise SqsError("InvalidParameterValue", "Value for parameter TaskHandle is invalid.") from None


def checked_rate(data: dict[str, Any]) -> int | None:
    """MaxNumberOfMessagesPerSecond, if there is one."""
    if data.get("MaxNumberOfMessagesPerSecond") is None:
        return None
    rate = int(data["MaxNumberOfMessagesPerSecond"])
    if not 1 <= rate <= MAX_RATE:
        reason = f"Must be between 1 and {MAX_RATE}, if provided."
        raise errors.invalid_value("MaxNumberOfMessagesPerSecond", rate, reason)
    return rate


def checked_limit(data: dict[str, Any]) -> int:
    """MaxResults of ListMessageMoveTasks."""
    limit = int(data.get("MaxResults", 1))
    if not 1 <= limit <= KEPT:
        raise errors.invalid_value("MaxResults", limit, f"Must be between 1 and {KEPT}, if provided.")
    return limit


def check_source_arn(arn: str) -> None:
    if len(arn.split(":")) != 6:
        raise SqsError(
            "InvalidParameterValue",
            "You must use this format to specify the SourceArn: "
            "arn:<partition>:<service>:<region>:<account-id>:<resource-id>",
        )


def check_types(target_arn: str, target: Queue, source: Queue) -> None:
    if bool(target["is_fifo"]) != bool(source["is_fifo"]):
        reason = "The destination queue must be of the same type as the source queue."
        raise errors.invalid_value("DestinationArn", target_arn, reason)


def check_running(status: str) -> None:
    """Raise unless a task with this status can be cancelled."""
    if status != "RUNNING":
        text = f"Only a RUNNING message move task can be cancelled. This one is {status}."
        raise SqsError("UnsupportedOperation", text)
