"""The retry schedule and its timer, with a clock of our own."""

from __future__ import annotations

import random
import threading
import time
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parity.events_retry import (
    AGE_EXHAUSTED,
    ATTEMPTS_EXHAUSTED,
    Backoff,
    RetryPolicy,
    Timer,
    next_step,
)

POLICIES = st.builds(RetryPolicy, st.integers(0, 185), st.integers(60, 86_400))
CHANCES = st.floats(0, 1, exclude_max=True)


def schedule(policy: RetryPolicy, draw: random.Random) -> tuple[list[float], str]:
    """The waits of a delivery that never succeeds, and which limit ended it."""
    waits: list[float] = []
    while True:
        step = next_step(policy, Backoff(), retries=len(waits), age=sum(waits), chance=draw.random())
        if step.exhausted:
            return waits, step.exhausted
        waits.append(step.wait)


@given(POLICIES, st.randoms(use_true_random=False))
def test_a_schedule_keeps_both_limits_and_ends(policy: RetryPolicy, draw: random.Random) -> None:
    waits, exhausted = schedule(policy, draw)
    assert len(waits) <= policy.retries
    assert sum(waits) <= policy.age
    assert (exhausted == ATTEMPTS_EXHAUSTED) == (len(waits) == policy.retries)


@given(POLICIES, st.integers(0, 200), st.floats(0, 200_000), CHANCES)
def test_a_step_never_leads_beyond_the_age(policy: RetryPolicy, retries: int, age: float, chance: float) -> None:
    step = next_step(policy, Backoff(), retries=retries, age=age, chance=chance)
    assert step.wait >= 0
    assert age + step.wait <= max(age, policy.age) + 1e-6
    if step.exhausted is None:
        assert step.wait > 0
        assert retries < policy.retries


@given(st.integers(1, 10_000), CHANCES)
def test_waits_grow_up_to_the_cap_and_jitter_takes_at_most_half(retry: int, chance: float) -> None:
    backoff = Backoff()
    assert backoff.ceiling(retry) <= backoff.ceiling(retry + 1) <= backoff.cap
    assert backoff.ceiling(retry) / 2 <= backoff(retry, chance) <= backoff.ceiling(retry)
    assert backoff(retry, 0.2) < backoff(retry, 0.9)


def test_the_default_policy_takes_most_of_a_day_and_ends_by_its_attempts() -> None:
    runs = [schedule(RetryPolicy(), random.Random(seed)) for seed in range(200)]
    assert {exhausted for _, exhausted in runs} == {ATTEMPTS_EXHAUSTED}
    assert {len(waits) for waits, _ in runs} == {185}
    assert 20 * 3600 < mean(sum(waits) for waits, _ in runs) < 24 * 3600


def test_no_retries_and_a_short_age() -> None:
    assert schedule(RetryPolicy(retries=0), random.Random(1)) == ([], ATTEMPTS_EXHAUSTED)
    waits, exhausted = schedule(RetryPolicy(age=60), random.Random(1))
    assert exhausted == AGE_EXHAUSTED
    assert 5 <= len(waits) <= 8


@pytest.mark.parametrize(
    ("target", "policy"),
    [
        ({}, RetryPolicy(185, 86_400)),
        ({"RetryPolicy": {}}, RetryPolicy(185, 86_400)),
        ({"RetryPolicy": {"MaximumRetryAttempts": 0}}, RetryPolicy(0, 86_400)),
        ({"RetryPolicy": {"MaximumEventAgeInSeconds": 60}}, RetryPolicy(185, 60)),
    ],
)
def test_policy_of_a_target(target: dict, policy: RetryPolicy) -> None:
    assert RetryPolicy.of(target) == policy


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@given(st.lists(st.integers(0, 20), max_size=30), st.lists(st.integers(1, 5), max_size=12))
def test_the_timer_runs_what_is_due_in_order_of_time(dues: list[int], steps: list[int]) -> None:
    clock = Clock()
    timer = Timer(clock, threaded=False)
    ran: list[tuple[int, int]] = []
    for number, due in enumerate(dues):
        timer.at(due, lambda due=due, number=number: ran.append((due, number)))
    for step in steps:
        clock.now += step
        timer.run_due()
        assert ran == sorted((due, number) for number, due in enumerate(dues) if due <= clock.now)
    assert len(timer) == len(dues) - len(ran)


def test_a_job_may_plan_the_next_one_and_an_error_ends_nothing() -> None:
    clock = Clock()
    timer = Timer(clock, threaded=False)
    ran: list[str] = []

    def broken() -> None:
        timer.at(2, lambda: ran.append("later"))
        raise RuntimeError("broken")

    timer.at(1, broken)
    timer.at(1, lambda: ran.append("same time"))
    clock.now = 1
    timer.run_due()
    assert ran == ["same time"]
    assert timer.next_due() == 2
    clock.now = 2
    timer.run_due()
    assert ran == ["same time", "later"]
    assert timer.next_due() is None


def test_clear_forgets_what_is_pending() -> None:
    timer = Timer(Clock(), threaded=False)
    timer.at(0, lambda: pytest.fail("was to be forgotten"))
    timer.clear()
    timer.run_due()
    assert len(timer) == 0


def test_the_thread_wakes_for_an_earlier_job() -> None:
    timer = Timer()
    done = threading.Event()
    timer.at(timer.clock() + 60, lambda: None)
    timer.at(timer.clock() + 0.01, done.set)
    assert done.wait(30)
    timer.clear()


def test_the_thread_goes_on_after_a_wait_that_is_too_long(caplog: pytest.LogCaptureFixture) -> None:
    timer = Timer()
    done = threading.Event()
    timer.at(float("inf"), lambda: None)
    time.sleep(0.05)
    timer.at(timer.clock() + 0.05, done.set)
    assert done.wait(30)
    assert caplog.text == ""
    timer.clear()


def test_the_thread_goes_on_after_an_error_of_its_own(caplog: pytest.LogCaptureFixture) -> None:
    broken = threading.Event()

    def clock() -> float:
        if not broken.is_set():
            broken.set()
            raise RuntimeError("broken")
        return 1.0

    timer = Timer(clock)
    done = threading.Event()
    timer.at(0, done.set)
    assert done.wait(30)
    assert "broken" in caplog.text
