"""JupyterLab on the course: opened for a reader, or tried out headless to prove that it would open."""

from __future__ import annotations

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
import webbrowser

from labkit import places, targets
from labkit.errors import LabError

FIRST = "notebooks/00_start_here.ipynb"
START_LIMIT = 60.0  # seconds until JupyterLab must answer; measured 2 to 4


def _command(port: int, token: str, browser: bool) -> list[str]:
    return [
        *(sys.executable, "-m", "jupyterlab"),
        *(f"--ServerApp.root_dir={places.repository()}", "--ServerApp.ip=127.0.0.1", f"--ServerApp.port={port}"),
        *(f"--IdentityProvider.token={token}", f"--LabApp.default_url=/lab/tree/{FIRST}"),
        "--LabApp.check_for_updates_class=jupyterlab.NeverCheckForUpdate",  # it would ask a server on the internet
        *(() if browser else ("--no-browser",)),
        *(("--allow-root",) if hasattr(os, "geteuid") and os.geteuid() == 0 else ()),
    ]


def _free_port(preferred: int = 0) -> int:
    """``preferred``, or where that is taken any free one."""
    for port in (preferred, 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(probe.getsockname()[1])
    raise LabError("no port is free on 127.0.0.1.")


def _has_browser() -> bool:
    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


def open_lab() -> int:
    """Connect the target, say where JupyterLab is to be found, and become JupyterLab.

    This process turns into the server (where the system can do that), so that whoever ends it ends the server and its
    kernels. Elsewhere the server's exit code is returned.
    """
    print(f"Target: {targets.connect().says}", flush=True)
    port, token = _free_port(8888), secrets.token_hex(16)
    command = _command(port, token, _has_browser())
    print(f"JupyterLab: http://127.0.0.1:{port}/lab/tree/{FIRST}?token={token}", flush=True)
    if hasattr(os, "execv") and sys.platform != "win32":
        os.execv(command[0], command)
    return subprocess.run(command, check=False).returncode


def check() -> int:
    """Everything that :func:`open_lab` does, headless: the doctor, JupyterLab answering, and notebook 00 executed.

    Returns 0 after a last line that says that it works; raises :class:`LabError` otherwise.
    """
    from labkit.doctor import examine

    for finding in examine():
        print(f"{'ok  ' if finding.well else 'FAIL'} {finding.what}: {finding.seen}", flush=True)
        if not finding.well:
            raise LabError(f"{finding.what}: {finding.seen}; type: {finding.remedy}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is started below is ended, too
    port, token = _free_port(), secrets.token_hex(16)
    log = places.home() / "jupyterlab.log"
    with log.open("w") as sink:
        server = subprocess.Popen(
            _command(port, token, browser=False), stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
        )
    try:
        _wait_for(f"http://127.0.0.1:{port}/api/contents/{FIRST}?content=0&token={token}", server, str(log))
        print(f"ok   JupyterLab: serves {FIRST}", flush=True)
    finally:
        server.terminate()
        try:
            server.wait(timeout=10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait(timeout=10)
    _execute(FIRST)
    print(f"ok   notebook: {FIRST} runs from top to bottom", flush=True)
    print("It works: `make lab` opens the course.")
    return 0


def _wait_for(address: str, server: subprocess.Popen[bytes], log: str) -> None:
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # past any proxy of the reader's
    limit = time.monotonic() + START_LIMIT
    while time.monotonic() < limit and server.poll() is None:
        try:
            with direct.open(address, timeout=5):
                return
        except OSError:
            time.sleep(0.1)
    raise LabError(f"JupyterLab did not serve {FIRST} within {START_LIMIT:.0f} s; see {log}.")


def _execute(notebook: str) -> None:
    """Run a notebook in a kernel of its own; raises :class:`LabError` with the first error that a cell raised."""
    import nbformat
    from nbclient import NotebookClient
    from nbclient.exceptions import CellExecutionError

    path = places.repository() / notebook
    content = nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]
    environment = {**os.environ, "LABKIT_LEARNER": f"check-{os.getpid()}"}  # not the account of an open notebook
    try:
        client = NotebookClient(content, timeout=120, resources={"metadata": {"path": str(path.parent)}})
        # What a cell prints comes as a message; the kernel's own stderr holds warnings about itself.
        client.execute(env=environment, stderr=subprocess.DEVNULL)
    except CellExecutionError as error:
        raise LabError(f"{notebook} failed: {error.ename}: {error.evalue}") from error
