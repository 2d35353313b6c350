"""An outage inside one group: the model's shares beside a simulation that draws, counts and benches."""

from __future__ import annotations

import doctest
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.models import outage
from labkit.models._input import ModelError
from labkit.models.outage import Outage


def test_the_example_of_the_docstring() -> None:
    assert doctest.testmod(outage).failed == 0


@pytest.mark.parametrize(
    ("deployments", "dead", "retries", "leak"),
    [(2, 1, 0, 1 / 2), (2, 1, 2, 1 / 8), (3, 1, 2, 1 / 27), (3, 2, 1, 4 / 9), (2, 0, 0, 0), (2, 2, 5, 1)],
)
def test_the_leak_of_retries_alone(deployments: int, dead: int, retries: int, leak: float) -> None:
    assert Outage(deployments, dead, retries).leak == pytest.approx(leak)
    assert Outage(deployments, dead, retries, fallback=True).leak == 0


def test_the_start_of_a_window_by_hand() -> None:
    # Without retries each of the three failures is a lost call, and every second call is one.
    found = Outage(2, 1, 0).window(allowed_fails=2)
    assert (found.calls, found.lost, found.hits) == (pytest.approx(6), pytest.approx(3), 3)
    # allowed_fails 0 and a retry: benched by the first attempt, so that the second cannot fail.
    found = Outage(2, 1, 1).window(allowed_fails=0)
    assert (found.calls, found.lost, found.hits) == (pytest.approx(2), 0, 1)
    # Two retries, three failures: lost only if all three are of one call, (1/2)^2 once the first has come.
    assert Outage(2, 1, 2).window(allowed_fails=2).lost == pytest.approx(1 / 4)


def simulated(deployments: int, dead: int, retries: int, allowed: int, seed: int) -> tuple[int, int, int]:
    draw, fails, calls, lost = random.Random(seed), dict.fromkeys(range(dead), 0), 0, 0
    benched: set[int] = set()
    while len(benched) < dead:
        calls += 1
        for _ in range(1 + retries):
            picked = draw.choice([each for each in range(deployments) if each not in benched])
            if picked >= dead:
                break
            fails[picked] += 1
            if fails[picked] > allowed:
                benched.add(picked)
        else:
            lost += 1
    return calls, lost, sum(fails.values())


@pytest.mark.parametrize(
    ("deployments", "dead", "retries", "allowed"),
    [(2, 1, 0, 2), (2, 1, 2, 2), (3, 2, 1, 1), (4, 3, 2, 0), (5, 2, 0, 3)],
)
def test_the_start_of_a_window_as_simulated(deployments: int, dead: int, retries: int, allowed: int) -> None:
    runs = [simulated(deployments, dead, retries, allowed, seed) for seed in range(4000)]
    found = Outage(deployments, dead, retries).window(allowed)
    assert sum(calls for calls, _, _ in runs) / len(runs) == pytest.approx(found.calls, rel=0.05)
    assert sum(lost for _, lost, _ in runs) / len(runs) == pytest.approx(found.lost, rel=0.1, abs=0.01)
    assert {hits for _, _, hits in runs} == {found.hits}


@given(st.integers(1, 8), st.data(), st.integers(0, 5), st.integers(0, 3), st.floats(1, 1e6))
def test_a_cooldown_never_loses_more_and_a_fallback_nothing(
    deployments: int, data: st.DataObject, retries: int, allowed: int, calls: float
) -> None:
    dead = data.draw(st.integers(0, deployments))
    alone, helped = Outage(deployments, dead, retries), Outage(deployments, dead, retries, fallback=True)
    assert 0 <= alone.share(calls, allowed_fails=allowed) <= alone.leak <= 1
    assert helped.share(calls, allowed_fails=allowed) == helped.leak == 0
    assert 0 <= alone.hits <= 1 + retries


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(ModelError, match="dead must be a whole number from 0 to 2; got 3"):
        Outage(2, 3)
    with pytest.raises(ModelError, match="all of them are dead"):
        Outage(2, 2).window(allowed_fails=2)
    with pytest.raises(ModelError, match="calls must be at least 1"):
        Outage().share(0, allowed_fails=2)
