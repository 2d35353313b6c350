"""The embedded stand-in for AWS: one process on 127.0.0.1, started on first use, ended by ``labkit down``.

It runs in an environment of its own (``.lab/emulator``), because the emulator pins a botocore that LiteLLM cannot live
with, and because Lambda handlers run in it and must not see a notebook's environment. Where it runs is written to
``.lab/embedded.json``; a lock beside it keeps two kernels that start at once from starting two. A process is known as
ours by its command line, which names our folder: a record can be lost, a process number can be used again.
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
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from labkit.errors import EndpointDown, SetupError
from labkit.loopback import HOST, answers, free_port, listens, port_is_free
from labkit.places import home, interpreter, repository

START_LIMIT = 30.0  # seconds; measured 2 to 3 on two cores, more when thirty start at once
STOP_GRACE = 2.0  # seconds between asking the process to end and making it end; it holds nothing worth saving
STOP_LIMIT = 10.0  # seconds for the system to take it away
MARK = ".labkit"  # the file that says that a folder is ours to remove


class _PortTaken(EndpointDown):
    """Another program was faster on the port."""


def _folder() -> Path:
    """What the stand-in may write into, and what ending it removes: a folder of its own, never one of the reader's."""
    return home() / "stand-in"


@dataclass(frozen=True)
class Running:
    """A stand-in that runs: what ``.lab/embedded.json`` holds.

    ``code`` is the digest of the parity modules that it was started with. ``note`` says what had to be done to have it,
    and is not stored.
    """

    pid: int
    port: int
    version: str
    code: str
    note: str = ""

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}"

    def process(self) -> psutil.Process | None:
        """The process, or None when it has ended or its number belongs to another one now."""
        try:
            process = psutil.Process(self.pid)
            return process if _is_ours(process.cmdline()) else None
        except (psutil.Error, ValueError, TypeError, OverflowError):
            return None


def _command(port: int) -> list[str]:
    return [str(interpreter()), "-m", "parity", "--port", str(port), "--home", str(_folder())]


def _is_ours(command: list[str] | None) -> bool:
    if not command:
        return False
    return command[1:3] == ["-m", "parity"] and command[-2:] == ["--home", str(_folder())]


def _ours() -> list[psutil.Process]:
    """Every process of this home's stand-in, recorded or not: a start may have been cut off before its record."""
    return [process for process in psutil.process_iter(["cmdline"]) if _is_ours(process.info["cmdline"])]


def _record() -> Path:
    return home() / "embedded.json"


def log_file() -> Path:
    return home() / "embedded.log"


def recorded() -> Running | None:
    """What the record says, whether or not the process still runs."""
    try:
        found = json.loads(_record().read_text())
        known = Running(int(found["pid"]), int(found["port"]), str(found["version"]), str(found["code"]))
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return None  # absent, cut off in the middle or not ours: as good as not there
    return known if known.pid > 0 and 0 < known.port < 65_536 else None


def running() -> Running | None:
    """The stand-in that runs and answers, or None. Starts nothing."""
    found = recorded()
    return found if found and found.process() and _is_ready(found) else None


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Hold this home for starting or ending; raises :class:`TargetError` with a sentence when that cannot be."""
    try:
        home().mkdir(parents=True, exist_ok=True)
        lock = FileLock(home() / "embedded.lock")
        with lock.acquire(timeout=2 * START_LIMIT):
            yield
    except Timeout:
        raise EndpointDown(
            f"another process has held {home() / 'embedded.lock'} for {2 * START_LIMIT:.0f} s while starting or ending "
            "the stand-in; end that process and type the same again."
        ) from None
    except OSError as error:
        raise SetupError(
            f"{home()} cannot be used: {error.strerror or error}; make it writable, or set LABKIT_HOME to a folder "
            "that is."
        ) from error


def ensure(port: int | None = None) -> Running:
    """The stand-in that runs, started if need be.

    ``port`` insists on a port; otherwise 4566 or, where that is taken, a free one. Raises :class:`SetupError` when the
    environment is missing or the home cannot be written, :class:`EndpointDown` when the port is taken or the process
    does not come up.
    """
    with _locked():
        return _ensure_locked(port)


def _ensure_locked(port: int | None) -> Running:
    known = recorded()
    note = "started"
    if known is not None and known.process() is not None:
        if known.code == _code() and _ready_within(known, 8.0):
            if port not in (None, known.port):
                raise EndpointDown(
                    f"the stand-in runs on port {known.port}; type `labkit down` before asking for {port}."
                )
            return replace(known, note="was running")
        fault = "did not answer" if known.code == _code() else "ran other code than is here now"
        note = f"the one on port {known.port} {fault}; ended and started again, empty"
    elif known is not None:
        note = f"the one that ran on port {known.port} had ended (see {log_file().name}); started again, empty"
        if log_file().exists():
            log_file().replace(log_file().with_suffix(".previous.log"))
    _end(_ours())
    if port is not None and not port_is_free(port):
        raise EndpointDown(f"port {port} is in use by another program; choose another or leave the choice to labkit.")
    former = None
    if known is not None and port is None:
        # Clients hold its address; the process may have ended so recently that the port is still being given up.
        limit = time.monotonic() + 2.0
        while not port_is_free(known.port) and time.monotonic() < limit:
            time.sleep(0.05)
        former = known.port if port_is_free(known.port) else None
    for attempt in range(12):  # many labs that start at once reach for the same port
        chosen = port or former or free_port()
        former = None
        try:
            return _start(chosen, note)
        except _PortTaken:
            if port:
                raise
            time.sleep(0.1 * attempt * random.random())
    raise EndpointDown("other programs took every free port first; type `labkit up` again.")


def _is_ready(running: Running, timeout: float = 2.0) -> bool:
    """Whether this very process answers: at its address another lab's stand-in would answer just as well."""
    return listens(running.pid, running.port) and answers(running.endpoint, timeout)


