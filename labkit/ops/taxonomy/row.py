"""Rows of the failure taxonomy, and how one is run: break, see, mend, account for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from labkit.models._input import ModelError, number
from labkit.ops.taxonomy import signals
from labkit.ops.taxonomy.fleet import Account, Fleet, TaxonomyError
from labkit.ops.taxonomy.signals import SIGNALS

__all__ = ["Finding", "Row", "run"]


def _nothing(fleet: Fleet, ids: list[str]) -> object:
    """Nobody has to do anything."""
    return None


@dataclass(frozen=True)
class Row:
    """One failure of one hop.

    ``looks``: what somebody sees who does not know the cause. ``signal``: the name of the signal that finds it.
    ``answer``: what recovers, ``bound``: what ends the waiting. ``drive`` sends the work that meets the failure and
    returns its trace ids. ``silent``: no error is raised anywhere, and no dead-letter queue has it.
    """

    key: str
    hop: str
    failure: str
    looks: str
    signal: str
    answer: str
    bound: str
    inject: Callable[[Fleet], AbstractContextManager[object]]
    drive: Callable[[Fleet], list[str]] = lambda fleet: fleet.send()
    recover: Callable[[Fleet, list[str]], object] = _nothing
    silent: bool = False


@dataclass(frozen=True)
class Finding:
    """What one run of a row came to. ``signals``: those that moved while the hop was broken, and by how much. ``runs``:
    how often a step was begun in that time."""

    row: Row
    account: Account
    runs: int = 0
    signals: Mapping[str, float] = field(default_factory=dict)

    @property
    def seen(self) -> bool:
        """Whether the row's own signal was among them."""
        return self.row.signal in self.signals


def run(fleet: Fleet, row: Row, *, within: float = 60.0) -> Finding:
    """Break the hop, wait until its signal moves, mend it, and wait until everything that was sent is accounted for.

    ``within`` bounds each of the two waits, in seconds. Raises :class:`TaxonomyError` when the signal does not move,
    for a ``within`` that is no number of seconds, and when the fleet ends meanwhile.
    """
    try:
        number("within", within, unit="s")
    except ModelError as error:
        raise TaxonomyError(f"a row cannot be run so: {error}") from error
    if fleet.ended:
        raise TaxonomyError(f"the fleet {fleet.name} has ended: {row.key} needs another one.")
    before = signals.read(fleet)
    signal = SIGNALS[row.signal]
    with row.inject(fleet):
        ids = row.drive(fleet)
        fleet.until(lambda: signal.read(fleet) > before[row.signal], f"{row.signal} to move ({row.key})", within=within)
        after, runs = signals.read(fleet), fleet.runs
    row.recover(fleet, ids)
    moved = {name: after[name] - before[name] for name in SIGNALS if after[name] > before[name]}
    return Finding(row, fleet.settle(ids, within=within), sum(runs[each] for each in ids), moved)
