"""Who may talk to the stand-in: the wrapper by itself, as ASGI."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from parity.guard import guarded, refusal

HOST = (b"host", b"127.0.0.1:4566")


@pytest.mark.parametrize(
    ("host", "served"),
    [
        *((host, True) for host in ("127.0.0.1", "127.0.0.1:4566", "localhost:1", "LocalHost", "[::1]", "[::1]:4566")),
        *((host, True) for host in ("bucket.localhost:4566", "a-b.s3.us-east-1.localhost", "x_y.127.0.0.1:80")),
        *((host, True) for host in ("abcd1234.execute-api.localhost", "u.lambda-url.us-east-1.localhost")),
        *((host, False) for host in ("", "example.com", "localhost.example.com", "127.0.0.1.nip.io", "evillocalhost")),
        *((host, False) for host in ("localhost:x", "localhost:4566\n", "user@localhost", "0.0.0.0", ".localhost")),
        *((host, False) for host in ("localhost:123456", "[::2]", "::1", "127.0.0.2", "local host", "..localhost")),
    ],
)
def test_hosts(host: str, served: bool) -> None:
    assert (refusal([(b"Host", host.encode())]) is None) == served


@pytest.mark.parametrize(
    ("origin", "served"),
    [
        *((origin, True) for origin in ("http://localhost", "https://localhost:8888", "http://127.0.0.1:1")),
        *((origin, True) for origin in ("http://[::1]:8888", "HTTP://LOCALHOST")),
        *((origin, False) for origin in ("null", "", "https://example.com", "http://localhost.example.com")),
        *((origin, False) for origin in ("http://evil.localhost", "file://", "localhost", "http://localhost/")),
        *(
            (origin, False)
            for origin in ("chrome-extension://abc", "http://localhost@example.com", "http://localhost\n")
        ),
    ],
)
def test_origins(origin: str, served: bool) -> None:
    assert (refusal([HOST, (b"Origin", origin.encode())]) is None) == served
    assert refusal([HOST, (b"origin", b"http://localhost"), (b"origin", origin.encode())]) is not None


@pytest.mark.parametrize("headers", [[], [HOST, HOST], [HOST, (b"host", b"example.com")]])
def test_there_is_one_host(headers: list[tuple[bytes, bytes]]) -> None:
    assert refusal(headers) is not None


@pytest.mark.parametrize(("site", "served"), [("cross-site", False), ("same-site", True), ("none", True)])
def test_a_link_on_a_page_from_elsewhere(site: str, served: bool) -> None:
    fetch = (b"sec-fetch-site", site.encode())
    assert (refusal([HOST, fetch]) is None) == served
    assert refusal([HOST, fetch, (b"origin", b"http://localhost:8888")]) is None


def answer_to(kind: str, *headers: tuple[bytes, bytes]) -> tuple[list[dict[str, Any]], bool]:
    """What the client is sent, and whether the application was asked."""
    sent: list[dict[str, Any]] = []
    asked = False

    async def application(scope: dict[str, Any], receive: Any, send: Any) -> None:
        nonlocal asked
        asked = True
        if kind == "http":
            answer = [(b"Access-Control-Allow-Origin", b"*"), (b"x", b"y")]
            await send({"type": "http.response.start", "status": 200, "headers": answer})
            await send({"type": "http.response.body", "body": b"answer"})

    async def receive() -> dict[str, Any]:
        return {"type": "websocket.connect"}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    asyncio.run(guarded(application)({"type": kind, "headers": headers}, receive, send))
    return sent, asked


def test_the_application_is_not_asked() -> None:
    sent, asked = answer_to("http", (b"host", b"example.com"))
    assert not asked
    assert sent[0]["status"] == 403
    assert b"'example.com'" in sent[1]["body"]
    assert answer_to("websocket", (b"host", b"example.com")) == ([{"type": "websocket.close", "code": 1008}], False)


def test_no_page_is_let_in_by_the_answer() -> None:
    sent, asked = answer_to("http", HOST)
    assert asked
    assert sent[0]["headers"] == [(b"x", b"y")]
    origin = b"http://localhost:8888"
    sent, _ = answer_to("http", HOST, (b"origin", origin))
    assert sent[0]["headers"] == [(b"x", b"y"), (b"access-control-allow-origin", origin), (b"vary", b"Origin")]


def test_the_rest_passes() -> None:
    assert answer_to("websocket", HOST) == ([], True)
    assert answer_to("lifespan") == ([], True)
