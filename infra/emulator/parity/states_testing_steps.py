"""What happens between the input and the output of a state that is tried alone, and mocks of what it calls.

**On AWS** DEBUG shows for a state in JSONPath what is left after InputPath, Parameters, ResultSelector and ResultPath,
also where the state has none of them, and for one in JSONata its arguments and variables; of an error, which Retry or
Catch takes it (Step Functions API Reference, "InspectionData"; answers recorded on AWS).

**MiniStack** shows some of these.

**Here** the interpreter's own parts of the state are watched while it evaluates them.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any

from .states_map import TOO_MANY, exceeds
from .states_schema import TOLERATED
from .states_waits import Stopped

SUCCEEDED, FAILED, RETRIABLE, CAUGHT = "SUCCEEDED", "FAILED", "RETRIABLE", "CAUGHT_ERROR"
ATTEMPTS, INTERVAL, BACKOFF = 3, 1, 2.0  # of a retrier that says nothing else


def text(value: Any) -> str:
    from moto.stepfunctions.parser.asl.utils.encoding import to_json_str

    return str(to_json_str(value))


class Steps:
    """What has become of a state so far."""

    def __init__(self, name: str, value: Any, state: Mapping[str, Any]) -> None:
        self.name = name
        self.state = state
        self.data: dict[str, Any] = {"input": text(value)}
        self.details: dict[str, Any] = {}
        self.status: str | None = None
        self.error: str | None = None
        self.cause: str | None = None

    def failed(self, error: str | None, cause: str | None) -> None:
        if self.status is None:
            self.status, self.error, self.cause = FAILED, error, cause

    def took(self, status: str, pair: tuple[str | None, str | None] | None) -> None:
        self.status = status
        self.error, self.cause = pair or (None, None)

    def note(self, name: str, value: Any) -> None:
        self.data[name] = text(value)

    def answer(self, env: Any) -> dict[str, Any]:
        """All but the inspection data."""
        found: dict[str, Any] = {"status": self.status or SUCCEEDED, "error": self.error, "cause": self.cause}
        if found["status"] in (SUCCEEDED, CAUGHT):
            found["output"] = text(env.states.get_input())
            if env.next_state_name not in (None, self.name):
                found["nextState"] = env.next_state_name
        return {key: value for key, value in found.items() if value is not None}

    def shown(self, env: Any) -> dict[str, Any]:
        """The inspection data."""
        found = dict(self.data)
        if self.state["Type"] == "Map":
            numbers = {"MaxConcurrency": 0} | {name: self.state[name] for name in TOLERATED if name in self.state}
            numbers["MaxConcurrency"] = self.state.get("MaxConcurrency", 0)
            # An expression's value is not shown: no client could read the expression in its place.
            found |= {
                name[0].lower() + name[1:]: value for name, value in numbers.items() if not isinstance(value, str)
            }
        if self.details:
            found["errorDetails"] = self.details
        variables = {**env.variable_store._outer_scope, **env.variable_store._inner_scope}
        if variables:
            found["variables"] = text(variables)
        return found


def after(part: Any, method: str, noted: Callable[[Any], None]) -> None:
    """Have ``noted`` called when this method of the part has been evaluated."""
    original = getattr(part, method)

    def watched(env: Any) -> None:
        original(env)
        noted(env)

    setattr(part, method, watched)


def watch(component: Any, steps: Steps, configuration: Mapping[str, Any]) -> None:
    """Have the steps of this state written down."""
    if component._is_language_query_jsonpath():
        _watch_paths(component, steps)
    elif getattr(component, "parargs", None) is not None and steps.state["Type"] == "Task":
        after(component.parargs, "_eval_body", lambda env: steps.note("afterArguments", env.stack[-1]))
    if hasattr(component, "_handle_retry"):
        _watch_errors(component, steps, steps.state, configuration)


def _watch_paths(component: Any, steps: Steps) -> None:
    state, kind = steps.state, steps.state["Type"]
    shows_parameters = kind == "Task" or (kind == "Pass" and "Result" not in state)

    def noting(*names: str) -> Callable[[Any], None]:
        def noted(env: Any) -> None:
            for name in names:
                steps.note(name, env.stack[-1] if env.stack else env.states.get_input())

        return noted

    selected = ("afterResultSelector",) if kind == "Pass" else ()
    if "Result" not in state and kind != "Parallel":
        names = ("afterParameters", *selected) if shows_parameters else ()
        after(component, "_eval_state_input", noting("afterInputPath", *names))
    parameters = getattr(component, "parameters", None) or getattr(component, "parargs", None)
    if parameters is not None and shows_parameters:
        after(parameters, "_eval_body", noting("afterParameters", *selected))
    if getattr(component, "result", None) is not None:
        after(component.result, "_eval_body", noting("result", "afterResultSelector"))
    if hasattr(component, "_eval_execution"):
        result = ("result",) if kind == "Task" else ()
        after(component, "_eval_execution", noting(*result, "afterResultSelector"))
    if getattr(component, "result_selector", None) is not None:
        after(component.result_selector, "_eval_body", noting("afterResultSelector"))
    if getattr(component, "result_path", None) is not None:
        after(component.result_path, "_eval_body", noting("afterResultPath"))


def _watch_errors(component: Any, steps: Steps, state: Mapping[str, Any], configuration: Mapping[str, Any]) -> None:
    from moto.stepfunctions.parser.asl.component.common.catch.catch_outcome import CatchOutcome
    from moto.stepfunctions.parser.asl.component.common.catch.catcher_outcome import CatcherOutcomeCaught
    from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import FailureEventException
    from moto.stepfunctions.parser.asl.component.common.retry.retry_outcome import RetryOutcome

    def retry(env: Any, failure_event: Any) -> Any:
        for number, retrier in enumerate(component.retry.retriers):
            env.stack.append(failure_event.error_name)
            retrier.error_equals.eval(env)
            if not env.stack.pop():
                continue
            steps.details["retryIndex"] = number
            wait = backoff(state["Retry"][number], configuration.get("retrierRetryCount") or 0)
            if wait is None:
                break
            steps.details["retryBackoffIntervalSeconds"] = wait
            steps.took(RETRIABLE, FailureEventException(failure_event).extract_error_cause_pair())
            raise Stopped
        return RetryOutcome.CannotRetry

    catching = component._handle_catch

    def catch(env: Any, failure_event: Any) -> None:
        for number, catcher in enumerate(component.catch.catchers):
            after(catcher, "_eval_body", functools.partial(caught, number))
        catching(env=env, failure_event=failure_event)
        if env.stack[-1] == CatchOutcome.Caught:
            steps.took(CAUGHT, FailureEventException(failure_event).extract_error_cause_pair())

    def caught(number: int, env: Any) -> None:
        if isinstance(env.stack[-1], CatcherOutcomeCaught):
            steps.details["catchIndex"] = number

    component._handle_retry = retry
    component._handle_catch = catch


def backoff(retrier: Mapping[str, Any], before: int) -> int | None:
    """The seconds until the next attempt after so many, or None when there is none."""
    given = {name: value for name, value in retrier.items() if isinstance(value, int | float)}
    if before >= given.get("MaxAttempts", ATTEMPTS):
        return None
    seconds = given.get("IntervalSeconds", INTERVAL) * given.get("BackoffRate", BACKOFF) ** before
    return int(min(seconds, given.get("MaxDelaySeconds", seconds)))


def mocked(
    component: Any,
    mock: Mapping[str, Any],
    state: Mapping[str, Any],
    configuration: Mapping[str, Any],
    given: Mapping[str, Any],
) -> None:
    """Let the mock stand for what the state calls or runs."""
    from moto.stepfunctions.parser.api import HistoryEventType
    from moto.stepfunctions.parser.asl.component.common.error_name.custom_error_name import CustomErrorName
    from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import (
        FailureEvent,
        FailureEventException,
    )
    from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name import StatesErrorName
    from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name_type import StatesErrorNameType
    from moto.stepfunctions.parser.asl.eval.event.event_detail import EventDetails

    def fail(env: Any, error: str | None, cause: str | None) -> None:
        kind = HistoryEventType.TaskFailed
        details = EventDetails(taskFailedEventDetails={"error": error, "cause": cause})
        try:
            name: Any = StatesErrorName(typ=StatesErrorNameType.from_name(error or ""))
        except ValueError:
            name = CustomErrorName(error)
        raise FailureEventException(FailureEvent(env=env, error_name=name, event_type=kind, event_details=details))

    def execution(env: Any) -> None:
        if "Task" in given:
            env.states.context_object.context_object_data["Task"] = given["Task"]
        if state["Type"] == "Task" and component.parargs is not None:
            component.parargs.eval(env)
            env.stack.pop()
        result = json.loads(mock.get("result") or "null")
        if "errorOutput" in mock:
            fail(env, mock["errorOutput"].get("error"), mock["errorOutput"].get("cause"))
        failed = configuration.get("mapIterationFailureCount")
        limits = [state.get(name) for name in ("ToleratedFailureCount", "ToleratedFailurePercentage")]
        if failed is not None and exceeds(failed, len(result), *limits):
            fail(env, "States.ExceedToleratedFailureThreshold", TOO_MANY)
        env.stack.append(result)

    component._eval_execution = execution
