"""When EventBridge tries a failed delivery again, and when it stops.

**On AWS** a target is retried for 24 hours and up to 185 times, with exponential backoff and jitter; ``RetryPolicy``
turns both limits down, and whichever is reached first ends the retries (EventBridge User Guide, "How EventBridge
retries delivering events"; botocore's ``RetryPolicy``: 0-185 attempts, 60-86,400 s). The schedule itself is not
published.

**MiniStack** tries once and forgets.

**Here** the wait before retry *n* is drawn evenly from the upper half of ``min(600, 2 ** (n - 1))`` seconds: 0.5-1 s,
1-2 s, 2-4 s, … up to 300-600 s. That is our own formula, chosen so that the default 185 retries take about 22 hours (a
standard deviation of 20 minutes, so the attempts practically always run out before the 24 hours do). Only its bounds
are AWS's.

This module is arithmetic and one timer thread; :mod:`parity.events_delivery` is what uses it.
"""

from __future__ import annotations

import heapq
import itertools
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

DEFAULT_RETRIES = 185
DEFAULT_AGE = 86_400
ATTEMPTS_EXHAUSTED = "MaximumRetryAttempts"
AGE_EXHAUSTED = "MaximumEventAgeInSeconds"
PAUSE_AFTER_ERROR = 0.1  # seconds

logger = logging.getLogger("parity.events")


@dataclass(frozen=True)
class RetryPolicy:
    """How often a delivery is tried again, and until which age of the event in seconds."""

    retries: int = DEFAULT_RETRIES
    age: float = DEFAULT_AGE

    @classmethod
    def of(cls, target: Mapping[str, Any]) -> RetryPolicy:
        """The policy of a rule's target, as ``PutTargets`` took it."""
        policy = target.get("RetryPolicy") or {}
        return cls(
            policy.get("MaximumRetryAttempts", DEFAULT_RETRIES),
            policy.get("MaximumEventAgeInSeconds", DEFAULT_AGE),
        )


@dataclass(frozen=True)
class Backoff:
    """Exponential backoff with equal jitter: half of the ceiling for certain, the other half by chance."""

    base: float = 1.0
    cap: float = 600.0

    def ceiling(self, retry: int) -> float:
        """The longest wait before retry number ``retry`` (1 is the first)."""
        return min(self.cap, self.base * 2.0 ** min(retry - 1, 64))

    def __call__(self, retry: int, chance: float) -> float:
        """The wait in seconds before retry number ``retry``; ``chance`` is a random number in [0, 1)."""
        return self.ceiling(retry) * (1 + chance) / 2


@dataclass(frozen=True)
class Step:
    """What follows a failed attempt: after ``wait`` seconds a retry, or the end when a limit is ``exhausted``."""

    wait: float
    exhausted: str | None = None


def next_step(policy: RetryPolicy, backoff: Backoff, *, retries: int, age: float, chance: float) -> Step:
    """Decide after a failed attempt, given the retries made so far and the event's age in seconds.

    A retry that would come after the event's age has run out is not made; the event is given up at that age, not
    before, so that it reaches the dead-letter queue when AWS's limit says.
    """
    if retries >= policy.retries:
        return Step(0, ATTEMPTS_EXHAUSTED)
    left = policy.age - age
    if left <= 0:
        return Step(0, AGE_EXHAUSTED)
    wait = backoff(retries + 1, chance)
    return Step(wait) if wait < left else Step(left, AGE_EXHAUSTED)


class Timer:
    """Runs jobs at their time, in order of time, on one daemon thread that starts with the first job.

    The thread is a daemon: what is pending ends with the process. A job that raises is logged and the next one runs.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic, *, threaded: bool = True) -> None:
        self.clock = clock
        self._threaded = threaded
        self._jobs: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()  # of two jobs for one moment, the one that came first runs first
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def at(self, due: float, job: Callable[[], None]) -> None:
        """Run ``job`` once the clock reads ``due``."""
        with self._changed:
            heapq.heappush(self._jobs, (due, next(self._order), job))
            self._changed.notify()
            if self._threaded and self._thread is None:
                self._thread = threading.Thread(target=self._loop, name="events-retry", daemon=True)
                self._thread.start()

    def clear(self) -> None:
        """Forget every pending job."""
        with self._changed:
            self._jobs.clear()
            self._changed.notify()

    def __len__(self) -> int:
        return len(self._jobs)

    def run_due(self) -> None:
        """Run every job that is due by now, on the caller's thread."""
        while (job := self._take()) is not None:
            self._run(job)

    def next_due(self) -> float | None:
        """When the next job is due, or None when there is none."""
        with self._changed:
            return self._jobs[0][0] if self._jobs else None

    def _take(self) -> Callable[[], None] | None:
        with self._changed:
            if self._jobs and self._jobs[0][0] <= self.clock():
                return heapq.heappop(self._jobs)[2]
        return None

    def _run(self, job: Callable[[], None]) -> None:
        try:
            job()
        except Exception:
            logger.exception("a delivery was lost to an error of the stand-in")

    def _loop(self) -> None:
        while True:
            try:
                self._run_and_wait()
            except Exception:  # without this thread no retry would ever be made again
                logger.exception("the timer of retries goes on after an error of the stand-in")
                time.sleep(PAUSE_AFTER_ERROR)

    def _run_and_wait(self) -> None:
        self.run_due()
        with self._changed:
            wait = self._jobs[0][0] - self.clock() if self._jobs else None
            if wait is None or wait > 0:
                self._changed.wait(None if wait is None else min(wait, threading.TIMEOUT_MAX))
