"""The idempotency store on a real table: each clause of its conditions, and no schedule that breaks its promise."""

from __future__ import annotations

import itertools
import json
import string
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from labkit import Lab, facts
from labkit.control.envelope import Envelope
from labkit.models.windows import Window
from labkit.state.claimcheck import ClaimCheck
from labkit.state.idempotency import Busy, Claim, Fenced, IdempotencyError, IdempotencyStore, PayloadMismatch, Work
from labkit.state.objects import ClaimError, Objects
from tests.clock import Clock

LEASE, WINDOW = 60.0, 10_000.0
SHORT = Window(event_age=0, retention=1)
WORK = Work.named("conv-8842-step-7", "researcher", {"topic": "tea"})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(lab: Lab, clock: Clock) -> IdempotencyStore:
    return IdempotencyStore.create(lab, "steps", lease=LEASE, window=WINDOW, covers=SHORT, clock=clock)


# -- claim -------------------------------------------------------------------------------------------------------------


def test_fresh_work_is_claimed_once_and_its_result_replayed(store: IdempotencyStore) -> None:
    claim = store.claim(WORK)
    assert (claim.done, claim.attempt) == (False, 1)
    assert claim.complete({"found": ("a", 1)}) == {"found": ["a", 1]}  # as every later caller sees it
    again = store.claim(WORK)
    assert (again.done, again.replayed, again.result) == (True, True, {"found": ["a", 1]})


def test_a_live_lease_is_busy_and_says_for_how_long(store: IdempotencyStore, clock: Clock) -> None:
    store.claim(WORK)
    clock.now += 15
    with pytest.raises(Busy, match=r"conv-8842-step-7 for researcher is being done .* 45\.0 s more") as busy:
        store.claim(WORK)
    assert busy.value.retry_in == LEASE - 15


def test_an_abandoned_claim_is_taken_over_when_its_lease_is_over(store: IdempotencyStore, clock: Clock) -> None:
    store.claim(WORK)
    clock.now += LEASE + 0.001
    assert store.claim(WORK).attempt == 2


def test_other_consumers_have_work_of_their_own(store: IdempotencyStore) -> None:
    store.claim(WORK)
    assert store.claim(Work.named(WORK.trace_id, "summarizer", {"topic": "tea"})).attempt == 1


def test_an_expired_record_does_not_count_although_it_is_still_there(store: IdempotencyStore, clock: Clock) -> None:
    store.claim(WORK).complete("old")
    clock.now += WINDOW + 2
    claim = store.claim(Work.named(WORK.trace_id, WORK.consumer, "the payload may be another one by now"))
    assert (claim.done, claim.attempt) == (False, 2)
    assert claim.complete("new") == "new"
    assert store.look(WORK).result == '"new"'  # type: ignore[union-attr]


def test_a_record_stands_for_the_window_from_its_completion(store: IdempotencyStore, clock: Clock) -> None:
    claim = store.claim(WORK)
    clock.now += LEASE / 2
    claim.complete(1)
    clock.now += WINDOW - 1
    assert store.claim(WORK).done


def test_a_live_lease_outlives_the_window(lab: Lab, clock: Clock) -> None:
    store = IdempotencyStore.create(lab, "steps", lease=60, window=60, covers=SHORT, clock=clock)
    claim = store.claim(WORK)
    clock.now += 50
    claim.renew()
    clock.now += 30  # beyond expires_at, within the lease
    with pytest.raises(Busy):
        store.claim(WORK)


@pytest.mark.parametrize("state", ["running", "abandoned", "done"])
def test_another_payload_under_the_same_name_is_an_error_on_every_path(
    store: IdempotencyStore, clock: Clock, state: str
) -> None:
    claim = store.claim(WORK)
    if state == "abandoned":
        clock.now += LEASE + 1
    elif state == "done":
        claim.complete("for tea")
    with pytest.raises(PayloadMismatch, match="claimed with another payload"):
        store.claim(Work.named(WORK.trace_id, WORK.consumer, {"topic": "coffee"}))


def test_many_at_once_and_one_gets_it(store: IdempotencyStore) -> None:
    def attempt(_: int) -> bool:
        try:
            return not store.claim(WORK).done
        except Busy:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(attempt, range(24))) == 1


