"""One runtime process and what becomes of it: an answer, an error, a time-out, or its end.

**On AWS** the Init phase may take 10 s and is not part of the function's timeout; an invocation that exceeds the
timeout, or whose process ends, is a function error, and the environment is reset: the next invocation starts a new
process, in which nothing is left of the old one's memory, while ``/tmp`` is as it was (Lambda Developer Guide,
"Understanding the Lambda execution environment lifecycle"; recorded on AWS: a file and a module's variable after a
time-out).

**MiniStack** waits for the process in a thread of its own per invocation and lets its children live on.

**Here** one loop reads answer and output of the process, with the moment at which it must have answered. Whatever ends
it takes the whole process group along. Nothing here knows MiniStack.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .lambda_bootstrap import pack, unpack
from .lambda_output import Splitter

BOOTSTRAP = Path(__file__).with_name("lambda_bootstrap.py")
# No site-packages (an environment has AWS's packages, not the stand-in's), no user site, no script folder on the path;
# UTF-8 whatever the machine's locale is; output unbuffered.
INTERPRETER = (sys.executable, "-S", "-s", "-P", "-u", "-X", "utf8")
GRACE = 5.0  # seconds for a process that has closed its end of the channel to be gone
PIPE_SIZE = 1 << 16  # bytes; what a pipe holds at most
LOOK = 0.1  # seconds between looks at whether the process still lives; an answer does not wait for them

Log = Callable[[list[str]], None]


@dataclass(frozen=True)
class Outcome:
    """How a start or an invocation ended.

    ``kind`` is ``ready`` or ``failed`` after a start, ``result`` or ``error`` after an invocation, and ``exited`` or
    ``timeout`` after either. ``status`` is the process's, negative for a signal.
    """

    kind: str
    payload: bytes = b""
    status: int = 0


class Process:
    """A process that runs :mod:`parity.lambda_bootstrap`. What it writes goes to ``log`` as events."""

    def __init__(self, folder: Path, environment: Mapping[str, str], log: Log) -> None:
        self.memory = 0  # MB, the most that it had when it last said so
        self._log = log
        token = secrets.token_hex(8)
        self._first = {"token": token}
        self._output = Splitter(token)
        self._data = bytearray()
        self._killed = False
        self._channel, theirs = socket.socketpair()
        self._pipe, pipe = os.pipe()
        os.set_blocking(self._pipe, False)
        try:
            self._process = subprocess.Popen(
                [*INTERPRETER, str(BOOTSTRAP), str(theirs.fileno())],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=pipe,
                stderr=pipe,
                pass_fds=(theirs.fileno(),),
                process_group=0,
            )
        except OSError:
            self._channel.close()
            os.close(self._pipe)
            raise
        finally:
            theirs.close()
            os.close(pipe)

    @property
    def pid(self) -> int:
        return self._process.pid

    def alive(self) -> bool:
        return self._process.poll() is None

    def start(
        self, *, handler: str, task_root: str, layers: Sequence[str], packages: Sequence[str], until: float
    ) -> Outcome:
        """Import the handler. ``until`` is a moment of ``time.monotonic()``."""
        first = {"handler": handler, "task_root": task_root, "layers": list(layers), "packages": list(packages)}
        return self._exchange(pack(first | self._first), until)

    def invoke(self, header: Mapping[str, Any], event: bytes, until: float) -> Outcome:
        """Have the handler called with ``event``; ``header`` is what its context and its calls are made from."""
        return self._exchange(pack(header, event), until)

    def kill(self) -> None:
        """Kill the process and everything that it started; who waits for its answer learns that it has exited."""
        self._kill()

    def end(self) -> None:
        """Kill it, and close what leads to it: nobody may be waiting for its answer."""
        self._kill()
        self._channel.close()
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1

    def _kill(self) -> int:
        if not self._killed:  # once: after the process is gone its number may be another's
            self._killed = True
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
        return self._process.wait()

    def _exchange(self, message: bytes, until: float) -> Outcome:
        outcome = self._send(message, until) or self._answer(until)
        if outcome.kind == "exited":
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(GRACE)  # it may still be about to say with which status
            outcome = Outcome("exited", status=self._kill())
        elif outcome.kind == "timeout":
            self._kill()
        self._read_output()
        self._tell(self._output.rest())
        return outcome

    def _send(self, message: bytes, until: float) -> Outcome | None:
        """Send; what comes back when that cannot be done is the outcome."""
        try:
            self._channel.settimeout(max(0.001, until - time.monotonic()))
            self._channel.sendall(message)
        except TimeoutError:
            return Outcome("timeout")
        except OSError:
            return Outcome("exited")
        return None

    def _answer(self, until: float) -> Outcome:
        self._channel.settimeout(0)
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            selector.register(self._pipe, selectors.EVENT_READ)
            while True:
                left = until - time.monotonic()
                ready = {key.fd for key, _ in selector.select(max(0.0, min(LOOK, left)))}
                gone = not ready and not self.alive()
                if self._channel.fileno() in ready or gone:
                    gone |= self._receive()
                    if (frame := unpack(self._data)) is not None:
                        header, payload = frame
                        self.memory = header["memory"]
                        return Outcome(header["kind"], payload)
                if gone:
                    return Outcome("exited")
                if self._pipe in ready and not self._read_output():
                    selector.unregister(self._pipe)  # the handler closed both of its outputs
                if left <= 0:
                    return Outcome("timeout")

    def _receive(self) -> bool:
        """Take what has arrived; whether the process has closed its end."""
        with contextlib.suppress(BlockingIOError):
            while True:
                try:
                    received = self._channel.recv(1 << 18)
                except ConnectionError:
                    return True
                if not received:
                    return True
                self._data += received
        return False

    def _read_output(self) -> bool:
        """Log what is in the pipe at this moment; False when nobody can write to it any more.

        One read: it empties the pipe, and a process that the handler left behind cannot keep us here.
        """
        try:
            data = os.read(self._pipe, PIPE_SIZE)
        except BlockingIOError:
            return True
        self._tell(self._output.feed(data))
        return data != b""

    def _tell(self, events: list[str]) -> None:
        if events:
            self._log(events)
