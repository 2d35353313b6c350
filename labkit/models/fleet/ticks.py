"""The tick engine: messages counted second by second, not one by one; its time does not grow with the fleet.

What became visible in one second is a *cohort*; cohorts are received in their order. A cohort knows how its messages
are spread over the steps of their conversations and, apart from that, over how often they were received: two rows
instead of a table, which takes the two for independent within a cohort. What is received in one second is split over
the seconds in which it will end: up to ``PACKETS`` draws from the step time, each for an equal part, and only as many
of them at random, not evenly over the distribution, as make fleets of any size fluctuate as real ones do.

A step that begins somewhere in its second and lasts ``d`` ends, counted in whole seconds, ``floor(u + d)`` later with
``u`` uniform; its mean is ``d`` again, so nothing is lost to rounding.

Where it is not the exact engine's equal, by measurement. Within a second what ends goes before what begins, so that a
level which brushes a limit brushes it less: with steps of 10 seconds, one standard deviation below the model's quota,
half as many are throttled. And while the very first conversations of a run come to their end, with four runs in ten
failing, a fifth fewer are done; after a few times as long the difference is gone.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from labkit.models._input import ModelError
from labkit.models.fleet import tally
from labkit.models.fleet.spec import Fleet
from labkit.models.fleet.ticks_loop import (
    AT_MODEL,
    BUSY,
    DRAWN,
    DUST,
    HEAD,
    HELD,
    NODES_USED,
    NOW,
    PACKETS,
    SLOTS,
    UNUSED,
    advance,
    kill_late,
)

__all__ = ["TickEngine"]

_MOST_BYTES = 4e9
_CHANCES = 1 << 16


class TickEngine:
    """See the module. ``arriving``: conversations that come in each second."""

    def __init__(self, fleet: Fleet, arriving: np.ndarray[Any, np.dtype[np.int64]], rng: np.random.Generator) -> None:
        self._fleet, self._rng = fleet, rng
        self._rules = (
            fleet.steps, fleet.hop, fleet.visibility, fleet.heartbeat, fleet.max_receives,
            np.inf if fleet.quota is None else float(fleet.quota), fleet.gated, fleet.throttle, float(fleet.cap),
            float(fleet.fails),
        )  # fmt: skip
        self._retry = np.array(fleet.waits, dtype=np.int64)
        self._table = fleet.step_time.quantiles()
        self._arriving = arriving
        steps, receives = fleet.steps, fleet.max_receives + 1
        # What would end long after the run ends in the ring's last second, which the run does not reach.
        far = len(arriving) + fleet.visibility
        ends = _ring(max(min(float(self._table.max()), far) + 2, fleet.throttle + 1))
        backs = _ring(max(fleet.visibility, fleet.throttle + int(self._retry.max())) + 2)
        self._hold(min(ends, 2 * len(arriving)) + 2 * min(backs, 2 * len(arriving)), steps + receives)
        self._n = np.zeros(4, dtype=np.int64)
        self._chances = np.empty(0)
        self._level = np.zeros(7)
        self.counts = np.zeros(len(tally.COUNTS))
        self.sums = np.zeros(len(tally.SUMS))
        self.waits = np.zeros(len(arriving) + 1)
        self._end = np.zeros((ends, steps + receives))
        # Nothing that runs was received 0 times: that column holds the slots, beside what it is added up with.
        self._end_step, self._end_held, self._end_receive = np.split(self._end, [steps, steps + 1], axis=1)
        self._end_held, self._end_late = self._end_held[:, 0], np.zeros(ends)
        self._throttled_all, self._throttled_held = np.zeros(ends), np.zeros(ends)
        self._sent = np.zeros((fleet.hop + 1, steps))  # by the step that the message is of
        self._back = [np.zeros((backs, steps)), np.zeros((backs, receives))]
        self._over = [np.zeros((backs, steps)), np.zeros((backs, receives))]
        columns = (steps, receives, steps, receives)
        self._cohorts = [*(np.zeros((4096, wide)) for wide in columns), np.zeros(4096)]
        self._first = np.full(ends, -1, dtype=np.int64)
        self._nodes = [np.zeros(0, dtype=kind) for kind in (np.int64, np.int64, np.float64)]
        self._unused = np.zeros(0, dtype=np.int64)
        self._pods = 0
        self._drained: list[tuple[Any, Any, Any, Any] | None] = []

    def _hold(self, seconds: int, wide: int) -> None:
        if (size := seconds * wide * 8) > _MOST_BYTES:
            raise ModelError(
                f"the tick engine holds {_MOST_BYTES / 1e9:g} GB at most, and this run takes {size / 1e9:.1f}: make it "
                "shorter, or let it have fewer steps or receives, or shorter waits."
            )

    @property
    def levels(self) -> tuple[float, float, float, float]:
        visible, in_flight, busy, opened = self._level[:4].tolist()
        return max(0.0, visible), max(0.0, in_flight), max(0.0, busy), max(0.0, opened)

    def advance(self, until: int) -> None:
        while until - self._n[HEAD] >= len(self._cohorts[0]):
            self._more_cohorts()
        state: Any = (
            self._table, self._arriving, self._n, self._level, self.counts, self.sums, self.waits, self._end,
            self._end_late, self._throttled_all, self._throttled_held, self._sent, *self._back,
            *self._over, *self._cohorts, self._first,
        )  # fmt: skip
        while why := advance(until, self._rules, self._retry, self._chances, *state, *self._late()):
            if why == NODES_USED:
                self._more_nodes()
            else:
                self._chances, self._n[DRAWN] = self._rng.random(_CHANCES), 0

    def open(self, pods: int) -> None:
        self._pods += pods
        self._level[SLOTS] += pods * self._fleet.slots

    def drain(self, pods: int, grace: int) -> int:
        share = pods / self._pods
        # What will still run when the grace is over: in each second an equal share of all attempts that hold a slot.
        there = self._end_receive.sum(axis=1) + self._end_late
        part = np.divide(share * self._end_held, there, out=np.zeros_like(there), where=there > DUST)
        ahead = (np.arange(len(part)) - self._n[NOW]) % len(part)
        part[ahead < grace] = 0.0
        still = np.nonzero(part)[0]
        column = part[still, None]
        left = (still, column * self._end_step[still], column * self._end_receive[still], part * self._end_late)
        self._drained.append(left if len(still) else None)
        self._end_held *= 1 - share
        self._throttled_held *= 1 - share
        self._level[HELD] *= 1 - share
        self._pods -= pods
        self._level[SLOTS] -= pods * self._fleet.slots
        return len(self._drained) - 1

    def kill(self, drained: int) -> None:
        left = self._drained[drained]
        if left is None:
            return
        still, steps, receives, late = left
        self._end_step[still] -= steps
        self._end_receive[still] -= receives
        gone = receives.sum() + late.sum()
        self.counts[tally.KILLED] += gone
        self._level[BUSY] -= gone
        self._level[AT_MODEL] -= gone
        if len(after := self._returns(still, receives.sum(axis=1))):
            places = (self._n[NOW] + after) % len(self._back[0])
            np.add.at(self._back[0], places, steps.sum(axis=0) / len(after))
            np.add.at(self._back[1][:, 1:], places, receives.sum(axis=0) / len(after))
        shares = np.divide(late, self._end_late, out=np.zeros_like(late), where=self._end_late > DUST)
        state: Any = (*self._back, *self._over, *self._cohorts, self._first)
        kill_late(self._n[HEAD], self._n[NOW], shares, *state, *self._late()[:3])
        self._end_late -= late
        self._drained[drained] = None

    def _returns(self, still: NDArray[np.int64], many: NDArray[np.float64]) -> NDArray[np.int64]:
        """Seconds after which messages whose workers are killed come back, each for an equal part of them.

        The timeout has run since the receive or, with a heartbeat at half of it, since the last one. How long ago the
        receive was nobody has kept: a worker that would need ``more`` seconds has a step of at least as many.
        """
        timeout, beats, parts = self._fleet.visibility, self._fleet.heartbeat, min(PACKETS, int(np.ceil(many.sum())))
        at = (np.arange(parts) + self._rng.random(parts)) / max(parts, 1) * many.sum()
        which = np.minimum(np.searchsorted(many.cumsum(), at, side="right"), len(many) - 1)
        more = (still[which] - self._n[NOW]) % len(self._end_held)
        # Without a heartbeat these are steps within their timeout; the others are late, and on their own lists.
        longest = len(self._table) if beats else int(np.searchsorted(self._table, timeout + 1))
        shortest = np.minimum(np.searchsorted(self._table, more), longest - 1)
        drawn = self._table[shortest + (self._rng.random(parts) * (longest - shortest)).astype(np.int64)]
        ago = np.maximum(drawn - more, 0.0)
        left = timeout - (ago % (timeout / 2) if beats else np.minimum(ago, timeout - 1))
        return np.asarray(np.ceil(left), dtype=np.int64)

    def _late(self) -> Any:
        following, cohort, weight = self._nodes
        return following, cohort, weight, self._unused

    def crash(self, pods: int) -> None:
        self.kill(self.drain(pods, 0))

    def _more_cohorts(self) -> None:
        old, beats = len(self._cohorts[0]), self._fleet.heartbeat
        self._hold(2 * old, (1 if beats else 2) * (self._fleet.steps + self._fleet.max_receives + 1))
        kept = np.arange(max(self._n[HEAD], self._n[NOW] - old + 1), self._n[NOW])
        for number, each in enumerate(self._cohorts):
            wider = np.zeros((2 * old, *each.shape[1:]))
            if not beats or number < 2:  # with a heartbeat nothing is ever late
                wider[kept % (2 * old)] = each[kept % old]
            self._cohorts[number] = wider

    def _more_nodes(self) -> None:
        there = len(self._nodes[0])
        new = max(8 * PACKETS, there)
        self._nodes = [np.concatenate([each, np.zeros(new, dtype=each.dtype)]) for each in self._nodes]
        free = self._unused[: self._n[UNUSED]]
        self._unused = np.zeros(there + new, dtype=np.int64)
        self._unused[: len(free)] = free
        self._unused[len(free) : len(free) + new] = np.arange(there, there + new)
        self._n[UNUSED] += new


def _ring(seconds: float) -> int:
    """A power of two that holds so many seconds."""
    return 1 << int(np.ceil(np.log2(seconds + 1)))
