"""Waiting before a gate: when it is whose turn, and how often one looks.

Whoever finds the gate full takes a *place*, a number that grows. It is somebody's turn when more permits are free than
live places are ahead. So a free permit is kept for whoever has the first place, and no newcomer gets it::

    2 permits free, places 7, 9, 12 wait:   7 and 9 may go in;   12, and who comes now, may not

From this follows what is promised: with k places ahead, it is a waiter's turn after k + 1 permits have ended at the
latest, however many come after it, and it stays its turn until it looks the next time. (Each permit that ends makes one
more free than are ahead; one ahead who goes in takes one of each; one behind goes in only where it leaves one for each
who is ahead of it.) A cap that is lowered costs as many more.

A place is a lease too: a waiter that is dead or frozen loses it after ``place`` seconds (and the skew of the clocks),
and holds up those behind it no longer than that.

Nobody is called: waiters look, by a read. Each has seen at what pace permits end, and looks again after a tenth of that
time where the next one is its own, and after a quarter of the time until its turn where it is farther behind; at the
latest after a second. With a cap of 4, calls of one second and 40 who come at once, the provider was kept busy for 94 %
of the time, at 70 reads a second. 200 who wait read fewer than 1,000 times a second together, each time an item of 2 to
3 read units (AWS: 3,000 units a second for one item, and a unit reads 4 KB).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from labkit.routing.gate_item import new_id
from labkit.routing.gate_state import State
from labkit.routing.permits import GateFull, Permit

if TYPE_CHECKING:
    from labkit.routing.gate import Gate

_TRIES = 4  # writes of one look that others were faster than
_SOONEST, _LATEST = 0.02, 1.0  # seconds between two looks
_FIRST, _BEHIND = 0.1, 0.25  # of the time between two permits that end: for the first, and more for each one ahead


class Waiter:
    """One who wants in, within ``within`` seconds: :meth:`step` until it gives a permit or raises."""

    def __init__(self, gate: Gate, within: float) -> None:
        self.gate, self.within = gate, within
        self.me = new_id()
        self.began, self.slept = gate.clock(), 0.0
        self.ended = 0  # permits, as far as this one has seen
        self.place_until: float | None = None  # None: no place
        self._seen: State | None = None

    @property
    def waited(self) -> float:
        """Seconds so far. Sleeps count by themselves as well: a clock that is set back makes no wait longer."""
        return max(self.slept, self.gate.clock() - self.began)

    def step(self) -> Permit | float:
        """Look, and do what can be done. A permit, or for how many seconds to sleep before the next step.

        Raises :class:`GateFull` when the time is over, or as many wait as may.
        """
        found = self._look()
        for _ in range(_TRIES):
            if isinstance(found, Permit):
                return found
            self._note(found)
            before = self.gate._before()
            ahead, free = found.ahead(self.me, before), found.free(before)
            if self.me in found.permits:
                found = self._granted(self.gate.item.adopt(self.me, until := self.gate._ends()), until)
            elif ahead < free:
                found = self._granted(self.gate.item.take(self.me, until := self.gate._ends(), found, before), until)
            elif self.place_until is None and self.waited < self.within:
                found = self._queue(found, before)
            else:
                break
        if isinstance(found, Permit):
            return found
        left = self.within - self.waited
        if left <= 0:
            raise GateFull(self.gate.name, found, self.gate.clock(), self.gate.skew, waited=self.waited)
        pause = min(self._pause(ahead - free), left)
        self.slept += pause
        return pause

    def leave(self) -> None:
        """Take back the place, and a permit that was granted unheard."""
        self.gate.item.leave(self.me)

    # ---------------------------------------------------------------------------------------------------------------

    def _look(self) -> Permit | State:
        if self._seen is None:
            return self._granted(self.gate.item.enter(self.me, until := self.gate._ends()), until)
        now = self.gate.clock()
        if self.place_until is not None and now > self.place_until - self.gate.place / 2:
            self.place_until = now + self.gate.place
            return self.gate.item.stay(self.me, self.place_until)
        return self.gate.item.look()

    def _queue(self, seen: State, before: float) -> State:
        gate, until = self.gate, self.gate.clock() + self.gate.place
        if len(seen.waiting) - len(seen.dead(before)[1]) >= gate.most_waiting:
            why = f"No more than {gate.most_waiting} may wait."
            raise GateFull(gate.name, seen, gate.clock(), gate.skew, waited=self.waited, why=why)
        found = gate.item.queue(self.me, until, gate.most_waiting, seen, before)
        if self.me in found.waiting:
            self.place_until = until
        return found

    def _granted(self, found: int | State, until: float) -> Permit | State:
        if isinstance(found, State):
            return found
        permit = Permit(self.gate, self.me, found, until)
        if self.gate.clock() >= until:  # the answer was so long on its way that the lease is over
            permit.renew()
        return permit

    def _note(self, found: State) -> None:
        if self.me not in found.waiting:
            self.place_until = None  # or it was lost: slept for too long
        if self._seen is not None:
            self.ended += len(self._seen.permits.keys() - found.permits.keys())
        self._seen = found

    def _pause(self, behind: int) -> float:
        each = self.waited / max(1, self.ended)
        pause = min(_LATEST, max(_SOONEST, each * (_FIRST + _BEHIND * max(0, behind))))
        return pause * random.uniform(0.5, 1.0)  # waiters that came together do not look together
