"""Libraries: copy what is installed here into a function's package.

The environment was made from a lock, so its libraries are the pinned ones, and nothing has to be downloaded. What goes
in is what the installation recorded (``RECORD``), each file compared with its hash, without what an installer leaves of
itself. Everything that a library requires comes along; its extras do not.

Only Python travels: a compiled module runs on this machine's platform and Python, and Lambda is another machine.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import re
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from labkit import places
from labkit.errors import LabError, SetupError

if TYPE_CHECKING:
    from packaging.requirements import Requirement

_COMPILED = (".so", ".pyd", ".dylib", ".dll")
# What an installer writes beside a library's files: another one, or another day, writes it differently.
_INSTALLERS = {"INSTALLER", "RECORD", "REQUESTED", "direct_url.json", "uv_cache.json", "uv_build.json"}


class PackageError(LabError):
    """A function cannot be packaged; the sentence names the file, the module or the library."""


def collect(wanted: Iterable[str], *, compiled: bool = False) -> tuple[dict[str, bytes], dict[str, str]]:
    """The files (path → content) of ``wanted`` libraries and of what they require, and the version of each.

    A library is named as in a requirement, with or without a version (``jmespath``, ``jmespath==1.1.0``). Raises
    :class:`PackageError` for one that is not installed, is another version than was asked for or locked, was changed
    since it was installed, or is compiled, unless ``compiled`` lets it in.
    """
    from packaging.requirements import InvalidRequirement, Requirement

    files: dict[str, bytes] = {}
    versions: dict[str, str] = {}
    waiting: list[Requirement] = []
    for text in wanted:
        try:
            waiting.append(Requirement(text))
        except InvalidRequirement as error:
            raise PackageError(f"{text!r} names no library: {str(error).splitlines()[0]}.") from error
    while waiting:
        asked = waiting.pop()
        found = _installed(asked)
        name = _plain(asked.name)
        if name in versions:
            continue
        versions[name] = found.version
        files.update(_files(found, name, compiled))
        for line in found.requires or ():
            needed = Requirement(line)
            if needed.marker is None or needed.marker.evaluate({"extra": ""}):
                waiting.append(needed)
    return files, dict(sorted(versions.items()))


def _installed(asked: Requirement) -> metadata.Distribution:
    try:
        found = metadata.distribution(asked.name)
    except metadata.PackageNotFoundError as error:
        raise PackageError(f"library {asked.name} is not installed here, and nothing is downloaded.") from error
    if not asked.specifier.contains(found.version, prereleases=True):
        raise PackageError(f"library {asked.name} is {found.version} here; {asked.specifier} was asked for.")
    locked = _locked(_plain(asked.name))
    if locked and found.version not in locked:
        pins = " or ".join(sorted(locked))
        raise PackageError(f"library {asked.name} is {found.version} here and {pins} in the lock; type `make setup`.")
    return found


def _files(found: metadata.Distribution, name: str, compiled: bool) -> dict[str, bytes]:
    record = found.read_text("RECORD")
    if record is None:
        raise PackageError(f"library {name} has no RECORD of its files; install it again.")
    taken: dict[str, bytes] = {}
    # Read here: from Python 3.12 on, Distribution.files leaves out what was lost.
    for line, recorded, _ in csv.reader(record.splitlines()):
        path = PurePosixPath(line)
        if ".." in path.parts or "__pycache__" in path.parts or path.suffix == ".pyc":
            continue  # scripts, for a shell that a function does not have; caches
        if path.suffix == ".pth":
            raise PackageError(
                f"library {name} works through {path}, which Lambda does not read (installed in place?)."
            )
        if path.suffix in _COMPILED and not compiled:
            raise PackageError(
                f"library {name} is compiled ({path}) and would run on this machine's platform only; "
                "`compiled = true` takes it along all the same."
            )
        if path.parts[0].endswith(".dist-info") and path.name in _INSTALLERS:
            continue
        try:
            content = Path(str(found.locate_file(path))).read_bytes()
        except OSError as error:
            raise PackageError(f"library {name} has lost {path}; install it again.") from error
        mode, _, value = recorded.partition("=")
        if recorded and _digest(mode, content) != value:
            raise PackageError(f"library {name}: {path} was changed since it was installed; install it again.")
        taken[path.as_posix()] = content
    return taken


def _digest(mode: str, content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.new(mode, content).digest()).decode().rstrip("=")


def _locked(name: str) -> set[str]:
    """The versions of a library that the course's lock pins, one for each kind of Python that needs another; none
    where labkit was taken home without it."""
    try:
        lock = places.repository() / "requirements" / "course.lock"
        return set(re.findall(rf"(?m)^{re.escape(name)}==([^\s;\\]+)", lock.read_text(encoding="utf-8")))
    except (SetupError, OSError):
        return set()


def _plain(name: str) -> str:
    """A library's name as the lock and PyPI write it: ``aws_lambda_powertools`` is ``aws-lambda-powertools``."""
    return re.sub(r"[-_.]+", "-", name).lower()
