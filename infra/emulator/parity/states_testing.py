"""TestState: one state, tried alone.

**On AWS** a state's definition, or a state of a whole one, is evaluated with an input, variables and a context object
that the caller gives, and the answer says what became of it: its output and the next state, or its error, which a
Retry (RETRIABLE, without the wait) or a Catch (CAUGHT_ERROR) may take. DEBUG and TRACE show the steps between input and
output. A mock stands for the result or the error of a Task, Map or Parallel state; Map and Parallel need one (Step
Functions API Reference, "TestState"; Developer Guide, "Testing state machines with TestState"; answers recorded on
AWS).

**MiniStack** tries states with an interpreter of its own.

**Here** the interpreter that executions have does it, in the request's own thread. Not done: the HTTP requests of
TRACE, mapItemReaderData, the steps between a Map state's input and its items, and what expressions for its numbers
give. Not verified: how long a state may take (the guide says five minutes).
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from . import states_definition, states_engine, states_waits
from .states_callbacks import Activities, Response, refusable
from .states_machines import json_answer
from .states_records import iso
from .states_requests import check_enum
from .states_testing_mocks import problem
from .states_testing_requests import check_mock, context, invalid, parsed
from .states_testing_steps import Steps, mocked, watch
from .states_tokens import Refused

SECONDS = 300.0
NAME = "StateName"  # of a state that is given without its state machine
LEVELS = ("INFO", "DEBUG", "TRACE")


def chosen(definition: str, name: str | None) -> tuple[str, dict[str, Any]]:
    """The state that is tried, under its name, or :class:`Refused`."""
    document, broken = states_definition.read(definition)
    whole = document if name is not None else {"StartAt": NAME, "States": {NAME: document}}
    found = [broken] if broken is not None else list(states_definition.fields(whole, "STANDARD"))
    if found:
        text = ", ".join(one.text() for one in found)
        raise Refused("InvalidDefinition", f"Invalid State Machine Definition: '{text}'")
    if name is None:
        return NAME, dict(document)
    for scope, _ in states_definition.scopes(document):
        if name in scope["States"]:
            language = document.get("QueryLanguage", "JSONPath")
            return name, {"QueryLanguage": language, **scope["States"][name]}
    raise invalid("State not found in definition")


def environment(data: Mapping[str, Any], value: Any, given: Mapping[str, Any], account: str, region: str) -> Any:
    """What the state sees: an execution of an Express state machine that exists for it alone."""
    from moto.stepfunctions.parser.asl.eval.evaluation_details import AWSExecutionDetails
    from moto.stepfunctions.parser.asl.eval.event.event_manager import EventHistoryContext
    from moto.stepfunctions.parser.asl.eval.test_state.environment import TestStateEnvironment

    machine, name, role = str(uuid.uuid4()), str(uuid.uuid4()), data.get("roleArn")
    start = f"arn:aws:states:{region}:{account}"
    execution = {"Id": f"{start}:express:{machine}:{name}", "Input": value, "Name": name, "RoleArn": role}
    seen: dict[str, Any] = {
        "Execution": {**execution, "StartTime": iso(datetime.now(UTC))},
        "StateMachine": {"Id": f"{start}:stateMachine:{machine}", "Name": machine},
    }
    env = TestStateEnvironment(
        aws_execution_details=AWSExecutionDetails(account=account, region=region, role_arn=role or ""),
        execution_type="STANDARD",
        context=seen,
        event_history_context=EventHistoryContext.of_program_start(),
        activity_store=Activities(account, region),
    )
    env.states.context_object.context_object_data.update(given)
    env.states.reset(value)
    return env


def give(component: Any, given: Mapping[str, Any]) -> None:
    """Let the state see what the caller says of its name and its entry."""
    entered = component._eval_state_input

    def entering(env: Any) -> None:
        env.states.context_object.context_object_data["State"] |= given.get("State") or {}
        entered(env)

    component._eval_state_input = entering


def program(name: str, state: Mapping[str, Any]) -> Any:
    """The state, understood by the interpreter; with the names that it goes on to, which are not looked at."""
    follows = {"Type": "Succeed"}
    states: dict[str, Any] = {name: state}
    for target in _targets(state):
        states.setdefault(target, follows)
    text = json.dumps({"StartAt": name, "States": states})
    try:
        return states_engine.program(text)
    except Exception as error:  # noqa: BLE001 - whatever the parser raises refuses the definition
        raise Refused("InvalidDefinition", f"Invalid State Machine Definition: '{error}'") from None


def _targets(state: Mapping[str, Any]) -> list[str]:
    from .states_validation import targets

    return [target for target, _ in targets(state)]


def tried(data: Mapping[str, Any], account: str, region: str) -> dict[str, Any]:
    """The answer of TestState."""
    level = data.get("inspectionLevel") or "INFO"
    check_enum("inspectionLevel", level, LEVELS)
    value = parsed("input", data.get("input") or "{}", "Invalid input: it must be valid JSON")
    name, state = chosen(str(data.get("definition") or ""), data.get("stateName"))
    check_mock(state, data)
    configuration, mock, given = data.get("stateConfiguration") or {}, data.get("mock"), context(data, state)
    variables = parsed("variables", data.get("variables") or "{}", "Invalid variables: they must be valid JSON")
    component = program(name, state).states.states[name]
    env = environment(data, value, given, account, region)
    for variable, content in variables.items():
        env.variable_store.set(variable_identifier=variable, variable_value=content)
    steps = Steps(name, value, state)
    give(component, given)
    if mock is not None:
        if state["Type"] == "Task" and "result" in mock:
            told = problem(component, json.loads(mock["result"]), mock.get("fieldValidationMode") or "STRICT")
            if told is not None:
                raise invalid(told)
        mocked(component, mock, state, configuration, given)
    watch(component, steps, configuration)
    evaluate(component, env, steps)
    answer = steps.answer(env)
    if level != "INFO":
        answer["inspectionData"] = steps.shown(env)
    return answer


def evaluate(component: Any, env: Any, steps: Steps) -> None:
    """Evaluate the state in this thread; what it ends with is in ``steps``."""
    from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import FailureEventException

    def late() -> None:
        env.set_timed_out()
        states_waits.wake(env)

    clock = threading.Timer(SECONDS, late)
    clock.daemon = True
    clock.start()
    env.next_state_name = component.name
    try:
        component.eval(env)
    except FailureEventException as error:
        failed = error.get_execution_failed_event_details() or {}
        steps.failed(failed.get("error"), failed.get("cause"))
    except states_waits.Stopped:
        if steps.status is None:
            steps.failed("States.Timeout", None)
    except Exception as error:  # noqa: BLE001 - as in an execution
        steps.failed("States.Runtime", f"{type(error).__name__}({error})")
    finally:
        clock.cancel()
        states_waits.wake(env)


def install() -> None:
    from ministack.core.responses import get_account_id, get_region
    from ministack.services import stepfunctions as sfn

    _ = sfn._test_state

    @refusable
    def test_state(data: dict[str, Any]) -> Response:
        return json_answer(tried(data, get_account_id(), get_region()))

    sfn._test_state = test_state
