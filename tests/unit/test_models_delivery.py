"""Retries of the bus over time. Golden values: facts events.retry.*, eventbridgev2.retry.*, erratum 46; eb-monitoring.

The waits are not AWS's: that they are the stand-in's is tested against the stand-in's own rule.
"""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parity.events_retry import Backoff, RetryPolicy, next_step

from labkit.facts import facts
from labkit.models._input import ModelError
from labkit.models.delivery import CLASSIC, GUIDE, V2, Policy, Retries
from labkit.models.retry import Exponential, Fixed

policies = st.builds(Policy, retries=st.integers(0, 185), age=st.integers(60, 86_400))


def test_the_three_policies() -> None:
    assert (CLASSIC.retries, CLASSIC.age) == (185, 86_400)
    assert (GUIDE.retries, GUIDE.age) == (24, 3_600)
    assert (V2.retries, V2.age) == (5, 300)


def test_attempts_by_hand() -> None:
    doubling = Exponential(base=1)
    assert Retries(Policy(3, 60), doubling).times() == [0, 1, 3, 7]
    assert Retries(Policy(9, 60), doubling).times() == [0, 1, 3, 7, 15, 31]  # the next would come at 63
    assert Retries(Policy(0, 60), doubling).times() == [0]


def test_at_the_very_age_there_is_no_attempt_any_more() -> None:
    assert Retries(Policy(9, 60), Fixed(30)).times() == [0, 30]
    both = Retries(Policy(2, 60), Fixed(40))  # one retry of two was made: it was the age
    assert (both.times(), both.exhausted, both.given_up_at) == ([0, 40], "MaximumEventAgeInSeconds", 60)


def test_the_first_limit_ends_it_and_says_so() -> None:
    few, old = Retries(Policy(3, 60), Exponential(base=1)), Retries(Policy(9, 60), Exponential(base=1))
    assert (few.exhausted, few.given_up_at) == ("MaximumRetryAttempts", 7)
    assert (old.exhausted, old.given_up_at) == ("MaximumEventAgeInSeconds", 60)
    assert {few.exhausted, old.exhausted} == set(str(facts("events.dlq.exhausted_conditions")).split("|"))


def test_a_dead_letter_comes_after_an_hour_and_not_after_five_minutes() -> None:
    """Erratum 46: with the guide's policy the queue that is to page fills after 3,600 s."""
    guide = Retries(GUIDE)
    assert guide.given_up_at == 3_600 != 300
    assert guide.alarms().dead_letters == guide.alarms().failed == 3_660
    assert guide.alarms().retries < 120
    page = Retries(Policy(24, int(facts("events.retry.age_for_5_minute_page"))))
    assert page.given_up_at == 300


def test_the_default_hides_an_outage_for_most_of_a_day() -> None:
    hours = [Retries(CLASSIC, seed=seed).given_up_at / 3_600 for seed in range(40)]
    assert min(hours) > 20
    assert max(hours) <= 24
    assert all(Retries(CLASSIC, seed=seed).attempts_by(86_400) == 186 for seed in range(5))


def test_v2_gives_up_within_five_minutes_where_classic_would_have_delivered() -> None:
    outage = 600
    assert Retries(V2).delivered_at(outage) is None
    assert Retries(V2).given_up_at <= 300
    assert outage <= (Retries(CLASSIC).delivered_at(outage) or 0) < outage + 600


def test_without_retries_no_alarm_on_retries_rings() -> None:
    assert Retries(Policy(0, 60)).alarms().retries == math.inf


@given(policies, st.integers(0, 99))
def test_limits_are_kept_and_times_grow(policy: Policy, seed: int) -> None:
    retries = Retries(policy, seed=seed)
    times = retries.times()
    assert times == sorted(set(times))
    assert times[0] == 0
    assert len(times) <= policy.retries + 1
    assert times[-1] < policy.age or times == [0]
    assert times[-1] <= retries.given_up_at <= policy.age
    assert retries.attempts_by(retries.given_up_at) == len(times)


@given(policies, st.floats(0, 90_000))
def test_delivered_at_the_first_attempt_after_the_outage(policy: Policy, down: float) -> None:
    retries = Retries(policy, Fixed(50))
    at = retries.delivered_at(down)
    assert at is None or (at >= down and at in retries.times())
    if at is None:
        assert down > retries.times()[-1]


@given(policies, st.integers(0, 99))
def test_it_is_the_rule_of_the_stand_in(policy: Policy, seed: int) -> None:
    chances = [random.Random(f"{seed}/{n}").random() for n in range(1, 200)]
    age, retries, seen, step = 0.0, 0, [0.0], None
    while True:
        step = next_step(RetryPolicy(policy.retries, policy.age), Backoff(), retries=retries, age=age,
                         chance=chances[retries])  # fmt: skip
        age += step.wait
        if step.exhausted:
            break
        retries += 1
        seen.append(age)
    ours = Retries(policy, seed=seed)
    assert ours.times() == pytest.approx(seen)
    assert ours.exhausted == step.exhausted
    assert ours.given_up_at == pytest.approx(age)


def test_bad_input_is_named() -> None:
    with pytest.raises(ModelError, match="retries must be a whole number from 0 to 185; got 186"):
        Policy(186, 60)
    with pytest.raises(ModelError, match="age must be a whole number from 60 to 86400; got 59"):
        Policy(1, 59)
