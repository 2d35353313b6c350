"""The failure taxonomy: every way in which a hop of the fleet fails, injected, seen, mended and accounted for.

A :class:`~labkit.ops.taxonomy.row.Row` says of one failure what it looks like, which signal sees it
(:mod:`labkit.ops.taxonomy.signals`), and what bounds it. It can do it, too: ``inject(fleet)`` breaks the hop for the
time of a block, ``recover(fleet, ids)`` is the drill. :func:`run` does one row from end to end::

    for row in ROWS:                      # in the order in which messages flow
        finding = run(fleet, row)
        finding.signals                   # which signals moved, and by how much
        finding.account                   # sent 3, done 3, lost 0, duplicated 0

The failures are AWS's own wherever there is a way to cause them: a policy taken away, a queue that is not there, a
concurrency of 0. Where there is none, the stand-in helps (``lab:fault``), or botocore's events do
(:mod:`labkit.ops.faults`). What is broken is whole again when the block ends, however it ends.

Most rows take a second or two; some wait for a visibility timeout, or for a heartbeat. :func:`begin` runs all of them
at the same time, on fleets that know nothing of each other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

from labkit.ops.taxonomy import control, model, work, workflow
from labkit.ops.taxonomy.fleet import WITHIN, Account, Fleet, TaxonomyError
from labkit.ops.taxonomy.row import Finding, Row, run
from labkit.ops.taxonomy.signals import SIGNALS

if TYPE_CHECKING:
    from labkit.lab import Lab

__all__ = ["ROWS", "SIGNALS", "WITHIN", "Account", "Finding", "Fleet", "Row", "TaxonomyError", "begin", "run"]

ROWS: tuple[Row, ...] = (
    *control.ROWS,
    *work.ROWS,
    *workflow.ROWS,
    *model.ROWS,
)
_BY_KEY = {row.key: row for row in ROWS}
_PATIENCE = 10.0  # seconds for rows that are told to end
_NUMBERS = itertools.count(1)  # of fleets: a cell that runs again makes new ones

# Rows that share a fleet, one after the other: so that each of these takes about as long as the others.
_FLEETS = (
    (*(row.key for row in control.ROWS), "poison"),
    ("worker-crash", "model-down", "model-quota"),
    ("heartbeats-lost", "swallowed"),
    ("function-raises",),
    ("function-throttled",),
    ("answer-malformed",),
    ("answer-empty",),
    ("token-held", "state-failed"),
    ("token-stale",),
)


def begin(lab: Lab, keys: Iterable[str] = tuple(_BY_KEY)) -> dict[str, Future[Finding]]:
    """Run the rows of these ``keys`` in threads, and return at once: ``begin(lab)["poison"].result(WITHIN)``.

    What a row raises, its future raises; the others go on. A fleet ends with its last row. The end of the lab ends them
    all: what has no result then raises. Raises :class:`TaxonomyError` for a key that no row has.
    """
    wanted = [keys] if isinstance(keys, str) else list(keys)
    if unknown := [key for key in wanted if not isinstance(key, str) or key not in _BY_KEY]:
        raise TaxonomyError(f"there is no row {unknown[0]!r:.60}; those are {', '.join(_BY_KEY)}.")
    groups = [group for keys in _FLEETS if (group := [key for key in keys if key in wanted])]
    pool = ThreadPoolExecutor(len(groups) or 1, thread_name_prefix="labkit-taxonomy")
    fleets: list[Fleet] = []
    found: dict[str, Future[Finding]] = {key: Future() for key in wanted}

    def run_all(number: int, group: list[str]) -> None:
        try:
            fleet = Fleet.create(lab, f"fleet-{number}")
            fleets.append(fleet)
        except BaseException as error:  # noqa: BLE001 - a thread has nobody to raise to: the futures have
            for key in group:
                if found[key].set_running_or_notify_cancel():
                    found[key].set_exception(error)
            return
        for key in group:
            if not found[key].set_running_or_notify_cancel():
                continue  # somebody has cancelled it
            try:
                found[key].set_result(run(fleet, _BY_KEY[key], within=WITHIN))
            except BaseException as error:  # noqa: BLE001 - as above
                found[key].set_exception(error)
        fleet.end()

    threads = [pool.submit(run_all, next(_NUMBERS), group) for group in groups]

    def end() -> None:
        for fleet in list(fleets):
            fleet.end()
        wait(threads, timeout=_PATIENCE)  # bounded: the lab gives nothing to a thread that asks while it closes
        pool.shutdown(wait=False, cancel_futures=True)

    lab.on_close("the runs of the taxonomy", end)
    return {key: found[key] for key in wanted}
