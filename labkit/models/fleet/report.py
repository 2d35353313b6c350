"""What a simulated run reports: samples over time as a frame, and figures over the whole."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from labkit.models.fleet import tally
from labkit.models.fleet.spec import Fleet
from labkit.models.scaling import Change

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FIGURES", "Recorder", "Run"]

# Name, unit and meaning of every figure that a run reports.
FIGURES = {
    "conversations": ("", "began"),
    "done": ("", "conversations that ended well"),
    "steps": ("", "steps done"),
    "runs": ("", "calls of the model: steps, and what was run in vain"),
    "throttled": ("", "receives that the model turned away"),
    "failed": ("", "runs that failed"),
    "superseded": ("", "runs whose message was received again, or given up, meanwhile"),
    "killed": ("", "receives that ended with their pod"),
    "dead": ("", "messages in the dead-letter queue; their conversations have ended"),
    "wait_mean": ("s", "in the queue, for each receive"),
    "wait_p50": ("s", "half of the receives waited no longer"),
    "wait_p95": ("s", "95 % of the receives waited no longer"),
    "wait_p99": ("s", "99 % of the receives waited no longer"),
    "conversation_mean": ("s", "from first to last: the conversations open, by those that ended in a second"),
    "visible_mean": ("messages", "in the queue"),
    "visible_peak": ("messages", "in the queue, highest sample"),
    "in_flight_mean": ("messages", "received and not deleted"),
    "in_flight_peak": ("messages", "received and not deleted, highest sample"),
    "busy_mean": ("slots", "at work"),
    "pods_mean": ("pods", "starting or ready"),
    "pods_peak": ("pods", "starting or ready, highest sample"),
    "pod_hours": ("h", "paid, without the draining ones"),
    "utilisation": ("", "busy slots by those of the ready pods; draining pods make it more"),
}


_DUST = 1e-6  # less than this of a message is what the tick engine's rounding leaves


class Recorder:
    """Takes the samples, and the integrals of what the engine does not know: its pods."""

    def __init__(self, fleet: Fleet, engine: tally.Engine, arriving: NDArray[np.int64], every: int) -> None:
        # One for each sample, at second 0, and at the end, which need not be a sample's second.
        self._rows = np.zeros((len(arriving) // every + 2, 2 + 4 + 2 + len(tally.COUNTS) + 1))
        self._taken = 0
        self._fleet, self._engine, self._every = fleet, engine, every
        self._arrived = np.concatenate([[0], np.cumsum(arriving)])
        self._pods = self._ready = 0.0

    def passed(self, seconds: int, pods: int, ready: int) -> None:
        self._pods += seconds * pods
        self._ready += seconds * ready

    def sample(self, now: int, pods: int, ready: int) -> None:
        wait = self._engine.sums[tally.WAIT]
        row = (now, self._arrived[now], *self._engine.levels, pods, ready, *self._engine.counts, wait)
        self._rows[self._taken] = row
        self._taken += 1

    def run(self, seconds: int, engine: str, seed: int, changes: tuple[Change, ...]) -> Run:
        samples = self._rows[: self._taken]
        sums, waits = self._engine.sums, self._engine.waits
        counts = dict(zip(tally.COUNTS, self._engine.counts.tolist(), strict=True))
        received = waits.sum()
        reached = np.searchsorted(np.cumsum(waits), np.array([0.5, 0.95, 0.99]) * received) if received else [0, 0, 0]
        figures = {
            "conversations": float(self._arrived[seconds]),
            **counts,
            "wait_mean": _by(sums[tally.WAIT], received),
            **{f"wait_p{share}": float(wait) for share, wait in zip((50, 95, 99), reached, strict=True)},
            "conversation_mean": _by(sums[tally.OPEN], counts["done"]),
            "visible_mean": sums[tally.VISIBLE] / seconds,
            "visible_peak": samples[:, 2].max(),
            "in_flight_mean": sums[tally.IN_FLIGHT] / seconds,
            "in_flight_peak": samples[:, 3].max(),
            "busy_mean": sums[tally.BUSY] / seconds,
            "pods_mean": self._pods / seconds,
            "pods_peak": samples[:, 6].max(),
            "pod_hours": self._pods / 3600,
            "utilisation": _by(sums[tally.BUSY], self._ready * self._fleet.slots),
        }
        figures = {name: float(figures[name]) for name in FIGURES}
        return Run(self._fleet, seconds, engine, seed, figures, changes, samples, self._every)


@dataclass(frozen=True, eq=False)
class Run:
    """One simulated run: ``figures`` by name (units and meanings: ``FIGURES``), the autoscaler's ``changes``."""

    fleet: Fleet
    seconds: int
    engine: str
    seed: int
    figures: dict[str, float]
    changes: tuple[Change, ...]
    _samples: NDArray[np.float64]
    _every: int

    @cached_property
    def frame(self) -> pd.DataFrame:
        """A row for each sample and one for the end, by ``second``: levels then, and counts since the row before.

        ``visible``, ``in_flight`` (messages), ``busy`` (slots), ``open`` (conversations), ``pods``, ``ready``; then
        ``arrived``, ``done``, ``steps``, ``runs``, ``throttled``, ``failed``, ``superseded``, ``killed``, ``dead``, and
        ``wait``, the mean wait in seconds of what was received since.
        """
        import pandas as pd

        samples = self._samples
        counts = np.diff(samples[:, 8:], axis=0, prepend=samples[:1, 8:])
        columns: dict[str, Any] = {"second": samples[:, 0].astype(int)}
        columns |= dict(zip(("visible", "in_flight", "busy", "open", "pods", "ready"), samples[:, 2:8].T, strict=True))
        columns["arrived"] = np.diff(samples[:, 1], prepend=samples[0, 1])
        columns |= dict(zip(tally.COUNTS, counts.T, strict=False))
        received = columns["runs"] + columns["throttled"]
        columns["wait"] = np.divide(counts[:, -1], received, out=np.zeros(len(received)), where=received > _DUST)
        return pd.DataFrame(columns).set_index("second")

    @property
    def lost(self) -> float:
        """Conversations of which nobody can say where they are: none, if the engine is right."""
        still = self._samples[-1, 5]
        return self.figures["conversations"] - self.figures["done"] - self.figures["dead"] - float(still)


def _by(part: float, whole: float) -> float:
    return float(part / whole) if whole else 0.0
