"""One step, written with Strands and with LangGraph: the same envelope, worker, store and result."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

pytest.importorskip("strands")
pytest.importorskip("langgraph")

from strands import Agent
from strands.models import BedrockModel
from strands.types.exceptions import ModelThrottledException

from infra.agents import langgraph_step, strands_step, worker
from labkit import Lab
from labkit.control.envelope import Envelope
from labkit.facts import fact, facts
from labkit.routing.provider import Answer, Provider, Script, Throttle, ToolCall, contains
from labkit.state.checkpoints import Checkpoints
from labkit.state.idempotency import IdempotencyStore, Work
from labkit.work.processes import Processes
from labkit.work.queues import Queue
from labkit.work.worker import Poison

KEYS = ("sqs.visibility.max", "sqs.long_poll.max", "sqs.receive.max")
KINDS = ("strands", "langgraph")
SOON = {"VISIBILITY": "6"}  # seconds, after which comes back what a kill has left
STRANGE = {
    "another tool": ToolCall("delete_all", {"key": KEYS[0]}, invented=True),
    "no text": ToolCall("look_up", {"key": 42}),
    "no key": ToolCall("look_up", {"name": KEYS[0]}),
}


def script() -> Script:
    asked = Script()
    for key in KEYS:
        asked.on(contains(key), [ToolCall("look_up", {"key": key}), lambda asked: f"It is {asked.result}."])
    asked.on(contains("nonsense"), [ToolCall("look_up", {"key": "no.such"}), lambda asked: f"Sorry: {asked.result}"])
    for name, call in STRANGE.items():
        asked.on(contains(name), [call, lambda asked: f"Sorry: {asked.result}"])
    asked.on(contains("blank"), Answer(" "))
    return asked.on(contains("endless"), lambda asked: ToolCall("look_up", {"key": KEYS[0]}))


@pytest.fixture
def provider(lab: Lab) -> Provider:
    return Provider(script(), lab=lab)


@pytest.fixture
def queue(lab: Lab) -> Queue:
    return Queue.create(lab, "agents", visibility=30, dlq=True, max_receives=20)


@pytest.fixture
def store(lab: Lab) -> IdempotencyStore:
    return IdempotencyStore.create(lab, "steps")


@pytest.fixture
def environment(
    lab: Lab, provider: Provider, queue: Queue, store: IdempotencyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, str]:
    variables = {
        **lab.target.environment(lab.account),
        "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": provider.bedrock_url,
        "QUEUE_URL": queue.url,
        "STEPS_TABLE": store.table,
        "AGENT_MODEL": "primary",
        "STEP_LOG": str(tmp_path / "log"),
        "VISIBILITY": "30",  # a machine that stands still for a moment loses no message
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)  # it would keep the account of the test before
    return variables


@pytest.fixture(autouse=True)
def _clients_anew() -> Iterator[None]:
    yield
    strands_step.model.cache_clear()
    langgraph_step.bedrock.cache_clear()


def about(key: str, number: int = 0) -> Envelope:
    name, asked = f"{key.replace(' ', '-')}-{number}", {"question": f"What is {key}?"}
    return Envelope.new(conversation_id=name, step=1, agent_class="researcher", payload=asked)


class Told:
    """As much of a task as a step sees."""

    attempt = 1

    def __init__(self, envelope: Envelope) -> None:
        self.body, self.trace_id = envelope, envelope.trace_id

    def check(self) -> None:
        pass


def step_of(kind: str) -> Any:
    return {"strands": strands_step, "langgraph": langgraph_step}[kind].step


def log(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (path / "log").read_text().splitlines()] if (path / "log").exists() else []


def result(store: IdempotencyStore, envelope: Envelope) -> Any:
    record = store.look(Work.of(envelope, "agent"))
    assert record is not None, f"{envelope.trace_id} is lost"
    assert record.done, f"{envelope.trace_id} is lost after {record.attempt} attempts"
    return json.loads(record.result)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_envelope_gives_the_same_result(
    kind: str, environment: dict[str, str], queue: Queue, store: IdempotencyStore, provider: Provider, capfd: Any
) -> None:
    envelopes = [about(key) for key in KEYS]
    queue.send_batch([envelope.detail() for envelope in envelopes])
    assert getattr(worker, kind)().run(until_empty=True) == {"done": 3}
    for envelope, key in zip(envelopes, KEYS, strict=True):
        assert result(store, envelope) == {"answer": f"It is {fact(key)}.", "looked_up": [key], "turns": 2}
    assert provider.hits.by_model == {"primary": {"ok": 6}}
    assert capfd.readouterr() == ("", ""), "an agent in a fleet says nothing"


@pytest.mark.parametrize("kind", KINDS)
def test_a_tool_that_fails_is_told_to_the_model(
    kind: str, environment: dict[str, str], queue: Queue, store: IdempotencyStore
) -> None:
    envelope = about("nonsense")
    queue.send(envelope.detail())
    assert getattr(worker, kind)().run(until_empty=True) == {"done": 1}
    found = result(store, envelope)
    assert found["answer"].startswith("Sorry: Error: UnknownFact - There is no fact")
    assert (found["looked_up"], found["turns"]) == (["no.such"], 2)


@pytest.mark.parametrize("what", STRANGE)
@pytest.mark.parametrize("kind", KINDS)
def test_what_the_schema_does_not_offer_is_not_done(
    kind: str, what: str, environment: dict[str, str], provider: Provider, tmp_path: Path
) -> None:
    found = step_of(kind)(Told(about(what)))
    assert found["answer"].startswith("Sorry: ")
    assert (found["looked_up"], found["turns"], log(tmp_path)) == ([], 2, [])
    assert provider.hits.total == 2


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_that_says_nothing_is_none(kind: str, environment: dict[str, str]) -> None:
    with pytest.raises(RuntimeError, match="stopped without an answer: it is empty"):
        step_of(kind)(Told(about("blank")))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("payload", [{}, {"question": " "}, {"question": ["two"]}])
def test_who_asks_nothing_is_poison(
    kind: str, payload: dict[str, Any], environment: dict[str, str], provider: Provider
) -> None:
    envelope = Envelope.new(conversation_id="silent", step=1, agent_class="researcher", payload=payload)
    with pytest.raises(Poison, match=r"needs payload\.question"):
        step_of(kind)(Told(envelope))
    assert provider.hits.total == 0


@pytest.mark.parametrize("kind", KINDS)
def test_trying_again_is_the_queues_affair(
    kind: str, environment: dict[str, str], queue: Queue, store: IdempotencyStore, provider: Provider, capfd: Any
) -> None:
    envelope = about(KEYS[0])
    queue.send(envelope.detail())
    with provider.switch("primary", Throttle(), times=1):
        counts = getattr(worker, kind)().run(until_empty=True)
    assert counts == {"failed": 1, "done": 1}
    assert provider.hits.total == 3, "one that was refused, and nobody in between who tried again"
    assert result(store, envelope)["turns"] == 2
    assert capfd.readouterr() == ("", "")


def test_layers_that_all_try_multiply(
    environment: dict[str, str], provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[float] = []
    sleep = asyncio.sleep

    async def no_sleep(seconds: float) -> None:
        waited.append(seconds)
        await sleep(0)

    monkeypatch.setattr("botocore.endpoint.time.sleep", lambda seconds: None)
    monkeypatch.setattr("strands.event_loop._retry.asyncio.sleep", no_sleep)
    agent = Agent(model=BedrockModel(model_id="primary"), callback_handler=None)
    with provider.switch("primary", Throttle()), pytest.raises(ModelThrottledException):
        agent("What is sqs.visibility.max?")
    assert provider.hits.total == 6 * int(facts("boto3.attempts.default"))
    assert sum(seconds for seconds in waited if seconds >= 4) == 4 + 8 + 16 + 32 + 64


@pytest.mark.parametrize("kind", KINDS)
def test_a_message_that_is_lost_costs_no_further_call(
    kind: str, environment: dict[str, str], provider: Provider
) -> None:
    class Lost(Exception):
        pass

    class Taken(Told):
        """Its message is another worker's after its first call."""

        checks = 0

        def check(self) -> None:
            self.checks += 1
            if self.checks > 1:
                raise Lost

    with pytest.raises(Lost):
        step_of(kind)(Taken(about(KEYS[0])))
    assert provider.hits.total == 1


