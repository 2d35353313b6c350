"""Who may talk to the stand-in: programs on this machine, and web pages that are served on it.

The stand-in asks for no credentials, so whatever reaches its port can do everything. It listens on 127.0.0.1 only, but
a web page from anywhere, open in a browser on this machine, reaches that too: by a request of its own (the page cannot
read the answer, the harm is done all the same), or under a name of its own that it has resolved to 127.0.0.1. MiniStack
answers both, with ``Access-Control-Allow-Origin: *``.

**Here** a request is refused with HTTP 403

* when its ``Host`` is no name of this machine: localhost, 127.0.0.1 and [::1] with any port, and what ends in
  ``.localhost`` or ``.127.0.0.1`` (buckets, stages of API Gateway and Lambda URLs have such names);
* when its ``Origin`` is no page on localhost, 127.0.0.1 or [::1]. SDKs send none; a browser always does when a page
  sends something or means to read the answer, with ``null`` for a page that hides its own;
* when it has no ``Origin`` and a browser says that another site caused it (``Sec-Fetch-Site: cross-site``): a link or
  an image on a foreign page is enough for a call of the Query protocol.

The same holds for web sockets. An allowed page is named in ``Access-Control-Allow-Origin``; ``*`` is never sent. AWS
has nothing of the kind: there, requests are signed."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

Headers = Sequence[tuple[bytes, bytes]]
Application = Callable[[dict[str, Any], Any, Any], Awaitable[None]]

_PORT = r"(:[0-9]{1,5})?"
_HERE = r"(localhost|127\.0\.0\.1|\[::1\])"
_HOST = re.compile(rf"({_HERE}|([a-z0-9_-]+\.)+(localhost|127\.0\.0\.1)){_PORT}", re.I)
_ORIGIN = re.compile(rf"https?://{_HERE}{_PORT}", re.I)
_ALLOW = b"access-control-allow-origin"
SENTENCE = "The stand-in for AWS serves programs on this machine only: this request's {} is {!r}.\n"


def values(headers: Headers, name: str) -> list[str]:
    return [value.decode("latin-1") for key, value in headers if key.lower() == name.encode()]


def refusal(headers: Headers) -> str | None:
    """Why a request with these headers is refused, or None."""
    hosts, origins = values(headers, "host"), values(headers, "origin")
    if len(hosts) != 1 or not _HOST.fullmatch(hosts[0]):
        return SENTENCE.format("Host", ", ".join(hosts))
    if len(origins) > 1 or not all(map(_ORIGIN.fullmatch, origins)):
        return SENTENCE.format("Origin", ", ".join(origins))
    if not origins and "cross-site" in values(headers, "sec-fetch-site"):
        return SENTENCE.format("Sec-Fetch-Site", "cross-site")
    return None


def with_origin(headers: Headers, origin: str | None) -> list[tuple[bytes, bytes]]:
    """A response's headers with ``origin`` in place of the permission for all pages."""
    kept = [(name, value) for name, value in headers if (name.lower(), value) != (_ALLOW, b"*")]
    if origin is not None and not any(name.lower() == _ALLOW for name, _ in kept):
        kept += [(_ALLOW, origin.encode("latin-1")), (b"vary", b"Origin")]
    return kept


def guarded(application: Application) -> Application:
    """``application``, for this machine only."""

    async def guard(scope: dict[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] not in ("http", "websocket"):
            await application(scope, receive, send)
            return
        reason = refusal(scope["headers"])
        if reason is not None:
            await (refuse if scope["type"] == "http" else close)(reason, receive, send)
            return
        origin = next(iter(values(scope["headers"], "origin")), None)

        async def narrowed(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": with_origin(message.get("headers", []), origin)}
            await send(message)

        await application(scope, receive, narrowed)

    return guard


async def refuse(reason: str, receive: Any, send: Any) -> None:
    body = reason.encode("utf-8", "replace")
    headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 403, "headers": headers})
    await send({"type": "http.response.body", "body": body})


async def close(reason: str, receive: Any, send: Any) -> None:
    await receive()  # websocket.connect; closing without accepting answers HTTP 403
    await send({"type": "websocket.close", "code": 1008})
