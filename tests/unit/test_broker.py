"""The broker on a real table, real queues and AppConfig: what it reads, decides, sends, and what a kill leaves."""

from __future__ import annotations

import copy
import itertools
import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labkit import Lab
from labkit.control.envelope import Envelope
from labkit.models.retry import Fixed
from labkit.models.windows import Window
from labkit.routing.faults import Down, Throttle
from labkit.routing.provider import Answer, Provider, Script, ToolCall, contains
from labkit.state.idempotency import Busy, Fenced, IdempotencyStore, PayloadMismatch, Work
from labkit.work.broker import HOPELESS, Broker, EventExpired, EventUnreadable, Inbound
from labkit.work.capability_store import CapabilityStore
from labkit.work.decisions import Decider, InvalidDecision, ModelUnavailable
from labkit.work.entries import BatchError
from labkit.work.queues import Queue
from tests.clock import Clock

MODEL = "anthropic.claude-lab-v1:0"
SCHEMA = {"type": "object", "properties": {"task": {"type": "string", "minLength": 1}}, "required": ["task"]}
LEASE = 30.0
NOW = Clock().now
ISSUED = f"{datetime.fromtimestamp(NOW - 278, UTC):%Y-%m-%dT%H:%M:%SZ}"
BOTH = Answer(calls=(ToolCall("researcher", {"task": "read"}), ToolCall("coder", {"task": "write"})))
ANSWERS = itertools.count()


def fickle(asked: Any) -> Answer:
    """Another decision each time that it is asked, as models are."""
    task = {"task": f"answer {next(ANSWERS)}"}
    return Answer(calls=(ToolCall("researcher", task), ToolCall("coder", task)))


SCRIPT = (
    Script()
    .on(contains('"says": "fickle"'), fickle)
    .on(contains('"says": "both"'), BOTH)
    .on(contains('"says": "research"'), ToolCall("researcher", {"task": "read"}))
    .on(contains('"says": "invented"'), ToolCall("poet", {"task": "rhyme"}, invented=True))
)


class Killed(BaseException):
    """The process ends here: nothing catches it."""


def event(n: int = 1, says: str = "both", **fields: Any) -> dict[str, Any]:
    detail = {
        "schema_version": "1.0",
        "trace_id": f"conv-8842-step-{n}",
        "conversation_id": "8842",
        "step": n,
        "agent_class": "coordinator",
        "issued_at": ISSUED,
        "payload": {"says": says},
        **fields,
    }
    return {"detail-type": "agent.step.requested", "source": "fleet.coordinator", "detail": detail}


def record(agent: str, url: str) -> dict[str, Any]:
    return {"agent": agent, "description": f"The {agent}.", "queue_url": url, "input_schema": SCHEMA}


@dataclass
class Bench:
    """A broker and everything around it."""

    provider: Provider
    broker: Broker
    queues: dict[str, Queue]
    capabilities: CapabilityStore
    store: IdempotencyStore
    clock: Clock

    def got(self, agent: str) -> list[Envelope]:
        """What is in the agent's queue, taken out."""
        found: list[Envelope] = []
        self.queues[agent].consume(lambda message: found.append(Envelope.parse(message.body)))
        return found


@pytest.fixture
def bench(lab: Lab) -> Iterator[Bench]:
    queues = {agent: Queue.create(lab, agent) for agent in ("researcher", "coder")}
    kept = CapabilityStore.create(lab, "fleet")
    kept.deploy([record(agent, queue.url) for agent, queue in queues.items()])
    clock = Clock()
    store = IdempotencyStore.create(
        lab, "decisions", lease=LEASE, window=1e6, covers=Window(event_age=0, retention=1), clock=clock
    )
    with Provider(SCRIPT) as provider:
        client = provider.bedrock()
        decider = Decider(client, MODEL, wait=Fixed(0.0))
        broker = Broker(decider, kept.reader(lab), store, lab.client("sqs"), clock=lambda: NOW)
        yield Bench(provider, broker, queues, kept, store, clock)
        client.close()


# -- an event ----------------------------------------------------------------------------------------------------------


