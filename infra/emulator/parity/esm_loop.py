"""One thread for all mappings: it lets each take a step when it has something to do, and sleeps otherwise.

**On AWS** a mapping long-polls its queue, so a message reaches the function at once, however many mappings there are.

**MiniStack** asks each queue of each mapping in turn, once a second or whenever anything anywhere was sent.

**Here** a mapping is stepped when its queue has changed, when one of its batches is done, or when it has asked to be. A
step starts things and never waits for them, so that none holds up another."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable
from typing import Protocol

PAUSE_AFTER_ERROR = 1.0  # seconds

logger = logging.getLogger("parity.esm")


class Stepper(Protocol):
    def step(self) -> float | None:
        """Do what is to be done now. Returns when to be stepped again (epoch seconds), None for when it is woken."""


class Loop:
    """Steps on one daemon thread, which starts with the first wake-up. Of several wake-ups the earliest counts."""

    def __init__(self, clock: Callable[[], float] = time.time, *, threaded: bool = True) -> None:
        self.clock = clock
        self._threaded = threaded
        self._due: dict[Stepper, float] = {}
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def wake(self, stepper: Stepper, at: float | None = None) -> None:
        """Step ``stepper`` at the moment ``at`` (epoch seconds), or now. May be called with any lock held."""
        due = self.clock() if at is None else at
        with self._changed:
            if due >= self._due.get(stepper, math.inf):
                return
            self._due[stepper] = due
            self._changed.notify()
            if self._threaded and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="event-source-mappings", daemon=True)
                self._thread.start()

    def forget(self, stepper: Stepper) -> None:
        with self._changed:
            self._due.pop(stepper, None)

    def next_due(self) -> float | None:
        """When the next step is due (epoch seconds)."""
        with self._changed:
            return min(self._due.values(), default=None)

    def run_due(self) -> None:
        """Take every step that is due by now, each stepper once, on the caller's thread."""
        now = self.clock()
        with self._changed:
            ready = [stepper for stepper, due in self._due.items() if due <= now]
            for stepper in ready:
                del self._due[stepper]
        for stepper in ready:
            again = self._step(stepper)
            if again is not None:
                self.wake(stepper, again)

    def _step(self, stepper: Stepper) -> float | None:
        try:
            return stepper.step()
        except Exception:
            logger.exception("an event source mapping goes on after an error of the stand-in")
            return self.clock() + PAUSE_AFTER_ERROR

    def _run(self) -> None:
        while True:
            self.run_due()
            with self._changed:
                wait = min(self._due.values(), default=math.inf) - self.clock()
                if wait > 0:
                    self._changed.wait(min(wait, threading.TIMEOUT_MAX))
