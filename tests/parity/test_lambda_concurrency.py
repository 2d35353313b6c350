"""Throttling, and what the metrics say about it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from botocore.exceptions import ClientError

from .conftest import Aws
from .lambda_kit import GUIDE, RECORDED, function, invoke, log, send, until
from .rows import row
from .sqs_helpers import refused

THROTTLED = "TooManyRequestsException"


def metric(aws: Aws, name: str, *, statistic: str = "Sum", **dimensions: str) -> float | None:
    """A statistic of an AWS/Lambda metric over the last minutes; None when there is no data point."""
    now = datetime.now(UTC)
    given = [{"Name": key, "Value": value} for key, value in dimensions.items()]
    asked = {"Namespace": "AWS/Lambda", "MetricName": name, "Dimensions": given}
    answer = aws.client("cloudwatch").get_metric_data(
        MetricDataQueries=[{"Id": "m", "MetricStat": {"Metric": asked, "Period": 60, "Stat": statistic}}],
        StartTime=now - timedelta(minutes=10),
        EndTime=now + timedelta(minutes=1),
    )
    values = answer["MetricDataResults"][0]["Values"]
    if not values:
        return None
    return max(values) if statistic == "Maximum" else sum(values)


@row("lambda.concurrency.zero", "A reserved concurrency of 0 stops a function and its versions", source=RECORDED)
def test_zero(aws: Aws) -> None:
    api = aws.client("lambda")
    function(aws, "stopped", "def handler(event, context): return 1")
    api.publish_version(FunctionName="stopped")
    api.create_alias(FunctionName="stopped", Name="live", FunctionVersion="1")
    api.put_function_concurrency(FunctionName="stopped", ReservedConcurrentExecutions=0)
    for qualifier in ({}, {"Qualifier": "1"}, {"Qualifier": "live"}):
        with pytest.raises(api.exceptions.TooManyRequestsException) as caught:
            invoke(aws, "stopped", **qualifier)
        answer = caught.value.response
        assert answer["ResponseMetadata"]["HTTPStatusCode"] == 429
        assert answer["Error"] == {"Code": THROTTLED, "Message": "Rate Exceeded."}
        assert answer["Reason"] == "ReservedFunctionConcurrentInvocationLimitExceeded"
        assert answer["Type"] == "User"
    api.delete_function_concurrency(FunctionName="stopped")
    assert invoke(aws, "stopped") == (200, None, 1)


@row("lambda.concurrency.reserved", "Beyond the reserved concurrency a synchronous request is refused", source=RECORDED)
def test_reserved(aws: Aws) -> None:
    source = "import time\ndef handler(event, context):\n    print('begun', event)\n    time.sleep(event)"
    function(aws, "one", source, timeout=20)
    api = aws.client("lambda")
    assert (
        api.put_function_concurrency(FunctionName="one", ReservedConcurrentExecutions=1)["ReservedConcurrentExecutions"]
        == 1
    )
    assert invoke(aws, "one", 0)[0] == 200
    with ThreadPoolExecutor(4) as pool:
        running = pool.submit(outcome, aws, 8)
        until(lambda: any(line.startswith("begun 8") for line in log(aws, "one")))
        assert list(pool.map(lambda _: outcome(aws, 0), range(3))) == [THROTTLED] * 3
        assert running.result() == "ok"
    assert invoke(aws, "one", 0)[0] == 200


def outcome(aws: Aws, seconds: float) -> str:
    try:
        invoke(aws, "one", seconds)
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "ok"


@row("lambda.concurrency.unreserved", "A reservation must leave 100 of the account's 1,000", source=RECORDED)
def test_unreserved(aws: Aws) -> None:
    api = aws.client("lambda")
    limit = api.get_account_settings()["AccountLimit"]
    assert (limit["ConcurrentExecutions"], limit["UnreservedConcurrentExecutions"]) == (1000, 1000)
    for name in ("first", "second"):
        function(aws, name, "def handler(event, context): return 1")
    api.put_function_concurrency(FunctionName="first", ReservedConcurrentExecutions=500)
    text = (
        "Specified ReservedConcurrentExecutions for function decreases account's UnreservedConcurrentExecution below "
        "its minimum value of [100]."
    )
    with refused("InvalidParameterValueException", text, 400):
        api.put_function_concurrency(FunctionName="second", ReservedConcurrentExecutions=401)
    api.put_function_concurrency(FunctionName="second", ReservedConcurrentExecutions=400)
    api.put_function_concurrency(FunctionName="second", ReservedConcurrentExecutions=100)
    assert api.get_account_settings()["AccountLimit"]["UnreservedConcurrentExecutions"] == 400
    assert api.get_function(FunctionName="second")["Concurrency"]["ReservedConcurrentExecutions"] == 100


@row(
    "lambda.metrics.invocations",
    "Invocations, Errors and Duration are counted for the function and for all of them",
    source=GUIDE,
)
def test_invocation_metrics(aws: Aws) -> None:
    function(aws, "either", "def handler(event, context): return 1 / event")
    for event in (1, 0, 0, 1, 1):
        invoke(aws, "either", event)
    for dimensions in ({"FunctionName": "either"}, {"FunctionName": "either", "Resource": "either"}, {}):
        until(lambda dimensions=dimensions: metric(aws, "Invocations", **dimensions) == 5)  # type: ignore[misc]
        assert metric(aws, "Errors", **dimensions) == 2
        assert metric(aws, "Duration", statistic="SampleCount", **dimensions) == 5
    assert metric(aws, "Duration", statistic="Maximum", FunctionName="either") > 0


@row("lambda.metrics.throttles", "A throttled request is neither an invocation nor an error", source=GUIDE)
def test_throttle_metrics(aws: Aws) -> None:
    api = aws.client("lambda")
    function(aws, "stopped", "def handler(event, context): return 1")
    invoke(aws, "stopped")
    api.put_function_concurrency(FunctionName="stopped", ReservedConcurrentExecutions=0)
    for _ in range(3):
        with pytest.raises(api.exceptions.TooManyRequestsException):
            invoke(aws, "stopped")
    until(lambda: metric(aws, "Throttles", FunctionName="stopped") == 3)
    assert metric(aws, "Invocations", FunctionName="stopped") == 1
    assert metric(aws, "Errors", FunctionName="stopped") == 0


@row("lambda.metrics.concurrent", "ConcurrentExecutions has how many ran at once as its maximum", source=GUIDE)
def test_concurrent_executions(aws: Aws) -> None:
    function(aws, "one", "import time\ndef handler(event, context): time.sleep(event)", timeout=20)
    aws.client("lambda")  # made before the threads begin
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: invoke(aws, "one", 6), range(3)))
    until(lambda: metric(aws, "ConcurrentExecutions", statistic="Maximum", FunctionName="one") == 3)


@row("lambda.metrics.async", "Every attempt at an asynchronous event is an invocation", source=GUIDE)
def test_asynchronous_metrics(aws: Aws) -> None:
    function(aws, "fails", "def handler(event, context): raise ValueError", Tags={"lab:clock-scale": "400"})
    send(aws, "fails")
    assert until(lambda: metric(aws, "AsyncEventsDropped", FunctionName="fails"), within=200) == 1
    assert metric(aws, "AsyncEventsReceived", FunctionName="fails") == 1
    assert metric(aws, "Invocations", FunctionName="fails") == 3
    assert metric(aws, "Errors", FunctionName="fails") == 3


@row("lambda.recursion.stopped", "A function that invokes itself is stopped after some 16 times", source=GUIDE)
def test_recursion(aws: Aws) -> None:
    source = """
    import boto3, json

    client = boto3.client("lambda")


    def handler(event, context):
        payload = json.dumps(event + 1)
        try:
            client.invoke(FunctionName=context.function_name, InvocationType="Event", Payload=payload)
        except client.exceptions.RecursiveInvocationException:
            print("stopped at", event)
    """
    function(aws, "again", source, timeout=20)
    send(aws, "again", 1)
    try:
        stopped = until(lambda: [line for line in log(aws, "again") if line.startswith("stopped at")], within=60)
        assert stopped == ["stopped at 16\n"]
        until(lambda: metric(aws, "Invocations", FunctionName="again") == 16)  # the last one has yet to end
        time.sleep(0.5)
        assert metric(aws, "Invocations", FunctionName="again") == 16
    finally:
        aws.client("lambda").delete_function(FunctionName="again")  # where nothing stops it, it goes on for ever
