"""The broker as a Lambda function behind a queue: faults of the model, dead letters with their reason, nothing lost."""

from __future__ import annotations

import itertools
import json
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from labkit import Lab
from labkit.control.envelope import Envelope
from labkit.ops import triage
from labkit.routing.conversation import Conversation
from labkit.routing.faults import Call, Down, Fault, Latency
from labkit.routing.provider import Answer, Provider, Script, ToolCall
from labkit.state.idempotency import IdempotencyStore, Work
from labkit.work.capability_store import CapabilityStore
from labkit.work.dead_letters import LAST, ORIGINAL
from labkit.work.functions import Function
from labkit.work.mappings import visibility_for
from labkit.work.queues import Queue

from . import test_broker
from .test_broker import MODEL, record

TODAY = datetime.now(UTC).isoformat()
TWO_DAYS_AGO = (datetime.now(UTC) - timedelta(days=2)).isoformat()  # an event lives for one, unless told
TIMEOUT = 12  # seconds of the function: a call of the model may be waited for, though the machine stands still for some
MODEL_SECONDS = 4
AGENTS = ("coder", "researcher")


def event(n: int, says: str = "work", **fields: Any) -> dict[str, Any]:
    return test_broker.event(n, says, **{"issued_at": TODAY, **fields})


def says(asked: Conversation) -> Any:
    """Both agents, or a tool that nobody offered."""
    if "unhelpful" in asked.prompt:
        return ToolCall("poet", {}, invented=True)
    return Answer(calls=tuple(ToolCall(agent, {"task": "work"}) for agent in AGENTS))


@pytest.fixture
def provider() -> Iterator[Provider]:
    with Provider(Script(says)) as made:
        yield made


class Fleet:
    """Queue, function, agents' queues."""

    def __init__(
        self,
        lab: Lab,
        provider: Provider,
        *,
        visibility: int,
        receives: int = 3,
        batch: int = 1,
        timeout: int = TIMEOUT,
        model_seconds: int = MODEL_SECONDS,
    ) -> None:
        self.inbound = Queue.create(lab, "inbound", visibility=visibility, dlq=True, max_receives=receives)
        self.queues = {agent: Queue.create(lab, agent) for agent in AGENTS}
        kept = CapabilityStore.create(lab, "fleet")
        kept.deploy([record(agent, queue.url) for agent, queue in self.queues.items()])
        table = IdempotencyStore.create(lab, "decisions").table
        self.function = Function.deploy(
            lab,
            "agent-broker",
            env={
                "CAPABILITIES": kept.place,
                "DECISIONS_TABLE": table,
                "MODEL_ID": MODEL,
                "MODEL_SECONDS": str(model_seconds),
                "MODEL_TRIES": "2",
                "AWS_ENDPOINT_URL_BEDROCK_RUNTIME": provider.bedrock_url,
            },
            timeout=timeout,
        )
        # Four at once: each execution environment imports boto3, and here all of them share the processors.
        self.function.map_queue(self.inbound, batch_size=batch, concurrency=4)

    def settle(self, seconds: float) -> None:
        """Until nothing is left in the inbound queue."""
        end = time.monotonic() + seconds
        while self.inbound.depth().total:
            assert time.monotonic() < end, f"{self.inbound.depth()} after {seconds} s"
            time.sleep(0.1)

    def work(self) -> Counter[Work]:
        """What the consumers would claim, with the number of copies."""
        found: Counter[Work] = Counter()
        for agent, queue in self.queues.items():
            queue.consume(lambda message, agent=agent: found.update([Work.of(Envelope.parse(message.body), agent)]))  # type: ignore[misc]
        return found

    def lines(self) -> list[dict[str, Any]]:
        logged = [line for line in self.function.logs() if line.startswith("{")]
        return [found for line in logged if "broker" in (found := json.loads(line))]


