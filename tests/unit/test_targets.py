"""Which AWS answers, the stand-in's life, and the command line: every fault one sentence, nothing half-made."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from labkit import cli, loopback, places, servers, targets
from labkit.embedded import SERVER
from labkit.errors import EndpointDown, LabError, SetupError, TargetError
from labkit.servers import Running, Server
from tests.ports import out_of_the_way


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A home of this test's own, so that its stand-in can be killed and is ended."""
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path))
    yield tmp_path
    SERVER.stop()


def labkit(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "labkit.cli", *words]
    return subprocess.run(
        command, check=False, capture_output=True, text=True, env={**os.environ, **variables}, timeout=110
    )


def test_an_unknown_target_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_TARGET", "azure")
    with pytest.raises(TargetError, match="LABKIT_TARGET is 'azure'; it can be embedded, localstack, aws"):
        targets.connect()


@pytest.mark.parametrize("account", ["", "12345", "12345678901x"])
def test_aws_needs_its_second_switch(monkeypatch: pytest.MonkeyPatch, account: str) -> None:
    monkeypatch.setenv("LABKIT_TARGET", "aws")
    monkeypatch.setenv("LABKIT_AWS_ACCOUNT", account)
    with pytest.raises(TargetError, match="LABKIT_AWS_ACCOUNT, the 12 digits"):
        targets.connect()


