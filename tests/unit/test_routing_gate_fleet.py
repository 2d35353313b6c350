"""The gate among threads and processes that die and freeze; and what it is for: a fallback that does not fall over."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from labkit import Lab
from labkit.routing.gate import Gate, GateFull

WAIT = 60.0  # seconds: an upper bound, not what is expected


class Inside:
    """Counts who is inside by itself, and knows nothing of gates."""

    def __init__(self) -> None:
        self.now = self.peak = self.came = 0
        self._guard = threading.Lock()

    @contextmanager
    def __call__(self) -> Iterator[int]:
        with self._guard:
            self.now, self.came = self.now + 1, self.came + 1
            self.peak = max(self.peak, self.now)
            now = self.now
        try:
            yield now
        finally:
            with self._guard:
                self.now -= 1


def test_thirty_two_threads_and_a_cap_of_four(lab: Lab) -> None:
    gate, inside = Gate.create(lab, "overflow", cap=4), Inside()
    fences: list[int] = []

    def work(_: int) -> None:
        with gate.permit(within=WAIT) as permit, inside():
            fences.append(permit.fence)
            time.sleep(0.01)

    with ThreadPoolExecutor(32) as pool:
        list(pool.map(work, range(32)))
    assert (inside.came, inside.peak <= 4) == (32, True)
    assert len(set(fences)) == 32
    state = gate.look()
    assert (state.permits, state.waiting, state.alive) == ({}, {}, {})


# -- processes ---------------------------------------------------------------------------------------------------------

OPEN = """
import os, sys, threading, time
from labkit import targets
from labkit.routing.gate import Gate, PermitLost

client = targets.connect().client("dynamodb", os.environ["GATE_ACCOUNT"])
gate = Gate(client, os.environ["GATE_TABLE"], "overflow", lease=float(os.environ["GATE_LEASE"]), skew=0.2)
"""

MANY = """
def work():
    for _ in range(5):
        with gate.permit(within=60) as permit:
            came = time.monotonic_ns()
            time.sleep(0.02)
            line = f"{came} {time.monotonic_ns()} {permit.fence}\\n"
            os.write(log, line.encode())

