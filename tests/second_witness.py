"""The parity suite and every notebook on LocalStack without Docker: ``python -m tests.second_witness [PART …]``.

The same notebooks with the same stored outputs. LocalStack gets slower and larger with age, so each part has a fresh
one. With ``--record`` the parts write what they show into ``data/parity.csv`` instead of comparing it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time

from tests.run import PYTEST, ROOT, WATCHED, environment

HOME = ROOT / ".lab" / "test-localstack"
# Rows by the beginnings of the names of their modules; what no part names is a part of its own.
GROUPS = {
    "sqs": ("sqs", "metrics", "dynamodb"),
    "events": ("events",),
    "lambda": ("lambda",),
    "esm": ("esm",),
    "pipes": ("pipes",),
    "states": ("states",),
}
NBVAL = ("--nbval", "--nbval-current-env", "-n", "2", "--dist", "loadfile")


def modules() -> dict[str, list[str]]:
    """The modules of the parity suite by part, without those that hold tests of the embedded stand-in alone."""
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests" / "parity").glob("test_*.py")):
        if "@row(" not in path.read_text():
            continue
        topic = path.stem.removeprefix("test_")
        part = next((name for name, starts in GROUPS.items() if topic.startswith(starts)), "others")
        found.setdefault(part, []).append(str(path.relative_to(ROOT)))
    return found


def command(part: str, record: bool) -> list[str]:
    if part == "notebooks":
        return [*PYTEST, *WATCHED, *NBVAL, "notebooks"]
    if part == "hostmode":  # processes, folders, addresses: each with a LocalStack of its own
        return [*PYTEST, "-n", "2", "--dist", "loadfile", "tests/localstack"]
    return [*PYTEST, *modules()[part], *(["--record-parity"] if record else ["-n", "2"])]


def main(words: list[str]) -> int:
    record = "--record" in words
    wanted = [word for word in words if word != "--record"]
    there = [*modules()] if record else ["hostmode", *modules(), "notebooks"]
    unknown = [name for name in wanted if name not in there]
    if unknown:
        print(f"there is no part {unknown[0]!r}; there are {', '.join(there)}", file=sys.stderr)
        return 2
    surroundings = {**environment(HOME), "LABKIT_TARGET": "localstack"}
    os.environ.clear()
    os.environ.update(surroundings)
    from labkit import localstack

    started = time.monotonic()
    failed = []
    try:
        for part in wanted or there:
            down()
            began = time.monotonic()
            server = localstack.SERVER.ensure()
            print(
                f"== {part}: LocalStack {server.version} was ready after {time.monotonic() - began:.1f} s", flush=True
            )
            if subprocess.run(command(part, record), cwd=ROOT, check=False).returncode:
                failed.append(part)
            verdict = "FAILED" if part in failed else "ok"
            print(f"== {part}: {verdict} ({time.monotonic() - began:.0f} s)", flush=True)
    finally:
        down()
    print(f"{time.monotonic() - started:.0f} s on LocalStack without Docker.")
    print(f"Failed: {', '.join(failed)}." if failed else f"All parts passed: {', '.join(wanted or there)}.")
    return 1 if failed else 0


def down() -> None:
    subprocess.run((sys.executable, "-m", "labkit.cli", "down"), cwd=ROOT, check=False, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
