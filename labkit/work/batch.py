"""Batch: answer for each message of a batch by itself, the way Lambda's event source mapping for SQS wants it.

Lambda hands a function up to ten messages at once (10,000 from a standard queue, if asked). Left alone, one exception
fails the batch: everything comes back, also what was done. With ``ReportBatchItemFailures`` set on the mapping, the
function's answer names the messages that failed, and Lambda deletes the others::

    {"batchItemFailures": [{"itemIdentifier": "<messageId>"}]}

An empty list is complete success. An answer that Lambda cannot follow fails the whole batch: :func:`check_response`.

On a FIFO queue the records behind a failure matter as well, because Lambda deletes whatever the answer does not name:
a group whose second message failed and whose third was deleted has lost its order. AWS's documentation therefore asks
to stop at the first failure and to return it and everything not yet processed. That is ``on_failure="all"`` here, and
what Powertools' ``SqsFifoPartialProcessor`` does by default. The default here is ``"group"`` (Powertools:
``skip_group_on_error=True``), which keeps the same order: SQS promises one within a group only, and holds a group back
while a message of it is in flight. "all" costs more than time: records of healthy groups come back untried, each
return counts as a receive, and a poison message beside them carries them towards the dead-letter queue.

Nothing of AWS is imported, and of labkit only its errors: a function's package takes this file with it.
"""

from __future__ import annotations

import inspect
import json
import logging
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from labkit.errors import LabError

__all__ = ["AllFailed", "BatchRefused", "BatchResponseError", "Record", "check_response", "process"]

T = TypeVar("T")
Response = dict[str, list[dict[str, str]]]

# What one log line holds of an error: the message of one can repeat a payload of a megabyte.
_MOST_TEXT, _MOST_STACK = 2_000, 10_000


class BatchRefused(LabError):
    """A batch cannot be processed at all: no event of SQS's, or a wrong argument. Every message comes back."""


class AllFailed(BatchRefused):
    """Every record of the batch failed, and the caller asked for an error then. ``response`` is what it would say."""

    def __init__(self, response: Response, first: str) -> None:
        self.response = response
        super().__init__(f"all {len(response['batchItemFailures'])} records failed; the first one: {first}")


class BatchResponseError(BatchRefused):
    """An answer does not say what was meant. ``messages``: what Lambda would do with them, "returned" or "deleted"."""

    def __init__(self, says: str, messages: Literal["returned", "deleted"]) -> None:
        self.messages = messages
        would = {
            "returned": "Lambda would take the batch for failed and return every message",
            "deleted": "Lambda would take the batch for done and delete every message",
        }
        super().__init__(f"{says}: {would[messages]}.")


@dataclass(frozen=True)
class Record:
    """One message of the event.

    ``trace_id`` is the envelope's: the body itself, or the ``detail`` of an event in it. ``receives`` counts
    deliveries, this one included. ``group`` is the message group (fair queues have groups as well as FIFO ones).
    ``attributes`` are the message attributes; ``raw`` is the record as Lambda gave it.
    """

    id: str
    body: str
    trace_id: str | None
    receives: int
    group: str | None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Record:
        """A record from one entry of the event's ``Records``. The body may be anything: :meth:`json` finds out."""
        system, attributes = _mapping(raw.get("attributes")), _mapping(raw.get("messageAttributes"))
        receives = str(system.get("ApproximateReceiveCount", ""))
        return cls(
            id=raw["messageId"],
            body=raw.get("body", ""),
            trace_id=_trace(raw.get("body")),
            receives=int(receives) if receives.isdecimal() else 1,
            group=system.get("MessageGroupId"),
            attributes={name: value.get("stringValue", value.get("binaryValue")) for name, value in attributes.items()},
            raw=raw,
        )

    def json(self) -> Any:
        """The body as JSON. Raises :class:`BatchRefused`, which fails this record alone, when it is none."""
        try:
            return json.loads(self.body)
        except (TypeError, ValueError, RecursionError) as error:
            raise BatchRefused(f"message {self.id} holds no JSON: {error}") from error


class Standard:
    """The records of a standard queue stand alone: each one is tried."""

    def held_by(self, group: str | None, failed: Mapping[str | None, str]) -> str | None:
        """The message that a record of ``group`` must not overtake. ``failed``: group → its first failed message."""
        return None


class StopGroup(Standard):
    """FIFO: a failure holds back what is behind it in its group; the other groups go on."""

    def held_by(self, group: str | None, failed: Mapping[str | None, str]) -> str | None:
        return failed.get(group)


class StopAll(Standard):
    """FIFO, as AWS's documentation puts it: the first failure holds back everything behind it."""

    def held_by(self, group: str | None, failed: Mapping[str | None, str]) -> str | None:
        return next(iter(failed.values()), None)


_FIFO = {"group": StopGroup(), "all": StopAll()}
_LOG = logging.getLogger("labkit.batch")


