"""The supervisor on a real table: answers in any order, twice, late, after a crash; one fan-in, one advance."""

from __future__ import annotations

import itertools
import json
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from labkit import Lab
from labkit.control.bus import Bus, PublishError
from labkit.control.envelope import Envelope, EnvelopeError
from labkit.ops import triage
from labkit.routing.provider import Answer, Provider, Script, ToolCall
from labkit.work.arbiter import FINISH, arbiter
from labkit.work.capabilities import Capability
from labkit.work.decisions import Decider, InvalidDecision
from labkit.work.queues import Queue
from labkit.work.supervisor import Supervisor, SupervisorError, UnknownWorkflow
from labkit.work.worker import Task, Worker
from labkit.work.workflow_state import COMPLETED, FAILED_STEP, MOST_BYTES, Workflow, answer, failure, in_stages
from tests.clock import Clock

PLAN = in_stages(["researcher", "coder"], ["writer"])
GIVEN = {"topic": "tea"}


class Killed(BaseException):
    """The process ends here: nothing catches it."""


@dataclass
class Events:
    """A client of EventBridge that keeps what it was given, and refuses or dies when told."""

    said: list[tuple[str, Envelope]] = field(default_factory=list)
    refuses: set[str] = field(default_factory=set)  # trace ids, for good
    dies: str = ""  # "before" or "after" the next call

    def put_events(self, Entries: list[dict[str, Any]]) -> dict[str, Any]:
        dies, self.dies = self.dies, ""
        if dies == "before":
            raise Killed
        answers: list[dict[str, str]] = []
        for entry in Entries:
            envelope = Envelope.parse(entry["Detail"])
            if envelope.trace_id in self.refuses:
                answers.append({"ErrorCode": "NotAuthorizedForDetailTypeException", "ErrorMessage": "no"})
            else:
                self.said.append((entry["DetailType"], envelope))
                answers.append({"EventId": uuid.uuid4().hex})
        if dies == "after":
            raise Killed
        return {"FailedEntryCount": sum("ErrorCode" in each for each in answers), "Entries": answers}

    def asked(self, agent: str) -> Envelope:
        """The newest request of this agent's step."""
        return next(e for kind, e in reversed(self.said) if kind == "agent.step.requested" and e.agent_class == agent)

    def kinds(self) -> Counter[str]:
        """How many different events of each type were published."""
        return Counter(kind for kind, _ in {(kind, envelope.trace_id) for kind, envelope in self.said})


@dataclass
class Dying:
    """A client of DynamoDB whose process ends at its ``dies_at``-th call, before or after the table has heard it."""

    real: Any
    dies_at: int
    after: bool
    calls: int = 0

    def __getattr__(self, operation: str) -> Any:
        if operation in ("get_paginator", "meta"):
            return getattr(self.real, operation)

        def call(**arguments: Any) -> Any:
            self.calls += 1
            if self.calls > self.dies_at or (self.calls == self.dies_at and not self.after):
                raise Killed
            answer = getattr(self.real, operation)(**arguments)
            if self.calls == self.dies_at:
                raise Killed
            return answer

        return call


@pytest.fixture
def events() -> Events:
    return Events()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def supervisor(lab: Lab, events: Events, clock: Clock) -> Supervisor:
    return Supervisor.create(lab, "workflows", Bus(events, "fleet"), PLAN, patience=600, clock=clock)


def event(kind: str, envelope: Envelope) -> dict[str, Any]:
    return {"detail-type": kind, "source": "fleet.agent", "detail": json.loads(envelope.detail())}


def done(envelope: Envelope, result: Any = None) -> dict[str, Any]:
    return event(COMPLETED, answer(envelope, f"of {envelope.agent_class}" if result is None else result))


# -- the way through ---------------------------------------------------------------------------------------------------


