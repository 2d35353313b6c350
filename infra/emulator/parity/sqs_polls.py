"""A long poll whose client has gone gets nothing.

**On AWS** a worker that is killed while it polls does not, as a rule, take the next message with it: the connection is
closed, and the poll with it. (Not promised: the Developer Guide warns that a message may count as delivered although
the consumer never got it. A response that is under way when the client dies is such a case, here as well.)

**MiniStack** polls on for the dead client, up to 20 seconds, and hands it the next message. A fleet whose idle worker
is killed then waits for the visibility timeout, and the message has a receive that nobody made.

**Here** the server watches the connection of a ReceiveMessage, and the poll ends when it closes. JSON protocol only.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

Receive = Callable[[], Awaitable[dict[str, Any]]]
Application = Callable[[dict[str, Any], Receive, Any], Awaitable[None]]


class Client:
    """The client of one request. ``wake`` is called when it leaves."""

    def __init__(self) -> None:
        self.gone = False
        self.wake: Callable[[], None] = lambda: None

    def leave(self) -> None:
        self.gone = True
        self.wake()


_client: ContextVar[Client | None] = ContextVar("client of this request", default=None)


def client() -> Client:
    """The client of the current request; one that never leaves, when it is not watched."""
    return _client.get() or Client()


def polls(scope: dict[str, Any]) -> bool:
    """Whether a request is a ReceiveMessage."""
    return scope["type"] == "http" and any(
        name == b"x-amz-target" and value == b"AmazonSQS.ReceiveMessage" for name, value in scope["headers"]
    )


def watching(application: Application) -> Application:
    """``application``, with the clients of polls watched."""

    async def watched(scope: dict[str, Any], receive: Receive, send: Any) -> None:
        if not polls(scope):
            await application(scope, receive, send)
            return
        here = Client()
        watcher: asyncio.Task[None] | None = None

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            here.leave()

        async def receive_body() -> dict[str, Any]:
            nonlocal watcher
            event = await receive()
            if event["type"] == "http.request" and not event.get("more_body"):
                watcher = asyncio.create_task(watch())
            return event

        token = _client.set(here)
        try:
            await application(scope, receive_body, send)
        finally:
            _client.reset(token)
            if watcher is not None:
                watcher.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await watcher

    return watched


def install() -> None:
    from ministack import app

    app.app = watching(app.app)
