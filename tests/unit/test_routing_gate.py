"""The gate on a real table: what one permit does, what is refused, and what stays when a call is cut off."""

from __future__ import annotations

import io
import json
import logging
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError

from labkit import Lab, facts
from labkit.routing.gate import Gate, GateError, GateFull, Permit, PermitLost, limits
from labkit.routing.gate_waiter import Waiter

LEASE, SKEW = 60.0, 1.0


@dataclass
class Clock:
    """Time that passes only while somebody sleeps."""

    now: float = 1_900_000_000.0
    meanwhile: Callable[[], object] = field(default=lambda: None)
    slept: list[float] = field(default_factory=list)

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds
        self.meanwhile()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def gate(lab: Lab, clock: Clock) -> Gate:
    return Gate.create(lab, "overflow", cap=2, lease=LEASE, skew=SKEW, clock=clock, sleep=clock.sleep)


def other(gate: Gate, **options: Any) -> Gate:
    """The same gate as another worker opens it."""
    options = {"lease": LEASE, "skew": SKEW, "clock": gate.clock, "sleep": gate.sleep, **options}
    return Gate(gate.item.client, gate.item.table, gate.name, **options)


class Calls:
    """Counts what goes over the wire, by operation."""

    def __init__(self, client: Any) -> None:
        self.seen: Counter[str] = Counter()
        for operation in ("UpdateItem", "GetItem"):
            client.meta.events.register(f"before-send.dynamodb.{operation}", self)

    def __call__(self, request: Any, **_: Any) -> None:
        self.seen[request.headers["X-Amz-Target"].decode().rpartition(".")[2]] += 1


# -- in and out --------------------------------------------------------------------------------------------------------


def test_permits_up_to_the_cap_and_then_the_gate_is_full(gate: Gate, clock: Clock) -> None:
    first = gate.permit()
    clock.now += 15
    with gate.permit() as second:
        assert second.fence > first.fence
        with pytest.raises(
            GateFull, match=r"overflow is full: 2 of 2 permits are out and 0 wait; the next lease ends in 45\.0 s"
        ) as full:
            gate.permit()
    assert (full.value.taken, full.value.cap, full.value.waiting) == (2, 2, 0)
    assert full.value.next_end == first.until == clock.now + LEASE - 15
    assert full.value.retry_in == LEASE - 15 + SKEW
    assert gate.permit().fence > second.fence


def test_one_write_to_go_in_and_one_to_come_out(gate: Gate) -> None:
    calls = Calls(gate.item.client)
    with gate.permit(within=5):
        pass
    assert calls.seen == {"UpdateItem": 2}


def test_all_who_open_the_gate_share_it(gate: Gate) -> None:
    held = [gate.permit(), other(gate).permit()]
    for each in (gate, other(gate)):
        with pytest.raises(GateFull):
            each.permit()
    assert other(gate).look().taken == 2
    assert [permit.release() for permit in held] == [True, True]
    assert gate.look().taken == 0


def test_gates_in_one_table_do_not_count_each_other(lab: Lab, gate: Gate) -> None:
    gate.permit(), gate.permit()
    assert Gate.create(lab, "primary", cap=1).permit().fence == 1


def test_giving_back_twice_frees_one(gate: Gate) -> None:
    first, second = gate.permit(), gate.permit()
    assert [first.release(), first.release()] == [True, True]
    assert set(gate.look().permits) == {second.id}
    with pytest.raises(GateError, match="has been given back"):
        first.renew()


def test_a_block_that_raises_gives_its_permit_back(gate: Gate) -> None:
    with pytest.raises(ValueError, match="429"), gate.permit():
        raise ValueError("429")
    assert gate.look().taken == 0


# -- the lease ---------------------------------------------------------------------------------------------------------


def test_a_permit_that_nobody_gives_back_is_had_again_after_its_lease(gate: Gate, clock: Clock) -> None:
    dead = [gate.permit(), gate.permit()]
    clock.now += LEASE + SKEW
    with pytest.raises(GateFull):
        gate.permit()
    clock.now += 0.001
    again = gate.permit()
    assert again.fence > dead[1].fence
    assert gate.look().permits == {again.id: f"{again.until:.3f}".rstrip("0").rstrip(".")}  # both went in one write