# -- lease and fence ---------------------------------------------------------------------------------------------------


def test_a_renewed_lease_keeps_others_out(store: IdempotencyStore, clock: Clock) -> None:
    claim = store.claim(WORK)
    for _ in range(3):
        clock.now += LEASE * 0.9
        claim.renew()
        claim.check()
        with pytest.raises(Busy):
            store.claim(WORK)


def test_a_late_worker_cannot_overwrite_and_learns_the_newer_result(store: IdempotencyStore, clock: Clock) -> None:
    late = store.claim(WORK)
    clock.now += LEASE + 1
    with pytest.raises(Fenced, match="its lease has run out"):
        late.check()
    newer = store.claim(WORK)
    for move in (late.renew, lambda: late.complete("late")):
        with pytest.raises(Fenced, match="a newer claim is at work") as fenced:
            move()
    with pytest.raises(IdempotencyError, match="no result yet"):
        fenced.value.newer()
    newer.complete("in time")
    with pytest.raises(Fenced, match="a newer result stands") as fenced:
        late.complete("late")
    assert fenced.value.newer() == "in time"
    assert store.claim(WORK).result == "in time"
    assert late.release() is False


def test_a_slow_worker_that_nobody_replaced_may_finish(store: IdempotencyStore, clock: Clock) -> None:
    claim = store.claim(WORK)
    clock.now += LEASE * 10
    assert claim.complete("late, and alone") == "late, and alone"


def test_an_exception_releases_the_claim_and_leaves_its_reason(store: IdempotencyStore) -> None:
    with pytest.raises(ValueError, match="model says no"), store.claim(WORK):
        raise ValueError("model says no")
    assert store.look(WORK).failure == "ValueError: model says no"  # type: ignore[union-attr]
    with store.claim(WORK) as claim:  # at once, without waiting for the lease
        claim.complete("second try")
    assert claim.attempt == 2
    assert store.look(WORK).failure == ""  # type: ignore[union-attr]


def test_a_block_without_a_result_is_an_error_and_not_a_lost_step(store: IdempotencyStore) -> None:
    with pytest.raises(IdempotencyError, match=r"without complete\(\)"), store.claim(WORK):
        pass
    assert store.claim(WORK).attempt == 2


