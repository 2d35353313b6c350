"""Measuring: two sides in turns, so that a busy machine slows both."""

from __future__ import annotations

import functools
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping

ROUNDS = 5
Row = tuple[str, str, str]  # what, measured, budget


def machine() -> str:
    """What was measured on: numbers without it say nothing."""
    return f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}, {platform.system()}"


def seconds(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def in_turns(sides: Mapping[str, Callable[[int], object]], *, rounds: int = ROUNDS) -> list[dict[str, float]]:
    """Seconds of each side in each round; the order changes from round to round. A side is given the round's number."""
    found = []
    for turn in range(rounds):
        took = {}
        for name in sorted(sides, reverse=bool(turn % 2)):
            took[name] = seconds(functools.partial(sides[name], turn))
        found.append(took)
    return found


def rate(rounds: list[dict[str, float]], side: str, against: str) -> str:
    """The rate of ``side`` as a percentage of the rate of ``against``: the median of the rounds."""
    return f"{100 * statistics.median(took[against] / took[side] for took in rounds):.0f} %"
