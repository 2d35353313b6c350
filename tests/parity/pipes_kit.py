"""A source queue, a target queue and a pipe between them: plain boto3, one account a test.

pipe = piped(aws, SourceParameters={"SqsQueueParameters": {"BatchSize": 1}})
pipe.send("one")
pipe.arrived(1)                            # the bodies in the target queue
"""

from __future__ import annotations

import json
from typing import Any

from .conftest import Aws
from .lambda_kit import until
from .sqs_helpers import arn_of, counts, queue, receive

GUIDE = "AWS documentation: EventBridge User Guide"
API = "AWS documentation: EventBridge Pipes API reference"
MODEL = "botocore: pipes service model"
RECORDED = "responses recorded on AWS"


def template(text: str) -> dict[str, Any]:
    return {"InputTemplate": text}


def batches(size: int, window: int | None = None) -> dict[str, Any]:
    extra = {} if window is None else {"MaximumBatchingWindowInSeconds": window}
    return {"SqsQueueParameters": {"BatchSize": size, **extra}}


def filters(*patterns: Any) -> dict[str, Any]:
    return {"FilterCriteria": {"Filters": [{"Pattern": json.dumps(pattern)} for pattern in patterns]}}


class Pipe:
    def __init__(
        self, aws: Aws, *, visibility: int = 30, max_receives: int | None = None, fifo: bool = False, target: str = ""
    ) -> None:
        self.aws, self.sqs, self.api = aws, aws.client("sqs"), aws.client("pipes")
        self.name = "pipe"
        suffix = ".fifo" if fifo else ""
        attributes: dict[str, Any] = {"VisibilityTimeout": visibility}
        self.dead = queue(self.sqs, f"source-dead{suffix}") if max_receives else ""
        if max_receives:
            arn = arn_of(self.sqs, self.dead)
            attributes["RedrivePolicy"] = {"deadLetterTargetArn": arn, "maxReceiveCount": max_receives}
        self.url = queue(self.sqs, f"source{suffix}", **attributes)
        self.arn = arn_of(self.sqs, self.url)
        self.out = queue(self.sqs, target or "target")
        self.out_arn = arn_of(self.sqs, self.out)
        self.bodies: list[str] = []

    @property
    def role(self) -> str:
        return f"arn:aws:iam::{self.aws.account}:role/pipes"

    def create(self, *, wait: bool = True, **members: Any) -> dict[str, Any]:
        given = {"Name": self.name, "RoleArn": self.role, "Source": self.arn, "Target": self.out_arn, **members}
        answer: dict[str, Any] = self.api.create_pipe(**given)
        if wait:
            self.settled()
        return answer

    def shown(self) -> dict[str, Any]:
        found: dict[str, Any] = self.api.describe_pipe(Name=self.name)
        return found

    def settled(self) -> str:
        """Wait until the pipe is not on its way anywhere; its state."""

        def look() -> str | None:
            state = str(self.shown()["CurrentState"])
            return None if state.endswith("ING") and state != "RUNNING" else state

        return until(look, within=120)

    def send(self, *bodies: str, group: str | None = None) -> None:
        for start in range(0, len(bodies), 10):
            entries: list[dict[str, Any]] = []
            for number, body in enumerate(bodies[start : start + 10]):
                entry: dict[str, Any] = {"Id": str(number), "MessageBody": body}
                if group is not None:
                    entry |= {"MessageGroupId": group, "MessageDeduplicationId": f"{group}-{start + number}-{body[:9]}"}
                entries.append(entry)
            assert not self.sqs.send_message_batch(QueueUrl=self.url, Entries=entries).get("Failed")

    def arrived(self, number: int, *, within: float = 60) -> list[str]:
        """The bodies in the target queue, in the order of receiving, once there are ``number``."""

        def look() -> bool:
            for message in receive(self.sqs, self.out, 10, VisibilityTimeout=600):
                self.bodies.append(message["Body"])
            return len(self.bodies) >= number

        until(look, within=within)
        return self.bodies

    def drained(self, *, within: float = 60) -> None:
        until(lambda: counts(self.sqs, self.url) == (0, 0, 0), within=within)

    def dead_letters(self, number: int, *, within: float = 60) -> list[str]:
        until(lambda: counts(self.sqs, self.dead)[0] >= number, within=within)
        return [message["Body"] for message in receive(self.sqs, self.dead, 10)]


def piped(aws: Aws, **members: Any) -> Pipe:
    """A pipe that runs. Options of :class:`Pipe`, and members of CreatePipe."""
    options = {name: members.pop(name) for name in ("visibility", "max_receives", "fifo", "target") if name in members}
    pipe = Pipe(aws, **options)
    pipe.create(**members)
    return pipe
