"""Replays: which archived events go again, in which order, and the states that a replay passes through.

**On AWS** a replay takes the events whose own ``time`` lies in its range, one minute of them after the other, and
EventLastReplayedTime is the time of the last one (botocore's ``StartReplay``). It is STARTING, RUNNING, then COMPLETED;
CancelReplay answers CANCELLING (recorded), and takes a replay that is STARTING or RUNNING only (botocore's
``IllegalStatusException``). Where nothing was replayed there is no EventLastReplayedTime (recorded). Not verified: the
order within a minute, whether the ends of the range belong to it, the text of the refusal, and what a cancelled replay
still sends.

**MiniStack** sends in the order of arrival, says nothing of how far it is, and goes on with a cancelled replay, which
it calls COMPLETED in the end.

**Here** a :class:`Run` keeps the states, for both emulators; both ends belong to the range, and a cancelled one stops
after the event that it has in hand. The tag ``lab:replay-rate`` of a bus makes its replays slow enough to be watched.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from .events_rules import Refused
from .settings import REPLAY_RATE, positive_float

ACTIVE = ("STARTING", "RUNNING")
MINUTE = 60

logger = logging.getLogger("parity.events")

E = TypeVar("E")


def in_minutes(events: Iterable[E], start: float, end: float, time_of: Callable[[E], float]) -> list[E]:
    """The events from ``start`` to ``end`` (epoch seconds of their own time), minute by minute."""
    return sorted((event for event in events if start <= time_of(event) <= end), key=lambda e: time_of(e) // MINUTE)


def pause(bus_tags: Mapping[str, str]) -> float:
    """Seconds between two events of a replay: none, unless the bus has a rate."""
    rate = positive_float(bus_tags, REPLAY_RATE, 0.0)
    return 1 / rate if rate else 0.0


class Run:
    """One replay. ``show`` is called with the members of DescribeReplay that change."""

    def __init__(self, name: str, show: Callable[[Mapping[str, Any]], None], clock: Callable[[], float] = time.time):
        self.name = name
        self.state = "STARTING"
        self._show = show
        self._clock = clock
        self._lock = threading.Lock()
        self._stop = threading.Event()

    def go(self, events: Iterable[E], send: Callable[[E], object], time_of: Callable[[E], float], wait: float) -> None:
        """Send the events, ``wait`` seconds apart, until there are none left or the replay is cancelled."""
        if not self._moved("RUNNING", among=("STARTING",)):
            self._end("CANCELLED")
            return
        try:
            for event in events:
                if self._stop.is_set():
                    break
                send(event)
                self._show({"EventLastReplayedTime": time_of(event)})
                if wait:
                    self._stop.wait(wait)
        except Exception as error:
            logger.exception("replay %s broke", self.name)
            self._end("FAILED", StateReason=f"{type(error).__name__}: {error}"[:512])
            return
        self._end("COMPLETED")

    def cancel(self) -> None:
        """Ask the replay to stop. Raises :class:`Refused` when it is over or stopping already."""
        if not self._moved("CANCELLING", among=ACTIVE):
            raise Refused(
                "IllegalStatusException",
                f"Replay {self.name} is {self.state}: a replay can be canceled only when the state is Running or "
                "Starting.",
            )
        self._stop.set()

    def forget(self) -> None:
        """Stop without a word: everything that this replay belongs to is gone."""
        self._stop.set()

    def _moved(self, state: str, *, among: tuple[str, ...], **more: Any) -> bool:
        with self._lock:
            if self.state not in among:
                return False
            self.state = state
            self._show({"State": state, **more})
            return True

    def _end(self, state: str, **more: Any) -> None:
        # A cancel that comes between the last event and here finds a replay that is running, and is honoured.
        wanted = ("RUNNING",) if state == "COMPLETED" else ("RUNNING", "CANCELLING")
        if not self._moved(state, among=wanted, ReplayEndTime=self._clock(), **more):
            self._moved("CANCELLED", among=("CANCELLING",), ReplayEndTime=self._clock())
