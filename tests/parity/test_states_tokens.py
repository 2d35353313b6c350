"""Tasks that wait for a callback."""

from __future__ import annotations

import json
import time

import pytest

from .conftest import Aws
from .rows import row
from .states_kit import GUIDE, MODEL, RECORDED, REFERENCE, States, caught, inside, one, refused

CALLBACK = f"{RECORDED}/callback"
OVER = ("TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'")


@pytest.fixture
def states(aws: Aws) -> States:
    return States(aws)


@row("sfn.token.success", "SendTaskSuccess ends a task that waits with its output", source=CALLBACK)
def test_success(states: States) -> None:
    arn, token, _ = states.parked()
    states.api.send_task_success(taskToken=token, output='{"answer":1}')
    ended = states.ended(arn)
    assert (ended["status"], json.loads(ended["output"])) == ("SUCCEEDED", {"answer": 1})
    assert states.types(arn) == [
        "ExecutionStarted",
        "TaskStateEntered",
        "TaskScheduled",
        "TaskStarted",
        "TaskSubmitted",
        "TaskSucceeded",
        "TaskStateExited",
        "ExecutionSucceeded",
    ]


@row("sfn.token.failure", "SendTaskFailure fails the task with the error and the cause that it names", source=CALLBACK)
def test_failure(states: States) -> None:
    arn, token, _ = states.parked()
    states.api.send_task_failure(taskToken=token, error="Overloaded", cause="no worker")
    ended = states.ended(arn)
    assert (ended["status"], ended["error"], ended["cause"]) == ("FAILED", "Overloaded", "no worker")
    details = next(event for event in states.history(arn) if event["type"] == "TaskFailed")["taskFailedEventDetails"]
    assert (details["error"], details["cause"]) == ("Overloaded", "no worker")


@row("sfn.token.failure.caught", "A Catch matches the error that SendTaskFailure names", source=f"{GUIDE}")
def test_failure_caught(states: States) -> None:
    queue = states.queue()
    arn = states.start(states.machine(caught(states.task(queue), "Other", "Overloaded")))
    states.api.send_task_failure(taskToken=states.token(queue), error="Overloaded", cause="no worker")
    assert json.loads(states.ended(arn)["output"]) == "Overloaded"


@row("sfn.token.used", "A token whose task has ended is refused with TaskTimedOut", source=REFERENCE)
def test_used(states: States) -> None:
    arn, token, _ = states.parked()
    states.api.send_task_success(taskToken=token, output="1")
    states.ended(arn)
    assert refused(states.api.send_task_success, taskToken=token, output="2") == OVER
    assert refused(states.api.send_task_failure, taskToken=token) == OVER
    assert refused(states.api.send_task_heartbeat, taskToken=token) == OVER


@row("sfn.token.unknown", "A token that never was is refused with InvalidToken", source=f"{REFERENCE}; {MODEL}")
def test_unknown(states: States) -> None:
    for call, more in (
        (states.api.send_task_success, {"output": "1"}),
        (states.api.send_task_failure, {}),
        (states.api.send_task_heartbeat, {}),
    ):
        assert refused(call, taskToken="no token", **more)[0] == "InvalidToken"


@row("sfn.token.output", "An output that is not JSON is InvalidOutput; the task goes on waiting", source=REFERENCE)
def test_output(states: States) -> None:
    arn, token, _ = states.parked()
    assert refused(states.api.send_task_success, taskToken=token, output="not JSON")[0] == "InvalidOutput"
    assert states.api.describe_execution(executionArn=arn)["status"] == "RUNNING"
    states.api.send_task_success(taskToken=token, output='"better"')
    assert states.ended(arn)["output"] == '"better"'


@row("sfn.token.output.size", "The output of a task has at most 262,144 bytes", source=MODEL)
def test_output_size(states: States) -> None:
    arn, token, _ = states.parked()
    client = states.unchecked()
    most = json.dumps("x" * (262_144 - 2))
    code, message = refused(client.send_task_success, taskToken=token, output=f"{most} ")
    assert code == "ValidationException"
    assert "'output' failed to satisfy constraint" in message
    client.send_task_success(taskToken=token, output=most)
    assert states.ended(arn)["output"] == most


@row("sfn.token.attempt", "Each attempt has a token of its own; that of an earlier one is refused", source=GUIDE)
def test_attempt(states: States) -> None:
    queue = states.queue()
    retry = [{"ErrorEquals": ["States.Timeout"], "IntervalSeconds": 1, "MaxAttempts": 1}]
    arn = states.start(states.machine(one(states.task(queue, TimeoutSeconds=10, Retry=retry))))
    first, second = states.token(queue), states.token(queue)
    assert first != second
    assert refused(states.api.send_task_success, taskToken=first, output='"first"') == OVER
    states.api.send_task_success(taskToken=second, output='"second"')
    assert states.ended(arn)["output"] == '"second"'


