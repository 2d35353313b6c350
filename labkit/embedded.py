"""The embedded stand-in for AWS: one process on 127.0.0.1, started on first use, ended by ``labkit down``.

It runs in an environment of its own (``.lab/emulator``), because the emulator pins a botocore that LiteLLM cannot live
with, and because Lambda handlers run in it and must not see a notebook's environment. Where it runs is written to
``.lab/embedded.json``; a lock beside it keeps two kernels that start at once from starting two.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

from labkit.errors import EndpointDown, SetupError

HOST = "127.0.0.1"
PREFERRED_PORT = 4566
START_LIMIT = 30.0  # seconds; measured 2 to 3 on two cores, more when thirty start at once
STOP_LIMIT = 10.0  # seconds between asking the process to end and making it end


def repository() -> Path:
    """The folder of the course: where ``infra/emulator`` lies. Raises :class:`SetupError` for an installed labkit."""
    for folder in (Path(__file__).resolve().parent.parent, *Path.cwd().resolve().parents, Path.cwd().resolve()):
        if (folder / "infra" / "emulator" / "parity" / "__main__.py").is_file():
            return folder
    raise SetupError(
        "the embedded stand-in lies in the course's repository and this labkit is not in one; "
        "clone it, or set LABKIT_TARGET=localstack or aws."
    )


def home() -> Path:
    """Where the lab writes everything: ``$LABKIT_HOME``, else ``.lab`` in the repository, else in your home folder."""
    configured = os.environ.get("LABKIT_HOME")
    if configured:
        return Path(configured).resolve()
    try:
        return repository() / ".lab"
    except SetupError:  # labkit taken home, without the course: only the other targets work then
        return Path.home() / ".lab"


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

    ``created`` is the process's start time in epoch seconds: together with ``pid`` it names one process, because the
    system uses numbers again. ``code`` is the digest of the parity modules that it was started with. ``note`` says what
    had to be done to have it, and is not stored.
    """

    pid: int
    port: int
    created: float
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
            if abs(process.create_time() - self.created) > 1 or process.status() == psutil.STATUS_ZOMBIE:
                return None
        except psutil.Error:
            return None
        return process


def _record() -> Path:
    return home() / "embedded.json"


def log_file() -> Path:
    return home() / "embedded.log"


def recorded() -> Running | None:
    """What the record says, whether or not the process still runs."""
    try:
        found = json.loads(_record().read_text())
        return Running(**{key: found[key] for key in ("pid", "port", "created", "version", "code")})
    except (OSError, ValueError, KeyError, TypeError):
        return None  # absent, or cut off in the middle: as good as not there


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
            with urllib.request.urlopen(request, timeout=timeout) as response:
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


def ensure(port: int | None = None) -> Running:
    """The stand-in that runs, started if need be.

    ``port`` insists on a port; otherwise 4566 or, where that is taken, a free one. Raises :class:`SetupError` when the
    environment is missing, :class:`EndpointDown` when the port is taken or the process does not come up.
    """
    home().mkdir(parents=True, exist_ok=True)
    lock = FileLock(home() / "embedded.lock")
    try:
        with lock.acquire(timeout=2 * START_LIMIT):
            return _ensure_locked(port)
    except Timeout:
        raise EndpointDown(
            f"another process has held {home() / 'embedded.lock'} for {2 * START_LIMIT:.0f} s while starting the "
            "stand-in; end that process or type `labkit down`."
        ) from None


def _ensure_locked(port: int | None) -> Running:
    known = recorded()
    note = "started"
    if known is not None:
        if known.process() is None:
            note = f"the one that ran on port {known.port} had ended (see {log_file().name}); started again, empty"
            if log_file().exists():
                log_file().replace(log_file().with_suffix(".previous.log"))
        elif known.code != _code():
            note = f"the one on port {known.port} ran other code than is here now; ended and started again, empty"
            _end(known)
        elif answers(known.endpoint) or answers(known.endpoint, timeout=8.0):
            if port not in (None, known.port):
                raise EndpointDown(
                    f"the stand-in runs on port {known.port}; type `labkit down` before asking for {port}."
                )
            return Running(**{**asdict(known), "note": "was running"})
        else:
            note = f"the one on port {known.port} did not answer; ended and started again, empty"
            _end(known, grace=1.0)  # it answers nobody: it will hardly answer a polite request to end
    if port is not None and not _port_is_free(port):
        raise EndpointDown(f"port {port} is in use by another program; choose another or leave the choice to labkit.")
    if known is not None and port is None:
        # Clients hold its address; the process may have ended so recently that the port is still being given up.
        limit = time.monotonic() + 2.0
        while not _port_is_free(known.port) and time.monotonic() < limit:
            time.sleep(0.05)
        port = known.port if _port_is_free(known.port) else None
    for _ in range(3):
        chosen = port or _free_port()
        try:
            return _start(chosen, note)
        except EndpointDown:
            if port or _port_is_free(chosen):  # else another lab was faster: take the next one
                raise
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
    (home() / "tmp").mkdir(exist_ok=True)
    with log_file().open("w") as log:
        child = subprocess.Popen(
            [str(python), "-m", "parity", "--port", str(port), "--home", str(home())],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            cwd=home(),
            env=_environment(),
            start_new_session=True,  # an interrupted kernel must not take the stand-in with it
        )
    started = Running(child.pid, port, psutil.Process(child.pid).create_time(), "", _code(), note)
    limit = time.monotonic() + START_LIMIT
    while not (_listens(child.pid, port) and answers(started.endpoint, timeout=1.0)):
        if child.poll() is not None or time.monotonic() > limit:
            reason = "ended at once" if child.poll() is not None else f"did not answer within {START_LIMIT:.0f} s"
            _end(started)
            last = (log_file().read_text(errors="replace").strip().splitlines() or ["the log is empty"])[-1]
            raise EndpointDown(f"the stand-in {reason}: {last} (log: {log_file()})")
        time.sleep(0.05)
    complete = Running(**{**asdict(started), "version": _installed_version(python)})
    _write_record(complete)
    return complete


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


def _end(running: Running, grace: float = STOP_LIMIT) -> None:
    """End the process and every process it started, the hard way after ``grace`` seconds; harmless when it has gone."""
    process = running.process()
    family = [process, *process.children(recursive=True)] if process else []
    for member in family:
        try:
            member.terminate()
        except psutil.NoSuchProcess:
            continue
    _, alive = psutil.wait_procs(family, timeout=grace)
    for member in alive:
        member.kill()
    psutil.wait_procs(alive, timeout=STOP_LIMIT)


def stop() -> Running | None:
    """End the stand-in of this home with all its children; returns what was ended, or None if none ran."""
    home().mkdir(parents=True, exist_ok=True)
    with FileLock(home() / "embedded.lock").acquire(timeout=2 * START_LIMIT):
        known = recorded()
        _record().unlink(missing_ok=True)
        ended = known if known and known.process() else None
        if ended:
            _end(ended)
        for leftover in ("tmp", "s3"):
            shutil.rmtree(home() / leftover, ignore_errors=True)
        return ended
