"""Tracing: what it costs a worker. The same worker on the same queue, with its spans written to a file and without.

The step does nothing, which no step does, so that this is the most that tracing can cost. Without a store a message
takes a fraction of a millisecond: the last row has no budget, and shows what a span costs. The throughput is what a
clock says, and the processor's time what the worker's process used, the export included: on a machine that others use,
too, only the second one is steady.
"""

from __future__ import annotations

import functools
import itertools
import statistics
import tempfile
import time
from pathlib import Path

from labkit import Lab
from labkit.control.envelope import Envelope
from labkit.control.trace_context import TraceContext
from labkit.ops.spans import files as tracing_files
from labkit.ops.tracing import Tracing
from labkit.state.idempotency import IdempotencyStore
from labkit.work.queues import Queue
from labkit.work.worker import Task, Worker
from tests.benchmarks.measure import Row, seconds

# Many short turns, each side twice in each (a b b a): a machine that others use, too, drifts within seconds.
MESSAGES, TURNS, THREADS = 100, 15, 8


def rows() -> list[Row]:
    with Lab.open("benchmark") as lab, tempfile.TemporaryDirectory() as folder:
        return [
            _measured(lab, Path(folder), "with store, one a receive", stored=True, prefetch=1),
            _measured(lab, Path(folder), "with store, ten a receive", stored=True, prefetch=10),
            _measured(lab, Path(folder), "no store, ten a receive", stored=False, prefetch=10, budget=""),
        ]


def _measured(lab: Lab, folder: Path, what: str, *, stored: bool, prefetch: int, budget: str = "≤ 5 %") -> Row:
    queue = Queue.create(lab, f"traced-{prefetch}-{stored}".lower(), dlq=True)
    store = IdempotencyStore.create(lab, "traced-steps") if stored else None
    runs = itertools.count()

    def fill() -> None:
        run = next(runs)
        queue.send_batch([_envelope(run, number).detail() for number in range(MESSAGES)])

    def work(tracing: Tracing | None) -> None:
        worker = Worker(queue, _step, store=store, threads=THREADS, prefetch=prefetch, visibility=120, wait=0)
        if tracing:
            tracing.watch(worker)
        assert worker.run(until_empty=True)["done"] == MESSAGES

    ratios, processor = [], []
    tracing = Tracing.open("bench", folder=folder)  # once, as a worker does, and before any turn: it imports much
    for turn in range(TURNS):
        took, used = {"plain": 0.0, "traced": 0.0}, {"plain": 0.0, "traced": 0.0}
        order = ("plain", "traced", "traced", "plain")
        for name in order if turn % 2 else reversed(order):
            fill()
            began = time.process_time()
            took[name] += seconds(functools.partial(work, tracing if name == "traced" else None))
            if name == "traced":
                assert tracing.flush()  # in the processor's time, not in the clock's: a worker's thread does it beside
            used[name] += time.process_time() - began
        processor.append(used["traced"] / used["plain"])
        ratios.append(took["plain"] / took["traced"])
    tracing.close()
    written = _counted(folder)
    assert written == 2 * MESSAGES * TURNS, (written, [(each.dropped, each.failed) for each in tracing.queues])
    # The first turn warms up.
    cost, more = 100 * (1 - statistics.median(ratios[1:])), 100 * (statistics.median(processor[1:]) - 1)
    what = f"tracing a worker, 8 threads, {what}: throughput lost (more processor time)"
    return what, f"{cost:.1f} % ({more:.1f} %)", budget


def _counted(folder: Path) -> int:
    """The deliveries in the files, which go."""
    found = sum(each.name.startswith("process") for each in tracing_files.read(folder))
    for path in folder.iterdir():
        path.unlink()
    return found


def _envelope(run: int, number: int) -> Envelope:
    return Envelope.new(
        conversation_id=f"{run}-{number}",
        step=1,
        agent_class="researcher",
        payload={"n": number},
        traceparent=TraceContext.root().traceparent,
    )


def _step(task: Task) -> dict[str, int]:
    return {"ok": 1}
