"""``labkit triage``: what it says, what it does only when told, and how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from labkit import Lab, LabError
from labkit.cli import app
from labkit.ops.triage import TriageError
from labkit.ops.triage.command import Asked, account
from labkit.work.dead_letters import bury
from labkit.work.queues import Queue
from tests.unit.test_triage_looks import until


@pytest.fixture
def work(lab: Lab) -> Queue:
    return Queue.create(lab, "work", visibility=30, dlq=True, max_receives=2)


@pytest.fixture
def dead(work: Queue) -> Queue:
    work.send_batch({"trace_id": f"t-{n}", "task_token": "a-secret-token"} for n in range(6))
    while batch := work.receive():
        for message in batch:
            assert bury(
                work, message, ValueError("bad") if message.json()["trace_id"] < "t-2" else TimeoutError("slow")
            )
    assert work.dlq is not None
    return work.dlq


def run(*words: str) -> Any:
    return CliRunner().invoke(app, ["triage", *words, "--lab", "test"])


def test_a_look_says_what_there_is_and_what_to_do(dead: Queue) -> None:
    done = run("work-dlq", "--bodies")
    assert done.exit_code == 0, done.output
    lines = [line.strip() for line in done.stdout.splitlines()]
    assert lines[0] == "work-dlq: 6 letters (all that it holds)"
    assert lines[1] == "4  worker raised: TimeoutError, from work"
    assert "received 1 times at most" in lines[2]
    assert any(line.startswith("e.g. t-") and line.endswith(": slow") for line in lines)
    assert sum("Redrive: after the fix." in line for line in lines) == 2
    assert "a-secret-token" not in done.output
    assert (dead.depth().visible, dead.depth().in_flight) == (6, 0)


def test_one_class_and_a_sample(dead: Queue) -> None:
    done = run("work-dlq", "--class", "ValueError", "--sample", "6")
    assert done.exit_code == 0
    assert "ValueError" in done.stdout
    assert "TimeoutError" not in done.stdout


def test_for_programs(dead: Queue) -> None:
    done = run(dead.arn, "--json", "--redrive", "--class", "ValueError")
    said = json.loads(done.stdout)
    assert (said["letters"], said["complete"], said["unseen"]) == (6, True, 0)
    assert said["redrive"]["dry_run"] is True
    assert said["redrive"]["would_send"] == [
        {"destination": "work", "class": "worker raised", "letters": 2, "how": "send, then delete"}
    ]
    assert [group["reason"] for group in said["groups"]] == ["ValueError"]


def test_a_redrive_is_dry_unless_told_twice(dead: Queue, work: Queue) -> None:
    done = run("work-dlq", "--redrive")
    assert done.exit_code == 0
    assert "A redrive would send 6 letters:" in done.stdout
    assert done.stdout.rstrip().endswith("Nothing was sent: add --yes to do it.")
    assert (dead.depth().visible, work.depth().total) == (6, 0)


def test_a_redrive_to_a_queue_that_works(dead: Queue, work: Queue) -> None:
    end = threading.Event()
    done: list[str] = []

    def consume() -> None:
        while not end.is_set():
            work.consume(lambda message: done.append(message.json()["trace_id"]), wait=1)

    consumer = threading.Thread(target=consume)
    consumer.start()
    try:
        ran = run("work-dlq", "--redrive", "--yes", "--canary", "2", "--within", "60", "--json")
        assert ran.exit_code == 0, ran.output
        outcome = json.loads(ran.stdout)["redrive"]["outcome"]
        assert (outcome["done"], outcome["sent"], outcome["left"], outcome["doubles"]) == (True, 6, 0, [])
        assert outcome["lanes"][0]["steps"] == ["planned", "canary", "watch", "rest", "done"]
        until(lambda: len(done) == 6, "all are handled")
    finally:
        end.set()
        consumer.join(timeout=60)
    assert sorted(done) == [f"t-{n}" for n in range(6)]


def test_a_redrive_that_stops_is_a_fault(dead: Queue, work: Queue) -> None:
    ran = run("work-dlq", "--redrive", "--yes", "--canary", "1", "--within", "3")
    assert isinstance(ran.exception, LabError)
    assert "nobody consumes work: 1 messages wait" in str(ran.exception)
    assert (dead.depth().visible, work.depth().total) == (5, 1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nowhere"], "there is no queue 'nowhere'"),
        (["arn:aws:sns:us-east-1:000000000000:topic"], "no ARN of a queue"),
        (["work-dlq", "--yes"], "belong to --redrive"),
        (["work-dlq", "--to", "work"], "belong to --redrive"),
        (["work-dlq", "--redrive", "--sample", "5"], "leave --sample or --redrive out"),
        (["work"], "has a dead-letter queue of its own"),
        (["work-dlq", "--redrive", "--class", "nonsense"], "no letters of nonsense"),
        (["work-dlq", "--redrive", "--to", "nowhere"], "there is no queue 'nowhere'"),
        (["work-dlq", "--redrive", "--to", "arn:aws:sns:us-east-1:000000000000:t"], "by its ARN"),
        (["work-dlq", "--redrive", "--yes", "--rate", "501"], "1 to 500"),
    ],
)
def test_bad_words_are_a_sentence(dead: Queue, words: list[str], says: str) -> None:
    ran = run(*words)
    assert isinstance(ran.exception, LabError), ran.output
    assert says in str(ran.exception)
    assert (dead.depth().visible, dead.depth().in_flight) == (6, 0)


def start(lab: Lab, *words: str) -> subprocess.Popen[str]:
    environment = {**os.environ, **lab.target.environment(lab.account)}
    return subprocess.Popen(
        [sys.executable, "-m", "labkit.cli", "triage", *words],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def test_by_url_without_a_lab_in_the_accounts_own_environment(lab: Lab, dead: Queue) -> None:
    process = start(lab, dead.url, "--json")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, "")
    assert json.loads(out)["letters"] == 6


def test_a_fault_is_one_line_and_exit_code_1(lab: Lab) -> None:
    process = start(lab, "nowhere")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (1, "")
    assert err == "labkit: there is no queue 'nowhere' in this account and Region.\n"


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_told_to_end_it_gives_back_what_it_holds(lab: Lab, dead: Queue, work: Queue, how: signal.Signals) -> None:
    """Nobody consumes: the command watches its canary, and holds the others."""
    process = start(lab, dead.url, "--redrive", "--yes", "--canary", "1", "--within", "300")
    held: Callable[[], bool] = lambda: work.depth().total == 1 and dead.depth().in_flight == 5  # noqa: E731
    until(held, "the canary is out, and the others are held")
    dead.send("another", MessageAttributes={"ERROR_CODE": {"DataType": "String", "StringValue": "Other"}})
    until(lambda: dead.depth().in_flight == 6, "the watch has begun, which hides what comes: the canary is counted")
    process.send_signal(how)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert "interrupted after 1 letter; what was in hand is in work-dlq again" in err
    assert (dead.depth().visible, dead.depth().in_flight) == (6, 0)


def test_a_url_of_another_host_says_where_to_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_SQS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "000000000000")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "lab")
    local = account(None, "http://127.0.0.1:4599/000000000000/dead")
    assert local.client("sqs").meta.endpoint_url == "http://127.0.0.1:4599"
    assert not local.approximate
    assert account(None, "https://sqs.us-east-1.amazonaws.com/000000000000/dead").approximate
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(LabError, match=r"^no client for sqs from the environment: You must specify a region"):
        account(None, "dead").client("sqs")


def test_what_the_words_mean_is_checked_before_anything_is_asked() -> None:
    with pytest.raises(TriageError, match="nothing is sent without it"):
        Asked("dead", yes=True)
