"""The token bucket: bursts, the steady rate, waiting in turn, and many threads at once."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.models._input import ModelError
from labkit.models.bucket import Bucket


class Clock:
    """A clock that only moves when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def bucket(self, size: float, rate: float) -> Bucket:
        return Bucket(size, rate, clock=self, sleep=self.sleep)


def test_a_burst_passes_at_once_and_then_the_rate_holds() -> None:
    clock = Clock()
    bucket = clock.bucket(3, 2)
    assert [bucket.take() for _ in range(6)] == [0, 0, 0, 0.5, 0.5, 0.5]
    assert clock.now == 1001.5
    assert bucket.tokens == pytest.approx(0)


def test_a_pause_fills_it_again_and_never_beyond_its_size() -> None:
    clock = Clock()
    bucket = clock.bucket(3, 2)
    bucket.take(3)
    clock.now += 1
    assert bucket.tokens == pytest.approx(2)
    clock.now += 3600
    assert bucket.tokens == 3
    assert [bucket.take() for _ in range(4)][-1] == 0.5


def test_who_comes_first_is_served_first() -> None:
    """Without a sleep nobody moves on: each call is told the moment of its own token, one after the other."""
    bucket = Bucket(1, 4, clock=lambda: 0.0, sleep=lambda seconds: None)
    assert [bucket.take() for _ in range(4)] == [0, 0.25, 0.5, 0.75]
    assert bucket.tokens == -3


def test_a_wait_that_is_too_long_takes_nothing() -> None:
    clock = Clock()
    bucket = clock.bucket(1, 2)
    bucket.take()
    with pytest.raises(ModelError, match=r"within is 0.4 s, and 1 tokens are there in 0.5 s"):
        bucket.take(within=0.4)
    assert bucket.tokens == 0
    assert clock.slept == []
    assert bucket.take(within=0.5) == 0.5


def test_a_clock_that_is_set_back_makes_nobody_wait_for_it() -> None:
    clock = Clock()
    bucket = clock.bucket(2, 1)
    assert [bucket.take() for _ in range(3)] == [0, 0, 1]
    clock.now -= 3600
    assert bucket.tokens == -1  # the second that passed since the last look is not seen
    assert bucket.take() == 2
    clock.now += 2
    assert bucket.tokens == 2


@pytest.mark.parametrize("within", [float("nan"), -1, "1"])
def test_a_bound_is_a_number_of_seconds(within: object) -> None:
    bucket = Clock().bucket(1, 1)
    with pytest.raises(ModelError, match="within must be at least 0 s"):
        bucket.take(within=within)  # type: ignore[arg-type]
    assert bucket.tokens == 1


def test_again_is_a_full_one_of_the_same_kind() -> None:
    clock = Clock()
    first = clock.bucket(2, 1)
    first.take(2)
    second = first.again()
    assert (second.take(2), first.tokens, (second.size, second.rate)) == (0, 0, (2, 1))


@given(
    size=st.integers(min_value=1, max_value=20),
    rate=st.floats(min_value=0.5, max_value=100),
    pauses=st.lists(st.floats(min_value=0, max_value=5), min_size=1, max_size=60),
)
def test_no_stretch_of_time_ever_holds_more_calls_than_the_quota_allows(
    size: int, rate: float, pauses: list[float]
) -> None:
    clock = Clock()
    bucket = clock.bucket(size, rate)
    calls: list[float] = []
    for pause in pauses:
        clock.now += pause
        bucket.take()
        calls.append(clock.now)
    for first in range(len(calls)):
        for last in range(first, len(calls)):
            # The service's own bucket: full at best when the stretch begins, refilled until it ends.
            assert last - first + 1 <= size + rate * (calls[last] - calls[first]) + 1e-6


def test_threads_share_one_without_a_token_too_many() -> None:
    """Each of 400 calls has a token of its own, whatever the threads' order: no two get the same moment."""
    waits: list[float] = []
    bucket = Bucket(50, 10, clock=lambda: 0.0, sleep=lambda seconds: None)

    def caller() -> None:
        for _ in range(50):
            waits.append(bucket.take())

    threads = [threading.Thread(target=caller) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert sorted(waits) == pytest.approx([0.0] * 50 + [place / 10 for place in range(1, 351)])


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Bucket(0, 1), "size must be at least 1 tokens; got 0"),
        (lambda: Bucket(1, 0), "rate must be more than 0"),
        (lambda: Bucket(1, -1), "rate must be at least 0"),
        (lambda: Bucket(5, 1).take(6), "count must be from 0 to 5 tokens; got 6"),
    ],
)
def test_what_cannot_be_is_named(make: object, says: str) -> None:
    with pytest.raises(ModelError, match=says):
        make()  # type: ignore[operator]
