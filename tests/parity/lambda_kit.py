"""Functions for the rows of Lambda and of what calls it: a handler as a string, plain boto3, one account a test.

arn = function(aws, "hello", "def handler(event, context): return event['n'] + 1")
status, error, payload = invoke(aws, "hello", {"n": 1})        # 200, None, 2
"""

from __future__ import annotations

import base64
import io
import json
import textwrap
import time
import zipfile
from collections.abc import Callable
from typing import Any, TypeVar

from .conftest import Aws

GUIDE = "AWS documentation: Lambda Developer Guide"
MODEL = "botocore: lambda service model"
RECORDED = "recorded on AWS: LocalStack tests/aws/services/lambda_"
REPORTED = "AWS's answer quoted in public logs and error reports"
RUNTIME = "AWS's runtime interface client for Python (awslambdaric), its source"

Value = TypeVar("Value")


def package(source: str | dict[str, str]) -> bytes:
    """A deployment package: ``index.py`` with this source, or the files ``{path: text}``.

    The time stamps in it are constant, so that equal sources are equal packages.
    """
    files = {"index.py": source} if isinstance(source, str) else source
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, text in files.items():
            entry = zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0))
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, textwrap.dedent(text))
    return buffer.getvalue()


def role(aws: Aws) -> str:
    return f"arn:aws:iam::{aws.account}:role/lambda"


def function(
    aws: Aws,
    name: str,
    source: str | dict[str, str],
    *,
    timeout: int = 10,
    env: dict[str, str] | None = None,
    runtime: str = "python3.12",
    **options: Any,
) -> str:
    """Create a function whose handler is ``handler`` in ``source``, wait until it can be invoked, return its ARN.

    ``options`` are further parameters of ``CreateFunction``.
    """
    parameters: dict[str, Any] = {
        "FunctionName": name,
        "Runtime": runtime,
        "Role": role(aws),
        "Handler": "index.handler",
        "Code": {"ZipFile": package(source)},
        "Timeout": timeout,
    }
    if env is not None:
        parameters["Environment"] = {"Variables": env}
    arn = aws.client("lambda").create_function(**(parameters | options))["FunctionArn"]
    ready(aws, name)
    return str(arn)


def ready(aws: Aws, name: str, *, within: float = 60) -> dict[str, Any]:
    """Wait until the function is active and its last update is done; its configuration."""

    def look() -> dict[str, Any] | None:
        found = aws.client("lambda").get_function_configuration(FunctionName=name)
        assert found.get("State") != "Failed", found
        settled = found.get("State") == "Active" and found.get("LastUpdateStatus") != "InProgress"
        return found if settled else None

    return until(look, within=within)


def replace(aws: Aws, name: str, source: str | dict[str, str]) -> None:
    """Give the function other code."""
    aws.client("lambda").update_function_code(FunctionName=name, ZipFile=package(source))
    ready(aws, name)


def configure(aws: Aws, name: str, **changes: Any) -> None:
    aws.client("lambda").update_function_configuration(FunctionName=name, **changes)
    ready(aws, name)


def invoke(aws: Aws, name: str, payload: Any = None, **options: Any) -> tuple[int, str | None, Any]:
    """Invoke and wait for the answer: HTTP status, ``FunctionError`` (None when it succeeded), the parsed payload."""
    answer = call(aws, name, payload, **options)
    return answer["StatusCode"], answer.get("FunctionError"), answer["Payload"]


def call(aws: Aws, name: str, payload: Any = None, **options: Any) -> dict[str, Any]:
    """The whole answer of ``Invoke``, with the payload parsed and ``LogResult`` decoded to text."""
    body = payload if isinstance(payload, bytes) else json.dumps({} if payload is None else payload).encode()
    answer = aws.client("lambda").invoke(FunctionName=name, Payload=body, **options)
    read = answer["Payload"].read()
    answer["Payload"] = json.loads(read) if read else None
    if "LogResult" in answer:
        answer["LogResult"] = base64.b64decode(answer["LogResult"]).decode()
    return answer


def tail(aws: Aws, name: str, payload: Any = None) -> str:
    """Invoke and return the end of the log (``LogType=Tail``)."""
    return str(call(aws, name, payload, LogType="Tail")["LogResult"])


def send(aws: Aws, name: str, payload: Any = None) -> str:
    """Invoke asynchronously; the id of the request."""
    answer = call(aws, name, payload, InvocationType="Event")
    assert answer["StatusCode"] == 202
    return str(answer["ResponseMetadata"]["RequestId"])


def streams(aws: Aws, name: str) -> list[str]:
    """The function's log streams; none while it has logged nothing."""
    logs = aws.client("logs")
    try:
        found = logs.describe_log_streams(logGroupName=f"/aws/lambda/{name}")["logStreams"]
    except logs.exceptions.ResourceNotFoundException:
        return []
    return [stream["logStreamName"] for stream in found]


def log(aws: Aws, name: str) -> list[str]:
    """Every message in the function's log group, in order of time."""
    logs = aws.client("logs")
    try:
        pages = logs.get_paginator("filter_log_events").paginate(logGroupName=f"/aws/lambda/{name}")
        return [event["message"] for page in pages for event in page["events"]]
    except logs.exceptions.ResourceNotFoundException:
        return []


def until(look: Callable[[], Value | None], *, within: float = 60, every: float = 0.02) -> Value:
    """The first value of ``look()`` that counts as true; the test fails when there is none in time."""
    end = time.monotonic() + within
    while not (value := look()):
        assert time.monotonic() < end, "did not come true in time"
        time.sleep(every)
    return value
