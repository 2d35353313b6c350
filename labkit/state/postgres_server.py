"""PostgreSQL as one process: made, started, and ended, in a folder of its own. Kept by the keeper beside this module.

Only the wheel's programs are used: ``initdb`` makes the data, ``postgres`` is the server. It is told everything on its
command line, and sees none of the reader's variables.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

_START = 30.0  # seconds for PostgreSQL to be ready, replaying its log
_STOP = 10.0  # seconds from asking it to end to making it end
_SETTINGS = (
    "listen_addresses=",  # no TCP: who may enter the folder may connect, and nobody else
    "unix_socket_permissions=0700",
    "shared_buffers=16MB",
    "max_connections=64",
    "log_checkpoints=off",
)


class Gone(Exception):
    """PostgreSQL cannot be had: the sentence says why."""


class Server:
    """The server in ``folder``. ``programs`` is PostgreSQL's own ``bin``, ``user`` who it runs as if not this user.

    ``unwanted`` says whether nobody wants it any more: a start is given up then.
    """

    def __init__(self, folder: Path, programs: Path, user: str | None, unwanted: Callable[[], bool]) -> None:
        self.data, self.sockets, self._copy = folder / "data", folder / "run", folder / "programs"
        self._folder, self._programs, self._unwanted = folder, programs, unwanted
        self._as: dict[str, Any] = {"cwd": "/", "env": {"LC_ALL": "C", "TZ": "UTC"}, "stdin": subprocess.DEVNULL}
        if user is not None:
            self._as |= {"user": user, "group": _group(user), "extra_groups": []}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def died(self) -> bool:
        return self._process is not None and self._process.poll() is not None

    def clear(self) -> None:
        """End a server whose keeper was killed, and take away what it had."""
        end_orphan(self.data)
        for each in (self.data, self.sockets, self._copy):
            shutil.rmtree(each, ignore_errors=True)

    def make(self) -> None:
        """Make the data. Raises :class:`Gone`."""
        if "user" in self._as:
            self._folder.chmod(0o711)  # to be passed through, not to be looked into
            self._programs = self._within_reach(self._programs)
        for each in (self.data, self.sockets):
            each.mkdir(mode=0o700)
            if "user" in self._as:
                shutil.chown(each, self._as["user"], self._as["group"])
        made = subprocess.run(
            [self._programs / "initdb", "-D", self.data, "-U", "postgres", "--auth=trust", "--encoding=UTF8",
             "--locale=C", "--no-sync", "--no-instructions"],
            check=False, timeout=_START, stderr=subprocess.PIPE, text=True, **self._as,
        )  # fmt: skip
        if made.returncode != 0:
            said = [
                line for line in made.stderr.splitlines() if line.strip() and not line.startswith("initdb: removing")
            ]
            raise Gone(f"initdb made no database: {'; '.join(said[-2:])}")

    def _within_reach(self, programs: Path) -> Path:
        """Where the user can run them: a copy in the folder, if they lie in a home that is closed to others."""
        try:
            subprocess.run([programs / "postgres", "--version"], check=True, stdout=subprocess.DEVNULL, **self._as)
        except (OSError, subprocess.SubprocessError):
            package = programs.parent.parent
            libraries = (package / ".dylibs", package.with_name(f"{package.name}.libs"))  # where a wheel has its own
            for each in (programs.parent, *libraries):
                if each.exists():
                    shutil.copytree(each, self._copy / each.relative_to(package.parent))
            for each in (self._copy, *self._copy.rglob("*")):
                each.chmod(0o755)
            return self._copy / programs.relative_to(package.parent)
        return programs

    def start(self, *, again: bool = False) -> None:
        """Start it and wait until it is ready. Raises :class:`Gone`.

        ``again``: where a former one has died, its children may still be ending, and until they have, a new one ends at
        once.
        """
        ends = time.monotonic() + _START
        while time.monotonic() < ends and not self._unwanted():
            settings = [word for each in _SETTINGS for word in ("-c", each)]
            program = str(self._programs / "postgres")
            command = [program, "-D", str(self.data), "-k", str(self.sockets), *settings]
            self._process = subprocess.Popen(command, **self._as)
            while self._process.poll() is None:
                if self._is_ready(self._process.pid):
                    return None
                if time.monotonic() > ends or self._unwanted():
                    return self.stop()
                time.sleep(0.02)
            if not again:
                raise Gone("PostgreSQL ended at once.")
            time.sleep(0.2)
        raise Gone(f"PostgreSQL was not ready within {_START:.0f} s.")

    def _is_ready(self, pid: int) -> bool:
        """What PostgreSQL has written about itself: its first line is the process, the eighth its state."""
        try:
            lines = (self.data / "postmaster.pid").read_text().split("\n")
        except OSError:
            return False
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() == "ready"

    def stop(self) -> None:
        """End it; harmless when none runs."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGINT)  # "fast": ends what clients are at, writes everything down, ends
        try:
            self._process.wait(_STOP)
        except subprocess.TimeoutExpired:
            self._process.send_signal(signal.SIGQUIT)  # "immediate": its children too
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
            self._process.kill()
            self._process.wait(_STOP)


def end_orphan(data: Path) -> bool:
    """End a server on ``data`` whose keeper was killed. True if there was one."""
    found = [
        each for each in psutil.process_iter(["cmdline"]) if (each.info["cmdline"] or [])[1:3] == ["-D", str(data)]
    ]
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGKILL):
        for process in psutil.wait_procs(found, timeout=0)[1]:
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)
        psutil.wait_procs(found, timeout=_STOP / 4)
    return bool(found)


def _group(user: str) -> int:
    import pwd

    return pwd.getpwnam(user).pw_gid
