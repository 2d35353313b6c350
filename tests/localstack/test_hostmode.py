"""LocalStack without Docker: it comes up on loopback, keeps to its folder, and leaves no process behind."""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import os
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from botocore.exceptions import ClientError

from labkit import localstack
from labkit.servers import Running
from labkit.targets import Target, on_localstack

ACCOUNT = "123456789012"
LONG = """
import os, subprocess, sys, time

def handler(event, context):
    if event.get("leave"):
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    if event.get("file"):
        open("/tmp/" + event["file"], "w").close()
    time.sleep(event.get("seconds", 0))
    return os.getpid()
"""


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home of this test's own, an empty home folder of the reader's, and no other LocalStack."""
    monkeypatch.setenv("LABKIT_HOME", str(tmp_path / "lab"))
    monkeypatch.setenv("HOME", str(tmp_path / "reader"))
    (tmp_path / "reader").mkdir()
    monkeypatch.setattr(localstack, "USUAL", "http://127.0.0.1:9")
    for name in ("AWS_ENDPOINT_URL", "LOCALSTACK_HOST"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def running(surroundings: Path) -> Iterator[Running]:
    yield localstack.SERVER.ensure()
    localstack.stop()


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """One for the tests that only ask."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LABKIT_HOME", str(tmp_path_factory.mktemp("lab")))
        yield localstack.SERVER.ensure()
        localstack.stop()


def family(pid: int) -> list[psutil.Process]:
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


def listening(pid: int) -> set[str]:
    links = [link for process in family(pid) for link in process.net_connections("inet")]
    return {link.laddr.ip for link in links if link.status == psutil.CONN_LISTEN}


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those that still run: of one that has ended, a zombie stays until its parent, or the system, looks."""
    return [each for each in processes if each.is_running() and not _is_zombie(each)]


def _is_zombie(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def until(condition: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, f"waited {seconds:.0f} s for {what}"
        time.sleep(0.05)


def function(target: Target, source: str, **more: Any) -> Any:
    """A Lambda client and a function ``f`` that is ready."""
    client = target.client("lambda", ACCOUNT)
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("app.py", source)
    role = f"arn:aws:iam::{ACCOUNT}:role/lab"
    code = {"ZipFile": package.getvalue()}
    client.create_function(
        FunctionName="f", Runtime="python3.13", Role=role, Handler="app.handler", Code=code, Timeout=60, **more
    )
    client.get_waiter("function_active_v2").wait(FunctionName="f", WaiterConfig={"Delay": 1, "MaxAttempts": 60})
    return client


def invoke(client: Any, **event: Any) -> Any:
    return json.load(client.invoke(FunctionName="f", Payload=json.dumps(event))["Payload"])


def connected(running: Running) -> Target:
    return on_localstack(localstack.ensure())


def test_it_listens_on_loopback_and_ends_without_a_trace(running: Running, surroundings: Path) -> None:
    client = function(connected(running), LONG)
    handler = invoke(client)
    assert psutil.pid_exists(handler)
    assert listening(running.pid) == {"127.0.0.1"}
    members = family(running.pid)
    assert len(members) > 1
    assert localstack.stop() == ["LocalStack (host mode)"]
    assert not alive(members)
    assert {path.name for path in (surroundings / "lab").iterdir()} == {"localstack.lock", "localstack.log"}


def test_it_writes_into_its_own_folder_only(running: Running, surroundings: Path) -> None:
    target = connected(running)
    client = function(target, LONG)
    invoke(client)
    s3 = target.client("s3", ACCOUNT)
    s3.create_bucket(Bucket="lab-hostmode")
    s3.put_object(Bucket="lab-hostmode", Key="large", Body=b"x" * 3_000_000)  # small ones stay in memory
    target.client("dynamodb", ACCOUNT).list_tables()
    target.client("stepfunctions", ACCOUNT).list_state_machines()
    target.client("cloudwatch", ACCOUNT).list_metrics()
    assert list((surroundings / "reader").rglob("*")) == []
    assert list(localstack.SERVER.home().rglob("lab-hostmode"))  # the folder in which the object's file lies unnamed
    opened = {Path(each.path) for member in family(running.pid) for each in member.open_files() if "w" in each.mode}
    outside = {path for path in opened if not path.is_relative_to(surroundings)}
    assert not outside


@pytest.mark.parametrize("end", [signal.SIGTERM, signal.SIGKILL])
def test_no_handler_survives_it(running: Running, end: signal.Signals) -> None:
    client = function(connected(running), LONG)
    invoke(client, leave=True)
    client.invoke(FunctionName="f", InvocationType="Event", Payload=json.dumps({"seconds": 300}))
    until(lambda: len(family(running.pid)) >= 3, "the handler and what it left")
    members = family(running.pid)
    os.kill(running.pid, end)
    until(lambda: not alive(members), "all to have ended")


DETACHES = """
import os, sys

