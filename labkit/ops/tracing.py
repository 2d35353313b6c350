"""Tracing: one trace through bus, queue, state machine and model, with OpenTelemetry and without a collector.

Every hop names what passes through it by an id of its own: an event id, a message id, an execution ARN. None of them
leads to the next one. What does is carried along: W3C's ``traceparent`` in the envelope
(:mod:`labkit.control.trace_context`), and each hop makes the span that it is the parent of::

    tracing = Tracing.open("researcher", lab=lab)     # a file for each process; OTLP too, where there is a collector
    tracing.publish(bus, envelopes)                   # labkit.ops.spans.sends: the events carry the context
    tracing.watch(worker)                             # labkit.ops.spans.deliveries: a span for each delivery
    with tracing.span("summarise"): …                 # in a step: a child of that delivery's span
    tracing.route(router)                             # labkit.ops.spans.models: each attempt at a model
    tracing.start(machine, input)                     # the state machine hands it on: labkit.ops.spans.states

``labkit trace <id>`` draws what the files hold. The id is W3C's, or the work's name as the envelope has it: a replay of
the same work is another trace under the same name.

**Nothing global.** The provider is this object's own. Strands, LiteLLM and others send their spans to OpenTelemetry's
global provider, which is left alone; to have them in the same files, one line joins them, once in a process:
``opentelemetry.trace.set_tracer_provider(tracing.provider)``. Their spans are children of ours then.

**Nothing secret.** No body, prompt, answer or task token gets into a span, and of an exception its class alone: what it
says may quote any of these. ``texts=True`` records what exceptions say, cut and with what looks like a token replaced.

**Nothing in the way.** Spans leave by a queue with a thread of its own (:mod:`labkit.ops.spans.export`).
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from labkit.closing import Closing
from labkit.control.trace_context import TraceContext
from labkit.errors import LabError
from labkit.models._input import ModelError, number
from labkit.ops.spans.record import WORK, Record
from labkit.state.records import said

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Link, Span, Tracer

    from labkit.control.bus import Bus, Published
    from labkit.control.envelope import Envelope
    from labkit.control.executions import Execution
    from labkit.control.machines import Machine
    from labkit.lab import Lab
    from labkit.ops.spans.export import Exporter
    from labkit.ops.spans.models import ModelCall
    from labkit.routing.router import Router
    from labkit.work.queues import Queue
    from labkit.work.worker import Worker

__all__ = ["WORK", "TraceError", "Tracing"]

P = ParamSpec("P")
R = TypeVar("R")

_WITHIN = 2.0  # seconds for what still waits at the end
_LIKE_A_TOKEN = re.compile(r"[\w/+=-]{32,}")
_MOST_TEXT = 200  # characters of an exception's text
_LONGEST = 4_096  # characters of a name or an attribute, unless OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT says otherwise


class TraceError(LabError):
    """Tracing cannot be as asked, or a trace is not there; the sentence says which."""


class Tracing(Closing):
    """Makes the spans of one process, called ``service``.

    ``to``: where they go, each behind a queue of its own: SpanExporters of OpenTelemetry's, or a
    :class:`~labkit.ops.spans.files.FileExporter`. ``keep`` holds the newest 10,000 in memory as well:
    :meth:`records`. ``share`` of the traces is recorded, decided where a trace begins and obeyed by who comes after.
    With a ``lab`` it is closed with it. Raises :class:`TraceError`, also where OpenTelemetry is not installed.
    """

    def __init__(
        self,
        service: str = "fleet",
        *,
        to: Iterable[Exporter] = (),
        keep: bool = False,
        share: float = 1.0,
        texts: bool = False,
        lab: Lab | None = None,
    ) -> None:
        if not isinstance(service, str) or not 1 <= len(service) <= 64:
            raise TraceError(f"service is a name of 1 to 64 characters; got {service!r:.80}.")
        try:
            number("share", share, low=0, high=1)
        except ModelError as error:
            raise TraceError(f"traces cannot be made so: {error}") from error
        try:
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import SpanLimits, TracerProvider
            from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

            from labkit.ops.spans import bridge
            from labkit.ops.spans.export import Kept, Queued
        except ImportError as error:
            raise TraceError("traces need opentelemetry-sdk, of the `course` extra; type `make setup`.") from error
        self.service, self.texts = service, texts
        self._here = bridge
        # The environment's OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME count as anywhere.
        resource = Resource.create({"service.name": os.environ.get("OTEL_SERVICE_NAME") or service})
        try:  # OpenTelemetry's own limit is none, and one span could fill a file
            limits = SpanLimits(
                max_attribute_length=None if os.environ.get("OTEL_ATTRIBUTE_VALUE_LENGTH_LIMIT") else _LONGEST
            )
        except ValueError as error:
            raise TraceError(f"traces cannot be made with this environment: {error}.") from error
        self.provider: TracerProvider = TracerProvider(
            sampler=ParentBased(TraceIdRatioBased(share)),
            resource=resource,
            shutdown_on_exit=False,
            span_limits=limits,
        )
        self.tracer: Tracer = self.provider.get_tracer("labkit")
        self._kept = Kept() if keep else None
        self._closed = False
        self.queues = [Queued(exporter) for exporter in to]
        for processor in ([self._kept] if self._kept else []) + self.queues:
            self.provider.add_span_processor(processor)
        if lab is not None:
            lab.on_close(f"traces of {service}", self.close)

    @classmethod
    def open(
        cls,
        service: str = "fleet",
        *,
        folder: Path | None = None,
        environ: Mapping[str, str] = os.environ,
        **options: Any,
    ) -> Tracing:
        """Write to a file in ``folder`` (by default ``traces`` in the lab's home), and to the collector that
        ``OTEL_EXPORTER_OTLP_ENDPOINT`` names, if it names one. Raises :class:`TraceError`."""
        from labkit.ops.spans.files import FileExporter

        try:
            from labkit.ops.spans import export
        except ImportError:
            return cls(service, **options)  # which says what is missing
        collector = export.otlp(environ)
        file = FileExporter(folder, service)
        return cls(service, to=[file, *([collector] if collector else [])], **options)

    # -- spans -------------------------------------------------------------------------------------------------------

    @contextmanager
    def span(
        self,
        name: str,
        *,
        kind: str = "internal",
        parent: TraceContext | None = None,
        links: Iterable[Link] = (),
        **attributes: Any,
    ) -> Iterator[Span]:
        """A span around the block, below the current one, or below ``parent``. Dots in names of ``attributes`` are
        written as ``__``. What the block raises is the span's error, and is raised on."""
        from opentelemetry import trace

        made = self.begin(
            name, kind, {key.replace("__", "."): value for key, value in attributes.items()}, parent, links=links
        )
        try:
            with trace.use_span(made, record_exception=False, set_status_on_exception=False):
                yield made
        except BaseException as error:
            self.fails(made, error)
            raise
        finally:
            made.end()

    def begin(
        self,
        name: str,
        kind: str,
        attributes: Mapping[str, Any],
        parent: TraceContext | None = None,
        *,
        links: Iterable[Link] = (),
        at: int | None = None,
        root: bool = False,
    ) -> Span:
        """A span that somebody ends later; it is not made the current one. ``at``: nanoseconds since the epoch. What
        is no kind of OpenTelemetry's is "internal": no step fails for it."""
        here = self._here
        context = here.NOWHERE if root else here.within(parent) if parent else None
        return self.tracer.start_span(
            str(name)[:_LONGEST].encode(errors="replace").decode(),  # no UTF-8: a collector's whole batch would be lost
            context=context,
            kind=here.KINDS.get(kind, here.KINDS["internal"]),
            attributes=attributes,
            links=list(links),
            start_time=at,
        )

    def fails(self, span: Span, error: BaseException) -> None:
        """Note an error: status, ``error.type``, and the event that OpenTelemetry has for exceptions."""
        from opentelemetry.trace import StatusCode

        name = type(error).__qualname__
        noted = {"exception.type": name}
        if self.texts:
            # Replaced before it is cut: half a token does not look like one.
            noted["exception.message"] = _LIKE_A_TOKEN.sub("«token»", said(error, _LONGEST))[:_MOST_TEXT]
        span.set_attribute("error.type", name)
        span.add_event("exception", noted)
        span.set_status(StatusCode.ERROR, name)

    def wrap(self, name: str, function: Callable[P, R], **attributes: Any) -> Callable[P, R]:
        """``function`` with a span around each call: ``Worker(then=tracing.wrap("callback", callbacks.then))``."""

        @functools.wraps(function)
        def traced(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.span(name, **attributes):
                return function(*args, **kwargs)

        return traced

    # -- the hops of the fleet ---------------------------------------------------------------------------------------

    def publish(self, bus: Bus, envelopes: Iterable[Envelope], **options: Any) -> Published:
        """Publish with a span, and with its context in each envelope: :func:`labkit.ops.spans.sends.publish`."""
        from labkit.ops.spans import sends

        return sends.publish(self, bus, list(envelopes), options)

    def send(self, queue: Queue, body: Any, **options: Any) -> str:
        """Send a message, with the context in it and on it: :func:`labkit.ops.spans.sends.send`."""
        from labkit.ops.spans import sends

        return sends.send(self, queue, body, options)

    def start(self, machine: Machine, input: Mapping[str, Any], *, name: str | None = None) -> Execution:
        """Start an execution whose input carries the context: :func:`labkit.ops.spans.sends.start`."""
        from labkit.ops.spans import sends

        return sends.start(self, machine, input, name)

    def watch(self, worker: Worker) -> Worker:
        """Make a span for each delivery of ``worker``: :class:`labkit.ops.spans.deliveries.Deliveries`. Returns it."""
        from labkit.ops.spans.deliveries import Deliveries

        worker.observe(Deliveries(self, worker.queue))
        return worker

    def route(self, router: Router) -> Router:
        """Make a span for each of ``router``'s calls and each attempt: :mod:`labkit.ops.spans.models`. Returns it."""
        from labkit.ops.spans import models

        return models.route(self, router)

    @contextmanager
    def chat(self, model: str, *, provider: str = "aws.bedrock") -> Iterator[ModelCall]:
        """A span around one call to a model that no router makes: :class:`labkit.ops.spans.models.ModelCall`."""
        from labkit.ops.spans.models import ModelCall

        with ModelCall(self, model, provider) as call:
            yield call

    # -- what was made -----------------------------------------------------------------------------------------------

    def records(self, *, clear: bool = False) -> list[Record]:
        """The ended spans in memory, in the order of their ends. Raises :class:`TraceError` without ``keep``."""
        if self._kept is None:
            raise TraceError("no spans are kept in memory: Tracing(keep=True) does that.")
        found = self._kept.records()
        if clear:
            self._kept.clear()
        return found

    def flush(self, seconds: float = _WITHIN) -> bool:
        """Export what has ended, for ``seconds`` at most; False when something still waits."""
        well = [queue.flush(seconds) for queue in self.queues]  # each of them, whatever the first one says
        return all(well)

    def close(self) -> None:
        """Export what has ended, and end the threads, within seconds; what hangs then is left. Closed twice, it waits
        once."""
        queues = [] if self._closed else self.queues
        self._closed = True
        for queue in queues:
            queue.close(_WITHIN)

    def __repr__(self) -> str:
        return f"<Tracing of {self.service}>"