def test_every_agent_that_the_model_names_finds_work_in_its_queue(bench: Bench) -> None:
    done = bench.broker.dispatch(event())
    assert (done.trace_id, done.agents, done.replayed) == ("conv-8842-step-1", ("coder", "researcher"), False)
    [work] = bench.got("researcher")
    assert (work.trace_id, work.step, work.agent_class, work.conversation_id) == (
        done.trace_id,
        2,
        "researcher",
        "8842",
    )
    assert work.payload == {"input": {"task": "read"}, "event": {"says": "both"}}
    assert work.issued_at == datetime.fromisoformat(ISSUED)  # so that passing it on makes no event live longer
    assert [each.payload for each in bench.got("coder")] == [{"input": {"task": "write"}, "event": {"says": "both"}}]


def test_the_model_sees_one_tool_for_each_record_and_must_call_one(bench: Bench) -> None:
    seen: list[Any] = []
    bench.provider.script.on(contains("look"), lambda asked: seen.append(asked) or ToolCall("coder", {"task": "t"}))
    bench.broker.dispatch(event(says="look", task_token="the-secret-token"))
    [asked] = seen
    assert [(tool.name, tool.description, tool.schema) for tool in asked.tools] == [
        ("researcher", "The researcher.", SCHEMA),
        ("coder", "The coder.", SCHEMA),
    ]
    assert asked.choice == "any"
    assert "agent.step.requested" in asked.prompt
    assert "the-secret-token" not in asked.prompt
    assert "the-secret-token" not in json.dumps([each.model_dump(mode="json") for each in bench.got("coder")])


def test_a_new_agent_is_a_queue_and_a_record(lab: Lab, bench: Bench) -> None:
    clock = iter([0.0, 0.0, 0.0, 61.0, 61.0, 61.0, 61.0])
    bench.broker.capabilities = bench.capabilities.reader(lab, clock=lambda: next(clock))
    bench.broker.dispatch(event(1, "research"))
    bench.queues["poet"] = Queue.create(lab, "poet")
    bench.capabilities.deploy([record(agent, queue.url) for agent, queue in bench.queues.items()])
    assert bench.broker.dispatch(event(2, "invented")).agents == ("poet",)  # a minute later: no code, no restart
    assert len(bench.got("poet")) == 1


def test_a_claim_check_stays_one(bench: Bench) -> None:
    ref = {"type": "s3", "bucket": "fleet-both", "key": "k", "size": 9, "sha256": "0" * 64}
    bench.provider.script.on(contains("in S3, 9 bytes"), ToolCall("researcher", {"task": "read"}))
    found = event(payload_ref=ref)
    del found["detail"]["payload"]
    bench.broker.dispatch(found)
    assert [each.payload for each in bench.got("researcher")] == [{"input": {"task": "read"}, "event_ref": ref}]


# -- once in effect ----------------------------------------------------------------------------------------------------


def test_an_event_that_comes_again_is_neither_decided_nor_sent_again(bench: Bench) -> None:
    first = bench.broker.dispatch(event())
    again = bench.broker.dispatch(json.dumps(event()))
    assert (again.agents, again.replayed) == (first.agents, True)
    assert bench.provider.hits.total == 1
    assert [len(bench.got(agent)) for agent in bench.queues] == [1, 1]


def test_another_payload_under_the_same_trace_id_is_refused(bench: Bench) -> None:
    bench.broker.dispatch(event())
    with pytest.raises(PayloadMismatch):
        bench.broker.dispatch(event(says="research"))
    assert issubclass(PayloadMismatch, HOPELESS)


class Process:
    """One life of a broker: it ends at its ``dies_at``-th call of a service, before or after the service has heard it.

    As after ``kill -9``, nothing follows: no claim is released, no message is given back.
    """

    def __init__(self, bench: Bench, dies_at: int = 0, after: bool = False) -> None:
        self.calls, self.dies_at, self.after = 0, dies_at, after
        store = copy.copy(bench.store)
        store.client = Client(self, bench.store.client)
        decider = Decider(Client(self, bench.broker.decider._client), MODEL, tries=1)
        sqs = Client(self, bench.broker._sqs)
        self.broker = Broker(decider, bench.broker.capabilities, store, sqs, clock=lambda: NOW)

    def call(self, operation: Callable[..., Any], arguments: dict[str, Any]) -> Any:
        self.calls += 1
        dies = 0 < self.dies_at <= self.calls
        if dies and (self.calls > self.dies_at or not self.after):
            raise Killed
        answer = operation(**arguments)
        if dies:
            raise Killed
        return answer


class Client:
    def __init__(self, process: Process, real: Any) -> None:
        self.process, self.real, self.meta = process, real, real.meta

    def __getattr__(self, operation: str) -> Any:
        return lambda **arguments: self.process.call(getattr(self.real, operation), arguments)


