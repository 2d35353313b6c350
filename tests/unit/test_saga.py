"""Sagas on a real table: no committed step without its way back, newest first, once each, whatever dies in between."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from labkit import Lab, facts
from labkit.models.windows import Window
from labkit.state import together
from labkit.state.idempotency import Busy, Fenced, IdempotencyError, IdempotencyStore, Work
from labkit.state.saga import SagaClosed, SagaError, Sagas, Step
from labkit.state.saga_log import MOST_DATA
from labkit.work.queues import Queue
from tests.clock import Clock

LEASE, WINDOW = 60.0, 10_000.0
SHORT = Window(event_age=0, retention=1)
SAGA = "booking-8842"


class World:
    """What the undos act on: what was undone, in order, and what is broken."""

    def __init__(self) -> None:
        self.undone: list[Any] = []
        self.broken: set[Any] = set()
        self.tried = 0

    def cancel(self, data: Any) -> None:
        self.tried += 1
        if data in self.broken:
            raise ConnectionError(f"{data} does not answer\x00")
        self.undone.append(data)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def store(lab: Lab, clock: Clock) -> IdempotencyStore:
    return IdempotencyStore.create(lab, "steps", lease=LEASE, window=WINDOW, covers=SHORT, clock=clock)


@pytest.fixture
def sagas(lab: Lab, store: IdempotencyStore, world: World) -> Sagas:
    return Sagas.create(lab, "bookings", store=store, undo={"cancel": world.cancel}, sleep=lambda _: None)


def named(step: str, saga: str = SAGA) -> Work:
    return Work.named(saga, step, {"of": step})


def do(sagas: Sagas, *steps: str, saga: str = SAGA) -> None:
    for name in steps:
        with sagas.step(saga, named(name, saga), undo="cancel") as step:
            step.complete(f"{name} done", name)


def numbers(sagas: Sagas, saga: str = SAGA) -> list[tuple[int, str, bool]]:
    return [(row.number, row.step, row.undone) for row in sagas.steps(saga)]


# -- forward -----------------------------------------------------------------------------------------------------------


def test_a_step_and_its_way_back_are_committed_together_in_order(sagas: Sagas) -> None:
    do(sagas, "room", "flight")
    assert numbers(sagas) == [(1, "room", False), (2, "flight", False)]
    assert [row.data for row in sagas.steps(SAGA)] == ["room", "flight"]
    with sagas.step(SAGA, named("room"), undo="cancel") as again:
        assert (again.done, again.result) == (True, "room done")
    assert len(sagas.steps(SAGA)) == 2


def test_two_workers_that_commit_at_once_both_do_under_numbers_of_their_own(sagas: Sagas) -> None:
    names = [f"step-{n}" for n in range(8)]
    ready = threading.Barrier(len(names), timeout=60)

    def one(name: str) -> None:
        with sagas.step(SAGA, named(name), undo="cancel") as step:
            ready.wait()  # every one has seen the same header
            step.complete(name, name)

    with ThreadPoolExecutor(len(names)) as pool:
        list(pool.map(one, names))
    assert sorted(row.step for row in sagas.steps(SAGA)) == names
    assert [row.number for row in sagas.steps(SAGA)] == list(range(1, len(names) + 1))


def test_a_worker_that_lost_its_claim_commits_neither_result_nor_way_back(sagas: Sagas, clock: Clock) -> None:
    late = sagas.step(SAGA, named("room"), undo="cancel")
    clock.now += LEASE + 1
    newer = sagas.step(SAGA, named("room"), undo="cancel")
    with pytest.raises(Fenced, match="a newer claim is at work"):
        late.complete("late", "late")
    assert sagas.steps(SAGA) == []
    newer.complete("in time", "in time")
    with pytest.raises(Fenced, match="a newer result stands"):
        late.complete("late", "late")
    assert [row.data for row in sagas.steps(SAGA)] == ["in time"]


def test_a_late_worker_learns_that_the_saga_is_taken_back_and_lets_go(sagas: Sagas, store: IdempotencyStore) -> None:
    with (  # noqa: PT012 - the saga is closed in the midst of the step
        pytest.raises(SagaClosed, match=r"step room was not recorded; what it did is to be undone here") as closed,
        sagas.step(SAGA, named("room"), undo="cancel") as step,
    ):
        assert sagas.compensate(SAGA).complete
        step.complete("done", {"booking": 7})
    assert (closed.value.begun, closed.value.data) == (True, {"booking": 7})
    assert sagas.steps(SAGA) == []
    record = store.look(named("room"))
    assert record is not None
    assert (record.done, record.lease_until) == (False, 0)
    with pytest.raises(SagaClosed, match="step flight is not to begin"):
        sagas.step(SAGA, named("flight"), undo="cancel")
    assert store.look(named("flight")) is None


def test_a_late_worker_cannot_commit_behind_what_is_undone(sagas: Sagas, world: World) -> None:
    do(sagas, "room")
    late = sagas.step(SAGA, named("flight"), undo="cancel")
    sagas.compensate(SAGA)
    with pytest.raises(SagaClosed, match="step flight was not recorded"):
        late.complete("done", "flight")
    assert numbers(sagas) == [(1, "room", True)]
    assert sagas.log.header(SAGA).phase == "compensating"


def test_a_step_that_raises_leaves_no_way_back_and_may_be_done_again(sagas: Sagas) -> None:
    with pytest.raises(ValueError, match="no room"), sagas.step(SAGA, named("room"), undo="cancel"):
        raise ValueError("no room")
    assert sagas.steps(SAGA) == []
    do(sagas, "room")
    assert numbers(sagas) == [(1, "room", False)]


@pytest.mark.parametrize("data", [float("nan"), object(), "x" * MOST_DATA, "\ud800"])
def test_data_that_cannot_be_stored_is_refused_with_its_step(sagas: Sagas, data: Any) -> None:
    def commit() -> None:
        with sagas.step(SAGA, named("room"), undo="cancel") as step:
            step.complete("done", data)

    with pytest.raises(SagaError, match=r"the undo data of step room of saga booking-8842"):
        commit()
    assert sagas.steps(SAGA) == []
    do(sagas, "room")


@pytest.mark.parametrize("saga", ["", "x" * 2049, None, "\ud800"])
def test_a_saga_has_an_id(sagas: Sagas, saga: Any) -> None:
    for call in (sagas.compensate, lambda s: sagas.step(s, named("room"), undo="cancel")):
        with pytest.raises(SagaError, match="a saga id is 1 to 2048 bytes"):
            call(saga)


def test_an_undo_that_nobody_knows_is_refused_before_the_work(sagas: Sagas, store: IdempotencyStore) -> None:
    with pytest.raises(SagaError, match="there is no undo 'cancle' for step room; known: cancel"):
        sagas.step(SAGA, named("room"), undo="cancle")
    assert store.look(named("room")) is None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"undo": {}}, "undo is a function for each name"),
        ({"undo": {"cancel": 1}}, "undo is a function for each name"),
        ({"tries": 0}, "tries must be a whole number of at least 1"),
        ({"store": "steps"}, "store is an IdempotencyStore"),
        ({"name": "no name!"}, "were not created"),
        ({"name": ""}, "sagas need a name"),
    ],
)
def test_what_cannot_be_makes_nothing(lab: Lab, store: IdempotencyStore, options: dict[str, Any], says: str) -> None:
    with pytest.raises(SagaError, match=says):
        Sagas.create(lab, **{"name": "bookings", "store": store, "undo": {"cancel": print}, **options})
    assert lab.client("dynamodb").list_tables()["TableNames"] == ["steps"]
    assert lab.client("sqs").list_queues().get("QueueUrls", []) == []


# -- back --------------------------------------------------------------------------------------------------------------


def test_undone_newest_first_once_each_with_the_data_of_the_step(sagas: Sagas, world: World) -> None:
    do(sagas, "room", "flight", "car")
    report = sagas.compensate(SAGA)
    assert [row.step for row in report.undone] == world.undone == ["car", "flight", "room"]
    again = sagas.compensate(SAGA)
    assert (again.undone, [row.step for row in again.already]) == ((), ["car", "flight", "room"])
    assert len(world.undone) == 3


def test_more_than_nine_steps_are_still_in_order(sagas: Sagas, world: World) -> None:
    names = [f"s{n}" for n in range(1, 13)]
    do(sagas, *names)
    sagas.compensate(SAGA)
    assert world.undone == names[::-1]


def test_sagas_are_apart(sagas: Sagas, world: World) -> None:
    do(sagas, "room")
    do(sagas, "boat", saga="other")
    sagas.compensate("other")
    assert world.undone == ["boat"]
    do(sagas, "flight")


def test_an_undo_that_is_recorded_stays_so_when_its_record_has_expired(
    sagas: Sagas, world: World, clock: Clock
) -> None:
    do(sagas, "room")
    sagas.compensate(SAGA)
    clock.now += WINDOW + LEASE + 2
    assert [row.step for row in sagas.compensate(SAGA).already] == ["room"]
    assert world.undone == ["room"]


def test_a_failing_undo_is_tried_then_parked_and_the_undos_behind_it_wait(sagas: Sagas, world: World) -> None:
    do(sagas, "room", "flight", "car")
    world.broken = {"flight"}
    report = sagas.compensate(SAGA)
    assert not report.complete
    assert report.failed is not None
    assert (report.failed.step, report.failed.parked) == ("flight", "ConnectionError: flight does not answer\x00")
    assert ([row.step for row in report.undone], [row.step for row in report.waiting]) == (["car"], ["room"])
    assert world.tried == 1 + 3
    again = sagas.compensate(SAGA)
    assert again.failed == report.failed
    assert world.tried == 1 + 3, "an undo that is parked is not tried again by itself"
    [message] = sagas.dlq.receive()
    assert message.json() == {
        "saga": "bookings", "saga_id": SAGA, "number": 2, "step": "flight", "undo": "cancel", "data": "flight",
        "reason": "ConnectionError: flight does not answer\x00",
    }  # fmt: skip


def test_redrive_goes_on_from_the_undo_that_failed(sagas: Sagas, world: World) -> None:
    do(sagas, "room", "flight", "car")
    world.broken = {"flight"}
    sagas.compensate(SAGA)
    [still] = sagas.redrive()
    assert still.failed is not None
    assert world.tried == 1 + 3 + 3
    assert sagas.dlq.depth().total == 1, "one message, however often it is redriven"
    world.broken = {"room"}
    [next_one] = sagas.redrive()
    assert next_one.failed is not None
    assert (world.undone, next_one.failed.step) == (["car", "flight"], "room")
    assert sagas.dlq.depth().total == 1
    world.broken = set()
    [last] = sagas.redrive()
    assert last.complete
    assert world.undone == ["car", "flight", "room"]
    assert sagas.dlq.depth().total == 0
    assert sagas.redrive() == []


def test_the_dead_letter_queue_keeps_for_long_and_rings(lab: Lab, sagas: Sagas, world: World) -> None:
    cloudwatch = lab.client("cloudwatch")

    def rings(wanted: str) -> bool:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            [alarm] = cloudwatch.describe_alarms(AlarmNames=["bookings-undo-failed"])["MetricAlarms"]
            if alarm["StateValue"] == wanted:
                return True
            time.sleep(0.2)
        return False

    assert sagas.dlq._attributes("MessageRetentionPeriod")["MessageRetentionPeriod"] == str(facts("sqs.retention.max"))
    do(sagas, "room")
    world.broken = {"room"}
    sagas.compensate(SAGA)
    assert rings("ALARM")
    world.broken = set()
    sagas.redrive()
    assert rings("OK")


def test_an_undo_that_kills_its_worker_each_time_is_counted(sagas: Sagas, world: World, clock: Clock) -> None:
    class Killed(BaseException):
        pass

    do(sagas, "room")
    client = sagas.store.client

    def kill(_: Any) -> None:
        world.tried += 1
        sagas.undos.store.client = Dead()  # as after kill -9: nothing is said any more
        raise Killed

    sagas.undos.by_name["cancel"] = kill  # type: ignore[index]
    for _ in range(3):
        with pytest.raises(BaseException):  # noqa: B017, PT011 - whatever a dying process raises
            sagas.compensate(SAGA)
        sagas.undos.store.client = client
        clock.now += LEASE + 1
    report = sagas.compensate(SAGA)
    assert report.failed is not None
    assert (world.tried, report.failed.parked) == (3, "its worker died each time")


class Dead:
    """The client of a process that is no more."""

    def __getattr__(self, name: str) -> Any:
        raise KeyboardInterrupt


def test_two_compensators_at_once_do_each_undo_once(sagas: Sagas, world: World) -> None:
    names = [f"s{n}" for n in range(6)]
    do(sagas, *names)

    def compensate(_: int) -> None:
        end = time.monotonic() + 60
        while True:
            try:
                assert sagas.compensate(SAGA).complete
                return
            except Busy:
                assert time.monotonic() < end, "busy for ever"
                time.sleep(0.01)

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(compensate, range(3)))
    assert world.undone == names[::-1]


def test_a_compensator_that_is_slow_is_told(sagas: Sagas, world: World, clock: Clock) -> None:
    do(sagas, "room")

    def slow(_: Any) -> None:
        clock.now += LEASE + 1
        if world.tried == 0:
            world.tried += 1
            sagas.compensate(SAGA)

    sagas.undos.by_name["cancel"] = slow  # type: ignore[index]
    with pytest.raises(Fenced):
        sagas.compensate(SAGA)
    assert [row.step for row in sagas.compensate(SAGA).already] == ["room"]


# -- crashes -----------------------------------------------------------------------------------------------------------


class Crash(BaseException):
    """Stands for kill -9: nothing after it is said, no handler of ours gets an answer."""


class Mortal:
    """A client that dies at its n-th call, before it is sent or after it was heard, and stays dead."""

    def __init__(self, client: Any, after: int, heard: bool) -> None:
        self.client, self.left, self.heard, self.dead = client, after, heard, False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.client, name)
        if not callable(found) or name in ("get_paginator", "can_paginate", "meta"):
            return found

        def call(**arguments: Any) -> Any:
            if self.dead:
                raise Crash
            self.left -= 1
            if self.left == 0 and not self.heard:
                self.dead = True
                raise Crash
            answer = found(**arguments)
            if self.left == 0:
                self.dead = True
                raise Crash
            return answer

        return call


def crashing(sagas: Sagas, after: int, heard: bool, work: Callable[[Sagas], object]) -> bool:
    """Do ``work`` in a worker that dies at its n-th call; whether it did."""
    client = Mortal(sagas.store.client, after, heard)
    mortal_store = IdempotencyStore(
        client, sagas.store.table, lease=LEASE, window=WINDOW, covers=SHORT, clock=sagas.store.clock
    )
    dlq = type(sagas.dlq)(Mortal(sagas.dlq.client, 10**9, False), sagas.dlq.url, arn=sagas.dlq.arn)
    mortal = Sagas(
        sagas.name, type(sagas.log)(client, sagas.log.table), mortal_store, sagas.undos.by_name, dlq,
        sleep=lambda _: None,
    )  # fmt: skip
    try:
        work(mortal)
    except Crash:
        return True
    return False


@pytest.mark.parametrize("heard", [False, True])
def test_a_compensation_that_dies_anywhere_is_finished_by_the_next(
    sagas: Sagas, world: World, clock: Clock, heard: bool
) -> None:
    crashes = 0
    for after in itertools.count(1):
        saga, world.undone = f"saga-{after}", []
        do(sagas, "room", "flight", saga=saga)
        died = crashing(sagas, after, heard, lambda mortal, saga=saga: mortal.compensate(saga))
        crashes += died
        clock.now += LEASE + 1
        assert sagas.compensate(saga).complete
        assert [undone for _, _, undone in numbers(sagas, saga)] == [True, True]
        # An undo may run twice, when its worker died before it was recorded; never out of order.
        assert [name for name, _ in itertools.groupby(world.undone)] == ["flight", "room"]
        if not died:
            break
    assert crashes == 1 + 2 * 2  # the close; for each undo its claim and its record


@pytest.mark.parametrize("heard", [False, True])
def test_a_step_that_dies_anywhere_is_committed_with_its_way_back_or_not_at_all(
    sagas: Sagas, clock: Clock, heard: bool
) -> None:
    for after in itertools.count(1):
        saga = f"saga-{after}"
        died = crashing(sagas, after, heard, lambda mortal, saga=saga: do(mortal, "room", saga=saga))
        record = sagas.store.look(named("room", saga))
        assert bool(record and record.done) is (numbers(sagas, saga) == [(1, "room", False)])
        clock.now += LEASE + 1
        do_again = sagas.step(saga, named("room", saga), undo="cancel")
        assert do_again.done or do_again.complete("again", "room")
        assert numbers(sagas, saga) == [(1, "room", False)]
        if not died:
            assert after > 3
            break


KILLED = """
import os, signal, sys
from labkit import targets
from labkit.state.idempotency import IdempotencyStore
from labkit.state.saga import Sagas
from labkit.state.saga_log import SagaLog
from labkit.work.queues import Queue

