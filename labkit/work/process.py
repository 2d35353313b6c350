"""Process: one worker as a program. ``python -m labkit.work.processes module:factory``, and how it ends.

====  ==========================================================================================
code  meaning
====  ==========================================================================================
0     it ended as it was told to: SIGTERM, Ctrl-C, ``--seconds``, ``--until-empty``
1     it broke, or what it needs does not answer: worth another try
2     it cannot run at all: wrong words, no such module, a factory that makes no worker
====  ==========================================================================================
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import json
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from labkit.errors import LabError
from labkit.state.records import said
from labkit.work.tasks import WorkerError

REFUSED = 2


def named(target: str) -> tuple[str, str]:
    """Module and factory. Raises :class:`WorkerError` where ``target`` does not name them."""
    module, _, factory = target.partition(":") if isinstance(target, str) else ("", "", "")
    if not module or not factory or module.startswith("."):
        raise WorkerError(f"a worker is named as module:factory; {target!r:.80} is not.")
    return module, factory


def load(target: str) -> Any:
    """The worker that ``module:factory`` makes. Raises :class:`WorkerError` when there is no such thing.

    What a factory raises because something does not answer (an ``OSError``, an error of boto3's or of labkit's) comes
    through: it may be there the next time.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    module, factory = named(target)
    try:
        make = getattr(importlib.import_module(module), factory)
    except (Exception, SystemExit) as error:
        raise WorkerError(f"there is no worker {target}: {_with_place(error)}.") from error
    try:
        worker = make()
    except (LabError, BotoCoreError, ClientError, OSError):
        raise
    except (Exception, SystemExit) as error:
        raise WorkerError(f"{target} makes no worker: {_with_place(error)}.") from error
    if not hasattr(worker, "run") or isinstance(worker, type):
        raise WorkerError(f"{target} made {type(worker).__name__}, and no worker.")
    return worker


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """One worker, and then the end of this process: steps that were given up may still hold threads."""
    chosen = _parse(arguments)
    code, says = 1, ""
    try:
        with contextlib.suppress(ValueError):  # signals are the main thread's affair
            # Ctrl-C is a stop like any other: the worker finishes or gives back.
            signal.signal(signal.SIGINT, lambda number, frame: signal.raise_signal(signal.SIGTERM))
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(message)s")
        logging.getLogger("labkit").setLevel(logging.INFO)
        if chosen.parent:
            threading.Thread(target=_end_with, args=(chosen.parent, chosen.grace), daemon=True).start()
        sys.path.insert(0, os.getcwd())
        code, says, counts = _work(chosen)
        _report(chosen.report, {"counts": dict(counts), "says": says})
    except BaseException as error:  # noqa: BLE001 - the exit code says it; no thread that is left may hold up the end
        code = 1
        traceback.print_exc()
        _report(chosen.report, {"says": f"{type(error).__name__}: {said(error)}"})
    finally:
        with contextlib.suppress(Exception):
            # A parent that cannot run them says the sentence itself, once for all of its processes.
            if says and not (chosen.report and code == REFUSED):
                print(says, file=sys.stderr)
            logging.shutdown()
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="labkit.work.processes", description="Run one worker.")
    parser.add_argument("target", help="module:factory")
    parser.add_argument("--until-empty", action="store_true", help="end when nothing is left in the queue")
    parser.add_argument("--seconds", type=seconds, help="end after so many seconds")
    parser.add_argument("--report", type=int, help="write what became of it there: a file descriptor")
    parser.add_argument("--parent", type=int, help="end with this process, which has started this one")
    parser.add_argument("--grace", type=seconds, default=25.0, help="seconds between SIGTERM and SIGKILL then")
    return parser.parse_args(arguments)


def seconds(text: str) -> float:
    """For argparse, which names it in its sentence: a time of 0 or more."""
    value = float(text)
    if not value >= 0:
        raise ValueError(text)
    return value


def _work(chosen: argparse.Namespace) -> tuple[int, str, Mapping[str, int]]:
    """Exit code, what to say, and the counts."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        worker = load(chosen.target)
    except WorkerError as error:
        return REFUSED, str(error), {}
    except (LabError, BotoCoreError, ClientError, OSError) as error:
        return 1, f"{chosen.target} could not make its worker: {type(error).__name__}: {said(error)}", {}
    try:
        return 0, "", worker.run(until_empty=chosen.until_empty, seconds=chosen.seconds)
    except WorkerError as error:
        return 1, str(error), {}


def _report(descriptor: int | None, what: Mapping[str, Any]) -> None:
    if descriptor is not None:
        line = json.dumps(what).encode()
        with contextlib.suppress(OSError):  # nobody listens any more
            os.write(descriptor, line[:65_536])  # what a pipe takes without a reader


def _with_place(error: BaseException) -> str:
    """What was raised, and where: for who wrote it."""
    ours = ("<frozen", __file__, importlib.__file__)
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
    place = f" ({frames[-1].filename}, line {frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {said(error)}{place}"


def _end_with(parent: int, grace: float) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace)
    os.kill(os.getpid(), signal.SIGKILL)