def _ready_within(running: Running, seconds: float) -> bool:
    """Wait for a process that may still be starting, or be busy; gives up at once when it has ended."""
    limit = time.monotonic() + seconds
    while running.process() is not None:
        if _is_ready(running, timeout=max(2.0, limit - time.monotonic())):
            return True
        if time.monotonic() > limit:
            return False
        time.sleep(0.05)
    return False


def _environment() -> dict[str, str]:
    """What the stand-in, and with it every Lambda handler, may see: nothing of the reader's own variables."""
    kept = ("PATH", "HOME", "LANG", "LC_ALL", "TZ", "SYSTEMROOT", "LAB_CLOCK_SCALE", "LOG_LEVEL")
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        "PYTHONPATH": str(repository() / "infra" / "emulator"),
        "PYTHONNOUSERSITE": "1",
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
    }


def _start(port: int, note: str) -> Running:
    python = interpreter()
    if not python.exists():
        raise SetupError(f"the stand-in's environment is missing ({python}); type `make setup` in the repository.")
    _claim_folder()
    with log_file().open("w") as log:
        child = subprocess.Popen(
            _command(port),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=_folder(),
            env=_environment(),
            start_new_session=True,  # an interrupted kernel must not take the stand-in with it
        )
    try:
        started = Running(child.pid, port, _installed_version(python), _code(), note)
        _write_record(started)  # at once: whoever comes after an interruption must find it
        _wait_until_ready(child, started)
    except BaseException:
        _end([psutil.Process(child.pid)] if child.poll() is None else [])
        _record().unlink(missing_ok=True)
        raise
    return started


def _wait_until_ready(child: subprocess.Popen[bytes], started: Running) -> None:
    limit = time.monotonic() + START_LIMIT
    while not _is_ready(started, timeout=1.0):
        if child.poll() is not None or time.monotonic() > limit:
            reason = "ended at once" if child.poll() is not None else f"did not answer within {START_LIMIT:.0f} s"
            last = (log_file().read_text(errors="replace").strip().splitlines() or ["the log is empty"])[-1]
            kind = _PortTaken if "address already in use" in last.lower() else EndpointDown
            raise kind(f"the stand-in {reason}: {last} (log: {log_file()})")
        time.sleep(0.05)


def _claim_folder() -> None:
    """Make the stand-in's folder, with a mark that allows us to remove it; a folder without the mark is somebody's."""
    folder, mark = _folder(), _folder() / MARK
    if folder.exists() and any(folder.iterdir()) and not mark.exists():
        raise SetupError(
            f"{folder} holds files that are not labkit's; move them, or set LABKIT_HOME to another folder."
        )
    folder.mkdir(exist_ok=True)
    mark.write_text("The stand-in for AWS writes here. Ending it removes this folder.\n")


def _code() -> str:
    """A digest of the parity modules: after a ``git pull`` the stand-in that runs is not the one that is here."""
    sources = sorted((repository() / "infra" / "emulator" / "parity").rglob("*.py"))
    return hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]


def _installed_version(python: Path) -> str:
    """MiniStack's version, from the name of its metadata folder: asking its Python would cost a second."""
    found = sorted(python.parent.parent.glob("[Ll]ib/**/ministack-*.dist-info"))
    return found[0].name.removeprefix("ministack-").removesuffix(".dist-info") if found else "unknown"


def _write_record(running: Running) -> None:
    content = {key: value for key, value in asdict(running).items() if key != "note"}
    draft = _record().with_suffix(".tmp")
    draft.write_text(json.dumps(content))
    draft.replace(_record())  # never half a record


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


def stop() -> int | None:
    """End the stand-in of this home with all its children and remove what it wrote, but for its log.

    Returns the port that it had, or None if none ran.
    """
    if not home().exists():
        return None
    with _locked():
        known, running_now = recorded(), _ours()
        _record().unlink(missing_ok=True)
        _end(running_now)
        if (_folder() / MARK).exists():
            shutil.rmtree(_folder(), ignore_errors=True)
        if not running_now:
            return None
        return known.port if known else 0