def test_who_waits_is_in_when_the_first_lease_is_over(gate: Gate, clock: Clock) -> None:
    dead = gate.permit()
    clock.now += 10
    gate.permit()
    permit = gate.permit(within=300)
    assert dead.until + SKEW < clock.now <= dead.until + SKEW + 1  # a waiter looks once a second at least
    assert gate.look().waiting == {}
    assert permit.until == pytest.approx(clock.now + LEASE, abs=0.001)


def test_a_renewed_lease_keeps_others_out(gate: Gate, clock: Clock) -> None:
    held = [gate.permit(), gate.permit()]
    for _ in range(3):
        clock.now += LEASE * 0.9
        for permit in held:
            permit.renew()
            permit.check()
        with pytest.raises(GateFull):
            gate.permit()


def test_a_holder_that_slept_through_its_lease_learns_it(gate: Gate, clock: Clock) -> None:
    frozen = gate.permit()
    clock.now += LEASE
    with pytest.raises(PermitLost, match=r"permit 1 of gate overflow is lost: its lease has run out"):
        frozen.check()
    clock.now += SKEW + 1
    gate.permit(), gate.permit()
    for _ in range(2):
        with pytest.raises(PermitLost, match="it was taken over"):
            frozen.renew()
    assert (frozen.lost, frozen.over, frozen.release()) == (True, True, False)
    assert gate.look().taken == 2  # nothing of the others' was given back


def test_giving_back_what_was_taken_over_gives_back_nothing(gate: Gate, clock: Clock) -> None:
    frozen = gate.permit()
    clock.now += LEASE + SKEW + 1
    held = {gate.permit().id, gate.permit().id}
    assert frozen.release() is False
    assert frozen.lost
    assert set(gate.look().permits) == held


