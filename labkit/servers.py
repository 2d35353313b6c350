"""A server of ours: one process on 127.0.0.1, started on first use, ended by ``labkit down``.

The stand-in for AWS, the one beside LocalStack and LocalStack itself (host mode) are such servers. Each runs in an
environment of its own and sees nothing of the reader's variables. Where it runs is written to ``.lab/NAME.json``; a
lock beside it keeps two kernels that start at once from starting two. A process is known as ours by its command line,
which names our folder: a record can be lost, a process number can be used again.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from labkit.errors import EndpointDown, SetupError
from labkit.loopback import HOST, answers, free_port, listens, port_is_free
from labkit.places import home, repository

STOP_GRACE = 2.0  # seconds between asking a process to end and making it end; it holds nothing worth saving
STOP_LIMIT = 10.0  # seconds for the system to take it away
PATIENCE = 20.0  # seconds for one that runs: it may be busy, or the machine stands still; it loses all if it is ended
FIRST_ANSWER = 15.0  # seconds for the first call of a service, which loads it
MARK = ".labkit"  # the file that says that a folder is ours to remove
KEPT = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "SYSTEMROOT", "LAB_CLOCK_SCALE", "LOG_LEVEL")  # of the reader's own


class _PortTaken(EndpointDown):
    """Another program was faster on the port."""


@dataclass(frozen=True)
class Running:
    """A server that runs: what its record holds.

    ``code`` is the digest of the code that it was started with. ``note`` says what had to be done to have it, and is
    not stored.
    """

    pid: int
    port: int
    version: str
    code: str
    note: str = ""

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"


@dataclass(frozen=True)
class Server:
    """What it takes to run one: ``python -m module … --port PORT … --home FOLDER``.

    ``name`` names the record, the lock and the log; ``what`` stands in sentences; ``folder`` is what it may write into,
    and what ending it removes: a folder of its own in the home, never one of the reader's. ``code`` lists the folders
    of the repository that it runs, whose parents are its path.
    """

    name: str
    what: str
    module: str
    folder: str
    code: tuple[str, ...]
    python: Callable[[], Path]
    package: str  # whose version it has
    setup: str  # what makes its environment
    limit: float  # seconds until it must answer
    options: tuple[str, ...] = ()

    # -- what is there ---------------------------------------------------------------------------------------------

    def home(self) -> Path:
        return home() / self.folder

    def _record(self) -> Path:
        return home() / f"{self.name}.json"

    def log_file(self) -> Path:
        return home() / f"{self.name}.log"

    def recorded(self) -> Running | None:
        """What the record says, whether or not the process still runs."""
        try:
            found = json.loads(self._record().read_text())
            known = Running(int(found["pid"]), int(found["port"]), str(found["version"]), str(found["code"]))
        except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return None  # absent, cut off in the middle or not ours: as good as not there
        return known if known.pid > 0 and 0 < known.port < 65_536 else None

    def running(self) -> Running | None:
        """The one that runs and answers, or None: at once where none runs, after ``PATIENCE`` where it hangs. Starts
        nothing."""
        found = self.recorded()
        return found if found and self.ready_within(found, PATIENCE) else None

    def process(self, running: Running) -> psutil.Process | None:
        """The process, or None when it has ended or its number belongs to another one now."""
        try:
            process = psutil.Process(running.pid)
            return process if self._is_ours(process.cmdline()) else None
        except (psutil.Error, ValueError, TypeError, OverflowError):
            return None

    def _command(self, port: int) -> list[str]:
        start = [str(self.python()), "-m", self.module, "--port", str(port)]
        return [*start, *self.options, "--home", str(self.home())]

    def _is_ours(self, command: list[str] | None) -> bool:
        if not command:
            return False
        return command[1:3] == ["-m", self.module] and command[-2:] == ["--home", str(self.home())]

    def ours(self) -> list[psutil.Process]:
        """Every such process of this home, recorded or not: a start may have been cut off before its record."""
        return [process for process in psutil.process_iter(["cmdline"]) if self._is_ours(process.info["cmdline"])]

    def left_behind(self) -> list[psutil.Process]:
        """Processes that a Lambda handler has detached from its own: their HOME is a folder in ours."""
        inside = f"{self.home()}{os.sep}"
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.environ().get("HOME", "").startswith(inside):
                    found.append(process)
        return found

    def digest(self) -> str:
        """A digest of what it is started with: after a ``git pull`` the one that runs is not the one that is here."""
        sources = sorted(each for folder in self.code for each in (repository() / folder).rglob("*.py"))
        parts = [*(source.read_bytes() for source in sources), *map(str.encode, self.options)]
        return hashlib.sha256(b"".join(parts)).hexdigest()[:16]

    # -- starting --------------------------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold this home for starting or ending; raises :class:`LabError` with a sentence when that cannot be."""
        file, patience = home() / f"{self.name}.lock", 2 * self.limit
        try:
            home().mkdir(parents=True, exist_ok=True)
            lock = FileLock(file)
            with lock.acquire(timeout=patience):
                yield
        except Timeout:
            raise EndpointDown(
                f"another process has held {file} for {patience:.0f} s while starting or ending {self.what}; "
                "end that process and type the same again."
            ) from None
        except OSError as error:
            raise SetupError(
                f"{home()} cannot be used: {error.strerror or error}; make it writable, or set LABKIT_HOME to a "
                "folder that is."
            ) from error

    def ensure(self, port: int | None = None) -> Running:
        """The one that runs, started if need be.

        ``port`` insists on a port; otherwise 4566 or, where that is taken, a free one. Raises :class:`SetupError` when
        the environment is missing or the home cannot be written, :class:`EndpointDown` when the port is taken or the
        process does not come up.
        """
        with self._locked():
            return self._ensure_locked(port)

    def _ensure_locked(self, port: int | None) -> Running:
        known, code = self.recorded(), self.digest()
        note = "started"
        if known is not None and self.process(known) is not None:
            if known.code == code and self.ready_within(known, PATIENCE):
                if port not in (None, known.port):
                    raise EndpointDown(
                        f"{self.what} runs on port {known.port}; type `labkit down` before asking for {port}."
                    )
                return replace(known, note="was running")
            fault = "did not answer" if known.code == code else "ran other code than is here now"
            note = f"the one on port {known.port} {fault}; ended and started again, empty"
        elif known is not None:
            note = f"the one that ran on port {known.port} had ended (see {self.log_file().name}); started again, empty"
            if self.log_file().exists():
                self.log_file().replace(self.log_file().with_suffix(".previous.log"))
        self._end_all()
        if port is not None and not port_is_free(port):
            raise EndpointDown(
                f"port {port} is in use by another program; choose another or leave the choice to labkit."
            )
        former = _port_again(known) if known is not None and port is None else None
        for attempt in range(12):  # many labs that start at once reach for the same port
            chosen = port or former or free_port()
            former = None
            try:
                return self._start(chosen, code, note)
            except _PortTaken:
                if port:
                    raise
                time.sleep(0.1 * attempt * random.random())
        raise EndpointDown("other programs took every free port first; type `labkit up` again.")

    def ready_within(self, running: Running, seconds: float) -> bool:
        """Whether it answers: wait for one that may still be starting, or be busy, and give up at once when it has
        ended."""
        limit = time.monotonic() + seconds
        while self.process(running) is not None:
            if _is_ready(running, timeout=max(2.0, limit - time.monotonic())):
                return True
            if time.monotonic() > limit:
                return False
            time.sleep(0.05)
        return False

    def environment(self) -> dict[str, str]:
        """What the server, and with it every Lambda handler, may see: nothing of the reader's own variables."""
        return {
            **{name: os.environ[name] for name in KEPT if name in os.environ},
            "PYTHONPATH": os.pathsep.join(str((repository() / folder).parent) for folder in self.code),
            "PYTHONNOUSERSITE": "1",
            "PYTHONSAFEPATH": "1",
            "PYTHONUNBUFFERED": "1",
        }

    def _start(self, port: int, code: str, note: str) -> Running:
        python = self.python()
        if not python.exists():
            raise SetupError(
                f"the environment of {self.what} is missing ({python}); type `{self.setup}` in the repository."
            )
        self._claim_folder()
        with self.log_file().open("w") as log:
            child = subprocess.Popen(
                self._command(port),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.home(),
                env=self.environment(),
                start_new_session=True,  # an interrupted kernel must not take the server with it
            )
        try:
            started = Running(child.pid, port, self._version(python), code, note)
            self._write_record(started)  # at once: whoever comes after an interruption must find it
            self._wait_until_ready(child, started)
        except BaseException:
            _end([psutil.Process(child.pid)] if child.poll() is None else [])
            self._record().unlink(missing_ok=True)
            raise
        return started

    def _wait_until_ready(self, child: subprocess.Popen[bytes], started: Running) -> None:
        limit = time.monotonic() + self.limit
        while not _is_ready(started, timeout=FIRST_ANSWER):
            if child.poll() is not None or time.monotonic() > limit:
                reason = "ended at once" if child.poll() is not None else f"did not answer within {self.limit:.0f} s"
                lines = self.log_file().read_text(errors="replace").strip().splitlines()
                last = (lines or ["the log is empty"])[-1]
                kind = _PortTaken if "address already in use" in last.lower() else EndpointDown
                raise kind(f"{self.what} {reason}: {last} (log: {self.log_file()})")
            time.sleep(0.05)

    def _claim_folder(self) -> None:
        """Make the server's folder, with a mark that allows us to remove it; one without the mark is somebody's."""
        folder, mark = self.home(), self.home() / MARK
        if folder.exists() and any(folder.iterdir()) and not mark.exists():
            raise SetupError(
                f"{folder} holds files that are not labkit's; move them, or set LABKIT_HOME to another folder."
            )
        folder.mkdir(exist_ok=True)
        mark.write_text(f"Here {self.what} writes. Ending it removes this folder.\n")

    def _version(self, python: Path) -> str:
        """The package's version, from the name of its metadata folder: asking its Python would cost a second."""
        found = sorted(python.parent.parent.glob(f"[Ll]ib/**/{self.package}-*.dist-info"))
        return found[0].name.removeprefix(f"{self.package}-").removesuffix(".dist-info") if found else "unknown"

    def _write_record(self, running: Running) -> None:
        content = {key: value for key, value in asdict(running).items() if key != "note"}
        draft = self._record().with_suffix(".tmp")
        draft.write_text(json.dumps(content))
        draft.replace(self._record())  # never half a record

    # -- ending ----------------------------------------------------------------------------------------------------

    def _end_all(self) -> None:
        _end(self.ours())
        _end(self.left_behind())

    def stop(self) -> int | None:
        """End this home's server with all its children and remove what it wrote, but for its log.

        Returns the port that it had (0 if that was not recorded), or None if none ran.
        """
        if not home().exists():
            return None
        with self._locked():
            known, running_now = self.recorded(), self.ours()
            self._record().unlink(missing_ok=True)
            self._end_all()
            if (self.home() / MARK).exists():
                shutil.rmtree(self.home(), ignore_errors=True)
            if not running_now:
                return None
            return known.port if known else 0


def _is_ready(running: Running, timeout: float = 2.0) -> bool:
    """Whether this very process answers: at its address another lab's server would answer just as well."""
    return listens(running.pid, running.port) and answers(running.endpoint, timeout)


def _port_again(known: Running) -> int | None:
    """The port of one that has ended, if it can be had: clients hold its address.

    It may have ended so recently that the port is still being given up.
    """
    limit = time.monotonic() + 2.0
    while not port_is_free(known.port) and time.monotonic() < limit:
        time.sleep(0.05)
    return known.port if port_is_free(known.port) else None


def _end(processes: list[psutil.Process]) -> None:
    """End the processes and every process that they started, the hard way after 2 s; harmless for one that has gone."""
    family: list[psutil.Process] = []
    for process in processes:
        with contextlib.suppress(psutil.Error):
            family += [process, *process.children(recursive=True)]
    for member in family:
        with contextlib.suppress(psutil.Error):
            member.terminate()
    _, alive = psutil.wait_procs(family, timeout=STOP_GRACE)
    for member in alive:
        with contextlib.suppress(psutil.Error):
            member.kill()
    psutil.wait_procs(alive, timeout=STOP_LIMIT)
