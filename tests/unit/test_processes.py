"""Workers in processes: killed at random points and replaced, told to stop, orphaned, broken."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from pathlib import Path

import psutil
import pytest

from labkit import Lab
from labkit.control.envelope import Envelope
from labkit.state.idempotency import IdempotencyStore, Work
from labkit.work.processes import Processes, load
from labkit.work.queues import Queue
from labkit.work.worker import WorkerError
from tests.waiting import until

FACTORY = "tests.unit.killed_fleet:make"


def steps(count: int) -> list[Envelope]:
    return [
        Envelope.new(conversation_id=str(n), step=1, agent_class="researcher", payload={"n": n}) for n in range(count)
    ]


@pytest.fixture
def queue(lab: Lab) -> Queue:
    return Queue.create(lab, "work", visibility=30, dlq=True, max_receives=50)


@pytest.fixture
def store(lab: Lab) -> IdempotencyStore:
    return IdempotencyStore.create(lab, "steps")


@pytest.fixture
def folder(lab: Lab, queue: Queue, store: IdempotencyStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, value in {
        "ACCOUNT": lab.account,
        "QUEUE": queue.url,
        "TABLE": store.table,
        "FOLDER": str(tmp_path),
        "VISIBILITY": "30",  # a machine that stands still for a moment loses no message
        "LEASE": "20",
    }.items():
        monkeypatch.setenv(f"FLEET_{name}", value)
    return tmp_path


def lines(folder: Path, kind: str) -> list[list[str]]:
    path = folder / kind
    return [line.split() for line in path.read_text().splitlines()] if path.exists() else []


def gone(process: psutil.Process) -> bool:
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:  # since the first of the two looks
        return True


def test_kill_9_at_random_points_loses_nothing_and_records_nothing_twice(
    queue: Queue, store: IdempotencyStore, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("VISIBILITY", "LEASE"):
        monkeypatch.delenv(f"FLEET_{name}")  # what a kill leaves is to come back soon
    work, chance = steps(500), random.Random()
    queue.send_batch([envelope.detail() for envelope in work])
    queue.send_batch([envelope.detail() for envelope in work[:50]])  # and producers repeat themselves
    killed, next_kill, end = 0, 20, time.monotonic() + 240

    def hit() -> int:
        """How many steps were killed."""
        ran = [trace_id for [trace_id] in lines(folder, "ran")]
        return len(ran) - len(set(ran))

    with Processes(FACTORY, 2) as fleet:
        while (left := queue.depth().total) or fleet.restarted < 5 or not hit():
            assert time.monotonic() < end, f"{queue.depth()} left after {killed} kills"
            fleet.look()
            # By progress and not by the clock: on a slow machine they would never get anywhere.
            if len(lines(folder, "recorded")) >= next_kill and fleet.pids:
                os.kill(chance.choice(fleet.pids), signal.SIGKILL)
                killed, next_kill = killed + 1, next_kill + chance.randint(20, 60)
            elif not left and len(fleet.pids) == 2:  # they were faster than the kills: more work for them
                more = steps(len(work) + 100)[len(work) :]
                queue.send_batch([envelope.detail() for envelope in more])
                work += more
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
    assert len(set(ran)) == len(work)
    assert len(ran) > len(work), "no kill hit a step: nothing was tested"
    assert queue.dlq is not None
    assert queue.dlq.depth().total == 0


def test_sigterm_finishes_what_is_at_work(queue: Queue, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLEET_STEP", "0.5")  # 25 seconds for all of them: it does not get that far
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
        fleet.wait(90)
    assert fleet.counts == {"done": 20}


def test_children_end_with_their_parent(folder: Path) -> None:
    script = (
        "import sys, time; from labkit.work.processes import Processes\n"
        f"with Processes({FACTORY!r}, 1, grace=100) as fleet: print(fleet.pids[0], flush=True); time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    with parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    until(lambda: gone(child))


def test_an_orphan_that_hears_no_signal_ends_too_and_leaves_no_file(tmp_path: Path) -> None:
    script = (
        "import time; from labkit.work.processes import Processes\n"
        "with Processes('tests.unit.odd_workers:deaf', 1, grace=0.5) as fleet: print(fleet.pids[0], flush=True); "
        "time.sleep(600)"
    )
    (tmp_path / "odd").mkdir()
    (tmp_path / "tmp").mkdir()
    environment = {**os.environ, "ODD_FOLDER": str(tmp_path / "odd"), "TMPDIR": str(tmp_path / "tmp")}
    parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=environment)
    with parent:
        assert parent.stdout is not None
        child = psutil.Process(int(parent.stdout.readline()))
        until(lambda: (tmp_path / "odd" / "said").exists())
        parent.kill()
    until(lambda: gone(child))
    assert list((tmp_path / "tmp").iterdir()) == []


# -- the end, and what is left -----------------------------------------------------------------------------------------


def said(folder: Path) -> str:
    until((folder / "said").exists)
    return (folder / "said").read_text()


def test_what_a_worker_has_started_ends_with_it(tmp_path: Path) -> None:
    with Processes("tests.unit.odd_workers:parent", 1, environment={"ODD_FOLDER": str(tmp_path)}):
        grandchild = psutil.Process(int(said(tmp_path)))
        assert grandchild.is_running()
    until(lambda: gone(grandchild))


def test_an_interrupt_while_they_end_leaves_none_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Processes("tests.unit.odd_workers:deaf", 1, environment={"ODD_FOLDER": str(tmp_path)}).start()
    said(tmp_path)
    [pid] = fleet.pids

    sleep = time.sleep

    def interrupted(seconds: float) -> None:
        if threading.current_thread() is not threading.main_thread():
            return sleep(seconds)
        monkeypatch.setattr(time, "sleep", sleep)
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        fleet.stop()
    assert not psutil.pid_exists(pid)


def test_one_that_ends_well_does_not_hide_another_that_died(tmp_path: Path) -> None:
    with Processes("tests.unit.odd_workers:once", 3, environment={"ODD_FOLDER": str(tmp_path)}) as fleet:
        everyone = {process.pid for process in fleet._running}
        until(lambda: len(fleet.pids) == 1)  # both are over when look() sees them
        assert fleet.look()
        everyone |= set(fleet.pids)
        assert (len(fleet.pids), fleet.restarted) == (2, 1)
    assert fleet.counts == {"done": 1}
    assert not any(psutil.pid_exists(pid) for pid in everyone)


def test_they_are_started_once_and_the_halves_of_a_start_are_ended(tmp_path: Path) -> None:
    environment = {"ODD_FOLDER": str(tmp_path)}
    with (
        Processes("tests.unit.odd_workers:deaf", 1, environment=environment, grace=0) as fleet,
        pytest.raises(WorkerError, match="run already"),
    ):
        fleet.start()
    with pytest.raises(WorkerError, match=r"no worker could be started: .*no-such-folder"):
        Processes("tests.unit.odd_workers:deaf", 2, folder=tmp_path / "no-such-folder").start()


def test_a_thread_that_a_step_left_does_not_hold_up_the_end() -> None:
    says = "died 1 times, the last one with this: RuntimeError: broke"
    with Processes("tests.unit.odd_workers:held_up", 1, restarts=0) as fleet, pytest.raises(WorkerError, match=says):
        fleet.wait(90)


# -- those that cannot live --------------------------------------------------------------------------------------------


def test_a_worker_that_cannot_live_is_an_error_and_no_loop() -> None:
    says = "died 4 times, .*could not make its worker: .*nobody answers"
    with Processes("tests.unit.odd_workers:no_answer", 2, restarts=3) as fleet, pytest.raises(WorkerError, match=says):
        fleet.wait(90)
    assert fleet.pids == []


@pytest.mark.parametrize(
    ("factory", "says"),
    [
        ("tests.unit.no_such:make", "there is no worker tests.unit.no_such:make: .*No module named"),
        ("tests.unit.odd_workers:unset", r"makes no worker: KeyError: 'QUEUE_URL' \(.*odd_workers.py, line \d+\)"),
        ("tests.unit.odd_workers:leaves", "makes no worker: SystemExit: 0"),
    ],
)
def test_a_worker_that_cannot_begin_is_said_at_once(capfd: pytest.CaptureFixture[str], factory: str, says: str) -> None:
    with Processes(factory, 2) as fleet, pytest.raises(WorkerError, match=says):
        fleet.wait(90)
    assert fleet.restarted == 0
    assert capfd.readouterr().err == ""  # the sentence comes from here, and not from each of them


@pytest.mark.parametrize("options", [{"count": 0}, {"count": 65}, {"count": 2.5}, {"count": "2"}, {"grace": -1}])
def test_processes_that_cannot_be_are_refused(options: dict[str, object]) -> None:
    with pytest.raises(WorkerError, match=r"processes cannot run so: (count|grace) must be"):
        Processes("a:b", **{"count": 1, **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "says"),
    [
        ("labkit", "module:factory"),
        (".places:home", "module:factory"),
        ("labkit.no_such:make", "there is no worker labkit.no_such:make"),
        ("labkit.places:no_such", "there is no worker labkit.places:no_such"),
        ("labkit.places:home", "and no worker"),
        ("labkit.work.worker:Worker", "makes no worker: TypeError"),
    ],
)
def test_what_is_no_worker_is_said(target: str, says: str) -> None:
    with pytest.raises(WorkerError, match=says):
        load(target)


# -- labkit run --------------------------------------------------------------------------------------------------------


def labkit_run(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "labkit.cli", "run", *arguments]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell has the commands that it runs in the background ignore SIGINT, and theirs as well.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def test_ctrl_c_ends_labkit_run_with_what_was_done(queue: Queue, folder: Path) -> None:
    queue.send_batch([envelope.detail() for envelope in steps(3)])
    with labkit_run(FACTORY, "--processes", "2") as command:
        until(lambda: len(lines(folder, "recorded")) == 3 and queue.depth().total == 0)
        for process in [command.pid, *(child.pid for child in psutil.Process(command.pid).children())]:
            if os.getpgid(process) == os.getpgid(command.pid):  # what a terminal does
                os.kill(process, signal.SIGINT)
        out, errors = command.communicate(timeout=90)
    assert (command.returncode, out, errors) == (0, "done 3\n", "")


def test_labkit_run_says_a_wrong_name_once() -> None:
    with labkit_run("labkit.no_such:make", "--processes", "3") as command:
        out, errors = command.communicate(timeout=90)
    assert (command.returncode, out) == (1, "")
    assert (
        errors
        == "labkit: there is no worker labkit.no_such:make: ModuleNotFoundError: No module named 'labkit.no_such'.\n"
    )
