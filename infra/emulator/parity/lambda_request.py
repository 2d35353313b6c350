"""What an invocation brings along beside its event: its id, its trace, the client's context.

**On AWS** the id of the request is the one that the function's context and log show. Every invocation has a tracing
header in ``_X_AMZN_TRACE_ID``, that of its caller where it has one; the SDK in the function passes it on. The client's
context is handed over in synchronous invocations only (botocore's ``Invoke``; recorded on AWS: the id, the header's
presence without active tracing).

**MiniStack** makes a second id, drops the client's context, and sets a tracing header only with active tracing.

**Here** a context variable carries the :class:`Request` from the HTTP call, or from an asynchronous attempt, to the
environment that runs it.
"""

from __future__ import annotations

import base64
import contextvars
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Request:
    identity: str = field(default_factory=lambda: str(uuid.uuid4()))
    trace: str | None = None  # the X-Amzn-Trace-Id that it came with
    client_context: Mapping[str, Any] | None = None
    text: str | None = None  # the payload as it came


current: contextvars.ContextVar[Request | None] = contextvars.ContextVar("lambda_request", default=None)


def request_of(headers: Mapping[str, str], payload: bytes, *, synchronous: bool) -> Request:
    """The request that an HTTP call of Invoke makes. ``payload`` is UTF-8."""
    client = None
    if synchronous and headers.get("x-amz-client-context"):
        try:
            client = json.loads(base64.b64decode(headers["x-amz-client-context"]))
        except ValueError:
            client = None
    context = client if isinstance(client, dict) else None
    return Request(str(uuid.uuid4()), headers.get("x-amzn-trace-id"), context, (payload or b"{}").decode())


def trace_header(inbound: str | None, *, active: bool, now: float, chance: str) -> str:
    """The tracing header that a function finds: the caller's, or a new one. ``chance`` is 40 hexadecimal digits."""
    if inbound:
        return inbound
    return f"Root=1-{int(now):08x}-{chance[:24]};Parent={chance[24:40]};Sampled={int(active)}"