class Every(Fault):
    """Every tenth call fails, by turns with 429 and with 500."""

    order = 6

    def __init__(self) -> None:
        self.calls = itertools.count(1)

    def meet(self, call: Call) -> None:
        if (number := next(self.calls)) % 10 == 0:
            Down("throttled" if number % 20 else "error").meet(call)


def test_a_hundred_events_with_a_tenth_of_the_calls_failing(lab: Lab, provider: Provider) -> None:
    fleet = Fleet(lab, provider, visibility=30, timeout=24, receives=10, batch=3)
    provider.switch("*", Every())
    fleet.inbound.send_batch([event(n) for n in range(100)])
    fleet.inbound.send_batch([event(n) for n in range(0, 100, 10)])  # and a tenth of them twice
    fleet.settle(240)
    work = fleet.work()
    assert provider.hits.by_model[MODEL] == {"ok": 100, "throttled": 6, "error": 5}
    assert set(work) == {Work.of(each, each.agent_class) for each in expected()}, "nothing is lost, nothing invented"
    assert work.total() == 200, "nothing is sent twice"
    assert fleet.inbound.dlq is not None
    assert fleet.inbound.dlq.depth().total == 0
    lines = fleet.lines()
    assert min(line["receives"] for line in lines) == 1
    said = Counter(line["broker"] for line in lines)
    assert said["dispatched"] == 100
    assert said["replayed"] >= 10  # and whatever the queue delivers twice by itself


def expected() -> list[Envelope]:
    from labkit.work.broker import Inbound

    found = [Inbound.of(event(n)) for n in range(100)]
    return [Envelope.parse(each.work_for(agent, {"task": "work"})) for each in found for agent in AGENTS]


def test_what_cannot_be_dispatched_is_in_the_dead_letter_queue_with_its_reason(lab: Lab, provider: Provider) -> None:
    fleet = Fleet(lab, provider, visibility=visibility_for(TIMEOUT), receives=1)
    fleet.inbound.send(event(1, says="unhelpful"))
    fleet.inbound.send("no event")
    fleet.inbound.send(event(2, issued_at=TWO_DAYS_AGO))
    fleet.inbound.send(event(3))
    fleet.settle(120)
    provider.switch("*", Down("overloaded"))
    mark = {"DataType": "String", "StringValue": "the first message"}  # as a redrive leaves it on what it sends back
    fleet.inbound.send(event(4), MessageAttributes={ORIGINAL: mark})
    fleet.settle(120)
    assert fleet.inbound.dlq is not None
    reasons = triage.survey(fleet.inbound.dlq).counts
    assert reasons == {"EventExpired": 1, "EventUnreadable": 1, "InvalidDecision": 1, "ModelUnavailable": 1}
    assert {each.trace_id for each in fleet.work()} == {"conv-8842-step-3"}
    [buried] = [each for each in fleet.inbound.dlq.receive() if "step-4" in each.body]
    assert buried.attributes["TRACE_ID"] == "conv-8842-step-4"
    assert buried.attributes[ORIGINAL] == "the first message"
    assert buried.attributes[LAST] not in ("the first message", buried.id)
    assert "ServiceUnavailableException" in str(buried.attributes["ERROR_MESSAGE"])
    assert json.loads(buried.body) == event(4)  # as it came, ready to be redriven


def test_a_model_that_hangs_does_not_outlast_the_function(lab: Lab, provider: Provider) -> None:
    fleet = Fleet(lab, provider, visibility=8, receives=5, timeout=8, model_seconds=1)
    with provider.switch("*", Latency(30.0), times=2):
        fleet.inbound.send(event(1))
        fleet.settle(90)
    assert len(fleet.work()) == 2
    assert not [line for line in fleet.function.logs(platform=True) if "Task timed out" in line]


def test_a_rule_may_call_it_too(lab: Lab, provider: Provider) -> None:
    fleet = Fleet(lab, provider, visibility=TIMEOUT)
    fleet.function.invoke(event(1), check=True)
    assert len(fleet.work()) == 2
    assert fleet.function.invoke("nothing").error == "EventUnreadable"
