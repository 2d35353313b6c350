"""Make the environments: ``.venv`` for reader and notebooks, ``.lab/emulator`` for the stand-in.

With ``--localstack`` it makes another one instead, ``.lab/localstack``: LocalStack without Docker, which needs CPython
3.13 (exit code 3 where there is none). Uses uv where it is or can be had (seconds), else pip (minutes). Needs nothing
but the standard library. A stamp of the locks is written last, so an interrupted run is done over and a finished one
costs nothing.
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
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LAB = ROOT / ".lab"
LOG = LAB / "setup.log"
COURSE = ROOT / ".venv"
EMULATOR = LAB / "emulator"
LOCALSTACK = LAB / "localstack"
TOOLS = LAB / "tools"
NO_PYTHON = 3  # exit code
SLOW = {"UV_HTTP_TIMEOUT": "120", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1"}


class Failed(Exception):
    """A step of the set-up failed; the sentence says which and what to do."""

    code = 1


class NoPython(Failed):
    """There is no interpreter of the release that is needed."""

    code = NO_PYTHON


@dataclass(frozen=True)
class Plan:
    """What is made: a stamp says of what and with which contents, ``whole`` lists files that must be there after it."""

    stamp: Path
    inputs: tuple[str, ...]
    environments: tuple[Path, ...]
    whole: tuple[Path, ...]
    steps: Callable[[Path | None, bool], tuple[tuple[str, Callable[[], None]], ...]]

    def wanted(self) -> dict[str, str]:
        digest = hashlib.sha256(b"".join((ROOT / name).read_bytes() for name in self.inputs)).hexdigest()
        return {"inputs": digest, "python": sys.version, "root": str(ROOT)}

    def contents(self) -> str:
        """A digest of what is installed, by name: an environment that lost a package must not pass for whole."""
        names = []
        for environment in self.environments:
            for folder in sorted(environment.glob("[Ll]ib/**/site-packages")):
                names += sorted(path.name for path in folder.iterdir() if path.name != "__pycache__")
        return hashlib.sha256("\n".join(names).encode()).hexdigest()


def binary(environment: Path, name: str) -> Path:
    return (
        environment / ("Scripts" if sys.platform == "win32" else "bin") / (name + (".exe" if os.name == "nt" else ""))
    )


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


def make(environment: Path, lock: str, uv: Path | None, fresh: bool, base: str = sys.executable) -> None:
    """Bring ``environment`` to exactly what ``lock`` says, on the interpreter ``base``."""
    python = binary(environment, "python")
    if fresh or not python.exists():
        shutil.rmtree(environment, ignore_errors=True)
        if uv:
            run(uv, "venv", "--no-python-downloads", "--python", base, environment)
        else:
            try:
                run(base, "-m", "venv", environment)
            except Failed as error:
                raise Failed(f"{error} (Debian, Ubuntu: apt install python3-venv)") from error
    if uv:
        run(uv, "pip", "sync", "--python", python, "--require-hashes", lock)
    else:
        run(python, "-m", "pip", "install", "--require-hashes", "-r", lock)


def install(environment: Path, source: str, uv: Path | None) -> None:
    """Install a package of this repository so that its files stay where they are."""
    python = binary(environment, "python")
    installer = (uv, "pip", "install", "--python", python) if uv else (python, "-m", "pip", "install")
    # Without build isolation: the build tool is in the lock, and nothing unpinned is fetched.
    run(*installer, "--no-deps", "--no-build-isolation", "--editable", source)


def install_labkit(uv: Path | None) -> None:
    install(COURSE, ".", uv)
    settle_jupyter()


def python_3_13(uv: Path | None) -> str:
    """A CPython 3.13 that runs, by its usual names; raises :class:`NoPython` with what to install."""
    named = os.environ.get("PYTHON313", "")
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    usual = [
        sys.executable,
        shutil.which("python3.13") or "",
        *map(str, sorted(pyenv.glob("versions/3.13*/bin/python"))),
    ]
    for candidate in [named] if named else usual:
        if candidate and _is_3_13(candidate):
            return candidate
    if uv and not named:
        found = subprocess.run(
            [uv, "python", "find", "--no-python-downloads", "3.13"],
            check=False,
            capture_output=True,
            text=True,
            cwd=ROOT,
        )
        if found.returncode == 0 and _is_3_13(found.stdout.strip()):
            return found.stdout.strip()
    seen = f"{named} is none" if named else "none was found"
    raise NoPython(
        f"LocalStack 4.14.0 runs on CPython 3.13 alone, and {seen}. Install it (Debian 13, Ubuntu: apt install "
        "python3.13-venv; macOS: brew install python@3.13; anywhere: uv python install 3.13), or name it: "
        "PYTHON313=/path/to/python3.13"
    )


def _is_3_13(python: str) -> bool:
    # A name on the PATH proves nothing: version managers put up names that run nothing.
    code = "import sys; sys.exit(sys.version_info[:2] != (3, 13) or sys.implementation.name != 'cpython')"
    try:
        return subprocess.run([python, "-c", code], check=False, capture_output=True, timeout=20).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


def settle_jupyter() -> None:
    """JupyterLab asks each newcomer about news from the internet; the course works without a network."""
    folder = COURSE / "etc" / "jupyter" / "labconfig"
    folder.mkdir(parents=True, exist_ok=True)
    setting = {"disabledExtensions": {"@jupyterlab/apputils-extension:announcements": True}}
    (folder / "page_config.json").write_text(json.dumps(setting))


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


def course_steps(uv: Path | None, fresh: bool) -> tuple[tuple[str, Callable[[], None]], ...]:
    return (
        ("course environment", lambda: make(COURSE, "requirements/course.lock", uv, fresh)),
        ("labkit", lambda: install_labkit(uv)),
        ("stand-in's environment", lambda: make(EMULATOR, "requirements/emulator.lock", uv, fresh)),
    )


def localstack_steps(uv: Path | None, fresh: bool) -> tuple[tuple[str, Callable[[], None]], ...]:
    base = python_3_13(uv)
    return (
        ("LocalStack's environment", lambda: make(LOCALSTACK, "requirements/localstack.lock", uv, fresh, base)),
        ("what it lacks without Docker", lambda: install(LOCALSTACK, "infra/localstack", uv)),
    )


def plan_of(course: bool) -> Plan:
    if course:
        return Plan(
            stamp=LAB / "setup.json",
            inputs=("pyproject.toml", "requirements/course.lock", "requirements/emulator.lock", "infra/bootstrap.py"),
            environments=(COURSE, EMULATOR),
            whole=(binary(COURSE, "labkit"), binary(EMULATOR, "python")),
            steps=course_steps,
        )
    return Plan(
        stamp=LAB / "setup-localstack.json",
        inputs=("infra/localstack/pyproject.toml", "requirements/localstack.lock", "infra/bootstrap.py"),
        environments=(LOCALSTACK,),
        whole=(binary(LOCALSTACK, "python"),),
        steps=localstack_steps,
    )


def main() -> int:
    try:
        LAB.mkdir(exist_ok=True)
        with alone():
            return set_up(plan_of("--localstack" not in sys.argv[1:]), "--again" in sys.argv[1:])
    except OSError as error:
        print(f"The set-up failed: {error}", file=sys.stderr)
        return 1


def set_up(plan: Plan, again: bool) -> int:
    wanted = plan.wanted()
    try:
        before = json.loads(plan.stamp.read_text())
    except (OSError, ValueError):
        before = {}
    there = all(path.exists() for path in plan.whole)
    if not again and there and before == {**wanted, "contents": plan.contents()}:
        return 0
    # Without a stamp a former run was cut off: what it left cannot be trusted.
    known = all(before.get(key) == wanted[key] for key in ("python", "root"))
    fresh = again or not (known and before.get("contents") == plan.contents())
    plan.stamp.unlink(missing_ok=True)
    LOG.write_text("")
    started = time.monotonic()
    try:
        uv = find_uv()
        how = "uv" if uv else "pip: this takes some minutes"
        steps = plan.steps(uv, fresh)
        for number, (name, step) in enumerate(steps, 1):
            print(f"[{number}/{len(steps)}] {name} ({how})", flush=True)
            step()
    except KeyboardInterrupt:
        print("\nInterrupted. Type the same again to go on.", file=sys.stderr)
        return 130
    except NoPython as error:
        print(error, file=sys.stderr)
        return error.code
    except Failed as error:
        print(
            f"The set-up failed: {error}\nEverything it printed is in {LOG}. Type the same again to go on.",
            file=sys.stderr,
        )
        return error.code
    draft = plan.stamp.with_suffix(".tmp")
    draft.write_text(json.dumps({**wanted, "contents": plan.contents()}))
    draft.replace(plan.stamp)
    with_python = f" with Python {sys.version.split()[0]}" if COURSE in plan.environments else ""
    print(f"Set up in {time.monotonic() - started:.0f} s{with_python}.", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
