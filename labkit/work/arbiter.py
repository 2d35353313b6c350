"""Arbiter: a model decides, stage by stage, which agents a workflow needs next, and when it is finished.

A plan is known before the first step; an arbiter sees the results so far. It is a ``decide`` of the
:class:`~labkit.work.supervisor.Supervisor`, which writes down what it says before anybody acts on it, so that a model
that would say something else the second time is not asked a second time. The tools are those of the broker, and one
more: ``finish``, alone. Where a plan ends by itself, an arbiter need not: ``most`` stages, then it is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from labkit.models._input import whole
from labkit.work.capabilities import Capability
from labkit.work.decisions import Decider, InvalidDecision
from labkit.work.workflow_state import Decide, SupervisorError, Workflow

__all__ = ["FINISH", "arbiter"]

FINISH = "finish"
_FINISHED = Capability.of(
    {
        "agent": FINISH,
        "description": "Nothing more is to be done: the results so far answer what was given. Call no other tool then.",
        "queue_url": "https://none/none",  # nobody's: it is taken off before anybody is asked for anything
        "input_schema": {"type": "object"},
    }
)


def arbiter(decider: Decider, capabilities: Callable[[], Mapping[str, Capability]], *, most: int = 10) -> Decide:
    """Let ``decider`` choose among ``capabilities()`` (:meth:`Capabilities.get`) for each stage, ``most`` at most.

    An agent gets ``{"input": …, "given": …, "results": …}``: what the model filled in, what the workflow was given, and
    the results of the stage before. Whatever the decider raises lets the answer come again, and so does
    :class:`~labkit.work.workflow_state.SupervisorError` for a workflow that does not come to its end.
    """
    whole("most", most)

    def decide(workflow: Workflow) -> Mapping[str, Mapping[str, Any]] | None:
        known = capabilities()
        if FINISH in known:
            raise SupervisorError(f"no agent can be called {FINISH}: that is how an arbiter ends a workflow.")
        tools = {**known, FINISH: _FINISHED} if workflow.stage else known  # there is something to finish only then
        shown = {"given": workflow.given, "results_by_stage": list(workflow.results)}
        calls = {call.agent: call.input for call in decider.decide(shown, tools)}
        if FINISH in calls:
            if len(calls) > 1:
                others = ", ".join(sorted(set(calls) - {FINISH}))
                raise InvalidDecision(f"it calls {FINISH} and {others}: a workflow is finished, or it is not.")
            return None
        if workflow.stage >= most:
            raise SupervisorError(f"workflow {workflow.id} has had {most} stages, and its arbiter wants another one.")
        before = workflow.results[-1] if workflow.results else {}
        return {agent: {"input": given, "given": workflow.given, "results": before} for agent, given in calls.items()}

    return decide
