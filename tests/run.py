"""Run the checks of the project, all parts or those that are named: ``python tests/run.py unit parity``.

Everything that talks to AWS runs against a stand-in of the tests' own, which is ended at the end: a reader's open lab
is not disturbed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider")
WATCHED = ("-p", "tests.lookups")  # nothing in the run may look up a host outside loopback
PARTS: dict[str, tuple[tuple[str, ...], ...]] = {
    "lint": ((sys.executable, "-m", "ruff", "check", "."), (sys.executable, "-m", "ruff", "format", "--check", ".")),
    "types": ((sys.executable, "-m", "mypy"),),
    "unit": ((*PYTEST, "-n", "2", "tests/unit", "tests/cases", "tests/infra", "tests/notebooks"),),
    "browser": ((*PYTEST, "tests/browser"),),  # skipped, with a word on what to install, where there is no browser
    "parity": ((*PYTEST, "-n", "4", "tests/parity"),),
    # One kernel a notebook: cells of one file must not be dealt out to two workers.
    "notebooks": ((*PYTEST, *WATCHED, "--nbval", "--nbval-current-env", "-n", "2", "--dist", "loadfile", "notebooks"),),
}


RECORD = {"record-parity": ((*PYTEST, "tests/parity", "--record-parity"),)}


def environment(home: Path) -> dict[str, str]:
    """The variables of a run whose stand-in has ``home`` to itself: nothing of the reader's settings."""
    ours = {**os.environ, "LABKIT_HOME": str(home), "LABKIT_STATIC": "1", "PYTHONHASHSEED": "0"}
    settings = ("LABKIT_LEARNER", "LABKIT_REGION", "AWS_ENDPOINT_URL", "AWS_PROFILE", "LOCALSTACK_HOST")
    return {name: value for name, value in ours.items() if name not in settings}


def main(wanted: list[str]) -> int:
    parts = {**PARTS, **RECORD}
    unknown = [name for name in wanted if name not in parts]
    if unknown:
        print(f"there is no part {unknown[0]!r}; there are {', '.join(PARTS)}", file=sys.stderr)
        return 2
    surroundings = environment(ROOT / ".lab" / "test")
    failed = []
    try:
        for name in wanted or PARTS:
            started = time.monotonic()
            print(f"== {name}", flush=True)
            # Every command of a part runs, also after one that failed: a reader wants to see all of it.
            codes = [
                subprocess.run(command, cwd=ROOT, env=surroundings, check=False).returncode for command in parts[name]
            ]
            if any(codes):
                failed.append(name)
            print(f"== {name}: {'FAILED' if any(codes) else 'ok'} ({time.monotonic() - started:.0f} s)", flush=True)
    finally:
        down = (sys.executable, "-m", "labkit.cli", "down")
        subprocess.run(down, cwd=ROOT, env=surroundings, check=False, stdout=subprocess.DEVNULL)
    if failed:
        print(f"Failed: {', '.join(failed)}.")
        return 1
    print(f"All parts passed: {', '.join(wanted or PARTS)}.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
