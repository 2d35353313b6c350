"""Scrape: a port on this machine alone from which Prometheus reads a registry.

**One port for each process**, and not prometheus-client's multiprocess mode. That mode keeps the numbers in files of a
shared folder, which somebody must empty before each start, since a dead process's files stay; its gauges need a mode
each, custom collectors and restarts under new process ids are beyond it (client_python's documentation, "Multiprocess
Mode"), and a dead worker is not missed, because another process answers for it. A port of its own is what a pod has,
too, and Prometheus notices by itself when nobody answers there. The price: what was counted since the last scrape dies
with its process. :class:`MetricsPort` takes the first free one of a range, so that the processes of ``labkit run`` need
no number, and one that replaces a dead one finds a port again.

Serving only reads: nothing here can hold up a worker. Importing this module does not import prometheus_client.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import socketserver
import threading
from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from labkit.closing import Closing
from labkit.errors import LabError
from labkit.loopback import HOST, port_is_free

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

_PATH = "/metrics"
_SILENT = 5.0  # seconds that somebody who asks may say nothing
_AT_ONCE = 16  # who ask at the same time; further ones are turned away
_HIGHEST = 65_535

logger = logging.getLogger(__name__)


class MetricsError(LabError):
    """Metrics cannot be as asked; the sentence names the field, the value and what is allowed."""


def prometheus() -> ModuleType:
    """The module prometheus_client. Raises :class:`MetricsError` where it is not installed."""
    try:
        import prometheus_client
    except ImportError as error:
        raise MetricsError("metrics need prometheus-client, of the `course` extra; type `make setup`.") from error
    return prometheus_client


class MetricsPort(Closing):
    """Serve ``registry`` at ``http://127.0.0.1:<port>/metrics`` until :meth:`close`.

    ``ports``: one port, 0 for any free one, or a range of which the first free one is taken. Raises
    :class:`MetricsError` for what is no port, and where none of them can be had.
    """

    def __init__(self, registry: CollectorRegistry, ports: int | range = 0) -> None:
        if not hasattr(registry, "collect"):
            raise MetricsError(f"a registry is prometheus_client's CollectorRegistry; got {registry!r:.80}.")
        self._app = prometheus().make_wsgi_app(registry)
        self._server = _first(_checked(ports))
        self._server.set_app(self._answer)
        self.port: int = self._server.server_port
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="labkit-metrics", daemon=True
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}{_PATH}"

    def close(self) -> None:
        """Free the port and end the threads; who is just being answered is cut off. May be called twice."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join(5.0)
        self._server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        if environ.get("PATH_INFO") != _PATH:
            start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
            return [f"There is {_PATH} and nothing else.\n".encode()]
        answer: Iterable[bytes] = self._app(environ, start_response)
        return answer


def _checked(ports: int | range) -> range:
    numbers = range(ports, ports + 1) if isinstance(ports, int) and not isinstance(ports, bool) else ports
    if not isinstance(numbers, range) or not numbers:
        raise MetricsError(f"ports is a port or a range of ports; got {ports!r:.80}.")
    low, high = min(numbers), max(numbers)
    if high > _HIGHEST or low < (0 if isinstance(ports, int) else 1):
        raise MetricsError(f"ports lie between 1 and {_HIGHEST} (0 alone: any free one); got {ports!r:.80}.")
    return numbers


def _first(ports: range) -> _Server:
    why: OSError | None = None
    for port in ports:
        if port and not port_is_free(port):
            continue
        try:
            return _Server((HOST, port), _Handler)
        except OSError as error:  # another process was faster, or it is a port for root
            why = error
    which = f"port {ports[0]}" if len(ports) == 1 else f"none of the ports {min(ports)} to {max(ports)}"
    raise MetricsError(f"{which} can be had on {HOST}: {why or 'somebody listens there'}.") from why


class _Handler(WSGIRequestHandler):
    timeout = _SILENT

    def log_message(self, format: str, *args: Any) -> None:
        """A scrape every few seconds is no news."""


class _Server(WSGIServer):
    """A thread for each who asks, since a silent one must not hold up the next; all of them are known at the end."""

    def __init__(self, address: tuple[str, int], handler: type[_Handler]) -> None:
        self._open: dict[threading.Thread, socket.socket] = {}
        self._guard = threading.Lock()
        super().__init__(address, handler)

    def server_bind(self) -> None:
        socketserver.TCPServer.server_bind(self)  # HTTPServer's would look this address up by name
        self.server_name, self.server_port = HOST, self.server_address[1]
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        thread = threading.Thread(
            target=self._serve, args=(request, client_address), name="labkit-metrics-answer", daemon=True
        )
        with self._guard:
            if len(self._open) >= _AT_ONCE:
                raise OSError(f"{_AT_ONCE} are being answered already")
            self._open[thread] = request
        try:
            thread.start()
        except RuntimeError:
            self._forget(thread)
            raise

    def _serve(self, request: Any, client_address: Any) -> None:
        try:
            self.finish_request(request, client_address)
        except Exception:  # noqa: BLE001 - whoever asks may go away at any time
            self.handle_error(request, client_address)
        finally:
            self.shutdown_request(request)
            self._forget(threading.current_thread())

    def _forget(self, thread: threading.Thread) -> None:
        with self._guard:
            self._open.pop(thread, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.info("a scrape was not answered", exc_info=True)

    def server_close(self) -> None:
        super().server_close()
        with self._guard:
            left = dict(self._open)
        for thread, connection in left.items():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                connection.shutdown(socket.SHUT_RDWR)
            thread.join(5.0)
