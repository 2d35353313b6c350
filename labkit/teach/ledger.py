"""A ledger: which step was paid for, how often, and a power cut in the middle of one.

What survives a death is easy to claim and easy to count. Whoever runs a step, in whichever process, writes a line
before anything else, as a provider writes one before it answers; a process that dies a moment later has been paid for
all the same::

    ledger.cut("draft")                 # the next run of that step is the last thing its process does
    …                                   # paid(ledger.path, "draft") in a worker, a session, a graph
    ledger.runs("plan", "draft")        # [1, 2]: the draft was paid for twice

The cut is signal 9, which a process sends to itself: at exactly that moment, and nothing that stands after it runs. A
signal from outside does the same some milliseconds earlier or later. The standard library is enough here, for a process
that has nothing else.
"""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labkit.lab import Lab

__all__ = ["Ledger", "paid"]

_LONGEST = 200  # bytes, of 255 that a file's name has on most systems


class Ledger:
    """One ledger, in a folder of its own. :meth:`create` lets a lab remove it."""

    def __init__(self) -> None:
        from labkit.state.session_vm import own_folder

        self._folder = own_folder("ledgers")
        self.path = str(self._folder / "ledger")
        Path(self.path).touch()

    @classmethod
    def create(cls, lab: Lab) -> Ledger:
        ledger = cls()
        lab.on_close("ledger", ledger.close)
        return ledger

    def cut(self, step: str) -> None:
        """Have the next process that runs ``step`` die in it. One cut is one death."""
        _cut(self.path, step).touch()

    def lines(self) -> list[str]:
        """Every run of a step, in the order in which they began."""
        return Path(self.path).read_text(encoding="utf-8").split()

    def runs(self, *steps: str) -> list[int]:
        """How often each of ``steps`` was begun."""
        lines = self.lines()
        return [lines.count(step) for step in steps]

    def close(self) -> None:
        """Remove the ledger. Closing twice is harmless."""
        shutil.rmtree(self._folder, ignore_errors=True)


def paid(path: str, step: str) -> str:
    """Run ``step``: a line in the ledger at ``path``, and what the step answers.

    Where the ledger has a cut for it, the process ends here. A step's name is one word, and part of a file's: raises
    ValueError for what is none, and pays for nothing.
    """
    cut = _cut(path, step)
    # One short write: lines of several processes do not mix.
    handle = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(handle, f"{step}\n".encode())
    finally:
        os.close(handle)
    try:
        cut.unlink()
    except FileNotFoundError:
        return f"{step} done"
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("a process went on after signal 9")  # pragma: no cover


def _cut(path: str, step: str) -> Path:
    if not isinstance(step, str) or step.split() != [step] or not step.isprintable() or set(step) & set("/\\"):
        raise ValueError(f"a step's name is one word without slashes; got {step!r:.80}.")
    if len(step.encode()) > _LONGEST:
        raise ValueError(f"a step's name has at most {_LONGEST} bytes; got {len(step.encode())}.")
    return Path(f"{path}.cut-in-{step}")