def test_a_workflow_goes_through_its_stages(supervisor: Supervisor, events: Events) -> None:
    assert supervisor.start("w1", GIVEN) == "started"
    assert [(e.trace_id, e.agent_class) for _, e in events.said] == [
        ("conv-w1-step-0", "coder"),
        ("conv-w1-step-1", "researcher"),
    ]
    assert supervisor.handle(done(events.asked("researcher"))) == "recorded"
    assert supervisor.handle(done(events.asked("coder"))) == "advanced"
    asked = events.asked("writer")
    assert asked.payload == {"given": GIVEN, "results": {"coder": "of coder", "researcher": "of researcher"}}
    assert supervisor.handle(done(asked)) == "finished"
    kind, last = events.said[-1]
    assert (kind, last.agent_class) == ("workflow.finished", "supervisor")
    assert last.payload == {
        "workflow": "w1",
        "results": [{"coder": "of coder", "researcher": "of researcher"}, {"writer": "of writer"}],
    }
    found = supervisor.look("w1")
    assert found is not None
    assert (found.phase, found.stage, found.waiting) == ("finished", 2, {})
    assert events.kinds() == {"agent.step.requested": 3, "workflow.finished": 1}


def test_a_start_that_comes_again_starts_nothing(supervisor: Supervisor, events: Events) -> None:
    supervisor.start("w1", GIVEN)
    assert supervisor.start("w1", GIVEN) == "duplicate"
    assert len(events.said) == 2
    with pytest.raises(SupervisorError, match="workflow w1 was started before, with something else"):
        supervisor.start("w1", {"topic": "coffee"})


def test_duplicates_and_late_answers_change_nothing(supervisor: Supervisor, events: Events) -> None:
    supervisor.start("w1", GIVEN)
    first, second = events.asked("coder"), events.asked("researcher")
    supervisor.handle(done(first, "kept"))
    assert supervisor.handle(done(first, "another")) == "duplicate"
    assert supervisor.handle(event(FAILED_STEP, failure(first, ValueError("too late to fail")))) == "duplicate"
    supervisor.handle(done(second))
    before = supervisor.look("w1")
    assert supervisor.handle(done(first)) == "duplicate"  # of a stage that is over
    assert supervisor.look("w1") == before
    supervisor.handle(done(events.asked("writer")))
    assert supervisor.handle(done(second)) == "late"
    ended = supervisor.look("w1")
    assert ended is not None
    assert ended.results[0]["coder"] == "kept"
    assert events.kinds() == {"agent.step.requested": 3, "workflow.finished": 1}


def test_a_failed_agent_fails_the_workflow_for_all_to_see(supervisor: Supervisor, events: Events) -> None:
    supervisor.start("w1", GIVEN)
    coder, researcher = events.asked("coder"), events.asked("researcher")
    assert supervisor.handle(event(FAILED_STEP, failure(coder, ValueError("no compiler")))) == "failed"
    kind, said = events.said[-1]
    assert kind == "workflow.failed"
    assert said.payload == {"workflow": "w1", "failure": "coder gave up conv-w1-step-0: ValueError: no compiler"}
    assert supervisor.handle(done(researcher)) == "late"
    found = supervisor.look("w1")
    assert found is not None
    assert (found.phase, found.failure) == ("failed", said.payload["failure"])


def test_a_silent_agent_fails_the_workflow_when_its_time_is_over(
    supervisor: Supervisor, events: Events, clock: Clock
) -> None:
    supervisor.start("w1", GIVEN)
    supervisor.start("w2", GIVEN)
    supervisor.handle(done(events.asked("coder")))  # of w2
    clock.now += 599
    assert supervisor.expire() == []
    supervisor.handle(done(events.asked("researcher")))  # the next stage has a time of its own
    clock.now += 2
    assert supervisor.expire() == ["w1"]
    kind, said = events.said[-1]
    assert (kind, said.conversation_id) == ("workflow.failed", "w1")
    assert "no answer after 600 s: coder (conv-w1-step-0), researcher (conv-w1-step-1)" in str(said.payload)
    assert supervisor.expire() == []


