"""A queue, a function that says what it was given, and the mapping between them: plain boto3, one account a test.

    work = mapped(aws, BatchSize=1)
    work.send("one", "fail", "sleep 0.5")
    work.calls(3)[0].bodies                    # ["one"]

The function's log says what it was called with, and when. What a message's body asks for, it does: ``fail`` raises,
``sleep 0.5`` takes half a second, ``answer {}`` returns that JSON. Otherwise the environment variable ANSWER is what it
returns; ``{"report": "bad"}`` stands for a report of the messages whose body begins so.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from .conftest import Aws
from .lambda_kit import function, invoke, log, until
from .sqs_helpers import arn_of, counts, queue

GUIDE = "AWS documentation: Lambda Developer Guide"
RECORDED = "recorded on AWS: LocalStack tests/aws/services/lambda_/event_source_mapping"
RECORDED_API = "recorded on AWS: LocalStack tests/aws/services/lambda_/test_lambda_api"
MODEL = "botocore: lambda service model"
REPORTED = "AWS's answer quoted in public error reports"
REPORTS = ["ReportBatchItemFailures"]
MARK = "CALLED "

HANDLER = """
    import json, os, time

    def handler(event, context):
        began = time.time()
        bodies = [record["body"] for record in event["Records"]]
        for body in bodies:
            if body.startswith("sleep "):
                time.sleep(float(body.split()[1]))
        shown = event["Records"]
        if len(bodies) > 20 or "BRIEF" in os.environ:
            shown = [dict(record, body=record["body"][:20], messageAttributes={}) for record in shown[:20]]
        said = {"count": len(bodies), "records": shown, "began": began, "ended": time.time()}
        print("CALLED " + json.dumps(said))
        if "fail" in bodies:
            raise RuntimeError("asked to fail")
        wanted = [body[7:] for body in bodies if body.startswith("answer ")]
        answer = json.loads(wanted[0] if wanted else os.environ.get("ANSWER", "null"))
        if isinstance(answer, dict) and answer.get("report"):
            wanted = answer["report"]
            failed = [{"itemIdentifier": r["messageId"]} for r in event["Records"] if r["body"].startswith(wanted)]
            return {"batchItemFailures": failed}
        return answer
