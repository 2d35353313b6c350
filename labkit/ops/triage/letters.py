"""Letters: why a message is dead, read from wherever it is said.

Who sets a message aside decides where the reason stands:

===============================  ==============================================================================
who                              where it says why
===============================  ==============================================================================
a rule of EventBridge            attributes ``ERROR_CODE``, ``ERROR_MESSAGE``, ``RULE_ARN``, ``TARGET_ARN``, …
a bus of the second version      a JSON record in the body (``errorCode``, ``targetArn``); the event is not in it
a function's dead-letter queue   attributes ``ErrorCode``, ``ErrorMessage``, ``RequestID``; which function is not said
a function's destination         a JSON record in the body (``requestContext``), with the event in it
a worker (:func:`bury`)          attributes ``ERROR_CODE``, ``ERROR_MESSAGE``, ``SOURCE_QUEUE_ARN``, ``TRACE_ID``, …
SQS, by its redrive policy       nowhere: only the system attribute ``DeadLetterQueueSourceArn``
===============================  ==============================================================================

A *reason* is the code as it stands there. A :class:`Failure` is the class that codes of all writers share: what is to
be done depends on it (:mod:`labkit.ops.triage.remedies`). Sources: AWS docs, eb-rule-dlq, eb-custom-bus-retry,
invocation-async-retain-records.

:func:`bury`: :func:`labkit.work.dead_letters.bury`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from labkit.errors import LabError
from labkit.ops.terminal import one_line
from labkit.ops.triage.masking import masked
from labkit.work.dead_letters import CODE, LAST, ORIGINAL, RECEIVES, SOURCE, TEXT, TRACE
from labkit.work.queues import Message

MOVED = "moved by SQS"  # after too many receives; the reason is in some worker's log
UNKNOWN = "no reason given"
RULE, TARGET = "RULE_ARN", "TARGET_ARN"
MOST_TEXT = 300  # characters of an error text that triage keeps
_MOST_READ = 4_000  # characters of it that are searched for task tokens: none is cut so that its rest looks like text
_MOST_NAME = 2_048  # characters of a code or an ARN


def counted(count: int) -> str:
    """``count`` letters, in words."""
    return f"{count:,} letter{'' if count == 1 else 's'}"


class TriageError(LabError):
    """Triage could not be completed; the sentence says what is still hidden, or what was refused and why."""


class Failure(StrEnum):
    """Classes of failure. The value is the name in tables and after ``--class``."""

    PERMISSION = "no permission"
    MISSING = "resource missing"
    THROTTLED = "throttled"
    TIMED_OUT = "timed out"
    UNREACHABLE = "not reachable"
    REFUSED = "request refused"
    TARGET_FAILED = "target failed"
    WORKER_RAISED = "worker raised"
    MOVED = MOVED
    UNREADABLE = "unreadable"
    UNKNOWN = "unknown"


class Writer(StrEnum):
    """Who set the message aside."""

    RULE = "rule"
    BUS_V2 = "bus, second version"
    FUNCTION = "function's dead-letter queue"
    DESTINATION = "function's destination"
    WORKER = "worker"
    SQS = "SQS"
    NOBODY = "unknown"


# EventBridge's documented codes (fact events.dlq.error_codes.all; the page calls them a sample), and what a bus of the
# second version (ACCESS_DENIED), Lambda's conditions and HTTP statuses say.
CODES: Mapping[str, Failure] = {
    "NO_PERMISSIONS": Failure.PERMISSION,
    "FAILED_TO_ASSUME_ROLE": Failure.PERMISSION,
    "CROSS_ACCOUNT_INGESTION_FAILED": Failure.PERMISSION,
    "CROSS_REGION_INGESTION_FAILED": Failure.PERMISSION,
    "NO_RESOURCE": Failure.MISSING,
    "THROTTLING": Failure.THROTTLED,
    "RESOURCE_LIMIT_EXCEEDED": Failure.THROTTLED,
    "TIMEOUT": Failure.TIMED_OUT,
    "CONNECTION_FAILURE": Failure.UNREACHABLE,
    "INTERNAL_ERROR": Failure.UNREACHABLE,
    "TRANSIENT_ASSUME_ROLE": Failure.UNREACHABLE,
    "RESOURCE_MODIFICATION_COLLISION": Failure.UNREACHABLE,
    "ERROR_FROM_TARGET": Failure.TARGET_FAILED,
    "EVENTS_IN_BATCH_REQUEST_REJECTED": Failure.REFUSED,
    "INVALID_JSON": Failure.REFUSED,
    "INVALID_PARAMETER": Failure.REFUSED,
    "RESOURCE_ALREADY_EXISTS": Failure.REFUSED,
    "SDK_CLIENT_ERROR": Failure.REFUSED,
    "THIRD_ACCOUNT_HOP_DETECTED": Failure.REFUSED,
    "THIRD_REGION_HOP_DETECTED": Failure.REFUSED,
    "UNKNOWN": Failure.UNKNOWN,
}
_BUS_V2 = {**CODES, "ACCESS_DENIED": Failure.PERMISSION}
_STATUS = {
    "200": Failure.TARGET_FAILED,  # the function ran, and raised
    "403": Failure.PERMISSION,
    "404": Failure.MISSING,
    "408": Failure.TIMED_OUT,
    "413": Failure.REFUSED,
    "429": Failure.THROTTLED,
    "502": Failure.TARGET_FAILED,
}
_CONDITIONS = {
    "EventAgeExceeded": Failure.THROTTLED,  # it waited for a free place, or for a function that works, until too late
    "RetriesExhausted": Failure.TARGET_FAILED,
}

# What each writer adds: taken off again before a letter is sent back.
REASONS: Mapping[Writer, frozenset[str]] = {
    Writer.RULE: frozenset({RULE, TARGET, CODE, TEXT, "EXHAUSTED_RETRY_CONDITION", "RETRY_ATTEMPTS"}),
    Writer.FUNCTION: frozenset({"RequestID", "ErrorCode", "ErrorMessage"}),
    Writer.WORKER: frozenset({CODE, TEXT, SOURCE, TRACE, RECEIVES, LAST}),
}


@dataclass(frozen=True, slots=True)
class Letter:
    """What triage keeps of one dead letter: why it is there, where it came from, and its age. Not its body.

    ``source``: ARN of the queue, rule, bus or function that it comes from, "" where nobody says. ``target``: ARN that
    it could not be brought to. ``original``: the id under which this work was first set aside; doubles share it.
    ``text``: what the error said, without task tokens (:func:`~labkit.ops.triage.masking.masked`).
    """

    id: str
    reason: str
    source: str
    sent_at: float  # epoch seconds of the first send, from which retention counts on a standard queue
    receives: int
    failure: Failure = Failure.UNKNOWN
    writer: Writer = Writer.NOBODY
    text: str = ""
    target: str = ""
    original: str = ""

    @classmethod
    def of(cls, message: Message) -> Letter:
        """Read ``message``. Never raises: what cannot be read is a class of its own."""
        why = _why(message)
        return cls(
            id=message.id,
            reason=one_line(why.reason, _MOST_NAME) or UNKNOWN,
            source=one_line(why.source, _MOST_NAME),
            sent_at=message.sent_at,
            receives=message.receives,
            failure=why.failure,
            writer=why.writer,
            text=masked(why.text[:_MOST_READ], MOST_TEXT),
            target=one_line(why.target, _MOST_NAME),
            original=_text(message.attributes, ORIGINAL) or message.id,
        )


@dataclass(frozen=True, slots=True)
class _Why:
    reason: str
    failure: Failure
    writer: Writer
    source: str = ""
    text: str = ""
    target: str = ""


def _text(attributes: Mapping[str, str | bytes], name: str) -> str:
    """A text attribute; "" where there is none, or where it is binary: no writer of reasons writes bytes."""
    value = attributes.get(name, "")
    return value if isinstance(value, str) else ""


def _why(message: Message) -> _Why:
    attributes = message.attributes
    if moved_from := message.system.get("DeadLetterQueueSourceArn", ""):
        # First, since SQS keeps what is on the message: a reason there is an older failure's.
        old = _text(attributes, CODE)
        return _Why(MOVED, Failure.MOVED, Writer.SQS, moved_from, f"carries an older reason: {old}" if old else "")
    if code := _text(attributes, CODE):
        text = _text(attributes, TEXT)
        if rule := _text(attributes, RULE):
            failure = CODES.get(code, Failure.UNKNOWN)
            return _Why(code, failure, Writer.RULE, rule, text, _text(attributes, TARGET))
        source = _text(attributes, SOURCE)
        if not source and code in CODES:  # a rule's name for it, whoever wrote it
            return _Why(code, CODES[code], Writer.NOBODY, "", text)
        return _Why(code, Failure.WORKER_RAISED, Writer.WORKER, source, text)
    if code := _text(attributes, "ErrorCode"):
        text = _text(attributes, "ErrorMessage")
        return _Why(code, _by_status(code, text), Writer.FUNCTION, "", text)
    return _from_body(message.body) or _Why(UNKNOWN, Failure.UNKNOWN, Writer.NOBODY)


def _by_status(code: str, text: str) -> Failure:
    if "timed out" in text.lower():
        return Failure.TIMED_OUT
    if code in _STATUS:
        return _STATUS[code]
    return Failure.UNREACHABLE if code.startswith("5") else Failure.UNKNOWN


def _from_body(body: str) -> _Why | None:
    try:  # a bus of the second version, a function's destination: a record in the body, and no attributes
        record: Any = json.loads(body)
    except (ValueError, RecursionError):
        return _Why(UNKNOWN, Failure.UNREADABLE, Writer.NOBODY)
    if not isinstance(record, dict):
        return None
    context, code = record.get("requestContext"), record.get("errorCode")
    if isinstance(code, str) and code:
        failure = _BUS_V2.get(code, Failure.UNKNOWN)
        bus, text, target = (_string(record, name) for name in ("subscriberArn", "errorMessage", "targetArn"))
        return _Why(code, failure, Writer.BUS_V2, bus or _string(record, "busArn"), text, target)
    if isinstance(context, dict) and isinstance(condition := context.get("condition"), str):
        answer = record.get("responsePayload")
        answer = answer if isinstance(answer, dict) else {}
        says = [_string(answer, name) for name in ("errorType", "errorMessage")]
        text = ": ".join(part for part in says if part)
        failure = _CONDITIONS.get(condition, Failure.UNKNOWN)
        if failure is Failure.TARGET_FAILED and ("Sandbox.Timedout" in says[0] or "timed out" in says[1].lower()):
            failure = Failure.TIMED_OUT
        function = _string(context, "functionArn")
        return _Why(condition, failure, Writer.DESTINATION, function, text, function)
    return None


def _string(record: Mapping[str, Any], name: str) -> str:
    value = record.get(name)
    return value if isinstance(value, str) else ""
