"""How SQS puts an error on the wire.

**On AWS** (Developer Guide, "Amazon SQS JSON protocol"; responses recorded on AWS): in the JSON protocol the body's
``__type`` is ``com.amazonaws.sqs#<Shape>`` and the header ``x-amzn-query-error`` carries the code of the older Query
protocol, which SDKs show as ``Error.Code``. Two codes have shapes outside the service model
(``InvalidParameterValueException``, ``MissingRequiredParameterException``). The text for a missing queue differs
between the protocols.

**MiniStack** has no shape for those two, no namespace in ``__type``, and one text for both protocols.

**Here** the two functions that build error responses are replaced, and so is the error class, by
:class:`parity.sqs_errors.SqsError`.
"""

from __future__ import annotations

import json
import uuid
from xml.sax.saxutils import escape

from parity.sqs_errors import SqsError

NAMESPACE = "com.amazonaws.sqs"
PREFIX = "AWS.SimpleQueueService."
PREFIXED = {
    "BatchEntryIdsNotDistinct",
    "BatchRequestTooLong",
    "EmptyBatchRequest",
    "InvalidBatchEntryId",
    "MessageNotInflight",
    "PurgeQueueInProgress",
    "QueueDeletedRecently",
    "TooManyEntriesInBatchRequest",
    "UnsupportedOperation",
}
QUERY_CODES = {"QueueDoesNotExist": f"{PREFIX}NonExistentQueue", "QueueNameExists": "QueueAlreadyExists"}
SHAPES = {
    "InvalidParameterValue": "InvalidParameterValueException",
    "MissingParameter": "MissingRequiredParameterException",
}
MISSING_QUEUE = "The specified queue does not exist."
MISSING_QUEUE_IN_QUERY = "The specified queue does not exist for this wsdl version."

Response = tuple[int, dict[str, str], bytes]


def query_code(code: str) -> str:
    return QUERY_CODES.get(code) or (PREFIX + code if code in PREFIXED else code)


def _text(code: str, message: str, *, query: bool) -> str:
    if code == "QueueDoesNotExist" and message in (MISSING_QUEUE, MISSING_QUEUE_IN_QUERY):
        return MISSING_QUEUE_IN_QUERY if query else MISSING_QUEUE
    return message


def _fault(status: int) -> str:
    return "Sender" if status < 500 else "Receiver"


def json_error(code: str, message: str, status: int = 400) -> Response:
    shape = SHAPES.get(code, code)
    headers = {
        "Content-Type": "application/x-amz-json-1.0",
        "x-amzn-query-error": f"{query_code(code)};{_fault(status)}",
    }
    namespace = "com.amazon.coral.service" if code == "SerializationException" else NAMESPACE
    body = {"__type": f"{namespace}#{shape}", "message": _text(code, message, query=False)}
    return status, headers, json.dumps(body).encode()


def xml_error(code: str, message: str, status: int = 400) -> Response:
    body = (
        '<?xml version="1.0"?>'
        '<ErrorResponse xmlns="http://queue.amazonaws.com/doc/2012-11-05/">'
        f"<Error><Type>{_fault(status)}</Type><Code>{escape(query_code(code))}</Code>"
        f"<Message>{escape(_text(code, message, query=True))}</Message><Detail/></Error>"
        f"<RequestId>{uuid.uuid4()}</RequestId></ErrorResponse>"
    )
    return status, {"Content-Type": "text/xml"}, body.encode()


def install() -> None:
    from ministack.services import sqs

    for name, replacement in (("_json_err_resp", json_error), ("_xml_err_resp", xml_error), ("_Err", SqsError)):
        getattr(sqs, name)
        setattr(sqs, name, replacement)
