"""A small HTTP server for a lab: on this machine only, for programs only, with a clean end.

* **Loopback only**, and not for foreign web pages: a page from anywhere, open in a browser on this machine, reaches
  127.0.0.1 too, by a request of its own or under a name of its own that it has resolved to it. So ``Host`` must be a
  name of this machine, ``Origin``, if there is one, a page on it, and a browser must not say that another site is the
  cause. Else HTTP 403.
* **Bounded**: so many connections at once, the next one waits a while and then gets 503; so many bytes in a request; so
  long for a silent client. A connection stays open for further requests, as an SDK expects.
* **Ends at once**: whoever is connected is cut off, whoever waits stops waiting, and no thread is left.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from email.message import Message
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

from labkit.loopback import HOST

__all__ = ["LocalServer", "Request", "dumped", "foreign"]

_MOST_BODY = 32 * 1024 * 1024  # bytes of a request
_IDLE = 60.0  # seconds for a silent client
_ROOM = 5.0  # seconds that a connection waits until another one ends
_WITHIN = 10.0  # seconds for the end, which takes a moment unless the machine stands still
_HERE = r"(localhost|127\.0\.0\.1|\[::1\])(:[0-9]{1,5})?"
_ORIGIN = re.compile(rf"https?://{_HERE}", re.I)
_HOST = re.compile(_HERE, re.I)


def foreign(headers: Message) -> str | None:
    """Why a request with these headers is refused, or None: it comes from no program on this machine."""
    hosts, origins = headers.get_all("Host", []), headers.get_all("Origin", [])
    if len(hosts) != 1 or not _HOST.fullmatch(hosts[0]):
        return f"This server is for programs on this machine only: the request's Host is {', '.join(hosts)!r:.80}."
    if len(origins) > 1 or not all(map(_ORIGIN.fullmatch, origins)):
        return f"This server is for programs on this machine only: the request's Origin is {', '.join(origins)!r:.80}."
    if not origins and headers.get("Sec-Fetch-Site") == "cross-site":
        return "This server is for programs on this machine only: another site caused the request."
    return None


class Request(BaseHTTPRequestHandler):
    """One connection, and the request that is on it. What it answers is the server's ``answer(request)``."""

    server: LocalServer
    protocol_version = "HTTP/1.1"
    timeout = _IDLE
    disable_nagle_algorithm = True  # else a stream's small events wait for the receiver's acknowledgements
    body = b""

    def do_POST(self) -> None:
        reason = foreign(self.headers)
        if reason is not None:
            self._turn_away(403, reason)
            return
        length = self.headers.get("Content-Length", "0")
        if "Transfer-Encoding" in self.headers or not re.fullmatch(r"[0-9]{1,12}", length):
            self._turn_away(411, "A request says in Content-Length how long it is.")
            return
        if int(length) > _MOST_BODY:
            self._turn_away(413, f"A request has {_MOST_BODY:,} bytes at most; this one has {int(length):,}.")
            return
        self.body = self.rfile.read(int(length))
        if len(self.body) == int(length):
            self.server.answer(self)

    do_GET = do_POST

    @property
    def gone(self) -> bool:
        """Whether the client has closed the connection: nobody waits for the answer."""
        self.connection.setblocking(False)
        try:
            return not self.connection.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False  # it is silent, as it should be
        except OSError:
            return True
        finally:
            self.connection.settimeout(self.timeout)

    @property
    def json(self) -> Any:
        """The body as JSON; None where it is none."""
        try:
            return json.loads(self.body)
        except (ValueError, RecursionError):
            return None

    def send_json(self, status: int, body: Mapping[str, Any], headers: Mapping[str, str] | None = None) -> None:
        self.send(status, "application/json", dumped(body), (headers or {}).items())

    def send(self, status: int, content_type: str, body: bytes, headers: Iterable[tuple[str, str]] = ()) -> None:
        """A whole answer, in one write."""
        self.wfile.write(self._head(status, content_type, [("Content-Length", str(len(body))), *headers]) + body)

    def cut(self, status: int, content_type: str, body: bytes, headers: Iterable[tuple[str, str]] = ()) -> None:
        """The first half of an answer, and then the connection ends."""
        head = self._head(status, content_type, [("Content-Length", str(len(body))), *headers])
        self.wfile.write(head + body[: len(body) // 2])
        self.drop()

    def begin(self, status: int, content_type: str, headers: Iterable[tuple[str, str]] = ()) -> None:
        """Begin an answer that comes in chunks."""
        self.wfile.write(self._head(status, content_type, [("Transfer-Encoding", "chunked"), *headers]))

    def chunk(self, data: bytes) -> None:
        if data:  # an empty chunk would be the end
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))

    def finish_chunks(self) -> None:
        self.wfile.write(b"0\r\n\r\n")

    def drop(self) -> None:
        """End the connection, whatever has been sent."""
        self.close_connection = True
        _shut(self.connection)

    def _head(self, status: int, content_type: str, headers: Iterable[tuple[str, str]]) -> bytes:
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Date: {self.date_time_string()}"]
        lines += [f"Content-Type: {content_type}", *(f"{name}: {value}" for name, value in headers)]
        if self.close_connection:
            lines.append("Connection: close")
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1", "replace")

    def _turn_away(self, status: int, says: str) -> None:
        self.close_connection = True  # its body has not been read
        self.send(status, "text/plain; charset=utf-8", f"{says}\n".encode(errors="replace"))

    def log_message(self, *_: object) -> None:
        """Nothing: the hits are counted, and a notebook's stderr stays silent."""


