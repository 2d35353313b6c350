"""Executions: their histories, their names, their limits, their ends, the events about them."""

from __future__ import annotations

import json

import pytest

from .conftest import Aws
from .events_kit import Events
from .lambda_kit import until
from .rows import row
from .states_kit import GUIDE, MODEL, RECORDED, REFERENCE, States, constant, one, refused

API = f"{RECORDED}/test_sfn_api"
LOOP = {"StartAt": "I", "States": {"I": {"Type": "Pass", "End": True}}}


@pytest.fixture
def states(aws: Aws) -> States:
    return States(aws)


@row("sfn.definition", "A definition that is none is refused with InvalidDefinition", source=API)
def test_definition(states: States) -> None:
    client = states.unchecked()
    for text in (json.dumps({"StartAt": "T"}), json.dumps(one({"Type": "Unknown"})), "not JSON"):
        code, message = refused(client.create_state_machine, name="bad", definition=text, roleArn=states.role)
        assert code == "InvalidDefinition"
        assert message.startswith("Invalid State Machine Definition: '")
    machine = states.machine(one({"Type": "Pass"}))
    assert refused(client.update_state_machine, stateMachineArn=machine, definition="{}")[0] == "InvalidDefinition"


@row("sfn.names.escaped", "A name that is escaped in the definition is shown as it is meant", source=REFERENCE)
def test_escaped_names(states: States) -> None:
    definition = {
        "StartAt": "prüfen",
        "States": {
            "prüfen": {"Type": "Pass", "Result": {"größe": "ä\n"}, "Next": "完了"},
            "完了": {"Type": "Succeed"},
        },
    }
    machine = states.machine(json.dumps(definition, ensure_ascii=True))
    run = states.api.start_execution(stateMachineArn=machine)["executionArn"]
    until(lambda: states.api.describe_execution(executionArn=run)["status"] == "SUCCEEDED")
    names = [event["stateEnteredEventDetails"]["name"] for event in states.history(run) if "Entered" in event["type"]]
    assert names == ["prüfen", "完了"]
    assert json.loads(states.api.describe_execution(executionArn=run)["output"]) == {"größe": "ä\n"}


@row("sfn.history.order", "Each event has the next id and names the one that it follows", source=f"{RECORDED}/base")
def test_history(states: States) -> None:
    definition = {
        "StartAt": "First",
        "States": {
            "First": {"Type": "Pass", "Result": 2, "ResultPath": "$.n", "Next": "Which"},
            "Which": {
                "Type": "Choice",
                "Choices": [{"Variable": "$.n", "NumericGreaterThan": 1, "Next": "Last"}],
                "Default": "Wrong",
            },
            "Wrong": {"Type": "Fail"},
            "Last": {"Type": "Succeed"},
        },
    }
    run = states.run(definition)
    events = states.history(run)
    assert [(event["id"], event["previousEventId"], event["type"]) for event in events] == [
        (1, 0, "ExecutionStarted"),
        (2, 0, "PassStateEntered"),
        (3, 2, "PassStateExited"),
        (4, 3, "ChoiceStateEntered"),
        (5, 4, "ChoiceStateExited"),
        (6, 5, "SucceedStateEntered"),
        (7, 6, "SucceedStateExited"),
        (8, 7, "ExecutionSucceeded"),
    ]
    assert json.loads(events[-1]["executionSucceededEventDetails"]["output"]) == {"n": 2}


@row(
    "sfn.history.map",
    "The events of an inline Map: the state, its length, an iteration for each item",
    source=f"{RECORDED}/scenarios/test_base_scenarios",
)
def test_history_of_a_map(states: States) -> None:
    run = states.run(one({"Type": "Map", "MaxConcurrency": 1, "ItemProcessor": LOOP}), [7, 8])
    events = states.history(run)
    iteration = ["MapIterationStarted", "PassStateEntered", "PassStateExited", "MapIterationSucceeded"]
    assert [event["type"] for event in events] == [
        "ExecutionStarted",
        "MapStateEntered",
        "MapStateStarted",
        *iteration,
        *iteration,
        "MapStateSucceeded",
        "MapStateExited",
        "ExecutionSucceeded",
    ]
    assert events[2]["mapStateStartedEventDetails"] == {"length": 2}
    assert [events[at]["mapIterationStartedEventDetails"] for at in (3, 7)] == [
        {"name": "T", "index": 0},
        {"name": "T", "index": 1},
    ]
    assert json.loads(run["output"]) == [7, 8]


@row(
    "sfn.history.parallel",
    "The branches of a Parallel follow its start, and the output has theirs in order",
    source=f"{RECORDED}/scenarios/test_base_scenarios",
)
def test_history_of_branches(states: States) -> None:
    branches = [{"StartAt": name, "States": {name: constant(name)}} for name in ("A", "B")]
    run = states.run(one({"Type": "Parallel", "Branches": branches}))
    events = states.history(run)
    assert json.loads(run["output"]) == ["A", "B"]
    started = next(event["id"] for event in events if event["type"] == "ParallelStateStarted")
    entered = [event for event in events if event["type"] == "PassStateEntered"]
    assert [event["previousEventId"] for event in entered] == [started, started]
    assert [event["type"] for event in events][-3:] == [
        "ParallelStateSucceeded",
        "ParallelStateExited",
        "ExecutionSucceeded",
    ]


