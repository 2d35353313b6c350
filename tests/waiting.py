"""Waiting for a state, with a bound: what a test does instead of sleeping."""

from __future__ import annotations

import time
from collections.abc import Callable


def until(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait until ``condition()`` is true; the test fails when it has not come to that in so many ``seconds``."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.02)
