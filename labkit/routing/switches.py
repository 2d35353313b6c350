"""Switches: faults turned on and off while the models run.

A switch puts a fault in front of one or several models, for a block of code, for a number of calls, or until it is
turned off::

    with provider.switch("primary", Down()):               # off again when the block ends, however it ends
        …
    provider.switch("primary", Throttle(1.5), times=2)     # the next two calls
    slow = provider.switch("*", Latency(0.2, spread=0.5))  # every model, until slow.off()
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from types import TracebackType

from labkit.models._input import ModelError, whole
from labkit.routing.conversation import Conversation
from labkit.routing.faults import Call, Fault
from labkit.routing.hits import Hit, Hits

__all__ = ["EVERY_MODEL", "Switch", "Switchboard"]

EVERY_MODEL = "*"


class Switch:
    """A fault in front of some models. ``off()`` takes it away; as a context manager, the end of the block does."""

    def __init__(self, board: Switchboard, models: frozenset[str], fault: Fault, times: int | None) -> None:
        self.models, self.fault = models, fault
        self.left = times  # calls that it still has; None: no end
        self._board = board

    @property
    def on(self) -> bool:
        return self in self._board.switches

    def off(self) -> None:
        """Turn it off; doing so twice is harmless. Calls that have met it already go on as it said."""
        self._board.off(self)

    def __enter__(self) -> Switch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.off()

    def __repr__(self) -> str:
        left = "" if self.left is None else f", {self.left} calls left"
        return f"<Switch {type(self.fault).__name__} at {', '.join(sorted(self.models))}{left}>"


class Switchboard:
    """All switches of a provider, and the door: :meth:`admit` lets a call through to the model or refuses it."""

    def __init__(self, hits: Hits, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._hits, self._clock = hits, clock
        self._guard = threading.RLock()
        self._switches: list[Switch] = []

    @property
    def switches(self) -> list[Switch]:
        """Those that are on."""
        with self._guard:
            return list(self._switches)

    def switch(self, models: str | Iterable[str], fault: Fault, *, times: int | None = None) -> Switch:
        """Put ``fault`` in front of ``models`` (a name, several, or ``"*"``), for ``times`` calls or until it is off.

        Raises :class:`~labkit.models._input.ModelError` for what cannot be.
        """
        names = frozenset((models,) if isinstance(models, str) else models)
        if not names or not all(isinstance(name, str) and name for name in names):
            raise ModelError(f'models must be names, or "{EVERY_MODEL}" for all; got {models!r:.80}.')
        if not isinstance(fault, Fault):
            raise ModelError(f"fault must be one of labkit.routing.faults, such as Down(); got {fault!r:.80}.")
        switch = Switch(self, names, fault, None if times is None else whole("times", times))
        with self._guard:
            self._switches.append(switch)
            self._switches.sort(key=lambda each: each.fault.order)  # stable: else in the order of switching on
        return switch

    def off(self, which: Switch | None = None) -> None:
        """Turn one switch off, or all."""
        with self._guard:
            self._switches = [each for each in self._switches if which is not None and each is not which]

    def admit(self, hit: Hit, asked: Conversation) -> Call:
        """Let a call through, and say how it will go. Raises :class:`~labkit.routing.refusals.Refusal`."""
        with self._guard:  # one at a time: between counting and letting in, nobody else may come in
            call = Call(asked, self._clock(), self._hits.running(hit.model))
            for switch in self.switches:
                if not switch.models & {EVERY_MODEL, hit.model}:
                    continue
                if switch.left is not None:
                    switch.left -= 1
                    if not switch.left:
                        switch.off()
                switch.fault.meet(call)
            self._hits.begin(hit)
            return call
