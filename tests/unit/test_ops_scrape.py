"""MetricsPort: it answers on this machine alone, and leaves neither thread nor port."""

from __future__ import annotations

import builtins
import http.client
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import psutil
import pytest
from prometheus_client import CollectorRegistry, Counter, Metric
from prometheus_client.registry import Collector

from labkit.loopback import port_is_free
from labkit.ops import scrape
from labkit.ops.scrape import MetricsError, MetricsPort


@pytest.fixture
def registry() -> CollectorRegistry:
    made = CollectorRegistry()
    Counter("seen", "Things seen.", registry=made).inc(3)
    return made


def get(port: int, path: str = "/metrics") -> tuple[int, str]:
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    try:
        link.request("GET", path)
        answer = link.getresponse()
        return answer.status, answer.read().decode()
    finally:
        link.close()


def test_it_shows_the_registry_there_and_nothing_elsewhere(registry: CollectorRegistry) -> None:
    with MetricsPort(registry) as port:
        assert port.url == f"http://127.0.0.1:{port.port}/metrics"
        status, text = get(port.port)
        assert status == 200
        assert "seen_total 3.0" in text
        assert get(port.port, "/")[0] == get(port.port, "/metrics/x")[0] == 404


def test_it_listens_on_loopback_alone(registry: CollectorRegistry) -> None:
    with MetricsPort(registry) as port:
        found = [
            link.laddr.ip
            for link in psutil.Process(os.getpid()).net_connections("tcp")
            if link.status == psutil.CONN_LISTEN and link.laddr.port == port.port
        ]
    assert found == ["127.0.0.1"]


def test_close_leaves_no_thread_and_no_port_and_may_be_called_twice(registry: CollectorRegistry) -> None:
    before = set(threading.enumerate())
    port = MetricsPort(registry)
    get(port.port)
    port.close()
    port.close()
    within(lambda: set(threading.enumerate()) <= before)  # who has just answered has a last line to go
    assert port_is_free(port.port)
    with MetricsPort(registry, port.port) as again:
        assert again.port == port.port
        assert get(port.port)[0] == 200


def test_who_says_nothing_holds_up_neither_a_scrape_nor_the_end(registry: CollectorRegistry) -> None:
    before = set(threading.enumerate())
    port = MetricsPort(registry)
    with (
        socket.create_connection(("127.0.0.1", port.port)) as silent,
        socket.create_connection(("127.0.0.1", port.port)) as slow,
    ):
        slow.sendall(b"GET /metr")
        assert get(port.port)[0] == 200
        port.close()
        assert silent.recv(1) == b""  # cut off
    within(lambda: set(threading.enumerate()) <= before)


def test_more_than_so_many_are_turned_away_and_come_back_later(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrape, "_AT_ONCE", 2)
    with MetricsPort(registry) as port:
        open_ones = [socket.create_connection(("127.0.0.1", port.port)) for _ in range(2)]
        for link in open_ones:
            link.sendall(b"GET ")
        within(lambda: len(port._server._open) == 2)
        with pytest.raises((http.client.HTTPException, OSError)):
            get(port.port)
        for link in open_ones:
            link.close()
        within(lambda: not port._server._open)
        assert get(port.port)[0] == 200


def within(found: Callable[[], bool]) -> None:
    wait = threading.Event()
    for _ in range(1_500):
        if found():
            return
        wait.wait(0.02)
    raise AssertionError("it did not come to it within half a minute")


def test_a_collector_that_breaks_breaks_one_scrape() -> None:
    registry = CollectorRegistry()
    broken = True

    class Odd(Collector):
        def describe(self) -> list[Metric]:
            return []

        def collect(self) -> list[Metric]:
            if broken:
                raise RuntimeError("not now")
            return []

    registry.register(Odd())
    with MetricsPort(registry) as port:
        assert get(port.port)[0] == 500
        broken = False
        assert get(port.port)[0] == 200


def test_the_first_free_one_of_a_range(registry: CollectorRegistry) -> None:
    with MetricsPort(registry) as taken:
        after = range(taken.port, min(taken.port + 20, 65_536))
        with MetricsPort(registry, after) as port:
            assert port.port in after
            assert port.port != taken.port
        with pytest.raises(MetricsError, match=f"port {taken.port} can be had on 127.0.0.1: somebody listens there"):
            MetricsPort(registry, taken.port)
        with pytest.raises(MetricsError, match=f"port {taken.port} can be had"):
            MetricsPort(registry, range(taken.port, taken.port + 1))


@pytest.mark.parametrize(
    "ports", [-1, 65_536, True, "9310", 9310.0, None, [9310], range(0), range(9), range(65_530, 65_540)]
)
def test_what_is_no_port_is_refused(registry: CollectorRegistry, ports: Any) -> None:
    with pytest.raises(MetricsError, match="ports"):
        MetricsPort(registry, ports)


def test_what_is_no_registry_is_refused() -> None:
    with pytest.raises(MetricsError, match="CollectorRegistry"):
        MetricsPort("registry")  # type: ignore[arg-type]


def test_without_the_client_a_sentence_says_what_to_install(
    registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = builtins.__import__

    def fails(name: str, *rest: Any, **more: Any) -> Any:
        if name == "prometheus_client":
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", fails)
    with pytest.raises(MetricsError, match="prometheus-client, of the `course` extra"):
        MetricsPort(registry)


def test_nobody_is_looked_up(registry: CollectorRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda *name: pytest.fail("looked up"))
    monkeypatch.setattr(socket, "gethostbyaddr", lambda *name: pytest.fail("looked up"))
    with MetricsPort(registry) as port:
        assert get(port.port)[0] == 200


@pytest.mark.parametrize("module", ["scrape", "steps", "watch", "readings", "metrics"])
def test_an_import_does_not_import_the_client(module: str) -> None:
    script = f"import sys, labkit.ops.{module}; print('prometheus_client' in sys.modules, 'boto3' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False False"
