"""The doctor: what could keep the course from running, and what to type for each."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from labkit import places, targets
from labkit.errors import LabError

PYTHON = ((3, 11), (3, 14))  # from, and up to but without
COURSE = ("boto3", "jupyterlab", "localstack-client", "pandas", "matplotlib", "ipywidgets", "nbval", "litellm")
DISK = 300 * 2**20  # bytes that a day of the course may write: logs, S3 objects, packages of functions


@dataclass(frozen=True)
class Finding:
    """One examination: what was looked at, whether it is well, what was seen, and what to type if not."""

    what: str
    well: bool
    seen: str
    remedy: str = ""


def examine() -> Iterator[Finding]:
    """Every examination in the order in which a fault would show, one finding each; never raises."""
    checks: tuple[tuple[str, Callable[[], Finding]], ...] = (
        ("Python", _python),
        ("packages", _packages),
        ("write access", _write),
        ("disk", _disk),
        ("stand-in's environment", _environment),
        ("target", _target),
        ("round trip", _round_trip),
    )
    for what, check in checks:
        try:
            yield check()
        except LabError as error:
            yield Finding(what, False, str(error), "make setup SETUP=--again, if the sentence names nothing better")
        except Exception as error:  # noqa: BLE001 - a doctor that dies of what it finds is of no use
            yield Finding(what, False, f"{type(error).__name__}: {error}", "make setup SETUP=--again")


def _python() -> Finding:
    found = ".".join(map(str, sys.version_info[:3]))
    well = PYTHON[0] <= sys.version_info[:2] < PYTHON[1]
    return Finding("Python", well, f"{found} at {sys.executable}", "make setup SETUP=--again PYTHON=python3.12")


def _packages() -> Finding:
    missing = []
    for package in COURSE:
        try:
            importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            missing.append(package)
    seen = f"missing: {', '.join(missing)}" if missing else f"{len(COURSE)} of {len(COURSE)} there"
    return Finding("packages", not missing, seen, "make setup SETUP=--again")


def _write() -> Finding:
    folder = places.home()
    probe = folder / f".probe-{uuid.uuid4().hex}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_text("probe")
        probe.unlink()
    except OSError as error:
        return Finding("write access", False, f"{folder}: {error.strerror}", f"chmod u+w {folder}, or set LABKIT_HOME")
    return Finding("write access", True, str(folder))


def _disk() -> Finding:
    free = shutil.disk_usage(places.home()).free
    return Finding("disk", free > DISK, f"{free // 2**20:,} MiB free", f"free {DISK // 2**20} MiB")


def _environment() -> Finding:
    what = "stand-in's environment"
    if targets.chosen() == "aws":
        return Finding(what, True, "not needed: the target is aws")
    python = places.interpreter("emulator")
    return Finding(what, python.exists(), str(python) if python.exists() else f"missing: {python}", "make setup")


def _target() -> Finding:
    ready = targets.connect()
    return Finding("target", True, f"{ready.name}: {ready.says}")


def _round_trip() -> Finding:
    """A message through a queue, in an account of its own: the least that the course needs."""
    ready = targets.connect()
    if ready.shared:
        return Finding("round trip", True, "not tried: it would leave a trace in a real account")
    sqs = ready.client("sqs", targets.account_for("doctor", f"{os.getpid()}"))
    url = sqs.create_queue(QueueName="doctor")["QueueUrl"]
    try:
        sqs.send_message(QueueUrl=url, MessageBody="well")
        bodies = [
            message["Body"] for message in sqs.receive_message(QueueUrl=url, WaitTimeSeconds=2).get("Messages", [])
        ]
    finally:
        sqs.delete_queue(QueueUrl=url)
    return Finding(
        "round trip", bodies == ["well"], f"sent 1 message, received {len(bodies)}", "labkit down, then labkit up"
    )