def test_a_fan_in_of_many_at_once_advances_once(lab: Lab, events: Events) -> None:
    agents = [f"agent-{n}" for n in range(12)]
    supervisor = Supervisor.create(lab, "workflows", Bus(events, "fleet"), in_stages(agents, ["writer"]))
    supervisor.start("w1", GIVEN)
    answers = [done(events.asked(agent)) for agent in agents] * 2
    with ThreadPoolExecutor(8) as pool:
        kinds = Counter(pool.map(supervisor.handle, answers))
    assert kinds == {"recorded": 11, "advanced": 1, "duplicate": 12}
    assert events.kinds() == {"agent.step.requested": 13}
    found = supervisor.look("w1")
    assert found is not None
    assert set(found.results[0]) == set(agents)


# -- the outbox --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dies", ["before", "after"])
def test_a_crash_between_advance_and_publish_is_repaired(
    supervisor: Supervisor, events: Events, clock: Clock, dies: str
) -> None:
    supervisor.start("w1", GIVEN)
    supervisor.handle(done(events.asked("coder")))
    events.dies = dies
    last = done(events.asked("researcher"))
    with pytest.raises(Killed):
        supervisor.handle(last)
    assert supervisor.repair() == 0  # whoever is at it may still be alive
    clock.now += 61
    assert supervisor.repair() == 1
    assert supervisor.repair() == 0
    assert events.asked("writer").payload == {
        "given": GIVEN,
        "results": {"coder": "of coder", "researcher": "of researcher"},
    }
    assert Counter(e.trace_id for _, e in events.said)["conv-w1-step-2"] == (1 if dies == "before" else 2)


def test_the_delivery_that_comes_again_repairs_it_as_well(supervisor: Supervisor, events: Events) -> None:
    events.dies = "before"
    with pytest.raises(Killed):
        supervisor.start("w1", GIVEN)
    assert supervisor.start("w1", GIVEN) == "duplicate"
    assert events.kinds() == {"agent.step.requested": 2}


def test_an_entry_that_the_bus_refuses_stays_to_be_said(supervisor: Supervisor, events: Events) -> None:
    events.refuses = {"conv-w1-step-1"}
    with pytest.raises(PublishError, match="1 of 2 events were not accepted: conv-w1-step-1"):
        supervisor.start("w1", GIVEN)
    events.refuses = set()
    assert supervisor.publish("w1") == 1
    assert [e.trace_id for _, e in events.said] == ["conv-w1-step-0", "conv-w1-step-1"]


def test_one_that_cannot_be_published_does_not_hold_up_the_others(
    supervisor: Supervisor, events: Events, clock: Clock
) -> None:
    for name in ("w1", "w2", "w3"):
        events.dies = "before"
        with pytest.raises(Killed):
            supervisor.start(name, GIVEN)
        clock.now += 1
    events.refuses = {"conv-w1-step-0", "conv-w1-step-1"}
    clock.now += 61
    with pytest.raises(PublishError, match="conv-w1-step-0") as raised:
        supervisor.repair()
    assert raised.value.__notes__ == ["It was so for 1 of 3; the others are done."]
    assert {e.conversation_id for _, e in events.said} == {"w2", "w3"}
    clock.now += 600
    with pytest.raises(PublishError, match="conv-w1-step-0"):
        supervisor.expire()
    phases = [found and found.phase for found in map(supervisor.look, ("w1", "w2", "w3"))]
    assert phases == ["failed"] * 3
    assert events.kinds()["workflow.failed"] == 3


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_answers_that_nobody_asked_for_are_refused(supervisor: Supervisor, events: Events) -> None:
    supervisor.start("w1", GIVEN)
    coder = events.asked("coder")
    with pytest.raises(UnknownWorkflow, match="there is no workflow w9"):
        supervisor.handle(done(coder.model_copy(update={"conversation_id": "w9", "trace_id": "conv-w9-step-0"})))
    with pytest.raises(SupervisorError, match="w1 has never asked for conv-w1-step-7"):
        supervisor.handle(done(coder.model_copy(update={"step": 7, "trace_id": "conv-w1-step-7"})))
    with pytest.raises(SupervisorError, match="conv-w1-step-0 is the work of coder, and writer answers"):
        supervisor.handle(done(coder.model_copy(update={"agent_class": "writer"})))
    with pytest.raises(SupervisorError, match=r"an answer is agent\.step\.completed with a result"):
        supervisor.handle(event("agent.step.requested", coder))
    with pytest.raises(EnvelopeError, match="has a field 'detail'"):
        supervisor.handle({})
    with pytest.raises(SupervisorError, match="this is no JSON"):
        supervisor.handle('{"detail": ')
    half = done(coder)
    half["detail"]["payload"]["result"] = "\ud83d"
    with pytest.raises(SupervisorError, match="conv-w1-step-0 is answered with what JSON cannot hold"):
        supervisor.handle(half)
    found = supervisor.look("w1")
    assert found is not None
    assert found.version == 1


