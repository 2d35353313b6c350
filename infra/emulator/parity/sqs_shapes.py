"""The types of SQS's parameters, checked before an action looks at them.

**On AWS** a request is read by its service model first: what is not JSON, or of another type than the model says, is
refused with SerializationException and HTTP 400, and nothing has happened. A ``null`` member of a structure counts as
absent, a member that the model does not know is ignored. (That is how AWS's JSON services answer; not verified on SQS:
the texts, which are ours, and whether SQS converts a number where a text is expected.)

**MiniStack** takes what is not JSON for an empty request, and a wrong type makes it fail with HTTP 500, partly after
messages went in flight.

**Here** every JSON request goes through :func:`read_request`. What an action still cannot read, in either protocol, is
InvalidParameterValue, and logged as an error of the stand-in."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass
from typing import Any

from parity.sqs_errors import SqsError

CODE = "SerializationException"
UNREADABLE = (TypeError, ValueError, KeyError, IndexError, AttributeError, ArithmeticError, RecursionError)
_SURROGATE = re.compile("[\ud800-\udfff]")

logger = logging.getLogger("parity.sqs")


@dataclass(frozen=True)
class Map:
    """A JSON object with names of the caller's own. ``raw``: the action checks the names' characters itself."""

    of: Any
    raw: bool = False


@dataclass(frozen=True)
class Raw:
    """A text whose characters the action checks itself."""


# str, int, Raw; [shape] is a list, a dict a structure.
RAW = Raw()
ATTRIBUTES = Map(
    {"DataType": RAW, "StringValue": RAW, "BinaryValue": RAW, "StringListValues": [RAW], "BinaryListValues": [RAW]},
    raw=True,
)
QUEUE = {"QueueUrl": str}
MESSAGE = {
    "MessageBody": RAW,
    "DelaySeconds": int,
    "MessageAttributes": ATTRIBUTES,
    "MessageSystemAttributes": ATTRIBUTES,
    "MessageDeduplicationId": RAW,
    "MessageGroupId": RAW,
}
CHANGE = {"ReceiptHandle": RAW, "VisibilityTimeout": int}
TAGS = Map(str)

INPUTS: dict[str, dict[str, Any]] = {
    "AddPermission": {**QUEUE, "Label": str, "AWSAccountIds": [str], "Actions": [str]},
    "CancelMessageMoveTask": {"TaskHandle": str},
    "ChangeMessageVisibility": {**QUEUE, **CHANGE},
    "ChangeMessageVisibilityBatch": {**QUEUE, "Entries": [{"Id": RAW, **CHANGE}]},
    "CreateQueue": {"QueueName": str, "Attributes": Map(str), "tags": TAGS, "Tags": TAGS},
    "DeleteMessage": {**QUEUE, "ReceiptHandle": RAW},
    "DeleteMessageBatch": {**QUEUE, "Entries": [{"Id": RAW, "ReceiptHandle": RAW}]},
    "DeleteQueue": QUEUE,
    "GetQueueAttributes": {**QUEUE, "AttributeNames": [str]},
    "GetQueueUrl": {"QueueName": str, "QueueOwnerAWSAccountId": str},
    "ListDeadLetterSourceQueues": {**QUEUE, "NextToken": str, "MaxResults": int},
    "ListMessageMoveTasks": {"SourceArn": str, "MaxResults": int},
    "ListQueueTags": QUEUE,
    "ListQueues": {"QueueNamePrefix": str, "NextToken": str, "MaxResults": int},
    "PurgeQueue": QUEUE,
    "ReceiveMessage": {
        **QUEUE,
        "AttributeNames": [str],
        "MessageSystemAttributeNames": [str],
        "MessageAttributeNames": [str],
        "MaxNumberOfMessages": int,
        "VisibilityTimeout": int,
        "WaitTimeSeconds": int,
        "ReceiveRequestAttemptId": RAW,
    },
    "RemovePermission": {**QUEUE, "Label": str},
    "SendMessage": {**QUEUE, **MESSAGE},
    "SendMessageBatch": {**QUEUE, "Entries": [{"Id": RAW, **MESSAGE}]},
    "SetQueueAttributes": {**QUEUE, "Attributes": Map(str)},
    "StartMessageMoveTask": {"SourceArn": str, "DestinationArn": str, "MaxNumberOfMessagesPerSecond": int},
    "TagQueue": {**QUEUE, "Tags": TAGS},
    "UntagQueue": {**QUEUE, "TagKeys": [str]},
}


def parse(body: bytes) -> dict[str, Any]:
    """The JSON object that a request's body is."""
    try:
        data = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise SqsError(CODE, "The request is not JSON.") from None
    if not isinstance(data, dict):
        raise SqsError(CODE, "The request is not a JSON object.")
    return data


def _no_constant(literal: str) -> None:
    raise ValueError(f"{literal} is not JSON")


def read_request(action: str, data: Any) -> dict[str, Any]:
    """The parameters of ``action``, of the types that they should have."""
    return dict(_read(data, INPUTS.get(action, {}), "The request"))


def _read(value: Any, shape: Any, name: str) -> Any:
    if isinstance(shape, dict):
        _expect(value, dict, name)
        known = ((member, of) for member, of in shape.items() if value.get(member) is not None)
        return {member: _read(value[member], of, member) for member, of in known}
    if isinstance(shape, Map):
        _expect(value, dict, name)
        return {key if shape.raw else _text(key, name): _read(item, shape.of, name) for key, item in value.items()}
    if isinstance(shape, list):
        _expect(value, list, name)
        return [_read(item, shape[0], name) for item in value]
    if shape is int:
        return _whole(value, name)
    _expect(value, str, name)
    return value if shape is RAW else _text(value, name)


_WORDS = {dict: "an object", list: "a list", str: "a text", int: "a whole number", type(None): "null"}


def _expect(value: Any, kind: type, name: str) -> None:
    if not isinstance(value, kind):
        found = _WORDS.get(type(value), type(value).__name__)
        raise SqsError(CODE, f"{name}: {_WORDS[kind]} is expected, not {found}.")


def _whole(value: Any, name: str) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**31) <= value < 2**31:
        raise SqsError(CODE, f"{name}: a whole number of 32 bits is expected.")
    return value


def _text(value: str, name: str) -> str:
    if _SURROGATE.search(value):
        raise SqsError("InvalidParameterValue", f"{name} contains characters outside the allowed set.")
    return value


def install() -> None:
    from ministack.services import sqs

    handle, handle_json, dispatch = sqs.handle_request, sqs._handle_json, sqs._dispatch

    async def checked_request(method: str, path: str, headers: dict, body: bytes, query: dict) -> tuple:
        if body and headers.get("x-amz-target", "").startswith("AmazonSQS."):
            try:
                parse(body)
            except SqsError as error:
                return sqs._json_err_resp(error.code, error.message, error.status)
        return await handle(method, path, headers, body, query)

    async def checked_json(action: str, data: dict[str, Any], path: str) -> tuple:
        try:
            data = read_request(action, data) if action in INPUTS else data
        except SqsError as error:
            return sqs._json_err_resp(error.code, error.message, error.status)
        return await handle_json(action, data, path)

    async def readable(action: str, data: dict[str, Any], url: str) -> dict[str, Any]:
        try:
            return await dispatch(action, data, url)
        except SqsError:
            raise
        except UNREADABLE as error:
            logger.exception("%s cannot read its request", action)
            text = f"A parameter of {action} cannot be read ({type(error).__name__})."
            raise SqsError("InvalidParameterValue", text) from error

    sqs.handle_request, sqs._handle_json, sqs._dispatch = checked_request, checked_json, readable