def test_aws_refuses_credentials_of_another_account(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = SERVER.ensure()
    monkeypatch.setenv("LABKIT_TARGET", "aws")
    monkeypatch.setenv("LABKIT_AWS_ACCOUNT", "111111111111")
    for name, value in {
        "AWS_ENDPOINT_URL": stand_in.endpoint,
        "AWS_ACCESS_KEY_ID": "222222222222",
        "AWS_SECRET_ACCESS_KEY": "x",
    }.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(TargetError, match="belong to account 222222222222, but LABKIT_AWS_ACCOUNT is 111111111111"):
        targets.connect()
    monkeypatch.setenv("LABKIT_AWS_ACCOUNT", "222222222222")
    assert targets.connect().account == "222222222222"


def test_a_dead_localstack_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_TARGET", "localstack")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(EndpointDown, match=r"no LocalStack answers at http://127.0.0.1:9"):
        targets.connect()


def test_a_missing_environment_is_a_sentence_and_leaves_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LABKIT_EMULATOR_PYTHON", str(home / "nowhere"))
    with pytest.raises(SetupError, match="type `make setup`"):
        SERVER.ensure()
    assert SERVER.recorded() is None


def test_a_process_that_does_not_come_up_is_a_sentence_with_its_last_words(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The course's own environment has no MiniStack: the guard in the stand-in refuses.
    monkeypatch.setenv("LABKIT_EMULATOR_PYTHON", sys.executable)
    with pytest.raises(EndpointDown, match=r"ended at once: MiniStack .* is not installed in this environment"):
        SERVER.ensure()
    assert SERVER.recorded() is None


def test_a_port_in_use_is_a_sentence(home: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EndpointDown, match=f"port {port} is in use by another program"):
            SERVER.ensure(port)
    assert SERVER.recorded() is None


def listening(pid: int) -> set[str]:
    return {item.laddr.ip for item in psutil.Process(pid).net_connections("inet") if item.status == psutil.CONN_LISTEN}


def test_a_stand_in_lives_alone_on_loopback_and_ends_without_a_trace(home: Path) -> None:
    chosen = out_of_the_way()
    with ThreadPoolExecutor(4) as pool:  # four callers at once get one process
        found = {item.pid for item in pool.map(lambda _: SERVER.ensure(chosen), range(4))}
    assert len(found) == 1
    [pid] = found
    assert listening(pid) == {"127.0.0.1"}
    assert SERVER.running() is not None
    assert SERVER.ensure().note == "was running"
    port = SERVER.stop()
    assert port == chosen
    assert not psutil.pid_exists(pid)
    assert not loopback.answers(f"http://127.0.0.1:{port}", timeout=0.5)
    assert SERVER.stop() is None
    assert {path.name for path in home.iterdir()} == {"embedded.lock", "embedded.log"}


def test_a_stand_in_that_was_killed_is_started_again_and_said_so(home: Path) -> None:
    first = SERVER.ensure(out_of_the_way())
    os.kill(first.pid, signal.SIGKILL)
    limit = time.monotonic() + 30
    while SERVER.process(first) and time.monotonic() < limit:
        time.sleep(0.01)
    second = SERVER.ensure()
    assert "had ended" in second.note
    assert (second.port, second.pid != first.pid) == (first.port, True)


def test_a_stand_in_that_hangs_is_ended_and_started_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = SERVER.ensure()
    os.kill(first.pid, signal.SIGSTOP)
    monkeypatch.setattr(servers, "PATIENCE", 3.0)
    said = CliRunner().invoke(cli.app, ["status"]).output
    assert "embedded does not answer" in said
    assert f"pid: {first.pid}" in said
    second = SERVER.ensure()
    assert "did not answer" in second.note
    assert not psutil.pid_exists(first.pid) or psutil.Process(first.pid).status() == psutil.STATUS_ZOMBIE


def test_a_stand_in_of_older_code_is_started_again(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = SERVER.ensure()
    monkeypatch.setattr(Server, "digest", lambda self: "newer")
    second = SERVER.ensure()
    assert "ran other code" in second.note
    assert second.pid != first.pid
    assert SERVER.ensure().pid == second.pid


def test_a_number_that_belongs_to_another_process_now_is_left_alone(home: Path) -> None:
    bystander = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    try:
        SERVER._write_record(Running(bystander.pid, 4566, "1.5.33", ""))
        assert SERVER.running() is None
        assert SERVER.stop() is None
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


@pytest.mark.parametrize(
    "record",
    ['{"pid": 12', "[]", '{"pid": -1, "port": 4566, "version": "1", "code": ""}',
     '{"pid": "abc", "port": 4566, "version": "1", "code": ""}',
     '{"pid": 1e30, "port": 4566, "version": "1", "code": ""}'],
)  # fmt: skip
def test_a_record_that_is_not_ours_is_as_good_as_none(home: Path, record: str) -> None:
    (home / "embedded.json").write_text(record)
    assert SERVER.running() is None
    assert labkit("status", LABKIT_HOME=str(home)).returncode == 0
    assert "none was running" in labkit("down", LABKIT_HOME=str(home)).stdout


@pytest.mark.parametrize("moment", [0.4, 1.0, 1.6])
def test_a_start_that_was_killed_leaves_nothing_that_is_not_found_again(home: Path, moment: float) -> None:
    command = [sys.executable, "-m", "labkit.cli", "up"]
    starter = subprocess.Popen(command, env={**os.environ, "LABKIT_HOME": str(home)}, stdout=subprocess.DEVNULL)
    time.sleep(moment)
    starter.kill()
    starter.wait()
    SERVER.ensure()
    assert len(SERVER.ours()) == 1
    SERVER.stop()
    assert SERVER.ours() == []


def test_a_folder_of_the_readers_is_not_removed(home: Path) -> None:
    theirs = home / "stand-in"
    theirs.mkdir()
    (theirs / "thesis.txt").write_text("years of work")
    for name in ("tmp", "s3"):
        (home / name).mkdir()
    with pytest.raises(SetupError, match="holds files that are not labkit's"):
        SERVER.ensure()
    SERVER.stop()
    assert {path.name for path in home.iterdir() if path.is_dir()} == {"stand-in", "tmp", "s3"}
    assert (theirs / "thesis.txt").exists()


@pytest.mark.parametrize("proxy", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_a_proxy_of_the_readers_is_passed_by(home: Path, monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    first = SERVER.ensure()
    monkeypatch.setenv(proxy, "http://127.0.0.1:9")
    assert SERVER.ensure().pid == first.pid
    assert targets.connect().client("sqs", "123456789012").list_queues()["ResponseMetadata"]["HTTPStatusCode"] == 200


def test_the_readers_aws_configuration_does_not_matter(home: Path, tmp_path: Path) -> None:
    broken = tmp_path / "config"
    broken.write_text("[profile\nnonsense")
    done = labkit("doctor", LABKIT_HOME=str(home), AWS_PROFILE="nobody", AWS_CONFIG_FILE=str(broken))
    assert done.returncode == 0, done.stdout


def test_a_relative_home_is_the_same_from_everywhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LABKIT_HOME", "some/where")
    here = places.home()
    monkeypatch.chdir(tmp_path)
    assert places.home() == here == places.repository() / "some" / "where"


@pytest.mark.parametrize("region", ["not a region", "US-EAST-1", "mars"])
def test_a_region_that_cannot_be_is_a_sentence(monkeypatch: pytest.MonkeyPatch, region: str) -> None:
    monkeypatch.setenv("LABKIT_REGION", region)
    with pytest.raises(TargetError, match="LABKIT_REGION is"):
        targets.region()


def test_a_function_must_not_see_the_readers_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    monkeypatch.setenv("AWS_PROFILE", "work")
    seen = SERVER.environment()
    assert not {"OPENAI_API_KEY", "AWS_PROFILE"} & set(seen)
    assert "PATH" in seen


def test_the_command_line_starts_tells_and_ends(home: Path) -> None:
    variables = {"LABKIT_HOME": str(home)}
    before = json.loads(labkit("status", "--json", **variables).stdout)
    assert (before["target"], before["running"], before["pid"]) == ("embedded", False, None)
    up = labkit("up", **variables)
    assert up.returncode == 0, up.stderr
    assert "MiniStack 1.5.33 with the parity modules at http://127.0.0.1:" in up.stdout
    after = json.loads(labkit("status", "--json", **variables).stdout)
    assert after["running"] is True
    assert after["endpoint"].startswith("http://127.0.0.1:")
    assert after["pid"] > 0
    assert after["versions"]["ministack"] == "1.5.33"
    assert "boto3" in after["versions"]
    well = labkit("doctor", **variables)
    assert well.returncode == 0, well.stdout
    assert well.stdout.endswith("All is well.\n")
    assert "ended" in labkit("down", **variables).stdout
    assert "embedded: none was running." in labkit("down", **variables).stdout


def test_the_environment_lines_set_up_any_sdk(home: Path) -> None:
    lines = labkit("env", "03-queues", LABKIT_HOME=str(home), LABKIT_LEARNER="learner").stdout
    script = (
        f'{lines}\n{sys.executable} -c \'import boto3; print(boto3.client("sts").get_caller_identity()["Account"])\''
    )
    shell = subprocess.run(["sh", "-c", script], check=False, capture_output=True, text=True, timeout=60)
    assert shell.stdout.strip() == targets.account_for("learner", "03-queues"), shell.stderr


@pytest.mark.parametrize(
    ("words", "variables", "code", "says"),
    [
        (("up",), {"LABKIT_TARGET": "azure"}, 1, "labkit: LABKIT_TARGET is 'azure'"),
        (
            ("env",),
            {"LABKIT_TARGET": "localstack", "AWS_ENDPOINT_URL": "http://127.0.0.1:9"},
            1,
            "no LocalStack answers",
        ),
        (("up", "--port", "0"), {}, 2, "Invalid value"),
        (("dance",), {}, 2, "No such command"),
        (("doctor",), {"LABKIT_EMULATOR_PYTHON": "/nowhere"}, 1, "of the examinations failed"),
    ],
)
def test_a_fault_is_one_sentence_and_a_code(
    home: Path, words: tuple[str, ...], variables: dict[str, str], code: int, says: str
) -> None:
    done = labkit(*words, LABKIT_HOME=str(home), **variables)
    assert (done.returncode, says in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr + done.stdout


def test_the_doctor_says_what_to_type(home: Path) -> None:
    done = labkit("doctor", LABKIT_HOME=str(home), LABKIT_EMULATOR_PYTHON="/nowhere")
    assert "FAIL stand-in's environment: missing: /nowhere\n     type: make setup" in done.stdout


def test_a_home_that_cannot_be_written_is_a_finding(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    done = labkit("doctor", LABKIT_HOME=str(blocked / "home"))
    assert done.returncode == 1
    assert "FAIL write access" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_every_error_is_of_the_family() -> None:
    assert issubclass(SetupError, LabError)
    assert issubclass(EndpointDown, TargetError)
    assert issubclass(TargetError, LabError)
