"""Trace context: the two texts by which a trace goes from one process to the next (W3C Trace Context, Level 1).

``traceparent`` says which trace, and which span of it is the parent of what follows; ``tracestate`` is for vendors::

    00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01
    version    trace (16 bytes)          span (8 bytes)   sampled

It travels in the envelope, because an event keeps nothing else on its way from bus to queue to state machine. It says
who *caused* a delivery; the envelope's ``trace_id`` says which *work* it is. One piece of work can be in two traces (a
replay), and one trace holds many pieces of work (the steps of a conversation).

**A bad one is dropped, and work never fails for it**: the recommendation asks to restart the trace where a header
cannot be parsed, and not to look at ``tracestate`` then. A later version than 00 is read as far as 00 goes.

Only ``labkit.facts`` is needed: this module travels into Lambda functions, and costs nothing where nobody traces.
"""

from __future__ import annotations

import re
import secrets
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from labkit.facts import facts

__all__ = ["SAMPLED", "TraceContext", "carried", "carrying", "current", "parse"]

SAMPLED = 1
_PARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?", re.ASCII)
_KEY = r"[a-z0-9][a-z0-9_*/@-]{0,255}"
_MEMBER = re.compile(rf"[ \t]*(?:{_KEY}=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{{0,255}}[\x21-\x2b\x2d-\x3c\x3e-\x7e])?[ \t]*")
_MOST_MEMBERS, _MOST_STATE = int(facts("trace.tracestate.members")), int(facts("trace.tracestate.chars"))
_LONGEST = 512  # characters of a traceparent of some later version: ours

_HERE: ContextVar[TraceContext | None] = ContextVar("labkit_trace_context", default=None)


class TraceContext(NamedTuple):
    """A place in a trace: 32 and 16 hex digits, ``flags`` (bit 0: somebody keeps it), and the vendors' ``state``."""

    trace_id: str
    span_id: str
    flags: int = SAMPLED
    state: str | None = None

    @property
    def sampled(self) -> bool:
        return bool(self.flags & SAMPLED)

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{self.flags:02x}"

    def headers(self) -> dict[str, str]:
        """``traceparent``, and ``tracestate`` where there is one."""
        return {"traceparent": self.traceparent, **({"tracestate": self.state} if self.state else {})}

    def child(self) -> TraceContext:
        """A place below this one, with a span id of its own."""
        return self._replace(span_id=_new(8))

    @classmethod
    def root(cls) -> TraceContext:
        """The beginning of a new trace."""
        return cls(_new(16), _new(8))


def parse(traceparent: Any, tracestate: Any = None) -> TraceContext | None:
    """The context in two texts; None for what is none. Whatever is wrong with ``tracestate`` costs that alone."""
    if not isinstance(traceparent, str) or len(traceparent) > _LONGEST:
        return None
    found = _PARENT.fullmatch(traceparent.strip(" \t"))
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == "ff" or (version == "00" and more) or not int(trace, 16) or not int(span, 16):
        return None
    # Of the flags of a later version only the one that 00 knows may be passed on.
    return TraceContext(trace, span, int(flags, 16) & (0xFF if version == "00" else SAMPLED), _state(tracestate))


def carried(fields: Any) -> TraceContext | None:
    """The context that an envelope, its dictionary, a whole event or a message's attributes carry."""
    found = parse(_of(fields, "traceparent"), _of(fields, "tracestate"))
    if found is None and (detail := _of(fields, "detail")) is not None:
        found = parse(_of(detail, "traceparent"), _of(detail, "tracestate"))
    return found


def current() -> TraceContext | None:
    """Where this thread is now: OpenTelemetry's current span, if that is in use, else what :func:`carrying` has set."""
    api = sys.modules.get("opentelemetry.trace")
    if api is not None and hasattr(api, "get_current_span"):
        place = api.get_current_span().get_span_context()
        if place.is_valid:
            state = place.trace_state.to_header() if place.trace_state else None
            ids = f"{place.trace_id:032x}", f"{place.span_id:016x}"
            return TraceContext(*ids, int(place.trace_flags), state or None)
    return _HERE.get()


@contextmanager
def carrying(context: TraceContext | None) -> Iterator[None]:
    """Let ``context`` be the current one in the block, where OpenTelemetry is not in use."""
    token = _HERE.set(context)
    try:
        yield
    finally:
        _HERE.reset(token)


def _of(place: Any, name: str) -> Any:
    return place.get(name) if isinstance(place, Mapping) else getattr(place, name, None)


def _state(text: Any) -> str | None:
    if not isinstance(text, str) or not text.strip() or len(text) > _MOST_STATE:
        return None
    members = text.split(",")
    if len(members) > _MOST_MEMBERS or not all(_MEMBER.fullmatch(member) for member in members):
        return None
    keys = [member.strip(" \t").partition("=")[0] for member in members if member.strip(" \t")]
    return text.strip(" \t") if len(set(keys)) == len(keys) else None


def _new(count: int) -> str:
    while not int(found := secrets.token_hex(count), 16):  # all zeros is no id
        pass
    return found
