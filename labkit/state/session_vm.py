"""One session's environment, from outside: a process of its own with a folder of its own, ended with all it started.

It stands in for a microVM. The code, the memory and the folder are the session's alone, but a process is no wall: the
agent's code is yours, and could read what you can.
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
import tempfile
import time
from pathlib import Path
from typing import Any, Protocol

import psutil

from labkit import places
from labkit.errors import SetupError
from labkit.state import session_host
from labkit.state.session_rules import FAILED, INVALID, SessionError

_HOST = str(Path(session_host.__file__).resolve())
_MARK = "LABKIT_SESSION"  # in the variables of all that a session starts: its folder


class Environment(Protocol):
    """What :class:`~labkit.state.sessions.Runtime` needs of an environment."""

    def ask(self, asked: dict[str, Any], patience: float) -> dict[str, Any]:
        """The answer to one frame. Raises :class:`SessionError` when there is none within ``patience`` seconds."""

    @property
    def alive(self) -> bool: ...

    def end(self) -> None:
        """Gone, at once, with everything in it. Ending it twice is harmless."""


class Process:
    """:class:`Environment` as a process. ``storage`` is a folder that outlives it, mounted at ``mnt/<name>``."""

    def __init__(self, agent: Path, session_id: str, storage: tuple[str, Path] | None, below: Path) -> None:
        with contextlib.ExitStack() as undo:
            try:
                self.folder = Path(tempfile.mkdtemp(prefix="vm-", dir=below))
                undo.callback(shutil.rmtree, self.folder, ignore_errors=True)
                self._link, theirs = socket.socketpair()
                undo.callback(self._link.close)
                with theirs:
                    self._process = self._started(theirs.fileno(), agent, session_id, storage)
            except (OSError, ValueError) as error:
                raise SessionError(FAILED, f"no environment could be started: {error}.") from error
            undo.pop_all()

    def _started(
        self, link: int, agent: Path, session_id: str, storage: tuple[str, Path] | None
    ) -> subprocess.Popen[bytes]:
        mounted = self._mount(*storage) if storage else ""
        return subprocess.Popen(
            [sys.executable, "-I", _HOST, str(link), str(os.getpid()), session_id, mounted, str(agent)],
            cwd=self.folder,
            env=self._environment(),
            pass_fds=(link,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def ask(self, asked: dict[str, Any], patience: float) -> dict[str, Any]:
        end = time.monotonic() + patience
        try:
            self._link.settimeout(patience)
            session_host.send(self._link, json.dumps(asked).encode())
            self._link.settimeout(max(0.01, end - time.monotonic()))
            frame = session_host.receive(self._link)
        except TimeoutError as error:
            raise SessionError(FAILED, f"the agent did not answer within {patience:g} s.") from error
        except OSError as error:
            raise SessionError(FAILED, "the environment ended while the request was at work.") from error
        if frame is None:
            raise SessionError(FAILED, "the environment ended while the request was at work.")
        try:
            answer: dict[str, Any] = json.loads(frame)
        except (ValueError, RecursionError) as error:
            raise SessionError(FAILED, f"the agent's answer cannot be read: {error}.") from error
        return answer

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)  # wakes a thread that waits for an answer
        self._link.close()
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        _kill_strays(self.folder, self._process.pid)  # before its end is asked for: until then its number is its own
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _mount(self, name: str, storage: Path) -> str:
        (self.folder / "mnt").mkdir()
        mounted = self.folder / "mnt" / name
        mounted.symlink_to(storage, target_is_directory=True)
        return str(mounted)

    def _environment(self) -> dict[str, str]:
        """None of this process's variables but the path: its credentials are nothing for an agent."""
        own = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(self.folder), "TMPDIR": str(self.folder)}
        return {**own, "LANG": "C.UTF-8", _MARK: str(self.folder)}


def _kill_strays(folder: Path, group: int | None = None) -> None:
    """End what is in process ``group``, and what has left it and has the mark of a session in ``folder`` among its
    variables. They are gone, and not only told to go, when this returns."""
    for _ in range(3):  # one that was just being started comes into sight at the next look
        strays = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if not _runs(process):
                    continue
                inside = group is not None and os.getpgid(process.pid) == group
                if inside or Path(process.environ().get(_MARK, "/")).is_relative_to(folder):
                    process.kill()
                    strays.append(process)
        if not strays:
            return
        end = time.monotonic() + 10
        while any(_runs(stray) for stray in strays) and time.monotonic() < end:
            time.sleep(0.005)


def _runs(process: psutil.Process) -> bool:
    """Whether it does anything still: one that is dead may keep its number until its parent has asked."""
    try:
        return process.status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return False


def agent_source(agent: str | Path) -> str:
    """The text of an agent's code, which compiles. Raises :class:`SessionError`."""
    try:
        source = agent.read_text(encoding="utf-8") if isinstance(agent, Path) else agent
        compile(source, "agent.py", "exec")
    except (OSError, SyntaxError, TypeError, ValueError) as error:
        raise SessionError(INVALID, f"the agent's code cannot be used: {error}.") from error
    return source


def own_folder(kind: str = "sessions") -> Path:
    """A new folder of this process's, below the lab's home. What was left by processes that were killed is removed.

    Raises :class:`~labkit.errors.SetupError` when the home cannot be written into.
    """
    below = places.home() / kind
    try:
        below.mkdir(parents=True, exist_ok=True)
        for folder in below.glob("*-*"):
            owner = folder.name.partition("-")[0]
            if owner.isdigit() and not psutil.pid_exists(int(owner)):
                _kill_strays(folder)
                shutil.rmtree(folder, ignore_errors=True)
        return Path(tempfile.mkdtemp(prefix=f"{os.getpid()}-", dir=below))
    except OSError as error:
        raise SetupError(f"{below} cannot be used: {error.strerror or error}.") from error
