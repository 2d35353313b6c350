"""The errors of SQS: codes, texts and HTTP status, in one place.

``code`` is the shape's name in the JSON protocol, or one of the two codes that have no shape of their own
(``InvalidParameterValue``, ``MissingParameter``). :mod:`parity.sqs_wire` turns it into what each protocol shows.

Texts were recorded on AWS or quoted from AWS in public, unless a function says "not verified".
"""

from __future__ import annotations


class SqsError(Exception):
    """A refused SQS call. Also takes the place of MiniStack's own error class, so that its callers catch both."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


def invalid_value(parameter: str, value: object, reason: str) -> SqsError:
    return SqsError("InvalidParameterValue", f"Value {value} for parameter {parameter} is invalid. Reason: {reason}")


def missing(parameter: str) -> SqsError:
    return SqsError("MissingParameter", f"The request must contain the parameter {parameter}.")


def no_such_resource(parameter: str) -> SqsError:
    return SqsError(
        "ResourceNotFoundException",
        f"The resource that you specified for the {parameter} parameter doesn't exist.",
        404,
    )


def illegal_handle(handle: str) -> SqsError:
    """The HTTP status is not verified: 404 is what the Query API has been seen to answer, the model says 400."""
    return SqsError("ReceiptHandleIsInvalid", f'The input receipt handle "{handle}" is not a valid receipt handle.')


def expired_handle(handle: str) -> SqsError:
    return invalid_value("ReceiptHandle", handle, "The receipt handle has expired.")


def not_available(handle: str) -> SqsError:
    return invalid_value(
        "ReceiptHandle", handle, "Message does not exist or is not available for visibility timeout change."
    )


def beyond_total(seconds: int, limit: int) -> SqsError:
    return invalid_value(
        "VisibilityTimeout", seconds, f"Total VisibilityTimeout for the message is beyond the limit [{limit} seconds]"
    )


def over_limit(name: str, cap: int) -> SqsError:
    """Code as documented; the text and the status 403 are not verified."""
    return SqsError("OverLimit", f"Queue {name} has {cap} messages in flight, which is its limit.", 403)