def process(
    event: Mapping[str, Any],
    handle: Callable[[T], object],
    *,
    parse: Callable[[Mapping[str, Any]], T] = Record.of,  # type: ignore[assignment]  # then T is Record
    fifo: bool | None = None,
    on_failure: Literal["group", "all"] = "group",
    log: Callable[[str], object] = _LOG.error,
    raise_when_all_fail: bool = False,
) -> Response:
    """Handle the records of an SQS event one by one and answer for each: what a Lambda handler returns.

    >>> def handler(event, context):                                              # doctest: +SKIP
    ...     return process(event, lambda record: run(record.json()))

    A record has failed when ``parse`` or ``handle`` raised for it; what they return means nothing. ``parse`` makes of a
    raw record what ``handle`` takes. Failures are reported in the order of the records, and each one is given to
    ``log`` as one line of JSON: message, trace id, receives, error, stack. ``fifo`` is taken from the queue's ARN
    unless told; ``on_failure`` says how far a failure reaches on a FIFO queue (see the module).

    ``raise_when_all_fail`` raises :class:`AllFailed` when nothing succeeded. The messages come back either way; the
    difference is that Lambda then counts an error (its ``Errors`` metric, an alarm on it), while a batch that is
    reported, however bad, counts as a success. Powertools raises by default.

    Raises :class:`BatchRefused`, before the first record, for an event or an argument that makes no sense.
    """
    if on_failure not in _FIFO:
        raise BatchRefused(f"on_failure is {on_failure!r}; it can be 'group' or 'all'.")
    records = _records(event)
    if fifo is None:
        fifo = any(str(raw.get("eventSourceARN", "")).endswith(".fifo") for raw in records)
    order = _FIFO[on_failure] if fifo else Standard()
    failed: dict[str | None, str] = {}  # group → its first failed message
    reported: list[dict[str, str]] = []
    first: Exception | None = None
    for raw in records:
        identifier = raw["messageId"]
        group = _mapping(raw.get("attributes")).get("MessageGroupId")
        before = order.held_by(group, failed)
        if before is None:
            try:
                _finished(handle(parse(raw)))
                continue
            except Exception as error:  # noqa: BLE001 - whatever a handler raises fails its record, and is logged
                first = first or error
                log(_line("record failed", raw, error))
        else:
            log(_line("record not tried", raw, f"message {before} before it failed"))
        failed.setdefault(group, identifier)
        reported.append({"itemIdentifier": identifier})
    response = {"batchItemFailures": reported}
    if raise_when_all_fail and first is not None and len(reported) == len(records):
        raise AllFailed(response, _text(first)) from first
    return response


def check_response(response: T, event: Mapping[str, Any]) -> T:
    """The response, if it says of this event what a partial response can say; for answers that are made by hand.

    Raises :class:`BatchResponseError` with what Lambda would do. Documented: an ``itemIdentifier`` that is empty, null,
    under another name or of no message in the batch returns everything; nothing at all, ``{}`` and a null list delete
    everything, which is right only for a batch that succeeded, and then the answer should say so. Not documented, and
    not verified: another name for ``batchItemFailures`` (read as a list that is not there), and a list that is none.
    """
    known = {raw["messageId"] for raw in _records(event)}
    try:
        json.dumps(response)
    except (TypeError, ValueError, RecursionError) as error:
        raise BatchResponseError(f"the response is not what JSON can hold ({error})", "returned") from error
    if response is None or response == {}:
        raise BatchResponseError("the response is empty, whatever failed", "deleted")
    if not isinstance(response, Mapping):
        raise BatchResponseError(f"the response is no object but {_show(response)}", "returned")
    if response.get("batchItemFailures") is None:
        names = ", ".join(map(repr, response))
        raise BatchResponseError(f"the response has no list batchItemFailures; it has {names}", "deleted")
    listed = response["batchItemFailures"]
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise BatchResponseError(f"batchItemFailures is no list but {_show(listed)}", "returned")
    for index, item in enumerate(listed):
        where = f"batchItemFailures[{index}]"
        if not isinstance(item, Mapping) or "itemIdentifier" not in item:
            raise BatchResponseError(f"{where} has no itemIdentifier; it is {_show(item)}", "returned")
        identifier = item["itemIdentifier"]
        if not isinstance(identifier, str) or not identifier:
            raise BatchResponseError(f"{where}.itemIdentifier is {_show(identifier)}", "returned")
        if identifier not in known:
            raise BatchResponseError(f"{where} names {_show(identifier)}, which is not in this batch", "returned")
    return response


def _records(event: Any) -> list[Mapping[str, Any]]:
    records = event.get("Records") if isinstance(event, Mapping) else None
    if not isinstance(records, list):
        raise BatchRefused("an event from a queue has a list Records; this one has none.")
    for index, raw in enumerate(records):
        # Without an id a failure could not be reported, and the message would be deleted as done.
        if not isinstance(raw, Mapping) or not isinstance(raw.get("messageId"), str) or not raw["messageId"]:
            raise BatchRefused(f"Records[{index}] has no messageId: this is no event from SQS.")
    return records


def _finished(result: object) -> None:
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        # It has not run: to go on would delete the message of work that was never done.
        raise BatchRefused("handle is asynchronous and was not run; give process a plain function.")


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _trace(body: Any) -> str | None:
    """The trace id of the envelope in a body, if there is one; a body may hold anything."""
    try:
        found = _mapping(json.loads(body))
    except (TypeError, ValueError, RecursionError):
        return None
    trace = _mapping(found.get("detail", found)).get("trace_id")
    return trace if isinstance(trace, str) else None


def _text(error: Exception) -> str:
    # traceback's own form: it survives an exception whose __str__ raises.
    return "".join(traceback.format_exception_only(error)).strip()[:_MOST_TEXT]


def _line(what: str, raw: Mapping[str, Any], why: Exception | str) -> str:
    """One line of JSON on a record: what a search through the logs finds by message or by trace."""
    says: dict[str, Any] = {
        "batch": what,
        "message_id": raw["messageId"],
        "trace_id": _trace(raw.get("body")),
        "receives": _mapping(raw.get("attributes")).get("ApproximateReceiveCount"),
        "group": _mapping(raw.get("attributes")).get("MessageGroupId"),
        "error": why if isinstance(why, str) else _text(why),
    }
    if not isinstance(why, str):
        says["stack"] = "".join(traceback.format_exception(why))[-_MOST_STACK:]
    return json.dumps(says)


def _show(value: object) -> str:
    return f"{value!r:.60}"