def test_a_release_that_fails_does_not_hide_the_steps_error(
    store: IdempotencyStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(_: Claim) -> None:
        monkeypatch.setattr(store, "table", "gone")
        raise ValueError("the news")

    with pytest.raises(ValueError, match="the news") as raised:
        store.run(WORK, step)
    assert "could not be released" in raised.value.__notes__[0]


def test_a_result_is_recorded_once(store: IdempotencyStore) -> None:
    claim = store.claim(WORK)
    claim.complete(1)
    with pytest.raises(IdempotencyError, match="a result is recorded once"):
        claim.complete(2)


class Repeating:
    """A client whose writes are heard but whose answers are lost: the SDK sends each of them twice."""

    def __init__(self, client: Any) -> None:
        self.client, self.exceptions = client, client.exceptions

    def put_item(self, **call: Any) -> Any:
        self.client.put_item(**call)
        return self.client.put_item(**call)

    def update_item(self, **call: Any) -> Any:
        self.client.update_item(**call)
        return self.client.update_item(**call)


def test_calls_that_the_sdk_repeats_are_recognised(store: IdempotencyStore) -> None:
    store.client = Repeating(store.client)
    claim = store.claim(WORK)
    assert claim.attempt == 1
    claim.renew()
    claim.release()
    claim = store.claim(WORK)  # a takeover is another call
    assert claim.attempt == 2
    assert claim.complete("once") == "once"


class Vanishing:
    """A client at whose first takeover the row is gone: TTL has deleted it since it was in the way."""

    def __init__(self, client: Any) -> None:
        self.client, self.exceptions = client, client.exceptions

    def put_item(self, **call: Any) -> Any:
        return self.client.put_item(**call)

    def update_item(self, **call: Any) -> Any:
        self.client.delete_item(TableName=call["TableName"], Key=call["Key"])
        return self.client.update_item(**call)


def test_a_row_that_ttl_deletes_meanwhile_is_in_nobodys_way(store: IdempotencyStore, clock: Clock) -> None:
    store.claim(WORK).complete("old")
    clock.now += WINDOW + 2
    store.client = Vanishing(store.client)
    claim = store.claim(WORK)
    assert (claim.done, claim.attempt) == (False, 1)


class OtherClasses:
    """A client in whose first use two threads raced: each has got exception classes of its own."""

    def __init__(self, client: Any) -> None:
        self.put_item, self.update_item = client.put_item, client.update_item
        self.exceptions = SimpleNamespace(ConditionalCheckFailedException=type("Theirs", (ClientError,), {}))


def test_a_refusal_is_known_by_its_code(store: IdempotencyStore, clock: Clock) -> None:
    store.client = OtherClasses(store.client)
    late = store.claim(WORK)
    with pytest.raises(Busy):
        store.claim(WORK)
    clock.now += LEASE + 1
    store.claim(WORK)
    with pytest.raises(Fenced):
        late.complete("late")


def test_ttl_never_deletes_what_somebody_is_at_work_on(store: IdempotencyStore, clock: Clock) -> None:
    def expires() -> int:
        record = store.look(WORK)
        assert record is not None
        return record.expires_at

    claim = store.claim(WORK)
    clock.now += WINDOW - 1
    claim.renew()
    assert expires() >= clock.now + WINDOW
    context = SimpleNamespace(get_remaining_time_in_millis=lambda: (WINDOW + 500) * 1000)
    clock.now += WINDOW * 2
    store.for_invocation(context).claim(WORK)
    assert expires() >= clock.now + WINDOW + 500


class Wordless(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(("error", "says"), [(Wordless(), "could not be had"), (ValueError("a\ud800b"), "a?b")])
def test_an_error_without_proper_words_releases_the_claim(store: IdempotencyStore, error: Exception, says: str) -> None:
    with pytest.raises(type(error)), store.claim(WORK):
        raise error
    record = store.look(WORK)
    assert record is not None
    assert says in record.failure
    assert store.claim(WORK).attempt == 2  # at once


# -- results -----------------------------------------------------------------------------------------------------------


def test_big_results_go_to_s3(lab: Lab, store: IdempotencyStore) -> None:
    result = {"text": "ü" * 400_000}
    with pytest.raises(IdempotencyError, match="give the store objects="), store.claim(WORK) as claim:
        claim.complete(result)
    store.objects = Objects.create(lab, "results")
    assert store.run(WORK, lambda _: result) == result
    assert store.run(WORK, lambda _: "not run again") == result
    record = store.look(WORK)
    assert record is not None
    assert record.result is None
    key = str(record.result_ref).partition("#")[0]
    store.objects.client.delete_object(Bucket=store.objects.bucket, Key=key)
    with pytest.raises(ClaimError, match=r"the result of .* is gone"):
        store.claim(WORK)
    store.objects = None
    with pytest.raises(IdempotencyError, match="given no objects="):
        store.claim(WORK)


def test_a_large_result_on_its_way_holds_up_no_renewal(lab: Lab, store: IdempotencyStore) -> None:
    store.objects = Objects.create(lab, "results")
    put, under_way, go_on = store.objects.put, threading.Event(), threading.Event()

    def slow(folder: str, body: bytes) -> Any:
        under_way.set()
        assert go_on.wait(60)
        return put(folder, body)

    store.objects.put = slow  # type: ignore[method-assign]
    claim = store.claim(WORK)
    with ThreadPoolExecutor(2) as pool:
        done = pool.submit(claim.complete, "x" * 100_000)
        try:
            assert under_way.wait(60)
            pool.submit(claim.renew).result(30)  # half of what the other one waits
            assert not done.done()
        finally:
            go_on.set()
        assert done.result(60) == "x" * 100_000


@pytest.mark.parametrize("trace_id", ["x" * 2048, "é" * 1024, "../../a", "..", "a\x00b#c", " "])
def test_a_result_in_s3_can_be_had_whatever_the_work_is_called(
    lab: Lab, store: IdempotencyStore, trace_id: str
) -> None:
    store.objects, store.inline = Objects.create(lab, "results"), 10
    work = Work.named(trace_id, "consumer/with a slash", 1)
    for _ in range(2):
        assert store.run(work, lambda _: "long enough for S3") == "long enough for S3"
    record = store.look(work)
    assert record is not None
    key = str(record.result_ref).partition("#")[0]
    assert len(key) <= 1024  # S3's limit for a key
    assert set(key) <= {*string.ascii_letters, *string.digits, *"/._-"}
    assert ".." not in key


@pytest.mark.parametrize("result", [float("nan"), object(), {1: {2}}])
def test_a_result_that_json_cannot_hold_is_refused_and_the_work_is_free(store: IdempotencyStore, result: Any) -> None:
    with pytest.raises(IdempotencyError, match="not what JSON can hold"):
        store.run(WORK, lambda _: result)
    assert store.claim(WORK).attempt == 2


@pytest.mark.parametrize("result", [None, 0, "", [], {"a": None}])
def test_empty_results_are_results(store: IdempotencyStore, result: Any) -> None:
    runs = []
    for _ in range(2):
        assert store.run(WORK, lambda _: runs.append(1) or result) == result
    assert runs == [1]


# -- ways to use it ----------------------------------------------------------------------------------------------------


def envelope(**payload: Any) -> Envelope:
    return Envelope.new(conversation_id="8842", step=7, agent_class="researcher", payload=payload)


def test_the_decorator_keys_by_trace_id_and_not_by_delivery(store: IdempotencyStore) -> None:
    runs: list[str] = []

    @store.idempotent("researcher")
    def research(step: Envelope) -> str:
        runs.append(step.trace_id)
        return f"about {step.payload['topic']}"  # type: ignore[index]

    first = envelope(topic="tea")
    assert research(first) == research(envelope(topic="tea")) == "about tea"  # issued at another moment: the same work
    assert runs == [first.trace_id]
    assert research.__name__ == "research"


def test_a_claim_check_is_the_same_work_as_its_payload(lab: Lab) -> None:
    whole = envelope(text="long " * 1000)
    ticket = ClaimCheck.create(lab, "payloads", threshold=100).pack(whole)
    assert ticket.payload is None
    assert Work.of(whole, "a") == Work.of(ticket, "a") == Work.of(json.loads(ticket.detail()), "a")


def test_in_a_lambda_the_lease_is_the_time_that_is_left(store: IdempotencyStore, clock: Clock) -> None:
    context = SimpleNamespace(get_remaining_time_in_millis=lambda: 2_500)
    claim = store.for_invocation(context).claim(WORK)
    assert claim.lease_until == clock.now + 2.5
    assert store.lease == LEASE


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Work.named("", "c", 1), "trace_id of 1 to 2048 bytes"),
        (lambda: Work.named("t", "x" * 1025, 1), "consumer of 1 to 1024 bytes"),
        (lambda: Work.named("t", "c", {1, 2}), "not what JSON can hold"),
        (lambda: Work.of({"payload": 1}, "c"), "has a trace_id; this has none"),
        (lambda: Work.of(None, "c"), "an envelope has fields; this is NoneType"),
        (lambda: Work.of([1], "c"), "an envelope has fields; this is list"),
        (lambda: Work.of({"trace_id": "t", "payload_ref": "s3://x"}, "c"), "a payload_ref has fields; this is str"),
        (lambda: Work.of({"trace_id": "t", "payload_ref": {"key": "k"}}, "c"), "a sha256 of 64 hex digits"),
        (lambda: Work.of({"trace_id": 5, "payload": 1}, "c"), "trace_id of 1 to 2048 bytes"),
        (lambda: Work.named("\ud800", "c", 1), "trace_id of 1 to 2048 bytes"),
    ],
)
def test_bad_work_is_refused(make: Any, says: str) -> None:
    with pytest.raises(IdempotencyError, match=says):
        make()


