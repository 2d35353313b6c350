"""Prompt routing on paper: two models of one family, and a threshold that says when the other one is worth it.

Bedrock's prompt router predicts, for each prompt, how good the answer of each of its two models would be. One of them
is the *fallback model*, the anchor; the *response quality difference* says by how much the other one must be better::

    predicted quality    fallback 70, other 76     threshold  5 %   76 >= 70 + 5 %   -> other
                         fallback 70, other 76     threshold 10 %   76 <  70 + 10 %  -> fallback

AWS says: with 10 %, "the router will switch to another model … only if its responses are 10 % better" than those of the
fallback model, and the fallback model serves where the criterion is not met. Not verified, because not documented:
whether the difference counts relatively (as here) or in points, what is predicted, and what happens where the fallback
model is the better and dearer one (by the words above the cheaper model would then hardly ever serve, which is not what
AWS's own examples of savings show). The API takes 0 to 100; the user guide's example passes 0.5.

What it cannot do, as documented: prompts other than English ones are not what it is tuned for; it knows nothing of your
application's data; special cases may be routed badly; the two models are of one family, so it is a lever for costs, and
no answer to an outage of that family: that is a fallback group's (:mod:`labkit.routing.router`). Which families there
are: ``facts("bedrock.prompt_router.pool")``; no Claude 4 model is among them. Standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from labkit.models._input import ModelError, limit, number

__all__ = ["Mix", "Predicted", "PromptRouter"]


class Predicted(NamedTuple):
    """What the router predicts for one prompt: the quality of each model's answer, on any scale from 0."""

    fallback: float
    other: float


@dataclass(frozen=True)
class Mix:
    """What came of many prompts. ``quality`` and ``cost`` are means; ``saved`` compares with always asking ``dearer``.

    ``share``: the part of the prompts that the other model served, from 0 to 1.
    """

    prompts: int
    share: float
    quality: float
    cost: float
    dearer: str
    saved: float


@dataclass(frozen=True)
class PromptRouter:
    """Two models: ``fallback`` and ``other``, and the threshold in percent. Prices are for one answer, in any currency.

    >>> router = PromptRouter("haiku", "sonnet", difference=10)
    >>> router.serves(Predicted(fallback=70, other=76)), router.serves(Predicted(fallback=70, other=77))
    ('haiku', 'sonnet')

    Raises :class:`~labkit.models._input.ModelError` for what cannot be.
    """

    fallback: str
    other: str
    difference: float

    def __post_init__(self) -> None:
        low, high = (limit(f"bedrock.prompt_router.quality_difference.{end}") for end in ("min", "max"))
        number("difference", self.difference, low=low, high=high, unit="%")
        if not self.fallback or not self.other or self.fallback == self.other:
            raise ModelError(
                f"a prompt router has {limit('bedrock.prompt_router.models')} models; got {self.fallback!r} and "
                f"{self.other!r}."
            )

    def serves(self, predicted: Predicted) -> str:
        """Which of the two serves a prompt of which this is predicted."""
        fallback, other = (number("predicted quality", each) for each in predicted)
        # At a difference of 0 equal answers leave the anchor where it is: nothing is better by more than nothing.
        worth = other > fallback and (other - fallback) * 100 >= fallback * self.difference
        return self.other if worth else self.fallback

    def mix(self, prompts: Iterable[Predicted], *, prices: tuple[float, float]) -> Mix:
        """What many prompts come to. ``prices``: of an answer by the fallback model, and by the other one.

        The quality is the predicted one: a router that predicts badly does worse than it says.
        """
        cheap, dear = (number("price", each) for each in prices)
        served = [(each, self.serves(each) == self.other) for each in prompts]
        if not served:
            raise ModelError("prompts must be at least 1; got none.")
        count = len(served)
        share = sum(other for _, other in served) / count
        quality = sum(each.other if other else each.fallback for each, other in served) / count
        cost = share * dear + (1 - share) * cheap
        most = max(cheap, dear)
        saved = 1 - cost / most if most else 0.0
        return Mix(count, share, quality, cost, self.other if dear >= cheap else self.fallback, saved)