"""


@dataclass(frozen=True)
class Call:
    """One invocation."""

    count: int
    records: list[dict[str, Any]]
    began: float
    ended: float

    @property
    def bodies(self) -> list[str]:
        return [record["body"] for record in self.records]

    @property
    def receives(self) -> list[int]:
        return [int(record["attributes"]["ApproximateReceiveCount"]) for record in self.records]


@dataclass
class Work:
    aws: Aws
    name: str
    url: str
    arn: str
    dead: str | None = None
    uuid: str = ""
    sent: dict[str, str] = field(default_factory=dict)  # body: message id

    def send(self, *bodies: str, group: str | None = None, **more: Any) -> None:
        sqs = self.aws.client("sqs")
        for start in range(0, len(bodies), 10):
            entries: list[dict[str, Any]] = []
            for number, body in enumerate(bodies[start : start + 10]):
                entry: dict[str, Any] = {"Id": str(number), "MessageBody": body, **more}
                if group is not None:
                    stamp = f"{len(self.sent)}-{start}-{number}-{time.time_ns()}"
                    entry |= {"MessageGroupId": group, "MessageDeduplicationId": stamp}
                entries.append(entry)
            answer = sqs.send_message_batch(QueueUrl=self.url, Entries=entries)
            assert not answer.get("Failed")
            for done in answer["Successful"]:
                self.sent[entries[int(done["Id"])]["MessageBody"]] = done["MessageId"]

    def heard(self) -> list[Call]:
        """The invocations so far, in the order in which they began."""
        lines = [line for line in log(self.aws, self.name) if MARK in line]
        calls = [Call(**json.loads(line[line.index(MARK) + len(MARK) :])) for line in lines]
        return sorted(calls, key=lambda call: call.began)

    def told(self) -> list[Call]:
        """The invocations so far. As the log may lag behind, one of our own goes last and is waited for."""
        mark = f"mark {time.time_ns()}"
        invoke(self.aws, self.name, {"Records": [{"body": mark}]})
        until(lambda: any(call.bodies == [mark] for call in self.heard()))
        return [call for call in self.heard() if not call.bodies[0].startswith("mark ")]

    def calls(self, number: int, *, within: float = 60) -> list[Call]:
        """The invocations, once there are ``number`` of them."""
        return until(lambda: found if len(found := self.heard()) >= number else None, within=within)

    def messages(self, number: int, *, within: float = 60) -> list[Call]:
        """The invocations, once ``number`` messages were delivered."""
        until(lambda: sum(call.count for call in self.heard()) >= number, within=within)
        return self.heard()

    def drained(self, *, within: float = 60) -> None:
        """Wait until the queue is empty."""
        until(lambda: self.depth() == (0, 0, 0), within=within)

    def depth(self) -> tuple[int, int, int]:
        """Messages visible, in flight, delayed."""
        return counts(self.aws.client("sqs"), self.url)

    def dead_letters(self, number: int = 1, *, within: float = 60) -> list[dict[str, Any]]:
        """The messages in the dead-letter queue, once there are ``number``."""
        assert self.dead
        found: list[dict[str, Any]] = []

        def look() -> bool:
            answer = self.aws.client("sqs").receive_message(
                QueueUrl=self.dead, MaxNumberOfMessages=10, MessageSystemAttributeNames=["All"], VisibilityTimeout=600
            )
            found.extend(answer.get("Messages", []))
            return len(found) >= number

        until(look, within=within)
        return found

    def state(self) -> str:
        return str(self.aws.client("lambda").get_event_source_mapping(UUID=self.uuid)["State"])

    def map(self, *, wait: bool = True, **mapping: Any) -> dict[str, Any]:
        """Make the mapping, and wait until it is enabled."""
        parameters = {"FunctionName": self.name, "EventSourceArn": self.arn, **mapping}
        answer = self.aws.client("lambda").create_event_source_mapping(**parameters)
        self.uuid = answer["UUID"]
        if wait and mapping.get("Enabled", True):
            self.settled()
        return answer

    def update(self, **changes: Any) -> dict[str, Any]:
        answer = self.aws.client("lambda").update_event_source_mapping(UUID=self.uuid, **changes)
        self.settled()
        return answer

    def settled(self) -> str:
        """Wait until the mapping is Enabled or Disabled."""
        return until(lambda: found if (found := self.state()) in ("Enabled", "Disabled") else None, within=60)


def prepared(
    aws: Aws,
    name: str = "work",
    *,
    timeout: int = 10,
    visibility: int = 30,
    max_receives: int | None = None,
    fifo: bool = False,
    answer: Any = None,
    env: dict[str, str] | None = None,
    source: str = HANDLER,
    shared: Work | None = None,
) -> Work:
    """A queue and a function, not yet mapped. With ``shared``, the function is that of another."""
    sqs = aws.client("sqs")
    suffix = ".fifo" if fifo else ""
    attributes: dict[str, Any] = {"VisibilityTimeout": visibility}
    dead = queue(sqs, f"{name}-dead{suffix}") if max_receives else None
    if dead:
        attributes["RedrivePolicy"] = {"deadLetterTargetArn": arn_of(sqs, dead), "maxReceiveCount": max_receives}
    url = queue(sqs, f"{name}{suffix}", **attributes)
    variables = {**(env or {}), **({} if answer is None else {"ANSWER": json.dumps(answer)})}
    if shared is None:
        function(aws, name, source, timeout=timeout, env=variables or None)
    return Work(aws, shared.name if shared else name, url, arn_of(sqs, url), dead)


PREPARED = ("name", "timeout", "visibility", "max_receives", "fifo", "answer", "env", "source")


def mapped(aws: Aws, **options: Any) -> Work:
    """A queue and a function, mapped and enabled. Options of :func:`prepared`, and members of the mapping."""
    work = prepared(aws, **{name: options.pop(name) for name in PREPARED if name in options})
    work.map(**options)
    return work


def overlap(calls: list[Call]) -> int:
    """How many invocations ran at one moment, at most."""
    return max((sum(other.began <= call.began < other.ended for other in calls) for call in calls), default=0)
