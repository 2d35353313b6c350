"""Lists of executions and Map runs, and child executions that are stopped."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from botocore.exceptions import ClientError

from labkit import facts

from .conftest import Aws
from .lambda_kit import until
from .rows import row
from .states_kit import GUIDE, MODEL, RECORDED, REFERENCE, States, inside, one, refused

STANDARD = {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}


@pytest.fixture
def states(aws: Aws) -> States:
    return States(aws)


def waiting_map(states: States, queue: str, kind: str = "STANDARD", **more: Any) -> dict[str, Any]:
    """A Map whose children wait for their callbacks."""
    processor = {"ProcessorConfig": {**STANDARD, "ExecutionType": kind}, **inside(states.task(queue))}
    return {"Type": "Map", "ItemProcessor": processor, **more}


def run_of(states: States, execution: str) -> str:
    [listed] = until(lambda: states.api.list_map_runs(executionArn=execution)["mapRuns"])
    return str(listed["mapRunArn"])


def children(states: States, run: str, number: int, **more: str) -> list[dict[str, Any]]:
    def look() -> list[dict[str, Any]] | None:
        found = states.api.list_executions(mapRunArn=run, **more)["executions"]
        return list(found) if len(found) == number else None

    return until(look)


def answered(states: States, token: str) -> str:
    """What SendTaskSuccess says to a token: "taken", or the code of its refusal."""
    try:
        states.api.send_task_success(taskToken=token, output='"done"')
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "taken"


@row("sfn.list.order", "Running executions are listed by their start, the others by their end", source=MODEL)
def test_order(states: States) -> None:
    queue = states.queue()
    machine = states.machine(one(states.task(queue)))
    first = states.start(machine)
    token = states.token(queue)
    second = states.start(machine)
    late = states.token(queue)
    third = states.start(machine)

    def listed(**more: str) -> list[str]:
        found = states.api.list_executions(stateMachineArn=machine, **more)["executions"]
        return [item["executionArn"] for item in found]

    assert listed() == [third, second, first]
    states.api.send_task_success(taskToken=late, output="1")
    states.ended(second)
    states.api.send_task_success(taskToken=token, output="1")
    states.ended(first)
    assert listed() == [first, second, third]
    assert listed(statusFilter="SUCCEEDED") == [first, second]
    states.api.stop_execution(executionArn=third)
    assert listed()[0] == third


@row("sfn.list.filters", "With a state machine there is no filter for redrives", source=MODEL)
def test_filters(states: States) -> None:
    machine = states.machine(one({"Type": "Pass"}))
    for more in ({"redriveFilter": "NOT_REDRIVEN"}, {"statusFilter": "PENDING_REDRIVE"}):
        assert refused(states.api.list_executions, stateMachineArn=machine, **more)[0] == "ValidationException"
    run = run_of(states, states.run(one({"Type": "Map", "ItemProcessor": {
        "ProcessorConfig": STANDARD, **inside({"Type": "Pass"})}}), [1])["executionArn"])  # fmt: skip
    assert len(states.api.list_executions(mapRunArn=run, redriveFilter="NOT_REDRIVEN")["executions"]) == 1
    assert states.api.list_executions(mapRunArn=run, statusFilter="PENDING_REDRIVE")["executions"] == []


@row("sfn.map_run.arns", "Calls about Map runs refuse what is no ARN of theirs", source=REFERENCE)
def test_arns(states: States) -> None:
    machine = states.machine(one({"Type": "Pass"}))
    execution = states.start(machine)
    for arn in ("nonsense", machine, execution):
        for call in (states.api.describe_map_run, states.api.list_executions):
            assert refused(call, mapRunArn=arn)[0] == "InvalidArn"
    for arn in ("nonsense", machine):
        assert refused(states.api.list_map_runs, executionArn=arn)[0] == "InvalidArn"
    unknown = states.aws.arn("states", f"mapRun:m/l:{uuid.uuid4()}")
    for call in (states.api.describe_map_run, states.api.list_executions):
        assert refused(call, mapRunArn=unknown)[0] == "ResourceNotFound"
    assert refused(states.api.list_map_runs, executionArn=f"{execution}x")[0] == "ExecutionDoesNotExist"


@row("sfn.map_run.pages", "Map runs of an execution come in pages", source=REFERENCE)
def test_pages(states: States) -> None:
    mapped = {"Type": "Map", "ItemProcessor": {"ProcessorConfig": STANDARD, **inside({"Type": "Pass"}, "In")}}
    definition = {"StartAt": "A", "States": {"A": {**mapped, "Next": "B"}, "B": {"Type": "Map", "End": True,
        "ItemProcessor": {"ProcessorConfig": STANDARD, **inside({"Type": "Pass"})}}}}  # fmt: skip
    arn = states.run(definition, [1])["executionArn"]
    whole = [run["mapRunArn"] for run in states.api.list_map_runs(executionArn=arn)["mapRuns"]]
    assert len(set(whole)) == 2
    page = states.api.list_map_runs(executionArn=arn, maxResults=1)
    rest = states.api.list_map_runs(executionArn=arn, maxResults=1, nextToken=page["nextToken"])
    assert [run["mapRunArn"] for run in (*page["mapRuns"], *rest["mapRuns"])] == whole
    assert "nextToken" not in rest
    assert refused(states.api.list_map_runs, executionArn=arn, nextToken="no token")[0] == "InvalidToken"


@row(
    "sfn.map.stop_child",
    "A child of a Map run can be stopped, and the others go on",
    source=f"{REFERENCE}: StopExecution",
)
def test_stop_child(states: States) -> None:
    queue = states.queue()
    arn = states.start(states.machine(one(waiting_map(states, queue))), ["a", "b"])
    tokens = [states.token(queue), states.token(queue)]
    both = children(states, run_of(states, arn), 2)
    [stopped] = [child for child in both if states.api.describe_execution(
        executionArn=child["executionArn"])["input"] == '"a"']  # fmt: skip
    states.api.stop_execution(executionArn=stopped["executionArn"], error="Enough", cause="seen")
    found = states.api.describe_execution(executionArn=stopped["executionArn"])
    assert (found["status"], found["error"], found["cause"]) == ("ABORTED", "Enough", "seen")
    last = states.history(stopped["executionArn"])[-1]
    assert (last["type"], last["executionAbortedEventDetails"]) == (
        "ExecutionAborted",
        {"error": "Enough", "cause": "seen"},
    )
    assert sorted(answered(states, token) for token in tokens) == sorted([facts("sfn.token.late_error"), "taken"])
    states.ended(arn)
    counts = states.api.describe_map_run(mapRunArn=run_of(states, arn))["executionCounts"]
    assert (counts["aborted"], counts["succeeded"], counts["running"]) == (1, 1, 0)


@row(
    "sfn.express.stop_child",
    "An Express child cannot be stopped",
    source=f"{RECORDED}/test_sfn_api_express; {REFERENCE}: StopExecution",
)
def test_stop_express_child(states: States) -> None:
    processor = {"ProcessorConfig": {**STANDARD, "ExecutionType": "EXPRESS"}, **inside({"Type": "Wait", "Seconds": 1})}
    arn = states.start(states.machine(one({"Type": "Map", "ItemProcessor": processor})), [1])
    [child] = children(states, run_of(states, arn), 1)
    code, message = refused(states.api.stop_execution, executionArn=child["executionArn"])
    assert (code, message) == ("InvalidArn", "Invalid Arn: 'Resource type not valid in this context: express'")
    assert states.ended(arn)["status"] == "SUCCEEDED"


@row(
    "sfn.history.child",
    "A child execution has 25,000 events at most",
    source=f"{GUIDE}: Avoid reaching the history quota",
)
def test_child_history(states: States) -> None:
    most = int(facts("sfn.history.max_events"))
    rule = {"Variable": "$.stop", "BooleanEquals": True, "Next": "C"}
    loop = {
        "StartAt": "A",
        "States": {
            "A": {"Type": "Pass", "Next": "B"},
            "B": {"Type": "Choice", "Choices": [rule], "Default": "A"},
            "C": {"Type": "Succeed"},
        },
    }
    state = {"Type": "Map", "ItemProcessor": {"ProcessorConfig": STANDARD, **loop}}
    arn = states.start(states.machine(one(state)), [{"stop": False}])
    assert states.ended(arn, within=100)["status"] == "FAILED"
    [child] = children(states, run_of(states, arn), 1)
    found = states.api.describe_execution(executionArn=child["executionArn"])
    assert (found["status"], found["error"]) == ("FAILED", "States.Runtime")
    history = states.api.get_execution_history
    [last] = history(executionArn=child["executionArn"], reverseOrder=True, maxResults=1)["events"]
    assert (last["id"], last["type"]) == (most, "ExecutionFailed")
    assert last["executionFailedEventDetails"]["error"] == "States.Runtime"
