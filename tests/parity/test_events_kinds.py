"""Each kind of target: what it needs, what it receives, how it fails. And replays, which go the same way."""

from __future__ import annotations

import io
import json
import socket
import threading
import zipfile
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from .conftest import Aws
from .events_kit import GUIDE, MODEL, PATTERN, RECORDED, ROLE, SOURCE, Events, attributes_of, policy
from .lambda_kit import until
from .rows import row

FAST = {"lab:clock-scale": "20000"}
ASSUME = json.dumps({"Version": "2012-10-17", "Statement": []})


@pytest.fixture
def events(aws: Aws) -> Events:
    return Events(aws)


# ---- queues


@row("events.kinds.fifo", "A FIFO target gets its message group and content-based deduplication", source=MODEL)
def test_fifo(events: Events) -> None:
    queue = events.queue("q.fifo", FifoQueue="true", ContentBasedDeduplication="true")
    events.target(events.rule(), queue.arn, SqsParameters={"MessageGroupId": "g"}, InputPath="$.detail")
    events.put({"n": 1})
    messages = events.messages(queue)  # before the next is put: which of two is delivered first is not promised
    events.put({"n": 1})  # the same body within five minutes
    events.put({"n": 2})
    messages += events.messages(queue, settle=0.1)
    assert [message["Body"] for message in messages] == ['{"n":1}', '{"n":2}']
    assert {message["Attributes"]["MessageGroupId"] for message in messages} == {"g"}


@row(
    "events.kinds.fifo_dedup",
    "A FIFO target without content-based deduplication cannot be delivered to (code not verified)",
    source=MODEL,
)
def test_fifo_without_deduplication(events: Events) -> None:
    queue, dlq = events.queue("q.fifo", FifoQueue="true"), events.queue("dlq")
    events.target(events.rule(), queue.arn, dlq=dlq, SqsParameters={"MessageGroupId": "g"})
    events.put()
    assert attributes_of(events.messages(dlq)[0])["RETRY_ATTEMPTS"] == "0"


@row("events.kinds.fair_queue", "A message group on a standard queue is taken over (fair queues)", source=MODEL)
def test_group_on_a_standard_queue(events: Events) -> None:
    queue = events.queue("q")
    events.target(events.rule(), queue.arn, SqsParameters={"MessageGroupId": "tenant"})
    events.put()
    assert events.messages(queue)[0]["Attributes"]["MessageGroupId"] == "tenant"


# ---- topics


@row("events.kinds.topic", "A topic must let EventBridge publish; the notification has no subject", source=RECORDED)
def test_topic(events: Events) -> None:
    sns = events.aws.client("sns")
    topic = sns.create_topic(Name="t")["TopicArn"]
    dlq, queue = events.queue("dlq"), events.queue("q")
    document = {
        "Version": "2012-10-17",
        "Statement": [{"Effect": "Allow", "Principal": "*", "Action": "sqs:SendMessage", "Resource": queue.arn}],
    }
    events.sqs.set_queue_attributes(QueueUrl=queue.url, Attributes={"Policy": json.dumps(document)})
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=queue.arn)
    rule = events.rule()
    events.target(rule, topic, dlq=dlq)
    events.put()
    assert attributes_of(events.messages(dlq)[0])["ERROR_CODE"] == "NO_PERMISSIONS"

    sns.set_topic_attributes(
        TopicArn=topic, AttributeName="Policy", AttributeValue=policy("sns:Publish", topic, rule.arn)
    )
    identity = events.put()
    notification = events.events(queue)[0]
    assert "Subject" not in notification
    assert json.loads(notification["Message"])["id"] == identity


# ---- functions

CODE = """
def handler(event, context):
    raise ValueError(event["detail"])
"""


def function(events: Events, name: str, **more: Any) -> str:
    package = io.BytesIO()
    with zipfile.ZipFile(package, "w") as archive:
        archive.writestr("app.py", CODE)
    api = events.aws.client("lambda")
    arn = api.create_function(
        FunctionName=name,
        Runtime="python3.12",
        Role=ROLE.format(account=events.aws.account),
        Handler="app.handler",
        Code={"ZipFile": package.getvalue()},
        **more,
    )["FunctionArn"]
    api.get_waiter("function_active_v2").wait(FunctionName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 30})
    return str(arn)


@row(
    "events.kinds.function_permission",
    "A function must let the rule invoke it; PutTargets does not add that",
    source=GUIDE,
)
def test_function_without_permission(events: Events) -> None:
    arn = function(events, "f")
    rule, dlq = events.rule(), events.queue("dlq")
    events.aws.client("lambda").add_permission(
        FunctionName="f",
        StatementId="other",
        Action="lambda:InvokeFunction",
        Principal="events.amazonaws.com",
        SourceArn=events.aws.arn("events", "rule/other"),
    )
    events.target(rule, arn, dlq=dlq)
    events.put()
    attributes = attributes_of(events.messages(dlq)[0])
    assert (attributes["ERROR_CODE"], attributes["TARGET_ARN"]) == ("NO_PERMISSIONS", arn)