log = os.open(os.environ["GATE_LOG"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
crew = [threading.Thread(target=work) for _ in range(4)]
for each in crew: each.start()
for each in crew: each.join()
"""

HOLD = """
permit = gate.permit(within=60)
print(permit.fence, permit.until, flush=True)
sys.stdin.readline()
for move in (permit.check, permit.renew):
    try:
        move()
        print("kept", flush=True)
    except PermitLost as error:
        print(error, flush=True)
print(permit.release(), flush=True)
"""


def process(lab: Lab, script: str, *, lease: float = 30.0, log: Path | None = None) -> subprocess.Popen[str]:
    environment = {
        **os.environ,
        "GATE_ACCOUNT": lab.account,
        "GATE_TABLE": lab.resource_name("gates"),
        "GATE_LEASE": str(lease),
        "GATE_LOG": str(log),
    }
    return subprocess.Popen(
        [sys.executable, "-c", OPEN + script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    )


def line(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


@pytest.fixture
def children() -> Iterator[list[subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []
    yield started
    for child in started:
        child.kill()
        child.communicate(timeout=60)


def test_two_processes_never_have_more_than_the_cap(
    lab: Lab, children: list[subprocess.Popen[str]], tmp_path: Path
) -> None:
    gate, log = Gate.create(lab, "overflow", cap=3), tmp_path / "log"
    children += [process(lab, MANY, log=log) for _ in range(2)]
    assert [child.wait(WAIT) for child in children] == [0, 0]
    rows = [tuple(map(int, row.split())) for row in log.read_text().splitlines()]
    # One clock for all processes of a machine: who comes counts after who goes at the same moment.
    moves = sorted([(came, 1) for came, _, _ in rows] + [(went, -1) for _, went, _ in rows])
    inside = peak = 0
    for _, move in moves:
        inside += move
        peak = max(peak, inside)
    assert (len(rows), peak <= 3) == (40, True)
    assert len({fence for _, _, fence in rows}) == 40
    assert gate.look().taken == 0


def test_a_holder_that_is_killed_loses_its_permit_with_its_lease(
    lab: Lab, children: list[subprocess.Popen[str]]
) -> None:
    ahead = 0.0  # seconds: a minute of the lease is not waited for, its last second is

    def clock() -> float:
        return time.time() + ahead

    gate = Gate.create(lab, "overflow", cap=1, skew=0.2, clock=clock)
    children.append(holder := process(lab, HOLD, lease=60.0))
    fence, until = line(holder).split()
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait(60)
    with pytest.raises(GateFull) as full:
        gate.permit()
    assert full.value.next_end == float(until)
    ahead = max(0.0, float(until) - 1.0 - time.time())
    permit = gate.permit(within=WAIT)
    assert clock() > float(until) + 0.2
    assert permit.fence > int(fence)
    assert permit.release()


def test_a_holder_that_was_frozen_learns_that_it_was_replaced(lab: Lab, children: list[subprocess.Popen[str]]) -> None:
    gate = Gate.create(lab, "overflow", cap=1, skew=0.2)
    children.append(holder := process(lab, HOLD, lease=2.0))
    fence = int(line(holder).split()[0])
    os.kill(holder.pid, signal.SIGSTOP)
    permit = gate.permit(within=WAIT)
    assert permit.fence > fence
    os.kill(holder.pid, signal.SIGCONT)
    holder.stdin.write("\n")  # type: ignore[union-attr]
    holder.stdin.flush()  # type: ignore[union-attr]
    assert line(holder) == f"permit {fence} of gate overflow is lost: its lease has run out."
    assert line(holder) == f"permit {fence} of gate overflow is lost: its lease had run out and it was taken over."
    assert line(holder) == "False"
    assert set(gate.look().permits) == {permit.id}  # the one who is in was not put out
    assert permit.release()


# -- a rate-limited primary does not become an outage of the fallback --------------------------------------------------

WORKERS, CAPACITY = 24, 4


class RateLimited(Exception):
    """429: the primary has no quota left."""


class Overloaded(Exception):
    """503: more calls than the overflow group can take."""


class Overflow:
    """A provider that can take ``capacity`` calls at once and refuses each one above. ``meet``: calls go on when all
    have come, so that how many are in at once is no matter of luck."""

    def __init__(self, capacity: int, meet: threading.Barrier | None = None) -> None:
        self.capacity, self.meet, self.inside = capacity, meet, Inside()

    def complete(self) -> str:
        with self.inside() as now:
            if self.meet is not None:
                self.meet.wait(WAIT)
            else:
                time.sleep(0.02)
            if now > self.capacity:
                raise Overloaded("503")
            return "answer"


def fleet(overflow: Overflow, gate: Gate | None, within: float = WAIT) -> Counter[str]:
    """Every worker asks the primary, is refused, and turns to the overflow group: what each of them comes to."""

    def primary() -> str:
        raise RateLimited("429")

    def fall_back() -> str:
        if gate is None:
            return overflow.complete()
        with gate.permit(within=within):
            return overflow.complete()

    def work(_: int) -> str:
        try:
            return primary()
        except RateLimited:
            try:
                return fall_back()
            except (Overloaded, GateFull) as error:
                return type(error).__name__

    with ThreadPoolExecutor(WORKERS) as pool:
        return Counter(pool.map(work, range(WORKERS)))


def test_without_a_gate_the_whole_fleet_is_at_the_overflow_group_at_once() -> None:
    overflow = Overflow(CAPACITY, threading.Barrier(WORKERS))
    assert fleet(overflow, None) == {"answer": CAPACITY, "Overloaded": WORKERS - CAPACITY}
    assert overflow.inside.peak == WORKERS


def test_with_a_gate_the_overflow_group_never_sees_more_than_it_can_take(lab: Lab) -> None:
    overflow = Overflow(CAPACITY)
    assert fleet(overflow, Gate.create(lab, "overflow", cap=CAPACITY)) == {"answer": WORKERS}
    assert overflow.inside.peak <= CAPACITY


def test_who_has_no_time_to_wait_goes_back_to_the_queue_and_not_to_the_provider(lab: Lab) -> None:
    gate, overflow = Gate.create(lab, "overflow", cap=CAPACITY), Overflow(CAPACITY)
    held: list[Any] = [gate.permit() for _ in range(CAPACITY)]  # long calls of others
    assert fleet(overflow, gate, within=0.2) == {"GateFull": WORKERS}
    assert (overflow.inside.came, len(held), gate.look().waiting) == (0, CAPACITY, {})
