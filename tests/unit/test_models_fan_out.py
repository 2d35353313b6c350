"""Distributed Map. Golden values: facts F110 and F111 (AWS docs: Step Functions service quotas, 2026)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.models._input import ModelError
from labkit.models.fan_out import MapRun, OpenRuns


def test_the_dispatch_rate_is_what_takes_the_time() -> None:
    assert MapRun(10_000, 60).seconds == 10_000 / 100 + 60
    assert MapRun(10_000, 5, express=True).seconds == 10_000 / 1_000 + 5
    assert MapRun(0, 60).seconds == 0


def test_long_children_meet_the_concurrency_first() -> None:
    run = MapRun(50_000, 900)
    assert run.rate == pytest.approx(10_000 / 900)
    assert run.open_at_once == pytest.approx(10_000)
    assert MapRun(50_000, 50).open_at_once == 5_000
    assert MapRun(50_000, 50, concurrency=40).rate == pytest.approx(0.8)


def test_a_run_for_each_conversation_is_too_many() -> None:
    runs = OpenRuns(500 / 60, 300)
    assert runs.wanted == pytest.approx(2_500)
    assert runs.rate_at_quota == pytest.approx(1_000 / 300)
    assert runs.waiting_after(3_600) == pytest.approx(18_000)
    assert OpenRuns(1, 300).waiting_after(3_600) == 0
    assert OpenRuns(1, 0).rate_at_quota == float("inf")


@given(st.integers(1, 10**6), st.floats(0.1, 5_000))
def test_no_quota_is_ever_passed(items: int, seconds: float) -> None:
    run = MapRun(items, seconds)
    assert run.rate <= 100 * (1 + 1e-9)
    assert run.open_at_once <= min(items, 10_000) * (1 + 1e-9)
    assert run.seconds >= seconds


def test_bad_input_is_named() -> None:
    with pytest.raises(ModelError, match="child_seconds must be from 0 to 300 s; got 301"):
        MapRun(1, 301, express=True)
    with pytest.raises(ModelError, match="concurrency must be a whole number from 1 to 10000; got 10001"):
        MapRun(1, 1, concurrency=10_001)
