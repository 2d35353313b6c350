"""The simulation: pods that come and go, an autoscaler that looks, samples, around either engine."""

from __future__ import annotations

import heapq
from collections import deque
from typing import Literal

import numpy as np

from labkit.models._input import ModelError, a, one_of, whole
from labkit.models.fleet.exact import ExactEngine
from labkit.models.fleet.report import Recorder, Run
from labkit.models.fleet.spec import Fleet
from labkit.models.fleet.tally import Engine
from labkit.models.fleet.ticks import TickEngine
from labkit.models.scaling import Autoscaler

__all__ = ["simulate"]

_MOST = 20_000_000  # about 24 bytes each
_MOST_SLOTS = 20_000_000
_CRASHES = 15  # seconds


def simulate(
    fleet: Fleet, seconds: int = 86_400, *, seed: int = 1, engine: Literal["ticks", "exact"] = "ticks", every: int = 60
) -> Run:
    """Run ``fleet`` for ``seconds``, with a sample each ``every`` seconds; the same seed gives the same run.

    ``exact`` plays every message, ``ticks`` counts them second by second: use it for size. Raises
    :class:`~labkit.models._input.ModelError`.
    """
    a("fleet", fleet, Fleet, "Fleet(Arrivals.poisson(1), StepTime.fixed(10), replicas=1)")
    whole("seconds", seconds, high=31 * 86_400)
    whole("every", every, high=3600)
    whole("seed", seed, low=0)
    one_of("engine", engine, ("ticks", "exact"))
    arriving = fleet.arrivals.counts(seconds, np.random.default_rng([seed, 0]))
    if engine == "exact" and arriving.sum() > _MOST:
        raise ModelError(
            f"the exact engine holds {_MOST:,} conversations at most; here are {arriving.sum():,}: use ticks."
        )
    pods_at_most = max(fleet.replicas or 0, fleet.scaler.maximum if fleet.scaler else 0)
    if engine == "exact" and pods_at_most * fleet.slots > _MOST_SLOTS:
        raise ModelError(
            f"the exact engine holds {_MOST_SLOTS:,} slots at most; here are {pods_at_most * fleet.slots:,}: use ticks."
        )
    rng, chance = np.random.default_rng([seed, 1]), np.random.default_rng([seed, 2])
    made: Engine = (ExactEngine if engine == "exact" else TickEngine)(fleet, arriving, rng)
    pods = _Pods(fleet, made, chance)
    record = Recorder(fleet, made, arriving, every)
    scaler = None if fleet.scaler is None else Autoscaler(fleet.scaler, replicas=fleet.replicas)
    pods.begin(scaler.replicas if scaler else fleet.replicas or 0)
    now = 0
    while True:
        pods.due(now)
        if now % every == 0 or now >= seconds:
            record.sample(now, pods.wanted, pods.ready)
        if now >= seconds:
            return record.run(seconds, engine, seed, tuple(scaler.changes) if scaler else ())
        if scaler and now >= scaler.due:
            visible, in_flight, *_ = made.levels
            pods.scale(now, scaler.step(now, round(visible), round(in_flight)))
        pods.crash(now)
        until = min(seconds, now - now % every + every, *pods.next(now), *([int(scaler.due)] if scaler else []))
        record.passed(until - now, pods.wanted, pods.ready)
        made.advance(until)
        now = until


class _Pods:
    """The fleet's pods: starting, working, draining."""

    def __init__(self, fleet: Fleet, engine: Engine, chance: np.random.Generator) -> None:
        self._fleet, self._engine, self._chance = fleet, engine, chance
        self.ready = 0
        self._starting: deque[tuple[int, int]] = deque()  # (when they are ready, how many)
        self._draining: list[tuple[int, int]] = []  # (when their grace is over, the engine's number)

    @property
    def wanted(self) -> int:
        return self.ready + sum(many for _, many in self._starting)

    def begin(self, pods: int) -> None:
        """What is there at the start works already."""
        self.ready = pods
        self._engine.open(pods)

    def next(self, now: int) -> list[int]:
        """The next moment of each kind at which something is due."""
        due = [each[0][0] for each in (self._starting, self._draining) if each]
        return [*due, now - now % _CRASHES + _CRASHES] if self._fleet.crashes else due

    def due(self, now: int) -> None:
        while self._starting and self._starting[0][0] <= now:
            _, many = self._starting.popleft()
            self.ready += many
            self._engine.open(many)
        while self._draining and self._draining[0][0] <= now:
            self._engine.kill(heapq.heappop(self._draining)[1])

    def scale(self, now: int, replicas: int) -> None:
        more = replicas - self.wanted
        if more > 0:
            self._start(now, more)
        while more < 0 and self._starting:
            when, many = self._starting.pop()
            if many + more > 0:
                self._starting.append((when, many + more))
            more = min(0, more + many)
        if more < 0:
            self.ready += more
            drained = self._engine.drain(-more, self._fleet.grace)
            heapq.heappush(self._draining, (now + self._fleet.grace, drained))
        self.due(now)

    def crash(self, now: int) -> None:
        """Pods that die in the next few seconds die now. How often somebody takes a sample must not matter."""
        if self._fleet.crashes and self.ready and now % _CRASHES == 0:
            rate = self._fleet.crashes * self.ready * _CRASHES / 86_400
            many = min(self.ready, int(self._chance.poisson(rate)))
            if many:
                self.ready -= many
                self._engine.crash(many)
                self._start(now, many)

    def _start(self, now: int, many: int) -> None:
        self._starting.append((now + self._fleet.start, many))
        self.due(now)
