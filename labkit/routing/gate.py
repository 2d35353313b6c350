"""A gate: no more than so many calls at a provider, from the whole fleet.

A limit inside a process knows the process. A fleet of 60 workers with a limit of 4 each sends 240 calls; and when the
primary model answers 429, all of them turn to the fallback at once, which falls over as well. What must hold for all
workers together is counted in one place that all of them can see, here one item of a DynamoDB table::

    gate = Gate.create(lab, "overflow", cap=4, lease=60)
    with gate.permit(within=5) as permit:      # waits for 5 s at most, then GateFull: back to the queue with it
        answer = provider.complete(prompt)

* **Permit**: one conditional write while fewer than ``cap`` are out, and one to give it back.
* **Lease**: a permit ends by itself, so that a worker that is killed takes none with it. Longer than a call can take,
  or renewed by whatever beats beside it: ``permit.renew``. No thread is started here, and no call is made in between.
* **Fence**: ``permit.fence`` grows with every grant. A worker that slept through its lease may still be in its call:
  the gate cannot stop it, and another may be in its place. It learns so from ``renew()``, ``check()``, ``release()``.
* **Fair**: in the order of coming, see :mod:`labkit.routing.gate_waiter`.
* **Cap**: ``gate.resize(2)`` holds for everybody at once. Nobody is sent away: above the cap no permit is granted until
  enough have been given back. 0 shuts the gate.

Clocks are the workers' own, and none may be more than ``skew`` seconds apart from another: a lease is taken over no
sooner than ``skew`` after its end, so that its holder's own clock says too that it is over.

One item has one partition's writes, 1,000 units a second, and a unit writes 1 KB: :func:`limits` says how many permits
a second that is. Where that is too little, make several gates, each with its part of the cap and for its part of the
workers or of the provider's deployments: what each part does not use is not lent to the others, and the order of
coming holds within each.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from labkit.facts import facts
from labkit.models._input import ModelError, number, whole
from labkit.routing.gate_item import Item
from labkit.routing.gate_state import Limits, State, limits
from labkit.routing.gate_waiter import Waiter
from labkit.routing.permits import GateError, GateFull, Permit, PermitLost

if TYPE_CHECKING:
    from labkit.lab import Lab

__all__ = ["Gate", "GateError", "GateFull", "Limits", "Permit", "PermitLost", "State", "limits"]

_LONGEST = 86_400.0  # seconds: a lease of more than a day keeps a permit of the dead for longer than anybody waits
_TABLE = "gates"


class Gate:
    """The gate ``name`` in a table that :meth:`create` has made: what a worker opens, once a process.

    ``lease``: seconds that a permit holds unless renewed. ``skew``: seconds by which clocks in the fleet may differ.
    ``place``: seconds after which a waiter that does not look any more loses its place. ``most_waiting``: how many may
    wait, more are refused at once. ``clock`` gives epoch seconds, ``sleep`` waits for some. Raises :class:`GateError`
    for what cannot be. Threads may share one.
    """

    def __init__(
        self,
        client: Any,
        table: str,
        name: str,
        *,
        lease: float = 60.0,
        skew: float = 1.0,
        place: float = 6.0,
        most_waiting: int = 200,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        most = int(facts("dynamodb.key.partition.max_bytes"))
        if not isinstance(name, str) or not 1 <= len(name.encode(errors="replace")) <= most:
            raise GateError(f"a gate has a name of 1 to {most} bytes; got {name!r:.80}.")
        try:
            self.skew = number("skew", skew, high=_LONGEST, unit="s")
            self.lease = number("lease", lease, high=_LONGEST, unit="s")
            self.place = number("place", place, low=3.0, high=_LONGEST, unit="s")  # waiters look once a second
            self.most_waiting = whole("most_waiting", most_waiting, low=0)
        except ModelError as error:
            raise GateError(f"a gate cannot work so: {error}") from error
        if self.lease <= self.skew:
            raise GateError(f"a lease is longer than clocks differ, {self.skew:g} s; it is {lease!r} s.")
        self.name = name
        self.item = Item(client, table, name)
        self.clock, self.sleep = clock, sleep
        self._fits(0)

    @classmethod
    def create(cls, lab: Lab, name: str, *, cap: int, table: str = _TABLE, **options: Any) -> Gate:
        """Make the gate in ``lab``, or take the one that it has, with what is in it, and give it this ``cap``.

        For whoever sets the fleet up; a worker opens the gate with ``Gate(client, table, name)``, which leaves the cap
        as it stands. Gates may share a table. Raises :class:`GateError`, and nothing is made then.
        """
        from labkit.state import tables

        gate = cls(lab.client("dynamodb"), lab.resource_name(table), name, **options)
        gate._fits(cap)
        try:
            tables.ensure(lab, table, ("pk",))
        except tables.TableError as error:
            raise GateError(str(error)) from error
        gate.item.make(cap)
        return gate

    def permit(self, *, within: float = 0.0) -> Permit:
        """A permit, to be given back: ``with gate.permit(within=5): …``. Waits for ``within`` seconds at most.

        Raises :class:`GateFull`, with nothing held and no place kept. An error of the client (the table does not
        answer) comes through as it is, after one try to take back what may have been granted unheard; where that fails
        too, the lease ends it.
        """
        try:
            waiter = Waiter(self, number("within", within, high=_LONGEST, unit="s"))
        except ModelError as error:
            raise GateError(str(error)) from error
        try:
            while not isinstance(found := waiter.step(), Permit):
                self.sleep(found)
        except BaseException as error:
            if not isinstance(error, GateFull) or waiter.place_until is not None:
                self._leave(waiter, error)
            raise
        return found

    def resize(self, cap: int) -> None:
        """Let ``cap`` permits be out from now on. Where more are, none is granted until enough have ended."""
        self._fits(cap)
        self.item.resize(cap)

    def look(self) -> State:
        """The gate as it stands: ``cap``, ``taken``, ``permits`` (ends of leases by id), ``waiting``, ``next_end``."""
        return self.item.look()

    # ---------------------------------------------------------------------------------------------------------------

    def _before(self) -> float:
        """Leases that ended before this moment are over by the clock of whoever holds them, too."""
        return self.clock() - self.skew

    def _ends(self) -> float:
        """When a lease that begins now ends: to the millisecond, as it is stored."""
        return round(self.clock() + self.lease, 3)

    def _renew(self, permit: Permit) -> float | None:
        return self.item.renew(permit.id, self._ends())

    def _release(self, permit: Permit) -> bool:
        # Where the lease has not run out nobody has taken it: then it is our own call that was heard before.
        return self.item.release(permit.id) or self.clock() < permit.until

    def _leave(self, waiter: Waiter, error: BaseException) -> None:
        try:
            waiter.leave()
        except Exception as trouble:  # noqa: BLE001 - the first error is the news; the leases end by themselves
            error.add_note(f"What waited at gate {self.name} could not be taken back ({trouble}); its lease ends it.")

    def _fits(self, cap: int) -> None:
        try:
            whole("cap", cap, low=0)
        except ModelError as error:
            raise GateError(str(error)) from error
        size, most = limits(cap, self.most_waiting, name=self.name).size, int(facts("dynamodb.item.max_bytes"))
        if size > most:
            raise GateError(
                f"a cap of {cap} and {self.most_waiting} who wait need {size:,} bytes; an item has at most {most:,}."
            )

    def __repr__(self) -> str:
        return f"<Gate {self.name} in {self.item.table}>"