@row("sfn.token.timeout", "A task that waits longer than TimeoutSeconds fails with States.Timeout", source=CALLBACK)
def test_timeout(states: States) -> None:
    arn, token, _ = states.parked(TimeoutSeconds=1)
    ended = states.ended(arn)
    assert (ended["status"], ended["error"]) == ("FAILED", "States.Timeout")
    assert states.types(arn)[-2:] == ["TaskTimedOut", "ExecutionFailed"]
    assert refused(states.api.send_task_success, taskToken=token, output="1") == OVER


@row(
    "sfn.heartbeat.missed",
    "A missed heartbeat is States.Timeout in the history",
    source=f"{RECORDED}/timeouts/test_heartbeats",
)
def test_heartbeat_missed(states: States) -> None:
    arn, token, _ = states.parked(HeartbeatSeconds=1)
    ended = states.ended(arn)
    assert (ended["status"], ended["error"]) == ("FAILED", "States.Timeout")
    details = [event.get("taskTimedOutEventDetails") for event in states.history(arn)][-2]
    assert details == {"error": "States.Timeout", "resource": "sendMessage.waitForTaskToken", "resourceType": "sqs"}
    assert refused(states.api.send_task_heartbeat, taskToken=token) == OVER


@row("sfn.heartbeat.caught", "A Catch may name a missed heartbeat States.HeartbeatTimeout", source=GUIDE)
def test_heartbeat_caught(states: States) -> None:
    queue = states.queue()
    task = states.task(queue, HeartbeatSeconds=1)
    arn = states.start(states.machine(caught(task, "States.HeartbeatTimeout", "States.Timeout")))
    assert json.loads(states.ended(arn)["output"]) == "States.HeartbeatTimeout"


@row("sfn.heartbeat.timeout", "A Catch of States.HeartbeatTimeout does not match TimeoutSeconds", source=GUIDE)
def test_heartbeat_other_timeout(states: States) -> None:
    task = states.task(states.queue(), TimeoutSeconds=1)
    arn = states.start(states.machine(caught(task, "States.HeartbeatTimeout", "States.Timeout")))
    assert json.loads(states.ended(arn)["output"]) == "States.Timeout"


@row("sfn.heartbeat.prolongs", "SendTaskHeartbeat begins HeartbeatSeconds anew", source=f"{CALLBACK}; {REFERENCE}")
def test_heartbeat_prolongs(states: States) -> None:
    arn, token, _ = states.parked(HeartbeatSeconds=6)
    for _ in range(5):  # longer than one window, and each beat well within one
        time.sleep(1.4)
        states.api.send_task_heartbeat(taskToken=token)
    assert states.api.describe_execution(executionArn=arn)["status"] == "RUNNING"
    states.api.send_task_success(taskToken=token, output="1")
    assert states.ended(arn)["status"] == "SUCCEEDED"


@row("sfn.heartbeat.bound", "Heartbeats do not prolong TimeoutSeconds", source=f"{REFERENCE}: SendTaskHeartbeat")
def test_heartbeat_bound(states: States) -> None:
    arn, token, _ = states.parked(HeartbeatSeconds=2, TimeoutSeconds=3)
    began = time.monotonic()
    while states.api.describe_execution(executionArn=arn)["status"] == "RUNNING":
        assert time.monotonic() - began < 60
        try:
            states.api.send_task_heartbeat(taskToken=token)
        except states.api.exceptions.TaskTimedOut:
            break
        time.sleep(0.3)
    assert states.ended(arn)["error"] == "States.Timeout"


@row("sfn.heartbeat.none", "Without HeartbeatSeconds a heartbeat is taken and changes nothing", source=GUIDE)
def test_heartbeat_none(states: States) -> None:
    arn, token, _ = states.parked(TimeoutSeconds=6)
    states.api.send_task_heartbeat(taskToken=token)
    assert states.ended(arn)["error"] == "States.Timeout"


@row("sfn.stop.parked", "StopExecution ends an execution that waits; its token is refused then", source=REFERENCE)
def test_stop(states: States) -> None:
    arn, token, _ = states.parked()
    states.api.stop_execution(executionArn=arn, error="Operator", cause="night")
    ended = states.ended(arn)
    assert (ended["status"], ended["error"], ended["cause"]) == ("ABORTED", "Operator", "night")
    last = states.history(arn)[-1]
    assert last["type"] == "ExecutionAborted"
    assert last["executionAbortedEventDetails"] == {"error": "Operator", "cause": "night"}
    assert refused(states.api.send_task_success, taskToken=token, output="1") == OVER
    assert states.types(arn)[-1] == "ExecutionAborted"


@row("sfn.token.quick", "A worker that answers at once is heard at once", source=f"{GUIDE}: wait for a callback")
def test_answered_at_once(states: States) -> None:
    """Also where the answer comes before the state has begun to count its heartbeats."""
    queue = states.queue()
    count = 40
    body = {"Type": "Map", "MaxConcurrency": 1, "ItemProcessor": inside(states.task(queue, HeartbeatSeconds=60))}
    arn = states.start(states.machine(one(body)), list(range(count)))
    for _ in range(count):
        states.api.send_task_success(taskToken=states.token(queue), output="1")
    assert json.loads(states.ended(arn)["output"]) == [1] * count
