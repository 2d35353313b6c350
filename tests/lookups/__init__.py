"""A run fails when anything in it looks up a host, or connects to one, outside loopback: ``pytest -p tests.lookups``.

The course promises to need no network. The processes of a run are watched, kernels and workers among them, through
``hook/sitecustomize.py``. Not watched is what does without it: what is not Python (a C library that connects by itself
among it), and a Python that gets other variables or is isolated, as the stand-in, its functions and sessions are.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

HOOK = Path(__file__).parent / "hook"
_SEEN = "LAB_LOOKUPS"


def watched(seen: Path) -> dict[str, str]:
    """The variables under which Python notes its look-ups in ``seen``."""
    path = os.pathsep.join(filter(None, (str(HOOK), os.environ.get("PYTHONPATH"))))
    return {_SEEN: str(seen), "PYTHONPATH": path}


def pytest_configure(config: Any) -> None:
    if hasattr(config, "workerinput"):
        return  # a worker of xdist: the one that started it has set the variables
    folder = tempfile.TemporaryDirectory(prefix="lookups-")
    config.add_cleanup(folder.cleanup)
    os.environ.update(watched(Path(folder.name) / "seen"))


def pytest_sessionfinish(session: Any) -> None:
    if hasattr(session.config, "workerinput"):
        return
    found = looked_up(Path(os.environ[_SEEN]))
    if found:
        session.config.get_terminal_writer().line()
        for line in found:
            session.config.get_terminal_writer().line(f"outside loopback: {line}", red=True)
        session.exitstatus = 1


def looked_up(seen: Path) -> list[str]:
    """What was noted, each once."""
    return sorted(set(seen.read_text().splitlines())) if seen.exists() else []