def test_results_that_no_row_can_hold_fail_the_workflow(supervisor: Supervisor, events: Events) -> None:
    supervisor.start("w1", GIVEN)
    assert supervisor.handle(done(events.asked("coder"), "x" * MOST_BYTES)) == "failed"
    found = supervisor.look("w1")
    assert found is not None
    assert "more than 350,000 bytes with that of conv-w1-step-0: put results into S3" in found.failure


@pytest.mark.parametrize("stage", [["coder"], "coder", {1: {}, "coder": {}}])
def test_a_stage_that_is_none_is_said(supervisor: Supervisor, stage: Any) -> None:
    supervisor.decide = lambda workflow: stage
    with pytest.raises(SupervisorError, match="a stage is agents and their payloads; workflow w1 gets"):
        supervisor.start("w1", GIVEN)
    assert supervisor.look("w1") is None


def test_an_arbiter_that_fails_leaves_the_answer_to_come_again(supervisor: Supervisor, events: Events) -> None:
    supervisor.start("w1", GIVEN)
    supervisor.handle(done(events.asked("coder")))

    def broken(workflow: Any) -> Any:
        raise ConnectionError("no model")

    supervisor.decide = broken
    with pytest.raises(ConnectionError):
        supervisor.handle(done(events.asked("researcher")))
    supervisor.decide = lambda workflow: {"poet": {"after": sorted(workflow.results[-1])}}
    assert supervisor.handle(done(events.asked("researcher"))) == "advanced"
    assert events.asked("poet").payload == {"after": ["coder", "researcher"]}


# -- with a real bus ---------------------------------------------------------------------------------------------------


