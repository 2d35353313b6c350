"""Mortal processes: code in a process of its own, which may be killed in the middle.

To see what survives a process, run something in one and kill it. A process that has to import LangGraph first takes
seconds to begin, so one *parent* imports it once and forks for each run; a child that dies takes nothing along but its
own memory, as a container does::

    this process ──→ parent: imports once ──┬─→ child: main(**given) ─→ its result
                                            └─→ child: main(**given) ─╳ signal 9

The code is a text, as it would be in a file of its own, with a function ``main``. Arguments and result are what JSON
can hold. The parent has one thread and one child at a time, which is what makes a fork safe. It is also the only one
that may send its child a signal: it knows whether that child's number is still the child's.

Where nobody knows any more what a parent is at, because whoever waited for it was interrupted, it is ended with its
child, and another one begins.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labkit.closing import Closing
from labkit.errors import LabError
from labkit.models._input import number
from labkit.state.session_host import receive, send
from labkit.state.session_vm import own_folder
from labkit.teach.mortal_host import KILL

if TYPE_CHECKING:
    from labkit.lab import Lab

__all__ = ["End", "Mortal", "MortalError", "Run"]

_OVER = "the parent has ended: it was closed, or cannot import what it should."


class MortalError(LabError):
    """A run failed by itself, or did not end in time; the sentence says which."""


class _Late(MortalError):
    """The parent is there, and has not answered."""


@dataclass(frozen=True)
class End:
    """How a run ended: with what it ``returned``, or ``killed`` by signal 9."""

    returned: Any = None
    killed: bool = False


class Run:
    """A run at work, in process ``pid``. Made by :meth:`Mortal.start`."""

    def __init__(self, parent: Mortal) -> None:
        self.pid, self._parent = 0, parent
        self._end: End | None = None

    def kill(self) -> None:
        """Signal 9, from outside. Harmless where it has ended."""
        if self._end is None:
            self._parent._kill(self)

    def wait(self, within: float = 20.0) -> End:
        """Its end. Raises :class:`MortalError` when it raised something, or goes on after ``within`` seconds: it is
        killed then."""
        if self._end is None:
            self._end = self._parent._ended(self, within)
        return self._end


class Mortal(Closing):
    """A parent that has imported ``preload``, for runs that die. A context manager, which ends it and what it runs.

    It starts to import at once and in the background. ``environment`` are variables beside those of this process.
    """

    def __init__(self, preload: Sequence[str] = (), *, environment: Mapping[str, str] | None = None) -> None:
        self._preload, self._environment = tuple(preload), dict(environment or {})
        self._guard = threading.RLock()
        self._running: Run | None = None
        self._closed = False
        self._begin()

    @classmethod
    def create(cls, lab: Lab, preload: Sequence[str] = ()) -> Mortal:
        """A parent whose children talk to what the lab talks to, and which ends with the lab."""
        # A graph tells a service on the internet of its runs where the environment says so. Nothing of a lab leaves.
        quiet = {"LANGSMITH_TRACING": "false", "LANGCHAIN_TRACING_V2": "false"}
        mortal = cls(preload, environment={**quiet, **lab.target.environment(lab.account)})
        lab.on_close("mortal processes", mortal.close)
        return mortal

    def start(self, source: str, *, within: float = 60.0, **given: Any) -> Run:
        """Begin ``main(**given)`` of the code ``source`` in a new process. One run at a time.

        ``within``: seconds that the parent may still take for its imports. Raises :class:`MortalError`.
        """
        number("within", within, low=0.001, unit="s")
        run = Run(self)
        self._start(run, source, given, within)
        return run

    def run(self, source: str, *, within: float = 20.0, **given: Any) -> End:
        """Start it, and wait for its end. One that is interrupted is ended."""
        number("within", within, low=0.001, unit="s")
        run = Run(self)
        try:
            self._start(run, source, given, 60.0)
            return run.wait(within)
        finally:
            if self._running is run:
                self._anew()

    def close(self) -> None:
        """End everything. Closing twice is harmless."""
        self._closed = True
        self._finish()

    def _start(self, run: Run, source: str, given: Mapping[str, Any], within: float) -> None:
        try:
            asked = json.dumps({"source": source, "given": given}).encode()
        except (TypeError, ValueError, RecursionError) as error:
            raise MortalError(f"a run is given what JSON can hold; this is not: {error}.") from error
        with self._guard:
            if self._running is not None:
                raise MortalError("one run at a time: wait() for the one that is at work, or kill() it before.")
            self._running = run
        with self._or_anew():
            run.pid = int(self._ask(asked, within)["pid"])

    def _begin(self) -> None:
        self._folder = own_folder("mortal")
        self._link, theirs = socket.socketpair()
        host = [sys.executable, "-m", "labkit.teach.mortal_host"]
        with theirs:
            self._parent = subprocess.Popen(
                [*host, str(theirs.fileno()), str(os.getpid()), str(self._folder), *self._preload],
                env={**os.environ, **self._environment},
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def _finish(self) -> None:
        if self._parent.returncode is None:  # nobody has asked for its end yet: until then, its number is its own
            with contextlib.suppress(OSError):
                os.killpg(self._parent.pid, signal.SIGKILL)
        self._link.close()
        self._parent.wait(10)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _anew(self) -> None:
        with self._guard:
            self._running = None
            if not self._closed:
                self._finish()
                self._begin()

    @contextlib.contextmanager
    def _or_anew(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self._anew()
            raise

    def _ask(self, asked: bytes | None, within: float) -> dict[str, Any]:
        try:
            self._link.settimeout(within)
            if asked is not None:
                send(self._link, asked)
            frame = receive(self._link)
        except TimeoutError as error:
            raise _Late(f"the parent did not answer within {within:g} s, and was ended.") from error
        except OSError as error:
            raise MortalError(_OVER) from error
        if frame is None:
            raise MortalError(_OVER)
        answer: dict[str, Any] = json.loads(frame)
        return answer

    def _kill(self, run: Run) -> None:
        with self._guard, contextlib.suppress(OSError):
            if self._running is run:
                send(self._link, KILL)

    def _ended(self, run: Run, within: float) -> End:
        number("within", within, low=0.001, unit="s")
        if self._running is not run:
            raise MortalError("the run was ended with its parent.")
        late = False
        try:
            answer = self._ask(None, within)
        except _Late:
            late = True
            run.kill()
            with self._or_anew():
                answer = self._ask(None, 10.0)
        except MortalError:
            self._anew()
            raise
        self._running = None
        if late:
            raise MortalError(f"the run was not over within {within:g} s, and was killed.")
        if "error" in answer:
            raise MortalError(f"the run failed: {answer['error']}.")
        return End(answer.get("returned"), bool(answer.get("killed")))
