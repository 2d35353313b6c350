"""LocalStack, the second witness: found where one runs, else started by Docker, else started without Docker.

Without Docker (*host mode*) it is a process of ours, in an environment of its own (``.lab/localstack``, CPython 3.13),
with the parity rules that its image lacks. What was started here is written down, so that ``labkit down`` ends that
and nothing else.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import subprocess
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import psutil

from labkit import loopback
from labkit.errors import EndpointDown, TargetError
from labkit.places import home, interpreter, repository
from labkit.servers import Running, Server

USUAL = f"http://{loopback.HOST}:{loopback.PREFERRED_PORT}"
PATIENCE = 15.0  # seconds for one that runs: it loads a service with its first call, which takes some seconds
PULL_LIMIT = 900.0  # seconds; the image has half a gigabyte
DOWN_LIMIT = 60.0  # seconds
CONTAINER = "agent-fleet-lab-localstack"  # as in the compose file

SERVER = Server(
    name="localstack",
    what="LocalStack",
    module="hostmode",
    folder="localstack-files",
    code=("infra/localstack/hostmode", "infra/emulator/parity"),
    python=lambda: interpreter("localstack"),
    package="localstack_core",
    setup="make localstack",
    limit=60.0,  # measured 6 to 9 on two cores
)
# What the community edition does not answer for; the embedded stand-in does, beside it.
LACKING = (
    "appconfig",
    "appconfigdata",
    "bedrock",
    "bedrock-agentcore",
    "bedrock-agentcore-control",
    "bedrock-runtime",
    "pipes",
)


@dataclass(frozen=True)
class Found:
    """A LocalStack that answers. ``running`` is set where it is our own process (host mode)."""

    endpoint: str
    version: str
    services: frozenset[str]
    how: str
    running: Running | None = None

    @property
    def lacking(self) -> tuple[str, ...]:
        """The services that it does not have and the stand-in beside it has."""
        return tuple(name for name in LACKING if name not in self.services)

    @property
    def says(self) -> str:
        return f"LocalStack {self.version} at {self.endpoint}, {self.how}"


def pointed_at() -> str | None:
    """The endpoint that ``AWS_ENDPOINT_URL`` or ``LOCALSTACK_HOST`` names, as localstack-client reads them."""
    from localstack_client.config import get_service_endpoint

    if not (os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("LOCALSTACK_HOST")):
        return None
    try:
        endpoint = str(get_service_endpoint("sqs")).rstrip("/")
        urllib.request.Request(endpoint)
    except (ValueError, RuntimeError) as error:
        raise TargetError(f"LOCALSTACK_HOST or AWS_ENDPOINT_URL names no address: {error}.") from error
    if not endpoint.startswith(("http://", "https://")):
        raise TargetError(f"AWS_ENDPOINT_URL is {endpoint!r}; an endpoint begins with http:// or https://.")
    return endpoint


def find() -> Found | None:
    """The LocalStack that the reader points at, that was started here, or that runs at the usual port; starts nothing.

    Raises :class:`EndpointDown` when the one that the reader points at does not answer, and :class:`TargetError` when
    it is no LocalStack.
    """
    named, ours = pointed_at(), SERVER.running()
    if named:
        if not loopback.answers(named, timeout=PATIENCE):
            raise EndpointDown(
                f"no LocalStack answers at {named}; start it, or unset LOCALSTACK_HOST and AWS_ENDPOINT_URL and type "
                "`labkit up --target localstack`."
            )
        if not _is_localstack(named):
            raise TargetError(
                f"what answers at {named} is no LocalStack (the embedded stand-in?); unset AWS_ENDPOINT_URL and "
                "LOCALSTACK_HOST, or point them at one."
            )
        return _look(named, ours)
    if ours:
        return _look(ours.endpoint, ours)
    for endpoint in (_container(), None if _of_another_home() else USUAL):
        if endpoint and _is_localstack(endpoint) and loopback.answers(endpoint, PATIENCE):
            return _look(endpoint, None)
    return None


def _of_another_home() -> bool:
    """Whether another home's process listens on the usual port: its labs have the same accounts as ours."""
    words = ["--port", USUAL.rpartition(":")[2]]
    for process in psutil.process_iter(["cmdline"]):
        command = process.info["cmdline"] or []
        if command[1:3] == ["-m", SERVER.module] and command[3:5] == words:
            return True  # it is none of ours, which was looked for before
    return False


