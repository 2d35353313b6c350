"""Deliveries: the spans of a worker, one for each delivery, and one more for a receive that brought several.

**Whose child.** A delivery's span, ``process <queue>``, is the child of the message's creation context: the send that
caused it, so that a trace goes on through the queue. The conventions ask for a link to that context and allow it as the
parent; a link to one's own parent would say nothing more. Every delivery of a message has the same parent, since a
redelivery changes nothing in the message and nobody knows the span of the delivery that failed: retries are *siblings*,
told apart by ``labkit.receives``. So is what comes back from the dead-letter queue by a redrive: it is the same message
in the same trace.

**A replay is another trace.** An event out of an archive (it says ``replay-name``) was caused by whoever started the
replay, perhaps months later, when no backend holds the first trace. Its span begins a trace, with a link to the old
context; the work's name leads from one to the other.

**A batch has links.** A receive that brings several messages belongs to all of their traces, and a span has one parent.
So ``receive <queue>`` is a root of its own with a link to each message's context, and each delivery has a link to the
receive. A receive that brings one message makes no span: the delivery's says the same.

A failed delivery has the status error, the class of what was raised, and ``labkit.outcome`` as the worker tells it; a
burial is an event of the span. Tracing raises nothing into the worker: what goes wrong here is logged.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from labkit.control import trace_context
from labkit.ops.spans.sends import SQS, about
from labkit.work.queues import Queue
from labkit.work.tasks import Event, Task

if TYPE_CHECKING:
    from opentelemetry.trace import Link, Span

    from labkit.ops.tracing import Tracing

__all__ = ["Deliveries"]

F = TypeVar("F", bound=Callable[..., None])

_FINE = ("done", "replayed")
_NO_ERROR = ("busy", "released")  # the work is in somebody else's hands, which is as it should be
_REPLAYED = '"replay-name"'

logger = logging.getLogger(__name__)


def _quiet(method: F) -> F:
    """Never raise: a worker that dies of its traces is worse than one without."""

    @wraps(method)
    def careful(*args: Any) -> None:
        try:
            method(*args)
        except Exception:
            logger.warning("a span of a delivery was not made", exc_info=True)

    return careful  # type: ignore[return-value]


@dataclass(eq=False, slots=True)
class _Open:
    """What a task's span needs until its end."""

    began: int = 0
    span: Span | None = None
    token: Any = None  # of the context that was current before
    batch: _Batch | None = None


@dataclass(eq=False, slots=True)
class _Batch:
    span: Span
    ended: int
    link: Link


class Deliveries:
    """For :meth:`labkit.work.worker.Worker.observe`; :meth:`labkit.ops.tracing.Tracing.watch` does it."""

    def __init__(self, tracing: Tracing, queue: Queue) -> None:
        from opentelemetry import context, trace

        from labkit.ops.spans import bridge

        self._tracing, self._queue = tracing, queue
        self._context, self._trace, self._here = context, trace, bridge
        self._name = f"process {queue.name}"
        self._fields = {
            "messaging.system": SQS,
            "messaging.operation.name": "process",
            "messaging.operation.type": "process",
            "messaging.destination.name": queue.name,
        }

    @_quiet
    def received(self, tasks: Sequence[Task], began: int) -> None:
        if len(tasks) < 2:
            return
        span = self._tracing.begin(
            f"receive {self._queue.name}",
            "client",
            {
                **self._fields,
                "messaging.operation.name": "receive",
                "messaging.operation.type": "receive",
                "messaging.batch.message_count": len(tasks),
            },
            at=began,
            root=True,
        )
        batch = _Batch(span, time.time_ns(), self._trace.Link(span.get_span_context()))
        for task in tasks:
            task.span = _Open(batch=batch)

    @_quiet
    def begins(self, task: Task) -> None:
        if task.span is None:
            task.span = _Open()
        task.span.began = time.time_ns()

    @_quiet
    def parsed(self, task: Task) -> None:
        if task.span is None:
            return  # this one looks on from the next delivery on
        found = trace_context.carried(task.body) or trace_context.carried(task.message.attributes)
        self._start(task, found, about(task.body))

    @_quiet
    def ends(self, task: Task, event: Event | None) -> None:
        open_: _Open | None = task.span
        if open_ is None:
            return
        if open_.span is None:  # its body could not be read
            self._start(task, trace_context.carried(task.message.attributes), {})
        span = open_.span
        if span is None:
            return
        if open_.token is not None:
            self._context.detach(open_.token)
        kind = event.kind if event else "released"
        span.set_attribute("labkit.outcome", kind)
        if task.claim is not None:
            span.set_attribute("labkit.attempt", task.claim.attempt)
        if event and event.error is not None and kind not in (*_FINE, *_NO_ERROR):
            self._tracing.fails(span, event.error)
        if kind == "dead" and self._queue.dlq is not None:
            span.add_event("dead-lettered", {"messaging.destination.name": self._queue.dlq.name})
        span.end()

    @_quiet
    def over(self, tasks: Sequence[Task]) -> None:
        batch = tasks[0].span.batch if tasks[0].span else None
        if batch is not None:
            batch.span.end(batch.ended)

    # ---------------------------------------------------------------------------------------------------------------

    def _start(self, task: Task, parent: trace_context.TraceContext | None, says: dict[str, Any]) -> None:
        open_, message = task.span, task.message
        links: list[Link] = []
        if parent is not None and open_.batch is not None:
            open_.batch.span.add_link(self._here.place(parent), {"messaging.message.id": message.id})
        if open_.batch is not None:
            links.append(open_.batch.link)
        if parent is not None and _REPLAYED in message.body:
            links.append(self._here.link(parent, labkit__why="replay"))
            parent = None
        span = self._tracing.begin(
            self._name,
            "consumer",
            {**self._fields, "messaging.message.id": message.id, "labkit.receives": message.receives, **says},
            parent,
            links=links,
            at=open_.began,
            root=parent is None,
        )
        open_.span = span
        open_.token = self._context.attach(self._trace.set_span_in_context(span))
