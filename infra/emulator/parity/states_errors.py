"""Names and causes of what fails in an execution.

**On AWS** a missed heartbeat is States.Timeout in the history, while Retry and Catch may name it
States.HeartbeatTimeout or States.Timeout. A function that Lambda refuses to run is an error of Lambda's API:
``Lambda.TooManyRequestsException`` when it is throttled. A function's exception has the class's name. The cause that
SendTaskFailure gives is the event's and the execution's (Step Functions Developer Guide, "Handling errors"; histories
recorded on AWS).

**MiniStack** knows no heartbeat. moto's interpreter matches a missed heartbeat by States.Timeout alone, and calls
whatever Lambda refuses ``Exception``.

**Here** the names are as documented, and no event follows the one that ends a history.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

LAST = frozenset({"ExecutionSucceeded", "ExecutionFailed", "ExecutionAborted", "ExecutionTimedOut"})


def ended(events: Sequence[Any]) -> bool:
    """Whether a history is complete."""
    return bool(events) and events[-1]["type"] in LAST


def lambda_error(code: str) -> str:
    """The error's name for a refusal of Lambda's API."""
    return f"Lambda.{code}"


def change() -> None:
    _heartbeat()
    _refusals()
    from moto.stepfunctions.parser.asl.eval.event.event_manager import EventManager

    add = EventManager.add_event

    def add_event(self: Any, context: Any, event_type: Any, *arguments: Any, **more: Any) -> Any:
        events = self._history_event_list
        return len(events) if ended(events) else add(self, context, event_type, *arguments, **more)

    EventManager.add_event = add_event


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
