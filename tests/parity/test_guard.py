"""Web pages from elsewhere cannot drive the stand-in."""

from __future__ import annotations

from urllib.parse import urlsplit

import pytest

from .conftest import Aws
from .raw import Wire
from .rows import ours
from .sqs_helpers import queue

TARGET = {"X-Amz-Target": "AmazonSQS.ListQueues"}


@ours("AWS asks for a signature instead; the stand-in serves whatever reaches its port")
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://example.com"},
        {"Origin": "null"},
        {"Origin": "http://localhost.example.com"},
        {"Host": "example.com"},
        {"Host": "127.0.0.1.example.com"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
    ids=lambda headers: " ".join(next(iter(headers.items()))),
)
def test_a_page_from_elsewhere_is_refused(aws: Aws, headers: dict[str, str]) -> None:
    url = queue(aws.client("sqs"))
    with Wire(aws) as wire:
        for method in ("GET", "POST", "OPTIONS"):
            path = f"/?Action=DeleteQueue&QueueUrl={url}"
            status, answer, body = wire.send(b"", headers, method=method, path=path)
            assert status == 403
            assert b"this machine" in body
            assert "access-control-allow-origin" not in answer
    assert aws.client("sqs").list_queues()["QueueUrls"]


@ours("AWS asks for a signature instead; the stand-in serves whatever reaches its port")
def test_programs_and_pages_of_this_machine_are_served(aws: Aws) -> None:
    queue(aws.client("sqs"))
    port = urlsplit(aws.endpoint).port
    with Wire(aws) as wire:
        for host in ("localhost", f"127.0.0.1:{port}", f"[::1]:{port}", "sqs.us-east-1.localhost"):
            status, answer, _ = wire.send(b"{}", {**TARGET, "Host": host})
            assert status == 200
            assert "access-control-allow-origin" not in answer
        origin = "http://localhost:8888"
        status, answer, _ = wire.send(b"{}", {**TARGET, "Origin": origin, "Sec-Fetch-Site": "cross-site"})
        assert (status, answer["access-control-allow-origin"]) == (200, origin)
    s3 = aws.client("s3")
    bucket = f"lab-{aws.account}"
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="a", Body=b"x")
    with Wire(aws) as wire:
        headers = {"Host": f"{bucket}.localhost:{port}"}
        assert wire.send(b"", headers, method="GET", path="/a", service="s3")[::2] == (200, b"x")