def test_agents_and_their_supervisor_as_workers_on_a_bus(lab: Lab) -> None:
    bus = Bus.create(lab, "fleet")
    supervisor = Supervisor.create(lab, "workflows", bus, PLAN)
    answers = Queue.create(lab, "answers", visibility=30, dlq=True, max_receives=2)
    bus.rule("answers", {"detail-type": [COMPLETED, FAILED_STEP]}, answers)
    ended = Queue.create(lab, "ended", visibility=300)
    bus.rule("ended", {"detail-type": ["workflow.finished", "workflow.failed"]}, ended)
    handle = lambda task: supervisor.handle(task.body)  # noqa: E731
    workers = [Worker(answers, handle, parse=json.loads, visibility=30, wait=1, retry=lambda receives: 1.0)]
    for agent in ("researcher", "coder", "writer"):
        queue = Queue.create(lab, agent)
        bus.rule(agent, {"detail-type": ["agent.step.requested"], "detail": {"agent_class": [agent]}}, queue)

        def tell(task: Task, result: object) -> None:
            bus.publish([answer(task.body, result)], detail_type=COMPLETED, source="fleet.agent")

        step = lambda task: f"of {task.body.agent_class}"  # noqa: E731
        workers.append(Worker(queue, step, parse=Envelope.from_event, visibility=30, wait=1, then=tell))
    answers.send(
        event(COMPLETED, Envelope.new(conversation_id="w9", step=0, agent_class="coder", payload={"result": 1}))
    )
    # Before anybody works: who handles an answer while a start still publishes says what that has to say once more.
    supervisor.start("w1", GIVEN)
    supervisor.start("w2", GIVEN)
    with ThreadPoolExecutor(len(workers)) as pool:
        runs = [pool.submit(worker.run, seconds=90) for worker in workers]
        try:
            last: list[Envelope] = []
            until = time.monotonic() + 60
            while (len(last) < 2 or answers.depth().total) and time.monotonic() < until:
                last += [Envelope.from_event(message.body) for message in ended.receive(wait=1)]
        finally:
            for worker in workers:
                worker.stop()
        counts = [run.result(60) for run in runs]
    assert sorted(envelope.conversation_id for envelope in last) == ["w1", "w2"]
    assert counts[0] == {"done": 6, "failed": 1, "dead": 1}
    assert answers.dlq is not None
    assert triage.survey(answers.dlq).counts == {"UnknownWorkflow": 1}


# -- an arbiter --------------------------------------------------------------------------------------------------------


def capabilities(*agents: str) -> dict[str, Capability]:
    schema = {"type": "object", "required": ["task"]}
    made = {"description": "d", "queue_url": "http://h/q", "input_schema": schema}
    return {agent: Capability.of({"agent": agent, **made}) for agent in agents}


def test_a_model_may_decide_what_comes_next(supervisor: Supervisor, events: Events) -> None:
    says = [ToolCall("coder", {"task": "write"}), ToolCall("researcher", {"task": "check"}), ToolCall(FINISH)]
    offered: list[list[str]] = []

    def model(asked: Any) -> Any:
        offered.append([tool.name for tool in asked.tools])
        return says[asked.prompt.count(" says")]

    with Provider(Script(model)) as provider:
        decider = Decider(provider.bedrock(), "m", tries=1)
        supervisor.decide = arbiter(decider, lambda: capabilities("coder", "researcher"))
        supervisor.start("w1", GIVEN)
        assert supervisor.handle(done(events.asked("coder"), "coder says")) == "advanced"
        asked = events.asked("researcher")
        assert asked.payload == {"input": {"task": "check"}, "given": GIVEN, "results": {"coder": "coder says"}}
        assert supervisor.handle(done(asked, "researcher says")) == "finished"
        assert offered == [["coder", "researcher"], *[["coder", "researcher", FINISH]] * 2]


def test_an_arbiter_has_bounds(supervisor: Supervisor, events: Events) -> None:
    both = Answer(calls=(ToolCall("coder", {"task": "t"}), ToolCall(FINISH)))
    with Provider(Script(both)) as provider:
        decider = Decider(provider.bedrock(), "m", tries=1)
        decide = arbiter(decider, lambda: capabilities("coder"))
        with pytest.raises(InvalidDecision, match="it calls finish and coder: a workflow is finished, or it is not"):
            decide(Workflow("w1", GIVEN, stage=1))
        provider.script = Script(ToolCall("coder", {"task": "t"}))
        with pytest.raises(SupervisorError, match="w1 has had 10 stages, and its arbiter wants another one"):
            decide(Workflow("w1", GIVEN, stage=10))
        with pytest.raises(SupervisorError, match="no agent can be called finish"):
            arbiter(decider, lambda: capabilities(FINISH))(Workflow("w1", GIVEN))


# -- every order -------------------------------------------------------------------------------------------------------


# Mostly not at all; around PutEvents; at a call of the table: look, write, and a delete for each event.
DIES = st.one_of(st.just(""), st.sampled_from(["before", "after"]), st.tuples(st.integers(1, 4), st.booleans()))


