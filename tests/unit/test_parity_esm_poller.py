"""One mapping at work on a queue of its own, without threads, on a clock that the test moves."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parity.esm_gather import Batch, Held
from parity.esm_loop import PAUSE_AFTER_ERROR, Loop
from parity.esm_poller import SETTLE, Job, Outcome, Poller, Settings, backoff
from parity.esm_records import MAX_EVENT
from parity.esm_scaling import CEILING, FEWEST, MOST, Bounds, Scaling
from parity.sqs_errors import SqsError
from parity.sqs_store import DeadLetter, MessageStore

ARN = "arn:aws:sqs:us-east-1:000000000000:work"
VISIBILITY = 30.0
DONE, ERROR, THROTTLED = Outcome(), Outcome(error=True), Outcome(error=True, throttled=True)


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """A queue, a mapping, and the invocations that it has started."""

    def __init__(
        self, *, max_receives: int | None = None, takes: Any = lambda record: True, size: int = 10, **mapping: Any
    ) -> None:
        self.size = size  # bytes of each message
        fifo = mapping.setdefault("fifo", False)
        mapping.setdefault("bounds", Bounds.of({}, fifo=fifo))
        self.clock = Clock()
        self.start = self.clock.now
        self.loop = Loop(self.clock, threaded=False)
        self.store = MessageStore(ARN, fifo=fifo, clock=self.clock)
        self.dead = MessageStore(f"{ARN}-dead", fifo=fifo, clock=self.clock)
        self.redrive = DeadLetter(self.dead, max_receives) if max_receives else None
        self.jobs: list[Job] = []
        self.ids = itertools.count()
        self.poller = Poller(
            self,
            Settings(**mapping),
            invoke=self.jobs.append,
            wake=lambda at: self.loop.wake(self.poller, at),
            clock=self.clock,
            takes=takes,
        )
        self.loop.wake(self.poller)
        self.run()

    # -- the queue, as the poller sees it

    def receive(self, limit: int) -> list[Held]:
        assert 1 <= limit <= 10
        return [
            Held(m["id"], m["receipt_handle"], {"body": m["body"]}, self.size, m["received_at"], m["visible_at"])
            for m in self.store.receive(limit, VISIBILITY, self.redrive)
        ]

    def delete(self, batch: Batch) -> None:
        for held in batch:
            try:
                self.store.delete(held.handle)
            except SqsError:
                assert self.store.fifo

    def backlog(self) -> bool:
        return self.store.counts()[0] > 0

    def next_change(self) -> float | None:
        return self.store.next_change()

    def on_change(self, waiter: Any) -> None:
        self.store.on_change(waiter)

    def forget(self, waiter: Any) -> None:
        self.store.forget(waiter)

    # -- what a test does

    def send(self, number: int = 1, *, group: str | None = None, body: str = "x") -> list[str]:
        names = [f"m{next(self.ids)}" for _ in range(number)]
        for name in names:
            now = self.clock()
            message = {"id": name, "body": body, "sent_at": now, "visible_at": now, "receive_count": 0, "sys": {}}
            self.store.put(message | {"group_id": group})
        return names

    def run(self, seconds: float = 2 * SETTLE) -> None:
        """Let time pass, stopping at every moment at which something is due."""
        end = self.clock.now + seconds
        for _ in range(5_000):
            due = self.loop.next_due()
            if due is None or due > end:
                self.clock.now = end
                self.loop.run_due()
                return
            self.clock.now = max(self.clock.now, due)
            self.loop.run_due()
        raise AssertionError("the poller does not come to rest")

    def finish(self, outcome: Outcome = DONE, index: int = 0) -> list[str]:
        job = self.jobs.pop(index)
        names = [held.id for held in job.batch]
        self.poller.finished(job, outcome)
        self.run()
        return names

    def batches(self) -> list[list[str]]:
        return [[held.id for held in job.batch] for job in self.jobs]

    def depth(self) -> int:
        return len(self.store)


# -- receiving and deleting ----------------------------------------------------------------------------------------


def test_a_message_to_an_idle_queue_is_invoked_at_once_and_deleted_afterwards() -> None:
    bench = Bench()
    assert bench.loop.next_due() is None  # idle: nothing is planned
    names = bench.send(3)
    bench.run()
    assert bench.batches() == [names]
    bench.finish()
    assert bench.depth() == 0
    assert bench.loop.next_due() is None


def test_an_error_leaves_the_batch_until_its_visibility_timeout_ends() -> None:
    bench = Bench()
    names = bench.send(2)
    bench.run()
    bench.finish(ERROR)
    bench.run(VISIBILITY - 1)
    assert bench.jobs == []
    bench.run(1)
    assert bench.batches() == [names]


def test_an_error_of_one_batch_does_not_stop_another() -> None:
    bench = Bench(batch_size=1)
    bench.send()
    bench.run()
    bench.finish(ERROR)
    (second,) = bench.send()
    bench.run()
    assert bench.batches() == [[second]]


def test_only_the_reported_messages_come_back_and_only_when_the_mapping_asks_for_reports() -> None:
    for reports, left in ((True, 1), (False, 0)):
        bench = Bench(reports=reports)
        first, _ = bench.send(2)
        bench.run()
        bench.finish(Outcome(answer={"batchItemFailures": [{"itemIdentifier": first}]}))
        assert bench.depth() == left


def test_a_message_is_a_dead_letter_after_its_last_receive() -> None:
    bench = Bench(max_receives=2)
    bench.send()
    for _ in range(2):
        bench.run(VISIBILITY)
        bench.finish(ERROR)
    bench.run(VISIBILITY)
    assert bench.jobs == []
    assert (bench.depth(), len(bench.dead)) == (0, 1)


def test_what_the_filter_does_not_take_is_deleted_and_never_invoked() -> None:
    bench = Bench(takes=lambda record: record["body"] == "x")
    bench.send(4, body="y")
    (wanted,) = bench.send()
    bench.send(20, body="y")
    bench.run()
    assert bench.batches() == [[wanted]]
    assert bench.depth() == 1


def test_a_closed_poller_receives_nothing_and_still_deletes_what_was_processed() -> None:
    bench = Bench()
    bench.send()
    bench.run()
    bench.poller.close()
    bench.send()
    bench.run(100)
    assert len(bench.jobs) == 1
    bench.clock.now = bench.start + 1
    bench.finish()
    assert bench.depth() == 1


# -- batches -------------------------------------------------------------------------------------------------------


def test_a_window_gathers_what_comes_in_time() -> None:
    bench = Bench(batch_size=100, window=5)
    names = bench.send(12)
    bench.run(3)
    names += bench.send(3)
    bench.run(1)
    assert bench.jobs == []
    bench.run(1.1)
    assert bench.batches() == [names]


def test_a_full_batch_is_invoked_before_its_window_ends_and_the_next_one_is_gathered() -> None:
    bench = Bench(batch_size=12, window=5)
    names = bench.send(15)
    bench.run()
    assert bench.batches() == [names[:12]]
    bench.run(5)
    assert bench.batches() == [names[:12], names[12:]]


def test_a_large_batch_is_gathered_by_many_receives() -> None:
    bench = Bench(batch_size=10_000, window=1)
    names = bench.send(2_345)
    bench.run(1.5)
    assert bench.batches() == [names]
    bench.finish()
    assert bench.depth() == 0


def test_a_window_beyond_the_visibility_timeout_costs_receives_but_no_message() -> None:
    bench = Bench(batch_size=100, window=2 * VISIBILITY)
    names = bench.send(3)
    bench.run(2 * VISIBILITY + 1)
    assert bench.batches() == [names]
    assert all(message["receive_count"] > 1 for message in bench.store)
    bench.finish()
    assert bench.depth() == 0


# -- concurrency ---------------------------------------------------------------------------------------------------


def test_five_at_first_and_five_more_a_second_while_messages_remain() -> None:
    bench = Bench(batch_size=1)
    bench.send(200)
    bench.run()
    assert len(bench.jobs) == 5
    bench.run(1.05)
    assert len(bench.jobs) == 10
    bench.run(60)
    assert len(bench.jobs) == CEILING


def test_nothing_grows_without_a_backlog() -> None:
    bench = Bench(batch_size=1)
    bench.send(5)
    bench.run(10)
    bench.send(1)
    bench.run()
    assert len(bench.jobs) == 5
    bench.run(0.3)
    assert len(bench.jobs) == 6


def test_maximum_concurrency_is_kept() -> None:
    bench = Bench(batch_size=1, bounds=Bounds.of({"ScalingConfig": {"MaximumConcurrency": 2}}, fifo=False))
    bench.send(7)
    seen = []
    bench.run(5)
    while bench.jobs:
        seen.append(len(bench.jobs))
        bench.finish()
    assert max(seen) == 2
    assert bench.depth() == 0


def test_errors_take_concurrency_away_and_success_gives_it_back() -> None:
    bench = Bench(batch_size=1)
    bench.send(40)
    bench.run()
    for _ in range(6):
        bench.finish(ERROR)
    assert len(bench.jobs) == FEWEST
    for _ in range(6):
        bench.finish(DONE)
    assert len(bench.jobs) == 5


def test_errors_cost_no_concurrency_when_failures_are_reported() -> None:
    bench = Bench(batch_size=1, reports=True)
    bench.send(40)
    bench.run()
    for _ in range(6):
        bench.finish(ERROR)
    assert len(bench.jobs) >= 5


@pytest.mark.parametrize(
    ("mapping", "fifo", "bounds"),
    [
        ({}, False, (5, MOST, 300)),
        ({}, True, (MOST, MOST, 300)),
        ({"ScalingConfig": {"MaximumConcurrency": 2}}, False, (2, 2, 300)),
        ({"ScalingConfig": {"MaximumConcurrency": 100}}, False, (5, 100, 300)),
        ({"ScalingConfig": {"MaximumConcurrency": 3}}, True, (3, 3, 300)),
        ({"ProvisionedPollerConfig": {"MinimumPollers": 2, "MaximumPollers": 4}}, False, (20, 40, 1000)),
        ({"ProvisionedPollerConfig": {"MaximumPollers": 4}}, False, (20, 40, 1000)),
    ],
)
def test_bounds_of_a_mapping(mapping: dict[str, Any], fifo: bool, bounds: tuple[int, int, int]) -> None:
    assert Bounds.of(mapping, fifo=fifo) == Bounds(*bounds)


@given(st.lists(st.sampled_from(["failed", "succeeded", "busy", "calm", "idle"])), st.integers(2, 1_000))
def test_the_concurrency_stays_in_its_bounds(events: list[str], most: int) -> None:
    scaling = Scaling(Bounds.of({"ScalingConfig": {"MaximumConcurrency": most}}, fifo=False))
    now = 0.0
    for event in events:
        now += 0.5
        if event == "busy":
            scaling.busy(now)
        else:
            getattr(scaling, event)()
        assert FEWEST <= scaling.limit <= min(most, CEILING)


# -- throttles -----------------------------------------------------------------------------------------------------


def test_a_throttled_batch_is_tried_again_with_the_same_receive() -> None:
    bench = Bench(batch_size=1)
    bench.send()
    bench.run()
    bench.finish(THROTTLED)
    assert bench.jobs == []
    bench.run(backoff(1))
    assert len(bench.jobs) == 1
    assert {message["receive_count"] for message in bench.store} == {1}
    bench.finish()
    assert bench.depth() == 0


def test_throttles_until_the_visibility_timeout_cost_a_receive_and_lead_to_the_dead_letter_queue() -> None:
    bench = Bench(batch_size=1, max_receives=1)
    bench.send()
    for _ in range(200):
        bench.run(0.5)
        while bench.jobs:
            bench.finish(THROTTLED)
        if bench.clock.now > bench.start + VISIBILITY + 1:
            break
    assert (bench.depth(), len(bench.dead)) == (0, 1)
    assert [message["receive_count"] for message in bench.dead] == [1]


def test_a_throttled_batch_holds_its_place() -> None:
    bench = Bench(batch_size=1, bounds=Bounds.of({"ScalingConfig": {"MaximumConcurrency": 2}}, fifo=False))
    bench.send(5)
    bench.run()
    bench.finish(THROTTLED)
    assert len(bench.jobs) == 1
    bench.run(backoff(1))
    assert len(bench.jobs) == 2


# -- FIFO ----------------------------------------------------------------------------------------------------------


def test_groups_run_beside_each_other_and_each_in_order() -> None:
    bench = Bench(fifo=True, batch_size=1)
    names = {group: bench.send(3, group=group) for group in "abcdefgh"}
    seen: dict[str, list[str]] = {group: [] for group in names}
    group_of = {name: group for group, members in names.items() for name in members}
    bench.run()
    assert len(bench.jobs) == len(names)
    while bench.jobs:
        assert max(Counter(group_of[batch[0]] for batch in bench.batches()).values()) == 1
        (name,) = bench.finish(index=len(bench.jobs) // 2)
        seen[group_of[name]].append(name)
    assert seen == names


def test_a_failed_message_holds_back_its_group_alone_and_the_order_stays() -> None:
    bench = Bench(fifo=True, batch_size=2, max_receives=5)
    first = bench.send(3, group="a")
    bench.run()
    bench.finish(ERROR)
    other = bench.send(2, group="b")
    bench.run()
    assert bench.batches() == [other]
    bench.finish()
    bench.run(VISIBILITY)
    assert bench.batches() == [first[:2]]
    bench.finish()
    assert bench.batches() == [first[2:]]


def test_a_fifo_batch_that_is_too_large_is_invoked_part_by_part_and_stops_where_it_fails() -> None:
    bench = Bench(fifo=True, size=MAX_EVENT // 2 - 100)
    names = bench.send(6, group="a")
    bench.run()
    assert bench.batches() == [names[:2]]
    bench.finish()
    assert bench.batches() == [names[2:4]]
    bench.finish(ERROR)
    assert bench.jobs == []
    bench.run(VISIBILITY)
    assert bench.batches() == [names[2:4]]
    bench.finish()
    bench.finish()
    assert bench.depth() == 0


def test_a_standard_batch_that_is_too_large_becomes_batches_beside_each_other() -> None:
    bench = Bench(size=MAX_EVENT // 2 - 100)
    names = bench.send(6)
    bench.run()
    assert bench.batches() == [names[:2], names[2:4], names[4:]]


# -- the loop ------------------------------------------------------------------------------------------------------


def test_of_several_wake_ups_the_earliest_counts() -> None:
    clock = Clock()
    loop = Loop(clock, threaded=False)
    steps: list[float] = []

    class Stepper:
        def step(self) -> float | None:
            steps.append(clock.now)
            return None

    stepper = Stepper()
    for offset in (5, 2, 9):
        loop.wake(stepper, clock.now + offset)
    assert loop.next_due() == clock.now + 2
    clock.now += 20
    loop.run_due()
    assert len(steps) == 1
    assert loop.next_due() is None


def test_a_step_that_breaks_is_taken_again_and_holds_up_no_other() -> None:
    clock = Clock()
    loop = Loop(clock, threaded=False)
    steps: list[str] = []

    class Stepper:
        def __init__(self, name: str) -> None:
            self.name = name

        def step(self) -> float | None:
            steps.append(self.name)
            if self.name == "broken":
                raise RuntimeError("broken")
            return None

    broken, sound = Stepper("broken"), Stepper("sound")
    loop.wake(broken)
    loop.wake(sound)
    loop.run_due()
    assert steps == ["broken", "sound"]
    assert loop.next_due() == clock.now + PAUSE_AFTER_ERROR


# -- everything at once --------------------------------------------------------------------------------------------

ACTIONS = st.lists(
    st.tuples(
        st.sampled_from(["send", "finish", "error", "throttle", "report", "wait", "long"]),
        st.integers(0, 3),
    ),
    max_size=40,
)


@settings(max_examples=150)
@given(ACTIONS, st.booleans(), st.integers(1, 12), st.sampled_from([0, 2]))
def test_no_message_is_lost_and_none_is_in_two_batches_while_it_is_invisible(
    actions: list[tuple[str, int]], fifo: bool, size: int, window: int
) -> None:
    bench = Bench(fifo=fifo, batch_size=min(size, 10) if fifo else size, window=0 if fifo else window, reports=True)
    sent: set[str] = set()
    done: Counter[str] = Counter()

    def settle(outcome: Outcome, index: int) -> None:
        held = {one.id for one in bench.jobs[index].batch if one.until > bench.clock.now}
        names = bench.finish(outcome, index)
        if not outcome.error and outcome.answer is None:
            done.update(held & set(names))

    for action, number in actions:
        if action == "send":
            sent |= set(bench.send(number + 1, group=f"g{number}" if fifo else None))
        elif action == "wait":
            bench.run(number)
        elif action == "long":
            bench.run(VISIBILITY)
        elif bench.jobs:
            index = number % len(bench.jobs)
            first = bench.jobs[index].batch[0].id
            report = Outcome(answer={"batchItemFailures": [{"itemIdentifier": first}]})
            settle({"finish": DONE, "error": ERROR, "throttle": THROTTLED, "report": report}[action], index)
        bench.run()
        now = bench.clock.now
        live = Counter(one.id for job in bench.jobs for one in job.batch if one.until > now)
        assert set(live.values()) <= {1}
        assert all(len(job.batch) <= bench.poller.settings.batch_size for job in bench.jobs)
    for _ in range(2_000):
        if not bench.depth():
            break
        if bench.jobs:
            settle(DONE, 0)
        else:
            bench.run(VISIBILITY)
    assert bench.depth() == 0
    bench.run(3 * VISIBILITY)
    assert not [job for job in bench.jobs if job.until() > bench.clock.now]
    assert set(done) <= sent
