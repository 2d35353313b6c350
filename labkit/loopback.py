"""This machine's own address: which ports are free on it, who listens, and whether AWS's APIs answer there."""

from __future__ import annotations

import http.client
import json
import socket
import time
import urllib.request

import psutil

from labkit.errors import EndpointDown

HOST = "127.0.0.1"
PREFERRED_PORT = 4566
# Past any proxy of the reader's: nothing of ours is on the other side of one.
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def answers(endpoint: str, timeout: float = 2.0) -> bool:
    """Whether SQS and EventBridge answer at ``endpoint``: two real calls, because a health page can lie.

    ``timeout`` is for both together, as long as an answer does not drip."""
    calls = (
        ("sqs", "AmazonSQS.ListQueues", "application/x-amz-json-1.0"),
        ("events", "AWSEvents.ListEventBuses", "application/x-amz-json-1.1"),
    )
    end = time.monotonic() + timeout
    for service, action, kind in calls:
        credential = f"AWS4-HMAC-SHA256 Credential=000000000000/20260101/us-east-1/{service}/aws4_request"
        request = urllib.request.Request(
            endpoint + "/",
            data=b"{}",
            headers={"X-Amz-Target": action, "Content-Type": kind, "Authorization": f"{credential}, Signature=lab"},
        )
        try:
            with DIRECT.open(request, timeout=max(0.1, end - time.monotonic())) as response:
                json.load(response)
        except (OSError, ValueError, http.client.HTTPException):  # URLError and timeouts are OSErrors
            return False
    return True


def port_is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(0.5)
        if probe.connect_ex((HOST, port)) == 0:
            return False  # some systems allow to bind here beside a program that listens on every address
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True


def free_port() -> int:
    """4566, or the first free one above it: low ports, because the system gives the high ones to outgoing connections
    and one of those may hold our port just when a stand-in is to be started again on it."""
    for port in range(PREFERRED_PORT, PREFERRED_PORT + 200):
        if port_is_free(port):
            return port
    raise EndpointDown(f"none of the ports {PREFERRED_PORT} to {PREFERRED_PORT + 199} is free.")


def listens(pid: int, port: int) -> bool:
    """Whether this very process listens on ``port``: another lab's stand-in would answer just as well."""
    try:
        return any(
            link.status == psutil.CONN_LISTEN and link.laddr.port == port
            for link in psutil.Process(pid).net_connections("tcp")
        )
    except psutil.Error:
        return False
