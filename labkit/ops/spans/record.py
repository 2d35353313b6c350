"""Spans as OTLP writes them in JSON: written to a file or a log line, and read again as :class:`Record`.

One form for everything here: what OpenTelemetry's SDK ends in a worker (:mod:`labkit.ops.spans.sdk`), what a Lambda
function without the SDK logs (:mod:`labkit.ops.spans.lines`), what is read from files and from CloudWatch Logs. It is
the form of the OTLP specification ("JSON Protobuf Encoding": ids as hex digits, 64-bit numbers as texts, enums as
numbers) in lines as the file exporter's specification has them.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["KINDS", "SCOPE", "WORK", "Kind", "Link", "Note", "Record", "attributes", "read_line", "value", "wrapped"]

Kind = Literal["internal", "server", "client", "producer", "consumer"]

WORK = "labkit.work"  # the envelope's trace_id: which work a span is about
KINDS: tuple[Kind, ...] = ("internal", "server", "client", "producer", "consumer")  # OTLP counts them from 1
_STATUS = ("", "ok", "error")
_BEGINS = '{"resourceSpans":'
SCOPE = "labkit"
_ODD = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}  # JSON has no such numbers; protobuf's has these words
_NANOSECONDS = 1 << 64

_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


@dataclass(frozen=True, slots=True)
class Note:
    """Something at one moment of a span: an exception, a burial. ``at``: nanoseconds since the epoch."""

    name: str
    at: int
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Link:
    """Another span that this one has to do with, without being its child."""

    trace_id: str
    span_id: str
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Record:
    """One ended span. Ids are hex digits, ``parent_id`` is "" for a root; times are nanoseconds since the epoch.

    ``status``: "", "ok" or "error". ``service``: the process's name for itself.
    """

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    kind: Kind
    began: int
    ended: int
    attributes: Mapping[str, Any] = field(default_factory=dict)
    notes: tuple[Note, ...] = ()
    links: tuple[Link, ...] = ()
    status: str = ""
    says: str = ""
    service: str = ""

    @property
    def seconds(self) -> float:
        return (self.ended - self.began) / 1e9

    @property
    def work(self) -> str:
        """The envelope's ``trace_id``, or "" for a span that is about no single work."""
        return str(self.attributes.get(WORK, ""))

    def otlp(self) -> dict[str, Any]:
        """As OTLP's JSON has one span."""
        span: dict[str, Any] = {
            "traceId": self.trace_id,
            "spanId": self.span_id,
            "name": self.name,
            "kind": KINDS.index(self.kind) + 1,
            "startTimeUnixNano": str(self.began),
            "endTimeUnixNano": str(self.ended),
            "attributes": attributes(self.attributes),
            "status": {"code": _STATUS.index(self.status), **({"message": self.says} if self.says else {})},
        }
        if self.parent_id:
            span["parentSpanId"] = self.parent_id
        if self.notes:
            span["events"] = [
                {"timeUnixNano": str(note.at), "name": note.name, "attributes": attributes(note.attributes)}
                for note in self.notes
            ]
        if self.links:
            span["links"] = [
                {"traceId": link.trace_id, "spanId": link.span_id, "attributes": attributes(link.attributes)}
                for link in self.links
            ]
        return span


def wrapped(spans: Sequence[Mapping[str, Any]], resource: Mapping[str, Any]) -> str:
    """One line with spans that are in OTLP's form already."""
    scoped = [{"scope": {"name": SCOPE}, "spans": spans}]
    return _json({"resourceSpans": [{"resource": {"attributes": attributes(resource)}, "scopeSpans": scoped}]})


def read_line(text: str) -> Iterator[Record]:
    """The spans of one line; none of what is no such line: half of one, or anything else that a function logged."""
    if not text.lstrip().startswith(_BEGINS):
        return
    try:
        found = list(_records(json.loads(text)))
    except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
        return
    yield from found


def _records(document: Any) -> Iterator[Record]:
    for place in document["resourceSpans"]:
        service = _read(place.get("resource", {}).get("attributes", ())).get("service.name", "")
        for scope in place["scopeSpans"]:
            for span in scope["spans"]:
                yield _one(span, str(service))


def _one(span: Mapping[str, Any], service: str) -> Record:
    status = span.get("status", {})
    return Record(
        str(span["traceId"]).lower(),  # others write them large
        str(span["spanId"]).lower(),
        str(span.get("parentSpanId", "")).lower(),
        str(span["name"]),
        KINDS[max(int(span.get("kind", 1)), 1) - 1],
        _moment(span["startTimeUnixNano"]),
        _moment(span["endTimeUnixNano"]),
        _read(span.get("attributes", ())),
        tuple(
            Note(str(each["name"]), _moment(each["timeUnixNano"]), _read(each.get("attributes", ())))
            for each in span.get("events", ())
        ),
        tuple(
            Link(str(each["traceId"]).lower(), str(each["spanId"]).lower(), _read(each.get("attributes", ())))
            for each in span.get("links", ())
        ),
        _STATUS[max(int(status.get("code", 0)), 0)],
        str(status.get("message", "")),
        service,
    )


def _moment(text: Any) -> int:
    moment = int(text)
    if not 0 <= moment < _NANOSECONDS:
        raise ValueError(f"{moment} is no fixed64")
    return moment


def attributes(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Attributes as OTLP's JSON has them."""
    return [{"key": key, "value": value(each)} for key, each in found.items()]


def value(found: Any) -> dict[str, Any]:
    """One value as OTLP's JSON has it."""
    if isinstance(found, str):
        return {"stringValue": found}
    if isinstance(found, bool):
        return {"boolValue": found}
    if isinstance(found, int):
        return {"intValue": str(found)}
    if isinstance(found, float):
        return {"doubleValue": found if math.isfinite(found) else _ODD[str(found)]}
    if isinstance(found, bytes):
        return {"bytesValue": base64.b64encode(found).decode()}
    if isinstance(found, Sequence):
        return {"arrayValue": {"values": [value(each) for each in found]}}
    return {"stringValue": str(found)}


def _read(found: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    return {str(each["key"]): _plain(each.get("value", {})) for each in found}


def _plain(value: Mapping[str, Any]) -> Any:
    for name, content in value.items():
        if name == "intValue":
            return int(content)
        if name == "doubleValue":
            return float(content)
        if name == "bytesValue":
            return base64.b64decode(content)
        if name == "arrayValue":
            return tuple(_plain(each) for each in content.get("values", ()))
        return content
    return None
