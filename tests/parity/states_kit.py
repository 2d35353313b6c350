"""State machines and executions for the rows of Step Functions: plain boto3, one account a test.

states = States(aws)
run = states.run(states.machine(one({"Type": "Pass"})), {"a": 1})     # started, and waited for
run["status"], states.types(run)                                      # "SUCCEEDED", ["ExecutionStarted", …]
"""

from __future__ import annotations

import json
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from .conftest import Aws
from .lambda_kit import until

GUIDE = "AWS documentation: Step Functions Developer Guide"
REFERENCE = "AWS documentation: Step Functions API Reference"
MODEL = "botocore: stepfunctions service model"
RECORDED = "recorded on AWS: LocalStack tests/aws/services/stepfunctions/v2"

CALLBACK = "arn:aws:states:::sqs:sendMessage.waitForTaskToken"


def inside(state: dict[str, Any], name: str = "Inside") -> dict[str, Any]:
    """An item processor or a branch of this state alone. Names are unique in a whole definition."""
    end = {} if state.get("Type") in ("Choice", "Succeed", "Fail") else {"End": True}
    return {"StartAt": name, "States": {name: {**state, **end}}}


def one(state: dict[str, Any], **top: Any) -> dict[str, Any]:
    """A definition of this state alone, whose name is T."""
    return {**inside(state, "T"), **top}


def constant(value: Any) -> dict[str, Any]:
    return {"Type": "Pass", "Result": value, "End": True}


def caught(state: dict[str, Any], *errors: str) -> dict[str, Any]:
    """A definition of this state, with a catcher for each error; the output is the name of the one that caught."""
    catchers = [{"ErrorEquals": [error], "Next": error} for error in errors]
    states = {error: constant(error) for error in errors}
    return {"StartAt": "T", "States": {"T": {**state, "Catch": catchers, "End": True}, **states}}


class States:
    """What a test of Step Functions needs, in the account of ``aws``."""

    def __init__(self, aws: Aws) -> None:
        self.aws = aws
        self.api = aws.client("stepfunctions")
        self.sqs = aws.client("sqs")
        self._made = 0

    @property
    def role(self) -> str:
        return f"arn:aws:iam::{self.aws.account}:role/states"

    def unchecked(self) -> Any:
        """A client that sends what botocore would refuse itself, to the endpoint's own host."""
        return boto3.client(
            "stepfunctions",
            endpoint_url=self.aws.endpoint,
            region_name=self.aws.region,
            aws_access_key_id=self.aws.account,
            aws_secret_access_key="test",
            config=Config(parameter_validation=False, inject_host_prefix=False, retries={"total_max_attempts": 1}),
        )

    def machine(self, definition: dict[str, Any] | str, kind: str = "STANDARD") -> str:
        """Make a state machine; its ARN."""
        self._made += 1
        text = definition if isinstance(definition, str) else json.dumps(definition)
        answer = self.api.create_state_machine(
            name=f"machine-{self._made}", definition=text, roleArn=self.role, type=kind
        )
        return str(answer["stateMachineArn"])

    def start(self, machine: str, value: Any = None, **more: Any) -> str:
        text = json.dumps({} if value is None else value)
        return str(self.api.start_execution(stateMachineArn=machine, input=text, **more)["executionArn"])

    def ended(self, arn: str, *, within: float = 60) -> dict[str, Any]:
        """Wait for the execution's end; its description."""

        def look() -> dict[str, Any] | None:
            found: dict[str, Any] = self.api.describe_execution(executionArn=arn)
            return None if found["status"] == "RUNNING" else found

        return until(look, within=within)

    def run(self, definition: dict[str, Any] | str, value: Any = None) -> dict[str, Any]:
        """Make a state machine of a definition, run it once, and wait; the execution's description."""
        return self.ended(self.start(self.machine(definition), value))

    def history(self, execution: str | dict[str, Any]) -> list[dict[str, Any]]:
        arn = execution if isinstance(execution, str) else execution["executionArn"]
        return list(self.api.get_execution_history(executionArn=arn, maxResults=1000)["events"])

    def types(self, execution: str | dict[str, Any]) -> list[str]:
        return [event["type"] for event in self.history(execution)]

    def queue(self, name: str = "tasks") -> str:
        return str(self.sqs.create_queue(QueueName=name)["QueueUrl"])

    def task(self, queue: str, **more: Any) -> dict[str, Any]:
        """A state that sends its token to the queue and waits."""
        body = {"token.$": "$$.Task.Token", "input.$": "$"}
        parameters = {"QueueUrl": queue, "MessageBody": body}
        return {"Type": "Task", "Resource": CALLBACK, "Parameters": parameters, **more}

    def token(self, queue: str) -> str:
        """The next token from the queue."""

        def look() -> list[dict[str, Any]]:
            return list(self.sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=1).get("Messages", []))

        message = until(look)[0]
        self.sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        return str(json.loads(message["Body"])["token"])

    def parked(self, **more: Any) -> tuple[str, str, str]:
        """A running execution that waits for its callback: its ARN, its token, its queue."""
        queue = self.queue()
        arn = self.start(self.machine(one(self.task(queue, **more))))
        return arn, self.token(queue), queue


def refused(call: Any, **parameters: Any) -> tuple[str, str]:
    """The code and the message with which a call is refused."""
    with pytest.raises(ClientError) as raised:
        call(**parameters)
    error = raised.value.response["Error"]
    return error["Code"], error["Message"]