class Orders(RuleBasedStateMachine):
    """Answers in any order, any number of times, with crashes at every place, on one table.

    The promise: whatever happens, each agent of each stage is asked under one name, each answer counts once (the
    first), the workflow ends once, and nothing is stuck that ``repair`` and another delivery cannot free.
    """

    supervisor: Supervisor
    events: Events
    runs: Iterator[int]

    def __init__(self) -> None:
        super().__init__()
        self.id = f"w{next(self.runs)}"
        self.first: dict[str, int] = {}  # agent → the result that counts
        self.results = itertools.count()
        self.started = False

    def mine(self) -> list[tuple[str, Envelope]]:
        return [(kind, e) for kind, e in self.events.said if e.conversation_id == self.id]

    def asked(self) -> list[Envelope]:
        return [envelope for kind, envelope in self.mine() if kind == "agent.step.requested"]

    def killed_or(self, dies: Any, call: Any) -> None:
        """Do it in a process that may end: around PutEvents, or at a call of the table."""
        real = self.supervisor.client
        if isinstance(dies, tuple):
            self.supervisor.client = Dying(real, *dies)
        else:
            self.events.dies = dies
        try:
            call()
        except Killed:
            pass
        finally:
            self.events.dies, self.supervisor.client = "", real

    @rule(dies=DIES)
    def starts(self, dies: Any) -> None:
        self.started = True
        self.killed_or(dies, lambda: self.supervisor.start(self.id, GIVEN))

    @precondition(lambda self: self.asked())
    @rule(data=st.data(), dies=DIES)
    def an_agent_answers(self, data: st.DataObject, dies: Any) -> None:
        step = data.draw(st.sampled_from(self.asked()))
        result = next(self.results)
        self.killed_or(dies, lambda: self.supervisor.handle(done(step, result)))
        self.note(step, result)

    def note(self, step: Envelope, result: int) -> None:
        """An answer that the table has heard counts, and no later one."""
        found = self.supervisor.look(self.id)
        stage = found.results[1 if step.agent_class == "writer" else 0] if found else {}
        if step.agent_class in stage:
            assert stage[step.agent_class] == self.first.setdefault(step.agent_class, result)
        else:
            assert step.agent_class not in self.first, "an answer that counted is gone"

    @precondition(lambda self: self.started)
    @rule(dies=DIES)
    def somebody_repairs(self, dies: Any) -> None:
        self.killed_or(dies, lambda: self.supervisor.repair(older=-1))

    def teardown(self) -> None:
        self.supervisor.start(self.id, GIVEN)
        for _ in range(2):
            self.supervisor.repair(older=-1)
            for step in self.asked():
                result = next(self.results)
                self.supervisor.handle(done(step, result))
                self.note(step, result)
        found = self.supervisor.look(self.id)
        assert found is not None
        assert found.phase == "finished"
        assert found.results == (
            {agent: self.first[agent] for agent in ("coder", "researcher")},
            {"writer": self.first["writer"]},
        )
        names = {(kind, envelope.trace_id, envelope.agent_class) for kind, envelope in self.mine()}
        assert names == {
            ("agent.step.requested", f"conv-{self.id}-step-0", "coder"),
            ("agent.step.requested", f"conv-{self.id}-step-1", "researcher"),
            ("agent.step.requested", f"conv-{self.id}-step-2", "writer"),
            ("workflow.finished", f"conv-{self.id}-step-3", "supervisor"),
        }
        assert found.version == 4, "start, two answers, the end: nothing else has moved it"


def test_no_order_duplicate_or_crash_advances_twice_or_gets_stuck(supervisor: Supervisor, events: Events) -> None:
    bound = {"supervisor": supervisor, "events": events, "runs": itertools.count()}
    run_state_machine_as_test(
        type("OnThisTable", (Orders,), bound),
        settings=settings(
            max_examples=40, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
