"""What the rows of AgentCore begin with: a memory, something that is said in it, something that is known.

made = memory(aws)
say(aws, made, "hello", AT + 1)
remember(aws, made, ("/actors/ann/", "Ann drinks tea"))
"""

from __future__ import annotations

import datetime
import time
from typing import Any

import pytest
from botocore.exceptions import ClientError

from .conftest import Aws

MODEL = "botocore: bedrock-agentcore service model"
CONTROL = "botocore: bedrock-agentcore-control service model"
GUIDE = "AWS documentation: AgentCore Developer Guide"
CAPTURED = "captured on AWS: floci-io/floci#3556"
SDK = "AWS's own SDK: bedrock-agentcore-sdk-python"

INVALID, MISSING = "ValidationException", "ResourceNotFoundException"
AT = 1_789_300_800.0  # a moment, in epoch seconds
WHO = {"actorId": "ann", "sessionId": "conversation-8842"}


def refused(call: Any, **arguments: Any) -> str:
    with pytest.raises(ClientError) as raised:
        call(**arguments)
    return str(raised.value.response["Error"]["Code"])


def memory(aws: Aws, name: str = "support", **more: Any) -> str:
    """The id of a new memory, once it is ACTIVE."""
    control = aws.client("bedrock-agentcore-control")
    made = control.create_memory(name=name, eventExpiryDuration=30, **more)["memory"]["id"]
    end = time.monotonic() + 300
    while control.get_memory(memoryId=made)["memory"]["status"] == "CREATING" and time.monotonic() < end:
        time.sleep(1.0)
    return str(made)


def turn(text: str, role: str = "USER") -> list[dict[str, Any]]:
    return [{"conversational": {"role": role, "content": {"text": text}}}]


def say(aws: Aws, memory_id: str, text: str, at: float = AT, **more: Any) -> dict[str, Any]:
    moment = datetime.datetime.fromtimestamp(at, datetime.UTC)
    given = {"memoryId": memory_id, **WHO, "eventTimestamp": moment, "payload": turn(text), **more}
    event: dict[str, Any] = aws.client("bedrock-agentcore").create_event(**given)["event"]
    return event


def texts(events: list[dict[str, Any]]) -> list[str]:
    return [event["payload"][0]["conversational"]["content"]["text"] for event in events]


def remember(aws: Aws, memory_id: str, *records: tuple[str, str], **more: Any) -> dict[str, Any]:
    """BatchCreateMemoryRecords, with pairs of namespace and text."""
    entries = [
        {"requestIdentifier": str(number), "namespaces": [where], "content": {"text": text}, "timestamp": AT}
        for number, (where, text) in enumerate(records)
    ]
    answer: dict[str, Any] = aws.client("bedrock-agentcore").batch_create_memory_records(
        memoryId=memory_id, records=entries, **more
    )
    return answer


def known(aws: Aws, memory_id: str, expected: int, **where: Any) -> list[str]:
    """The texts of the records there, once there are so many: AWS does not promise that they are seen at once."""
    data, end = aws.client("bedrock-agentcore"), time.monotonic() + 60
    while True:
        found = data.list_memory_records(memoryId=memory_id, **where)["memoryRecordSummaries"]
        if len(found) >= expected or time.monotonic() > end:
            return sorted(record["content"]["text"] for record in found)
        time.sleep(0.5)
