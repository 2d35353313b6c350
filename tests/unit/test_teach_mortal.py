"""Mortal processes and the ledger: deaths where they were ordered, each run counted, and nothing left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from labkit import Lab
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
    end = time.monotonic() + 5
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
    end = time.monotonic() + 5
    while any(map(runs, pids)) and time.monotonic() < end:
        time.sleep(0.02)
    assert len(pids) == 2
    assert not any(map(runs, pids))


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
