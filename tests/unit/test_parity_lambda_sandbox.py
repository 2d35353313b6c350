"""An execution environment without an emulator: what survives what, and its end."""

from __future__ import annotations

import itertools
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from parity import lambda_sandbox
from parity.lambda_environment import Places
from parity.lambda_request import Request
from parity.lambda_sandbox import Ran, Sandbox

HANDLER = """
import os, time

runs = []
path = os.environ["TMPDIR"] + "/kept"
open(path, "a").close()

def handler(event, context):
    time.sleep(event if isinstance(event, int) else 0)  # before anything else: who is cut off here has done nothing
    runs.append(1)
    open(path, "a").write("x")
    if event == "fail":
        raise ValueError("asked to")
    return [len(runs), os.path.getsize(path), os.getpid()]
"""


SLOW_START = """
import os, time

with open(os.environ["STARTS"], "a") as file:
    file.write("+")
    file.flush()
    time.sleep(0.9)
    file.write("-")

def handler(event, context):
    return 1
"""


class Host:
    def __init__(self, folder: Path, handler: str = HANDLER) -> None:
        self.folder, self.handler = folder, handler
        self.log: list[str] = []

    def places(self) -> Places:
        places = Places(*(self.folder / name for name in ("task", "opt", "tmp", "runtime")))
        for place in (places.task, places.layers, places.temporary, places.runtime):
            place.mkdir(parents=True)
        (places.task / "index.py").write_text(self.handler)
        return places

    def variables(self, places: Places) -> dict[str, str]:
        return {"TMPDIR": str(places.temporary), "STARTS": str(self.folder.parent / "starts")}

    def write(self, events: list[str]) -> None:
        self.log += events


class Function:
    def __init__(self, folder: Path, handler: str = HANDLER) -> None:
        self.host = Host(folder, handler)
        self.config = {"Timeout": 60, "MemorySize": 128, "Version": "7", "Handler": "index.handler"}
        self.config["Runtime"] = "python3.12"
        self.sandbox = Sandbox(self.config, "us-east-1", self.host)

    def run(self, event: Any) -> Ran:
        return self.sandbox.run(json.dumps(event).encode(), Request(), arn="arn", values={}, headers={})

    def pid(self) -> int:
        return int(json.loads(self.run(0).payload)[2])


@pytest.fixture
def function(tmp_path: Path) -> Any:
    made = Function(tmp_path / "environment")
    yield made
    made.sandbox.kill()


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_what_an_error_leaves_and_what_a_time_out_leaves(function: Function) -> None:
    assert json.loads(function.run(0).payload)[:2] == [1, 1]
    assert function.run("fail").failed
    assert json.loads(function.run(0).payload)[:2] == [3, 3]
    function.config["Timeout"] = 1
    late = function.run(600)
    function.config["Timeout"] = 60
    assert (late.failed, late.seconds) == (True, 1.0)
    assert json.loads(late.payload)["errorType"] == "Sandbox.Timedout"
    assert json.loads(function.run(0).payload)[:2] == [1, 4]  # a new process, the same /tmp
    starts = [line for line in function.host.log if line.startswith("START")]
    assert len(starts) == 5
    assert sum("Init Duration" in line for line in function.host.log) == 1


def test_an_end_waits_for_what_runs(function: Function) -> None:
    pid, ran = function.pid(), []
    running = threading.Thread(target=lambda: ran.append(json.loads(function.run("x").payload)))
    function.sandbox._lock.acquire()  # as while an invocation runs
    function.sandbox.end()
    assert psutil.pid_exists(pid)
    assert function.host.folder.exists()
    function.sandbox._lock.release()
    running.start()
    running.join(60)
    assert ran[0][0] == 2
    assert not psutil.pid_exists(pid)
    assert not function.host.folder.exists()


def test_a_kill_does_not_wait(tmp_path: Path) -> None:
    function = Function(tmp_path / "environment")
    pid, ran = function.pid(), []
    running = threading.Thread(target=lambda: ran.append(function.run(50)))
    running.start()
    until(lambda: sum(line.startswith("START") for line in function.host.log) == 2)
    function.sandbox.kill()
    running.join(30)
    assert json.loads(ran[0].payload)["errorType"] == "Runtime.ExitError"  # and no time-out
    assert not psutil.pid_exists(pid)
    assert not function.host.folder.exists()


def test_a_turn_that_takes_long_holds_nobody_up() -> None:
    """Init phases that invoke a function, whose own Init phase needs a turn, too."""
    turns = lambda_sandbox.Turns(most=2, longest=0.5)
    within = threading.Event()
    with turns.turn(), turns.turn():

        def inner() -> None:
            with turns.turn():
                within.set()

        running = threading.Thread(target=inner)
        running.start()
        assert within.wait(30)
        running.join(30)
    assert turns._began == []  # all of them were given back, once


@pytest.mark.parametrize("ends", ["kill", "end"])
def test_what_is_ended_before_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str) -> None:
    turns = lambda_sandbox.Turns(most=1, longest=60.0)
    monkeypatch.setattr(lambda_sandbox, "_turns", turns)
    run, warmed = Function(tmp_path / "run"), Function(tmp_path / "warmed")
    ran: list[Ran] = []
    threads = [
        threading.Thread(target=lambda: ran.append(run.run(0))),
        threading.Thread(target=warmed.sandbox.initialise),
    ]
    with turns.turn():
        for thread in threads:
            thread.start()
        until(lambda: run.host.folder.exists() and warmed.host.folder.exists())
        for each in (run, warmed):
            getattr(each.sandbox, ends)()
    for thread in threads:
        thread.join(30)
    assert ran[0].failed == (ends == "kill")  # an end lets an invocation come to its own
    assert not run.host.folder.exists()
    assert not warmed.host.folder.exists()
    assert not [each for each in psutil.process_iter(["environ"]) if str(tmp_path) in str(each.info["environ"])]


def test_cold_starts_wait_for_their_turn_and_the_wait_is_not_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Twelve take 5.4 s by twos, and more: longer than an Init phase may take here.
    monkeypatch.setattr(lambda_sandbox, "_turns", lambda_sandbox.Turns(most=2, longest=60.0))
    monkeypatch.setattr(lambda_sandbox, "INIT_LIMIT", 5.0)
    functions = [Function(tmp_path / str(number), SLOW_START) for number in range(12)]
    try:
        with ThreadPoolExecutor(len(functions)) as threads:
            ran = list(threads.map(lambda each: each.run(0), functions))
    finally:
        for each in functions:
            each.sandbox.kill()
    assert [each.payload for each in ran] == [b"1"] * 12
    assert not [line for each in functions for line in each.host.log if line.startswith("INIT_REPORT")]
    under_way = list(itertools.accumulate(1 if mark == "+" else -1 for mark in (tmp_path / "starts").read_text()))
    assert max(under_way) == 2
    assert under_way[-1] == 0
