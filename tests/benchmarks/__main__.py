"""What the pieces cost on this machine: ``make bench``.

Ratios are measured in one run, the two sides in turns, so that a busy machine slows both. Nothing here is asserted:
wall times are no test. The budgets beside them are the project's own.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.benchmarks import control_plane, fleet, gate, model_edge, tracing, triage, work_plane
from tests.benchmarks.measure import ROUNDS, Row, machine, seconds

ROOT = Path(__file__).resolve().parent.parent.parent


def startup() -> Row:
    from labkit import embedded

    def once() -> float:
        took = seconds(embedded.SERVER.ensure)
        embedded.SERVER.stop()
        return took

    return "stand-in ready", f"{statistics.median(once() for _ in range(3)):.2f} s", "≤ 3 s"


def imports() -> Row:
    script = "import boto3, time; t = time.perf_counter(); import labkit; print(time.perf_counter() - t)"
    command = [sys.executable, "-c", script]
    took = [float(subprocess.run(command, check=True, capture_output=True, text=True).stdout) for _ in range(ROUNDS)]
    return "import labkit, on top of boto3", f"{statistics.median(took):.3f} s", "< 0.3 s"


def loop() -> Row:
    """Receive ten, handle, delete in a batch: labkit's loop against the same three calls in bare boto3."""
    from labkit import Lab
    from labkit.work.queues import Queue

    count = 500
    with Lab.open("benchmark") as lab:
        queue = Queue.create(lab, "loop")
        sqs = lab.client("sqs")

        def bare() -> None:
            while found := sqs.receive_message(
                QueueUrl=queue.url,
                MaxNumberOfMessages=10,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            ).get("Messages", []):
                entries = [{"Id": str(i), "ReceiptHandle": m["ReceiptHandle"]} for i, m in enumerate(found)]
                sqs.delete_message_batch(QueueUrl=queue.url, Entries=entries)

        ratios = []
        for turn in range(ROUNDS):
            took = {}
            sides = {"bare": bare, "labkit": lambda: queue.consume(lambda message: None)}
            for name in sorted(sides, reverse=bool(turn % 2)):
                queue.send_batch(range(count))
                took[name] = seconds(sides[name])
            ratios.append(took["bare"] / took["labkit"])
    return "receive–process–delete, rate against bare boto3", f"{100 * statistics.median(ratios):.0f} %", "≥ 90 %"


def batches() -> Row:
    from labkit import Lab
    from labkit.work.queues import Queue

    count = 300
    with Lab.open("benchmark") as lab:
        queue = Queue.create(lab, "sends")
        ratios = []
        for _ in range(ROUNDS):
            single = seconds(lambda: [queue.send(n) for n in range(count)])
            ratios.append(single / seconds(lambda: queue.send_batch(range(count))))
    return "batch sends, rate against single ones", f"{statistics.median(ratios):.1f} ×", "≥ 5 ×"


def throughput() -> Row:
    from labkit import Lab
    from labkit.work.queues import Queue

    with Lab.open("benchmark") as lab:
        queue = Queue.create(lab, "trips")

        def trips(count: int = 100) -> None:
            for n in range(count):
                queue.send(n)
                queue.delete(*queue.receive(1))

        rate = 100 / min(seconds(trips) for _ in range(3))
    return "send, receive, delete, one client", f"{rate:.0f} trips/s", ""


def notebooks() -> list[Row]:
    environment = {**os.environ, "LABKIT_STATIC": "1"}
    nbval = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--nbval", "--nbval-current-env")

    def run(path: Path) -> str:
        """What nbval says that it took: without the start of pytest itself."""
        done = subprocess.run(
            [*nbval, str(path)], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
        )
        return done.stdout.strip().rsplit(" in ", 1)[1].split()[0].rstrip("s")

    paths = sorted((ROOT / "notebooks").glob("*.ipynb"))
    return [(f"{path.stem} under nbval", f"{float(run(path)):.1f} s", "< 25 s") for path in paths]


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        os.environ["LABKIT_HOME"] = home
        from labkit import embedded

        try:
            rows = [
                startup(),
                imports(),
                loop(),
                batches(),
                throughput(),
                *work_plane.rows(),
                *tracing.rows(),
                *control_plane.rows(),
                *gate.rows(),
                *model_edge.rows(),
                *fleet.rows(),
                *triage.rows(),
            ]
            rows += notebooks()
        finally:
            embedded.SERVER.stop()
    table = Table("what", "measured", "budget", title=machine())
    for row in rows:
        table.add_row(*row)
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
