"""Mortal processes and the ledger: deaths where they were ordered, each run counted, and nothing left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest

from labkit import Lab
from labkit.models._input import ModelError
from labkit.teach.ledger import Ledger, paid
from labkit.teach.mortal import End, Mortal, MortalError

STEPS = """
from labkit.teach.ledger import paid
mind = []
def main(path, steps):
    for step in steps:
        mind.append(paid(path, step))
    return mind
"""
ECHOES = "def main(it): return it"
SLEEPS = """
import time
def main(seconds):
    time.sleep(seconds)
"""


@pytest.fixture(scope="module")
def mortal() -> Iterator[Mortal]:
    with Mortal(["decimal"]) as mortal:
        yield mortal
    mortal.close()


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    ledger = Ledger()
    yield ledger
    ledger.close()
    ledger.close()
    assert not Path(ledger.path).exists()


def until(what: Callable[[], object]) -> None:
    end = time.monotonic() + 30
    while not what():
        assert time.monotonic() < end
        time.sleep(0.01)


def runs(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_step_is_counted_and_dies_once_where_it_was_told_to(mortal: Mortal, ledger: Ledger) -> None:
    ledger.cut("draft")
    given = {"path": ledger.path, "steps": ["plan", "draft", "check"]}
    assert mortal.run(STEPS, **given) == End(killed=True)
    assert ledger.lines() == ["plan", "draft"]
    assert mortal.run(STEPS, **given) == End(["plan done", "draft done", "check done"])  # and a mind of its own
    assert ledger.runs("plan", "draft", "check", "other") == [2, 2, 1, 0]


def test_a_step_of_this_process_is_counted_too(ledger: Ledger) -> None:
    assert paid(ledger.path, "plan") == "plan done"
    assert ledger.runs("plan") == [1]


def test_a_run_is_killed_from_outside(mortal: Mortal) -> None:
    run = mortal.start(SLEEPS, seconds=60)
    with pytest.raises(MortalError, match="one run at a time"):
        mortal.start(SLEEPS, seconds=60)
    run.kill()
    assert run.wait() == run.wait() == End(killed=True)
    run.kill()  # harmless
    assert mortal.run(SLEEPS, seconds=0) == End()


def test_a_run_that_takes_too_long_is_killed_and_the_next_one_goes_on(mortal: Mortal) -> None:
    with pytest.raises(MortalError, match=r"not over within 0\.1 s, and was killed"):
        mortal.run(SLEEPS, within=0.1, seconds=60)
    assert mortal.run(SLEEPS, seconds=0) == End()


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("def main(: pass", "SyntaxError"),
        ("x = 1", "KeyError: 'main'"),
        ("def main(): raise ValueError('no tea')", "ValueError: no tea"),
        ("def main(): return {1}", "TypeError"),
        ("import os\ndef main(): os._exit(3)", "it ended with code 3 and said nothing"),
        ("import os\ndef main(): os.kill(os.getpid(), 15)", "signal 15 ended it"),
    ],
)
def test_a_run_that_fails_says_so(mortal: Mortal, source: str, says: str) -> None:
    with pytest.raises(MortalError, match=says):
        mortal.run(source)


def test_code_is_read_as_a_file_of_its_own_would_be(mortal: Mortal) -> None:
    source = """
from typing import Annotated, TypedDict, get_type_hints
class State(TypedDict):
    mind: Annotated[list[str], len]
def main(): return [type(State.__annotations__["mind"]).__name__, sorted(get_type_hints(State))]
"""
    assert mortal.run(source) == End(["_AnnotatedAlias", ["mind"]])


def test_a_module_that_is_not_there_is_an_error_at_the_first_run() -> None:
    with Mortal(["no_such_module"]) as mortal, pytest.raises(MortalError, match="cannot import"):
        mortal.run(SLEEPS, seconds=0)


def test_closing_ends_what_runs() -> None:
    with Mortal() as mortal:
        run = mortal.start(SLEEPS, seconds=60)
    end = time.monotonic() + 30
    while runs(run.pid) and time.monotonic() < end:
        time.sleep(0.01)
    assert not runs(run.pid)


def test_they_end_with_the_process_that_owns_them() -> None:
    script = f"""
