"""Make the two environments of the course: ``.venv`` for reader and notebooks, ``.lab/emulator`` for the stand-in.

Uses uv where it is or can be had (seconds), else pip (minutes). Needs nothing but the standard library. A stamp of the
locks is written last, so an interrupted run is done over and a finished one costs nothing.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAB = ROOT / ".lab"
STAMP = LAB / "setup.json"
LOG = LAB / "setup.log"
COURSE = ROOT / ".venv"
EMULATOR = LAB / "emulator"
TOOLS = LAB / "tools"
INPUTS = ("pyproject.toml", "requirements/course.lock", "requirements/emulator.lock", "infra/bootstrap.py")
SLOW = {"UV_HTTP_TIMEOUT": "120", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}


class Failed(Exception):
    """A step of the set-up failed; the sentence says which and what to do."""


def binary(environment: Path, name: str) -> Path:
    return (
        environment / ("Scripts" if sys.platform == "win32" else "bin") / (name + (".exe" if os.name == "nt" else ""))
    )


def stamp() -> dict[str, str]:
    digest = hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in INPUTS)).hexdigest()
    return {"inputs": digest, "python": sys.version, "root": str(ROOT)}


def run(*command: str | Path) -> None:
    """Run a command quietly: what it prints goes to the log. Raises :class:`Failed` with its last words."""
    environment = {**os.environ, **SLOW}
    for name in ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV"):
        environment.pop(name, None)
    with LOG.open("a") as log:
        log.write(f"$ {' '.join(map(str, command))}\n")
        log.flush()
        process = subprocess.Popen([str(part) for part in command], cwd=ROOT, env=environment, stdout=log, stderr=log)
        try:
            wait(process)
        except BaseException:  # an impatient reader: leave no installer behind that goes on writing
            process.kill()
            process.wait()
            raise
    if process.returncode:
        last = [line for line in LOG.read_text(errors="replace").splitlines() if line.strip()][-3:]
        raise Failed(" / ".join(last))


def wait(process: subprocess.Popen[bytes]) -> None:
    """Wait for a step; on a terminal its seconds are counted, so that minutes of pip do not look like a hang."""
    started = time.monotonic()
    while True:
        try:
            process.wait(timeout=1)
            return
        except subprocess.TimeoutExpired:
            if sys.stdout.isatty():
                print(f"\r      {time.monotonic() - started:.0f} s", end="\r", flush=True)


def find_uv() -> Path | None:
    """uv on the PATH, or one of our own from PyPI; None where neither is to be had."""
    found = shutil.which("uv")
    if found:
        return Path(found)
    own = binary(TOOLS, "uv")
    if not own.exists():
        try:
            run(sys.executable, "-m", "venv", "--clear", TOOLS)
            run(binary(TOOLS, "python"), "-m", "pip", "install", "--require-hashes", "-r", "requirements/tools.lock")
        except Failed:
            return None
    return own if own.exists() else None


def make(environment: Path, lock: str, uv: Path | None, fresh: bool) -> None:
    """Bring ``environment`` to exactly what ``lock`` says."""
    python = binary(environment, "python")
    if fresh or not python.exists():
        shutil.rmtree(environment, ignore_errors=True)
        if uv:
            run(uv, "venv", "--no-python-downloads", "--python", sys.executable, environment)
        else:
            try:
                run(sys.executable, "-m", "venv", environment)
            except Failed as error:
                raise Failed(f"{error} (Debian, Ubuntu: apt install python3-venv)") from error
    if uv:
        run(uv, "pip", "sync", "--python", python, "--require-hashes", lock)
    else:
        run(python, "-m", "pip", "install", "--require-hashes", "-r", lock)


def install_labkit(uv: Path | None) -> None:
    python = binary(COURSE, "python")
    installer = (uv, "pip", "install", "--python", python) if uv else (python, "-m", "pip", "install")
    # Without build isolation: the build tool is in the lock, and nothing unpinned is fetched.
    run(*installer, "--no-deps", "--no-build-isolation", "--editable", ".")


def settle_jupyter() -> None:
    """JupyterLab asks each newcomer about news from the internet; the course works without a network."""
    folder = COURSE / "etc" / "jupyter" / "labconfig"
    folder.mkdir(parents=True, exist_ok=True)
    setting = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
    (folder / "page_config.json").write_text(json.dumps(setting))


def contents() -> str:
    """A digest of what is installed, by name: an environment that lost a package since must not pass for whole."""
    names = []
    for environment in (COURSE, EMULATOR):
        for folder in sorted(environment.glob("[Ll]ib/**/site-packages")):
            names += sorted(path.name for path in folder.iterdir() if path.name != "__pycache__")
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Two set-ups of one clone at once would take each other's environments away: the second one waits."""
    with (LAB / "setup.lock").open("w") as lock:
        try:
            import fcntl
        except ImportError:  # Windows: nobody waits there
            yield
            return
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    try:
        LAB.mkdir(exist_ok=True)
        with alone():
            return set_up("--again" in sys.argv[1:])
    except OSError as error:
        print(f"The set-up failed: {error}", file=sys.stderr)
        return 1


def set_up(again: bool) -> int:
    wanted = stamp()
    try:
        before = json.loads(STAMP.read_text())
    except (OSError, ValueError):
        before = {}
    there = binary(COURSE, "labkit").exists() and binary(EMULATOR, "python").exists()
    if not again and there and before == {**wanted, "contents": contents()}:
        return 0
    # Without a stamp a former run was cut off: what it left cannot be trusted.
    whole = all(before.get(key) == wanted[key] for key in ("python", "root")) and before.get("contents") == contents()
    fresh = again or not whole
    STAMP.unlink(missing_ok=True)
    LOG.write_text("")
    started = time.monotonic()
    try:
        uv = find_uv()
        steps = (
            ("course environment", lambda: make(COURSE, "requirements/course.lock", uv, fresh)),
            ("labkit", lambda: install_labkit(uv)),
            ("stand-in's environment", lambda: make(EMULATOR, "requirements/emulator.lock", uv, fresh)),
        )
        how = "uv" if uv else "pip: this takes some minutes"
        for number, (name, step) in enumerate(steps, 1):
            print(f"[{number}/{len(steps)}] {name} ({how})", flush=True)
            step()
        settle_jupyter()
    except KeyboardInterrupt:
        print("\nInterrupted. Type the same again to go on.", file=sys.stderr)
        return 130
    except Failed as error:
        print(
            f"The set-up failed: {error}\nEverything it printed is in {LOG}. Type the same again to go on.",
            file=sys.stderr,
        )
        return 1
    draft = STAMP.with_suffix(".tmp")
    draft.write_text(json.dumps({**wanted, "contents": contents()}))
    draft.replace(STAMP)
    print(f"Set up in {time.monotonic() - started:.0f} s with Python {sys.version.split()[0]}.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
