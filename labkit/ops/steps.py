"""Steps: what a worker counts for Prometheus, by listening to the events that it tells anyway.

:class:`StepMetrics` sits on the worker's ``on_event``, behind which a delivery is over: its message is deleted, hidden
or buried by then. So counting cannot lose a message or hold one up, and what goes wrong in it is logged and not raised.
What ``kill -9`` ends has told nothing: it is counted by whoever receives the message next, as a redelivery.

=============================================  =========  ==========================================================
name, each with the label ``agent_class``      type       what
=============================================  =========  ==========================================================
``agent_step_duration_seconds``                histogram  from the receive until the result stood, of ``done`` alone
``agent_deliveries_total{outcome}``            counter    by :class:`~labkit.work.tasks.Event` kind
``agent_redeliveries_total``                   counter    deliveries whose message was received before
``agent_poll_failures_total``                  counter    receives that the queue did not answer
``agent_model_attempts_total{model,outcome}``  counter    ``answered``, ``throttled`` and the router's other kinds
``agent_worker_threads``                       gauge      steps that this process can run at once
``agent_visibility_timeout_seconds``           gauge      how long it hides a message, from one heartbeat to the next
=============================================  =========  ==========================================================

``_count`` of the histogram is thus the number of completed steps: one that failed, was answered from a record or lost
its message is none. The class comes from whoever starts the worker and not from the message: a label that a sender can
choose is a series for each of his ideas.

**Buckets.** ``histogram_quantile`` guesses within a bucket, and answers with the last finite bound for all beyond it
(Prometheus documentation, "Query functions"). So the bounds are close where agents' steps lie, from seconds to minutes,
and the visibility timeout is a bound itself with another one above it: whether more than 5 % of the steps took longer
than that is then counted, not guessed. Every series starts at 0 with the worker: ``increase`` does not see what a
series begins with, so what is counted before the first scrape is missing from it.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, get_args

from labkit.ops.scrape import MetricsError, prometheus
from labkit.routing.router_outcome import NoAnswer, Routed, kind_of
from labkit.work.tasks import Event, Kind

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from labkit.work.worker import Worker

BUCKETS = (1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0, 90.0, 120.0, 180.0, 300.0, 600.0, 900.0, 1_800.0, 3_600.0)

_CLASS = re.compile(r"[a-z][a-z0-9-]{0,63}")  # as an envelope has it
_MOST_BUCKETS, _MOST_MODELS = 40, 100  # each is a series for each process
_MODEL_CALLS = ("Converse", "ConverseStream", "InvokeModel", "InvokeModelWithResponseStream")
_UNKNOWN, _OTHER = "unknown", "other"

logger = logging.getLogger(__name__)


class StepMetrics:
    """Count what ``worker`` tells, as an agent of ``agent_class``, in ``registry`` (a new one unless given).

    A hook that the worker has already is called as before. ``buckets`` are the histogram's bounds in seconds; the
    worker's visibility timeout is put among them. Raises :class:`MetricsError` for a bad name or bounds that cannot be,
    for bounds that end at the visibility timeout or below, and for a registry that counts another worker already.
    """

    def __init__(
        self,
        worker: Worker,
        agent_class: str,
        *,
        registry: CollectorRegistry | None = None,
        buckets: Sequence[float] = BUCKETS,
    ) -> None:
        self.agent_class = named("agent_class", agent_class)
        self.buckets = _bounds(buckets, float(worker.visibility))
        client = prometheus()
        self.registry: CollectorRegistry = client.CollectorRegistry() if registry is None else registry
        by_class, at = ["agent_class"], self.registry
        try:
            duration = client.Histogram(
                "agent_step_duration_seconds",
                "Seconds from the receive of a message until the result of its step stood.",
                by_class,
                registry=at,
                buckets=self.buckets,
            )
            deliveries = client.Counter(
                "agent_deliveries", "Deliveries, by what became of them.", [*by_class, "outcome"], registry=at
            )
            again = client.Counter(
                "agent_redeliveries", "Deliveries of messages that were received before.", by_class, registry=at
            )
            polls = client.Counter(
                "agent_poll_failures", "Receives that the queue did not answer.", by_class, registry=at
            )
            self._attempts = client.Counter(
                "agent_model_attempts",
                "Calls to models, by what became of them.",
                [*by_class, "model", "outcome"],
                registry=at,
            )
            threads = client.Gauge(
                "agent_worker_threads", "Steps that the worker can run at once.", by_class, registry=at
            )
            visibility = client.Gauge(
                "agent_visibility_timeout_seconds",
                "Seconds for which the worker hides what it receives.",
                by_class,
                registry=at,
            )
        except ValueError as error:
            raise MetricsError(f"this registry counts another worker already; give each its own: {error}.") from error
        self._duration = duration.labels(self.agent_class)
        self._deliveries = {
            kind: deliveries.labels(self.agent_class, kind) for kind in get_args(Kind) if kind != "poll_failed"
        }
        self._again, self._polls = again.labels(self.agent_class), polls.labels(self.agent_class)
        self._models: set[str] = set()
        threads.labels(self.agent_class).set(worker.threads)
        visibility.labels(self.agent_class).set(worker.visibility)
        told = worker.on_event

        def both(event: Event) -> object:
            self.observe(event)
            return told(event)

        worker.on_event = both

    def observe(self, event: Event) -> None:
        """Count one event. Never raises: what a worker's hook raises would end the worker."""
        try:
            self._count(event)
        except Exception:  # it is logged: no number is worth a worker
            logger.warning("an event of kind %s was not counted", getattr(event, "kind", event), exc_info=True)

    def answered(self, routed: Routed) -> Routed:
        """Count the attempts of a router's answer, and hand it on. Those of a :class:`NoAnswer` that a step raises are
        counted with its event, as is a throttle of Bedrock's or an SDK's ``RateLimitError``."""
        try:
            for attempt in routed.attempts:
                self._attempt(attempt.group, attempt.kind)
            self._attempt(routed.group, "answered")
        except Exception:  # it is called in the middle of a step
            logger.warning("an answer was not counted", exc_info=True)
        return routed

    def _count(self, event: Event) -> None:
        if event.kind == "poll_failed":
            self._polls.inc()
            return
        self._deliveries[event.kind].inc()
        if event.message is not None and event.message.receives > 1:
            self._again.inc()
        if event.kind == "done":
            self._duration.observe(event.seconds)
        for model, kind in _refused(event.error):
            self._attempt(model, kind)

    def _attempt(self, model: str, outcome: str) -> None:
        if model not in self._models:
            if len(self._models) >= _MOST_MODELS:
                model = _OTHER
            self._models.add(model)
        self._attempts.labels(self.agent_class, model, outcome).inc()


