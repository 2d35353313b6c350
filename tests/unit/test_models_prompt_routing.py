"""Prompt routing on paper: the documented rule, its ends, and what a threshold does to share, quality and cost."""

from __future__ import annotations

import doctest

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.facts import facts
from labkit.models import prompt_routing
from labkit.models._input import ModelError
from labkit.models.prompt_routing import Predicted, PromptRouter

QUALITY = st.floats(0, 100, allow_nan=False)
PROMPTS = st.lists(st.builds(Predicted, QUALITY, QUALITY), min_size=1, max_size=30)


def test_the_example_of_the_docstring() -> None:
    assert doctest.testmod(prompt_routing).failed == 0


@pytest.mark.parametrize(
    ("difference", "fallback", "other", "serves"),
    [
        # AWS's user guide, "Response quality difference": with 10 % it switches only if the other is 10 % better.
        (10, 50, 55, "other"),
        (10, 50, 54.9, "fallback"),
        (0, 50, 50, "fallback"),
        (0, 50, 50.1, "other"),
        (100, 50, 99.9, "fallback"),
        (100, 50, 100, "other"),
        (10, 80, 70, "fallback"),  # the anchor is the better one
        (50, 0, 0, "fallback"),
    ],
)
def test_which_one_serves(difference: float, fallback: float, other: float, serves: str) -> None:
    assert PromptRouter("fallback", "other", difference).serves(Predicted(fallback, other)) == serves


@given(PROMPTS, st.floats(0, 100), st.floats(0, 100))
def test_a_higher_threshold_never_asks_the_other_more_often(
    prompts: list[Predicted], one: float, another: float
) -> None:
    low, high = sorted((one, another))
    eager, slow = (PromptRouter("f", "o", each).mix(prompts, prices=(1, 10)) for each in (low, high))
    assert slow.share <= eager.share
    assert slow.cost <= eager.cost
    assert slow.quality <= eager.quality + 1e-9


@given(PROMPTS, st.floats(0, 100))
def test_the_mix_is_never_worse_than_the_anchor(prompts: list[Predicted], difference: float) -> None:
    mix = PromptRouter("f", "o", difference).mix(prompts, prices=(1, 10))
    assert mix.quality >= sum(each.fallback for each in prompts) / len(prompts) - 1e-9
    assert 0 <= mix.saved <= 0.9 + 1e-9


def test_a_mix_in_numbers() -> None:
    easy, hard = Predicted(80, 82), Predicted(40, 70)
    mix = PromptRouter("haiku", "sonnet", 10).mix([easy, easy, easy, hard], prices=(1, 9))
    assert (mix.prompts, mix.share, mix.quality, mix.cost, mix.dearer) == (4, 0.25, 77.5, 3.0, "sonnet")
    assert mix.saved == pytest.approx(2 / 3)


def test_what_cannot_be() -> None:
    assert facts("bedrock.prompt_router.models") == 2
    with pytest.raises(ModelError, match=r"^difference must be from 0 to 100 %; got 101\.$"):
        PromptRouter("f", "o", 101)
    with pytest.raises(ModelError, match=r"^a prompt router has 2 models; got 'f' and 'f'\.$"):
        PromptRouter("f", "f", 10)
    with pytest.raises(ModelError, match=r"^prompts must be at least 1; got none\.$"):
        PromptRouter("f", "o", 10).mix([], prices=(1, 2))
    with pytest.raises(ModelError, match=r"^predicted quality must be at least 0; got -1\.$"):
        PromptRouter("f", "o", 10).serves(Predicted(-1, 2))
