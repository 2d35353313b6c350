"""One emulator beside another: its address, its silence, and a pipe in the one that reads the queues of the other."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from parity import neighbour
from parity.neighbour import Neighbour, Refused, Unreachable, address, value_of

from labkit import Lab, loopback, places, targets
from labkit.work.queues import Queue
from tests.ports import out_of_the_way


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("http://127.0.0.1:4566", "http://127.0.0.1:4566"),
        ("http://localhost:80/", "http://localhost:80"),
        ("http://[::1]:4566", "http://[::1]:4566"),
        *((text, None) for text in ("", "http://127.0.0.1", "https://127.0.0.1:1", "http://example.com:80")),
        *((text, None) for text in ("http://127.0.0.1:0", "http://127.0.0.1:65536", "http://a@127.0.0.1:80")),
    ],
)
def test_the_address_of_a_neighbour(text: str, found: str | None) -> None:
    if found is not None:
        assert address(text) == found
        return
    with pytest.raises(ValueError, match="is no address like"):
        address(text)


@contextlib.contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    """A server that gives one answer to everything."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def ask(endpoint: str) -> dict[str, Any]:
    return Neighbour(endpoint).ask("sqs", "get_queue_url", "123456789012", "us-east-1", QueueName="q")


def test_an_answer_a_refusal_and_silence() -> None:
    with answering(200, b'{"QueueUrl": "url"}') as endpoint:
        assert ask(endpoint)["QueueUrl"] == "url"
    with answering(400, b'{"__type": "com.amazonaws.sqs#QueueDoesNotExist", "message": "no"}') as endpoint:
        with pytest.raises(Refused) as caught:
            ask(endpoint)
        assert caught.value.message == "no"
    for status, body in ((503, b""), (502, b"<html>")):
        with answering(status, body) as endpoint, pytest.raises(Unreachable, match=endpoint):
            ask(endpoint)
    with pytest.raises(Unreachable, match="does not answer"):
        ask("http://127.0.0.1:9")
    with pytest.raises(Refused, match="ValidationException"):
        Neighbour("http://127.0.0.1:9").ask("sqs", "get_queue_url", "1", "us-east-1")


def test_it_is_asked_once_and_not_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with answering(200, b'{"QueueUrl": "url"}') as endpoint:
        assert ask(endpoint)["ResponseMetadata"]["RetryAttempts"] == 0


def test_clients_are_kept_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(neighbour, "CLIENTS", 2)
    beside = Neighbour("http://127.0.0.1:9")
    made = [beside._client("sqs", str(account), "us-east-1", False) for account in (1, 2, 1, 3, 1, 2)]
    assert made[0] is made[2] is made[4]
    assert made[1] is not made[5]
    assert len(beside._clients) == 2


def test_what_a_function_returns() -> None:
    assert value_of(b'{"a": 1}') == {"a": 1}
    assert value_of("grün".encode()) == "grün"


