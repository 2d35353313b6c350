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
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from labkit.errors import EndpointDown, SetupError

HOST = "127.0.0.1"
PREFERRED_PORT = 4566
START_LIMIT = 30.0  # seconds; measured 2 to 3 on two cores, more when thirty start at once
STOP_GRACE = 2.0  # seconds between asking the process to end and making it end; it holds nothing worth saving
STOP_LIMIT = 10.0  # seconds for the system to take it away
MARK = ".labkit"  # the file that says that a folder is ours to remove


# Past any proxy of the reader's: nothing of ours is on the other side of one.
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def repository() -> Path:
    """The folder of the course: where ``infra/emulator`` lies. Raises :class:`SetupError` for an installed labkit."""
    for folder in (Path(__file__).resolve().parent.parent, Path.cwd().resolve(), *Path.cwd().resolve().parents):
        if (folder / "infra" / "emulator" / "parity" / "__main__.py").is_file():
            return folder
    raise SetupError(
        "the embedded stand-in lies in the course's repository and this labkit is not in one; "
        "clone it, or set LABKIT_TARGET=localstack or aws."
    )


def home() -> Path:
    """Where the lab writes everything: ``$LABKIT_HOME``, else ``.lab`` in the repository, else in your home folder.

    A relative ``LABKIT_HOME`` counts from the repository: a kernel works in another folder than the command line.
    """
    configured = os.environ.get("LABKIT_HOME", "").strip()
    try:
        base = repository()
    except SetupError:  # labkit taken home, without the course: only the other targets work then
        base = Path.home()
    return (base / Path(configured).expanduser()).resolve() if configured else base / ".lab"


def _folder() -> Path:
    """What the stand-in may write into, and what ending it removes: a folder of its own, never one of the reader's."""
    return home() / "stand-in"


def interpreter() -> Path:
    """The Python of the stand-in's own environment."""
    configured = os.environ.get("LABKIT_EMULATOR_PYTHON")
    if configured:
        return Path(configured)
    folder = repository() / ".lab" / "emulator"
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")


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
    return found if found and found.process() and _listens(found.pid, found.port) and answers(found.endpoint) else None


def answers(endpoint: str, timeout: float = 2.0) -> bool:
    """Whether SQS and EventBridge answer at ``endpoint``: two real calls, because a health page can lie."""
    calls = (
        ("sqs", "AmazonSQS.ListQueues", "application/x-amz-json-1.0"),
        ("events", "AWSEvents.ListEventBuses", "application/x-amz-json-1.1"),
    )
    for service, action, kind in calls:
        credential = f"AWS4-HMAC-SHA256 Credential=000000000000/20260101/us-east-1/{service}/aws4_request"
        request = urllib.request.Request(
            endpoint + "/",
            data=b"{}",
            headers={"X-Amz-Target": action, "Content-Type": kind, "Authorization": f"{credential}, Signature=lab"},
        )
        try:
            with _DIRECT.open(request, timeout=timeout) as response:
                json.load(response)
        except (OSError, ValueError):  # URLError and timeouts are OSErrors
            return False
    return True


def _port_is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.5)
        if probe.connect_ex((HOST, port)) == 0:
            return False  # some systems allow to bind here beside a program that listens on every address
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def _free_port() -> int:
    """4566, or the first free one above it: low ports, because the system gives the high ones to outgoing connections
    and one of those may hold our port just when a stand-in is to be started again on it."""
    for port in range(PREFERRED_PORT, PREFERRED_PORT + 200):
        if _port_is_free(port):
            return port
    raise EndpointDown(f"none of the ports {PREFERRED_PORT} to {PREFERRED_PORT + 199} is free.")


def _listens(pid: int, port: int) -> bool:
    """Whether this very process listens on ``port``: another lab's stand-in would answer just as well."""
    try:
        return any(
            link.status == psutil.CONN_LISTEN and link.laddr.port == port
            for link in psutil.Process(pid).net_connections("tcp")
        )
    except psutil.Error:
        return False


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
        if known.code == _code() and (answers(known.endpoint) or answers(known.endpoint, timeout=8.0)):
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
    if port is not None and not _port_is_free(port):
        raise EndpointDown(f"port {port} is in use by another program; choose another or leave the choice to labkit.")
    if known is not None and port is None:
        # Clients hold its address; the process may have ended so recently that the port is still being given up.
        limit = time.monotonic() + 2.0
        while not _port_is_free(known.port) and time.monotonic() < limit:
            time.sleep(0.05)
        port = known.port if _port_is_free(known.port) else None
    for attempt in range(12):  # many labs that start at once reach for the same port
        chosen = port or _free_port()
        try:
            return _start(chosen, note)
        except EndpointDown:
            if port or _port_is_free(chosen):
                raise
            time.sleep(0.1 * attempt * random.random())
    raise EndpointDown("other programs took every free port first; type `labkit up` again.")


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
    while not (_listens(child.pid, started.port) and answers(started.endpoint, timeout=1.0)):
        if child.poll() is not None or time.monotonic() > limit:
            reason = "ended at once" if child.poll() is not None else f"did not answer within {START_LIMIT:.0f} s"
            last = (log_file().read_text(errors="replace").strip().splitlines() or ["the log is empty"])[-1]
            raise EndpointDown(f"the stand-in {reason}: {last} (log: {log_file()})")
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
