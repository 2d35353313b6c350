"""The process of an execution environment, for real: a few cold starts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from parity.lambda_process import Outcome, Process

ROOT = Path(__file__).resolve().parent.parent.parent


class Running:
    """A process with a handler, its log, and short forms."""

    def __init__(self, folder: Path, source: str) -> None:
        (folder / "index.py").write_text(textwrap.dedent(source))
        self.log: list[str] = []
        self.folder = folder
        self.process = Process(folder, {"PATH": os.environ["PATH"], "OWN": "x"}, self.log.extend)

    def start(self, seconds: float = 60) -> Outcome:
        return self.process.start(
            handler="index.handler",
            task_root=str(self.folder),
            layers=[],
            packages=[],
            until=time.monotonic() + seconds,
        )

    def invoke(self, event: Any = None, seconds: float = 60, **variables: str) -> Outcome:
        header = {
            "request_id": "r-1",
            "arn": "arn:f",
            "deadline": time.time() + seconds,
            "variables": variables,
            "headers": {},
        }
        return self.process.invoke(header, json.dumps(event).encode(), time.monotonic() + seconds)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[[str], Running]]:
    made: list[Running] = []

    def make(source: str) -> Running:
        made.append(Running(tmp_path, source))
        return made[-1]

    yield make
    for running in made:
        running.process.end()


def gone(pid: int, within: float = 30) -> bool:
    end = time.monotonic() + within
    while time.monotonic() < end:
        try:
            if psutil.Process(pid).status() == psutil.STATUS_ZOMBIE:
                return True
        except psutil.NoSuchProcess:
            return True
        time.sleep(0.02)
    return False


def test_variables_of_one_invocation_are_gone_in_the_next(run: Callable[[str], Running]) -> None:
    running = run("import os\ndef handler(event, context): return dict(os.environ)")
    assert running.start().kind == "ready"
    first = json.loads(running.invoke(TRACE="t").payload)
    second = json.loads(running.invoke().payload)
    assert first["TRACE"] == "t"
    assert "TRACE" not in second
    assert second["OWN"] == "x"
    assert not {"HOME", "PYTHONPATH", "VIRTUAL_ENV"} & set(second)


def test_output_is_there_when_the_answer_is(run: Callable[[str], Running]) -> None:
    running = run("def handler(event, context):\n    for n in range(event): print(n)\n    print('end', end='')")
    running.start()
    for count in (0, 1, 3000):
        running.log.clear()
        assert running.invoke(count).kind == "result"
        assert running.log == [f"{n}\n" for n in range(count)] + ["end"]


@pytest.mark.parametrize(
    ("statement", "status"),
    [("sys.exit(0)", 0), ("sys.exit(4)", 4), ("os._exit(5)", 5), ("os.kill(os.getpid(), 9)", -9), ("exit(6)", 6)],
)
def test_the_process_ends(run: Callable[[str], Running], statement: str, status: int) -> None:
    running = run(f"import os, sys\ndef handler(event, context):\n    print('last', end='')\n    {statement}")
    running.start()
    assert running.invoke() == Outcome("exited", status=status)
    assert running.log == ["last"]
    assert not running.process.alive()
    assert running.invoke().kind == "exited"


def test_a_time_out_takes_the_children_along(run: Callable[[str], Running]) -> None:
    running = run("""
        import subprocess, time

        def handler(event, context):
            if event:
                print(subprocess.Popen(["sleep", "600"]).pid)
            else:
                time.sleep(600)
    """)
    running.start()
    assert running.invoke(True).kind == "result"
    assert running.invoke(False, seconds=1).kind == "timeout"
    assert gone(running.process.pid)
    assert gone(int(running.log[0]))


def test_the_import_has_a_limit_of_its_own(run: Callable[[str], Running]) -> None:
    assert run("import time\ntime.sleep(60)").start(seconds=0.5).kind == "timeout"


def test_a_child_that_writes_for_ever_holds_nothing_up(run: Callable[[str], Running]) -> None:
    running = run("""
        import subprocess

        def handler(event, context):
            if event:
                subprocess.Popen(["sh", "-c", "while :; do echo spam; done"])
            return event
    """)
    running.start()
    assert [running.invoke(event).payload for event in (True, False)] == [b"true", b"false"]


def test_sys_exit_waits_for_the_handlers_threads(run: Callable[[str], Running]) -> None:
    running = run("""
        import sys, threading, time

        def handler(event, context):
            threading.Thread(target=lambda: (time.sleep(0.3), print("thread"))).start()
            sys.exit(2)
    """)
    running.start()
    assert running.invoke() == Outcome("exited", status=2)
    assert running.log == ["thread\n"]


def test_large_events_and_answers(run: Callable[[str], Running]) -> None:
    running = run("def handler(event, context): return event")
    running.start()
    event = "x" * 6_000_000
    assert json.loads(running.invoke(event).payload) == event


def test_what_a_signal_handler_of_the_function_does(run: Callable[[str], Running]) -> None:
    running = run("""
        import signal

        def handler(event, context):
            signal.signal(signal.SIGTERM, lambda *_: None)
            return signal.alarm(0)
    """)
    running.start()
    assert running.invoke().payload == b"0"  # it runs in the main thread, where alone signals can be handled
    running.process.end()
    assert gone(running.process.pid)


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
def test_it_ends_when_the_stand_in_is_killed(tmp_path: Path, busy: bool) -> None:
    """Also in the middle of an endless handler, and together with what the handler has started."""
    (tmp_path / "index.py").write_text(
        "import subprocess\n"
        "def handler(event, context):\n"
        "    print(subprocess.Popen(['sleep', '600']).pid)\n"
        "    while event: pass\n"
    )
    script = f"""
import sys, time
sys.path.insert(0, {str(ROOT / "infra" / "emulator")!r})
from pathlib import Path
from parity.lambda_process import Process

def log(events):
    for event in events:
        print(event, end="", flush=True)

process = Process(Path({str(tmp_path)!r}), {{"PATH": "/usr/bin:/bin"}}, log)
process.start(handler="index.handler", task_root={str(tmp_path)!r}, layers=[], packages=[], until=time.monotonic() + 60)
print(process.pid, flush=True)
header = {{"request_id": "r", "arn": "a", "deadline": 0.0, "variables": {{}}, "headers": {{}}}}
process.invoke(header, {str(busy).lower().encode()!r}, time.monotonic() + 600)
time.sleep(600)
"""
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as standing_in:
        assert standing_in.stdout is not None
        pids = [int(standing_in.stdout.readline()) for _ in range(2)]
        assert all(psutil.pid_exists(pid) for pid in pids)
        standing_in.send_signal(signal.SIGKILL)
        standing_in.wait()
    assert all(gone(pid) for pid in pids)
