"""Ended spans of OpenTelemetry's SDK, as :class:`~labkit.ops.spans.record.Record` and as a line of OTLP's JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from labkit.ops.spans.record import KINDS, SCOPE, Link, Note, Record, attributes, value

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

__all__ = ["line", "record"]

_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
_quoted = json.encoder.encode_basestring  # in C; characters as they are


def record(span: ReadableSpan) -> Record:
    """An ended span of OpenTelemetry's SDK."""
    context, parent = span.context, span.parent
    assert context is not None  # only a span that was never started has none
    return Record(
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
        f"{parent.span_id:016x}" if parent else "",
        span.name,
        KINDS[span.kind.value],
        span.start_time or 0,
        span.end_time or 0,
        span.attributes or {},
        tuple(Note(each.name, each.timestamp, each.attributes or {}) for each in span.events),
        tuple(
            Link(f"{each.context.trace_id:032x}", f"{each.context.span_id:016x}", each.attributes or {})
            for each in span.links
        ),
        ("", "ok", "error")[span.status.status_code.value],
        span.status.description or "",
        str(span.resource.attributes.get("service.name", "")),
    )


def line(spans: Sequence[ReadableSpan]) -> str:
    """One line with spans of one process.

    Written by hand and not by way of :class:`Record`: this runs beside the steps, in the same interpreter, and a third
    of the time is a third less that tracing costs.
    """
    resource = _json({"attributes": attributes(dict(spans[0].resource.attributes) if spans else {})})
    return (
        f'{{"resourceSpans":[{{"resource":{resource},"scopeSpans":[{{"scope":{{"name":"{SCOPE}"}},"spans":'
        f"[{','.join(map(_written, spans))}]}}]}}]}}"
    )


def _written(span: ReadableSpan) -> str:
    context, parent, status = span.context, span.parent, span.status
    assert context is not None  # only a span that was never started has none
    says = f',"message":{_quoted(status.description)}' if status.description else ""
    text = (
        f'{{"traceId":"{context.trace_id:032x}","spanId":"{context.span_id:016x}","name":{_quoted(str(span.name))},'
        f'"kind":{span.kind.value + 1},"startTimeUnixNano":"{span.start_time}","endTimeUnixNano":"{span.end_time}",'
        f'"attributes":{_pairs(span.attributes)},"status":{{"code":{status.status_code.value}{says}}}'
    )
    if parent is not None:
        text += f',"parentSpanId":"{parent.span_id:016x}"'
    if span.events:
        events = (
            f'{{"timeUnixNano":"{each.timestamp}","name":{_quoted(each.name)},"attributes":{_pairs(each.attributes)}}}'
            for each in span.events
        )
        text += f',"events":[{",".join(events)}]'
    if span.links:
        links = (
            f'{{"traceId":"{each.context.trace_id:032x}","spanId":"{each.context.span_id:016x}",'
            f'"attributes":{_pairs(each.attributes)}}}'
            for each in span.links
        )
        text += f',"links":[{",".join(links)}]'
    return text + "}"


def _pairs(found: Mapping[str, Any] | None) -> str:
    parts = []
    for key, each in (found or {}).items():
        if type(each) is str:
            parts.append(f'{{"key":{_quoted(key)},"value":{{"stringValue":{_quoted(each)}}}}}')
        elif type(each) is int:
            parts.append(f'{{"key":{_quoted(key)},"value":{{"intValue":"{each}"}}}}')
        else:
            parts.append(f'{{"key":{_quoted(key)},"value":{_json(value(each))}}}')
    return f"[{','.join(parts)}]"