@pytest.mark.parametrize("kind", KINDS)
def test_an_agent_that_never_stops_is_stopped(
    kind: str, environment: dict[str, str], queue: Queue, provider: Provider
) -> None:
    queue.send(about("endless").detail())
    running = getattr(worker, kind)()
    running.on_event = lambda event: running.stop()
    counts = running.run(seconds=60)
    assert counts["failed"] >= 1
    assert provider.hits.total <= 6 * (counts["failed"] + counts["released"] + 1)
    assert counts["done"] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_a_worker_that_is_killed_loses_nothing_and_records_nothing_twice(
    kind: str, environment: dict[str, str], queue: Queue, store: IdempotencyStore, tmp_path: Path
) -> None:
    envelopes = [about(KEYS[number % 3], number) for number in range(12)]
    queue.send_batch([envelope.detail() for envelope in envelopes])
    queue.send_batch([envelope.detail() for envelope in envelopes[:4]])  # and producers repeat themselves
    slow = {**environment, **SOON, "TOOL_SECONDS": "1.5"}  # what is at work stays so until it is killed
    with Processes(f"infra.agents.worker:{kind}", 1, environment=slow) as fleet:
        killed, end = False, time.monotonic() + 90
        while queue.depth().total:
            assert time.monotonic() < end, f"{queue.depth()} left"
            fleet.look()
            if not killed and len(log(tmp_path)) >= 5:  # four are at work: the second round has begun
                os.kill(fleet.pids[0], signal.SIGKILL)
                killed = True
            time.sleep(0.02)
    assert (killed, fleet.restarted) == (True, 1)
    for number, envelope in enumerate(envelopes):
        key = KEYS[number % 3]
        assert result(store, envelope) == {"answer": f"It is {fact(key)}.", "looked_up": [key], "turns": 2}
    lines = log(tmp_path)
    assert {line["trace_id"] for line in lines} == {envelope.trace_id for envelope in envelopes}
    assert max(line["attempt"] for line in lines) == 2, "the kill hit a step"
    assert queue.dlq is not None
    assert queue.dlq.depth().total == 0


