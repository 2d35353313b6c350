"""The process of an execution environment: it waits for events, has the handler called, sends the answers.

**On AWS** the runtime asks a local HTTP endpoint for the next event and posts the answer there; its standard output and
error are the function's log, and a record of the logging module is one log event, also when it has several lines
(awslambdaric's source; recorded on AWS). A sandbox is killed without a word.

**MiniStack** speaks to the process over its standard input and output, gives up on an answer after 200 lines that are
none, and throws the process away when the handler raises.

**Here** this file is the process, started by its path. It speaks over a socket of its own: nothing that a handler
prints, closes or redirects can spoil an answer. When the other end is gone, the stand-in is, and the process ends with
everything that it started. It imports nothing of ``parity`` but :mod:`parity.lambda_handler`, by its path: a handler
must not find us on its own.

An environment is not frozen between two invocations: a thread that a handler leaves behind goes on, where on AWS it
stops until the next event.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import queue
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

SIZES = struct.Struct(">II")

Frame = tuple[dict[str, Any], bytes]


def pack(header: Mapping[str, Any], body: bytes = b"") -> bytes:
    """What goes over the socket: a small header as JSON, and a body (an event, an answer) as it is."""
    head = json.dumps(header).encode()
    return SIZES.pack(len(head), len(body)) + head + body


def unpack(data: bytearray) -> Frame | None:
    """Take the first whole frame off ``data``, or return None while it is not there yet."""
    if len(data) < SIZES.size:
        return None
    head, body = SIZES.unpack_from(data)
    end = SIZES.size + head + body
    if len(data) < end:
        return None
    frame = json.loads(bytes(data[SIZES.size : SIZES.size + head])), bytes(data[SIZES.size + head : end])
    del data[:end]
    return frame


def mark(token: str, size: int) -> bytes:
    """What stands before a log record of ``size`` bytes in the pipe of the output. The token is the process's own."""
    return f"\x1e{token} {size}\n".encode()


def log_writer(descriptor: int, token: str) -> Callable[[str], None]:
    """A function that writes one log event, of as many lines as it has."""
    lock = threading.Lock()

    def write(text: str) -> None:
        body = text.encode(errors="replace")
        data = memoryview(mark(token, len(body)) + body)
        with lock:
            while data:
                data = data[os.write(descriptor, data) :]

    return write


class Records(logging.Handler):
    """What AWS puts on the root logger: each record becomes one log event ``[LEVEL]⇥time⇥request id⇥message``."""

    def __init__(self, write: Callable[[str], None]) -> None:
        super().__init__()
        self.request_id = ""
        self._write = write
        layout = "[%(levelname)s]\t%(asctime)s.%(msecs)03dZ\t%(aws_request_id)s\t%(message)s\n"
        formatter = logging.Formatter(layout, "%Y-%m-%dT%H:%M:%S")
        formatter.converter = time.gmtime
        self.setFormatter(formatter)

    def emit(self, record: logging.LogRecord) -> None:
        record.aws_request_id = self.request_id
        self._write(self.format(record))


class HeadersOnCalls:
    """Adds headers to the SDK's calls, once a handler imports it: importing it for everybody would cost 0.2 s."""

    def __init__(self) -> None:
        self.headers: dict[str, str] = {}

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "botocore.handlers":
            return None
        sys.meta_path.remove(self)  # type: ignore[arg-type]
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: Any) -> None:
                execute(module)
                module.BUILTIN_HANDLERS.append(("before-call", self.add))

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def add(self, params: dict[str, Any], **_: Any) -> None:
        for name, value in self.headers.items():
            params["headers"].setdefault(name, value)


def listen(connection: socket.socket, inbox: queue.SimpleQueue[Frame]) -> None:
    """Pass on what the stand-in sends; end with the whole process group when the stand-in is gone."""
    data = bytearray()
    with contextlib.suppress(OSError):
        while received := connection.recv(1 << 16):
            data += received
            while (frame := unpack(data)) is not None:
                inbox.put(frame)
    os.killpg(0, signal.SIGKILL)


def peak_memory() -> int:
    """The most memory that this process has held so far, in MB."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) // 1024 for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):  # no Linux
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return int(peak / (1 << 20 if sys.platform == "darwin" else 1 << 10))


def sibling(name: str) -> Any:
    """A module beside this one, loaded under a name that no handler's module can have."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"<{name}>", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_open: list[socket.socket] = []  # closed when the process ends, not when sys.exit unwinds main()


def main(descriptor: int) -> None:
    connection = socket.socket(fileno=descriptor)
    _open.append(connection)
    connection.set_inheritable(False)
    inbox: queue.SimpleQueue[Frame] = queue.SimpleQueue()
    threading.Thread(target=listen, args=(connection, inbox), daemon=True, name="runtime").start()
    first, _ = inbox.get()

    runtime = sibling("lambda_handler")
    write = log_writer(os.dup(1), first["token"])
    records, calls = Records(write), HeadersOnCalls()
    logging.getLogger().addHandler(records)
    sys.meta_path.insert(0, calls)  # type: ignore[arg-type]
    _complete_builtins()
    runtime.import_from(first["task_root"])
    runtime.ELSEWHERE.update(dict.fromkeys(first["packages"], "/var/runtime"))
    sys.path[:0] = [first["task_root"], *first["layers"]]
    sys.path += first["packages"]

    handler, failure = runtime.load(first["handler"])
    if failure is not None:
        write(runtime.error_text(failure))
        connection.sendall(pack({"kind": "failed", "memory": peak_memory()}, json.dumps(failure).encode()))
        sys.exit(1)
    connection.sendall(pack({"kind": "ready", "memory": peak_memory()}))

    passing: set[str] = set()  # variables that belong to one invocation
    while True:
        header, event = inbox.get()
        for name in passing:
            os.environ.pop(name, None)
        passing = set(header["variables"])
        os.environ.update(header["variables"])
        calls.headers = header["headers"]
        records.request_id = header["request_id"]
        kind, payload = runtime.answer(handler, event, runtime.Context(header, os.environ, write))
        try:
            connection.sendall(pack({"kind": kind, "memory": peak_memory()}, payload))
        except OSError:  # the stand-in is gone: to end alone would leave behind what the handler has started
            os.killpg(0, signal.SIGKILL)


def _complete_builtins() -> None:
    """``exit`` and ``quit``, which a Python that was started without site-packages lacks."""
    import site

    site.setquit()


if __name__ == "__main__":
    main(int(sys.argv[1]))
