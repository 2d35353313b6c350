"""Workflow state: where a workflow of several agents stands, and what each answer of an agent makes of it. No AWS here.

A workflow goes in stages. A stage asks one agent or several at once (fan-out) and is over when all of them have
answered (fan-in); then somebody decides on the next one, by what is known so far::

    stage 1   researcher ──┐
              coder ───────┴─▶ stage 2   writer ──▶ finished
                  └ failed ────────────────────────▶ failed, and everybody can see why

Answers come late, twice, in any order, and after the end. Each step has a name, its trace id, and a workflow knows for
which of them it waits. An answer to one of those counts, the first one; all others change nothing.

``Decide`` is a function of the workflow: the next stage as ``{agent: payload}``, nothing when it is finished. It may be
a plan (:func:`in_stages`) or a model (an arbiter): what it says is written down before anybody acts on it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from labkit.control.bus import REQUESTED
from labkit.control.envelope import Envelope
from labkit.errors import LabError
from labkit.state.records import said

__all__ = ["Answer", "Change", "Decide", "SupervisorError", "Workflow", "after", "answer", "begun", "failed", "failure",
           "in_stages"]  # fmt: skip

COMPLETED, FAILED_STEP = "agent.step.completed", "agent.step.failed"
FINISHED_EVENT, FAILED_EVENT = "workflow.finished", "workflow.failed"
RUNNING, FINISHED, FAILED = "running", "finished", "failed"
SUPERVISOR = "supervisor"
MOST_AGENTS = 50  # of a stage: all of them are requested in one transaction, which takes 100 items
MOST_BYTES = 350_000  # of a workflow with its results, and of an event: an item holds 400 KB
_MOST_FAILURE = 1_000  # characters

Kind = Literal["started", "recorded", "advanced", "finished", "failed", "duplicate", "late"]


class SupervisorError(LabError):
    """An answer or a workflow is not as it should be; the sentence names workflow and step."""


@dataclass(frozen=True)
class Workflow:
    """One workflow as it stands.

    ``version`` grows with every change; ``stage`` and ``steps`` count what was begun. ``waiting``: trace id → agent, of
    the steps that have not been answered. ``results``: agent → result, for each stage that was begun. ``due``: epoch
    seconds until when the stage has time. ``failure`` says why a failed one failed.
    """

    id: str
    given: Mapping[str, Any]
    phase: str = RUNNING
    version: int = 0
    stage: int = 0
    steps: int = 0
    waiting: Mapping[str, str] = field(default_factory=dict)
    results: tuple[Mapping[str, Any], ...] = ()
    failure: str = ""
    due: float = 0.0

    def text(self) -> str:
        return json.dumps(asdict(self), separators=(",", ":"), ensure_ascii=False, allow_nan=False)

    @classmethod
    def of(cls, text: str) -> Workflow:
        found = json.loads(text)
        return cls(**{**found, "results": tuple(found["results"])})

    def trace(self, step: int) -> str:
        """The name of a step."""
        return f"conv-{self.id}-step-{step}"


Decide = Callable[[Workflow], Mapping[str, Mapping[str, Any]] | None]


@dataclass(frozen=True)
class Change:
    """What an answer makes of a workflow: the ``workflow`` after it, and the ``events`` to publish, with their types.

    ``recorded``: the stage waits for others. ``duplicate`` and ``late`` (after the end) change nothing.
    """

    kind: Kind
    workflow: Workflow
    events: tuple[tuple[str, Envelope], ...] = ()


@dataclass(frozen=True)
class Answer:
    """What an agent says of its step: its ``result``, or an ``error`` and that it has given up."""

    workflow_id: str
    trace_id: str
    step: int
    agent: str
    result: Any = None
    error: str = ""

    @classmethod
    def of(cls, event: Any) -> Answer:
        """The answer in an event of type ``agent.step.completed`` or ``agent.step.failed``.

        Raises :class:`SupervisorError`, and :class:`~labkit.control.envelope.EnvelopeError`.
        """
        try:
            found = json.loads(event) if isinstance(event, str | bytes) else event
        except (ValueError, RecursionError) as error:
            raise SupervisorError(f"an answer is an event, a JSON object; this is no JSON: {error}.") from error
        envelope = Envelope.from_event(found)
        payload, kind = envelope.payload or {}, found.get("detail-type")
        about = (envelope.conversation_id, envelope.trace_id, envelope.step, envelope.agent_class)
        try:
            json.dumps(payload, allow_nan=False, ensure_ascii=False).encode()
        except ValueError as error:
            raise SupervisorError(f"{envelope.trace_id} is answered with what JSON cannot hold: {error}.") from error
        if kind == COMPLETED and "result" in payload:
            return cls(*about, result=payload["result"])
        if kind == FAILED_STEP and payload.get("error"):
            return cls(*about, error=str(payload["error"])[:_MOST_FAILURE])
        raise SupervisorError(
            f"{envelope.trace_id}: an answer is {COMPLETED} with a result or {FAILED_STEP} with an error; this is "
            f"{kind!r:.60} with {', '.join(payload) or 'nothing'}."
        )


def answer(step: Envelope, result: Any) -> Envelope:
    """The envelope of type ``agent.step.completed`` that an agent publishes for its ``step``: a worker in ``then``."""
    return _about(step, {"result": result})


def failure(step: Envelope, error: BaseException) -> Envelope:
    """The envelope of type ``agent.step.failed`` that an agent publishes when it gives its ``step`` up: a worker in
    ``on_event``, where the kind is ``dead``."""
    return _about(step, {"error": f"{type(error).__name__}: {said(error, _MOST_FAILURE)}"})


def in_stages(*stages: Sequence[str]) -> Decide:
    """A plan: these agents, stage by stage; each gets what was ``given`` and the ``results`` of the stage before."""
    if not stages or any(isinstance(stage, str) or not stage for stage in stages):
        raise SupervisorError(f"a plan has stages, each a list of agents; got {stages!r:.80}.")

    def decide(workflow: Workflow) -> Mapping[str, Mapping[str, Any]] | None:
        if workflow.stage >= len(stages):
            return None
        before = workflow.results[-1] if workflow.results else {}
        return {agent: {"given": workflow.given, "results": before} for agent in stages[workflow.stage]}

    return decide


# -- changes: each a function of what stands, so that whoever is late computes it again from what stands then ----------


def begun(workflow_id: str, given: Mapping[str, Any], decide: Decide, due: float) -> Change:
    """A new workflow with its first stage. Raises :class:`SupervisorError`."""
    change = _next(Workflow(workflow_id, given, version=1), decide, due)
    return Change("started" if change.kind == "advanced" else change.kind, change.workflow, change.events)


def after(workflow: Workflow, said: Answer, decide: Decide, due: float) -> Change:
    """The workflow after an answer. Raises :class:`SupervisorError` for an answer to what was never asked."""
    if said.trace_id != workflow.trace(said.step) or said.step >= workflow.steps:
        raise SupervisorError(f"workflow {workflow.id} has never asked for {said.trace_id}, and {said.agent} answers.")
    if workflow.phase != RUNNING:
        return Change("late", workflow)
    if said.trace_id not in workflow.waiting:
        return Change("duplicate", workflow)
    if (asked := workflow.waiting[said.trace_id]) != said.agent:
        raise SupervisorError(f"{said.trace_id} is the work of {asked}, and {said.agent} answers.")
    if said.error:
        return failed(workflow, f"{said.agent} gave up {said.trace_id}: {said.error}")
    waiting = {trace: agent for trace, agent in workflow.waiting.items() if trace != said.trace_id}
    results = (*workflow.results[:-1], {**workflow.results[-1], said.agent: said.result})
    now = replace(workflow, version=workflow.version + 1, waiting=waiting, results=results)
    if len(now.text().encode()) > MOST_BYTES:
        why = "put results into S3 and answer with their address"
        return failed(workflow, f"the results have more than {MOST_BYTES:,} bytes with that of {said.trace_id}: {why}")
    return Change("recorded", now) if waiting else _next(now, decide, due)


def failed(workflow: Workflow, why: str) -> Change:
    """The workflow has failed, and says so; nothing that comes later changes that."""
    return _failed(replace(workflow, version=workflow.version + 1), why)


def _failed(now: Workflow, why: str) -> Change:
    ended = replace(now, phase=FAILED, failure=why[:_MOST_FAILURE], waiting={})
    return _ended("failed", FAILED_EVENT, ended, {"failure": ended.failure})


def _next(workflow: Workflow, decide: Decide, due: float) -> Change:
    stage = decide(workflow)
    if not stage:
        ended = replace(workflow, phase=FINISHED)
        return _ended("finished", FINISHED_EVENT, ended, {"results": list(workflow.results)})
    if not isinstance(stage, Mapping) or not all(isinstance(agent, str) for agent in stage):
        raise SupervisorError(f"a stage is agents and their payloads; workflow {workflow.id} gets {stage!r:.80}.")
    if len(stage) > MOST_AGENTS:
        raise SupervisorError(f"a stage has at most {MOST_AGENTS} agents; workflow {workflow.id} wants {len(stage)}.")
    asked = tuple(
        _envelope(workflow, workflow.steps + number, agent, stage[agent]) for number, agent in enumerate(sorted(stage))
    )
    if (size := sum(each.size() for each in asked)) > MOST_BYTES:
        return _failed(workflow, f"stage {workflow.stage + 1} has payloads of {size:,} bytes, at most {MOST_BYTES:,}")
    now = replace(
        workflow,
        stage=workflow.stage + 1,
        steps=workflow.steps + len(asked),
        waiting={each.trace_id: each.agent_class for each in asked},
        results=(*workflow.results, {}),
        due=due,
    )
    return Change("advanced", now, tuple((REQUESTED, each) for each in asked))


def _ended(kind: Kind, event: str, workflow: Workflow, payload: Mapping[str, Any]) -> Change:
    told = _envelope(workflow, workflow.steps, SUPERVISOR, {"workflow": workflow.id, **payload})
    return Change(kind, replace(workflow, steps=workflow.steps + 1), ((event, told),))


def _envelope(workflow: Workflow, step: int, agent: str, payload: Mapping[str, Any]) -> Envelope:
    return Envelope.new(
        conversation_id=workflow.id, step=step, agent_class=agent, payload=payload, trace_id=workflow.trace(step)
    )


def _about(step: Envelope, payload: Mapping[str, Any]) -> Envelope:
    return Envelope.new(
        conversation_id=step.conversation_id,
        step=step.step,
        agent_class=step.agent_class,
        payload=payload,
        trace_id=step.trace_id,
        model_policy=step.model_policy,
    )