def test_with_checkpoints_the_one_who_takes_over_asks_nothing_again(
    lab: Lab, environment: dict[str, str], queue: Queue, store: IdempotencyStore, provider: Provider, tmp_path: Path
) -> None:
    envelope = about(KEYS[0])
    checkpoints = Checkpoints.open(lab)
    queue.send(envelope.detail())
    settings = {**environment, **SOON, "CHECKPOINTS_URL": checkpoints.url, "TOOL_SECONDS": "600"}
    with Processes("infra.agents.worker:langgraph", 1, environment=settings, grace=0) as fleet:
        end = time.monotonic() + 60
        while not log(tmp_path):
            assert time.monotonic() < end
            time.sleep(0.02)
        os.kill(fleet.pids[0], signal.SIGKILL)
    assert checkpoints.history(envelope.trace_id)[-1].left == ("call",)
    assert provider.hits.total == 1
    os.environ["CHECKPOINTS_URL"] = checkpoints.url
    try:
        assert worker.langgraph().run(until_empty=True)["done"] == 1
    finally:
        del os.environ["CHECKPOINTS_URL"]
    assert result(store, envelope)["turns"] == 2
    assert provider.hits.total == 2, "the second question alone: the first had its answer"


@pytest.fixture
def kept(lab: Lab, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Checkpoints:
    checkpoints = Checkpoints.open(lab)
    monkeypatch.setenv("CHECKPOINTS_URL", checkpoints.url)
    return checkpoints


def test_a_thread_that_has_ended_is_not_run_again_where_its_result_was_not_recorded(
    kept: Checkpoints, provider: Provider
) -> None:
    task = Told(about(KEYS[0]))
    first = langgraph_step.step(task)  # type: ignore[arg-type]
    assert langgraph_step.step(task) == first  # type: ignore[arg-type]
    assert provider.hits.total == 2


def test_turns_are_counted_in_the_thread(kept: Checkpoints, provider: Provider) -> None:
    task = Told(about("endless"))
    for _ in range(3):
        with pytest.raises(RuntimeError, match="6 turns were not enough"):
            langgraph_step.step(task)  # type: ignore[arg-type]
    assert provider.hits.total == 6, "not 6 for each delivery"


@pytest.mark.parametrize("kind", KINDS)
def test_no_name_is_looked_up(kind: str, environment: dict[str, str], queue: Queue) -> None:
    queue.send(about(KEYS[0]).detail())
    program = (
        "import socket\n"
        "real, asked = socket.getaddrinfo, []\n"
        "def getaddrinfo(host, *rest, **more):\n"
        "    asked.append(str(host))\n"
        "    return real(host, *rest, **more)\n"
        "socket.getaddrinfo = getaddrinfo\n"
        f"from infra.agents.worker import {kind}\n"
        f"print(dict({kind}().run(until_empty=True)), sorted(set(asked)))\n"
    )
    # As somebody's shell may have it: it is not to be followed.
    tracing = {"LANGSMITH_TRACING": "true", "LANGSMITH_API_KEY": "none", "LANGCHAIN_TRACING_V2": "true"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=110, env={**os.environ, **tracing}
    )
    assert (done.stdout, done.stderr) == ("{'done': 1} ['127.0.0.1']\n", "")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_lacking_is_said(kind: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AGENT_MODEL")
    with pytest.raises(worker.WorkerError, match="AGENT_MODEL"):
        getattr(worker, kind)()
    monkeypatch.setenv("AGENT_MODEL", "primary")
    monkeypatch.delenv("QUEUE_URL")
    with pytest.raises(worker.WorkerError, match="QUEUE_URL"):
        getattr(worker, kind)()