@row("sfn.history.pages", "A history comes in pages, also in reverse order", source=f"{API}; {REFERENCE}")
def test_pages(states: States) -> None:
    arn = states.run(one({"Type": "Pass"}))["executionArn"]
    pages = states.api.get_paginator("get_execution_history").paginate(
        executionArn=arn, reverseOrder=True, PaginationConfig={"PageSize": 2}
    )
    assert [[event["id"] for event in page["events"]] for page in pages] == [[4, 3], [2, 1]]


@row("sfn.start.idempotent", "A running execution is started again by its name and input", source=API)
def test_idempotent(states: States) -> None:
    machine = states.machine(one(states.task(states.queue())))
    first, again = (
        states.api.start_execution(stateMachineArn=machine, name="order-1", input='{"n":1}') for _ in range(2)
    )
    assert first["executionArn"] == again["executionArn"] == machine.replace("stateMachine", "execution") + ":order-1"
    assert first["startDate"] == again["startDate"]
    states.api.stop_execution(executionArn=first["executionArn"])


@row(
    "sfn.start.exists",
    "Another input, or the name of an execution that ended, is ExecutionAlreadyExists",
    source=f"{API}; {REFERENCE}",
)
def test_exists(states: States) -> None:
    machine = states.machine(one(states.task(states.queue())))
    arn = states.start(machine, {"n": 1}, name="order-1")
    error = ("ExecutionAlreadyExists", f"Execution Already Exists: '{arn}'")
    start = states.api.start_execution
    assert refused(start, stateMachineArn=machine, name="order-1", input='{"n":2}') == error
    states.api.stop_execution(executionArn=arn)
    assert states.ended(arn)["status"] == "ABORTED"
    assert refused(start, stateMachineArn=machine, name="order-1", input='{"n":1}') == error


@row("sfn.start.input", "An input that is not JSON is InvalidExecutionInput", source=API)
def test_input(states: States) -> None:
    machine = states.machine(one({"Type": "Pass"}))
    for text in ("not some json", "{'not': 'json'}", ""):
        code, message = refused(states.api.start_execution, stateMachineArn=machine, input=text)
        assert code == "InvalidExecutionInput"
        assert message.startswith("Invalid State Machine Execution Input: '")
    arn = states.api.start_execution(stateMachineArn=machine, input="2")["executionArn"]
    assert states.ended(arn)["output"] == "2"


@row("sfn.start.size", "The input of an execution has at most 262,144 bytes", source=MODEL)
def test_size(states: States) -> None:
    machine = states.machine(one({"Type": "Pass", "Result": 1}))
    most = json.dumps("x" * (262_144 - 2))
    client = states.unchecked()
    code, message = refused(client.start_execution, stateMachineArn=machine, input=f"{most} ")
    assert code == "ValidationException"
    assert "'input' failed to satisfy constraint" in message
    arn = client.start_execution(stateMachineArn=machine, input=most)["executionArn"]
    assert states.ended(arn)["status"] == "SUCCEEDED"


@row("sfn.start.name", "An execution's name has no white space, brackets, wildcards or such", source=REFERENCE)
def test_name(states: States) -> None:
    machine = states.machine(one({"Type": "Pass"}))
    for name in ("a b", "a:b", "a/b", "a*", "<a>", "#1"):
        code, _ = refused(states.unchecked().start_execution, stateMachineArn=machine, name=name)
        assert code == "InvalidName"
    assert states.start(machine, name="order_1-2.3").endswith(":order_1-2.3")


@row("sfn.start.machine", "Starting what does not exist is StateMachineDoesNotExist", source=API)
def test_machine(states: States) -> None:
    arn = states.aws.arn("states", "stateMachine:none")
    assert refused(states.api.start_execution, stateMachineArn=arn) == (
        "StateMachineDoesNotExist",
        f"State Machine Does Not Exist: '{arn}'",
    )


@row("sfn.execution.unknown", "What never was started is ExecutionDoesNotExist", source=API)
def test_unknown(states: States) -> None:
    arn = states.aws.arn("states", "execution:none:none")
    error = ("ExecutionDoesNotExist", f"Execution Does Not Exist: '{arn}'")
    for call in (states.api.describe_execution, states.api.get_execution_history, states.api.stop_execution):
        assert refused(call, executionArn=arn) == error


@row("sfn.stop.history", "StopExecution ends a Wait; nothing follows ExecutionAborted", source=API)
def test_stop(states: States) -> None:
    arn = states.start(states.machine(one({"Type": "Wait", "Seconds": 60})))
    until(lambda: "WaitStateEntered" in states.types(arn))
    states.api.stop_execution(executionArn=arn)
    assert states.ended(arn)["status"] == "ABORTED"
    events = states.history(arn)
    assert [(event["id"], event["previousEventId"], event["type"]) for event in events] == [
        (1, 0, "ExecutionStarted"),
        (2, 0, "WaitStateEntered"),
        (3, 0, "ExecutionAborted"),
    ]