class Line:
    """A line to the emulator that can be cut: a port that passes on what comes, or refuses it."""

    def __init__(self, to: str) -> None:
        self._to = int(to.rsplit(":", 1)[1])
        self.port = out_of_the_way()
        self._guard = threading.Lock()
        self._open: list[socket.socket] = []
        self._listening: socket.socket | None = None
        self.join()

    def join(self) -> None:
        self._listening = socket.create_server(("127.0.0.1", self.port))
        threading.Thread(target=self._accept, args=(self._listening,), daemon=True).start()

    def cut(self) -> None:
        with self._guard:
            ends, self._listening, self._open = [self._listening, *self._open], None, []
        for one in ends:
            if one is not None:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()

    def _accept(self, listening: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = listening.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                with self._guard:
                    if self._listening is not listening:  # cut while this one was let in
                        near.close()
                        far.close()
                        return
                    self._open += [near, far]
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    @staticmethod
    def _pass(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)


class Companion:
    """A stand-in beside another one."""

    def __init__(self, beside: str, folder: Path) -> None:
        self._beside, self._folder = beside, folder
        self.start()

    def start(self) -> None:
        self.port = out_of_the_way()
        command = [str(places.interpreter("emulator")), "-m", "parity", "--port", str(self.port)]
        self.process = subprocess.Popen(
            [*command, "--beside", self._beside, "--home", str(self._folder)],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": str(places.repository() / "infra" / "emulator")},
            stdin=subprocess.DEVNULL,
        )
        until(lambda: self.process.poll() is not None or loopback.answers(f"http://127.0.0.1:{self.port}"))
        assert self.process.poll() is None

    def client(self, lab: Lab) -> Any:
        return boto3.client(
            "pipes",
            endpoint_url=f"http://127.0.0.1:{self.port}",
            region_name=targets.region(),
            aws_access_key_id=lab.account,
            aws_secret_access_key="lab",
            config=Config(proxies={}, retries={"total_max_attempts": 1}),
        )

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(60)


def until(look: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not look():
        assert time.monotonic() < end, "did not come true in time"
        time.sleep(0.05)


@pytest.fixture
def line(lab: Lab) -> Iterator[Line]:
    assert lab.target.endpoint is not None
    made = Line(lab.target.endpoint)
    yield made
    made.cut()


@pytest.fixture
def companion(line: Line, tmp_path: Path) -> Iterator[Companion]:
    made = Companion(f"http://127.0.0.1:{line.port}", tmp_path)
    yield made
    made.end()


def role(lab: Lab) -> str:
    return f"arn:aws:iam::{lab.account}:role/pipes"


def pipe(lab: Lab, companion: Companion, source: Queue, target: Queue) -> Any:
    client = companion.client(lab)
    pattern = json.dumps({"body": {"n": [{"exists": True}]}})
    said = {"SourceParameters": {"FilterCriteria": {"Filters": [{"Pattern": pattern}]}}}
    shaped = {"InputTemplate": '{"n": <$.body.n>, "pipe": <aws.pipes.pipe-name>}'}
    names = {"Name": "steps", "RoleArn": role(lab), "Source": source.arn, "Target": target.arn}
    client.create_pipe(**names, **said, TargetParameters=shaped)
    until(lambda: client.describe_pipe(Name="steps")["CurrentState"] == "RUNNING")
    return client


def send(queue: Queue, numbers: range) -> None:
    queue.send_batch([{"n": number} for number in numbers])


def arrived(queue: Queue, found: Counter[int], number: int) -> bool:
    for message in queue.receive(10, wait=1):
        found[json.loads(message.body)["n"]] += 1
        queue.client.delete_message(QueueUrl=queue.url, ReceiptHandle=message.receipt)
    return len(found) >= number


def test_a_pipe_reads_the_queues_of_the_neighbour_and_survives_its_silence(
    lab: Lab, companion: Companion, line: Line
) -> None:
    source, target = Queue.create(lab, "source", visibility=2), Queue.create(lab, "target")
    client = pipe(lab, companion, source, target)
    found: Counter[int] = Counter()
    source.client.send_message(QueueUrl=source.url, MessageBody="what the filter does not take")
    send(source, range(50))
    until(lambda: arrived(target, found, 10))
    line.cut()
    send(source, range(50, 100))
    time.sleep(1.5)
    assert source.depth().total >= 50
    assert client.describe_pipe(Name="steps")["CurrentState"] == "RUNNING"
    with pytest.raises(client.exceptions.InternalException, match="does not answer"):
        client.create_pipe(Name="another", RoleArn=role(lab), Source=source.arn, Target=target.arn)
    assert [one["Name"] for one in client.list_pipes()["Pipes"]] == ["steps"]
    line.join()
    until(lambda: arrived(target, found, 100))
    until(lambda: source.depth().total == 0)
    assert set(found) == set(range(100))
    client.delete_pipe(Name="steps")
    until(lambda: not client.list_pipes()["Pipes"])
    send(source, range(1))
    time.sleep(1.5)
    assert source.depth().total == 1


def test_messages_survive_a_companion_that_is_killed(lab: Lab, companion: Companion) -> None:
    source, target = Queue.create(lab, "source", visibility=2), Queue.create(lab, "target")
    pipe(lab, companion, source, target)
    found: Counter[int] = Counter()
    send(source, range(200))
    until(lambda: arrived(target, found, 20))
    companion.process.kill()
    companion.process.wait(60)
    companion.start()
    assert companion.client(lab).list_pipes()["Pipes"] == []
    pipe(lab, companion, source, target)
    until(lambda: arrived(target, found, 200))
    until(lambda: source.depth().total == 0)
    assert set(found) == set(range(200))


def test_a_companion_that_ends_swallows_nothing(lab: Lab, companion: Companion) -> None:
    source, target = Queue.create(lab, "source", visibility=600), Queue.create(lab, "target")
    pipe(lab, companion, source, target)
    time.sleep(0.3)
    companion.end()
    send(source, range(1))
    [message] = source.receive(wait=5)
    assert message.receives == 1


def test_a_queue_that_the_neighbour_has_not(lab: Lab, companion: Companion) -> None:
    client = companion.client(lab)
    target = Queue.create(lab, "target")
    nowhere = target.arn.rsplit(":", 1)[0] + ":nowhere"
    client.create_pipe(Name="steps", RoleArn=role(lab), Source=nowhere, Target=target.arn)
    until(lambda: client.describe_pipe(Name="steps")["CurrentState"] == "CREATE_FAILED")
    assert "does not exist" in client.describe_pipe(Name="steps")["StateReason"]


def test_a_wrong_neighbour_is_a_sentence(tmp_path: Path) -> None:
    command = [str(places.interpreter("emulator")), "-m", "parity", "--port", "4999", "--beside", "example.com"]
    done = subprocess.run(
        [*command, "--home", str(tmp_path)],
        env={"PYTHONPATH": str(places.repository() / "infra" / "emulator")},
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "--beside: 'example.com' is no address" in done.stderr