def test_a_block_that_lost_its_permit_keeps_its_answer_and_says_so(
    gate: Gate, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    def ask() -> str:
        with gate.permit():
            clock.now += LEASE + SKEW + 1
            gate.permit(), gate.permit()
            return "paid for"

    assert ask() == "paid for"
    assert "Permit 1 of gate overflow was lost before its block ended" in caplog.text


def test_a_lease_that_ran_out_can_be_renewed_while_nobody_has_it(gate: Gate, clock: Clock) -> None:
    slow = gate.permit()
    clock.now += LEASE * 10
    slow.renew()
    slow.check()
    gate.permit()
    with pytest.raises(GateFull):
        gate.permit()  # it has counted all the time


def test_no_renewal_makes_a_lease_shorter(gate: Gate, clock: Clock) -> None:
    permit = gate.permit()
    until = permit.until
    clock.now -= 30  # the clock was set back
    permit.renew()
    assert permit.until == until
    assert other(gate).item.renew(permit.id, until - 50) == until  # or the copy of an older call comes late


@pytest.mark.parametrize("apart", [SKEW, -SKEW])
def test_a_clock_within_the_skew_takes_nothing_from_who_counts_on_it(gate: Gate, clock: Clock, apart: float) -> None:
    theirs = other(gate, clock=lambda: clock.now + apart)
    held = [gate.permit(), gate.permit()]
    clock.now = held[0].until - 0.001
    for permit in held:
        permit.check()  # by its own clock it is in
    with pytest.raises(GateFull):
        theirs.permit()
    clock.now = held[0].until + 2 * SKEW + 0.001  # and at last it is had, by the slowest clock too
    theirs.permit()


# -- the cap -----------------------------------------------------------------------------------------------------------


def test_a_raised_cap_holds_at_once_for_everybody(gate: Gate) -> None:
    theirs = other(gate)
    gate.permit(), gate.permit()
    gate.resize(3)
    theirs.permit()
    with pytest.raises(GateFull, match="3 of 3"):
        theirs.permit()


def test_a_lowered_cap_sends_nobody_away_and_lets_nobody_in(gate: Gate) -> None:
    gate.resize(4)
    held = [gate.permit() for _ in range(4)]
    other(gate).resize(2)
    for left in (4, 3, 2):
        with pytest.raises(GateFull, match=f"{left} of 2 permits are out"):
            gate.permit()
        for permit in held:
            permit.renew()
        held.pop().release()
    gate.permit()
    with pytest.raises(GateFull, match="2 of 2"):
        gate.permit()


def test_a_cap_of_zero_shuts_the_gate(gate: Gate) -> None:
    gate.resize(0)
    with pytest.raises(GateFull, match=r"0 of 0 permits are out and 0 wait\. Waited") as full:
        gate.permit()
    assert (full.value.next_end, full.value.retry_in) == (None, 0.0)


def test_a_waiter_gets_in_when_the_cap_is_raised(gate: Gate, clock: Clock) -> None:
    gate.permit(), gate.permit()
    clock.meanwhile = lambda: gate.resize(3) if len(clock.slept) == 5 else None
    gate.permit(within=10)
    assert len(clock.slept) == 5


def test_creating_again_says_the_cap_and_keeps_who_is_in(lab: Lab, gate: Gate) -> None:
    permit = gate.permit()
    assert set(Gate.create(lab, "overflow", cap=5).look().permits) == {permit.id}
    assert gate.look().cap == 5


def test_a_lowered_cap_and_many_dead_ones_do_not_shut_the_gate(gate: Gate, clock: Clock) -> None:
    gate.resize(130)
    stuff(gate, permits=130, until=clock.now - 10)
    gate.resize(5)
    held = [gate.permit() for _ in range(5)]
    assert set(gate.look().permits) == {permit.id for permit in held}
    with pytest.raises(GateFull):
        gate.permit()


# -- waiting -----------------------------------------------------------------------------------------------------------


def stuff(gate: Gate, *, permits: int = 0, places: int = 0, until: float) -> None:
    """Put entries into the item, as workers that are gone have left them."""
    ends = {"N": f"{until:.3f}"}
    ids = [f"waiting-{n:03d}" for n in range(places)]
    gate.item.client.update_item(
        TableName=gate.item.table,
        Key={"pk": {"S": gate.name}},
        UpdateExpression="SET permits = :p, waiting = :w, alive = :a, fence = :f",
        ExpressionAttributeValues={
            ":p": {"M": {f"permit-{n:04d}": ends for n in range(permits)}},
            ":w": {"M": {id: {"N": str(n)} for n, id in enumerate(ids)}},
            ":a": {"M": dict.fromkeys(ids, ends)},
            ":f": {"N": str(1_000_000)},
        },
    )


def test_a_wait_ends_in_time_and_leaves_no_place(gate: Gate, clock: Clock) -> None:
    held = [gate.permit(), gate.permit()]
    began = clock.now
    with pytest.raises(GateFull, match=r"Waited for 7\.5 s") as full:
        gate.permit(within=7.5)
    assert clock.now - began == pytest.approx(7.5)
    assert full.value.waited == pytest.approx(7.5)
    assert (gate.look().waiting, gate.look().alive) == ({}, {})
    assert all(permit.release() for permit in held)
    calls = Calls(gate.item.client)
    gate.permit()
    assert calls.seen == {"UpdateItem": 1}  # the ordinary way again


def test_a_clock_that_is_set_back_makes_no_wait_longer(gate: Gate, clock: Clock) -> None:
    gate.permit(), gate.permit()

    def back() -> None:
        clock.now -= 3600 if len(clock.slept) == 3 else 0

    clock.meanwhile = back
    with pytest.raises(GateFull):
        gate.permit(within=5)
    assert sum(clock.slept) <= 5 + 1e-9


def test_who_waits_does_not_hammer_the_table(gate: Gate, clock: Clock) -> None:
    held = [gate.permit(), gate.permit()]

    def renewed() -> None:
        for permit in held:
            permit.renew()

    clock.meanwhile = lambda: renewed() if len(clock.slept) % 20 == 0 else None
    calls = Calls(gate.item.client)
    with pytest.raises(GateFull):
        gate.permit(within=60)
    assert max(clock.slept) <= 1
    assert calls.seen.total() < 180  # 3 a second at the most, of which
    assert calls.seen["UpdateItem"] < 60  # writes: the place, kept every three seconds, and the renewals of this test
    assert min(clock.slept[:5]) < 0.05  # and a short wait is not made a long one


def test_the_order_of_coming_holds_however_many_come_after(gate: Gate, clock: Clock) -> None:
    """With k places ahead it is a waiter's turn after k + 1 permits have ended, at the latest."""
    held = [gate.permit(), gate.permit()]
    workers = [other(gate) for _ in range(3)]
    waiters = [Waiter(workers[n % 3], 1000) for n in range(6)]
    for waiter in waiters:
        assert not isinstance(waiter.step(), Permit)
    for k, waiter in enumerate(waiters):
        assert held.pop(0).release()
        for _ in range(3):
            with pytest.raises(GateFull):
                gate.permit()  # a free permit is kept for the first
        for later in reversed(waiters[k + 1 :]):
            assert not isinstance(later.step(), Permit)
        permit = waiter.step()
        assert isinstance(permit, Permit)
        held.append(permit)
    assert gate.look().waiting == {}


def test_two_free_permits_are_for_the_first_two(gate: Gate) -> None:
    held = [gate.permit(), gate.permit()]
    first, second, third = (Waiter(gate, 1000) for _ in range(3))
    for waiter in (first, second, third):
        waiter.step()
    for permit in held:
        permit.release()
    assert not isinstance(third.step(), Permit)
    assert isinstance(second.step(), Permit)
    assert not isinstance(third.step(), Permit)
    assert isinstance(first.step(), Permit)


def test_of_two_who_have_seen_the_same_free_permit_one_gets_it(gate: Gate, clock: Clock) -> None:
    gate.permit()
    seen, before = gate.look(), clock.now - SKEW
    first, second = (gate.item.take(me, clock.now + LEASE, seen, before) for me in ("first", "second"))
    assert isinstance(first, int)
    assert not isinstance(second, int)
    assert second.taken == 2


def test_a_newcomer_whose_clock_is_fast_is_behind_who_came_meanwhile(gate: Gate, clock: Clock) -> None:
    gate.permit(), gate.permit()
    clock.now += LEASE + SKEW / 2
    seen, over = gate.look(), clock.now + SKEW  # by this clock two are free and nobody waits
    waiter = Waiter(gate, 1000)
    waiter.step()  # by this one they are not
    found = gate.item.take("newcomer", over + LEASE, seen, over - SKEW / 2)
    assert not isinstance(found, int)
    assert (set(found.waiting), found.taken) == ({waiter.me}, 2)


def test_who_lost_its_place_does_not_go_in_with_it(gate: Gate, clock: Clock) -> None:
    held = [gate.permit(), gate.permit()]
    frozen = Waiter(gate, 1000)
    frozen.step()
    clock.now += gate.place + SKEW + 1
    held.pop().release()
    seen = gate.look()
    gate.permit()  # sweeps the place
    held.pop().release()
    found = gate.item.take(frozen.me, clock.now + LEASE, seen, clock.now - SKEW)
    assert not isinstance(found, int)
    assert frozen.me not in found.waiting
    assert found.taken == 1


def test_a_dead_waiter_holds_up_nobody_for_longer_than_its_place(gate: Gate, clock: Clock) -> None:
    held = [gate.permit(), gate.permit()]
    dead = Waiter(gate, 1000)
    dead.step()
    began = clock.now
    held[0].release()
    gate.permit(within=60)
    assert gate.place + SKEW < clock.now - began < gate.place + SKEW + 1.5
    assert not isinstance(dead.step(), Permit)  # it wakes: its place is gone, it has another one
    assert set(gate.look().waiting) == {dead.me}


def test_a_place_is_kept_for_as_long_as_its_waiter_looks(gate: Gate, clock: Clock) -> None:
    gate.permit(), gate.permit()
    waiter = Waiter(gate, 1000)
    for _ in range(30):
        waiter.step()
        clock.now += 1
    number = gate.look().waiting[waiter.me]
    assert gate.look().ahead(waiter.me, clock.now - SKEW) == 0
    assert float(gate.look().alive[waiter.me]) > clock.now
    assert number == gate.look().fence - 1


def test_places_of_the_dead_keep_nobody_out(lab: Lab, gate: Gate, clock: Clock) -> None:
    gate.resize(1)
    stuff(gate, places=gate.most_waiting, until=clock.now - 10)
    permit = gate.permit()  # a free permit is had
    assert len(gate.look().waiting) < gate.most_waiting
    waiter = Waiter(gate, 100)
    waiter.step()
    assert waiter.me in gate.look().waiting  # and a place, where none is free
    permit.release()
    assert isinstance(waiter.step(), Permit)


def test_no_more_than_so_many_may_wait(gate: Gate) -> None:
    gate = other(gate, most_waiting=2)
    gate.permit(), gate.permit()
    waiters = [Waiter(gate, 10) for _ in range(2)]
    for waiter in waiters:
        waiter.step()
    with pytest.raises(GateFull, match=r"2 wait; .* No more than 2 may wait"):
        gate.permit(within=10)
    assert set(gate.look().waiting) == {waiter.me for waiter in waiters}


def test_who_is_interrupted_while_it_waits_leaves_its_place(gate: Gate, clock: Clock) -> None:
    gate.permit(), gate.permit()

    def interrupt() -> None:
        raise KeyboardInterrupt

    clock.meanwhile = interrupt
    with pytest.raises(KeyboardInterrupt):
        gate.permit(within=10)
    assert gate.look().waiting == {}


# -- when calls are cut off --------------------------------------------------------------------------------------------


class Raw(io.BytesIO):
    def stream(self, **_: Any) -> Any:
        yield self.read()


class Faults:
    """Cuts off the next writes of a client below the SDK, which tries twice in all: ``lost`` ones are heard and
    their answer is not, ``unheard`` ones never arrive."""

    def __init__(self, client: Any, kind: str, times: int, *, code: str = "InternalServerError") -> None:
        self.client, self.kind, self.times, self.code = client, kind, times, code
        client.meta.events.register("before-send.dynamodb.UpdateItem", self.fault)

    def fault(self, request: Any, **_: Any) -> AWSResponse | None:
        if not self.times:
            return None
        self.times -= 1
        if self.kind == "lost":
            self.client._endpoint.http_session.send(request)
        status = 500 if self.code == "InternalServerError" else 400
        body = json.dumps({"__type": f"com.amazonaws.dynamodb.v20120810#{self.code}", "message": "cut off"}).encode()
        return AWSResponse(request.url, status, {}, Raw(body))


TRIES = 2  # of a lab's client
THROTTLED = "ProvisionedThroughputExceededException"


def test_the_sdk_tries_so_often(gate: Gate) -> None:
    assert gate.item.client.meta.config.retries["total_max_attempts"] == TRIES


@pytest.mark.parametrize("kind", ["lost", "unheard"])
def test_an_acquire_that_the_sdk_repeats_takes_one_permit(gate: Gate, kind: str) -> None:
    faults = Faults(gate.item.client, kind, 1)
    first = gate.permit()
    assert faults.times == 0
    assert set(gate.look().permits) == {first.id}
    second = gate.permit()
    assert second.fence > first.fence
    with pytest.raises(GateFull):
        gate.permit()


def test_a_release_that_the_sdk_repeats_frees_one_and_is_no_loss(gate: Gate) -> None:
    first, second = gate.permit(), gate.permit()
    Faults(gate.item.client, "lost", 1)
    assert first.release() is True
    assert set(gate.look().permits) == {second.id}


def test_a_renewal_that_the_sdk_repeats_is_one(gate: Gate, clock: Clock) -> None:
    permit = gate.permit()
    clock.now += 10
    Faults(gate.item.client, "lost", 1)
    permit.renew()
    assert permit.until == clock.now + LEASE
    assert permit.release()


def test_a_takeover_and_a_turn_that_the_sdk_repeats_take_one_permit(gate: Gate, clock: Clock) -> None:
    gate.permit(), gate.permit()
    clock.now += LEASE + SKEW + 1
    calls, faults = Calls(gate.item.client), Faults(gate.item.client, "lost", 1)
    taken = gate.permit()
    assert calls.seen == {"UpdateItem": 3}  # full, full again, and the take-over
    faults.times = 1
    held = gate.permit()
    assert held.fence > taken.fence
    waiter = Waiter(gate, 100)
    waiter.step()
    held.release()
    faults.times = 1
    turn = waiter.step()
    assert isinstance(turn, Permit)
    assert turn.fence > held.fence
    assert set(gate.look().permits) == {taken.id, turn.id}
    assert (gate.look().waiting, gate.look().alive) == ({}, {})


def test_a_take_over_whose_own_answer_is_lost_is_one(gate: Gate, clock: Clock) -> None:
    gate.permit(), gate.permit()
    clock.now += LEASE + SKEW + 1
    seen, before = gate.look(), clock.now - SKEW
    Faults(gate.item.client, "lost", 1)
    found = gate.item.take("me", clock.now + LEASE, seen, before)
    assert not isinstance(found, int)
    assert set(found.permits) == {"me"}
    assert gate.item.adopt("me", clock.now + LEASE) == found.fence + 1  # a fence that nobody else has got


def test_a_place_that_the_sdk_repeats_is_one_place(gate: Gate) -> None:
    gate.permit(), gate.permit()
    waiter = Waiter(gate, 100)
    place = gate.item.queue

    def lossy(*arguments: Any) -> Any:
        Faults(gate.item.client, "lost", 1)
        return place(*arguments)

    gate.item.queue = lossy  # type: ignore[method-assign, assignment]
    waiter.step()
    assert set(gate.look().waiting) == {waiter.me}


@pytest.mark.parametrize("code", ["InternalServerError", THROTTLED])
@pytest.mark.parametrize("kind", ["lost", "unheard"])
def test_an_acquire_that_is_cut_off_leaves_nothing(gate: Gate, kind: str, code: str) -> None:
    faults = Faults(gate.item.client, kind, TRIES, code=code)
    with pytest.raises(ClientError, match="cut off"):
        gate.permit(within=10)
    assert faults.times == 0
    assert (gate.look().permits, gate.look().waiting) == ({}, {})


def test_a_wait_that_is_cut_off_leaves_no_place(gate: Gate, clock: Clock) -> None:
    gate.permit(), gate.permit()
    faults = Faults(gate.item.client, "lost", 0)

    def cut() -> None:
        if len(clock.slept) == 20:
            faults.times = TRIES

    clock.meanwhile = cut
    with pytest.raises(ClientError, match="cut off"):
        gate.permit(within=20)
    assert gate.look().waiting == {}


def test_an_acquire_that_cannot_even_be_taken_back_ends_with_its_lease(gate: Gate, clock: Clock) -> None:
    faults = Faults(gate.item.client, "lost", TRIES)
    heard = faults.fault

    def then_unheard(**arguments: Any) -> Any:
        if not faults.times and faults.kind == "lost":
            faults.kind, faults.times = "unheard", TRIES
        return heard(**arguments)

    gate.item.client.meta.events.unregister("before-send.dynamodb.UpdateItem", faults.fault)
    gate.item.client.meta.events.register("before-send.dynamodb.UpdateItem", then_unheard)
    with pytest.raises(ClientError) as cut:
        gate.permit()
    assert "its lease ends it" in cut.value.__notes__[0]
    assert gate.look().taken == 1
    clock.now += LEASE + SKEW + 1
    gate.permit(), gate.permit()


def test_a_release_that_is_cut_off_can_be_made_again(gate: Gate) -> None:
    permit = gate.permit()
    Faults(gate.item.client, "lost", TRIES)
    with pytest.raises(ClientError):
        permit.release()
    assert not permit.over
    assert permit.release() is True
    assert gate.look().taken == 0


def test_a_block_keeps_its_answer_where_the_release_is_cut_off(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    def ask() -> str:
        with gate.permit():
            Faults(gate.item.client, "unheard", TRIES)
            return "paid for"

    with caplog.at_level(logging.WARNING):
        assert ask() == "paid for"
    assert "was not given back" in caplog.text
    assert gate.look().taken == 1  # until its lease is over


def test_a_grant_that_comes_after_its_lease_is_renewed_before_it_counts(gate: Gate, clock: Clock) -> None:
    def slow(**_: Any) -> None:
        clock.now += LEASE + 1

    event = "before-send.dynamodb.UpdateItem"
    gate.item.client.meta.events.register(event, slow, unique_id="slow")
    gate.item.client.meta.events.register(
        event, lambda **_: gate.item.client.meta.events.unregister(event, unique_id="slow")
    )
    permit = gate.permit()
    permit.check()
    assert permit.until == clock.now + LEASE


# -- bounds ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"cap": -1}, "cap must be a whole number of at least 0; got -1"),
        ({"cap": 2.5}, "cap must be a whole number"),
        ({"cap": 100_000}, r"a cap of 100000 and 200 who wait need 2,\d+,\d+ bytes; an item has at most 409,600"),
        ({"lease": 0}, "a lease is longer than clocks differ, 1 s; it is 0 s"),
        ({"lease": 5, "skew": 5}, "a lease is longer than clocks differ"),
        ({"lease": float("nan")}, "lease must be"),
        ({"lease": 1e9}, "lease must be from 0 to 86400 s"),
        ({"skew": -1}, "skew must be"),
        ({"place": 1}, "place must be from 3 to"),
        ({"most_waiting": -1}, "most_waiting must be a whole number"),
        ({"most_waiting": 10**6}, "who wait need"),
    ],
)
def test_settings_have_bounds_and_nothing_is_made_then(lab: Lab, options: dict[str, Any], says: str) -> None:
    with pytest.raises(GateError, match=says):
        Gate.create(lab, "overflow", **{"cap": 2, **options})
    assert lab.client("dynamodb").list_tables()["TableNames"] == []


