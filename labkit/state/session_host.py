"""The inside of a session's environment: it loads the agent's code once, and answers one request after the other.

Run as a program of its own (``python -I session_host.py FD PARENT MOUNT AGENT``), with nothing but the standard
library. A frame is eight bytes of length and JSON. What AWS sends as ``POST /invocations`` and ``GET /ping`` are frames
here, so that nothing listens.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn


class Context:
    """What an agent learns about its session: ``invoke(payload, context)``.

    ``session_id``; ``storage``: the folder of session storage, or None; ``add_async_task`` and ``complete_async_task``
    as in AWS's SDK: the session says ``HealthyBusy`` while one of them is open, and is not idle.
    """

    def __init__(self, session_id: str, storage: str | None) -> None:
        self.session_id, self.storage = session_id, storage
        self._tasks: dict[int, str] = {}
        self._numbers = itertools.count(1)

    def add_async_task(self, name: str) -> int:
        number = next(self._numbers)
        self._tasks[number] = name
        return number

    def complete_async_task(self, number: int) -> bool:
        return self._tasks.pop(number, None) is not None

    @property
    def status(self) -> str:
        return "HealthyBusy" if self._tasks else "Healthy"


def send(link: socket.socket, what: bytes) -> None:
    link.sendall(len(what).to_bytes(8, "big"))
    link.sendall(what)


def receive(link: socket.socket) -> bytes | None:
    """One frame; None when the other side is gone."""
    head = _exactly(link, 8)
    return None if head is None else _exactly(link, int.from_bytes(head, "big"))


def _exactly(link: socket.socket, size: int) -> bytes | None:
    got = bytearray()
    while len(got) < size:
        piece = link.recv(min(size - len(got), 1 << 20))
        if not piece:
            return None
        got += piece
    return bytes(got)


def _load(path: str) -> Callable[[Any, Context], Any]:
    names: dict[str, Any] = {"__name__": "agent", "__file__": path}
    exec(compile(Path(path).read_text(encoding="utf-8"), path, "exec", dont_inherit=True), names)
    found = names.get("invoke")
    if not callable(found):
        raise TypeError("an agent's code has a function invoke(payload, context); this has none")
    return found  # type: ignore[no-any-return]


def _answer(invoke: Callable[[Any, Context], Any], asked: dict[str, Any], context: Context) -> bytes:
    try:
        body = invoke(asked["payload"], context)
        return json.dumps({"body": body, "status": context.status}, allow_nan=False).encode()
    except Exception as error:  # noqa: BLE001 - the agent's own; whoever asked hears of it
        return _failure(error)


def _failure(error: BaseException, *, over: bool = False) -> bytes:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == sys.argv[5]]
    where = f" (line {frames[-1].lineno})" if frames else ""
    return json.dumps({"error": f"{type(error).__name__}: {error}{where}", "over": over}).encode()


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.2)
    _end()


def _end() -> NoReturn:
    """With all that was started: this process is the head of its group."""
    os.killpg(0, signal.SIGKILL)
    os._exit(0)  # never reached


def main(descriptor: int, parent: int, session_id: str, storage: str | None, agent: str) -> None:
    os.set_inheritable(descriptor, False)  # what the agent starts must not hold the link open
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a notebook is meant for the notebook
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()
    context = Context(session_id, storage)
    with socket.socket(fileno=descriptor) as link:
        try:
            invoke = _load(agent)
        except BaseException as error:  # noqa: BLE001 - code that does not load is what the first request hears of
            receive(link)
            send(link, _failure(error, over=True))
            _end()
        while (frame := receive(link)) is not None:
            asked = json.loads(frame)
            reply = json.dumps({"status": context.status}).encode()
            send(link, _answer(invoke, asked, context) if "payload" in asked else reply)
    _end()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4] or None, sys.argv[5])