account, log, steps, url, folder = sys.argv[1:]
target = targets.connect()
db = target.client("dynamodb", account)

def cancel(data):
    with open(f"{folder}/undone", "a") as lines:
        lines.write(data + "\\n")
    if data == "flight" and not os.path.exists(f"{folder}/killed"):
        open(f"{folder}/killed", "w").close()
        os.kill(os.getpid(), signal.SIGKILL)

store, dlq = IdempotencyStore(db, steps, lease=1.0), Queue(target.client("sqs", account), url)
Sagas("bookings", SagaLog(db, log), store, {"cancel": cancel}, dlq).compensate("s")
"""


def test_a_process_that_is_killed_in_an_undo(lab: Lab, tmp_path: Path) -> None:
    store = IdempotencyStore.create(lab, "steps", lease=1.0)
    sagas = Sagas.create(lab, "bookings", store=store, undo={"cancel": print})
    do(sagas, "room", "flight", "car", saga="s")
    command = [sys.executable, "-c", KILLED, lab.account, sagas.log.table, store.table, sagas.dlq.url, str(tmp_path)]
    first = subprocess.run(command, env=os.environ, timeout=60, check=False)
    assert first.returncode == -9
    time.sleep(1.1)  # the dead worker's lease
    assert subprocess.run(command, env=os.environ, timeout=60, check=False).returncode == 0
    assert (tmp_path / "undone").read_text().split() == ["car", "flight", "flight", "room"]
    assert [undone for _, _, undone in numbers(sagas, "s")] == [True, True, True]


# -- the transaction ---------------------------------------------------------------------------------------------------


def cancelled(*codes: str) -> ClientError:
    answer: Any = {
        "Error": {"Code": "TransactionCanceledException", "Message": ""},
        "CancellationReasons": [{"Code": code} for code in codes],
    }
    return ClientError(answer, "TransactWriteItems")


class Refusing:
    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def transact_write_items(self, **_: Any) -> None:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)


def test_a_conflict_with_another_transaction_is_tried_again_for_a_while() -> None:
    waits: list[float] = []
    client = Refusing(cancelled("None", "TransactionConflict"), cancelled("ThrottlingError", "None"))
    assert together.write(client, [{}, {}], sleep=waits.append) is None
    assert (client.calls, len(waits)) == (3, 2)
    stuck = Refusing(*[cancelled("TransactionConflict")] * 100)
    with pytest.raises(ClientError, match="TransactionCanceled"):
        together.write(stuck, [{}], sleep=waits.append)
    assert stuck.calls < 20


@pytest.mark.parametrize("error", [cancelled("None", "ValidationError"), cancelled()])
def test_what_a_later_try_cannot_cure_is_raised_at_once(error: ClientError) -> None:
    client = Refusing(error)
    with pytest.raises(ClientError):
        together.write(client, [{}, {}])
    assert client.calls == 1


def test_a_condition_that_does_not_hold_outweighs_a_conflict() -> None:
    reasons = together.write(Refusing(cancelled("TransactionConflict", "ConditionalCheckFailed")), [{}, {}])
    assert reasons is not None
    assert [together.refused(reason) for reason in reasons] == [False, True]


def test_a_commit_that_never_gets_through_ends(sagas: Sagas) -> None:
    store = together.Together.of(
        sagas.store, lambda _: [sagas.log._way_back(SAGA, 1, "a", "b", 0)], sleep=lambda _: None
    )
    do(sagas, "room")  # number 1 is taken, and this writer never takes another
    with pytest.raises(IdempotencyError, match="another writer was faster"):
        store.claim(named("other")).complete(1)


# -- every schedule ----------------------------------------------------------------------------------------------------

NAMES = st.sampled_from(["room", "flight", "car"])


class Schedules(RuleBasedStateMachine):
    """Steps, crashes, late workers, undos that break and are mended, compensators that die.

    The promise: once compensation has ended, every committed step is recorded as undone, once, newest first.
    """

    sagas: Sagas
    world: World
    clock: Clock
    runs: Iterator[int]

    def __init__(self) -> None:
        super().__init__()
        self.saga = f"run-{next(self.runs)}"
        self.held: list[Step] = []
        self.leased: set[str] = set()
        self.committed: list[str] = []
        self.closed = False
        self.world.undone.clear()
        self.world.broken.clear()

    @rule(name=NAMES)
    def begins(self, name: str) -> None:
        try:
            step = self.sagas.step(self.saga, named(name, self.saga), undo="cancel")
        except SagaClosed:
            assert self.closed
        except Busy:
            assert name in self.leased, "busy, but nobody is at work"
        else:
            assert not self.closed
            if step.done:
                assert name in self.committed
            else:
                assert name not in self.committed
                self.held.append(step)
                self.leased.add(name)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def commits(self, data: st.DataObject) -> None:
        step = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        name = step.work.consumer
        try:
            with step:
                step.complete(name, f"{self.saga}/{name}")
        except Fenced:
            pass
        except SagaClosed:
            assert self.closed
        else:
            assert not self.closed, "a step was committed behind the compensation's back"
            self.committed.append(name)

    @precondition(lambda self: self.held)
    @rule(data=st.data(), after=st.integers(1, 2), heard=st.booleans())
    def dies_while_it_commits(self, data: st.DataObject, after: int, heard: bool) -> None:
        step = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        step.claim._store.client = Mortal(self.sagas.store.client, after, heard)
        name, before = step.work.consumer, len(self.sagas.steps(self.saga))
        try:
            with step:
                step.complete(name, f"{self.saga}/{name}")
        except (Crash, Fenced, SagaClosed):
            pass
        if len(self.sagas.steps(self.saga)) > before:
            assert not self.closed
            self.committed.append(name)

    @rule(name=NAMES)
    def breaks(self, name: str) -> None:
        self.world.broken.add(f"{self.saga}/{name}")

    @rule()
    def is_mended(self) -> None:
        self.world.broken.clear()

    @rule()
    def leases_run_out(self) -> None:
        self.clock.now += LEASE + 1
        self.leased.clear()

    @precondition(lambda self: self.committed or self.closed)
    @rule(after=st.integers(1, 12), heard=st.booleans())
    def a_compensator_dies(self, after: int, heard: bool) -> None:
        def work(mortal: Sagas) -> None:
            with contextlib.suppress(Busy):
                mortal.compensate(self.saga)

        died = crashing(self.sagas, after, heard, work)
        self.closed = self.closed or not died or self.sagas.log.header(self.saga).phase != "open"

    @precondition(lambda self: self.committed or self.closed)
    @rule()
    def compensates(self) -> None:
        self.closed = True
        try:
            report = self.sagas.compensate(self.saga)
        except Busy:
            return
        undone = [row.undone for row in self.sagas.steps(self.saga)]
        assert undone == sorted(undone), "an older step was undone before a newer one"
        assert report.complete is all(undone)

    @precondition(lambda self: self.closed)
    @rule()
    def is_redriven(self) -> None:
        try:
            self.sagas.redrive()
        except Busy:
            self.leases_run_out()

    def teardown(self) -> None:
        self.world.broken.clear()
        self.clock.now += LEASE + 1
        rows = self.sagas.steps(self.saga)
        assert [row.step for row in rows] == self.committed
        for _ in range(len(rows) + 1):
            report = self.sagas.compensate(self.saga)
            if report.failed is None:
                break
            self.sagas.log.unpark(report.failed, 3)  # the operator
        assert report.complete, "a saga is stuck"
        assert all(row.undone for row in self.sagas.steps(self.saga)), "a committed step was not undone"
        order = [name for name, _ in itertools.groupby(self.world.undone)]
        assert order == [f"{self.saga}/{name}" for name in reversed(self.committed)]


def test_no_schedule_leaves_a_committed_step_without_its_undo(sagas: Sagas, world: World, clock: Clock) -> None:
    machine = type(
        "OnThisTable", (Schedules,), {"sagas": sagas, "world": world, "clock": clock, "runs": itertools.count()}
    )
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=80, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


def test_a_message_says_everything_in_ascii(sagas: Sagas, world: World) -> None:
    data = "ế￾\U0001f642"
    with sagas.step(SAGA, named("room"), undo="cancel") as step:
        step.complete(1, data)
    world.broken = {data}
    sagas.compensate(SAGA)
    [message] = sagas.dlq.receive()
    assert message.body.isascii()
    assert json.loads(message.body)["data"] == data


def test_a_message_that_is_about_no_step_stays_and_holds_up_no_other(
    sagas: Sagas, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    do(sagas, "room")
    world.broken = {"room"}
    sagas.compensate(SAGA)
    about = {"saga": "bookings", "saga_id": SAGA, "number": 1}
    odd = ["no JSON", "[" * 100_000, "7", json.dumps({**about, "saga": "others"}), json.dumps({**about, "number": "x"})]
    odd += [json.dumps({**about, "number": 9}), json.dumps({**about, "saga_id": 5}), json.dumps({"saga": "bookings"})]
    for body in odd:
        sagas.dlq.send(body)
    world.broken = set()
    reports = [report for _ in range(9) for report in sagas.redrive()]
    assert [report.complete for report in reports] == [True]
    assert sagas.dlq.depth().total == len(odd)
    assert caplog.text.count("stays in") >= len(odd)


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_undo_that_is_broken_off_lets_go_and_counts(sagas: Sagas, world: World, error: type[BaseException]) -> None:
    def broken_off(_: Any) -> None:
        raise error

    do(sagas, "room", "flight")
    undos = dict(sagas.undos.by_name)
    sagas.undos.by_name["cancel"] = broken_off  # type: ignore[index]
    for _ in range(sagas.undos.tries):
        with pytest.raises(error):
            sagas.compensate(SAGA)
    sagas.undos.by_name.update(undos)  # type: ignore[attr-defined]
    report = sagas.compensate(SAGA)  # at once: no lease is waited for
    assert report.failed is not None
    assert (report.failed.step, report.failed.parked) == ("flight", "its worker died each time")
    [done] = sagas.redrive()
    assert (done.complete, world.undone) == (True, ["flight", "room"])


def test_a_dead_letter_queue_that_is_gone_is_said_and_nothing_behind_the_undo_is_touched(
    lab: Lab, sagas: Sagas, world: World
) -> None:
    do(sagas, "room", "flight")
    world.broken = {"flight"}
    sagas.dlq.client.delete_queue(QueueUrl=sagas.dlq.url)
    for _ in range(2):
        with pytest.raises(ClientError, match="queue does not exist"):
            sagas.compensate(SAGA)
    assert world.undone == []
    sagas.undos.__dict__["dlq"] = Queue.create(lab, "another-dlq")
    report = sagas.compensate(SAGA)
    assert report.failed is not None
    assert sagas.undos.dlq.depth().total == 1


def test_one_hundred_steps_that_commit_at_once_are_all_committed_and_taken_back(sagas: Sagas, world: World) -> None:
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda number: do(sagas, f"step-{number}"), range(100)))
    rows = sagas.steps(SAGA)
    assert [row.number for row in rows] == list(range(1, 101))
    assert sagas.compensate(SAGA).complete
    assert world.undone == [row.data for row in rows][::-1]
