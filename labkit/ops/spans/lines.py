"""Lines: the spans of a Lambda function, as lines in its log. The standard library is enough.

A function does not take OpenTelemetry along. Its exporter needs protobuf, which is compiled for one platform; the SDK
costs every cold start a fifth of a second here; and its batches leave by a thread, which Lambda freezes with the
environment when the handler returns. What is sure to get out of a function is what it prints. So each span is one
printed line of OTLP's JSON, written when it ends: ``labkit trace --lab …`` reads them from CloudWatch Logs. Where
``OTEL_EXPORTER_OTLP_ENDPOINT`` is set, the invocation's spans are posted there as well, as JSON, before the handler
returns: one request, within a second, and no error of it is the function's::

    trace = Lines("researcher")                 # at import, for all invocations

    def handler(event, context):
        with trace.invocation(event, context):
            return batch.process(event, trace.each(one))

An invocation is a span of its own with links to the batch's messages, each record is a child of the context that its
message carries, and what runs inside (:meth:`Lines.span`, an envelope's ``next``) is a child of that. What a time-out
cuts off has not ended, and is not written: the line of the platform says that there was one.

Deployed with ``labkit=["work/batch", "ops/spans/lines", "ops/spans/record", "control/trace_context"]``.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from labkit.control import trace_context
from labkit.control.trace_context import TraceContext
from labkit.ops.spans.record import WORK, Kind, Link, Note, Record, wrapped

__all__ = ["Lines"]

R = TypeVar("R")

_PATIENCE = 1.0  # seconds for a collector: they are billed
_MOST = 500  # spans of one invocation that are posted


class Lines:
    """Makes and prints the spans of one function. ``write`` takes a line."""

    def __init__(self, service: str, *, write: Callable[[str], object] | None = None) -> None:
        self.service = service
        self._write = write or _printed
        self._resource: dict[str, Any] = {"service.name": service}
        for name, key in (("AWS_LAMBDA_FUNCTION_NAME", "faas.name"), ("AWS_REGION", "cloud.region")):
            if said := os.environ.get(name):
                self._resource[key] = said
        self._ended: list[dict[str, Any]] = []
        self._cold = True

    @contextmanager
    def invocation(self, event: Any, context: Any = None) -> Iterator[None]:
        """A span around one invocation; what it made is posted at its end."""
        records = event.get("Records") if isinstance(event, Mapping) else None
        records = records if isinstance(records, list) else []
        links = [Link(each.trace_id, each.span_id) for each in map(_parent, records) if each]
        attributes: dict[str, Any] = {"faas.coldstart": self._cold}
        self._cold = False
        if request := getattr(context, "aws_request_id", None):
            attributes["faas.invocation_id"] = str(request)
        if records:
            attributes["messaging.batch.message_count"] = len(records)
        parent = None if records else trace_context.carried(event)
        try:
            with self._span(f"invoke {self.service}", "server", attributes, parent, tuple(links)):
                yield
        finally:
            self._post()

    def each(self, handle: Callable[[Any], R]) -> Callable[[Any], R]:
        """``handle`` with a span for each record: for :func:`labkit.work.batch.process`."""

        def one(record: Any) -> R:
            raw = record if isinstance(record, Mapping) else getattr(record, "raw", {})
            around, parent = trace_context.current(), _parent(raw)
            attributes = _about(raw)
            name = f"process {attributes['messaging.destination.name']}"
            links = (Link(around.trace_id, around.span_id),) if around and parent else ()
            with self._span(name, "consumer", attributes, parent or around, links):
                return handle(record)

        return one

    @contextmanager
    def span(self, name: str, kind: Kind = "internal", **attributes: Any) -> Iterator[None]:
        """A span around the block, below the current one. Dots in names of ``attributes`` are written as ``__``."""
        named = {key.replace("__", "."): value for key, value in attributes.items()}
        with self._span(name, kind, named, trace_context.current(), ()):
            yield

    @contextmanager
    def _span(
        self, name: str, kind: Kind, attributes: Mapping[str, Any], parent: TraceContext | None, links: tuple[Link, ...]
    ) -> Iterator[None]:
        place = parent.child() if parent else TraceContext.root()
        span = Record(
            place.trace_id, place.span_id, parent.span_id if parent else "", name, kind, time.time_ns(), 0,
            dict(attributes), (), links, service=self.service,
        )  # fmt: skip
        try:
            with trace_context.carrying(place):
                yield
        except BaseException as error:
            failed = type(error).__qualname__
            span = replace(
                span, status="error", says=failed, attributes={**span.attributes, "error.type": failed},
                notes=(Note("exception", time.time_ns(), {"exception.type": failed}),),
            )  # fmt: skip
            raise
        finally:
            if place.sampled:
                self._end(span)

    def _end(self, span: Record) -> None:
        try:
            ended = replace(span, ended=time.time_ns()).otlp()
            if len(self._ended) < _MOST:  # without an invocation around it nobody takes them away
                self._ended.append(ended)
            self._write(wrapped([ended], self._resource).encode(errors="replace").decode())
        except Exception as error:  # noqa: BLE001 - the work is done, or has an error of its own
            _complain("written", error)

    def _post(self) -> None:
        ended, self._ended = self._ended, []
        base = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip().rstrip("/")
        where = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "").strip() or (base and f"{base}/v1/traces")
        if not where.startswith(("http://", "https://")) or not ended:
            return
        try:
            body = wrapped(ended, self._resource).encode(errors="replace")
            # A thread, because a request's time-out bounds neither the look-up of a name nor an answer that drips.
            posting = threading.Thread(target=_posted, args=(where, body), name="labkit-traces", daemon=True)
            posting.start()
            posting.join(_PATIENCE)
        except Exception as error:  # noqa: BLE001 - the log has the same spans, and the work is done
            _complain("posted", error)


def _posted(where: str, body: bytes) -> None:
    try:
        request = urllib.request.Request(where, body, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=_PATIENCE).close()
    except Exception as error:  # noqa: BLE001 - as above
        _complain("posted", error)


def _complain(what: str, error: Exception) -> None:
    with contextlib.suppress(Exception):
        print(f"spans were not {what}: {type(error).__name__}", file=sys.stderr)


def _printed(text: str) -> None:
    print(text, flush=True)


def _parent(raw: Any) -> TraceContext | None:
    """The context in a record's body, or in its attributes."""
    if not isinstance(raw, Mapping):
        return None
    attributes = raw.get("messageAttributes")
    named = attributes.items() if isinstance(attributes, Mapping) else ()
    said = {name: value.get("stringValue") for name, value in named if isinstance(value, Mapping)}
    return trace_context.carried(_body(raw)) or trace_context.carried(said)


def _body(raw: Mapping[str, Any]) -> Any:
    try:
        return json.loads(raw.get("body", ""))
    except (TypeError, ValueError, RecursionError):
        return None


def _about(raw: Mapping[str, Any]) -> dict[str, Any]:
    """What a span says of a record, whatever that holds."""
    body, system = _body(raw), raw.get("attributes")
    found = body.get("detail", body) if isinstance(body, Mapping) else None
    name = found.get("trace_id") if isinstance(found, Mapping) else None
    receives = str(system.get("ApproximateReceiveCount", "")) if isinstance(system, Mapping) else ""
    return {
        "messaging.system": "aws_sqs",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": str(raw.get("eventSourceARN", "")).rsplit(":", 1)[-1],
        "messaging.message.id": str(raw.get("messageId", "")),
        "labkit.receives": int(receives) if receives.isdecimal() and len(receives) < 10 else 1,
        **({WORK: name[:128]} if isinstance(name, str) else {}),
    }
