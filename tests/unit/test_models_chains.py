"""Chains. Golden values: fact F194 (five agents, four dependencies at 99.9 %: 0.98019); closed form vs simulation."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.facts import facts
from labkit.models._input import ModelError
from labkit.models.chains import (
    Chain,
    amplification,
    availability,
    bill_of_one_failure,
    downtime,
    expected_bill,
    fleet_availability,
    simulated_bill,
)


def test_availability_of_the_fleet_is_fact_f194() -> None:
    each = facts("availability.dependency")
    assert isinstance(each, float)
    assert fleet_availability(5, 4, each) == pytest.approx(facts("availability.chain"), abs=5e-6)
    assert availability(*[each] * 4) == pytest.approx(facts("availability.agent"), abs=5e-6)
    assert fleet_availability(5, 4, each) < each
    assert downtime(0.999) == pytest.approx(43.2 * 60)  # 30 days


def test_one_step_of_shape_one_is_an_exponential() -> None:
    assert Chain(1, 10, shape=1).over(10) == pytest.approx(math.exp(-1))
    assert Chain(1, 10, shape=1).percentile(50) == pytest.approx(10 * math.log(2))


@pytest.mark.parametrize(("steps", "mean", "shape"), [(1, 10, 1), (6, 5, 4), (12, 6, 2), (12, 2, 50)])
def test_closed_form_and_simulation_agree_on_the_ceiling(steps: int, mean: float, shape: int) -> None:
    chain = Chain(steps, mean, shape)
    ceiling = float(facts("apigateway.rest.timeout"))
    times = chain.times(40_000, seed=1)
    assert times.shape == (40_000,)
    assert (times > ceiling).mean() == pytest.approx(chain.over(ceiling), abs=0.01)
    assert times.mean() == pytest.approx(chain.total_mean, rel=0.02)
    assert (times <= chain.percentile(95)).mean() == pytest.approx(0.95, abs=0.01)


@given(st.integers(1, 30), st.floats(0.1, 60), st.integers(1, 20), st.floats(0, 1000))
def test_the_share_over_a_ceiling_is_a_probability_that_falls(steps: int, mean: float, shape: int, c: float) -> None:
    chain = Chain(steps, mean, shape)
    assert 0 <= chain.over(c + 1) <= chain.over(c) + 1e-12 <= 1 + 1e-12


def test_one_failure_at_step_9_of_12() -> None:
    assert bill_of_one_failure(12, 9).restart == 21  # nine paid, then twelve
    assert bill_of_one_failure(12, 9).resume == 13  # the failed one twice
    with pytest.raises(ModelError, match="from 1 to 12"):
        bill_of_one_failure(12, 13)


@settings(max_examples=15, deadline=None)
@given(st.integers(1, 15), st.floats(0, 0.2), st.integers(0, 1000))
def test_closed_form_and_simulation_agree_on_the_bill(steps: int, failure: float, seed: int) -> None:
    closed, simulated = expected_bill(steps, failure), simulated_bill(steps, failure, runs=20_000, seed=seed)
    assert simulated.restart == pytest.approx(closed.restart, rel=0.06)
    assert simulated.resume == pytest.approx(closed.resume, rel=0.03)
    assert closed.ratio >= 1 - 1e-12


def test_a_chain_that_never_fails_pays_each_step_once() -> None:
    assert expected_bill(12, 0).restart == expected_bill(12, 0).resume == 12
    assert expected_bill(12, 1e-12).restart == pytest.approx(12)


def test_a_timeout_that_retries_pays_whole_chains() -> None:
    chain = Chain(12, 6, price=0.01)
    never = chain.with_timeout(1e-6, attempts=3)
    assert (never.timeout, never.answered, never.attempts, never.paid_steps) == pytest.approx((1, 0, 3, 36))
    once = chain.with_timeout(10_000, attempts=3)
    assert (once.answered, once.attempts, once.cost) == pytest.approx((1, 1, 0.12))
    assert chain.with_timeout(29, attempts=3).paid_steps > 12


def test_retries_of_nested_layers_multiply() -> None:
    assert amplification(attempts=3, layers=3) == 27


@pytest.mark.parametrize(
    "make", [lambda: Chain(0, 1), lambda: Chain(2, -1), lambda: availability(1.2), lambda: expected_bill(3, 1)]
)
def test_bad_input_is_named(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ModelError, match="must be"):
        make()


def test_too_long_a_simulation_is_refused() -> None:
    with pytest.raises(ModelError, match="too many"):
        simulated_bill(50, 0.5)
