"""Every schedule of workers at a gate: who comes, waits, looks, holds, is slow, is killed; clocks that differ."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from labkit import Lab
from labkit.routing.gate import Gate, GateFull, Permit, PermitLost, State
from labkit.routing.gate_waiter import Waiter

LEASE, SKEW, PLACE = 20.0, 1.0, 6.0
# Each worker's clock, against the true one: no two are more than the skew apart.
CLOCKS = (0.0, SKEW / 2, -SKEW / 2)


@dataclass
class Now:
    true: float = 1_900_000_000.0


class Schedules(RuleBasedStateMachine):
    """A model beside the item says who holds what, by the holders' own clocks.

    The promises: a grant never makes more than ``cap`` who count on their permits; fences grow; what is given back is
    one permit; a grant leaves one for each who is ahead; and nothing stays shut.
    """

    lab: Lab
    runs: Iterator[int]

    def __init__(self) -> None:
        super().__init__()
        self.now, self.cap, self.fence = Now(), 2, 0
        name = f"gate-{next(self.runs)}"
        options: dict[str, Any] = {"lease": LEASE, "skew": SKEW, "place": PLACE, "most_waiting": 6}
        Gate.create(self.lab, name, cap=self.cap, **options)
        client, table = self.lab.client("dynamodb"), self.lab.resource_name("gates")
        self.workers = [
            Gate(client, table, name, clock=lambda apart=apart: self.now.true + apart, **options)  # type: ignore[misc]
            for apart in CLOCKS
        ]
        self.held: list[Permit] = []
        self.waiters: list[Waiter] = []

    def look(self) -> State:
        return self.workers[0].look()

    def counting(self) -> list[Permit]:
        """Permits whose holders count on them: their own clock says that the lease runs."""
        return [permit for permit in self.held if not permit.over and permit.gate.clock() < permit.until]

    def granted(self, permit: Permit, was: State) -> None:
        assert permit.fence > self.fence, "a fence that is not larger"
        self.fence = permit.fence
        self.held.append(permit)
        assert len(self.counting()) <= self.cap, "more are in than the cap"
        stands = self.look()
        assert stands.taken <= self.cap
        assert permit.id in stands.permits
        # Whoever was ahead, and still looks, finds a permit free after this grant as well.
        before = permit.gate.clock() - SKEW
        mine = was.waiting.get(permit.id, float("inf"))
        for id, number in stands.waiting.items():
            if number < mine and float(stands.alive[id]) >= before:
                assert stands.ahead(id, before) < stands.free(before), "a later one took the permit of an earlier one"

    def step(self, waiter: Waiter, moved: Sequence[State] = ()) -> None:
        was = self.look()
        try:
            found = waiter.step()
        except GateFull:
            self.waiters.remove(waiter)
            assert len(was.waiting) >= 6
            return
        if isinstance(found, Permit):
            self.waiters.remove(waiter)
            self.granted(found, moved[-1] if moved else was)
        else:
            assert 0 < found <= 1
            assert waiter.me in self.look().waiting

    @rule(worker=st.sampled_from(range(3)))
    def comes_and_does_not_wait(self, worker: int) -> None:
        gate, was = self.workers[worker], self.look()
        before = gate.clock() - SKEW
        try:
            permit = gate.permit()
        except GateFull:
            assert was.free(before) <= was.ahead("", before), "refused, and a permit was free"
        else:
            self.granted(permit, was)

    @rule(worker=st.sampled_from(range(3)))
    def comes_and_waits(self, worker: int) -> None:
        self.waiters.append(Waiter(self.workers[worker], 1e6))
        self.step(self.waiters[-1])

    @precondition(lambda self: self.waiters)
    @rule(data=st.data())
    def looks(self, data: st.DataObject) -> None:
        self.step(data.draw(st.sampled_from(self.waiters)))

    @precondition(lambda self: self.waiters)
    @rule(data=st.data(), faster=st.sampled_from(["comes", "waits", "looks", "renews", "resizes"]))
    def looks_and_another_is_faster(self, data: st.DataObject, faster: str) -> None:
        """Between what this one has seen and what it writes, another one moves."""
        waiter = data.draw(st.sampled_from(self.waiters))
        item, moved = waiter.gate.item, []

        def raced(*arguments: Any) -> Any:
            del item.take  # the next call is the real one
            if faster == "comes":
                self.comes_and_does_not_wait(data.draw(st.integers(0, 2)))
            elif faster == "waits":
                self.comes_and_waits(data.draw(st.integers(0, 2)))
            elif faster == "looks" and len(self.waiters) > 1:
                self.step(data.draw(st.sampled_from([each for each in self.waiters if each is not waiter])))
            elif faster == "renews" and self.held:
                self.renews(data)
            elif faster == "resizes":
                self.the_cap_changes(data.draw(st.integers(0, 3)))
            moved.append(self.look())
            return item.take(*arguments)

        item.take = raced  # type: ignore[method-assign, assignment]
        try:
            self.step(waiter, moved)
        finally:
            vars(item).pop("take", None)

    @precondition(lambda self: self.waiters)
    @rule(data=st.data())
    def stops_waiting(self, data: st.DataObject) -> None:
        waiter = data.draw(st.sampled_from(self.waiters))
        self.waiters.remove(waiter)
        if data.draw(st.booleans()):  # else it is killed
            waiter.leave()

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def gives_back(self, data: st.DataObject) -> None:
        permit = data.draw(st.sampled_from(self.held))
        self.held.remove(permit)
        counted, was = permit in self.counting() or permit.gate.clock() < permit.until, self.look()
        kept = permit.release()
        gone = set(was.permits) - set(self.look().permits)
        assert gone == ({permit.id} if kept else set()), "not exactly one was freed"
        assert kept or not counted, "a permit was lost while its holder counted on it"

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def renews(self, data: st.DataObject) -> None:
        permit = data.draw(st.sampled_from(self.held))
        counted, there = permit.gate.clock() < permit.until, permit.id in self.look().permits
        try:
            permit.renew()
        except PermitLost:
            assert not there
            assert not counted, "a permit was lost while its holder counted on it"
            self.held.remove(permit)
        else:
            assert there
            assert permit.gate.clock() + LEASE - permit.until < 0.002
        assert len(self.counting()) <= max(self.cap, self.look().taken)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def is_killed(self, data: st.DataObject) -> None:
        self.held.remove(data.draw(st.sampled_from(self.held)))

    @rule(cap=st.sampled_from([0, 1, 2, 3]))
    def the_cap_changes(self, cap: int) -> None:
        self.workers[0].resize(cap)
        self.cap = cap

    @rule(seconds=st.sampled_from([SKEW / 2, PLACE + 2 * SKEW, LEASE - SKEW / 2, LEASE, LEASE + SKEW / 2]))
    def time_passes(self, seconds: float) -> None:
        self.now.true += seconds

    @rule(worker=st.sampled_from(range(3)), over=st.sampled_from([-SKEW / 2, SKEW, 2.5 * SKEW]))
    def all_are_slow(self, worker: int, over: float) -> None:
        """The gate is filled, and nobody gives back in time."""
        for _ in range(self.cap):
            self.comes_and_does_not_wait(worker)
        self.now.true += LEASE + over

    @invariant()
    def places_and_their_leases_agree(self) -> None:
        stands = self.look()
        assert stands.waiting.keys() == stands.alive.keys()
        assert not stands.waiting.keys() & stands.permits.keys()

    def teardown(self) -> None:
        self.now.true += LEASE + PLACE + 3 * SKEW  # every worker is gone
        gate = self.workers[2]
        for _ in range(self.cap):
            gate.permit()  # or the gate is shut
        assert self.look().taken == self.cap or not self.cap


def test_no_schedule_lets_in_too_many_or_shuts_the_gate(lab: Lab) -> None:
    machine = type("InThisLab", (Schedules,), {"lab": lab, "runs": itertools.count()})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
