"""Hits: every call that reached the provider, counted by model and outcome, with how many ran at once.

What a client believes it sent and what a provider saw are two numbers: each retry and each fallback is a hit of its
own. These are the provider's.

A hit is recorded before the last byte of its answer is sent, so that whoever has the answer finds it counted.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from labkit.models._input import whole

__all__ = ["RUNNING", "Hit", "Hits"]

RUNNING = "running"
_LOGGED = 10_000  # hits that the log keeps; the counts go on


@dataclass(slots=True)
class Hit:
    """One call. ``outcome``: ``ok``, a kind of :data:`~labkit.routing.refusals.KINDS`, ``dropped`` (by a switch),
    ``left`` (the client did not wait for the answer), or ``running``.

    ``number`` counts from 1 in order of arrival. ``digest`` stands for the whole conversation, ``prompt`` is how it
    begins. ``finish`` is ``stop``, ``tools`` or ``length`` where the model answered.
    """

    number: int
    model: str
    dialect: str
    stream: bool = False
    outcome: str = RUNNING
    finish: str = ""
    prompt: str = ""
    digest: str = ""
    input_tokens: int = 0
    output_tokens: int = 0
    seconds: float = 0.0  # from its arrival to its outcome
    arrived: float = 0.0  # on the provider's clock
    working: bool = False  # let through to the model: these are counted for the peak
    era: int = 0  # how often the counts had been reset before it came


class Hits:
    """The counts and the log; threads share one. ``clock`` gives seconds."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic, keep: int = _LOGGED) -> None:
        self._clock = clock
        self._guard = threading.Lock()
        self._log: deque[Hit] = deque(maxlen=whole("keep", keep))
        self._working: Counter[str] = Counter()
        self._outcomes: Counter[tuple[str, str]] = Counter()
        self._peaks: dict[str, int] = {}
        self._number = self._era = 0

    # -- what a reader asks ----------------------------------------------------------------------------------------

    @property
    def total(self) -> int:
        """Hits so far, the running ones among them."""
        return self._number

    def count(self, model: str | None = None, outcome: str | None = None) -> int:
        """How many hits have ended, of ``model`` and with ``outcome`` where these are given."""
        with self._guard:
            return sum(
                count
                for (name, end), count in self._outcomes.items()
                if model in (None, name) and outcome in (None, end)
            )

    @property
    def by_model(self) -> dict[str, dict[str, int]]:
        """``{model: {outcome: how many}}``, sorted."""
        found: dict[str, dict[str, int]] = {}
        with self._guard:
            for (model, outcome), count in sorted(self._outcomes.items()):
                if count:
                    found.setdefault(model, {})[outcome] = count
        return found

    def running(self, model: str) -> int:
        """How many calls the model is at work on."""
        with self._guard:
            return self._working[model]

    def peak(self, model: str) -> int:
        """The most calls that the model was at work on at once. What was refused at the door is not among them."""
        with self._guard:
            return self._peaks.get(model, 0)

    @property
    def log(self) -> list[Hit]:
        """The last hits (10,000 at most), as copies, in order of arrival."""
        with self._guard:
            return [replace(hit) for hit in self._log]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The log for a table: what is the same in each run, no times."""
        shown = ("number", "model", "dialect", "stream", "outcome", "finish", "prompt", "input_tokens", "output_tokens")
        return [{name: getattr(hit, name) for name in shown} for hit in self.log]

    def reset(self) -> None:
        """Count from 0 again. Calls that are running end uncounted; the peak begins with them."""
        with self._guard:
            self._log.clear()
            self._outcomes.clear()
            self._number = 0
            self._era += 1
            self._peaks = {model: count for model, count in self._working.items() if count}

    # -- what the provider says ------------------------------------------------------------------------------------

    def arrive(self, model: str, dialect: str) -> Hit:
        """A call has come."""
        with self._guard:
            self._number += 1
            hit = Hit(self._number, model, dialect, arrived=self._clock(), era=self._era)
            self._log.append(hit)
            return hit

    def begin(self, hit: Hit) -> None:
        """The model is at work on it."""
        with self._guard:
            hit.working = True
            self._working[hit.model] += 1
            self._peaks[hit.model] = max(self._peaks.get(hit.model, 0), self._working[hit.model])

    def end(self, hit: Hit, outcome: str, finish: str = "", output_tokens: int = 0) -> None:
        """It has an outcome. A second one replaces the first: the answer was ready, and then nobody took it."""
        with self._guard:
            if hit.working:
                hit.working = False
                self._working[hit.model] -= 1
            if hit.era == self._era:
                if hit.outcome != RUNNING:
                    self._outcomes[hit.model, hit.outcome] -= 1
                self._outcomes[hit.model, outcome] += 1
            hit.outcome, hit.finish, hit.output_tokens = outcome, finish, output_tokens
            hit.seconds = self._clock() - hit.arrived

    def __repr__(self) -> str:
        return f"<Hits: {self.by_model or 'none'}>"