class LocalServer(HTTPServer):
    """Serves in threads of its own, at once and until :meth:`close`. ``port`` 0 is any free one."""

    request_queue_size = 128

    def __init__(self, answer: Callable[[Request], None], *, name: str, port: int = 0, most: int = 256) -> None:
        super().__init__((HOST, port), Request)
        self.answer, self.most, self._name = answer, most, name
        self.closing = threading.Event()
        self._numbers = itertools.count(1)
        self._guard = threading.Condition()
        self._open: dict[threading.Thread, socket.socket] = {}
        self._thread = threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.05}, name=f"{name}-door", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_address[1]}"

    @property
    def connections(self) -> int:
        """How many clients are connected."""
        with self._guard:
            return len(self._open)

    def server_bind(self) -> None:
        # HTTPServer would ask the name service for this machine's name, which can take seconds.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = HOST, int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(
            target=self._serve, args=(request, client_address), name=f"{self._name}-{next(self._numbers)}", daemon=True
        )
        with self._guard:
            # The door itself waits: who comes after that waits in the system's queue, as at a busy server.
            self._guard.wait_for(lambda: len(self._open) < self.most or self.closing.is_set(), _ROOM)
            room = len(self._open) < self.most and not self.closing.is_set()
            if room:
                self._open[thread] = request
        if room:
            try:
                thread.start()
            except RuntimeError:  # the system has no thread left: this client has to come again, the place is free
                with self._guard:
                    del self._open[thread]
                self.shutdown_request(request)
        else:
            request.settimeout(0.1)
            request.sendall(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            self.shutdown_request(request)

    def _serve(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except OSError:
            pass  # the client has gone, or the server is closing
        except Exception:  # noqa: BLE001 - one broken request must not end the server; it is shown, not swallowed
            self.handle_error(request, client_address)
        finally:
            self.shutdown_request(request)
            with self._guard:
                self._open.pop(threading.current_thread(), None)
                self._guard.notify_all()

    def handle_error(self, request: Any, client_address: Any) -> None:
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)

    def close(self) -> None:
        """Stop serving, at once: nobody is connected and no thread is left. Twice is harmless."""
        self.closing.set()
        with self._guard:
            self._guard.notify_all()
        ends = time.monotonic() + _WITHIN
        if self._thread.is_alive():
            self.shutdown()
            self._thread.join(_WITHIN)
        self.server_close()
        with self._guard:
            left = dict(self._open)
        for connection in left.values():
            _shut(connection)
        for thread in left:
            if thread is not threading.current_thread():
                thread.join(max(0.0, ends - time.monotonic()))


def dumped(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), default=str).encode(errors="replace")


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it is closed already
        connection.shutdown(socket.SHUT_RDWR)
