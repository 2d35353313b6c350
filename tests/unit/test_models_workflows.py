"""Standard and Express. Golden values: https://aws.amazon.com/step-functions/pricing/, errata 71, 73 and F191."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.facts import facts
from labkit.models._input import ModelError
from labkit.models.chains import Chain
from labkit.models.workflows import (
    Express,
    crossover,
    express_ceiling,
    human_gate,
    poll_events,
    poll_for_human,
    saga,
    standard,
)


def test_aws_example_of_a_month_of_express() -> None:
    """Example on AWS's page: 100 million of 10 s, 50 KB definition, 400 Map steps of 32 KB: 382.97 + 100 USD."""
    one = Express(10, definition_kb=50, data_kb=32, branches=400)
    assert one.billed_mb == 64
    assert one.month(100e6) == pytest.approx(482.97, abs=0.005)


def test_the_tiers_of_a_gb_hour() -> None:
    one = Express(288)  # 64 MB for 288 s are 0.005 GB-hours
    assert one.gb_hours == pytest.approx(0.005)
    assert one.month(200_000) == pytest.approx(1_000 * 0.06 + 0.2)
    assert one.month(1_000_000) == pytest.approx(1_000 * 0.06 + 4_000 * 0.03 + 1)
    assert one.month(1_200_000) == pytest.approx(60 + 120 + 1_000 * 0.01642 + 1.2)
    assert one.month(0) == 0


def test_time_and_memory_are_rounded_up() -> None:
    assert [Express(seconds).billed_seconds for seconds in (0, 0.1, 0.1001, 299.95)] == [0, 0.1, 0.2, 300]
    chunk = int(facts("sfn.express.billing.memory_chunk"))
    assert Express(1, definition_kb=0, data_kb=256, branches=56).billed_mb == chunk  # 14 MB beside AWS's 50 MB
    assert Express(1, definition_kb=1, data_kb=256, branches=56).billed_mb == 2 * chunk


def test_the_vietnamese_price_of_express_and_the_right_one() -> None:
    """Erratum 71: requests, not transitions; and 0.00001667 a GB-second where the guide has 0.00001."""
    one = Express(3600 / 60)  # 60 s at 64 MB are 3.75 GB-seconds
    gb_seconds = one.gb_hours * 3600
    guide = 15 * 1e-6 + gb_seconds * 0.00001
    assert gb_seconds == pytest.approx(3.75)
    assert guide == pytest.approx(52.5e-6)
    assert one.usd == pytest.approx(1e-6 + 3.75 * float(facts("sfn.price.express_gb_s")), rel=1e-3)
    assert one.usd == pytest.approx(63.5e-6, rel=1e-3)


def test_24_seconds_a_transition_are_where_they_cost_the_same() -> None:
    assert crossover(60) == pytest.approx(2.54)
    assert (crossover(240) - crossover(120)) / 120 == pytest.approx(1 / 24)
    assert Express(12).usd < standard(3)
    assert Express(290).usd > standard(12)  # twelve steps of 24 s: Express fits, and is the dearer one


@given(st.floats(0, 300), st.floats(0, 300))
def test_express_costs_more_the_longer_it_takes(a: float, b: float) -> None:
    assert Express(max(a, b)).usd >= Express(min(a, b)).usd
    assert crossover(a) > 0


def test_the_five_minutes() -> None:
    """F191: 12 steps of 30 s are 360 s."""
    steps, each = int(facts("fleet.chain.steps")), float(facts("fleet.chain.step_time"))
    found = express_ceiling(steps, each)
    assert (found.seconds, found.fits) == (facts("fleet.chain.duration"), False)
    assert found.percent == pytest.approx(120)
    assert express_ceiling(10, 30).fits  # just
    assert express_ceiling(5, 30, attempts=2).seconds == 300
    assert express_ceiling(5, 30, attempts=3, backoff=2).seconds == 5 * (90 + 4)
    ceiling = float(facts("sfn.express.max_duration"))
    assert Chain(steps, each).over(ceiling) > 0.7  # and on average it is late, not only in the worst case
    assert Chain(5, each).over(ceiling) < 0.01


def test_a_human_gate_costs_one_transition_or_cannot_be() -> None:
    week = 7 * 86_400
    assert human_gate(week) == human_gate(1) == standard(1) == pytest.approx(0.000025)
    with pytest.raises(ModelError, match="an Express workflow cannot wait for a task token"):
        human_gate(1, kind="EXPRESS")
    assert facts("sfn.express.waits_for_token") == "no"
    with pytest.raises(ModelError, match="kind must be one of STANDARD, EXPRESS; got 'standard'"):
        human_gate(1, kind="standard")
    with pytest.raises(ModelError, match="wait must be from 0"):
        human_gate(400 * 86_400)


def test_asking_again_and_again_costs_thousands_of_transitions() -> None:
    assert poll_for_human(3 * 86_400, every=60) == pytest.approx(standard(12_960))
    assert poll_for_human(59, every=60) == standard(3)


def test_the_loop_that_asks_fills_the_history_on_the_second_day() -> None:
    """Five events for a Task, two for a Choice, two for a Wait: cloudonaut.io counts the same nine on AWS."""
    most, minute = int(facts("sfn.history.max_events")), 60
    assert poll_events(minute, every=minute) == 2 + (5 + 2 + 2)
    assert poll_events(3 * 86_400, every=minute) == 38_882 > most
    fits = max(n for n in range(5_000) if poll_events(n * minute, every=minute) <= most)
    assert 46 < fits / 60 < 47  # hours
    with pytest.raises(ModelError, match="every must be at least 1 s; got 0"):
        poll_events(60, every=0)


def test_transitions_of_a_saga() -> None:
    assert saga(5) == 5
    assert saga(5, failed_at=1) == 1
    assert saga(5, failed_at=5) == 9
    assert saga(5, failed_at=4, retries=2) == 4 + 2 + 3
    with pytest.raises(ModelError, match="failed_at must be a whole number from 1 to 5; got 6"):
        saga(5, failed_at=6)


def test_an_execution_longer_than_express_allows_is_refused() -> None:
    with pytest.raises(ModelError, match="seconds must be from 0 to 300 s; got 301"):
        Express(301)


def test_a_state_carries_no_more_than_256_kb() -> None:
    with pytest.raises(ModelError, match="data_kb must be from 0 to 256 KB; got 257"):
        Express(1, data_kb=257)
