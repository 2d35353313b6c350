"""The Invoke action: which payloads it takes, which request id it gives, what its answers look like.

**On AWS** the id of the request is the one that the function's context and log show, for an asynchronous invocation
too, in each of its attempts. A payload over 6 MB, or over 1 MB for an asynchronous invocation, is refused with HTTP
413; one that is no JSON with InvalidRequestContentException. An answer to InvocationType Event or DryRun has no body
and no executed version. An error has a Type and its message, which ResourceNotFoundException calls ``Message``.
(Recorded on AWS: ids, answers, errors. The texts for sizes are from public reports, where the code reads
RequestEntityTooLargeException though the service model has RequestTooLargeException; that the 1 MB of January 2026 is
1,048,576 bytes too. AWS's text for a payload that is no JSON is its parser's: ours differs.)

**MiniStack** takes any size, hands ``{}`` to the function when the payload is no JSON, and has different ids in answer
and context.

**Here** the request is checked before MiniStack sees it, and its answer is put right.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from .lambda_request import current, request_of

MAX_SYNCHRONOUS = 6 * 1024 * 1024
MAX_ASYNCHRONOUS = 1024 * 1024
TOO_LARGE = "RequestEntityTooLargeException"
REQUEST_ID = "x-amzn-requestid"
# Errors whose body is nothing but a message.
PLAIN = frozenset({TOO_LARGE, "ValidationException"})

_INVOCATION = re.compile(r"/2015-03-31/functions/[^/]+/invocations/?")


class Answer(dict[str, Any]):
    """Response headers whose request id stands: MiniStack writes one of its own over it at the end."""

    def update(self, *others: Any, **more: Any) -> None:
        for name, value in dict(*others, **more).items():
            if name != REQUEST_ID:
                self[name] = value


def size_error(size: int, kind: str) -> str | None:
    """Why a payload of ``size`` bytes is refused for the invocation type ``kind``, or None."""
    if size > MAX_SYNCHRONOUS:
        return f"Request must be smaller than {MAX_SYNCHRONOUS} bytes for the InvokeFunction operation"
    if kind == "Event" and size > MAX_ASYNCHRONOUS:
        return f"{size} byte payload is too large for the Event invocation type (limit {MAX_ASYNCHRONOUS} bytes)"
    return None


def payload_error(payload: bytes) -> str | None:
    """Why a payload is no JSON, or None. No payload at all is an empty object."""
    try:
        json.loads((payload or b"{}").decode(), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        return f"Could not parse request body into json: Could not parse payload into json: {error}"
    return None


def _refuse(literal: str) -> None:
    raise ValueError(f"{literal} is no JSON")  # Python's decoder takes NaN and Infinity


def error_body(code: str, body: Mapping[str, Any]) -> dict[str, Any]:
    """The body of an error as AWS writes it; the code stands in a header."""
    rest = {name: value for name, value in body.items() if name not in ("__type", "message", "Message")}
    message = {"Message" if code == "ResourceNotFoundException" else "message": body.get("message", "")}
    return {**message, **rest} if code in PLAIN else {"Type": "User", **message, **rest}


def install() -> None:
    from ministack.services import lambda_svc

    handle, invoke = lambda_svc.handle_request, lambda_svc._invoke

    async def handle_request(method: str, path: str, headers: Mapping[str, str], body: bytes, query: Any) -> Any:
        kind = headers.get("x-amz-invocation-type", "RequestResponse")
        refused = None
        invocation = method == "POST" and _INVOCATION.fullmatch(path)
        if invocation:
            if message := size_error(len(body), kind):
                refused = lambda_svc.error_response_json(TOO_LARGE, message, 413)
            elif message := payload_error(body):
                refused = lambda_svc.error_response_json("InvalidRequestContentException", message, 400)
        request = request_of(headers, body, synchronous=kind != "Event") if invocation and not refused else None
        token = current.set(request)
        try:
            return shaped(*(refused or await handle(method, path, headers, body, query)))
        finally:
            current.reset(token)

    def shaped(status: int, headers: dict[str, Any], body: bytes) -> Any:
        if status < 400 or not isinstance(body, bytes):
            return status, headers, body
        try:
            found = json.loads(body)
            code = headers.get("x-amzn-errortype") or found["__type"]
        except (ValueError, KeyError, TypeError):
            return status, headers, body
        headers |= {"Content-Type": "application/json", "x-amzn-errortype": code}
        return status, headers, json.dumps(error_body(code, found)).encode()

    async def invoke_function(
        name: str, event: Any, headers: Mapping[str, str], qualifier: str | None = None, query: Any = None
    ) -> Any:
        request = current.get()
        if name not in lambda_svc._functions and not qualifier and not (query or {}).get("Qualifier"):
            return lambda_svc._function_qualifier_not_found(name, "$LATEST")  # the ARN in this error is qualified
        status, answer, body = await invoke(name, event, headers, qualifier, query)
        if status in (202, 204):
            answer.pop("X-Amz-Executed-Version", None)
        if request is not None:
            answer = Answer(answer, **{REQUEST_ID: request.identity})
        return status, answer, body

    _ = lambda_svc.error_response_json, lambda_svc._functions, lambda_svc._function_qualifier_not_found
    lambda_svc.handle_request = handle_request
    lambda_svc._invoke = invoke_function