def _is_localstack(endpoint: str) -> bool:
    """Whether it says so of itself: the embedded stand-in answers like one, and has no such page."""
    return bool(_page(endpoint, "_localstack/info").get("version"))


def ensure(*, docker: bool = False, port: int | None = None) -> Found:
    """A LocalStack that answers: one that runs, else (where ``docker`` allows it) a container, else host mode.

    Raises :class:`EndpointDown` or :class:`SetupError` with what to type, also when one runs on another ``port``.
    """
    found = find()
    if found:
        if port is not None and not found.endpoint.endswith(f":{port}"):
            raise EndpointDown(f"LocalStack runs at {found.endpoint}; end it before asking for port {port}.")
        return found
    if docker and _docker():
        return _start_container(port)
    started = SERVER.ensure(port)
    return _look(started.endpoint, started)


def stop() -> list[str]:
    """End what was started here; returns what that was, in words. Raises :class:`EndpointDown` when Docker does not."""
    ended = []
    if SERVER.stop() is not None:
        ended.append("LocalStack (host mode)")
    if _container_record().exists():
        _compose("down", limit=DOWN_LIMIT)
        _container_record().unlink(missing_ok=True)
        ended.append("LocalStack (Docker)")
    return ended


def _look(endpoint: str, ours: Running | None) -> Found:
    page = _page(endpoint, "_localstack/health")
    services = page.get("services")
    names = frozenset(services) if isinstance(services, dict) else frozenset()
    version = str(page.get("version", "of an unknown release"))
    if ours is not None and ours.endpoint == endpoint:
        note = f"{ours.note}, " if ours.note else ""
        return Found(endpoint, version, names, f"{note}host mode with the parity rules", ours)
    how = "started here with Docker, as published" if endpoint == _container() else "not started here"
    return Found(endpoint, version, names, how)


def _page(endpoint: str, path: str) -> dict[str, object]:
    """A page that LocalStack keeps about itself, or nothing where there is none. Good for names, not for readiness."""
    try:
        with loopback.DIRECT.open(f"{endpoint}/{path}", timeout=5) as response:
            page = json.load(response)
    except (OSError, ValueError, http.client.HTTPException):
        return {}
    return page if isinstance(page, dict) else {}


def _docker() -> bool:
    """Whether a Docker engine answers: the program alone is only a client."""
    program = shutil.which("docker")
    if program is None:
        return False
    try:
        asked = subprocess.run([program, "info"], check=False, capture_output=True, timeout=10)
        return asked.returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def _container_record() -> Path:
    return home() / "localstack-container"


def _container() -> str | None:
    """The endpoint of the container that was started here."""
    try:
        return f"http://{loopback.HOST}:{int(_container_record().read_text())}"
    except (OSError, ValueError):
        return None


def _compose(*words: str, limit: float, **variables: str) -> None:
    file = repository() / "infra" / "localstack" / "compose.yaml"
    command = ["docker", "compose", "--file", str(file), *words]
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=limit, env={**os.environ, **variables}
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise EndpointDown(f"Docker did not do `{' '.join(command)}`: {error}") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it says nothing"])[-1]
        raise EndpointDown(f"Docker did not do `{' '.join(command)}`: {last}")


def _start_container(port: int | None) -> Found:
    chosen = port or loopback.free_port()
    home().mkdir(parents=True, exist_ok=True)
    _container_record().write_text(f"{chosen}\n")  # at once: whoever comes after an interruption must find it
    try:
        _compose("up", "--detach", "--wait", limit=PULL_LIMIT, LABKIT_LOCALSTACK_PORT=str(chosen))
        endpoint = f"http://{loopback.HOST}:{chosen}"
        if not loopback.answers(endpoint, timeout=SERVER.limit):
            raise EndpointDown(f"the container {CONTAINER} was started and does not answer at {endpoint}.")
    except BaseException as error:
        with contextlib.suppress(EndpointDown):  # the first fault is the one to tell
            _compose("down", limit=DOWN_LIMIT)
        _container_record().unlink(missing_ok=True)
        if isinstance(error, EndpointDown):
            raise EndpointDown(f"{error} `labkit up --target localstack --host-mode` does without Docker.") from error
        raise
    return _look(endpoint, None)
