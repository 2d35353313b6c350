"""Processes: one worker in each of several processes, replaced when it dies, ended together.

A worker is named as ``module:factory``, a function without arguments that returns a :class:`labkit.work.worker.Worker`:
the form in which a container starts one, too. ``python -m labkit.work.processes module:factory`` is one such process
(:mod:`labkit.work.process`).
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from labkit.models._input import ModelError, number, whole
from labkit.work.process import REFUSED, load, main, named
from labkit.work.tasks import WorkerError

__all__ = ["Processes", "load"]


class Processes:
    """``count`` processes of the worker ``target``. As a context manager it ends them with the block.

    A process that dies is replaced, at once the first time and then more and more slowly, ``restarts`` times at most
    over all: a worker that cannot live is an error to see and no loop to run. One that cannot even begin (no such
    module, a factory that makes no worker) is not tried again. ``arguments`` are those of
    ``python -m labkit.work.processes``: ``--until-empty``, ``--seconds N``. ``folder`` is where they run, and where
    ``module`` is looked for; ``environment`` are variables beside those of this process.

    Each is the head of a process group of its own, as in a container: Ctrl-C reaches this process alone, which tells
    them, and what a worker has started ends with it. They end with this process, too, however that ends. Raises
    :class:`~labkit.work.tasks.WorkerError` for settings that cannot work.
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
        named(target)
        try:
            self._count, self._restarts = whole("count", count, high=64), whole("restarts", restarts, low=0)
            self._grace = number("grace", grace, high=86_400, unit="s")
        except ModelError as error:
            raise WorkerError(f"processes cannot run so: {error}") from error
        self.restarted = 0
        program = [sys.executable, "-m", "labkit.work.processes", target]
        self._command = [*program, "--parent", str(os.getpid()), "--grace", str(grace), *arguments]
        self._where: dict[str, Any] = {"cwd": folder, "env": {**os.environ, **(environment or {})}}
        self._running: list[_Process] = []
        self._not_before = 0.0
        self._counts: Counter[str] = Counter()

    @property
    def pids(self) -> list[int]:
        """The processes that live at this moment."""
        return [process.pid for process in self._running if process.code() is None]

    def start(self) -> Processes:
        """Start them. Returns at once; :meth:`look` keeps them alive, :meth:`wait` does so until they are done."""
        if self._running:
            raise WorkerError("these processes run already; stop() ends them.")
        try:
            for _ in range(self._count):
                self._running.append(self._spawn())
        except BaseException:
            self.stop()
            raise
        return self

    def look(self) -> bool:
        """Replace what has died; True while something runs. Raises :class:`WorkerError` when too much has died."""
        for process in list(self._running):
            code = process.code()
            if code is None:
                continue
            if code == 0:
                self._running.remove(process)
                self._counts.update(process.counts)
                continue
            if code == REFUSED:
                raise WorkerError(process.says or f"a worker did not start, with exit code {code}.")
            if self.restarted >= self._restarts:
                why = process.says or f"exit code {code}"
                raise WorkerError(f"workers died {self.restarted + 1} times, the last one with this: {why}")
            if time.monotonic() >= self._not_before:
                self._running[self._running.index(process)] = self._spawn()
                self._counts.update(process.counts)
                self.restarted += 1
                self._not_before = time.monotonic() + min(5.0, 0.05 * self.restarted)
        return bool(self._running)

    def wait(self, seconds: float) -> None:
        """Until all have ended by themselves. Raises :class:`WorkerError` if some have not after ``seconds``."""
        end = time.monotonic() + number("seconds", seconds, unit="s")
        while self.look():
            if time.monotonic() > end:
                raise WorkerError(f"{len(self.pids)} workers had not ended after {seconds:g} s.")
            time.sleep(0.05)

    def stop(self) -> None:
        """SIGTERM to all, so that they finish or give back; SIGKILL to those that have not ended after the grace.

        An interrupt meanwhile ends the grace, and comes through when none of them lives any more.
        """
        try:
            for process in self._running:
                process.terminate()
            end = time.monotonic() + self._grace
            while any(process.code() is None for process in self._running) and time.monotonic() < end:
                time.sleep(0.02)
        finally:
            for process in self._running:
                process.kill()
            for process in self._running:
                self._counts.update(process.counts)
            self._running = []

    @property
    def counts(self) -> Counter[str]:
        """How many deliveries ended how, of the processes that have ended; one that was killed has said nothing."""
        ended = [process.counts for process in self._running if process.code() is not None]
        return sum(ended, Counter(self._counts))

    def _spawn(self) -> _Process:
        try:
            return _Process(self._command, self._where)
        except (OSError, TypeError, ValueError) as error:
            raise WorkerError(f"no worker could be started: {error}.") from error

    def __enter__(self) -> Processes:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


class _Process:
    """One process with what it has started. It reports through a pipe: no file is left, whoever is killed."""

    def __init__(self, command: Sequence[str], where: Mapping[str, Any]) -> None:
        self.counts: Counter[str] = Counter()
        self.says = ""
        self._over = False
        self._report, report = os.pipe()
        try:
            self._process = subprocess.Popen(
                [*command, "--report", str(report)], pass_fds=(report,), start_new_session=True, **where
            )
        except BaseException:
            os.close(self._report)
            raise
        finally:
            os.close(report)
        self.pid = self._process.pid

    def code(self) -> int | None:
        """The exit code, or None while it lives."""
        if not self._over and self._process.poll() is not None:
            self._over = True
            self._collect()
        return self._process.returncode

    def terminate(self) -> None:
        if self.code() is None:
            self._process.terminate()

    def kill(self) -> None:
        if self.code() is None:
            self._signal_group()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(10)
            self.code()

    def _collect(self) -> None:
        self._signal_group()  # whatever it has started
        os.set_blocking(self._report, False)
        with contextlib.suppress(OSError, ValueError):
            said = json.loads(os.read(self._report, 65_536) or b"{}")
            self.counts, self.says = Counter(said.get("counts", {})), said.get("says", "")
        os.close(self._report)

    def _signal_group(self) -> None:
        with contextlib.suppress(OSError):  # nobody is there any more
            os.killpg(self.pid, signal.SIGKILL)


if __name__ == "__main__":
    main()
