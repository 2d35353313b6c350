"""Which LocalStack a lab gets: one that runs, a container, host mode; and only what was started here is ended."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from labkit import embedded, localstack, targets
from labkit.errors import EndpointDown, SetupError, TargetError
from labkit.targets import Target


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of this test's own, no LocalStack that the reader points at, no Docker, no host mode."""
    for name in ("AWS_ENDPOINT_URL", "LOCALSTACK_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("LABKIT_LOCALSTACK_PYTHON", "/nowhere/python")
    monkeypatch.setattr(localstack, "USUAL", "http://127.0.0.1:9")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    yield tmp_path / "home"
    embedded.SERVER.stop()
    embedded.beside("").stop()


@pytest.fixture
def docker(tmp_path: Path) -> Path:
    """A docker that does nothing and writes down what it was asked; its engine answers."""
    asked = tmp_path / "asked"
    program = tmp_path / "bin" / "docker"
    program.write_text(f'#!/bin/sh\necho "$LABKIT_LOCALSTACK_PORT $*" >> {asked}\n')
    program.chmod(0o755)
    return asked


class Pages(BaseHTTPRequestHandler):
    """An emulator with pages about itself like LocalStack's; its AWS APIs answer with an empty object."""

    services: tuple[str, ...] = ("sqs", "events")

    def do_GET(self) -> None:
        listed = ", ".join(f'"{name}": "available"' for name in self.services)
        self._send(f'{{"version": "4.14.0", "services": {{{listed}}}}}')

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._send("{}")

    def _send(self, body: str) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def another() -> Iterator[str]:
    """A LocalStack that somebody else started."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Pages)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_one_that_the_reader_points_at_is_taken_and_left_alone(another: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", another)
    found = localstack.ensure(docker=True)
    assert (found.endpoint, found.version, found.how) == (another, "4.14.0", "not started here")
    assert localstack.stop() == []
    assert localstack.find() == found


def test_one_at_the_usual_port_is_taken(another: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(localstack, "USUAL", another)
    found = localstack.find()
    assert found is not None
    assert found.endpoint == another


def test_the_process_of_another_home_is_not_taken(
    another: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(localstack, "USUAL", another)
    (tmp_path / "hostmode.py").write_text("import time\ntime.sleep(60)\n")
    port = another.rpartition(":")[2]
    command = [sys.executable, "-m", "hostmode", "--port", port, "--home", "/elsewhere"]
    theirs = subprocess.Popen(command, cwd=tmp_path)
    try:
        assert localstack.find() is None  # its labs have the same accounts as ours
    finally:
        theirs.kill()
        theirs.wait()
    assert localstack.find() is not None


def test_the_embedded_stand_in_at_the_usual_port_is_no_localstack(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(localstack, "USUAL", embedded.SERVER.ensure().endpoint)
    assert localstack.find() is None
    monkeypatch.setattr(embedded.SERVER.__class__, "running", lambda self: None)  # another home's, not recorded here
    assert localstack.find() is None


def test_the_embedded_stand_in_is_no_second_witness(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", embedded.SERVER.ensure().endpoint)
    with pytest.raises(TargetError, match="is no LocalStack"):
        localstack.ensure()


def test_an_endpoint_without_a_scheme_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "127.0.0.1:4566")
    with pytest.raises(TargetError, match="begins with http://"):
        localstack.find()


def test_another_port_than_the_one_that_runs_is_refused(another: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", another)
    with pytest.raises(EndpointDown, match=f"LocalStack runs at {another}; end it before asking for port 4599"):
        localstack.ensure(port=4599)


def test_one_that_is_pointed_at_and_dead_is_not_replaced_by_another(
    docker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(EndpointDown, match=r"no LocalStack answers at http://127.0.0.1:9; start it, or unset"):
        localstack.ensure(docker=True)
    assert not docker.exists()


def test_docker_is_asked_before_host_mode_and_ended_again(docker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = embedded.SERVER.ensure()  # answers for the container that the fake has not started
    found = localstack.ensure(docker=True, port=stand_in.port)
    assert (found.endpoint, found.how) == (stand_in.endpoint, "started here with Docker, as published")
    monkeypatch.setattr(localstack, "_is_localstack", lambda endpoint: endpoint == found.endpoint)
    assert localstack.find() == found  # on whichever port it is
    assert localstack.stop() == ["LocalStack (Docker)"]
    assert localstack.stop() == []
    info, up, down = docker.read_text().splitlines()
    assert info.strip() == "info"
    assert up.startswith(f"{stand_in.port} compose --file ")
    assert up.endswith("infra/localstack/compose.yaml up --detach --wait")
    assert down.endswith(" down")


def test_a_container_that_does_not_answer_is_taken_down(docker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(localstack.loopback, "answers", lambda *_, **__: False)
    with pytest.raises(EndpointDown, match="does not answer"):
        localstack.ensure(docker=True)
    assert docker.read_text().splitlines()[-1].endswith(" down")


def test_docker_that_fails_is_named_and_can_be_done_without(docker: Path) -> None:
    docker.parent.joinpath("bin", "docker").write_text(
        '#!/bin/sh\n[ "$1" = info ] || { echo no network >&2; exit 1; }\n'
    )
    with pytest.raises(EndpointDown, match=r"up --detach --wait`: no network .*--host-mode"):
        localstack.ensure(docker=True)
    assert localstack.stop() == []


def test_a_container_that_cannot_be_ended_does_not_keep_the_rest_alive(home: Path, docker: Path) -> None:
    companion = embedded.beside("http://127.0.0.1:9").ensure()
    (home / "localstack-container").write_text("4599")
    docker.parent.joinpath("bin", "docker").write_text("#!/bin/sh\nexit 1\n")
    done = subprocess.run(
        [sys.executable, "-m", "labkit.cli", "down"], check=False, capture_output=True, text=True, timeout=110
    )
    assert done.returncode == 1
    assert "Docker did not do" in done.stderr
    assert embedded.beside("").process(companion) is None


@pytest.mark.parametrize("value", ["http://x", "a:b:c"])
def test_a_host_that_is_none_is_a_sentence(monkeypatch: pytest.MonkeyPatch, value: str) -> None:
    monkeypatch.setenv("LOCALSTACK_HOST", value)
    with pytest.raises(TargetError):
        localstack.find()


def test_a_notebook_starts_no_container(docker: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_TARGET", "localstack")
    with pytest.raises(SetupError, match="type `make localstack` in the repository"):
        targets.connect()
    assert not docker.exists()


def test_what_is_lacking_is_answered_by_the_stand_in_beside_it(another: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", another)
    monkeypatch.setenv("LABKIT_TARGET", "localstack")
    target = targets.connect()
    assert "pipes" in target.beside
    assert "AWS_ENDPOINT_URL_PIPES" not in target.environment("123456789012")  # it does not run yet
    assert target.endpoint_of("sqs") == another
    companion = target.endpoint_of("pipes")
    assert companion not in (None, another)
    assert target.client("pipes", "123456789012").list_pipes()["Pipes"] == []
    assert target.environment("123456789012")["AWS_ENDPOINT_URL_PIPES"] == companion
    assert target.environment("123456789012")["AWS_ENDPOINT_URL_BEDROCK_RUNTIME"] == companion
    monkeypatch.setenv("AWS_ENDPOINT_URL_PIPES", "http://127.0.0.1:9")
    assert target.endpoint_of("pipes") == "http://127.0.0.1:9"


def test_a_service_that_it_has_is_its_own(another: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pages, "services", ("sqs", "events", "pipes"))
    monkeypatch.setenv("AWS_ENDPOINT_URL", another)
    target = targets.on_localstack(localstack.ensure())
    assert target.endpoint_of("pipes") == another


def test_the_embedded_target_has_nothing_beside_it() -> None:
    assert Target("embedded", "http://127.0.0.1:1", "us-east-1", "").endpoint_of("pipes") == "http://127.0.0.1:1"


def test_up_status_and_down_say_what_answers(another: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", another)

    def labkit(*words: str) -> str:
        command = [sys.executable, "-m", "labkit.cli", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=110).stdout

    up = labkit("up", "--target", "localstack")
    assert f"localstack: LocalStack 4.14.0 at {another}, not started here." in up
    assert "answers for appconfig, appconfigdata, bedrock" in up
    monkeypatch.setenv("LABKIT_TARGET", "localstack")
    status = labkit("status")
    assert f"localstack answers at {another}, not started here" in status
    assert "pipes: the embedded stand-in, http://127.0.0.1:" in status
    assert "export AWS_ENDPOINT_URL_PIPES=http://127.0.0.1:" in labkit("env", "09-fan-out")
    assert labkit("down").splitlines()[-1] == "localstack: ended the stand-in beside it."
    assert "export AWS_ENDPOINT_URL_PIPES=http://127.0.0.1:" in labkit("env", "09-fan-out")  # started for it
    assert labkit("down").splitlines()[-1] == "localstack: ended the stand-in beside it."
    assert labkit("down").splitlines()[-1] == "localstack: none was running."
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    dead = json.loads(labkit("status", "--json"))
    assert (dead["running"], "no LocalStack answers" in dead["reason"]) == (False, True)
    assert not (home / "stand-in-beside").exists()


def test_a_real_account_is_not_reached_by_an_option(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-m", "labkit.cli", "up", "--target", "aws"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=110)
    assert done.returncode == 1
    assert "LABKIT_TARGET=aws and LABKIT_AWS_ACCOUNT" in done.stderr