CALLS = 9  # claim, ask, record; claim, and for each of two queues look and send; record
RUNS = itertools.count(1)


def lives(bench: Bench, found: dict[str, Any], kills: list[tuple[int, bool]], duplicates: int = 0) -> int:
    """Deliver an event through these kills, until it succeeds, and some times more. How often was the model asked?"""
    asked = bench.provider.hits.total
    for dies_at, after in kills:
        with suppress(Killed):
            Process(bench, dies_at, after).broker.dispatch(found)
        bench.clock.now += LEASE + 1  # the message comes back when the dead one's lease is over
    for _ in range(1 + duplicates):
        assert Process(bench).broker.dispatch(found).agents == ("coder", "researcher")
    return bench.provider.hits.total - asked


def once_in_effect(bench: Bench, kills: int) -> None:
    inputs = set()
    for agent in bench.queues:
        copies = bench.got(agent)
        assert 1 <= len(copies) <= 1 + kills, "nothing is lost"
        assert len({each.detail() for each in copies}) == 1, "copies are the same text"
        assert len({Work.of(each, agent) for each in copies}) == 1, "and the same work to whoever claims it"
        inputs.add(copies[0].payload["input"]["task"])  # type: ignore[index]
    assert len(inputs) == 1, "all of it is of one decision, although the model decides differently each time"


def test_a_dispatch_makes_so_many_calls(bench: Bench) -> None:
    process = Process(bench)
    process.broker.dispatch(event(next(RUNS), "fickle"))
    assert process.calls == CALLS


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("dies_at", range(1, CALLS + 1))
def test_killed_at_any_call(bench: Bench, dies_at: int, after: bool) -> None:
    asked = lives(bench, event(next(RUNS), "fickle"), [(dies_at, after)])
    recorded = (dies_at, after) >= (3, True)
    heard = (dies_at, after) >= (2, True)
    assert asked == (1 if recorded or not heard else 2), "a decision that was recorded is not made again"
    once_in_effect(bench, 1)


@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
@given(kills=st.lists(st.tuples(st.integers(1, CALLS), st.booleans()), max_size=4), duplicates=st.integers(0, 2))
def test_no_series_of_kills_loses_or_doubles_work(bench: Bench, kills: list[tuple[int, bool]], duplicates: int) -> None:
    lives(bench, event(next(RUNS), "fickle"), kills, duplicates)
    once_in_effect(bench, len(kills))


def test_while_a_dead_brokers_lease_holds_the_event_waits(bench: Bench) -> None:
    with pytest.raises(Killed):
        Process(bench, 3).broker.dispatch(event())
    with pytest.raises(Busy, match="conv-8842-step-1 for broker is being done by another worker"):
        bench.broker.dispatch(event())


def test_a_slow_broker_whose_event_was_taken_over_sends_nothing(bench: Bench) -> None:
    """Two at one event: the slow one has its answer when the other has recorded, sent and gone."""

    def slow(asked: Any) -> Any:
        bench.provider.script = SCRIPT
        bench.clock.now += LEASE + 1
        Process(bench).broker.dispatch(event())
        return BOTH

    bench.provider.script = Script(slow)
    with pytest.raises(Fenced):
        bench.broker.dispatch(event())
    assert [len(bench.got(agent)) for agent in bench.queues] == [1, 1]


def test_a_decision_is_finished_without_model_and_capabilities(bench: Bench) -> None:
    with pytest.raises(Killed):
        Process(bench, 6).broker.dispatch(event())
    bench.clock.now += LEASE + 1
    bench.broker.capabilities = None  # type: ignore[assignment]
    with bench.provider.switch("*", Down()):
        assert bench.broker.dispatch(event()).agents == ("coder", "researcher")


def test_an_entry_that_sqs_refuses_is_an_error_and_sent_next_time(bench: Bench) -> None:
    class Refuses:
        def __init__(self, client: Any) -> None:
            self.client = client

        def __getattr__(self, name: str) -> Any:
            return getattr(self.client, name)

        def send_message_batch(self, **arguments: Any) -> Any:
            failed = [{"Id": each["Id"], "SenderFault": True, "Code": "AccessDenied"} for each in arguments["Entries"]]
            return {"Failed": failed}  # and HTTP says 200

    sqs = bench.broker._sqs
    bench.broker._sqs = Refuses(sqs)
    with pytest.raises(BatchError, match="1 of 1 messages were not sent to coder: entry 0: AccessDenied"):
        bench.broker.dispatch(event())
    bench.broker._sqs, bench.broker._queues = sqs, {}
    bench.broker.dispatch(event())
    assert [len(bench.got(agent)) for agent in bench.queues] == [1, 1]


