"""Moving to V2 buses. Golden values: facts F077 to F079 (AWS docs: eb-quota, 2026)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.models._input import ModelError
from labkit.models.migration import Migration, RollingWindow

DAY = 86_400


def test_one_at_a_time_on_each_bus() -> None:
    assert Migration(targets=300, create_seconds=30).seconds == 9_000
    assert Migration(targets=300, create_seconds=30, buses=5).seconds == 1_800
    assert Migration(targets=301, create_seconds=30, buses=5).seconds == 1_830
    assert Migration(targets=0, create_seconds=30).seconds == 0


def test_who_asks_for_all_at_once_is_refused_all_but_one() -> None:
    assert Migration(targets=20, create_seconds=30).refused(20) == 19
    assert Migration(targets=20, create_seconds=30, buses=5).refused(20) == 15
    assert Migration(targets=20, create_seconds=30, buses=5).refused(3) == 0


def test_the_25th_correction_waits_for_tomorrow() -> None:
    at = Migration.corrections(30)
    assert at[23] == 0
    assert at[24] == DAY
    hourly = Migration.corrections(26, every=3_600)
    assert hourly[24:] == [DAY, DAY + 3_600]  # one an hour is just what is allowed
    half_hourly = Migration.corrections(25, every=1_800)
    assert half_hourly[23:] == [23 * 1_800, DAY]


@given(st.integers(1, 6), st.floats(1, 100), st.lists(st.floats(0, 60), max_size=40))
def test_never_more_than_allowed_in_any_window(most: int, seconds: float, gaps: list[float]) -> None:
    window = RollingWindow(most, seconds)
    now, taken = 0.0, []
    for gap in gaps:
        now += gap
        taken.append(window.take(now))
        assert taken[-1] >= now
        now = taken[-1]
    assert taken == sorted(taken)
    for first, last in zip(taken, taken[most:], strict=False):
        assert last - first >= seconds * (1 - 1e-9)
    for index, at in enumerate(taken[:most]):
        assert at == pytest.approx(sum(gaps[: index + 1]))  # the first ones never wait


def test_bad_input_is_named() -> None:
    with pytest.raises(ModelError, match="buses must be at most 5 until AWS raises the quota; got 6"):
        Migration(1, 1, buses=6)
    window = RollingWindow()
    window.take(10)
    with pytest.raises(ModelError, match="now must be at least 10 s; got 5"):
        window.take(5)
