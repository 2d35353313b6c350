"""What comes in, and how long a step takes: the two inputs of a simulated fleet that are random.

Both engines draw from the same two objects. The number of arrivals in each second is drawn once, from the seed alone,
so that the engines see the same day; the event-exact one then spreads each second's arrivals over that second, which
is a Poisson process again (given their number, the arrivals of a Poisson process are uniform).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from labkit.models._input import ModelError, a, flag, number, one_of

__all__ = ["Arrivals", "Burst", "StepTime"]

DAY = 86_400.0
_QUANTILES = 1 << 15
_RATE = 1e9  # conversations a second: beyond what anybody runs, and within what can be drawn
_SHAPES = ("fixed", "exponential", "lognormal", "measured")


@dataclass(frozen=True)
class Burst:
    """``rate`` more conversations per second, from second ``at`` on, for ``seconds``."""

    at: float
    seconds: float
    rate: float

    def __post_init__(self) -> None:
        number("at", self.at, unit="s")
        number("seconds", self.seconds, unit="s")
        number("rate", self.rate, high=_RATE, unit="conversations a second")


@dataclass(frozen=True)
class Arrivals:
    """New conversations per second over time: a mean, a daily wave, and bursts.

    ``swing`` is the wave's height as a share of the mean (0.6: between 40 % and 160 %), ``peak`` its highest second of
    the day. ``regular`` spaces them evenly; otherwise they come as a Poisson process. Raises
    :class:`~labkit.models._input.ModelError`.

    >>> int(Arrivals.constant(0.25).counts(8, np.random.default_rng(1)).sum())
    2
    """

    mean: float
    swing: float = 0.0
    peak: float = 14 * 3600.0
    bursts: tuple[Burst, ...] = ()
    regular: bool = False

    def __post_init__(self) -> None:
        number("mean", self.mean, high=_RATE, unit="conversations a second")
        number("swing", self.swing, high=1.0)
        number("peak", self.peak, high=DAY, unit="s")
        flag("regular", self.regular)
        a("bursts", self.bursts, tuple, "(Burst(at=600, seconds=60, rate=5),)")
        for each in self.bursts:
            a("bursts", each, Burst, "(Burst(at=600, seconds=60, rate=5),)")

    @classmethod
    def constant(cls, rate: float) -> Arrivals:
        """Evenly spaced, ``rate`` a second."""
        return cls(rate, regular=True)

    @classmethod
    def poisson(cls, rate: float) -> Arrivals:
        """A Poisson process of ``rate`` a second."""
        return cls(rate)

    @classmethod
    def diurnal(cls, mean: float, swing: float = 0.6, peak: float = 14 * 3600.0) -> Arrivals:
        """A Poisson process whose rate follows the day."""
        return cls(mean, swing, peak)

    def burst(self, at: float, seconds: float, rate: float) -> Arrivals:
        """The same with one burst more."""
        return replace(self, bursts=(*self.bursts, Burst(at, seconds, rate)))

    def rates(self, seconds: int) -> NDArray[np.float64]:
        """The rate in the middle of each second."""
        middle = np.arange(seconds) + 0.5
        rate = self.mean * (1 + self.swing * np.cos(2 * math.pi * (middle - self.peak) / DAY))
        for each in self.bursts:
            rate[(middle >= each.at) & (middle < each.at + each.seconds)] += each.rate
        return np.asarray(rate, dtype=np.float64)

    def counts(self, seconds: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """How many arrive in each second."""
        rates = self.rates(seconds)
        if self.regular:
            # Rounded, or 0.1 a second would lose its tenth arrival to the tenth sum being 0.9999….
            return np.diff(np.floor(np.cumsum(rates).round(6)), prepend=0.0).astype(np.int64)
        return np.asarray(rng.poisson(rates), dtype=np.int64)


@dataclass(frozen=True)
class StepTime:
    """How long a step runs, in seconds: ``mean``, and how it spreads.

    ``cv`` is the coefficient of variation (standard deviation by mean) of ``lognormal``, the usual shape of model
    calls: most are quick, some take very long. ``measured`` holds the times of ``of(...)``.
    """

    mean: float
    shape: Literal["fixed", "exponential", "lognormal", "measured"] = "lognormal"
    cv: float = 0.8
    measured: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        # Shorter steps than a second would be lost between two ticks; longer ones than a day outlive the day.
        one_of("shape", self.shape, _SHAPES)
        if self.shape == "measured" and not self.measured:
            raise ModelError("measured step times must be at least one; got none.")
        a("measured", self.measured, tuple, "StepTime.of([30, 60, 180])")
        for each in self.measured:
            number("a measured step time", each, high=DAY, unit="s")
        number("mean", self.mean, low=1.0, high=DAY, unit="s")
        number("cv", self.cv, low=0.01, high=5.0)

    @classmethod
    def fixed(cls, seconds: float) -> StepTime:
        return cls(seconds, "fixed")

    @classmethod
    def exponential(cls, mean: float) -> StepTime:
        return cls(mean, "exponential")

    @classmethod
    def lognormal(cls, mean: float, cv: float = 0.8) -> StepTime:
        return cls(mean, "lognormal", cv)

    @classmethod
    def of(cls, seconds: Sequence[float]) -> StepTime:
        """Drawn from times that were measured, in seconds: at least one, none negative; their mean at least 1."""
        try:
            there = np.asarray(seconds, dtype=np.float64)
        except (TypeError, ValueError):
            there = np.empty((0, 0))
        if there.ndim != 1:
            raise ModelError(f"measured step times must be a list of seconds; got {type(seconds).__name__}.")
        times = tuple(sorted(there.tolist()))
        return cls(sum(times) / max(len(times), 1), "measured", measured=times)

    def draw(self, rng: np.random.Generator, count: int) -> NDArray[np.float64]:
        """``count`` times, in seconds."""
        if self.shape == "fixed":
            return np.full(count, float(self.mean))
        if self.shape == "exponential":
            return rng.exponential(self.mean, count)
        if self.shape == "measured":
            return rng.choice(np.asarray(self.measured), count)
        middle, spread = self._normal()
        return rng.lognormal(middle, spread, count)

    def quantiles(self) -> NDArray[np.float64]:
        """Equally probable times in rising order, whose mean is the distribution's own."""
        at = (np.arange(_QUANTILES) + 0.5) / _QUANTILES
        if self.shape == "fixed":
            return np.full(_QUANTILES, float(self.mean))
        if self.shape == "measured":
            return np.sort(self.measured)[(at * len(self.measured)).astype(np.int64)]
        if self.shape == "exponential":
            table = -self.mean * np.log1p(-at)
        else:
            middle, spread = self._normal()
            normal = NormalDist(middle, spread)
            table = np.exp(np.fromiter((normal.inv_cdf(each) for each in at), dtype=np.float64, count=len(at)))
        # The last part of the tail lies beyond the last quantile: a hundredth of a per cent of the mean, given back.
        return np.asarray(table * (self.mean / table.mean()), dtype=np.float64)

    def share_over(self, seconds: float) -> float:
        """The share of steps that take longer: of a visibility timeout, say."""
        return float((self.quantiles() > seconds).mean())

    def _normal(self) -> tuple[float, float]:
        """Mean and standard deviation of the logarithm."""
        variance = math.log1p(self.cv**2)
        return math.log(self.mean) - variance / 2, math.sqrt(variance)