def handler(event, context):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)"])
        os._exit(0)
    os.wait()
"""


def test_what_a_handler_detaches_ends_with_it(running: Running) -> None:
    invoke(function(connected(running), DETACHES))
    until(lambda: len(localstack.SERVER.left_behind()) >= 2, "the handler and what it has detached")
    left = localstack.SERVER.left_behind()
    localstack.stop()
    assert not alive(left)


def test_two_homes_do_not_share_objects(running: Running, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = connected(running).client("s3", ACCOUNT)
    first.create_bucket(Bucket="shared-name")
    with monkeypatch.context() as other:
        other.setenv("LABKIT_HOME", str(tmp_path / "other"))
        try:
            second = on_localstack(localstack.ensure()).client("s3", ACCOUNT)
            second.create_bucket(Bucket="shared-name")
            second.delete_bucket(Bucket="shared-name")
        finally:
            localstack.stop()
    first.put_object(Bucket="shared-name", Key="large", Body=b"x" * 3_000_000)
    assert first.head_object(Bucket="shared-name", Key="large")["ContentLength"] == 3_000_000


@pytest.mark.parametrize(
    "condition", ["a =", "attribute_not_exists()", "#x = :x", "size(k) > :missing", "NOT", "k IN ()"]
)
def test_an_expression_that_cannot_be_read_is_refused(shared: Running, condition: str) -> None:
    table = Target("localstack", shared.endpoint, "us-east-1", "").client("dynamodb", ACCOUNT)
    with contextlib.suppress(table.exceptions.ResourceInUseException):
        table.create_table(
            TableName="t",
            KeySchema=[{"AttributeName": "k", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "k", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
    with pytest.raises(ClientError) as refused:
        table.put_item(TableName="t", Item={"k": {"S": "a"}}, ConditionExpression=condition)
    assert refused.value.response["Error"]["Code"] == "ValidationException"


def test_one_that_was_killed_is_started_again(running: Running) -> None:
    os.kill(running.pid, signal.SIGKILL)
    until(lambda: localstack.SERVER.process(running) is None, "it to have ended")
    again = localstack.SERVER.ensure()
    assert "had ended" in again.note
    assert again.port == running.port


def test_the_command_line_says_that_it_is_host_mode(surroundings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}:/usr/bin:/bin")

    def labkit(*words: str) -> str:
        command = [sys.executable, "-m", "labkit.cli", *words]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout

    try:
        localstack.SERVER.ensure()  # a Docker engine would be asked first
        up = labkit("up", "--target", "localstack")
        assert "host mode with the parity rules" in up
        assert "answers for appconfig, appconfigdata, bedrock" in up
    finally:
        down = labkit("down")
    assert "localstack: ended LocalStack (host mode) and the stand-in beside it." in down


def test_a_port_that_is_taken_ends_it_with_a_sentence(surroundings: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        command = [str(localstack.SERVER.python()), "-m", "hostmode", "--port", str(port), "--home", str(surroundings)]
        environment = localstack.SERVER.environment()
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env=environment, cwd=surroundings, timeout=120
        )
    assert done.returncode == 4
    assert "Address already in use" in done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "https://example.com"}, 403),
        ({"Origin": "null"}, 403),
        ({"Host": "example.com"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Host": "localhost"}, 200),
        ({}, 200),
    ],
    ids=str,
)
def test_a_page_from_elsewhere_cannot_drive_it(shared: Running, headers: dict[str, str], status: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", shared.port, timeout=30)
    credential = f"AWS4-HMAC-SHA256 Credential={ACCOUNT}/20260101/us-east-1/sqs/aws4_request"
    call = {"X-Amz-Target": "AmazonSQS.ListQueues", "Content-Type": "application/x-amz-json-1.0"}
    try:
        connection.request("POST", "/", b"{}", {"Authorization": credential, **call, **headers})
        assert connection.getresponse().status == status
    finally:
        connection.close()
