"""Permits: one worker's right to be at a provider, for as long as its lease runs; and how a gate refuses.

A permit is given back when the call is over. Whoever dies before that gives it back too, by doing nothing: its lease
ends, and the next one who wants in takes the permit over. A holder that was slow and not dead then learns that it has
lost it: :meth:`Permit.renew` raises :class:`PermitLost`, :meth:`Permit.release` says False.
"""

from __future__ import annotations

import logging
import threading
from types import TracebackType
from typing import TYPE_CHECKING

from labkit.errors import LabError

if TYPE_CHECKING:
    from labkit.routing.gate import Gate
    from labkit.routing.gate_state import State

__all__ = ["GateError", "GateFull", "Permit", "PermitLost"]

logger = logging.getLogger(__name__)


class GateError(LabError):
    """A gate cannot work as asked; the sentence says why."""


class GateFull(GateError):
    """No permit within the time. Let the message come back, or answer without this provider; nothing is held.

    ``taken`` of ``cap`` permits are out (more, where the cap was lowered), ``waiting`` others have a place before the
    gate. ``next_end``: epoch seconds at which the first of the leases ends, None while no permit is out; ``retry_in``:
    seconds from now until it may be taken over, if nobody gives one back before.
    """

    def __init__(self, name: str, state: State, now: float, skew: float, *, waited: float, why: str = "") -> None:
        self.taken, self.cap, self.next_end = state.taken, state.cap, state.next_end
        self.waiting = len(state.waiting)
        self.waited = waited
        self.retry_in = 0.0 if self.next_end is None else max(0.0, self.next_end + skew - now)
        ends = f"; the next lease ends in {max(0.0, self.next_end - now):.1f} s" if self.next_end is not None else ""
        super().__init__(
            f"gate {name} is full: {self.taken} of {self.cap} permits are out and {self.waiting} wait{ends}. "
            + (why or f"Waited for {waited:.1f} s.")
        )


class PermitLost(GateError):
    """The permit is not known to be this worker's any more: its lease was over, and somebody may be in its place."""

    def __init__(self, permit: Permit, why: str) -> None:
        self.permit = permit
        super().__init__(f"permit {permit.fence} of gate {permit.gate.name} is lost: {why}.")


class Permit:
    """One of the gate's permits, until its lease ends. As a context manager it is given back at the end of the block.

    ``fence`` is larger than that of every permit that the gate has granted before: whoever writes with it elsewhere can
    refuse the smaller one. ``until``: epoch seconds at which the lease ends, by this worker's clock. ``lost``: somebody
    else was found in its place. Threads may share one: a heartbeat renews it in a thread of its own.
    """

    def __init__(self, gate: Gate, id: str, fence: int, until: float) -> None:
        self.gate, self.id, self.fence, self.until = gate, id, fence, until
        self.lost = False
        self._over = False
        self._guard = threading.Lock()

    @property
    def over(self) -> bool:
        """Given back, or lost."""
        return self._over

    def renew(self) -> None:
        """Let the lease begin anew. Raises :class:`PermitLost` when somebody has taken the permit over.

        A lease that has run out can be renewed as long as nobody has: the permit has counted all the time. Raises
        :class:`GateError` when it has been given back.
        """
        with self._guard:
            if self._over and not self.lost:
                raise GateError(f"permit {self.fence} of gate {self.gate.name} has been given back.")
            until = None if self.lost else self.gate._renew(self)
            if until is None:
                self.lost = self._over = True
                raise PermitLost(self, "its lease had run out and it was taken over")
            self.until = until

    def check(self) -> None:
        """Raise :class:`PermitLost` if this worker cannot know that it is still in: its lease has run out by its own
        clock. No call to DynamoDB: ask before a call to the provider that comes late."""
        if self.lost or (not self._over and self.gate.clock() >= self.until):
            raise PermitLost(self, "its lease has run out")

    def release(self) -> bool:
        """Give the permit back; harmless when that has been done. False when it was lost: others counted without it.

        An error of the client comes through as it is; the permit can then be released again, or ends with its lease.
        """
        with self._guard:
            if not self._over:
                self.lost = not self.gate._release(self)
                self._over = True
            return not self.lost

    def __enter__(self) -> Permit:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # What the block has got from the provider is paid for: no trouble with the permit may throw it away.
        try:
            kept = self.release()
        except Exception as trouble:  # noqa: BLE001 - as above; the lease gives back what this could not
            says = f"Permit {self.fence} of gate {self.gate.name} was not given back ({trouble}); its lease ends it."
            logger.warning(says)
            if error is not None:
                error.add_note(says)
        else:
            if not kept:
                logger.warning(
                    "Permit %d of gate %s was lost before its block ended: the lease of %g s is too short, or was not "
                    "renewed. One more than the cap may have been in.",
                    *(self.fence, self.gate.name, self.gate.lease),
                )

    def __repr__(self) -> str:
        state = "lost" if self.lost else "over" if self._over else "held"
        return f"<Permit {self.fence} of {self.gate.name}, {state}>"