@row(
    "events.kinds.function_error",
    "A function's error is not a delivery failure: it goes to the function's own "
    "failure destination, the rule's dead-letter queue stays empty (P24)",
    source="AWS documentation: Lambda, asynchronous invocation",
)
def test_function_that_fails(events: Events) -> None:
    arn = function(events, "f")
    api = events.aws.client("lambda")
    rule, dlq, failed = events.rule(), events.queue("dlq"), events.queue("failed")
    api.put_function_event_invoke_config(
        FunctionName="f", MaximumRetryAttempts=0, DestinationConfig={"OnFailure": {"Destination": failed.arn}}
    )
    api.add_permission(
        FunctionName="f",
        StatementId="rule",
        Action="lambda:InvokeFunction",
        Principal="events.amazonaws.com",
        SourceArn=rule.arn,
    )
    events.target(rule, arn, dlq=dlq)
    identity = events.put({"n": 1})
    record = events.events(failed)[0]
    assert record["requestPayload"]["id"] == identity
    events.nothing_in(dlq)


# ---- state machines


@row("events.kinds.state_machine", "A state machine is started with the event as input", source=GUIDE)
def test_state_machine(events: Events) -> None:
    sfn = events.aws.client("stepfunctions")
    role = ROLE.format(account=events.aws.account)
    machine = sfn.create_state_machine(
        name="m",
        definition=json.dumps({"StartAt": "A", "States": {"A": {"Type": "Pass", "End": True}}}),
        roleArn=role,
    )["stateMachineArn"]
    events.target(events.rule(), machine, RoleArn=role)
    identity = events.put({"n": 1})
    executions = until(lambda: sfn.list_executions(stateMachineArn=machine)["executions"])
    assert len(executions) == 1
    started = sfn.describe_execution(executionArn=executions[0]["executionArn"])
    assert json.loads(started["input"])["id"] == identity


# ---- event buses


@row("events.kinds.bus", "An event passed to another bus keeps its id, time and source", source=RECORDED)
def test_bus_to_bus(events: Events) -> None:
    queue = events.queue("q")
    second = events.rule("second", bus="b")
    events.target(second, queue.arn)
    first = events.rule("first", bus="a")
    arn = events.aws.arn("events", "event-bus/b")
    events.target(first, arn, RoleArn=ROLE.format(account=events.aws.account))
    identity = events.put({"n": 1}, bus="a")
    event = events.events(queue, settle=0.1)[0]
    assert (event["id"], event["source"], event["detail"]) == (identity, SOURCE, {"n": 1})


# ---- archives and replays


def replayed(events: Events, name: str, **more: Any) -> None:
    now = datetime.now(UTC)
    bus = events.aws.arn("events", "event-bus/default")
    events.api.start_replay(
        ReplayName=name,
        EventSourceArn=events.aws.arn("events", "archive/a"),
        EventStartTime=now - timedelta(minutes=5),
        EventEndTime=now + timedelta(minutes=5),
        Destination={"Arn": bus} | more,
    )
    until(lambda: events.api.describe_replay(ReplayName=name)["State"] == "COMPLETED")


@row("events.replay.name", "A replayed event carries replay-name between region and resources", source=RECORDED)
def test_replay(events: Events) -> None:
    queue = events.queue("q")
    events.target(events.rule(), queue.arn)
    events.api.create_archive(ArchiveName="a", EventSourceArn=events.aws.arn("events", "event-bus/default"))
    events.put({"n": 1})
    events.messages(queue)
    replayed(events, "again")
    event = events.events(queue, settle=0.1)[0]
    assert event["replay-name"] == "again"
    assert event["detail"] == {"n": 1}
    assert list(event)[6:9] == ["region", "replay-name", "resources"]


@row("events.replay.not_archived", "A replayed event is not archived again", source=GUIDE)
def test_replay_is_not_archived(events: Events) -> None:
    queue = events.queue("q")
    events.target(events.rule(), queue.arn)
    events.api.create_archive(ArchiveName="a", EventSourceArn=events.aws.arn("events", "event-bus/default"))
    events.put()
    events.messages(queue)
    replayed(events, "one")
    events.messages(queue)
    replayed(events, "two")
    events.messages(queue, settle=0.1)
    assert events.api.describe_archive(ArchiveName="a")["EventCount"] == 1


