"""SQS in memory, with a clock that is set by hand and faults that come when told: for property tests of a redrive."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import ClientError, EndpointConnectionError

ARN = "arn:aws:sqs:us-east-1:000000000000:"


class Killed(BaseException):
    """The process was killed: this call, and every later one, is not made."""


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


@dataclass
class Copy:
    id: str
    body: str
    attributes: dict[str, Any]
    system: dict[str, str]
    visible_at: float = 0.0
    receives: int = 0
    handle: str = ""


@dataclass
class Box:
    name: str
    redrive_to: str = ""
    max_receives: float = math.inf
    copies: dict[str, Copy] = field(default_factory=dict)


class FakeSqs:
    """A client of SQS: the calls that triage makes, for standard queues. ``fault`` is asked before each call (by name),
    ``late`` after it: each may raise. ``blind``: short polls ask only servers that have none of the messages."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.boxes: dict[str, Box] = {}
        self.fault: Callable[[str], None] = lambda call: None
        self.late: Callable[[str], None] = lambda call: None
        self.refuse: Callable[[str, str], str | None] = lambda call, id: None  # an entry's error code
        self.blind = False
        self.polls: Counter[int] = Counter()  # receives, by their wait
        self._ids = itertools.count()

    def box(self, name: str, redrive_to: str = "", max_receives: float = math.inf) -> Box:
        self.boxes[name] = Box(name, redrive_to, max_receives)
        return self.boxes[name]

    def put(self, name: str, body: str, attributes: dict[str, Any] | None = None, source: str = "") -> str:
        id = f"m{next(self._ids)}"
        system = {"SentTimestamp": str(int(self.clock() * 1000))}
        if source:
            system["DeadLetterQueueSourceArn"] = ARN + source
        self.boxes[name].copies[id] = Copy(id, body, dict(attributes or {}), system)
        return id

    def _of(self, url: str) -> Box:
        return self.boxes[url.rsplit("/", 1)[-1]]

    def get_queue_url(self, QueueName: str, QueueOwnerAWSAccountId: str = "") -> dict[str, str]:
        if QueueName not in self.boxes:
            raise ClientError({"Error": {"Code": "QueueDoesNotExist", "Message": "none"}}, "GetQueueUrl")
        return {"QueueUrl": f"http://fake/000000000000/{QueueName}"}

    def get_queue_attributes(self, QueueUrl: str, AttributeNames: list[str]) -> dict[str, Any]:
        self.fault("get_queue_attributes")
        box, now = self._of(QueueUrl), self.clock()
        hidden = sum(copy.visible_at > now for copy in box.copies.values())
        found = {
            "QueueArn": ARN + box.name,
            "MessageRetentionPeriod": "1209600",
            "ApproximateNumberOfMessages": str(len(box.copies) - hidden),
            "ApproximateNumberOfMessagesNotVisible": str(hidden),
            "ApproximateNumberOfMessagesDelayed": "0",
        }
        if box.redrive_to:
            found["RedrivePolicy"] = f'{{"deadLetterTargetArn":"{ARN}{box.redrive_to}","maxReceiveCount":4}}'
        return {"Attributes": {name: found[name] for name in AttributeNames if name in found}}

    def list_dead_letter_source_queues(self, QueueUrl: str) -> dict[str, list[str]]:
        return {"queueUrls": []}

    def receive_message(self, QueueUrl: str, MaxNumberOfMessages: int = 1, **options: Any) -> dict[str, Any]:
        self.fault("receive")
        box, now, found = self._of(QueueUrl), self.clock(), []
        self.polls[options["WaitTimeSeconds"]] += 1
        if self.blind and not options["WaitTimeSeconds"]:
            return {}
        for copy in [each for each in box.copies.values() if each.visible_at <= now][:MaxNumberOfMessages]:
            copy.receives += 1
            copy.visible_at = now + options.get("VisibilityTimeout", 30)
            copy.handle = f"{copy.id}:{copy.receives}"
            system = {**copy.system, "ApproximateReceiveCount": str(copy.receives)}
            found.append(
                {
                    "MessageId": copy.id,
                    "Body": copy.body,
                    "ReceiptHandle": copy.handle,
                    "Attributes": system,
                    "MessageAttributes": copy.attributes,
                }
            )
        self.late("receive")
        return {"Messages": found}

    def _entries(self, call: str, entries: list[dict[str, Any]], each: Callable[[dict[str, Any]], Any]) -> Any:
        self.fault(call)
        done, failed = [], []
        for entry in entries:
            code = self.refuse(call, entry.get("ReceiptHandle", entry.get("MessageBody", "")))
            if code:
                failed.append({"Id": entry["Id"], "Code": code, "SenderFault": code != "InternalError"})
            else:
                done.append({"Id": entry["Id"], **(each(entry) or {})})
        self.late(call)
        return {"Successful": done, "Failed": failed}

    def send_message_batch(self, QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:
        box = self._of(QueueUrl)
        return self._entries(
            "send",
            Entries,
            lambda e: {"MessageId": self.put(box.name, e["MessageBody"], e.get("MessageAttributes"))},
        )

    def delete_message_batch(self, QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:
        box = self._of(QueueUrl)

        def one(entry: dict[str, Any]) -> None:
            id = entry["ReceiptHandle"].split(":")[0]
            if id in box.copies and box.copies[id].handle == entry["ReceiptHandle"]:
                del box.copies[id]

        return self._entries("delete", Entries, one)

    def change_message_visibility_batch(self, QueueUrl: str, Entries: list[dict[str, Any]]) -> Any:
        box = self._of(QueueUrl)

        def one(entry: dict[str, Any]) -> None:  # like SQS it takes a superseded handle, too
            id = entry["ReceiptHandle"].split(":")[0]
            if id in box.copies:
                box.copies[id].visible_at = self.clock() + entry["VisibilityTimeout"]

        return self._entries("change", Entries, one)


def no_answer() -> EndpointConnectionError:
    return EndpointConnectionError(endpoint_url="http://fake")
