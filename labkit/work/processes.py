"""Processes: one worker in each of several processes, replaced when it dies, ended together.

A worker is named as ``module:factory``, a function without arguments that returns a :class:`labkit.work.worker.Worker`:
the form in which a container starts one, too. ``python -m labkit.work.processes module:factory`` is one such process.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from labkit.work.tasks import WorkerError


def load(target: str) -> Any:
    """The worker that ``module:factory`` makes. Raises :class:`WorkerError` when there is no such thing."""
    module, _, factory = target.partition(":")
    if not module or not factory:
        raise WorkerError(f"a worker is named as module:factory; {target!r} is not.")
    try:
        make = getattr(importlib.import_module(module), factory)
    except (ImportError, AttributeError) as error:
        raise WorkerError(f"there is no worker {target}: {error}.") from error
    worker = make()
    if not hasattr(worker, "run"):
        raise WorkerError(f"{target} made {type(worker).__name__}, and no worker.")
    return worker


class Processes:
    """``count`` processes of the worker ``target``. As a context manager it ends them with the block.

    A process that dies is replaced, at once the first time and then more and more slowly, ``restarts`` times at most
    over all: a worker that cannot live is an error to see and no loop to run. ``arguments`` are those of
    ``python -m labkit.work.processes``: ``--until-empty``, ``--seconds N``. ``folder`` is where they run, and where
    ``module`` is looked for; ``environment`` are variables beside those of this process.
    """

    def __init__(
        self,
        target: str,
        count: int,
        *,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        folder: Path | None = None,
        restarts: int = 100,
        grace: float = 25.0,
    ) -> None:
        if not 1 <= count <= 64:
            raise WorkerError(f"1 to 64 processes; got {count}.")
        self.restarted = 0
        self._command = [
            sys.executable,
            "-m",
            "labkit.work.processes",
            target,
            "--parent",
            str(os.getpid()),
            *arguments,
        ]
        self._count, self._restarts, self._grace = count, restarts, grace
        self._running: list[subprocess.Popen[bytes]] = []
        self._started = 0
        self._not_before = 0.0
        self._where: dict[str, Any] = {"cwd": folder, "env": {**os.environ, **(environment or {})}}
        self._reports = tempfile.TemporaryDirectory(prefix="labkit-")

    @property
    def pids(self) -> list[int]:
        """The processes that live at this moment."""
        return [process.pid for process in self._running if process.poll() is None]

    def start(self) -> Processes:
        """Start them. Returns at once; :meth:`look` keeps them alive, :meth:`wait` does so until they are done."""
        self._running = [self._spawn() for _ in range(self._count)]
        return self

    def look(self) -> bool:
        """Replace what has died; True while something runs. Raises :class:`WorkerError` when too much has died."""
        for place, process in enumerate(list(self._running)):
            code = process.poll()
            if code is None:
                continue
            if code == 0:
                self._running.remove(process)
                continue
            if self.restarted >= self._restarts:
                raise WorkerError(f"workers died {self.restarted + 1} times, the last with exit code {code}.")
            if time.monotonic() >= self._not_before:
                self.restarted += 1
                self._not_before = time.monotonic() + min(5.0, 0.05 * self.restarted)
                self._running[place] = self._spawn()
        return bool(self._running)

    def wait(self, seconds: float) -> None:
        """Until all have ended by themselves. Raises :class:`WorkerError` if some have not after ``seconds``."""
        end = time.monotonic() + seconds
        while self.look():
            if time.monotonic() > end:
                raise WorkerError(f"{len(self.pids)} workers had not ended after {seconds:g} s.")
            time.sleep(0.05)

    def stop(self) -> None:
        """SIGTERM to all, so that they finish or give back; SIGKILL to those that have not ended after the grace."""
        for process in self._running:
            process.terminate()
        end = time.monotonic() + self._grace
        for process in self._running:
            try:
                process.wait(max(0.0, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._running = []

    @property
    def counts(self) -> Counter[str]:
        """How many deliveries ended how, of the processes that have ended; one that was killed has said nothing."""
        found: Counter[str] = Counter()
        for report in Path(self._reports.name).glob("*.json"):
            found.update(json.loads(report.read_text()))
        return found

    def _spawn(self) -> subprocess.Popen[bytes]:
        self._started += 1
        report = Path(self._reports.name) / f"{self._started}.json"
        return subprocess.Popen([*self._command, "--report", str(report)], **self._where)

    def __enter__(self) -> Processes:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def main(arguments: Sequence[str] | None = None) -> int:
    """One worker in this process."""
    parser = argparse.ArgumentParser(prog="labkit.work.processes", description="Run one worker.")
    parser.add_argument("target", help="module:factory")
    parser.add_argument("--until-empty", action="store_true", help="end when nothing is left in the queue")
    parser.add_argument("--seconds", type=float, help="end after so many seconds")
    parser.add_argument("--report", type=Path, help="write the counts there as JSON at the end")
    parser.add_argument("--parent", type=int, help="end with this process, which has started this one")
    chosen = parser.parse_args(arguments)
    if chosen.parent:
        threading.Thread(target=_end_with, args=(chosen.parent,), daemon=True).start()
    sys.path.insert(0, os.getcwd())
    try:
        counts = load(chosen.target).run(until_empty=chosen.until_empty, seconds=chosen.seconds)
    except WorkerError as error:
        print(error, file=sys.stderr)
        return 2
    if chosen.report:
        part = chosen.report.with_suffix(".part")
        part.write_text(json.dumps(counts))
        part.replace(chosen.report)
    return 0


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    code = main()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # a step that was given up after its grace may still hold a thread