@row("events.replay.rules", "A replay can be narrowed to some rules", source=MODEL)
def test_replay_to_one_rule(events: Events) -> None:
    one, two = events.queue("one"), events.queue("two")
    first, second = events.rule("first"), events.rule("second")
    events.target(first, one.arn)
    events.target(second, two.arn)
    events.api.create_archive(ArchiveName="a", EventSourceArn=events.aws.arn("events", "event-bus/default"))
    events.put()
    events.messages(one)
    events.messages(two)
    replayed(events, "again", FilterArns=[second.arn])
    events.messages(two)
    events.nothing_in(one, within=0.1)


@row("events.replay.live_only", "replay-name with exists false keeps replays away from a rule", source=GUIDE)
def test_live_events_only(events: Events) -> None:
    live, every = events.queue("live"), events.queue("every")
    events.target(events.rule("live", pattern=PATTERN | {"replay-name": [{"exists": False}]}), live.arn)
    events.target(events.rule("every"), every.arn)
    events.api.create_archive(ArchiveName="a", EventSourceArn=events.aws.arn("events", "event-bus/default"))
    events.put()
    events.messages(live)
    events.messages(every)
    replayed(events, "again")
    events.messages(every)
    events.nothing_in(live, within=0.1)


@row("events.replay.failing", "A replayed event that cannot be delivered goes to the dead-letter queue", source=GUIDE)
def test_failing_replay(events: Events) -> None:
    dlq = events.queue("dlq")
    events.api.create_archive(ArchiveName="a", EventSourceArn=events.aws.arn("events", "event-bus/default"))
    events.put({"n": 1})
    events.target(events.rule(), events.aws.arn("sqs", "gone"), dlq=dlq)
    replayed(events, "again")
    event = events.events(dlq)[0]
    assert (event["replay-name"], event["detail"]) == ("again", {"n": 1})


# ---- API destinations


class Endpoint:
    """An HTTP server that answers with the statuses it is given, the last one for ever."""

    def __init__(self) -> None:
        self.statuses = [200]
        self.received: list[bytes] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                outer.received.append(self.rfile.read(int(self.headers["Content-Length"])))
                status = outer.statuses.pop(0) if len(outer.statuses) > 1 else outer.statuses[0]
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}/hook"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def http() -> Iterator[Endpoint]:
    endpoint = Endpoint()
    yield endpoint
    endpoint.close()


def destination(events: Events, url: str) -> str:
    connection = events.api.create_connection(
        Name="c",
        AuthorizationType="API_KEY",
        AuthParameters={"ApiKeyAuthParameters": {"ApiKeyName": "x-key", "ApiKeyValue": "k"}},
    )["ConnectionArn"]
    return str(
        events.api.create_api_destination(
            Name="d", ConnectionArn=connection, InvocationEndpoint=url, HttpMethod="POST"
        )["ApiDestinationArn"]
    )


@row("events.kinds.http_retried", "An HTTP endpoint that answers 429 or 5xx is tried again", source=GUIDE)
def test_http_status_that_is_retried(events: Events, http: Endpoint) -> None:
    http.statuses = [503, 429, 500, 200]
    dlq = events.queue("dlq")
    role = ROLE.format(account=events.aws.account)
    events.target(events.rule(tags=FAST), destination(events, http.url), dlq=dlq, RoleArn=role)
    identity = events.put()
    until(lambda: len(http.received) >= 4)
    events.nothing_in(dlq, within=0.1)
    assert [json.loads(body)["id"] for body in http.received] == [identity] * 4


@row("events.kinds.http_refused", "An HTTP endpoint that answers another 4xx is not tried again", source=GUIDE)
def test_http_status_that_is_not_retried(events: Events, http: Endpoint) -> None:
    http.statuses = [400]
    dlq = events.queue("dlq")
    role = ROLE.format(account=events.aws.account)
    events.target(events.rule(tags=FAST), destination(events, http.url), dlq=dlq, RoleArn=role)
    events.put()
    attributes = attributes_of(events.messages(dlq)[0])
    assert (attributes["ERROR_CODE"], attributes["RETRY_ATTEMPTS"]) == ("ERROR_FROM_TARGET", "0")
    assert len(http.received) == 1


@row(
    "events.kinds.http_unreachable",
    "An HTTP endpoint that cannot be reached is tried again, then given up",
    source=GUIDE,
)
def test_http_endpoint_that_is_down(events: Events) -> None:
    dlq = events.queue("dlq")
    retries = {"MaximumRetryAttempts": 3}
    role = ROLE.format(account=events.aws.account)
    with socket.socket() as held:  # a port on which nobody listens, and which nobody else can have
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}/hook"
        events.target(events.rule(tags=FAST), destination(events, url), dlq=dlq, RoleArn=role, RetryPolicy=retries)
        events.put()
        attributes = attributes_of(events.messages(dlq)[0])
    assert attributes["ERROR_CODE"] == "CONNECTION_FAILURE"
    assert attributes["RETRY_ATTEMPTS"] == "3"
    assert attributes["EXHAUSTED_RETRY_CONDITION"] == "MaximumRetryAttempts"
