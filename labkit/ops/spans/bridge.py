"""Between W3C's texts (:mod:`labkit.control.trace_context`) and OpenTelemetry's objects. Imports OpenTelemetry."""

from __future__ import annotations

from typing import Any

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, TraceFlags, TraceState

from labkit.control.trace_context import TraceContext

__all__ = ["KINDS", "NOWHERE", "link", "of", "place", "within"]

KINDS = {kind.name.lower(): kind for kind in SpanKind}
NOWHERE = Context()  # what begins here is nobody's child


def within(parent: TraceContext) -> Context:
    """The context of what is caused from elsewhere: in it, and in nothing that happens to be current here."""
    return trace.set_span_in_context(NonRecordingSpan(place(parent)), NOWHERE)


def link(to: TraceContext, **attributes: Any) -> Link:
    """A link to a place elsewhere. Dots in names of ``attributes`` are written as ``__``."""
    return Link(place(to), {key.replace("__", "."): value for key, value in attributes.items()})


def of(span: Span) -> TraceContext | None:
    """Where a span is; None where OpenTelemetry is switched off (``OTEL_SDK_DISABLED``)."""
    place = span.get_span_context()
    if not place.is_valid:
        return None
    state = place.trace_state.to_header() if place.trace_state else None
    return TraceContext(f"{place.trace_id:032x}", f"{place.span_id:016x}", int(place.trace_flags), state or None)


def place(context: TraceContext) -> SpanContext:
    """A place elsewhere, as OpenTelemetry has it."""
    state = TraceState.from_header([context.state]) if context.state else None
    return SpanContext(int(context.trace_id, 16), int(context.span_id, 16), True, TraceFlags(context.flags), state)
