"""Queues, rules and waiting for the rows of EventBridge: plain boto3, one account a test."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import boto3
from botocore.config import Config

from .conftest import Aws

SOURCE = "lab.orders"
DETAIL_TYPE = "order.placed"
PATTERN = {"source": [SOURCE]}
ROLE = "arn:aws:iam::{account}:role/events"

RECORDED = "recorded on AWS: LocalStack tests/aws/services/events"
GUIDE = "AWS documentation: EventBridge User Guide"
MODEL = "botocore: events service model"
REPORTED = "AWS's answer quoted in public error reports"


@dataclass(frozen=True)
class Queue:
    url: str
    arn: str


@dataclass(frozen=True)
class Rule:
    name: str
    arn: str
    bus: str


class Events:
    """What a test of EventBridge needs, in the account of ``aws``."""

    def __init__(self, aws: Aws) -> None:
        self.aws = aws
        self.api = aws.client("events")
        self.sqs = aws.client("sqs")

    def unchecked(self) -> Any:
        """A client that sends what botocore would refuse itself, so that the service's own refusal shows."""
        return boto3.client(
            "events",
            endpoint_url=self.aws.endpoint,
            region_name=self.aws.region,
            aws_access_key_id=self.aws.account,
            aws_secret_access_key="test",
            config=Config(parameter_validation=False, retries={"total_max_attempts": 1}),
        )

    def queue(self, name: str, *, rule: str | None = "*", fault: str | None = None, **attributes: str) -> Queue:
        """A queue that lets the rule with the ARN ``rule`` send; ``*`` is any rule, None is no policy at all."""
        arn = self.aws.arn("sqs", name)
        if rule is not None:
            attributes["Policy"] = policy("sqs:SendMessage", arn, rule)
        tags = {"lab:fault": fault} if fault else {}
        url = self.sqs.create_queue(QueueName=name, Attributes=attributes, tags=tags)["QueueUrl"]
        return Queue(url, arn)

    def rule(
        self,
        name: str = "rule",
        *,
        bus: str = "default",
        pattern: dict[str, Any] | None = None,
        tags: dict[str, str] | None = None,
    ) -> Rule:
        """A rule, on a bus that is made when it is another than the default one."""
        if bus != "default" and bus not in {found["Name"] for found in self.api.list_event_buses()["EventBuses"]}:
            self.api.create_event_bus(Name=bus)
        arn = self.api.put_rule(
            Name=name,
            EventBusName=bus,
            EventPattern=json.dumps(pattern or PATTERN),
            Tags=[{"Key": key, "Value": value} for key, value in (tags or {}).items()],
        )["RuleArn"]
        return Rule(name, arn, bus)

    def target(self, rule: Rule, arn: str, *, dlq: Queue | None = None, identity: str = "t", **more: Any) -> None:
        target = {"Id": identity, "Arn": arn, **more}
        if dlq is not None:
            target["DeadLetterConfig"] = {"Arn": dlq.arn}
        answer = self.api.put_targets(Rule=rule.name, EventBusName=rule.bus, Targets=[target])
        assert answer["FailedEntryCount"] == 0

    def put(self, detail: Any = None, *, bus: str = "default", **more: Any) -> str:
        """Put one event and return its id."""
        entry = {"Source": SOURCE, "DetailType": DETAIL_TYPE, "Detail": json.dumps(detail or {}), "EventBusName": bus}
        answer = self.api.put_events(Entries=[entry | more])
        assert answer["FailedEntryCount"] == 0, answer
        return answer["Entries"][0]["EventId"]

    def messages(self, queue: Queue, count: int = 1, *, within: float = 60, settle: float = 0) -> list[dict[str, Any]]:
        """The queue's messages, once there are ``count``; ``settle`` seconds more to see that there are no others."""
        found: list[dict[str, Any]] = []
        end = time.monotonic() + within
        while time.monotonic() < end:
            answer = self.sqs.receive_message(
                QueueUrl=queue.url,
                MaxNumberOfMessages=10,
                MessageAttributeNames=["All"],
                MessageSystemAttributeNames=["All"],
            )
            for message in answer.get("Messages", []):
                found.append(message)
                self.sqs.delete_message(QueueUrl=queue.url, ReceiptHandle=message["ReceiptHandle"])
            if len(found) >= count and settle is not None:
                end, settle = time.monotonic() + settle, None  # type: ignore[assignment]
            if not answer.get("Messages"):
                time.sleep(0.02)
        assert len(found) == count, [message["Body"] for message in found]
        return found

    def events(self, queue: Queue, count: int = 1, **waiting: Any) -> list[dict[str, Any]]:
        """The events in the queue's messages."""
        return [json.loads(message["Body"]) for message in self.messages(queue, count, **waiting)]

    def nothing_in(self, queue: Queue, *, within: float = 0.2) -> None:
        self.messages(queue, 0, within=within)

    def total(self, metric: str, **dimensions: str) -> float:
        """The sum of a metric of AWS/Events over the last minutes."""
        now = datetime.now(UTC)
        answer = self.aws.client("cloudwatch").get_metric_statistics(
            Namespace="AWS/Events",
            MetricName=metric,
            Dimensions=[{"Name": name, "Value": value} for name, value in dimensions.items()],
            StartTime=now - timedelta(minutes=10),
            EndTime=now + timedelta(minutes=10),
            Period=60,
            Statistics=["Sum"],
        )
        return float(sum(point["Sum"] for point in answer["Datapoints"]))


def policy(action: str, resource: str, rule: str) -> str:
    """A resource policy that lets EventBridge act for the rule with the ARN ``rule`` (``*``: for any)."""
    statement: dict[str, Any] = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": action,
        "Resource": resource,
    }
    if rule != "*":
        statement["Condition"] = {"ArnEquals": {"aws:SourceArn": rule}}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})


def attributes_of(message: dict[str, Any]) -> dict[str, str]:
    """The message attributes of a dead-lettered event; all of them are strings."""
    attributes = message.get("MessageAttributes", {})
    assert {value["DataType"] for value in attributes.values()} <= {"String"}
    return {name: value["StringValue"] for name, value in attributes.items()}
