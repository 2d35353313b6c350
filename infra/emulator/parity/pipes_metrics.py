"""The metrics of the namespace AWS/EventBridge/Pipes.

**On AWS** (User Guide, "Monitoring Amazon EventBridge Pipes") each execution counts, by ``PipeName``: Invocations,
EventCount (what the filter let through), EventSize, Duration, and, zero where it did not happen, ExecutionFailed,
ExecutionPartiallyFailed, ExecutionThrottled and ExecutionTimeout; each stage its Duration and its failures. A batch
that the enrichment emptied counts as TargetStageSkipped. Concurrency is to be viewed as a maximum. (Recorded for one
successful execution: Invocations 1, EventCount 1, ExecutionFailed 0, Duration in milliseconds.) Not verified: the
zeros of the others.

**MiniStack** has none.

**Here** :class:`Measured` counts one execution, in the scope of its account and Region. ``publish(namespace, name,
dimensions, value, unit)`` is where it goes: :meth:`parity.pipes_services.Services.count`."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from parity.esm_records import size_of

NAMESPACE = "AWS/EventBridge/Pipes"
ENDINGS = ("ExecutionFailed", "ExecutionPartiallyFailed", "ExecutionThrottled", "ExecutionTimeout")

_running: Counter[str] = Counter()
_lock = threading.Lock()


class Measured:
    def __init__(
        self,
        pipe: Mapping[str, Any],
        records: Sequence[Mapping[str, Any]],
        clock: Callable[[], float],
        publish: Callable[[str, str, Mapping[str, str], float, str], None],
    ) -> None:
        self._publish = publish
        self._name = pipe["Name"]
        self._arn = pipe["Arn"]
        self._clock = clock
        self._began = clock()
        with _lock:
            _running[self._arn] += 1
            at_once = _running[self._arn]
        self.count("Concurrency", at_once)
        self.count("Invocations")
        self.count("EventCount", len(records))
        self.count("EventSize", sum(size_of(dict(record)) for record in records), unit="Bytes")

    def count(self, metric: str, value: float = 1, *, unit: str = "Count") -> None:
        self._publish(NAMESPACE, metric, {"PipeName": self._name}, value, unit)

    @contextmanager
    def stage(self, which: str) -> Iterator[None]:
        began = self._clock()
        try:
            yield
        except Exception:
            self.count(f"{which}StageFailed")
            raise
        self.count(f"{which}StageFailed", 0)
        self.count(f"{which}StageDuration", self._milliseconds(began), unit="Milliseconds")

    def ended(self, how: str | None) -> None:
        """The execution is over: well, or in one of :data:`ENDINGS`."""
        with _lock:
            _running[self._arn] -= 1
            if not _running[self._arn]:
                del _running[self._arn]
        for ending in ENDINGS:
            self.count(ending, int(ending == how))
        self.count("Duration", self._milliseconds(self._began), unit="Milliseconds")

    def _milliseconds(self, began: float) -> float:
        return round((self._clock() - began) * 1000, 2)
