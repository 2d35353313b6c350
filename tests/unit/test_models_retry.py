"""Retry schedules. Golden values: a Retry with IntervalSeconds 2 and BackoffRate 2 waits 2, 4, 8 s (erratum 77)."""

from __future__ import annotations

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.models._input import ModelError
from labkit.models.retry import Exponential, Fixed, Jitter, MaxAttempts, MaxElapsed, call


def test_exponential_doubles_and_is_capped() -> None:
    assert list(Exponential(base=2).delays(MaxAttempts(4))) == [2, 4, 8]
    assert list(islice(Exponential(base=1, factor=3, cap=10).delays(), 4)) == [1, 3, 9, 10]
    assert Exponential(base=1, cap=60)(5000) == 60  # 2**4999 does not fit a float


def test_stops_join_and_count_what_attempts_take() -> None:
    assert list(Fixed(10).delays(MaxElapsed(35))) == [10, 10, 10]
    assert list(Fixed(10).delays(MaxElapsed(35), attempt_seconds=10)) == [10]
    assert list(Fixed(10).delays(MaxAttempts(2) | MaxElapsed(35))) == [10]
    assert list(Fixed(1).delays(MaxAttempts(1))) == []


@given(st.integers(1, 40), st.sampled_from(["full", "equal"]), st.integers())
def test_jitter_stays_in_range_and_repeats_with_its_seed(failure: int, kind: str, seed: int) -> None:
    bare = Exponential(base=1, cap=100)
    wait = Jitter(bare, kind, seed)  # type: ignore[arg-type]
    low = bare(failure) / 2 if kind == "equal" else 0
    assert low <= wait(failure) <= bare(failure)
    assert wait(failure) == Jitter(bare, kind, seed)(failure)  # type: ignore[arg-type]


def test_seeds_spread_clients_apart() -> None:
    assert len({Jitter(Fixed(10), seed=client)(1) for client in range(50)}) == 50


class FakeClock:
    def __init__(self) -> None:
        self.now, self.slept = 0.0, list[float]()

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.slept.append(seconds)


def test_call_retries_until_it_works_or_stops() -> None:
    clock, tries = FakeClock(), iter([KeyError("a"), KeyError("b"), None])

    def flaky() -> str:
        error = next(tries)
        if error:
            raise error
        return "done"

    wait = Exponential(base=1)
    assert call(flaky, wait=wait, stop=MaxAttempts(5), retry_on=KeyError, sleep=clock.sleep, clock=clock) == "done"
    assert clock.slept == [1, 2]

    def broken() -> None:
        raise KeyError("always")

    with pytest.raises(KeyError):
        call(broken, wait=wait, stop=MaxElapsed(20), retry_on=KeyError, sleep=clock.sleep, clock=clock)
    assert clock.slept == [1, 2, 1, 2, 4, 8]  # 15 s; the next wait of 16 would pass 20


def test_other_errors_pass_at_once() -> None:
    clock = FakeClock()
    with pytest.raises(ZeroDivisionError):
        call(lambda: 1 // 0, wait=Fixed(1), stop=MaxAttempts(9), retry_on=KeyError, sleep=clock.sleep, clock=clock)
    assert clock.slept == []


@pytest.mark.parametrize("make", [lambda: Fixed(-1), lambda: Exponential(factor=0.5), lambda: MaxAttempts(0)])
def test_bad_input_is_named(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ModelError, match="must be"):
        make()
