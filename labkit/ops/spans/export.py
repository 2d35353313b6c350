"""Export: spans leave the threads that work through a bounded queue, and whatever happens behind it is not theirs.

OpenTelemetry's own BatchSpanProcessor does the same, except at the end: its flush has no bound (issue 4568 of
opentelemetry-python), and its shutdown waits 30 s for an exporter that hangs. A worker that is told to stop has less.
So each exporter here has a queue and a thread of its own, and both :meth:`Queued.flush` and :meth:`Queued.close` end
after the seconds that they are given. A full queue drops the newest span and counts it.

What is lost, then: with ``kill -9`` the spans that ended within the last ``every`` seconds, and those that had not
ended, that of the step at work among them; with an exporter that fails, its batch; with one that hangs, whatever the
queue cannot hold. Never a step.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from opentelemetry.context import _SUPPRESS_INSTRUMENTATION_KEY, Context, attach, set_value
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor

from labkit.ops.spans.record import Record
from labkit.ops.spans.sdk import record

__all__ = ["Exporter", "Kept", "Queued", "otlp"]

EVERY, BATCH, QUEUE = 1.0, 256, 8_192  # seconds between two exports; spans in one; spans that wait
_TIMEOUT, _LONGEST = 3.0, 10.0  # seconds for one OTLP request with its retries: by default, and if the user says so

logger = logging.getLogger(__name__)


class Exporter(Protocol):
    """What takes ended spans: a SpanExporter of OpenTelemetry's, or one of labkit's."""

    def export(self, spans: Sequence[ReadableSpan], /) -> Any: ...

    def shutdown(self) -> Any: ...


class Kept(SpanProcessor):
    """Keeps the newest ``most`` spans in memory, for tests and notebooks."""

    def __init__(self, most: int = 10_000) -> None:
        self._spans: deque[ReadableSpan] = deque(maxlen=most)

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is not None and span.context.trace_flags.sampled:
            self._spans.append(span)

    def records(self) -> list[Record]:
        """In the order in which they ended."""
        return [record(span) for span in list(self._spans)]

    def clear(self) -> None:
        self._spans.clear()


class Queued(SpanProcessor):
    """One exporter behind a queue of ``most`` spans. Counts what was ``sent``, ``dropped`` (full) and ``failed``."""

    def __init__(self, exporter: Exporter, *, every: float = EVERY, batch: int = BATCH, most: int = QUEUE) -> None:
        self.exporter = exporter
        self.sent = self.dropped = self.failed = 0
        self._every, self._batch, self._most = every, batch, most
        self._queue: deque[ReadableSpan] = deque()
        self._awake, self._end = threading.Event(), threading.Event()
        self._taken = 0  # spans that have left the queue, exported or not
        self._put = 0
        self._failing = False
        self._pid = os.getpid()
        self._thread = threading.Thread(target=self._run, name="labkit-traces", daemon=True)
        self._thread.start()

    def on_end(self, span: ReadableSpan) -> None:
        if span.context is None or not span.context.trace_flags.sampled:
            return
        if self._end.is_set() or len(self._queue) >= self._most or os.getpid() != self._pid:  # a fork has no thread
            self.dropped += 1
            return
        self._queue.append(span)
        if len(self._queue) == self._batch:
            self._awake.set()

    def flush(self, seconds: float) -> bool:
        """Have what waits exported, for ``seconds`` at most; False when that was too short."""
        end = time.monotonic() + seconds
        self._awake.set()
        while self._queue or self._busy:
            if time.monotonic() >= end or not self._thread.is_alive():
                return not self._queue and not self._busy
            self._awake.set()
            time.sleep(0.005)
        return True

    def close(self, seconds: float) -> bool:
        """Export what waits and end the thread, within ``seconds``. False when the exporter hangs: its thread ends
        with its request. Closing twice is harmless."""
        self._end.set()
        self._awake.set()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def shutdown(self) -> None:
        self.close(_TIMEOUT)

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return self.flush(timeout_millis / 1000)

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing."""

    # -- the thread --------------------------------------------------------------------------------------------------

    _busy = False

    def _run(self) -> None:
        attach(set_value(_SUPPRESS_INSTRUMENTATION_KEY, True))  # an exporter's own calls are no spans
        while not self._end.is_set():
            self._awake.wait(self._every)
            self._awake.clear()
            self._drain()
        self._drain()
        try:
            self.exporter.shutdown()
        except Exception:
            logger.info("an exporter of spans did not close well", exc_info=True)

    def _drain(self) -> None:
        while self._queue:
            self._busy = True  # before the spans leave the queue: flush must see them in one place or the other
            spans = [self._queue.popleft() for _ in range(min(self._batch, len(self._queue)))]
            try:
                said = self.exporter.export(spans)
                well = getattr(said, "name", "SUCCESS") == "SUCCESS"
                why: BaseException | None = None
            except Exception as error:  # noqa: BLE001 - whatever it is, it is the exporter's
                well, why = False, error
            finally:
                self._busy = False
            self._count(len(spans), well, why)

    def _count(self, spans: int, well: bool, why: BaseException | None) -> None:
        if well:
            self.sent += spans
            self._failing = False
            return
        self.failed += spans
        if not self._failing:  # once, until it works again
            self._failing = True
            logger.warning("spans were not exported, work goes on without them: %s", why or "refused")


def otlp(environ: Mapping[str, str]) -> Exporter | None:
    """The OTLP/HTTP exporter that the user's environment asks for; None where it asks for none.

    ``OTEL_EXPORTER_OTLP_ENDPOINT`` (``…/v1/traces`` is added) or ``OTEL_EXPORTER_OTLP_TRACES_ENDPOINT`` (taken as it
    is). Without one of them nothing is called, not even the default port. Raises :class:`TraceError` for a protocol
    that is not installed, and for an endpoint that is no URL.
    """
    from labkit.ops.tracing import TraceError

    full = environ.get("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "").strip()
    base = environ.get("OTEL_EXPORTER_OTLP_ENDPOINT", "").strip()
    wanted = environ.get("OTEL_TRACES_EXPORTER", "otlp").strip()
    if not (full or base) or wanted == "none" or environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return None
    protocol = environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    if protocol not in (None, "", "http/protobuf"):
        raise TraceError(f"OTEL_EXPORTER_OTLP_PROTOCOL is {protocol!r:.40}; here it can be http/protobuf (port 4318).")
    endpoint = full or f"{base.rstrip('/')}/v1/traces"
    if not endpoint.startswith(("http://", "https://")):
        raise TraceError(f"OTEL_EXPORTER_OTLP_ENDPOINT is http://… or https://…; got {base or full!r:.80}.")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(endpoint=endpoint, timeout=_patience(environ))


def _patience(environ: Mapping[str, str]) -> float:
    """Seconds for one request. The specification says milliseconds, and Python's exporter takes them for seconds."""
    said = environ.get("OTEL_EXPORTER_OTLP_TRACES_TIMEOUT") or environ.get("OTEL_EXPORTER_OTLP_TIMEOUT") or ""
    try:
        number = float(said)
    except ValueError:
        return _TIMEOUT
    seconds = number / 1000 if number > 60 else number
    return min(seconds, _LONGEST) if seconds > 0 else _TIMEOUT
