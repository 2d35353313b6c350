"""Workers in processes: killed at random points and replaced, told to stop, orphaned, broken."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from labkit import Lab
from labkit.control.envelope import Envelope
from labkit.state.idempotency import IdempotencyStore, Work
from labkit.work.processes import Processes, load
from labkit.work.queues import Queue
from labkit.work.worker import WorkerError

from . import killed_fleet

FACTORY = "tests.unit.killed_fleet:make"


def steps(count: int) -> list[Envelope]:
    return [
        Envelope.new(conversation_id=str(n), step=1, agent_class="researcher", payload={"n": n}) for n in range(count)
    ]


@pytest.fixture
def queue(lab: Lab) -> Queue:
    return Queue.create(lab, "work", visibility=killed_fleet.VISIBILITY, dlq=True, max_receives=50)


@pytest.fixture
def store(lab: Lab) -> IdempotencyStore:
    return IdempotencyStore.create(lab, "steps", lease=killed_fleet.LEASE)


@pytest.fixture
def folder(lab: Lab, queue: Queue, store: IdempotencyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in {
        "ACCOUNT": lab.account,
        "QUEUE": queue.url,
        "TABLE": store.table,
        "FOLDER": str(tmp_path),
    }.items():
        monkeypatch.setenv(f"FLEET_{name}", value)
    return tmp_path


def lines(folder: Path, kind: str) -> list[list[str]]:
    path = folder / kind
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def until(condition: Callable[[], object], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)


def test_kill_9_at_random_points_loses_nothing_and_records_nothing_twice(
    queue: Queue, store: IdempotencyStore, folder: Path
) -> None:
    work, chance = steps(500), random.Random()
    queue.send_batch([envelope.detail() for envelope in work])
    queue.send_batch([envelope.detail() for envelope in work[:50]])  # and producers repeat themselves
    killed, next_kill, end = 0, 20, time.monotonic() + 55
    with Processes(FACTORY, 2) as fleet:
        while queue.depth().total:
            assert time.monotonic() < end, f"{queue.depth()} left after {killed} kills"
            fleet.look()
            # By progress and not by the clock: on a slow machine they would never get anywhere.
            if len(lines(folder, "recorded")) >= next_kill and fleet.pids:
                os.kill(chance.choice(fleet.pids), signal.SIGKILL)
                killed, next_kill = killed + 1, next_kill + chance.randint(20, 60)
            time.sleep(chance.uniform(0.01, 0.1))
    assert killed >= 5
    assert fleet.restarted >= 5
    results = defaultdict(set)
    for trace_id, result in lines(folder, "recorded"):
        results[trace_id].add(result)
    for envelope in work:
        record = store.look(Work.of(envelope, "researcher"))
        assert record is not None, f"{envelope.trace_id} is lost"
        assert record.done, f"{envelope.trace_id} is lost after {record.attempt} attempts"
        assert {f'"{result}"' for result in results[envelope.trace_id]} == {record.result}, "recorded twice"
    ran = [trace_id for [trace_id] in lines(folder, "ran")]
    assert len(set(ran)) == 500
    assert len(ran) > 500, "no kill hit a step: nothing was tested"
    assert queue.dlq is not None
    assert queue.dlq.depth().total == 0


def test_sigterm_finishes_what_is_at_work(queue: Queue, folder: Path) -> None:
    queue.send_batch([envelope.detail() for envelope in steps(200)])
    with Processes(FACTORY, 1) as fleet:
        until(lambda: lines(folder, "recorded"))
        [pid] = fleet.pids
        os.kill(pid, signal.SIGTERM)
        until(lambda: not fleet.pids)
        assert not fleet.look(), "a worker that ended well is not replaced"
    depth = queue.depth()
    assert depth.in_flight == 0
    assert depth.visible == 200 - fleet.counts["done"] - fleet.counts["replayed"]
    assert depth.visible > 0


def test_they_end_by_themselves_and_say_what_they_did(queue: Queue, folder: Path) -> None:
    queue.send_batch([envelope.detail() for envelope in steps(20)])
    with Processes(FACTORY, 2, arguments=["--until-empty"]) as fleet:
        fleet.wait(30)
    assert fleet.counts == {"done": 20}


def test_children_end_with_their_parent(folder: Path) -> None:
    script = (
        "import sys, time; from labkit.work.processes import Processes\n"
        f"with Processes({FACTORY!r}, 1) as fleet: print(fleet.pids[0], flush=True); time.sleep(60)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    until(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE)


def test_a_worker_that_cannot_live_is_an_error_and_no_loop() -> None:
    with Processes("tests.unit.no_such:make", 2, restarts=3) as fleet, pytest.raises(WorkerError, match="died 4 times"):
        fleet.wait(30)
    assert fleet.pids == []


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("labkit", "module:factory"),
        ("labkit.no_such:make", "there is no worker labkit.no_such:make"),
        ("labkit.places:no_such", "there is no worker labkit.places:no_such"),
        ("labkit.places:home", "and no worker"),
    ],
)
def test_what_is_no_worker_is_said(target: str, says: str) -> None:
    with pytest.raises(WorkerError, match=says):
        load(target)
