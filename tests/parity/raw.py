"""Requests that no SDK would send: by hand, in either protocol of SQS, and to EventBridge."""

from __future__ import annotations

import http.client
import json
import urllib.parse
from collections.abc import Mapping
from typing import Any

from .conftest import Aws


class Wire:
    """One connection to the stand-in, in the account of ``aws``. ``with`` closes it."""

    def __init__(self, aws: Aws) -> None:
        self._aws = aws
        self._connection = http.client.HTTPConnection(urllib.parse.urlsplit(aws.endpoint).netloc, timeout=60)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *exception: object) -> None:
        self._connection.close()

    def send(
        self, body: bytes, headers: Mapping[str, str], *, method: str = "POST", path: str = "/", service: str = "sqs"
    ) -> tuple[int, dict[str, str], bytes]:
        scope = f"{self._aws.account}/20260101/{self._aws.region}/{service}/aws4_request"
        signed = {"Authorization": f"AWS4-HMAC-SHA256 Credential={scope}", **headers}
        self._connection.request(method, path, body, signed)
        answer = self._connection.getresponse()
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()

    def json(self, target: str, data: Any, **options: Any) -> tuple[int, Any]:
        """An action of the JSON protocol; ``data`` may be bytes that are no JSON."""
        body = data if isinstance(data, bytes) else json.dumps(data).encode()
        headers = {"X-Amz-Target": target, "Content-Type": "application/x-amz-json-1.0"}
        status, _, answer = self.send(body, headers, **options)
        return status, json.loads(answer) if answer else None

    def query(self, **form: str) -> tuple[int, str]:
        """An action of SQS's Query protocol."""
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        status, _, answer = self.send(urllib.parse.urlencode({"Version": "2012-11-05", **form}).encode(), headers)
        return status, answer.decode()
