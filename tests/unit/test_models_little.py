"""Little's law. Golden values: facts F187 to F189 (125 a second for 90 s; erratum 42: 18.75 %, not a quarter)."""

from __future__ import annotations

import pytest

from labkit.facts import facts
from labkit.models._input import ModelError
from labkit.models.little import Load, in_flight


def test_the_worked_example() -> None:
    load = Load(rate=125, seconds=90)
    assert load.in_flight == in_flight(125, 90) == 11_250  # F187
    assert load.percent == pytest.approx(9.375)  # F188


def test_doubling_one_is_not_a_quarter_doubling_both_is_more() -> None:
    load = Load(rate=125, seconds=90)
    assert load.scaled(rate=2).percent == load.scaled(seconds=2).percent == pytest.approx(18.75)  # F189
    assert load.scaled(rate=2, seconds=2).percent == pytest.approx(37.5)


def test_room_and_rate_at_the_cap() -> None:
    load = Load(rate=125, seconds=90)
    assert load.room * load.in_flight == pytest.approx(facts("sqs.inflight.cap"))
    assert load.rate_at_cap * 90 == pytest.approx(facts("sqs.inflight.cap"))
    assert Load(0, 90).room == Load(1, 0).rate_at_cap == float("inf")
    assert Load(10, 10, cap=50).percent == 200


def test_bad_input_is_named() -> None:
    with pytest.raises(ModelError, match=r"rate must be at least 0 messages/s; got -1"):
        Load(-1, 3)