# -- the window --------------------------------------------------------------------------------------------------------


def test_the_window_covers_everything_that_can_bring_the_work_back(lab: Lab) -> None:
    assert Window().needed == facts("idempotency.window.needed_classic")
    guide = Window(event_age=float(facts("guide.retry.max_age")))
    assert guide.needed == facts("idempotency.window.needed")
    days = 86_400.0
    assert Window(dead_letter=14 * days, replay=30 * days).needed == (1 + 14 + 4 + 30) * days
    client = lab.client("dynamodb")
    with pytest.raises(IdempotencyError, match=r"86400 s is too short: .* for 349200 s"):
        IdempotencyStore(client, "t", window=float(facts("guide.idempotency.window")), covers=guide)
    assert IdempotencyStore(client, "t", covers=guide).window == guide.needed


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"lease": 0}, "a lease is longer than 0 s"),
        ({"lease": 1e9}, "not longer than the window of 432000 s"),
        ({"lease": -1}, "lease must be at least 0 s; got -1"),
        ({"lease": float("nan")}, "lease must be"),
        ({"lease": "60"}, "lease must be"),
        ({"window": float("nan")}, "window must be"),
        ({"window": float("inf")}, "window must be"),
        ({"covers": Window(replay=float("inf"))}, "window must be"),
        ({"covers": Window(event_age=0, retention=0)}, "the window of 0 s"),
        ({"inline": -1}, "inline must be"),
        ({"inline": 10**6}, "inline must be a whole number from 0 to 401408"),
        ({"objects": "bucket"}, "objects is what Objects.create makes"),
    ],
)
def test_settings_have_bounds(lab: Lab, options: dict[str, Any], says: str) -> None:
    with pytest.raises(IdempotencyError, match=says):
        IdempotencyStore(lab.client("dynamodb"), "t", **options)


