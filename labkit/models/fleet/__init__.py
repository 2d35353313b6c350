"""The whole fleet on paper: arrivals, queue, pods, autoscaler and model, a day of it in about a second.

    run = simulate(Fleet(Arrivals.diurnal(500 / 60), StepTime.lognormal(90), scaler=ScaledObject(...)))
    run.figures, run.frame

Needs the ``course`` extra: numpy, numba (the engines are compiled, once, at the first run) and pandas for the frame.
"""

from labkit.models.fleet import compiled as compiled  # first: it says what to install where numba is missing
from labkit.models.fleet.load import Arrivals, Burst, StepTime
from labkit.models.fleet.report import FIGURES, Run
from labkit.models.fleet.simulate import simulate
from labkit.models.fleet.spec import Fleet

__all__ = ["FIGURES", "Arrivals", "Burst", "Fleet", "Run", "StepTime", "simulate"]
