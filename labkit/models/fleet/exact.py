"""The event-exact engine: every arrival, receive, end and return of every message at its own moment.

The heart is one compiled loop over a binary heap of things to come. It stops at the next second at which something
outside the queue happens (an autoscaler looks, a pod is ready, a sample is due), and whenever an array is full or the
random draws are used up; :class:`ExactEngine` makes room then, and goes on.

A message's *life* rises with each of its changes: whatever the heap or the queue hold about an earlier life is void.
So nothing is ever searched for, or taken out of the middle.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from labkit.models.fleet import exact_loop as loop
from labkit.models.fleet import tally
from labkit.models.fleet.spec import Fleet

__all__ = ["ExactEngine"]

_DRAWS = 1 << 17


class ExactEngine:
    """See the module. ``arriving``: conversations that come in each second."""

    def __init__(self, fleet: Fleet, arriving: np.ndarray[Any, np.dtype[np.int64]], rng: np.random.Generator) -> None:
        self._fleet, self._rng = fleet, rng
        quota = np.iinfo(np.int64).max if fleet.quota is None else fleet.quota
        self._rules = (
            fleet.steps, float(fleet.hop), float(fleet.visibility), fleet.heartbeat, fleet.max_receives, quota,
            fleet.gated, fleet.throttle, fleet.cap, float(fleet.fails),
        )  # fmt: skip
        self._retry = np.array(fleet.waits, dtype=np.float64)
        within = rng.random(int(arriving.sum()))
        self._arrivals = np.sort(np.repeat(np.arange(len(arriving), dtype=np.float64), arriving) + within)
        self._n = np.zeros(14, dtype=np.int64)
        self._clock = np.zeros(1)
        self.counts = np.zeros(len(tally.COUNTS))
        self.sums = np.zeros(len(tally.SUMS))
        self.waits = np.zeros(len(arriving) + 1)
        self._times = np.empty(0)
        self._heap_at, self._heap_what = np.empty(1024), np.empty(1024, dtype=np.int64)
        self._queue, self._queue_life = np.empty(1024, dtype=np.int32), np.empty(1024, dtype=np.int32)
        messages = len(self._arrivals)
        self._life, self._since = np.zeros(messages, dtype=np.int32), np.zeros(messages)
        self._where, self._receives = np.zeros(messages, dtype=np.int8), np.zeros(messages, dtype=np.int8)
        self._step = np.zeros(messages, dtype=np.int16)
        self._idle = np.empty(1024, dtype=np.int32)
        self._works = np.zeros(64, dtype=np.bool_)
        self._ready: list[int] = []  # pods that work, in the order in which they began
        self._pods = 0
        self._drained: list[list[int]] = []
        self._of = [np.empty(0, dtype=kind) for kind in (np.int32, np.int32, np.int32, np.float64, np.int8)]
        self._unused = np.empty(0, dtype=np.int32)

    @property
    def levels(self) -> tuple[float, float, float, float]:
        visible, in_flight, busy, opened = self._n[loop.VISIBLE : loop.OPEN + 1].tolist()
        return visible, in_flight, busy, opened

    def advance(self, until: int) -> None:
        while True:
            why = loop.advance(
                float(until), self._rules, self._rng, self._retry, self._n, self._clock, self.counts, self.sums,
                self.waits, self._arrivals, self._times, self._heap_at, self._heap_what, self._queue,
                self._queue_life, self._life, self._where, self._step, self._receives, self._since, self._idle,
                self._works, self._unused, *self._of,
            )  # fmt: skip
            if why == loop.AT_END:
                return
            if why == loop.DRAWS_USED:
                self._times = self._fleet.step_time.draw(self._rng, _DRAWS)
                self._n[loop.DRAWN] = 0
            elif why == loop.HEAP_FULL:
                self._heap_room(len(self._heap_at))
            elif why == loop.ATTEMPTS_FULL:
                self._more_attempts()
            elif why == loop.QUEUE_FULL:
                head, tail = self._n[loop.HEAD], self._n[loop.TAIL]
                self._queue = _unrolled(self._queue, head, tail)
                self._queue_life = _unrolled(self._queue_life, head, tail)
                self._n[loop.HEAD], self._n[loop.TAIL] = 0, tail - head
            else:
                self._more_idle(0)

    def open(self, pods: int) -> None:
        new = np.arange(self._pods, self._pods + pods, dtype=np.int32)
        self._pods += pods
        while len(self._works) < self._pods:
            self._works = np.concatenate([self._works, np.zeros_like(self._works)])
        self._works[new] = True
        self._ready += new.tolist()
        slots = np.repeat(new, self._fleet.slots)
        self._more_idle(len(slots))
        places = (self._n[loop.IDLE_TAIL] + np.arange(len(slots))) & (len(self._idle) - 1)
        self._idle[places] = slots
        self._n[loop.IDLE_TAIL] += len(slots)
        self._n[loop.IDLE] += len(slots)

    def drain(self, pods: int, grace: int) -> int:
        return self._gone([self._ready.pop() for _ in range(pods)])

    def crash(self, pods: int) -> None:
        chosen = set(self._rng.choice(len(self._ready), pods, replace=False).tolist())
        gone = [pod for place, pod in enumerate(self._ready) if place in chosen]
        self._ready = [pod for place, pod in enumerate(self._ready) if place not in chosen]
        self.kill(self._gone(gone))

    def _gone(self, gone: list[int]) -> int:
        self._works[gone] = False
        waiting = self._idle[np.arange(self._n[loop.IDLE_HEAD], self._n[loop.IDLE_TAIL]) & (len(self._idle) - 1)]
        self._n[loop.IDLE] = int(self._works[waiting].sum())
        self._drained.append(gone)
        return len(self._drained) - 1

    def kill(self, drained: int) -> None:
        dying = np.zeros(len(self._works), dtype=np.bool_)
        dying[self._drained[drained]] = True
        self._heap_room(len(self._of[0]))
        of, *rest = self._of
        loop.kill(
            self._clock[0], float(self._fleet.visibility), self._fleet.heartbeat, dying, self._n, self.counts,
            self._heap_at, self._heap_what, self._life, self._where, of, *rest,
        )  # fmt: skip

    def _heap_room(self, more: int) -> None:
        while len(self._heap_at) < self._n[loop.HEAP] + more + 4:
            self._heap_at = np.concatenate([self._heap_at, self._heap_at])
            self._heap_what = np.concatenate([self._heap_what, self._heap_what])

    def _more_idle(self, more: int) -> None:
        while len(self._idle) <= self._n[loop.IDLE_TAIL] - self._n[loop.IDLE_HEAD] + more:
            self._idle = _unrolled(self._idle, self._n[loop.IDLE_HEAD], self._n[loop.IDLE_TAIL])
            self._n[loop.IDLE_TAIL] -= self._n[loop.IDLE_HEAD]
            self._n[loop.IDLE_HEAD] = 0

    def _more_attempts(self) -> None:
        there = len(self._of[0])
        new = max(1024, there)
        self._of = [np.concatenate([each, np.zeros(new, dtype=each.dtype)]) for each in self._of]
        self._of[4][there:] = loop.FREE
        self._unused = np.empty(there + new, dtype=np.int32)
        self._unused[:new] = np.arange(there, there + new)
        self._n[loop.UNUSED] = new


def _unrolled(ring: Any, head: int, tail: int) -> Any:
    """The ring's contents at the start of one that is twice as long."""
    wider = np.empty(2 * len(ring), dtype=ring.dtype)
    wider[: tail - head] = ring[np.arange(head, tail) & (len(ring) - 1)]
    return wider
