"""Express state machines."""

from __future__ import annotations

import json
import math
from datetime import timedelta

import pytest

from .conftest import Aws
from .lambda_kit import until
from .rows import row
from .states_kit import CALLBACK, RECORDED, States, one, refused

EXPRESS = f"{RECORDED}/test_sfn_api_express"


@pytest.fixture
def states(aws: Aws) -> States:
    return States(aws)


@row("sfn.express.callback", "An Express state machine cannot wait for a token, a job or an activity", source=EXPRESS)
def test_callbacks(states: States) -> None:
    pattern = "Express state machine does not support"
    for resource, reason in (
        (CALLBACK, f"{pattern} '.waitForTaskToken' service integration  at /States/T/Resource"),
        ("arn:aws:states:::states:startExecution.sync", f"{pattern} '.sync' service integration at /States/T/Resource"),
        (states.aws.arn("states", "activity:a"), f"{pattern} Activity ARN at /States/T/Resource"),
    ):
        definition = json.dumps(one({"Type": "Task", "Resource": resource, "Parameters": {}}))
        assert refused(
            states.api.create_state_machine,
            name="express",
            definition=definition,
            roleArn=states.role,
            type="EXPRESS",
        ) == ("InvalidDefinition", f"Invalid State Machine Definition: 'SCHEMA_VALIDATION_FAILED: {reason}'")


@row("sfn.express.sync", "StartSyncExecution answers with the output and what is billed", source=EXPRESS)
def test_sync(states: States) -> None:
    machine = states.machine(one({"Type": "Pass", "Result": {"n": 1}}), "EXPRESS")
    answer = states.unchecked().start_sync_execution(stateMachineArn=machine, name="first", input="{}")
    assert (answer["status"], answer["name"], json.loads(answer["output"])) == ("SUCCEEDED", "first", {"n": 1})
    assert answer["executionArn"].startswith(machine.replace(":stateMachine:", ":express:") + ":first:")
    lasted = (answer["stopDate"] - answer["startDate"]) / timedelta(milliseconds=1)  # on a busy machine, more than 100
    assert answer["billingDetails"] == {
        "billedMemoryUsedInMB": 64,
        "billedDurationInMilliseconds": max(1, math.ceil(round(lasted) / 100)) * 100,
    }


@row("sfn.express.sync.failed", "A failed execution is an answer with its error and cause", source=EXPRESS)
def test_sync_failed(states: States) -> None:
    machine = states.machine(one({"Type": "Fail", "Error": "Broken", "Cause": "so it is"}), "EXPRESS")
    answer = states.unchecked().start_sync_execution(stateMachineArn=machine)
    assert (answer["status"], answer["error"], answer["cause"]) == ("FAILED", "Broken", "so it is")
    assert "output" not in answer


@row("sfn.express.sync.standard", "StartSyncExecution takes no Standard machine", source=f"{RECORDED}/test_sfn_api")
def test_sync_standard(states: States) -> None:
    machine = states.machine(one({"Type": "Pass"}))
    assert refused(states.unchecked().start_sync_execution, stateMachineArn=machine) == (
        "StateMachineTypeNotSupported",
        "This operation is not supported by this type of state machine",
    )


@row("sfn.express.async", "Express executions cannot be described, stopped or listed", source=EXPRESS)
def test_async(states: States) -> None:
    queue = states.queue("done")
    send = {"QueueUrl": queue, "MessageBody": "done"}
    task = {"Type": "Task", "Resource": "arn:aws:states:::sqs:sendMessage", "Parameters": send}
    machine = states.machine(one(task), "EXPRESS")
    arn = states.start(machine)
    assert arn.split(":")[5] == "express"
    error = ("InvalidArn", "Invalid Arn: 'Resource type not valid in this context: express'")
    for call in (states.api.describe_execution, states.api.stop_execution, states.api.get_execution_history):
        assert refused(call, executionArn=arn) == error
    assert refused(states.api.list_executions, stateMachineArn=machine)[0] == "StateMachineTypeNotSupported"
    until(lambda: states.sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=1).get("Messages"))
