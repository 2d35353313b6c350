"""RedriveExecution: from where an execution stood, with what it had done."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

from .conftest import Aws
from .events_kit import Events
from .lambda_kit import until
from .rows import row
from .states_kit import GUIDE, MODEL, States, one, refused

SEEN = "recorded on AWS: radkawar/stackd testdata/aws/stepfunctions/redrive_execution.json"
SEEN_MAP = "recorded on AWS: radkawar/stackd testdata/aws/stepfunctions/redrive_map.json"


@pytest.fixture
def states(aws: Aws) -> States:
    return States(aws)


def fail(states: States, token: str) -> None:
    states.api.send_task_failure(taskToken=token, error="Probe", cause="why")


def succeed(states: States, token: str, output: Any) -> None:
    states.api.send_task_success(taskToken=token, output=json.dumps(output))


def failed(states: States, **more: Any) -> tuple[str, str, str]:
    """An execution whose second state failed: its ARN, the dead token, its queue."""
    queue = states.queue()
    task = {**states.task(queue, **more), "ResultPath": "$.work", "End": True}
    first = {"Type": "Pass", "Result": 1, "ResultPath": "$.first", "Next": "Work"}
    arn = states.start(states.machine({"StartAt": "First", "States": {"First": first, "Work": task}}), {"n": 7})
    token = states.token(queue)
    fail(states, token)
    assert states.ended(arn)["status"] == "FAILED"
    return arn, token, queue


def trail(states: States, arn: str) -> list[tuple[int, int, str]]:
    return [(event["id"], event["previousEventId"], event["type"]) for event in states.history(arn)]


@row(
    "sfn.redrive.state",
    "A redrive goes on in the state that failed, with its input, after ExecutionRedriven and without entering it again",
    source=SEEN,
)
def test_state(states: States) -> None:
    arn, token, queue = failed(states)
    before = states.history(arn)
    assert states.api.describe_execution(executionArn=arn)["redriveStatus"] == "REDRIVABLE"
    states.api.redrive_execution(executionArn=arn)
    running = states.api.describe_execution(executionArn=arn)
    assert (running["status"], running["redriveCount"]) == ("RUNNING", 1)
    assert running["redriveStatusReason"] == "Execution is RUNNING and cannot be redriven"
    assert not {"stopDate", "error", "cause"} & set(running)
    fresh = states.token(queue)
    assert refused(states.api.send_task_success, taskToken=token, output="1")[0] == "TaskTimedOut"
    succeed(states, fresh, 2)
    run = states.ended(arn)
    assert json.loads(run["output"]) == {"n": 7, "first": 1, "work": 2}
    events = states.history(arn)
    assert events[: len(before)] == before
    entered = next(event["id"] for event in events if event["type"] == "TaskStateEntered")
    assert [(e["previousEventId"], e["type"]) for e in events[len(before) : len(before) + 2]] == [
        (len(before), "ExecutionRedriven"),
        (entered, "TaskScheduled"),
    ]
    assert events[len(before)]["executionRedrivenEventDetails"] == {"redriveCount": 1}
    kinds = [event["type"] for event in events]
    assert (kinds.count("TaskStateEntered"), kinds.count("PassStateEntered")) == (1, 1)
    assert kinds[-2:] == ["TaskStateExited", "ExecutionSucceeded"]


@row("sfn.redrive.again", "A redrive that fails can be redriven; retries count anew, and so does the time", source=SEEN)
def test_again(states: States) -> None:
    retry = [{"ErrorEquals": ["Probe"], "MaxAttempts": 1, "IntervalSeconds": 1, "BackoffRate": 1}]
    queue = states.queue()
    arn = states.start(states.machine(one(states.task(queue, Retry=retry))))
    for count in range(1, 3):
        for _ in range(2):
            fail(states, states.token(queue))
        assert states.ended(arn)["status"] == "FAILED"
        states.api.redrive_execution(executionArn=arn)
        assert states.api.describe_execution(executionArn=arn)["redriveCount"] == count
    succeed(states, states.token(queue), "done")
    assert states.ended(arn)["output"] == '"done"'


@row("sfn.redrive.token", "A client token that redrove is answered again; of two redrives one wins", source=SEEN)
def test_token(states: States) -> None:
    arn, _, queue = failed(states)
    redrive = states.api.redrive_execution
    first = redrive(executionArn=arn, clientToken="A")["redriveDate"]
    assert redrive(executionArn=arn, clientToken="A")["redriveDate"] == first
    assert refused(redrive, executionArn=arn, clientToken="B") == (
        "ExecutionNotRedrivable",
        f"Execution {arn} invalid for redrive as: Execution is RUNNING and cannot be redriven",
    )
    fail(states, states.token(queue))
    states.ended(arn)
    assert redrive(executionArn=arn, clientToken="A")["redriveDate"] == first
    assert states.api.describe_execution(executionArn=arn)["redriveCount"] == 1

    def attempt(number: int) -> str:
        try:
            redrive(executionArn=arn, clientToken=f"C{number}")
        except ClientError as error:
            return str(error.response["Error"]["Code"])
        return "won"

    with ThreadPoolExecutor(8) as pool:
        found = sorted(pool.map(attempt, range(8)))
    assert found == ["ExecutionNotRedrivable"] * 7 + ["won"]
    succeed(states, states.token(queue), 1)
    states.ended(arn)
    reason = "Execution is SUCCEEDED and cannot be redriven"
    assert reason in refused(redrive, executionArn=arn, clientToken="D")[1]


@row("sfn.redrive.refused", "What is no Standard execution cannot be redriven", source=f"{SEEN}; {MODEL}")
def test_refused(states: States) -> None:
    redrive = states.api.redrive_execution
    missing = states.aws.arn("states", "execution:none:none")
    assert refused(redrive, executionArn=missing) == (
        "ExecutionDoesNotExist",
        f"Execution Does Not Exist: '{missing}'",
    )
    assert refused(redrive, executionArn=states.aws.arn("states", "express:m:e:1"))[0] == "InvalidArn"
    assert refused(redrive, executionArn="none")[0] == "InvalidArn"


@row("sfn.redrive.stopped", "An aborted and a timed-out execution can be redriven, and stopped again", source=SEEN)
def test_stopped(states: States) -> None:
    queue = states.queue()
    arn = states.start(states.machine(one(states.task(queue), TimeoutSeconds=8)))
    states.token(queue)
    assert states.ended(arn)["status"] == "TIMED_OUT"
    states.api.redrive_execution(executionArn=arn)
    states.token(queue)
    states.api.stop_execution(executionArn=arn, error="E")
    assert states.ended(arn)["status"] == "ABORTED"
    states.api.redrive_execution(executionArn=arn)
    succeed(states, states.token(queue), 1)
    run = states.ended(arn)
    assert (run["status"], run["redriveCount"]) == ("SUCCEEDED", 2)
    assert "error" not in run


@row("sfn.redrive.fail", "A Fail state that is redriven fails again, after ExecutionRedriven", source=SEEN)
def test_fail(states: States) -> None:
    definition = {"StartAt": "F", "States": {"F": {"Type": "Fail", "Error": "E", "Cause": "c"}}}
    arn = states.run(definition)["executionArn"]
    states.api.redrive_execution(executionArn=arn)
    run = until(lambda: [r for r in [states.ended(arn)] if r["redriveCount"] == 1])[0]
    assert (run["status"], run["error"]) == ("FAILED", "E")
    assert trail(states, arn)[-2:] == [(4, 3, "ExecutionRedriven"), (5, 4, "ExecutionFailed")]


@row("sfn.redrive.parallel", "Only the branches that failed or were aborted are run again", source=SEEN)
def test_parallel(states: States) -> None:
    queues = [states.queue(name) for name in ("good", "bad", "other")]
    branches = [
        {"StartAt": f"B{number}", "States": {f"B{number}": {**states.task(queue), "End": True}}}
        for number, queue in enumerate(queues)
    ]
    arn = states.start(states.machine(one({"Type": "Parallel", "Branches": branches})))
    good, bad, other = (states.token(queue) for queue in queues)
    succeed(states, good, "kept")
    until(lambda: "TaskStateExited" in states.types(arn))
    fail(states, bad)
    assert states.ended(arn)["status"] == "FAILED"
    before = len(states.history(arn))
    assert refused(states.api.send_task_success, taskToken=other, output="1")[0] == "TaskTimedOut"
    states.api.redrive_execution(executionArn=arn)
    for queue in queues[1:]:
        succeed(states, states.token(queue), "new")
    run = states.ended(arn)
    assert json.loads(run["output"]) == ["kept", "new", "new"]
    added = [kind for _, _, kind in trail(states, arn)[before:]]
    assert "ParallelStateStarted" not in added
    assert "TaskStateEntered" not in added
    assert added.count("TaskScheduled") == 2


@row("sfn.redrive.map", "Of an inline Map the iterations run that did not succeed or begin", source=SEEN)
def test_map(states: States) -> None:
    queue = states.queue()
    processor = {"StartAt": "I", "States": {"I": {**states.task(queue), "End": True}}}
    definition = one({"Type": "Map", "MaxConcurrency": 1, "ItemProcessor": processor})
    arn = states.start(states.machine(definition), [0, 1, 2])
    succeed(states, states.token(queue), "kept")
    fail(states, states.token(queue))
    assert states.ended(arn)["status"] == "FAILED"
    before = len(states.history(arn))
    states.api.redrive_execution(executionArn=arn)
    for output in ("new", "last"):
        succeed(states, states.token(queue), output)
    assert json.loads(states.ended(arn)["output"]) == ["kept", "new", "last"]
    added = [kind for _, _, kind in trail(states, arn)[before:]]
    assert "MapStateStarted" not in added
    assert added.count("MapIterationStarted") == 1
    assert added.count("MapIterationSucceeded") == 2


@row("sfn.redrive.map_run", "A redrive of a failed Map run redrives the children that did not succeed", source=SEEN_MAP)
def test_map_run(states: States) -> None:
    queue = states.queue()
    processor = {
        "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"},
        "StartAt": "I",
        "States": {"I": {**states.task(queue), "End": True}},
    }
    definition = one({"Type": "Map", "MaxConcurrency": 1, "ItemProcessor": processor})
    arn = states.start(states.machine(definition), [0, 1, 2])
    succeed(states, states.token(queue), "kept")
    fail(states, states.token(queue))
    assert states.ended(arn)["error"] == "States.ExceedToleratedFailureThreshold"
    [run] = states.api.list_map_runs(executionArn=arn)["mapRuns"]
    listing = {"mapRunArn": run["mapRunArn"]}
    children = states.api.list_executions(**listing)["executions"]
    assert [child["status"] for child in children] == ["FAILED", "SUCCEEDED"]
    child = states.api.describe_execution(executionArn=children[0]["executionArn"])
    assert (child["redriveStatus"], child["error"]) == ("REDRIVABLE_BY_MAP_RUN", "Probe")
    counts = states.api.describe_map_run(**listing)["itemCounts"]
    assert [counts[name] for name in ("succeeded", "failed", "pending", "total")] == [1, 1, 1, 3]
    before = len(states.history(arn))
    states.api.redrive_execution(executionArn=arn)
    for output in ("new", "last"):
        succeed(states, states.token(queue), output)
    assert json.loads(states.ended(arn)["output"]) == ["kept", "new", "last"]
    started = next(event["id"] for event in states.history(arn) if event["type"] == "MapStateStarted")
    assert trail(states, arn)[before : before + 2] == [
        (before + 1, before, "ExecutionRedriven"),
        (before + 2, started, "MapRunRedriven"),
    ]
    found = states.api.describe_map_run(**listing)
    assert (found["status"], found["redriveCount"], found["itemCounts"]["succeeded"]) == ("SUCCEEDED", 1, 3)
    [redriven] = states.api.list_executions(**listing, redriveFilter="REDRIVEN")["executions"]
    assert redriven["executionArn"] == child["executionArn"]
    kinds = states.types(redriven)
    assert kinds.count("TaskStateEntered") == kinds.count("ExecutionRedriven") == 1


@row("sfn.redrive.context", "The context object counts the redrives and says when the last was", source=SEEN)
def test_context(states: States) -> None:
    queue = states.queue()
    said = {**states.task(queue), "Next": "Say"}
    say = {"Type": "Pass", "Parameters": {"execution.$": "$$.Execution"}, "End": True}
    arn = states.start(states.machine({"StartAt": "T", "States": {"T": said, "Say": say}}))
    fail(states, states.token(queue))
    states.ended(arn)
    states.api.redrive_execution(executionArn=arn)
    succeed(states, states.token(queue), {})
    execution = json.loads(states.ended(arn)["output"])["execution"]
    assert (execution["RedriveCount"], execution["Id"]) == (1, arn)
    assert execution["RedriveTime"] > execution["StartTime"]


@row("sfn.redrive.many", "Two hundred executions redriven at once all go on", source=f"{GUIDE}: redrive")
def test_many(states: States) -> None:
    machine = states.machine({"StartAt": "F", "States": {"F": {"Type": "Fail", "Error": "E"}}})
    arns = [states.start(machine) for _ in range(200)]
    for arn in arns:
        states.ended(arn)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda arn: states.api.redrive_execution(executionArn=arn), arns))
    for arn in arns:
        assert states.ended(arn)["redriveCount"] == 1
        assert states.types(arn)[-2:] == ["ExecutionRedriven", "ExecutionFailed"]


@row("sfn.redrive.list", "ListExecutions filters by redrives in Map runs alone", source=f"{SEEN}; {GUIDE}")
def test_list(states: States) -> None:
    arn, _, _ = failed(states)
    states.api.redrive_execution(executionArn=arn)
    machine = states.api.describe_execution(executionArn=arn)["stateMachineArn"]
    [listed] = states.api.list_executions(stateMachineArn=machine)["executions"]
    assert listed["redriveCount"] == 1
    assert "redriveDate" in listed
    code, _ = refused(states.api.list_executions, stateMachineArn=machine, redriveFilter="REDRIVEN")
    assert code == "ValidationException"
    states.api.stop_execution(executionArn=arn)


@row(
    "sfn.redrive.map_run.stopped",
    "A stopped Map run is aborted with its children, which a redrive redrives under their ARNs",
    source=f"{SEEN_MAP}; {GUIDE}: Redriving Map Runs",
)
@pytest.mark.parametrize("kind", ["STANDARD", "EXPRESS"])
def test_stopped_map_run(states: States, kind: str) -> None:
    wait = {"Type": "Wait", "SecondsPath": "$.wait", "Next": "Done"}
    processor = {
        "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": kind},
        "StartAt": "I",
        "States": {"I": wait, "Done": {"Type": "Pass", "End": True}},
    }
    definition = one({"Type": "Map", "ItemProcessor": processor})
    arn = states.start(states.machine(definition), [{"wait": 0}, {"wait": 6}])
    [run] = until(lambda: states.api.list_map_runs(executionArn=arn)["mapRuns"])
    listing = {"mapRunArn": run["mapRunArn"]}

    def statuses() -> list[str]:
        return sorted(child["status"] for child in states.api.list_executions(**listing)["executions"])

    until(lambda: statuses() == ["RUNNING", "SUCCEEDED"])
    states.api.stop_execution(executionArn=arn)
    assert states.ended(arn)["status"] == "ABORTED"
    assert statuses() == ["ABORTED", "SUCCEEDED"]
    assert states.api.describe_map_run(**listing)["status"] == "ABORTED"
    [aborted] = states.api.list_executions(**listing, statusFilter="ABORTED")["executions"]
    assert run["mapRunArn"] in states.api.describe_execution(executionArn=aborted["executionArn"])["cause"]
    states.api.redrive_execution(executionArn=arn)
    assert states.ended(arn)["status"] == "SUCCEEDED"
    assert json.loads(states.ended(arn)["output"]) == [{"wait": 0}, {"wait": 6}]
    child = states.api.describe_execution(executionArn=aborted["executionArn"])
    assert (child["status"], child["redriveCount"]) == ("SUCCEEDED", int(kind == "STANDARD"))
    counts = states.api.describe_map_run(**listing)["executionCounts"]
    assert [counts[name] for name in ("succeeded", "aborted", "running", "pendingRedrive")] == [2, 0, 0, 0]


@row("sfn.redrive.wait", "A Wait that is redriven waits for all its seconds again", source=SEEN_MAP)
def test_wait(states: States) -> None:
    arn = states.start(states.machine(one({"Type": "Wait", "Seconds": 5})))
    until(lambda: "WaitStateEntered" in states.types(arn))
    states.api.stop_execution(executionArn=arn)
    states.ended(arn)
    states.api.redrive_execution(executionArn=arn)
    states.ended(arn)
    events = trail(states, arn)
    assert events[3:5] == [(4, 3, "ExecutionRedriven"), (5, 2, "WaitStateExited")]


@row(
    "sfn.redrive.events",
    "A redrive puts the event RUNNING, with its number and date",
    source=f"{GUIDE}: event delivery",
)
def test_events(states: States) -> None:
    events = Events(states.aws)
    queue = events.queue("status")
    events.target(events.rule(pattern={"source": ["aws.states"]}), queue.arn)
    arn = states.run({"StartAt": "F", "States": {"F": {"Type": "Fail", "Error": "E"}}})["executionArn"]
    states.api.redrive_execution(executionArn=arn)
    found = [event["detail"] for event in events.events(queue, 4)]
    seen = sorted((detail["redriveCount"], detail["status"], detail["redriveDate"] is None) for detail in found)
    assert seen == [(0, "FAILED", True), (0, "RUNNING", True), (1, "FAILED", False), (1, "RUNNING", False)]
    assert all(detail["stopDate"] is None for detail in found if detail["status"] == "RUNNING")
