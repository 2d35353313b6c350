"""Factories as nobody should write them, as ``module:factory``, for the tests of the processes."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path


class Odd:
    """As much of a worker as a process needs."""

    def __init__(self, work: Callable[[], object]) -> None:
        self.work = work

    def run(self, *, until_empty: bool = False, seconds: float | None = None) -> dict[str, int]:
        self.work()
        return {"done": 1}


def once() -> Odd:
    """One file a process in the folder: the first one ends well, the second one dies, and later ones stay."""
    place = Path(os.environ["ODD_FOLDER"])

    def work() -> None:
        number = 0
        while True:
            with contextlib.suppress(FileExistsError):  # another one was faster
                (place / str(number)).touch(exist_ok=False)
                break
            number += 1
        if number == 1:
            os._exit(9)
        if number > 1:
            time.sleep(600)

    return Odd(work)


def unset() -> Odd:
    raise KeyError("QUEUE_URL")  # as os.environ does


def leaves() -> Odd:
    sys.exit(0)


def no_answer() -> Odd:
    raise ConnectionRefusedError("nobody answers")


def deaf() -> Odd:
    """Hears no signal but SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    _say("deaf")
    return Odd(lambda: time.sleep(600))


def parent() -> Odd:
    """Has started another process."""
    _say(str(subprocess.Popen(["sleep", "600"]).pid))
    return Odd(lambda: time.sleep(600))


def held_up() -> Odd:
    """Breaks, and leaves a thread that would hold up the end of an interpreter."""

    def work() -> None:
        threading.Thread(target=time.sleep, args=(600,)).start()
        raise RuntimeError("broke")

    return Odd(work)


def _say(text: str) -> None:
    part = Path(os.environ["ODD_FOLDER"]) / "part"
    part.write_text(text)
    part.replace(part.with_name("said"))