@row("sfn.timeout", "TimeoutSeconds of a definition ends the execution as TIMED_OUT", source=GUIDE)
def test_timeout(states: States) -> None:
    run = states.run(one({"Type": "Wait", "Seconds": 60}, TimeoutSeconds=1))
    assert run["status"] == "TIMED_OUT"
    assert states.types(run)[-1] == "ExecutionTimedOut"


@row("sfn.delete.twice", "Deleting a state machine that does not exist is no error", source=API)
def test_delete(states: States) -> None:
    machine = states.machine(one({"Type": "Pass"}))
    for _ in range(2):
        states.api.delete_state_machine(stateMachineArn=machine)
    assert refused(states.api.start_execution, stateMachineArn=machine)[0] == "StateMachineDoesNotExist"


@row(
    "sfn.delete.executions",
    "Deleting a state machine ends its executions, and one that is made with its name begins without any",
    source=f"{MODEL} (DeleteStateMachine); its earlier text: executions are deleted with their next transition",
)
def test_delete_with_executions(states: States) -> None:
    definition = one({"Type": "Wait", "Seconds": 60})
    machine = states.machine(definition)
    waiting = states.start(machine)
    until(lambda: "WaitStateEntered" in states.types(waiting))
    described = states.api.describe_state_machine(stateMachineArn=machine)
    states.api.delete_state_machine(stateMachineArn=machine)
    again = states.api.create_state_machine(
        name=described["name"], definition=described["definition"], roleArn=states.role
    )["stateMachineArn"]
    assert again == machine
    assert states.api.list_executions(stateMachineArn=again)["executions"] == []
    assert states.start(again, name=waiting.rpartition(":")[2]) == waiting


@row("sfn.list", "Executions are listed by status, the last one first", source=f"{API}; {REFERENCE}")
def test_list(states: States) -> None:
    machine = states.machine({"StartAt": "T", "States": {"T": {"Type": "Choice", "Choices": [
        {"Variable": "$", "BooleanEquals": True, "Next": "S"}], "Default": "F"},
        "S": {"Type": "Succeed"}, "F": {"Type": "Fail"}}})  # fmt: skip
    arns = []
    for value in (True, False, True):
        arns.append(states.start(machine, value))
        states.ended(arns[-1])

    def listed(**more: str) -> list[str]:
        found = states.api.list_executions(stateMachineArn=machine, **more)["executions"]
        assert all(item["redriveCount"] == 0 for item in found)
        return [item["executionArn"] for item in found]

    assert listed() == arns[::-1]
    assert listed(statusFilter="FAILED") == [arns[1]]
    assert listed(statusFilter="RUNNING") == []


@row("sfn.tags", "The tags of a state machine can be read and changed", source=f"{RECORDED}/test_sfn_api_tagging")
def test_tags(states: States) -> None:
    machine = states.machine(one({"Type": "Pass"}))
    states.api.tag_resource(resourceArn=machine, tags=[{"key": "a", "value": "1"}, {"key": "b", "value": "2"}])
    states.api.untag_resource(resourceArn=machine, tagKeys=["a"])
    assert states.api.list_tags_for_resource(resourceArn=machine)["tags"] == [{"key": "b", "value": "2"}]


@row(
    "sfn.events",
    "The default bus gets «Step Functions Execution Status Change» at the start and the end of an execution",
    source=f"{GUIDE}: Automating event delivery",
)
def test_events(states: States) -> None:
    events = Events(states.aws)
    queue = events.queue("status")
    rule = events.rule(pattern={"source": ["aws.states"]})
    events.target(rule, queue.arn)
    run = states.run(one({"Type": "Fail", "Error": "Broken", "Cause": "so it is"}), {"n": 1})
    found = {event["detail"]["status"]: event for event in events.events(queue, 2)}
    assert set(found) == {"RUNNING", "FAILED"}
    for event in found.values():
        assert event["detail-type"] == "Step Functions Execution Status Change"
        assert event["resources"] == [run["executionArn"]]
        assert event["detail"]["executionArn"] == run["executionArn"]
        assert json.loads(event["detail"]["input"]) == {"n": 1}
        assert event["detail"]["startDate"] == round(run["startDate"].timestamp() * 1000)
    last = found["FAILED"]["detail"]
    assert (last["error"], last["cause"], last["output"]) == ("Broken", "so it is", None)
    assert last["stopDate"] == round(run["stopDate"].timestamp() * 1000)
    assert found["RUNNING"]["detail"]["stopDate"] is None


@row("sfn.events.target", "A rule starts a state machine with the event as its input", source=f"{GUIDE}")
def test_target(states: States) -> None:
    events = Events(states.aws)
    machine = states.machine(one({"Type": "Pass"}))
    rule = events.rule()
    events.target(rule, machine, RoleArn=states.role)
    event = events.put({"n": 1})
    listed = until(lambda: states.api.list_executions(stateMachineArn=machine)["executions"])
    got = json.loads(states.ended(listed[0]["executionArn"])["output"])
    assert (got["id"], got["detail"]) == (event, {"n": 1})