def test_a_table_that_is_refused_is_a_sentence(lab: Lab) -> None:
    with pytest.raises(IdempotencyError, match="table 'no name for a table!' was not made"):
        IdempotencyStore.create(lab, "no name for a table!")


def test_creating_again_takes_the_table_with_what_stands_in_it(lab: Lab) -> None:
    first = IdempotencyStore.create(lab, "again")
    work = Work.named("w", "c", {})
    first.claim(work).complete("green")
    assert IdempotencyStore.create(lab, "again").claim(work).result == "green"
    lab.client("dynamodb").create_table(
        TableName="other",
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    with pytest.raises(IdempotencyError, match="table other exists with other keys"):
        IdempotencyStore.create(lab, "other")


def test_refused_settings_make_no_table(lab: Lab) -> None:
    with pytest.raises(IdempotencyError):
        IdempotencyStore.create(lab, "steps", lease=0)
    assert lab.client("dynamodb").list_tables()["TableNames"] == []


def test_ttl_is_on(store: IdempotencyStore) -> None:
    ttl = store.client.describe_time_to_live(TableName=store.table)["TimeToLiveDescription"]
    assert (ttl["TimeToLiveStatus"], ttl["AttributeName"]) == ("ENABLED", "expires_at")


# -- every schedule ----------------------------------------------------------------------------------------------------

WORKERS = st.sampled_from(["ann", "bob", "cyn"])
STEPS = st.sampled_from([Work.named(f"conv-1-step-{n}", "researcher", n) for n in range(2)])


class Schedules(RuleBasedStateMachine):
    """Workers that are delivered the same work again and again, are slow, fail, crash; clocks that jump.

    A model beside the table says who holds what. The promise: within the window each piece of work has one recorded
    result, which every later claim returns; and no piece of work is stuck.
    """

    store: IdempotencyStore
    clock: Clock
    runs: Iterator[int]

    def __init__(self) -> None:
        super().__init__()
        self.run = next(self.runs)
        self.held: dict[tuple[str, str], Claim] = {}  # by worker and trace id
        self.recorded: dict[str, tuple[Any, float]] = {}  # result, and when it was recorded
        self.newest: dict[str, Claim] = {}
        self.results = itertools.count()

    def work(self, work: Work) -> Work:
        return Work(f"{work.trace_id}-run-{self.run}", work.consumer, work.digest)

    def standing(self, trace_id: str) -> Any:
        """The recorded result that still counts, as a list of one, or of none."""
        if trace_id not in self.recorded:
            return []
        result, at = self.recorded[trace_id]
        return [result] if self.clock.now <= at + WINDOW else []

    def live(self, trace_id: str) -> bool:
        claim = self.newest.get(trace_id)
        return claim is not None and not claim._over and self.clock.now <= claim.lease_until

    @rule(worker=WORKERS, step=STEPS)
    def delivered(self, worker: str, step: Work) -> None:
        work = self.work(step)
        try:
            claim = self.store.claim(work)
        except Busy:
            assert self.live(work.trace_id), "busy, but nobody is at work"
            return
        if claim.done:
            assert [claim.result] == self.standing(work.trace_id)
            return
        assert not self.standing(work.trace_id), "a recorded step was handed out again"
        assert not self.live(work.trace_id), "two live leases on one step"
        self.held[worker, work.trace_id] = self.newest[work.trace_id] = claim

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def finishes(self, data: st.DataObject) -> None:
        claim = self.held.pop(data.draw(st.sampled_from(sorted(self.held))))
        trace_id, result = claim.work.trace_id, next(self.results)
        try:
            claim.complete(result)
        except Fenced:
            assert self.newest[trace_id] is not claim, "the newest claim was fenced off"
        else:
            assert self.newest[trace_id] is claim, "a late worker recorded a result"
            assert not self.standing(trace_id), "two results for one step"
            self.recorded[trace_id] = (result, self.clock.now)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def renews(self, data: st.DataObject) -> None:
        claim = self.held[data.draw(st.sampled_from(sorted(self.held)))]
        try:
            claim.renew()
        except Fenced:
            assert self.newest[claim.work.trace_id] is not claim

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def fails(self, data: st.DataObject) -> None:
        claim = self.held.pop(data.draw(st.sampled_from(sorted(self.held))))
        assert claim.release("broke") is (self.newest[claim.work.trace_id] is claim)

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def is_killed(self, data: st.DataObject) -> None:
        del self.held[data.draw(st.sampled_from(sorted(self.held)))]

    @rule(seconds=st.sampled_from([1.0, LEASE * 0.6, *[LEASE + 1] * 4, WINDOW + 2]))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    @invariant()
    def the_record_agrees(self) -> None:
        for trace_id in self.newest:
            record = self.store.look(Work.named(trace_id, "researcher", 0))
            assert record is not None
            if self.standing(trace_id):
                assert record.done
                assert json.loads(record.result or "") == self.standing(trace_id)[0]

    def teardown(self) -> None:
        self.clock.now += LEASE + 1  # every worker is gone
        for claim in self.newest.values():
            again = self.store.claim(claim.work)
            assert again.done or again.complete("at last") == "at last", "a step is stuck"


def test_no_schedule_records_two_results_or_loses_a_step(store: IdempotencyStore, clock: Clock) -> None:
    machine = type("OnThisTable", (Schedules,), {"store": store, "clock": clock, "runs": itertools.count()})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=120, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )


# -- transactions of others --------------------------------------------------------------------------------------------


class Meets:
    """A table whose next ``times`` single writes meet a transaction."""

    def __init__(self, client: Any, times: int) -> None:
        self.client, self.times = client, times

    def __getattr__(self, name: str) -> Any:
        call = getattr(self.client, name)

        def meets(**arguments: Any) -> Any:
            if self.times:
                self.times -= 1
                raise ClientError({"Error": {"Code": str(facts("dynamodb.transact.conflict_error"))}}, name)
            return call(**arguments)

        return meets


def test_a_write_that_meets_a_transaction_is_made_again(
    store: IdempotencyStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("labkit.state.rows.time", SimpleNamespace(sleep=lambda _: None))
    client, met = store.client, []

    def twice() -> None:
        met.append(meets := Meets(client, 2))
        store.client = meets

    twice()
    claim = store.claim(WORK)
    clock.now += 1
    twice()
    claim.renew()
    twice()
    assert claim.release("later")
    twice()
    again = store.claim(WORK)  # a put that is refused, then the update
    assert (again.attempt, [meets.times for meets in met]) == (2, [0] * 4)


def test_a_write_that_keeps_meeting_transactions_ends(store: IdempotencyStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("labkit.state.rows.time", SimpleNamespace(sleep=lambda _: None))
    store.client = Meets(store.client, 1_000)
    with pytest.raises(ClientError, match="TransactionConflict"):
        store.claim(WORK)
    assert store.client.times == 990
