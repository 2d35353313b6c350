"""When Lambda tries an asynchronous event again, when it gives it up, and what it says about it then.

**On AWS** a function error is retried after one minute and once more after two, unless ``MaximumRetryAttempts`` (0 to
2) says less. A throttled attempt and an error of the service do not count as attempts: they are retried for as long as
the event is young enough, after 1 s at first and up to 5 min later on. ``MaximumEventAgeInSeconds`` is 60 s to 6 h, the
default 6 h. An event whose next attempt would come too late is given up at once; one for a function with a reserved
concurrency of 0 is not tried at all. (Lambda Developer Guide, "How Lambda handles errors and retries with asynchronous
invocation"; recorded on AWS: the invocation records, the give-up that does not wait, the condition
ZeroReservedConcurrency.)

**MiniStack** waits for one and two seconds, forgets an event that is too old without a word, gives a throttled event up
like a failed one, and writes the same record, with three attempts, whatever happened.

**Here** is the arithmetic; :mod:`parity.lambda_attempts` is what uses it. Throttled attempts wait for 1, 2, 4 … 256 and
then 300 s: AWS publishes the bounds only. Not verified: the ErrorCode of an event that has never run (here 429).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

DEFAULT_RETRIES = 2
DEFAULT_AGE = 21_600
FUNCTION_ERROR_WAITS = (60.0, 120.0)
LONGEST_THROTTLE_WAIT = 300.0

SUCCESS = "Success"
RETRIES_EXHAUSTED = "RetriesExhausted"
AGE_EXCEEDED = "EventAgeExceeded"
ZERO_CONCURRENCY = "ZeroReservedConcurrency"


@dataclass(frozen=True)
class RetryPolicy:
    """How often a function error is retried, and until which age of the event in seconds."""

    retries: int = DEFAULT_RETRIES
    age: float = DEFAULT_AGE

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> RetryPolicy:
        """The policy of an event invoke config, whose members may be absent."""
        return cls(
            config.get("MaximumRetryAttempts", DEFAULT_RETRIES), config.get("MaximumEventAgeInSeconds", DEFAULT_AGE)
        )


@dataclass(frozen=True)
class Step:
    """What follows an attempt that was no success: another one after ``wait`` seconds, or the end with a condition."""

    wait: float = 0.0
    condition: str | None = None


def after_function_error(policy: RetryPolicy, *, errors: int, age: float) -> Step:
    """Decide after the function has failed for the ``errors``-th time."""
    if errors > policy.retries:
        return Step(condition=RETRIES_EXHAUSTED)
    return _within(policy, FUNCTION_ERROR_WAITS[min(errors, len(FUNCTION_ERROR_WAITS)) - 1], age)


def after_throttle(policy: RetryPolicy, *, throttles: int, age: float) -> Step:
    """Decide after the event could not be given to the function for the ``throttles``-th time."""
    return _within(policy, min(LONGEST_THROTTLE_WAIT, 2.0 ** min(throttles - 1, 32)), age)


def _within(policy: RetryPolicy, wait: float, age: float) -> Step:
    return Step(wait) if age + wait < policy.age else Step(condition=AGE_EXCEEDED)


@dataclass(frozen=True)
class Response:
    """What an invocation has answered."""

    payload: Any
    function_error: str | None = None


def invocation_record(
    *,
    moment: str,
    request_id: str,
    function_arn: str,
    version: str,
    condition: str,
    invocations: int,
    event: Any,
    response: Response | None,
) -> dict[str, Any]:
    """The JSON document that goes to a destination. ``response`` is None when the function has never run."""
    record: dict[str, Any] = {
        "version": "1.0",
        "timestamp": moment,
        "requestContext": {
            "requestId": request_id,
            "functionArn": function_arn,
            "condition": condition,
            "approximateInvokeCount": invocations,
        },
        "requestPayload": event,
    }
    if response is not None:
        context: dict[str, Any] = {"statusCode": 200, "executedVersion": version}
        if response.function_error:
            context["functionError"] = response.function_error
        record |= {"responseContext": context, "responsePayload": response.payload}
    return record


def dead_letter_attributes(request_id: str, response: Response | None) -> dict[str, dict[str, str]]:
    """The message attributes of an event in a dead-letter queue. The event itself is the body, without a record."""
    payload = response.payload if response else None
    message = str(payload.get("errorMessage", "")) if isinstance(payload, Mapping) else ""
    attributes = {
        "RequestID": {"DataType": "String", "StringValue": request_id},
        "ErrorCode": {"DataType": "Number", "StringValue": "200" if response else "429"},
    }
    if message:
        attributes["ErrorMessage"] = {"DataType": "String", "StringValue": first_kilobyte(message)}
    return attributes


def first_kilobyte(text: str) -> str:
    return text.encode(errors="replace")[:1024].decode(errors="ignore")