def named(field: str, name: str) -> str:
    """``name`` if it is an agent class; else :class:`MetricsError`."""
    if not isinstance(name, str) or not _CLASS.fullmatch(name):
        raise MetricsError(f"{field} is 1 to 64 of a-z, 0-9 and -, a letter first; got {name!r:.80}.")
    return name


def _bounds(buckets: Iterable[float], visibility: float) -> tuple[float, ...]:
    found = list(buckets) if isinstance(buckets, Iterable) and not isinstance(buckets, str) else []
    numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in found)
    if not found or not numbers or not all(0 < each < math.inf for each in found):
        raise MetricsError(f"buckets are upper bounds in seconds, each over 0 and finite; got {buckets!r:.120}.")
    if any(low >= high for low, high in pairwise(found)):
        raise MetricsError(f"buckets grow from one to the next; got {buckets!r:.120}.")
    if buckets is BUCKETS and found[-1] <= visibility:
        found.append(2 * visibility)
    if found[-1] <= visibility:
        raise MetricsError(
            f"the last bucket must be over the visibility timeout of {visibility:g} s, or nobody sees that steps take "
            f"longer; got {found[-1]:g} s."
        )
    bounds = tuple(sorted({*map(float, found), visibility}))
    if len(bounds) > _MOST_BUCKETS:
        raise MetricsError(f"a histogram has at most {_MOST_BUCKETS} buckets here; got {len(bounds)}.")
    return bounds


def _refused(error: BaseException | None) -> Iterator[tuple[str, str]]:
    """The attempts at models that ``error`` tells of: group or model, and kind."""
    from botocore.exceptions import ClientError

    for each in _chain(error):
        if isinstance(each, NoAnswer):
            for attempt in each.attempts:
                yield attempt.group, attempt.kind
            return
        if isinstance(each, ClientError) and each.operation_name in _MODEL_CALLS:
            if each.response["Error"]["Code"] == "ThrottlingException":
                yield _UNKNOWN, "throttled"
            return
        if kind_of(each) == "throttled":
            yield str(getattr(each, "model", None) or _UNKNOWN), "throttled"
            return


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__ or error.__context__
