"""Asynchronous invocation: retries, what is given up, and where its record goes."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from .conftest import Aws
from .lambda_kit import GUIDE, MODEL, RECORDED, configure, function, log, replace, send, until
from .rows import ours, row
from .sqs_helpers import arn_of, queue

FAST = {"lab:clock-scale": "200"}  # one minute becomes 0.3 s
FAILS = "def handler(event, context):\n    print('attempt')\n    raise ValueError(event['why'])"
SUCCEEDS = "def handler(event, context): return {'got': event}"


def messages(aws: Aws, url: str, count: int = 1, *, within: float = 60) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []

    def look() -> bool:
        answer = aws.client("sqs").receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageAttributeNames=["All"], WaitTimeSeconds=0
        )
        for message in answer.get("Messages", []):
            found.append(message)
            aws.client("sqs").delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
        return len(found) >= count

    until(look, within=within)
    return found


def destinations(aws: Aws, name: str, *, failure: str | None = None, success: str | None = None, **more: Any) -> None:
    given = {kind: {"Destination": arn} for kind, arn in (("OnFailure", failure), ("OnSuccess", success)) if arn}
    aws.client("lambda").put_function_event_invoke_config(FunctionName=name, DestinationConfig=given, **more)


def attempts(aws: Aws, name: str) -> int:
    return sum(line.startswith("attempt") for line in log(aws, name))


@pytest.fixture
def dead(aws: Aws) -> str:
    return queue(aws.client("sqs"), "dead")


@row("lambda.async.accepted", "An asynchronous invocation is answered with 202 and nothing", source=RECORDED)
def test_accepted(aws: Aws) -> None:
    function(aws, "works", SUCCEEDS)
    answer = aws.client("lambda").invoke(FunctionName="works", InvocationType="Event", Payload=b"{}")
    assert (answer["StatusCode"], answer["Payload"].read()) == (202, b"")
    assert "ExecutedVersion" not in answer
    assert "FunctionError" not in answer


@row(
    "lambda.async.success_record",
    "A success goes to OnSuccess as an invocation record, and nothing goes to OnFailure",
    source=RECORDED,
)
def test_success_record(aws: Aws, dead: str) -> None:
    done = queue(aws.client("sqs"), "done")
    arn = function(aws, "works", SUCCEEDS)
    destinations(aws, "works", success=arn_of(aws.client("sqs"), done), failure=arn_of(aws.client("sqs"), dead))
    request = send(aws, "works", {"order": "ä"})
    record = json.loads(messages(aws, done)[0]["Body"])
    assert record.pop("timestamp").endswith("Z")
    assert record == {
        "version": "1.0",
        "requestContext": {
            "requestId": request,
            "functionArn": f"{arn}:$LATEST",
            "condition": "Success",
            "approximateInvokeCount": 1,
        },
        "requestPayload": {"order": "ä"},
        "responseContext": {"statusCode": 200, "executedVersion": "$LATEST"},
        "responsePayload": {"got": {"order": "ä"}},
    }
    assert not aws.client("sqs").receive_message(QueueUrl=dead).get("Messages")


@row(
    "lambda.async.retries",
    "A failure is retried twice under one request id; then its record goes to OnFailure",
    source=RECORDED,
)
def test_retries(aws: Aws, dead: str) -> None:
    arn = function(aws, "fails", FAILS, Tags=FAST)
    destinations(aws, "fails", failure=arn_of(aws.client("sqs"), dead))
    request = send(aws, "fails", {"why": "no stock"})
    record = json.loads(messages(aws, dead, within=250)[0]["Body"])
    assert record["requestContext"] == {
        "requestId": request,
        "functionArn": f"{arn}:$LATEST",
        "condition": "RetriesExhausted",
        "approximateInvokeCount": 3,
    }
    assert record["requestPayload"] == {"why": "no stock"}
    assert record["responseContext"] == {"statusCode": 200, "executedVersion": "$LATEST", "functionError": "Unhandled"}
    # The frames of the stack are another row's: lambda.error.class_name.
    assert record["responsePayload"].pop("stackTrace")
    assert record["responsePayload"] == {"errorMessage": "no stock", "errorType": "ValueError", "requestId": request}
    assert attempts(aws, "fails") == 3
    ends = [line for line in log(aws, "fails") if line.startswith("END")]
    assert [line.strip() for line in ends] == [f"END RequestId: {request}"] * 3


@ours("the clock scale is a setting of the stand-in")
def test_clock_scale(aws: Aws, dead: str) -> None:
    function(aws, "fails", FAILS, Tags={"lab:clock-scale": "100"})
    destinations(aws, "fails", failure=arn_of(aws.client("sqs"), dead))
    began = time.monotonic()
    send(aws, "fails", {"why": "x"})
    messages(aws, dead)
    assert time.monotonic() - began >= 1.8  # one minute and two, a hundred times faster


@row("lambda.async.no_retry", "MaximumRetryAttempts 0 means one attempt", source=RECORDED)
def test_no_retry(aws: Aws, dead: str) -> None:
    function(aws, "fails", FAILS)
    destinations(aws, "fails", failure=arn_of(aws.client("sqs"), dead), MaximumRetryAttempts=0)
    send(aws, "fails", {"why": "x"})
    context = json.loads(messages(aws, dead)[0]["Body"])["requestContext"]
    assert (context["condition"], context["approximateInvokeCount"]) == ("RetriesExhausted", 1)


@row(
    "lambda.async.event_age",
    "An event whose next attempt would come too late is given up at once",
    source=RECORDED,
)
def test_event_age(aws: Aws, dead: str) -> None:
    function(aws, "fails", FAILS)
    destinations(
        aws, "fails", failure=arn_of(aws.client("sqs"), dead), MaximumEventAgeInSeconds=60, MaximumRetryAttempts=2
    )
    send(aws, "fails", {"why": "x"})
    context = json.loads(messages(aws, dead)[0]["Body"])["requestContext"]
    assert (context["condition"], context["approximateInvokeCount"]) == ("EventAgeExceeded", 1)


@row(
    "lambda.async.dead_letter",
    "A dead-letter queue gets the event as it came, with RequestID, ErrorCode and ErrorMessage",
    source=RECORDED,
)
def test_dead_letter_queue(aws: Aws, dead: str) -> None:
    target = {"TargetArn": arn_of(aws.client("sqs"), dead)}
    function(aws, "fails", FAILS, DeadLetterConfig=target)
    aws.client("lambda").put_function_event_invoke_config(FunctionName="fails", MaximumRetryAttempts=0)
    answer = aws.client("lambda").invoke(FunctionName="fails", InvocationType="Event", Payload=b'{"why":   "no stock"}')
    message = messages(aws, dead)[0]
    assert message["Body"] == '{"why":   "no stock"}'  # the digest in the recorded message is that of the bytes sent
    assert message["MessageAttributes"] == {
        "RequestID": {"DataType": "String", "StringValue": answer["ResponseMetadata"]["RequestId"]},
        "ErrorCode": {"DataType": "Number", "StringValue": "200"},
        "ErrorMessage": {"DataType": "String", "StringValue": "no stock"},
    }


@row("lambda.async.both", "A function may have a dead-letter queue and an OnFailure destination", source=MODEL)
def test_both(aws: Aws, dead: str) -> None:
    other = queue(aws.client("sqs"), "other")
    function(aws, "fails", FAILS, DeadLetterConfig={"TargetArn": arn_of(aws.client("sqs"), dead)})
    destinations(aws, "fails", failure=arn_of(aws.client("sqs"), other), MaximumRetryAttempts=0)
    send(aws, "fails", {"why": "x"})
    assert json.loads(messages(aws, dead)[0]["Body"]) == {"why": "x"}
    assert json.loads(messages(aws, other)[0]["Body"])["requestPayload"] == {"why": "x"}


@row(
    "lambda.async.zero_concurrency",
    "With a reserved concurrency of 0 an event goes to OnFailure without an attempt",
    source=RECORDED,
)
def test_zero_concurrency(aws: Aws, dead: str) -> None:
    arn = function(aws, "stopped", SUCCEEDS)
    destinations(aws, "stopped", failure=arn_of(aws.client("sqs"), dead))
    aws.client("lambda").put_function_concurrency(FunctionName="stopped", ReservedConcurrentExecutions=0)
    request = send(aws, "stopped", {"a": 1})
    record = json.loads(messages(aws, dead)[0]["Body"])
    del record["timestamp"]
    assert record == {
        "version": "1.0",
        "requestContext": {
            "requestId": request,
            "functionArn": f"{arn}:$LATEST",
            "condition": "ZeroReservedConcurrency",
            "approximateInvokeCount": 0,
        },
        "requestPayload": {"a": 1},
    }


@row("lambda.async.throttled", "A throttled event waits and is no failed attempt", source=GUIDE)
def test_throttled_event(aws: Aws, dead: str) -> None:
    done = queue(aws.client("sqs"), "done")
    source = "import time\ndef handler(event, context):\n    print('begun')\n    time.sleep(event)"
    function(aws, "one", source, timeout=20)
    destinations(
        aws,
        "one",
        success=arn_of(aws.client("sqs"), done),
        failure=arn_of(aws.client("sqs"), dead),
        MaximumRetryAttempts=0,
    )
    aws.client("lambda").put_function_concurrency(FunctionName="one", ReservedConcurrentExecutions=1)
    send(aws, "one", 4)
    until(lambda: any(line.startswith("begun") for line in log(aws, "one")))
    send(aws, "one", 0)
    records = [json.loads(message["Body"]) for message in messages(aws, done, 2, within=100)]
    assert [record["requestContext"]["approximateInvokeCount"] for record in records] == [1, 1]
    assert [record["requestPayload"] for record in records] == [4, 0]


@row("lambda.async.current_code", "A retry runs the function as it is then", source=RECORDED)
def test_retry_runs_the_current_code(aws: Aws) -> None:
    done = queue(aws.client("sqs"), "done")
    function(aws, "mended", FAILS, Tags={"lab:clock-scale": "10"})  # one minute becomes 6 s
    destinations(aws, "mended", success=arn_of(aws.client("sqs"), done))
    send(aws, "mended", {"why": "x"})
    until(lambda: attempts(aws, "mended") == 1)
    replace(aws, "mended", SUCCEEDS)
    context = json.loads(messages(aws, done, within=100)[0]["Body"])["requestContext"]
    assert context["approximateInvokeCount"] == 2


@row("lambda.async.destination_function", "A destination function gets the record as its event", source=GUIDE)
def test_function_as_destination(aws: Aws) -> None:
    source = "def handler(event, context): print('got', event['requestContext']['condition'], event['responsePayload'])"
    arn = function(aws, "next", source)
    function(aws, "works", "def handler(event, context): return event['n'] + 1")
    destinations(aws, "works", success=arn)
    send(aws, "works", {"n": 1})
    until(lambda: any(line.startswith("got Success 2") for line in log(aws, "next")))


@row(
    "lambda.async.destination_bus",
    "On a bus the record is the detail of an event from the source lambda",
    source=RECORDED,
)
@pytest.mark.parametrize("outcome", ["Success", "Failure"])
def test_bus_as_destination(aws: Aws, outcome: str) -> None:
    events, sqs = aws.client("events"), aws.client("sqs")
    bus = events.create_event_bus(Name="outcomes")["EventBusArn"]
    allow = {"Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}, "Action": "sqs:SendMessage"}
    policy = {"Version": "2012-10-17", "Statement": [{**allow, "Resource": aws.arn("sqs", "seen")}]}
    seen = queue(sqs, "seen", Policy=policy)
    events.put_rule(Name="all", EventBusName="outcomes", EventPattern=json.dumps({"source": ["lambda"]}))
    events.put_targets(Rule="all", EventBusName="outcomes", Targets=[{"Id": "q", "Arn": arn_of(sqs, seen)}])
    arn = function(aws, "either", "def handler(event, context): return 1 / event")
    destinations(aws, "either", success=bus, failure=bus, MaximumRetryAttempts=0)
    send(aws, "either", 1 if outcome == "Success" else 0)
    event = json.loads(messages(aws, seen)[0]["Body"])
    assert event["source"] == "lambda"
    assert event["detail-type"] == f"Lambda Function Invocation Result - {outcome}"
    assert event["account"] == aws.account
    assert event["resources"] == [bus, f"{arn}:$LATEST"]
    assert event["detail"]["version"] == "1.0"
    assert event["detail"]["responseContext"]["statusCode"] == 200


@row("lambda.async.destination_topic", "A topic gets the record as its message", source=GUIDE)
def test_topic_as_destination(aws: Aws) -> None:
    sns, sqs = aws.client("sns"), aws.client("sqs")
    topic = sns.create_topic(Name="outcomes")["TopicArn"]
    seen = queue(sqs, "seen")
    sns.subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn_of(sqs, seen))
    function(aws, "works", SUCCEEDS)
    destinations(aws, "works", success=topic)
    send(aws, "works", {"n": 1})
    notification = json.loads(messages(aws, seen)[0]["Body"])
    assert json.loads(notification["Message"])["responsePayload"] == {"got": {"n": 1}}


@row("lambda.async.from_sns", "SNS invokes a function asynchronously: its failures are retried", source=GUIDE)
def test_from_sns(aws: Aws, dead: str) -> None:
    sns = aws.client("sns")
    topic = sns.create_topic(Name="orders")["TopicArn"]
    arn = function(aws, "fails", "def handler(event, context): raise ValueError(event['Records'][0]['Sns']['Message'])")
    aws.client("lambda").add_permission(
        FunctionName="fails",
        StatementId="topic",
        Action="lambda:InvokeFunction",
        Principal="sns.amazonaws.com",
        SourceArn=topic,
    )
    destinations(aws, "fails", failure=arn_of(aws.client("sqs"), dead), MaximumRetryAttempts=0)
    sns.subscribe(TopicArn=topic, Protocol="lambda", Endpoint=arn)
    sns.publish(TopicArn=topic, Message="hello")
    record = json.loads(messages(aws, dead)[0]["Body"])
    assert record["responsePayload"]["errorMessage"] == "hello"


@row("lambda.async.fifo_destination", "A FIFO queue as destination loses the record, and is counted", source=GUIDE)
def test_fifo_queue_takes_no_record(aws: Aws) -> None:
    fifo = queue(aws.client("sqs"), "done.fifo")
    function(aws, "works", SUCCEEDS)
    destinations(aws, "works", success=arn_of(aws.client("sqs"), fifo))
    send(aws, "works", {"n": 1})
    cloudwatch = aws.client("cloudwatch")

    def lost() -> float:
        answer = cloudwatch.get_metric_statistics(
            Namespace="AWS/Lambda",
            MetricName="DestinationDeliveryFailures",
            Dimensions=[{"Name": "FunctionName", "Value": "works"}],
            StartTime=time.time() - 600,
            EndTime=time.time() + 60,
            Period=60,
            Statistics=["Sum"],
        )
        return sum(point["Sum"] for point in answer["Datapoints"])

    assert until(lost) == 1
    assert not aws.client("sqs").receive_message(QueueUrl=fifo).get("Messages")


@row("lambda.async.alias", "An alias has destinations of its own", source=RECORDED)
def test_destinations_of_an_alias(aws: Aws) -> None:
    done = queue(aws.client("sqs"), "done")
    arn = function(aws, "works", SUCCEEDS)
    api = aws.client("lambda")
    version = api.publish_version(FunctionName="works")["Version"]
    api.create_alias(FunctionName="works", Name="live", FunctionVersion=version)
    destinations(aws, "works", success=arn_of(aws.client("sqs"), done), Qualifier="live")
    send(aws, "works", {"n": 1})
    api.invoke(FunctionName="works", Qualifier="live", InvocationType="Event", Payload=b'{"n": 2}')
    record = json.loads(messages(aws, done)[0]["Body"])
    assert record["requestContext"]["functionArn"] == f"{arn}:live"
    assert record["responseContext"]["executedVersion"] == "1"
    assert record["requestPayload"] == {"n": 2}


@row("lambda.async.dead_letter_update", "A dead-letter queue can be taken away again", source=RECORDED)
def test_dead_letter_queue_is_removed(aws: Aws, dead: str) -> None:
    function(aws, "fails", FAILS, DeadLetterConfig={"TargetArn": arn_of(aws.client("sqs"), dead)})
    configure(aws, "fails", DeadLetterConfig={})
    found = aws.client("lambda").get_function_configuration(FunctionName="fails")
    assert not found.get("DeadLetterConfig", {}).get("TargetArn")


@row(
    "lambda.async.destination_chain",
    "A function that a destination's event sets off has a request of its own",
    source=GUIDE,
)
def test_chain_over_a_bus(aws: Aws, dead: str) -> None:
    events = aws.client("events")
    bus = events.create_event_bus(Name="outcomes")["EventBusArn"]
    target = {"TargetArn": arn_of(aws.client("sqs"), dead)}
    second = function(aws, "second", "def handler(event, context): raise ValueError('second')", DeadLetterConfig=target)
    aws.client("lambda").put_function_event_invoke_config(FunctionName="second", MaximumRetryAttempts=0)
    events.put_rule(Name="all", EventBusName="outcomes", EventPattern=json.dumps({"source": ["lambda"]}))
    events.put_targets(Rule="all", EventBusName="outcomes", Targets=[{"Id": "f", "Arn": second}])
    aws.client("lambda").add_permission(
        FunctionName="second", StatementId="rule", Action="lambda:InvokeFunction", Principal="events.amazonaws.com"
    )
    function(aws, "first", SUCCEEDS)
    destinations(aws, "first", success=bus)
    request = send(aws, "first", {"n": 1})
    message = messages(aws, dead)[0]
    assert json.loads(message["Body"])["detail"]["requestContext"]["requestId"] == request
    assert message["MessageAttributes"]["RequestID"]["StringValue"] != request


@row("lambda.async.destination_loop", "Functions that are each other's destination are stopped", source=GUIDE)
def test_loop_of_destinations(aws: Aws) -> None:
    first = function(aws, "first", "def handler(event, context): print('attempt')")
    second = function(aws, "second", "def handler(event, context): print('attempt')")
    destinations(aws, "first", success=second)
    destinations(aws, "second", success=first)
    send(aws, "first")
    try:
        until(lambda: attempts(aws, "first") + attempts(aws, "second") == 16)
        time.sleep(0.5)
        assert attempts(aws, "first") + attempts(aws, "second") == 16
    finally:
        for name in ("first", "second"):  # where nothing stops them, they go on for ever
            aws.client("lambda").delete_function(FunctionName=name)
