"""A fleet's autoscaler as one object: KEDA looks at the queue, the HPA follows it, and a clock of yours drives both.

::

    scaler = Autoscaler(ScaledObject(queue_length=10, maximum=60))
    for second in range(600):
        replicas = scaler.step(second, visible=..., in_flight=...)

KEDA looks at second 0, 30, 60 …, the HPA for the first time 15 seconds after its creation, and then every 15. So a
message on an empty queue waits for up to 30 seconds until KEDA sees it, and a burst for up to 15 more until the HPA
does; the pod's own start comes on top, and is not modelled here.

The rules stand in :mod:`labkit.models.keda`, :mod:`labkit.models.hpa` and :mod:`labkit.models.hpa_metrics`, with
their sources. Ours: that both loops begin at the same second, and KEDA's look comes first; in a cluster the two are
out of step by anything up to their intervals.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from labkit.models._input import limit, number, whole
from labkit.models.hpa import Hpa
from labkit.models.hpa_metrics import per_pod
from labkit.models.keda import Keda, ScaledObject

__all__ = ["Autoscaler", "Change"]


@dataclass(frozen=True)
class Change:
    """One change of the replicas: when (seconds), from, to, who did it, and why."""

    at: float
    before: int
    after: int
    by: Literal["KEDA", "HPA"]
    why: str


class Autoscaler:
    """KEDA and its HPA for one queue. ``started``: the second in which both are created.

    ``replicas``: what there is at the start, by default as few as the ScaledObject allows. It may be set later, as
    ``kubectl scale`` would. ``why``: what was decided in the last step in which somebody looked, and for what reason.
    ``changes``: every change so far. Raises :class:`~labkit.models._input.ModelError`.

    >>> scaler = Autoscaler(ScaledObject(queue_length=10))
    >>> [scaler.step(second, visible=25) for second in (0, 15, 30)]
    [1, 3, 3]
    >>> scaler.changes[0].why
    '25 messages, over 0: 0 to 1'
    """

    def __init__(self, scaled: ScaledObject, *, replicas: int | None = None, started: float = 0.0) -> None:
        self.scaled = scaled
        rest = scaled.minimum if scaled.idle is None else scaled.idle
        self.replicas = whole("replicas", rest if replicas is None else replicas, low=0)
        self.keda = Keda(scaled, created=started)
        self.hpa = Hpa(minimum=max(scaled.minimum, 1), maximum=scaled.maximum, behavior=scaled.behavior)
        self.changes: list[Change] = []
        self.why = "nobody has looked yet"
        self._sync = limit("hpa.sync_period")
        self._next_look, self._next_sync = started, started + self._sync
        self._started = self._now = started

    @property
    def due(self) -> float:
        """The next second at which somebody looks; a step before it changes nothing."""
        return min(self._next_look, self._next_sync)

    def step(
        self, now: float, visible: int | None, in_flight: int = 0, delayed: int = 0, *, pods: int | None = None
    ) -> int:
        """The replicas after whatever is due at second ``now``, with the queue's three counts as they are then.

        ``visible`` None: the queue cannot be read. ``pods``: those that exist, where that is not ``replicas``. A step
        of one second, or of any that divides the intervals, misses nothing; a longer one than an interval does one
        look and one sync, and no more.
        """
        self._now = number("now", now, low=self._now, unit="s")
        messages = None if visible is None else self.scaled.messages(visible, in_flight, delayed)
        said = []
        if now >= self._next_look:
            self._next_look = self._after(now, self.scaled.polling)
            look = self.keda.look(now, messages, self.replicas)
            said.append(f"KEDA: {look.why}")
            self._set(now, look.replicas, "KEDA", look.why)
        if now >= self._next_sync:
            self._next_sync = self._after(now, self._sync)
            why = self._follow(now, messages, pods)
            said.append(f"HPA: {why}")
        self.why = "; ".join(said) or self.why
        return self.replicas

    def _follow(self, now: float, messages: int | None, pods: int | None) -> str:
        wish: int | None = None
        if self.hpa.reads(self.replicas):
            usage = self.keda.measure(messages, self.replicas)
            there = self.replicas if pods is None else whole("pods", pods, low=0)
            if usage is not None:
                wish = per_pod(usage, self.scaled.queue_length, there, self.hpa.tolerance)
        decision = self.hpa.sync(now, self.replicas, [wish])
        self._set(now, decision.replicas, "HPA", decision.why)
        return decision.why

    def _set(self, now: float, replicas: int, by: Literal["KEDA", "HPA"], why: str) -> None:
        if replicas != self.replicas:
            self.changes.append(Change(now, self.replicas, replicas, by, why))
            self.replicas = replicas

    def _after(self, now: float, interval: int) -> float:
        """The next turn of a loop that began at the start: the first multiple of its interval after ``now``."""
        return self._started + (math.floor((now - self._started) / interval) + 1) * interval
