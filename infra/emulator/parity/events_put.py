"""PutEvents: what is refused whole, what is refused entry by entry, what becomes of the time.

**On AWS** a request of 0 or more than 10 entries, or whose entries measure 1 MB or more, is refused as a whole. An
entry without Source, DetailType or Detail, with a Detail that is not a JSON object, or with a source that belongs to
AWS fails alone: the answer is 200, in the order of the request, with FailedEntryCount. A bus that does not exist is
no error: the event gets an id and is gone. ``Time`` is what the target sees, in whole seconds. (Recorded: the missing
members, the malformed details, the size when the limit was 256 KB, the eleventh entry, the missing bus, the time.
Documented: the limits, the arithmetic of sizes, 128 characters of DetailType. Not verified: the texts for 0 entries
and for a long DetailType. Neither is what AWS does with half of a UTF-16 surrogate pair: here, escaped or not, it is
MalformedDetail in a Detail and InvalidArgument elsewhere; nor with a number beyond a double, such as 1e999: here
MalformedDetail, like NaN and Infinity.)

**MiniStack** accepts everything but an eleventh entry and an AWS source, ignores ``Time``, keeps every event that it
ever saw in memory, and fails with HTTP 500 for a member of the wrong type.

**Here** PutEvents is replaced. A member of the wrong type is SerializationException.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

MAX_ENTRIES = 10
MAX_BYTES = 1_048_576  # the total must stay below it
TIME_BYTES = 14
MAX_DETAIL_TYPE = 128
TEXTS = ("Source", "DetailType", "Detail", "EventBusName", "TraceHeader")
YEAR_1, YEAR_10000 = -62_135_596_800, 253_402_300_800  # what a time can be written for
_SURROGATE = re.compile("[\ud800-\udfff]")

Entry = Mapping[str, Any]


class InvalidRequest(ValueError):
    """The whole request is refused, with ValidationException unless ``code`` says otherwise."""

    def __init__(self, text: str, code: str = "ValidationException") -> None:
        super().__init__(text)
        self.code = code


def check_types(entries: Any) -> None:
    """Raise :class:`InvalidRequest` unless each member of each entry is of the type that the service model says."""
    if not isinstance(entries, list) or not all(isinstance(entry, Mapping) for entry in entries):
        raise InvalidRequest("Entries is not a list of objects.", "SerializationException")
    for entry in entries:
        for name in TEXTS:
            if not isinstance(entry.get(name), str | None):
                raise InvalidRequest(f"{name} is not a text.", "SerializationException")
        resources = entry.get("Resources")
        if not isinstance(resources, list | None) or not all(isinstance(name, str) for name in resources or []):
            raise InvalidRequest("Resources is not a list of texts.", "SerializationException")
        try:
            whole_seconds(entry.get("Time"), 0)
        except (TypeError, ValueError, OverflowError):
            raise InvalidRequest("Time is not a timestamp.", "SerializationException") from None


def entry_size(entry: Entry) -> int:
    """What one entry measures: 14 bytes for Time if given, and the UTF-8 bytes of its texts and resources."""
    texts = [entry.get(name) or "" for name in ("Source", "DetailType", "Detail")]
    texts += entry.get("Resources") or []
    return (TIME_BYTES if entry.get("Time") is not None else 0) + sum(
        len(text.encode("utf-8", "surrogatepass")) for text in texts
    )


def check_request(entries: Sequence[Entry]) -> None:
    """Raise :class:`InvalidRequest` when the request is refused before any entry is looked at."""
    if not 1 <= len(entries) <= MAX_ENTRIES:
        bound = f"less than or equal to {MAX_ENTRIES}" if entries else "greater than or equal to 1"
        shown = ", ".join(_as_java(entry) for entry in entries)
        raise InvalidRequest(
            f"1 validation error detected: Value '[{shown}]' at 'entries' failed to satisfy constraint: "
            f"Member must have length {bound}"
        )
    if sum(map(entry_size, entries)) >= MAX_BYTES:
        raise InvalidRequest("Total size of the entries in the request is over the limit.")


def _as_java(entry: Entry) -> str:
    resources = entry.get("Resources")
    members = {
        "time": entry.get("Time"),
        "source": entry.get("Source"),
        "resources": None if resources is None else f"[{', '.join(resources)}]",
        "detailType": entry.get("DetailType"),
        "detail": entry.get("Detail"),
        "eventBusName": entry.get("EventBusName"),
        "traceHeader": entry.get("TraceHeader"),
        "kmsKeyIdentifier": None,
        "internalMetadata": None,
    }
    shown = (f"{name}={'null' if value is None else value}" for name, value in members.items())
    return _SURROGATE.sub("?", f"PutEventsRequestEntry({', '.join(shown)})")


def entry_error(entry: Entry, *, aws_source: bool = False) -> tuple[str, str] | None:
    """Code and message with which one entry fails, or None. ``aws_source`` allows a source that belongs to AWS."""
    for name in ("Source", "DetailType", "Detail"):
        if not entry.get(name):
            return "InvalidArgument", f"Parameter {name} is not valid. Reason: {name} is a required argument."
    if len(entry["DetailType"]) > MAX_DETAIL_TYPE:
        return (
            "InvalidArgument",
            f"Parameter DetailType is not valid. Reason: DetailType must not exceed {MAX_DETAIL_TYPE} characters.",
        )
    for name in TEXTS:
        if name != "Detail" and _SURROGATE.search(entry.get(name) or ""):
            return "InvalidArgument", f"Parameter {name} is not valid. Reason: {name} is not valid Unicode."
    if any(_SURROGATE.search(resource) for resource in entry.get("Resources") or []):
        return "InvalidArgument", "Parameter Resources is not valid. Reason: Resources is not valid Unicode."
    if not is_object(entry["Detail"]):
        return "MalformedDetail", "Detail is malformed."
    if entry["Source"].startswith("aws.") and not aws_source:
        return "NotAuthorizedForSourceException", "Not authorized for the source."
    return None


def is_object(detail: str) -> bool:
    """Whether a Detail is the text of a JSON object, of numbers and characters that can be passed on."""
    try:
        value = json.loads(detail, parse_constant=_no_constant, parse_float=_finite)
        json.dumps(value, ensure_ascii=False).encode()  # fails for half of a surrogate pair
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict)


def _no_constant(literal: str) -> None:
    raise ValueError(f"{literal} is not JSON")  # Python's decoder takes NaN and Infinity, AWS's does not


def _finite(literal: str) -> float:
    number = float(literal)
    if math.isinf(number):
        raise ValueError(f"{literal} is too large")
    return number


def whole_seconds(moment: Any, now: float) -> int:
    """An event's time as whole seconds of the epoch; ``now`` when the entry has none."""
    if moment is None:
        return int(now)
    if isinstance(moment, bool):
        raise TypeError("a truth value is no time")
    if isinstance(moment, str):
        try:
            moment = float(moment)
        except ValueError:
            moment = _from_iso(moment)
    seconds = math.floor(moment)
    if not YEAR_1 <= seconds < YEAR_10000:
        raise ValueError("there is no such year")
    return seconds


