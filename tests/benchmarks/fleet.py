"""A day of the worked fleet on paper, beside simpy: ``python -m tests.benchmarks.fleet``.

The fleet of the course: 500 conversations a minute, 15 steps of 90 seconds each, autoscaled; 10.8 million steps a day.
simpy plays half an hour of it with the pods that it needs from the start; what is compared is the time for each run of
a step. One process, one core; what numba compiles is compiled before.
"""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import Literal

from labkit.models.fleet import Arrivals, Fleet, StepTime, simulate
from labkit.models.keda import ScaledObject
from tests.benchmarks.measure import Row, machine, seconds
from tests.benchmarks.simpy_fleet import play

DAY, SLICE, ROUNDS = 86_400, 1800, 3
WORKED = Fleet(
    Arrivals.diurnal(500 / 60), StepTime.lognormal(90), scaler=ScaledObject(queue_length=8, minimum=0, maximum=3000)
)


def _took(fleet: Fleet, length: int, engine: Literal["ticks", "exact"]) -> tuple[float, float]:
    """Seconds, and runs of steps."""
    runs = 0.0

    def once() -> None:
        nonlocal runs
        runs = simulate(fleet, length, engine=engine).figures["runs"]

    return seconds(once), runs


def _simpy() -> float:
    """Seconds for each run of a step."""
    fleet = replace(WORKED, scaler=None, replicas=1400)
    runs = 0.0

    def once() -> None:
        nonlocal runs
        runs = play(fleet, SLICE, 1)["runs"]

    return seconds(once) / runs


def rows() -> list[Row]:
    large = replace(
        WORKED,
        arrivals=Arrivals.diurnal(50_000 / 60),
        scaler=ScaledObject(queue_length=8, minimum=0, maximum=300_000),
        cap=12_000_000,
    )
    for engine in ("ticks", "exact"):
        simulate(WORKED, 600, engine=engine)  # type: ignore[arg-type]
    found: dict[str, list[float]] = {}
    for _ in range(ROUNDS):
        ticks, runs = _took(WORKED, DAY, "ticks")
        exact, exact_runs = _took(WORKED, DAY, "exact")
        theirs = _simpy()
        round_ = {
            "ticks": ticks,
            "exact": exact,
            "ticks by simpy": theirs / (ticks / runs),
            "exact by simpy": theirs / (exact / exact_runs),
            "large": _took(large, DAY, "ticks")[0] / ticks,
            "week": _took(WORKED, 7 * DAY, "ticks")[0] / ticks,
        }
        for name, value in round_.items():
            found.setdefault(name, []).append(value)
    middle = {name: statistics.median(values) for name, values in found.items()}
    return [
        ("a day of the worked fleet, in ticks", f"{middle['ticks']:.2f} s", "≤ 2 s"),
        ("a day of the worked fleet, event-exact", f"{middle['exact']:.2f} s", "≤ 15 s"),
        ("steps in a second against simpy, event-exact", f"{middle['exact by simpy']:.0f} ×", "≥ 100 ×"),
        ("steps in a second against simpy, in ticks", f"{middle['ticks by simpy']:.0f} ×", "≥ 1000 ×"),
        ("a fleet 100 times larger, in ticks", f"{middle['large']:.2f} ×", "≤ 1.5 ×"),
        ("a week against a day, in ticks", f"{middle['week']:.1f} ×", "≤ 8 ×"),
    ]


if __name__ == "__main__":
    print(machine())
    for row in rows():
        print(*row, sep=" · ")