def test_a_character_that_sqs_does_not_take_is_sent_as_json_spells_it(bench: Bench) -> None:
    bench.broker.dispatch(event(payload={"says": "both", "odd": "\ufffe\uffff"}))
    [sent] = bench.got("coder")
    assert sent.payload is not None
    assert sent.payload["event"]["odd"] == "\ufffe\uffff"


# -- what is refused ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda e: "no json", "this is no JSON"),
        (lambda e: [1], "this is list"),
        (lambda e: {**e, "detail": "x"}, "an envelope is a JSON object; this is str"),
        (lambda e: e["detail"].pop("trace_id") and e, "field trace_id is None"),
        (lambda e: e["detail"].update(trace_id="a b") or e, "field trace_id is 'a b'"),
        (lambda e: e["detail"].update(step=-1) or e, "field step is -1"),
        (lambda e: e["detail"].update(step=True) or e, "field step is True"),
        (lambda e: e["detail"].update(agent_class="Poet") or e, "field agent_class is 'Poet'"),
        (lambda e: e["detail"].update(schema_version="2.0") or e, "field schema_version is '2.0'"),
        (lambda e: e["detail"].update(issued_at="2026-11-11T09:15:22") or e, "must say its time zone"),
        (lambda e: e["detail"].update(issued_at="yesterday") or e, "field issued_at is 'yesterday'"),
        (lambda e: e["detail"].update(ttl_seconds=0) or e, "field ttl_seconds is 0"),
        (lambda e: e["detail"].pop("payload") and e, "either payload or payload_ref"),
        (lambda e: e["detail"].update(payload_ref={"size": 1}) or e, "not both"),
        (lambda e: e["detail"].update(payload={"n": float("nan")}) or e, "the payload is not what JSON can hold"),
        (lambda e: e["detail"].update(payload={"half": "\ud83d"}) or json.dumps(e), "not what JSON can hold"),
    ],
)
def test_an_event_that_cannot_be_read_says_why(change: Callable[[Any], Any], says: str) -> None:
    with pytest.raises(EventUnreadable, match=says):
        Inbound.of(change(event()))
    assert issubclass(EventUnreadable, HOPELESS)


def test_an_expired_event_costs_no_call(bench: Bench) -> None:
    with pytest.raises(EventExpired, match=r"conv-8842-step-1 expired 218 s ago: ttl_seconds is 60"):
        bench.broker.dispatch(event(ttl_seconds=60))
    assert bench.provider.hits.total == 0


def test_a_failed_decision_leaves_the_event_as_it_was(bench: Bench) -> None:
    with pytest.raises(InvalidDecision, match=r"asked 3 times, the last time: it calls 'poet', and there are"):
        bench.broker.dispatch(event(says="invented"))
    with bench.provider.switch("*", Throttle()), pytest.raises(ModelUnavailable, match="ThrottlingException"):
        bench.broker.dispatch(event(2))
    assert [bench.got(agent) for agent in bench.queues] == [[], []]
    assert bench.broker.dispatch(event(2)).agents == ("coder", "researcher")  # at once: the claim was released


TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)


@settings(max_examples=60, deadline=None)
@given(
    payload=st.dictionaries(TEXTS, TEXTS | st.integers() | st.none(), max_size=3),
    step=st.integers(0, 10**6),
    trace=st.from_regex(r"[\w.:-]{1,128}", fullmatch=True) | st.from_regex(r"[a-zäñ\d.:-]{1,128}", fullmatch=True),
    given_=st.dictionaries(TEXTS, TEXTS, max_size=2),
)
def test_whatever_is_sent_is_an_envelope(payload: Any, step: int, trace: str, given_: Any) -> None:
    try:
        found = Inbound.of(event(payload=payload, step=step, trace_id=trace))
    except EventUnreadable:  # a character that is a word's to Python, and not to the library that reads envelopes
        assert not trace.isascii()
        return
    sent = Envelope.parse(found.work_for("researcher", given_))
    assert (sent.trace_id, sent.step, sent.payload) == (trace, step + 1, {"input": given_, "event": payload})
    assert Work.of(sent, "researcher") == Work.of(json.loads(found.work_for("researcher", given_)), "researcher")