def _from_iso(moment: str) -> float:
    parsed = datetime.fromisoformat(moment)
    return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).timestamp()


def install() -> None:
    import time

    from ministack.core.responses import (
        error_response_json,
        get_account_id,
        get_region,
        json_response,
        new_uuid,
    )
    from ministack.services import eventbridge as eb

    _ = eb._put_events, eb._event_bus_name_from_ref, eb._dispatch_event, eb._archive_event, eb._pattern_event_view

    def accept(entry: Entry, aws_source: bool) -> dict[str, str]:
        failed = entry_error(entry, aws_source=aws_source)
        if failed is None:
            bus, failed = eb._event_bus_name_from_ref(entry.get("EventBusName") or "default")
        if failed is not None:
            return {"ErrorCode": failed[0], "ErrorMessage": failed[1]}
        event = {
            "EventId": new_uuid(),
            "Source": entry["Source"],
            "DetailType": entry["DetailType"],
            "Detail": entry["Detail"],
            "EventBusName": bus,
            "Time": whole_seconds(entry.get("Time"), time.time()),
            "Resources": list(entry.get("Resources") or []),
            "Account": get_account_id(),
            "Region": get_region(),
        }
        if bus in eb._event_buses:
            view = eb._pattern_event_view(event)
            eb._dispatch_event(event, view)
            eb._archive_event(event, view)
        return {"EventId": event["EventId"]}

    def put_events(data: Mapping[str, Any], allow_aws_source: bool = False) -> tuple:
        eb._ensure_default_bus()  # an emitter inside the stand-in may come before the account's first call
        entries = data.get("Entries") or []
        if isinstance(entries, list):
            entries = [_with_text_detail(entry) for entry in entries]
        try:
            check_types(entries)
            check_request(entries)
        except InvalidRequest as refused:
            return error_response_json(refused.code, str(refused), 400)
        results = [accept(entry, allow_aws_source) for entry in entries]
        failed = sum("ErrorCode" in result for result in results)
        return json_response({"FailedEntryCount": failed, "Entries": results})

    handle = eb.handle_request

    async def handle_request(method: str, path: str, headers: Mapping[str, str], body: bytes, query: Any) -> tuple:
        if body and headers.get("x-amz-target", "").startswith("AWSEvents."):
            try:
                readable = isinstance(json.loads(body), dict)
            except (ValueError, RecursionError):
                readable = False
            if not readable:
                return error_response_json("SerializationException", "The request is not a JSON object.", 400)
        return await handle(method, path, headers, body, query)

    eb._put_events = put_events
    eb.handle_request = handle_request


def _with_text_detail(entry: Any) -> Any:
    # The events:putEvents task of a state machine hands its Detail over as an object.
    detail = entry.get("Detail") if isinstance(entry, Mapping) else None
    return {**entry, "Detail": json.dumps(detail)} if isinstance(detail, Mapping) else entry
