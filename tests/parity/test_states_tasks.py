"""Tasks that call something: functions, queues, other state machines."""

from __future__ import annotations

import json

import pytest

from .conftest import Aws
from .lambda_kit import function
from .rows import row
from .states_kit import GUIDE, RECORDED, States, caught, one

ERRORS = f"{RECORDED}/error_handling"
ECHO = "def handler(event, context): return {'got': event}"
RAISE = """
class NoStock(Exception):
    pass

def handler(event, context):
    raise NoStock("none left")
"""
INVOKE = "arn:aws:states:::lambda:invoke"


@pytest.fixture
def states(aws: Aws) -> States:
    return States(aws)


@row("sfn.lambda", "A Task with a function's ARN has its result as output", source=f"{RECORDED}/services")
def test_function(states: States) -> None:
    run = states.run(one({"Type": "Task", "Resource": function(states.aws, "echo", ECHO)}), {"n": 1})
    assert json.loads(run["output"]) == {"got": {"n": 1}}
    assert states.types(run)[2:5] == ["LambdaFunctionScheduled", "LambdaFunctionStarted", "LambdaFunctionSucceeded"]


@row("sfn.lambda.invoke", "lambda:invoke has the payload and the status of the call", source=f"{RECORDED}/services")
def test_invoke(states: States) -> None:
    function(states.aws, "echo", ECHO)
    task = {"Type": "Task", "Resource": INVOKE, "Parameters": {"FunctionName": "echo", "Payload.$": "$"}}
    run = states.run(one(task), {"n": 1})
    output = json.loads(run["output"])
    assert (output["Payload"], output["StatusCode"]) == ({"got": {"n": 1}}, 200)
    assert states.types(run)[2:5] == ["TaskScheduled", "TaskStarted", "TaskSucceeded"]


@row("sfn.lambda.error", "A function's exception is an error with the name of its class", source=ERRORS)
def test_error(states: States) -> None:
    arn = function(states.aws, "raise", RAISE)
    for task in (
        {"Type": "Task", "Resource": arn},
        {"Type": "Task", "Resource": INVOKE, "Parameters": {"FunctionName": arn}},
    ):
        failed = states.run(one(task))
        assert (failed["status"], failed["error"]) == ("FAILED", "NoStock")
        assert json.loads(failed["cause"])["errorMessage"] == "none left"
        assert json.loads(states.run(caught(task, "Other", "NoStock"))["output"]) == "NoStock"


@row("sfn.retry", "A retrier repeats a task as often as it says, and the catcher follows", source=ERRORS)
def test_retry(states: States) -> None:
    arn = function(states.aws, "raise", RAISE)
    retry = [{"ErrorEquals": ["NoStock"], "IntervalSeconds": 1, "MaxAttempts": 1}]
    run = states.run(caught({"Type": "Task", "Resource": arn, "Retry": retry}, "States.ALL"))
    assert run["status"] == "SUCCEEDED"
    assert states.types(run).count("LambdaFunctionFailed") == 2


@row(
    "sfn.lambda.throttled",
    "A throttled function is Lambda.TooManyRequestsException",
    source=f"{GUIDE}: Handling errors",
)
def test_throttled(states: States) -> None:
    arn = function(states.aws, "echo", ECHO)
    states.aws.client("lambda").put_function_concurrency(FunctionName="echo", ReservedConcurrentExecutions=0)
    for task in (
        {"Type": "Task", "Resource": arn},
        {"Type": "Task", "Resource": INVOKE, "Parameters": {"FunctionName": "echo"}},
    ):
        assert states.run(one(task))["error"] == "Lambda.TooManyRequestsException"


@row("sfn.task.timeout", "A call beyond TimeoutSeconds is States.Timeout", source=f"{RECORDED}/timeouts")
def test_timeout(states: States) -> None:
    arn = function(states.aws, "slow", "import time\ndef handler(event, context): time.sleep(30)", timeout=40)
    run = states.run(one({"Type": "Task", "Resource": arn, "TimeoutSeconds": 1}))
    assert (run["status"], run["error"]) == ("FAILED", "States.Timeout")
    assert states.types(run)[-2:] == ["LambdaFunctionTimedOut", "ExecutionFailed"]


@row(
    "sfn.task.state.size",
    "A state whose output is over 262,144 bytes fails with States.DataLimitExceeded",
    source=f"{GUIDE}: Quotas",
)
def test_state_size(states: States) -> None:
    arn = function(states.aws, "large", "def handler(event, context): return 'x' * 300_000")
    assert states.run(one({"Type": "Task", "Resource": arn}))["error"] == "States.DataLimitExceeded"


@row("sfn.sync", "startExecution.sync:2 has the output of the execution as JSON", source=f"{RECORDED}/callback")
def test_sync(states: States) -> None:
    child = states.machine(one({"Type": "Pass", "Result": {"n": 1}}))
    task = {
        "Type": "Task",
        "Resource": "arn:aws:states:::states:startExecution.sync:2",
        "Parameters": {"StateMachineArn": child},
    }
    output = json.loads(states.run(one(task))["output"])
    assert (output["Status"], output["Output"]) == ("SUCCEEDED", {"n": 1})
    broken = states.machine(one({"Type": "Fail", "Error": "Broken"}))
    failed = states.run(one({**task, "Parameters": {"StateMachineArn": broken}}))
    assert (failed["status"], failed["error"]) == ("FAILED", "States.TaskFailed")


@row("sfn.dynamodb", "A failed condition is DynamoDB.ConditionalCheckFailedException", source=f"{RECORDED}/services")
def test_dynamodb(states: States) -> None:
    states.aws.client("dynamodb").create_table(
        TableName="steps",
        KeySchema=[{"AttributeName": "k", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "k", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    parameters = {
        "TableName": "steps",
        "Item": {"k": {"S.$": "$.k"}},
        "ConditionExpression": "attribute_not_exists(k)",
    }
    task = {"Type": "Task", "Resource": "arn:aws:states:::dynamodb:putItem", "Parameters": parameters}
    machine = states.machine(one(task))
    assert states.ended(states.start(machine, {"k": "1"}))["status"] == "SUCCEEDED"
    assert states.ended(states.start(machine, {"k": "1"}))["error"] == "DynamoDB.ConditionalCheckFailedException"


@row("sfn.activity", "A worker gets an activity's task with its token and input", source=f"{RECORDED}/activities")
def test_activity(states: States) -> None:
    activity = states.api.create_activity(name="pack")["activityArn"]
    arn = states.start(states.machine(one({"Type": "Task", "Resource": activity})), {"n": 1})
    task = states.api.get_activity_task(activityArn=activity, workerName="packer")
    assert json.loads(task["input"]) == {"n": 1}
    states.api.send_task_success(taskToken=task["taskToken"], output="3")
    assert states.ended(arn)["output"] == "3"
    assert states.types(arn)[2:5] == ["ActivityScheduled", "ActivityStarted", "ActivitySucceeded"]
