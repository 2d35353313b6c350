"""Names and causes of what fails in an execution.

**On AWS** a missed heartbeat is States.Timeout in the history, while Retry and Catch may name it
States.HeartbeatTimeout or States.Timeout. A function that Lambda refuses to run is an error of Lambda's API:
``Lambda.TooManyRequestsException`` when it is throttled. A function's exception has the class's name. The cause that
SendTaskFailure gives is the event's and the execution's (Step Functions Developer Guide, "Handling errors"; histories
recorded on AWS).

**MiniStack** knows no heartbeat. moto's interpreter matches a missed heartbeat by States.Timeout alone, and calls
whatever Lambda refuses ``Exception``.

**Here** the names are as documented, and no event follows the one that ends a history. Event 25,000 of a history is
its last: ExecutionSucceeded, or the failure that says why (Step Functions Developer Guide, "Avoid reaching the history
quota"; the text is quoted from AWS in public). Entries that EventBridge refuses fail a task with
EventBridge.FailedEntry and its whole answer as the cause; an activity that does not exist ends the execution with
States.Runtime (recorded on AWS), and so does a Choice that finds no next state.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

MOST_EVENTS = 25_000
TOO_MANY_EVENTS = f"The execution reached the maximum number of history events ({MOST_EVENTS})."
NO_NEXT_STATE = "Failed to transition out of the state. The state does not point to a next state."
LAST = frozenset({"ExecutionSucceeded", "ExecutionFailed", "ExecutionAborted", "ExecutionTimedOut"})


def ended(events: Sequence[Any]) -> bool:
    """Whether a history is complete."""
    return bool(events) and events[-1]["type"] in LAST


def is_full(events: Sequence[Any], kind: str) -> bool:
    """Whether a history has no room for another event of this kind, because its end takes the last place."""
    return len(events) >= MOST_EVENTS - 1 and kind not in LAST


def lambda_error(code: str) -> str:
    """The error's name for a refusal of Lambda's API."""
    return f"Lambda.{code}"


def change() -> None:
    _heartbeat()
    _refusals()
    _failed_entries()
    _activities()
    _choices()
    from moto.stepfunctions.parser.asl.eval.event.event_manager import EventManager

    from .states_map_live import LIVE
    from .states_records import RUNS
    from .states_waits import wake

    add = EventManager.add_event

    def add_event(self: Any, context: Any, event_type: Any, *arguments: Any, **more: Any) -> Any:
        events = self._history_event_list
        if is_full(events, event_type):
            child = LIVE.with_history(events)
            if child is not None:
                child.fill(TOO_MANY_EVENTS)
                return len(events)
            run = RUNS.with_history(events)
            if run is not None:
                if run.env.is_running():
                    run.env.set_error({"error": "States.Runtime", "cause": TOO_MANY_EVENTS})
                    run.env.set_error = lambda error: None  # what the state that is cut off fails with is no reason
                    wake(run.env)
                return len(events)
        return len(events) if ended(events) else add(self, context, event_type, *arguments, **more)

    EventManager.add_event = add_event


def _failed_entries() -> None:
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.service.state_task_service_events import (
        StateTaskServiceEvents,
    )

    from_error = StateTaskServiceEvents._from_error

    def of(self: Any, env: Any, ex: Exception) -> Any:
        failure = from_error(self, env, ex)
        details = failure.event_details.get("taskFailedEventDetails") or {}
        if isinstance(details.get("cause"), dict):
            details["cause"] = json.dumps(details["cause"], separators=(",", ":"))
        return failure

    StateTaskServiceEvents._from_error = of


def _runtime(env: Any, cause: str) -> Exception:
    """The failure of an execution that no Retry or Catch takes; the state and its event are added to the cause."""
    from moto.stepfunctions.parser.api import HistoryEventType
    from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import (
        FailureEvent,
        FailureEventException,
    )
    from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name import StatesErrorName
    from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name_type import StatesErrorNameType
    from moto.stepfunctions.parser.asl.eval.event.event_detail import EventDetails

    name, kind = StatesErrorName(typ=StatesErrorNameType.StatesRuntime), HistoryEventType.ExecutionFailed
    details = EventDetails(executionFailedEventDetails={"error": name.error_name, "cause": cause})
    failure = FailureEvent(env=env, error_name=name, event_type=kind, event_details=details)
    made: Exception = FailureEventException(failure)
    return made


def _activities() -> None:
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.state_task_activitiy import StateTaskActivity

    evaluate = StateTaskActivity._eval_execution

    def execution(self: Any, env: Any) -> None:
        arn = self.resource.resource_arn
        if env.callback_pool_manager._activity_store.get(arn) is None:
            raise _runtime(env, f"The activity {arn} does not exist.")
        evaluate(self, env)

    StateTaskActivity._eval_execution = execution


def _choices() -> None:
    from moto.stepfunctions.parser.asl.component.state.choice.state_choice import StateChoice

    evaluate = StateChoice._eval_state

    def eval_state(self: Any, env: Any) -> None:
        try:
            evaluate(self, env)
        except RuntimeError as error:
            if "No branching option" not in str(error.args):
                raise
            raise _runtime(env, NO_NEXT_STATE) from None

    StateChoice._eval_state = eval_state


def _heartbeat() -> None:
    from moto.stepfunctions.parser.asl.component.common.error_name.error_equals_decl import ErrorEqualsDecl
    from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name import StatesErrorName
    from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name_type import StatesErrorNameType
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.state_task import StateTask
    from moto.stepfunctions.parser.asl.eval.callback.callback import HeartbeatTimeoutError

    missed = StatesErrorName(typ=StatesErrorNameType.StatesHeartbeatTimeout)
    from_error, match = StateTask._from_error, ErrorEqualsDecl._eval_body

    def of(self: Any, env: Any, ex: Exception) -> Any:
        failure = from_error(self, env, ex)
        if isinstance(ex, HeartbeatTimeoutError):
            failure.error_name.also = missed
        return failure

    def evaluate(self: Any, env: Any) -> None:
        also = getattr(env.stack[-1], "also", None)
        match(self, env)
        if also is not None and also in self.error_names:
            env.stack[-1] = True

    StateTask._from_error = of
    ErrorEqualsDecl._eval_body = evaluate


def _refusals() -> None:
    from botocore.exceptions import ClientError
    from moto.stepfunctions.parser.asl.component.common.error_name.custom_error_name import CustomErrorName
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.state_task_lambda import StateTaskLambda

    from_error = StateTaskLambda._from_error

    def of(self: Any, env: Any, ex: Exception) -> Any:
        failure = from_error(self, env, ex)
        if isinstance(ex, ClientError):
            name = lambda_error(ex.response["Error"]["Code"])
            failure.error_name = CustomErrorName(name)
            failure.event_details["lambdaFunctionFailedEventDetails"]["error"] = name
        return failure

    StateTaskLambda._from_error = of


def install() -> None:
    from . import states_engine

    states_engine.on_load(change)