@pytest.mark.parametrize("name", ["", "x" * 2049, 5])
def test_names_have_bounds(lab: Lab, name: Any) -> None:
    with pytest.raises(GateError, match="a name of 1 to 2048 bytes"):
        Gate(lab.client("dynamodb"), "gates", name)


def test_other_refusals_are_sentences(lab: Lab, gate: Gate) -> None:
    with pytest.raises(GateError, match="within must be"):
        gate.permit(within=-1)
    nowhere = Gate(gate.item.client, gate.item.table, "nowhere")
    for move in (nowhere.permit, nowhere.look, lambda: nowhere.resize(1)):
        with pytest.raises(GateError, match=r"there is no gate nowhere in table gates; Gate\.create makes it"):
            move()
    with pytest.raises(GateError, match="cap must be"):
        gate.resize(-1)
    lab.client("dynamodb").create_table(
        TableName="other",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    with pytest.raises(GateError, match="table other exists with other keys"):
        Gate.create(lab, "overflow", cap=1, table="other")


def size_of(value: dict[str, Any]) -> int:
    """AWS's rules for the size of an attribute (developer guide, item sizes and formats)."""
    ((kind, of),) = value.items()
    if kind == "S":
        return len(of.encode())
    if kind == "N":
        digits = of.replace(".", "").replace("-", "").strip("0")
        return math.ceil(len(digits) / 2) + 1
    return 3 + sum(len(key.encode()) + size_of(each) + 1 for key, each in of.items())


@pytest.mark.parametrize(("cap", "waiting"), [(1, 0), (50, 0), (100, 200), (1000, 0)])
def test_the_size_that_is_said_is_the_items(lab: Lab, clock: Clock, cap: int, waiting: int) -> None:
    gate = Gate.create(lab, "overflow", cap=cap)
    stuff(gate, permits=cap, places=waiting, until=clock.now + 0.123)
    key = {"pk": {"S": gate.name}}
    item = gate.item.client.get_item(TableName=gate.item.table, Key=key)["Item"]
    size = sum(len(name) + size_of(value) for name, value in item.items())
    said = limits(cap, waiting, name=gate.name)
    assert size <= said.size <= size * 1.1 + 40
    assert said.units == math.ceil(said.size / 1024)
    assert said.size < int(facts("dynamodb.item.max_bytes"))


def test_limits_in_permits_a_second() -> None:
    assert limits(10) == (280, 1, 500.0)
    assert limits(50, 100) == (4880, 5, 50.0)
    assert limits(1000).permits == pytest.approx(1000 / 20 / 2)
