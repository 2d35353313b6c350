"""The watch over look-ups: it sees what it should, in every process, and a run that has seen something fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.lookups import looked_up, watched
from tests.run import ROOT

CHILD = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"


def run(seen: Path, code: str) -> list[str]:
    command = [sys.executable, "-c", CHILD, code]  # in a grandchild: kernels start workers
    subprocess.run(command, env={**os.environ, **watched(seen)}, check=True, timeout=60)
    return looked_up(seen)


@pytest.mark.parametrize(
    "code",
    [
        "import socket\ntry: socket.getaddrinfo('fleet.invalid', 443)\nexcept OSError: pass",
        "import socket\ntry: socket.gethostbyname('fleet.invalid')\nexcept OSError: pass",
        "import urllib.request as r\ntry: r.urlopen('http://fleet.invalid/', timeout=1)\nexcept OSError: pass",
        "import asyncio\ntry: asyncio.run(asyncio.open_connection('fleet.invalid', 80))\nexcept OSError: pass",
    ],
)
def test_a_name_outside_is_noted(tmp_path: Path, code: str) -> None:
    [line] = {line.split(" by ")[0] for line in run(tmp_path / "seen", code)}
    assert line.split()[0] in ("socket.getaddrinfo", "socket.gethostbyname")
    assert "'fleet.invalid'" in line


@pytest.mark.parametrize(
    ("event", "code"),
    [
        ("connect", "socket.socket().connect(('192.0.2.1', 9))"),
        ("connect", "socket.socket().connect_ex(('192.0.2.1', 9))"),
        ("sendto", "socket.socket(type=socket.SOCK_DGRAM).sendto(b'', ('192.0.2.1', 9))"),
        ("sendmsg", "socket.socket(type=socket.SOCK_DGRAM).sendmsg([b''], [], 0, ('192.0.2.1', 9))"),
        ("gethostbyaddr", "socket.getfqdn('192.0.2.1')"),
        ("getnameinfo", "socket.getnameinfo(('192.0.2.1', 9), 0)"),
    ],
)
def test_an_address_outside_is_noted(tmp_path: Path, event: str, code: str) -> None:
    [line] = run(tmp_path / "seen", f"import socket\ntry: {code}\nexcept OSError: pass")
    assert line.startswith(f"socket.{event} '192.0.2.1'")


def test_loopback_and_unix_sockets_are_not(tmp_path: Path) -> None:
    code = """if True:
        import socket
        for host in ("localhost", "127.0.0.1", "::1", None, "lab.localhost"):
            try: socket.getaddrinfo(host, 80)
            except OSError: pass
        for address in (("127.0.0.1", 9), ("localhost", 9)):
            try: socket.create_connection(address, timeout=0.2)
            except OSError: pass
        try: socket.socket(socket.AF_UNIX).connect("/nothing/there")
        except OSError: pass
    """
    assert run(tmp_path / "seen", code) == []


@pytest.mark.parametrize(("host", "code"), [("127.0.0.1", 0), ("fleet.invalid", 1)])
def test_a_run_that_looked_outside_fails(tmp_path: Path, host: str, code: int) -> None:
    (tmp_path / "test_one.py").write_text(f"""if True:
        import subprocess, sys
        def test_one():
            subprocess.run([sys.executable, "-c", "import socket; socket.getaddrinfo('{host}', 80)"])
    """)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.lookups", "-p", "no:langsmith_plugin", "-n", "1"]
    done = subprocess.run(
        [*command, "--rootdir", str(tmp_path), str(tmp_path)], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, "outside loopback" in done.stdout) == (code, bool(code)), done.stdout
