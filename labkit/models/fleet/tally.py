"""What both engines count, and where: the places in their arrays, and the interface that the simulation drives."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["COUNTS", "SUMS", "Engine"]

# The compiled loops hold these places as constants, and their cache knows the date of their own file alone: whoever
# changes the order here touches both engines.
# Since the start. A run is a step's call of the model; a superseded one ended after somebody else had received its
# message.
COUNTS = ("done", "steps", "runs", "throttled", "failed", "superseded", "killed", "dead")
DONE, STEPS, RUNS, THROTTLED, FAILED, SUPERSEDED, KILLED, DEAD = range(len(COUNTS))
# Integrals over time (messages, slots or conversations times seconds), and the sum of all waits in seconds.
SUMS = ("visible", "in_flight", "busy", "open", "wait")
VISIBLE, IN_FLIGHT, BUSY, OPEN, WAIT = range(len(SUMS))


class Engine(Protocol):
    """A queue and the slots that work on it, between two moments at which something is decided about them.

    ``levels`` are what there is now of visible and hidden messages, busy slots and open conversations, in the order of
    ``SUMS``; ``waits[s]`` counts the receives after a wait of ``s`` to ``s + 1`` seconds.
    """

    counts: NDArray[np.float64]
    sums: NDArray[np.float64]
    waits: NDArray[np.float64]

    @property
    def levels(self) -> tuple[float, float, float, float]: ...

    def advance(self, until: int) -> None:
        """Go on until second ``until``."""

    def open(self, pods: int) -> None:
        """So many pods begin to work."""

    def drain(self, pods: int, grace: int) -> int:
        """The newest ``pods`` receive nothing any more; returns a number to :meth:`kill` them by, after ``grace``."""

    def kill(self, drained: int) -> None:
        """What still runs in them ends without a word; the messages stay hidden until their timeout is over."""

    def crash(self, pods: int) -> None:
        """So many of those that work are gone, at once."""
