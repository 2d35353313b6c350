"""Watch: what no worker can know, asked of AWS every few seconds and kept for Prometheus.

What is asked is in :mod:`labkit.ops.readings`. Beside it, for each thing that is watched:
``watch_last_success_timestamp_seconds`` says when it was last answered (0: never yet), and ``watch_failures_total`` how
many questions were not, both with the label ``watched``.

**A scrape asks nobody.** It shows what the last round has found, so that ten Prometheus servers cost no more calls than
one, and a service that hangs does not hang the scrape. A number that nobody has measured for three rounds is not shown:
yesterday's depth would keep an alarm silent. That it is missing is an alarm of its own, on the last success.

**A round has a bound.** Where one question to a service gets no answer, the others to it wait for the next round; and a
client that may wait for longer than :data:`PATIENCE` seconds is refused.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from labkit.closing import Closing
from labkit.models._input import ModelError, number
from labkit.ops import metrics, readings
from labkit.ops.readings import GAUGES, Found
from labkit.ops.scrape import MetricsError, prometheus
from labkit.ops.steps import named
from labkit.work.entries import passing
from labkit.work.queues import Queue

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

PATIENCE = 60.0  # seconds that one question may take, with its retries
_ROUNDS = 3  # without an answer, after which a number is no longer shown

logger = logging.getLogger(__name__)


class FleetWatch(Closing):
    """Ask about ``queues`` (agent class → its queue), their dead-letter queues, and ``rules`` (bus, rule).

    ``dead_letters``: further dead-letter queues, such as those of EventBridge's targets. SQS is asked every ``every``
    seconds, CloudWatch every ``seldom``. ``clients`` makes the CloudWatch client, once: a lab, or what has its
    ``client``; without it there are no ages and no rules. :meth:`start` asks in a thread until :meth:`close`,
    :meth:`poll` once. ``registry`` is what :class:`~labkit.ops.scrape.MetricsPort` serves. Raises :class:`MetricsError`
    for bad names and times, a queue that is named twice, and clients that wait too long.
    """

    def __init__(
        self,
        queues: Mapping[str, Queue],
        *,
        clients: metrics.Clients | None = None,
        dead_letters: Iterable[Queue] = (),
        rules: Iterable[tuple[str, str]] = (),
        every: float = 15.0,
        seldom: float = 60.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._queues = {named("an agent class", agent): queue for agent, queue in queues.items()}
        self._dead, self._rules = list(dead_letters), [(str(bus), str(rule)) for bus, rule in rules]
        for queue in (*self._queues.values(), *self._dead):
            if not isinstance(queue, Queue):
                raise MetricsError(f"what is watched is a Queue; got {queue!r:.80}.")
        if self._rules and clients is None:
            raise MetricsError("rules are counted by CloudWatch: give clients, a lab or a boto3 Session.")
        try:
            self._every = number("every", every, low=1, high=300, unit="s")
            self._seldom = number("seldom", seldom, low=self._every, high=900, unit="s")
        except ModelError as error:
            raise MetricsError(f"a fleet cannot be watched so: {error}") from error
        every_queue = [*self._queues.values(), *self._dead]
        if len({queue.name for queue in every_queue}) < len(every_queue):
            raise MetricsError("a queue is watched once, for one agent class; its alarms could not tell two apart.")
        self._clock = clock
        self._clients = None if clients is None else _Made(clients.client("cloudwatch"))
        for client in [queue.client for queue in every_queue] + ([self._clients.made] if self._clients else []):
            if (longest := _longest(client)) > PATIENCE:
                raise MetricsError(
                    f"this client may wait {longest:g} s for one answer; give it time-outs and retries that come to "
                    f"{PATIENCE:g} s at most."
                )
        self._seen: dict[str, tuple[float, Found]] = {}  # watched → until when it is shown, and what
        self._mute: set[str] = set()  # what has not answered the last time
        self._last = dict.fromkeys((watched for watched, _, _ in self._questions()), 0.0)
        self._failed = dict.fromkeys(self._last, 0)
        self._asked: dict[str, float] = {}
        self._guard, self._round, self._end = threading.Lock(), threading.Lock(), threading.Event()
        self._thread: threading.Thread | None = None
        self.registry: CollectorRegistry = prometheus().CollectorRegistry()
        self.registry.register(self)

    def start(self) -> FleetWatch:
        """Ask from now on, in a thread. Returns at once."""
        if self._thread is not None:
            raise MetricsError("this watch runs already, or is closed; make another one.")
        self._thread = threading.Thread(target=self._run, name="labkit-watch", daemon=True)
        self._thread.start()
        return self

    def close(self) -> None:
        """End the thread, after the question that is under way: :data:`PATIENCE` seconds at most, usually at once."""
        self._end.set()
        if self._thread is not None:
            self._thread.join(PATIENCE)

    def poll(self) -> None:
        """One round. Never raises: what is not answered is logged and counted, and missing from the scrape."""
        with self._round:
            silent: set[str] = set()
            for watched, every, ask in self._questions():
                service = watched.partition(":")[0]
                # A little early counts as due: rounds do not come by the millisecond.
                due = self._clock() - self._asked.get(watched, 0.0) >= every - 0.5 * self._every
                if self._end.is_set() or service in silent or not due:
                    continue
                self._asked[watched] = self._clock()
                if not self._answered(watched, every, ask):
                    silent.add(service)

    def collect(self) -> Iterator[Any]:
        """For prometheus_client: what is known and fresh."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        now = self._clock()
        with self._guard:
            found: Found = {}
            for until, seen in self._seen.values():
                found.update(seen if now <= until else {})
            last, failed = dict(self._last), dict(self._failed)
        for name, (labels, says) in GAUGES.items():
            gauge = GaugeMetricFamily(name, says, labels=labels)
            for (of, values), value in found.items():
                if of == name:
                    gauge.add_metric(values, value)
            yield gauge
        when = GaugeMetricFamily(
            "watch_last_success_timestamp_seconds", "When it was last answered.", labels=["watched"]
        )
        failures = CounterMetricFamily("watch_failures", "Questions without an answer.", labels=["watched"])
        for watched in last:
            when.add_metric([watched], last[watched])
            failures.add_metric([watched], failed[watched])
        yield from (when, failures)

    # -- asking ----------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._end.is_set():
            self.poll()
            self._end.wait(self._every)

    def _questions(self) -> Iterator[tuple[str, float, Callable[[], Found]]]:
        """What is watched, how often, and how to ask: cheap to make anew for each round."""
        for agent, queue in self._queues.items():
            yield f"sqs:{queue.name}", self._every, partial(readings.queue, queue, agent)
        for queue in self._dead:
            yield f"sqs:{queue.name}", self._every, partial(readings.dead_letters, queue, "")
        if self._clients is None:
            return
        for agent, queue in self._queues.items():
            yield f"cloudwatch:{queue.name}", self._seldom, partial(readings.age, self._clients, queue.name, agent)
        for bus, rule in self._rules:
            yield f"cloudwatch:{bus}/{rule}", self._seldom, partial(readings.rule, self._clients, bus, rule)

    def _answered(self, watched: str, every: float, ask: Callable[[], Found]) -> bool:
        """Ask, and keep what is said. False when the service did not answer at all."""
        try:
            found = ask()
        except Exception as error:  # noqa: BLE001 - a watch that dies of one question is blind for all the others
            with self._guard:
                self._failed[watched] += 1
            news = watched not in self._mute
            self._mute.add(watched)
            logger.log(logging.WARNING if news else logging.INFO, "%s was not answered: %s", watched, error)
            reason = error.__cause__ if isinstance(error.__cause__, Exception) else error
            return not passing(reason)
        now = self._clock()
        self._mute.discard(watched)
        with self._guard:
            self._last[watched] = now
            self._seen[watched] = now + _ROUNDS * every, found
        return True


@dataclass(frozen=True)
class _Made:
    """The one client that is needed, made once."""

    made: Any

    def client(self, service: str, /) -> Any:
        return self.made


def _longest(client: Any) -> float:
    """Seconds that one call may take: every attempt with both of its time-outs. botocore's defaults come to minutes."""
    config = client.meta.config
    retries = config.retries or {}
    attempts = retries.get("total_max_attempts") or retries.get("max_attempts", 4) + 1
    return float(attempts * ((config.connect_timeout or 60) + (config.read_timeout or 60)))
