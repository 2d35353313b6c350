"""Where things lie: the course's repository, the folder that the lab writes into, the Pythons of the emulators."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from labkit.errors import SetupError


def repository() -> Path:
    """The folder of the course: where ``infra/emulator`` lies. Raises :class:`SetupError` for an installed labkit."""
    for folder in (Path(__file__).resolve().parent.parent, Path.cwd().resolve(), *Path.cwd().resolve().parents):
        if (folder / "infra" / "emulator" / "parity" / "__main__.py").is_file():
            return folder
    raise SetupError(
        "the embedded stand-in lies in the course's repository and this labkit is not in one; "
        "clone it, or set LABKIT_TARGET=localstack or aws."
    )


def home() -> Path:
    """Where the lab writes everything: ``$LABKIT_HOME``, else ``.lab`` in the repository, else in your home folder.

    A relative ``LABKIT_HOME`` counts from the repository: a kernel works in another folder than the command line.
    """
    configured = os.environ.get("LABKIT_HOME", "").strip()
    try:
        base = repository()
    except SetupError:  # labkit taken home, without the course: only the other targets work then
        base = Path.home()
    return (base / Path(configured).expanduser()).resolve() if configured else base / ".lab"


def interpreter(environment: str) -> Path:
    """The Python of an environment under ``.lab``: ``emulator`` for the stand-in, ``localstack`` for host mode.

    ``LABKIT_EMULATOR_PYTHON`` and ``LABKIT_LOCALSTACK_PYTHON`` name another one.
    """
    configured = os.environ.get(f"LABKIT_{environment.upper()}_PYTHON")
    if configured:
        return Path(configured)
    folder = repository() / ".lab" / environment
    return folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