import os
from labkit.teach.mortal import Mortal
mortal = Mortal()
print(mortal._parent.pid, mortal.start({SLEEPS!r}, seconds=60).pid, flush=True)
os._exit(1)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ})
    pids = list(map(int, done.stdout.split()))
    end = time.monotonic() + 30
    while any(map(runs, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    assert len(pids) == 2
    assert not any(map(runs, pids))


def test_a_run_that_has_ended_is_not_killed_whoever_has_its_number_now(mortal: Mortal) -> None:
    run = mortal.start(SLEEPS, seconds=0)
    until(lambda: not psutil.pid_exists(run.pid))
    run.kill()
    assert run.wait() == End()
    assert mortal.run(SLEEPS, seconds=0) == End(), "and the next one is not killed in its place"


def test_a_parent_that_came_too_late_does_not_answer_for_another_run() -> None:
    with Mortal(["sqlite3"]) as mortal:
        os.kill(mortal._parent.pid, signal.SIGSTOP)
        with pytest.raises(MortalError, match=r"did not answer within 0\.1 s, and was ended"):
            mortal.start(ECHOES, within=0.1, it="first")
        assert mortal.run(ECHOES, it="second") == End("second")
        assert mortal.run(ECHOES, it="third") == End("third")


@pytest.mark.parametrize("pause", [0.0, 0.3])  # while it begins, and while it is waited for
def test_a_run_that_is_interrupted_is_ended_and_the_next_one_begins(mortal: Mortal, pause: float) -> None:
    assert mortal.run(ECHOES, it="imported") == End("imported")

    def interrupt() -> None:
        until(lambda: mortal._running is not None)  # from here to its end the main thread is inside of the run
        time.sleep(pause)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        mortal.run(SLEEPS, within=50, seconds=60)
    thread.join()
    assert mortal.run(ECHOES, it="next") == End("next")


def test_a_parent_that_was_killed_is_replaced(mortal: Mortal) -> None:
    run = mortal.start(SLEEPS, seconds=60)
    mortal._parent.kill()
    with pytest.raises(MortalError, match="the parent has ended"):
        run.wait()
    with pytest.raises(MortalError, match="ended with its parent"):
        run.wait()
    run.kill()  # harmless
    assert mortal.run(ECHOES, it="next") == End("next")
    until(lambda: not runs(run.pid))


def test_of_threads_that_start_at_once_one_does(mortal: Mortal, tmp_path: Path) -> None:
    waits = """
import os, time
def main(it, path):
    while not os.path.exists(path):
        time.sleep(0.01)
    return it
"""
    refused: list[MortalError] = []

    def start(number: int) -> str:
        try:
            return str(mortal.run(waits, within=60, it=number, path=str(tmp_path / "over")).returned)
        except MortalError as error:
            refused.append(error)
            if len(refused) == 3:
                (tmp_path / "over").touch()
            return str(error)

    with ThreadPoolExecutor(4) as threads:
        found = list(threads.map(start, range(4)))
    assert sorted(each.partition(":")[0] for each in found)[1:] == ["one run at a time"] * 3
    assert mortal.run(ECHOES, it="next") == End("next")


@pytest.mark.parametrize("within", [-1, 0, float("nan"), "soon"])
def test_a_wait_that_cannot_be_starts_nothing(mortal: Mortal, within: Any) -> None:
    with pytest.raises(ModelError, match="within must be at least"):
        mortal.run(SLEEPS, within=within, seconds=60)
    with pytest.raises(MortalError, match="what JSON can hold"):
        mortal.run(ECHOES, it={1})
    assert mortal.run(SLEEPS, seconds=0) == End()


def test_who_is_killed_leaves_no_folder(tmp_path: Path) -> None:
    script = f"""
import os
from labkit.teach.ledger import Ledger
from labkit.teach.mortal import Mortal
mortal, ledger = Mortal(), Ledger()
mortal.run({ECHOES!r}, it=1)
os.kill(os.getpid(), 9)
"""
    home, there = tmp_path / "home", tmp_path / "tmp"
    there.mkdir()
    environment = {**os.environ, "LABKIT_HOME": str(home), "TMPDIR": str(there)}
    subprocess.run([sys.executable, "-c", script], env=environment, check=False)
    until(lambda: not list((home / "mortal").iterdir()))
    assert not list(there.iterdir())
    script = "from labkit.teach.ledger import Ledger; Ledger().close()"
    subprocess.run([sys.executable, "-c", script], env=environment, check=True)
    assert not list((home / "ledgers").iterdir()), "the next one removes what a dead one had"


@pytest.mark.parametrize("step", ["", "two words", "a/b", "..\\b", "x" * 300, "line\n", "\ud800", None])
def test_a_step_whose_name_is_no_word_is_refused(ledger: Ledger, step: Any) -> None:
    with pytest.raises(ValueError, match="a step's name"):
        ledger.cut(step)
    with pytest.raises(ValueError, match="a step's name"):
        paid(ledger.path, step)
    assert ledger.lines() == []


def test_in_a_lab_they_talk_to_what_the_lab_talks_to_and_end_with_it(lab: Lab) -> None:
    mortal, ledger = Mortal.create(lab, ["boto3"]), Ledger.create(lab)
    source = "import boto3\ndef main(): return boto3.client('sts').get_caller_identity()['Account']"
    assert mortal.run(source) == End(lab.account)
    source = "import os\ndef main(): return os.environ['LANGSMITH_TRACING']"
    assert mortal.run(source) == End("false")
    lab.close(quiet=True)
    assert not Path(ledger.path).exists()
    with pytest.raises(MortalError, match="it was closed"):
        mortal.run(source)
