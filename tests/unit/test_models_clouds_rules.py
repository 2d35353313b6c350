"""What holds for each of five brokers whatever its callers do: a state machine that publishes, works and waits.

The checks read the history alone, so that a broker cannot agree with itself.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from labkit.models.clouds import Broker, Clock, Delivery, Event, EventBridge, EventGrid, PubSub, ServiceBus, Sqs

BROKERS: Mapping[str, Callable[[Clock], Broker]] = {
    "SQS": lambda c: Sqs(c, max_receive_count=3),
    "SQS FIFO": lambda c: Sqs(c, fifo=True, max_receive_count=3),
    "Pub/Sub": lambda c: PubSub(c, max_attempts=5, backoff=(10, 100)),
    "Pub/Sub, ordering": lambda c: PubSub(c, ordering=True, max_attempts=5),
    "Pub/Sub, ordering, backoff": lambda c: PubSub(c, ordering=True, max_attempts=6, backoff=(10, 100)),
    "Pub/Sub, ordering, exactly once": lambda c: PubSub(c, ordering=True, exactly_once=True, max_attempts=5),
    "Service Bus": lambda c: ServiceBus(c, max_delivery_count=3, dedup_window=60),
    "Service Bus, sessions": lambda c: ServiceBus(c, sessions=True, max_delivery_count=3),
    "Service Bus, time to live": lambda c: ServiceBus(c, ttl=100, dead_letter_expired=True),
    "Event Grid": lambda c: EventGrid(c, ttl=3600, store_down=[(100, 900)]),
    "Event Grid, 4 attempts": lambda c: EventGrid(c, max_attempts=4, endpoint="azure"),
    "EventBridge": lambda c: EventBridge(c, max_age=300, max_retries=6),
    "EventBridge V2, group": lambda c: EventBridge(c, hold="group"),
    "EventBridge V2, all": lambda c: EventBridge(c, hold="all"),
}
ORDERED = {name for name in BROKERS if "FIFO" in name or "ordering" in name or "sessions" in name or "V2" in name}
MOST = {  # deliveries that may end in nothing, by what is set above
    "SQS": 3, "SQS FIFO": 3, "Service Bus": 3, "Service Bus, sessions": 3, "Event Grid, 4 attempts": 4, "Pub/Sub": 5,
    "EventBridge": 7, "EventBridge V2, group": 6, "EventBridge V2, all": 6,
}  # fmt: skip
ENDS = {"acked": "acked", "reopened": "waiting", "dead-lettered": "dead", "lost": "lost", "published": "waiting"}
CLOSES = {"acked", "nacked", "lapsed", "superseded", "dead-lettered", "lost"}


def states(history: list[Event]) -> dict[int, str]:
    """What became of each message, read from the history."""
    return {e.message: ENDS[e.what] for e in history if e.what in ENDS}


def check_no_delivery_after_an_ack(history: list[Event], *, reopens: bool) -> None:
    acked: set[int] = set()
    for event in history:
        if event.what == "acked":
            acked.add(event.message)
        elif event.what == "reopened":
            assert reopens, "only Pub/Sub's ordering without exactly-once delivery may do this"
            assert event.message in acked
            acked.remove(event.message)
        elif event.what == "delivered":
            assert event.message not in acked


def check_one_holder(history: list[Event]) -> None:
    held: set[int] = set()
    for event in history:
        if event.what == "delivered":
            assert event.message not in held
            held.add(event.message)
        elif event.what in CLOSES:
            held.discard(event.message)


def check_order(history: list[Event], batches: list[set[int]], *, sessions: bool) -> None:
    """A message is delivered only when each earlier one of its key is settled, or in the same hands."""
    batch_of = {handle: n for n, batch in enumerate(batches) for handle in batch}
    state: dict[str, dict[int, str]] = defaultdict(dict)
    holds: dict[int, int] = {}
    for event in history:
        mine = state[event.key]
        if event.what in ENDS:
            mine[event.message] = ENDS[event.what]
            holds.pop(event.message, None)
        elif event.what in CLOSES:
            holds.pop(event.message, None)
        elif event.what == "delivered":
            holds[event.message] = event.handle
            for earlier, found in mine.items():
                if earlier < event.message and found == "waiting":
                    assert earlier in holds, f"{event} overtakes {earlier}"
                    assert sessions or batch_of[holds[earlier]] == batch_of[event.handle]


class Machine(RuleBasedStateMachine):
    name = ""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.broker = BROKERS[self.name](self.clock)
        self.open: list[Delivery] = []
        self.batches: list[set[int]] = []
        self.names = itertools.count()
        self.accepted = 0

    @rule(key=st.sampled_from("ab"), repeats=st.booleans())
    def publish(self, key: str, repeats: bool) -> None:
        name = "again" if repeats else f"n{next(self.names)}"
        before = len(self.broker.history)
        given = self.broker.publish(name, key=key, name=name)
        dropped = any(e.what == "dropped" for e in self.broker.history[before:])
        assert dropped == (given is None)
        self.accepted += not dropped

    @rule(most=st.integers(1, 4), by=st.sampled_from("xyz"))
    def receive(self, most: int, by: str) -> None:
        given = self.broker.receive(most, by=by)
        assert len(given) <= most
        assert [d.at for d in given] == [self.clock()] * len(given)
        self.batches.append({d.handle for d in given})
        self.open += given

    @precondition(lambda self: self.open)
    @rule(data=st.data(), verb=st.sampled_from(["ack", "ack", "nack", "extend", "keep"]))
    def answer(self, data: Any, verb: str) -> None:
        delivery = data.draw(st.sampled_from(self.open))
        before = len(self.broker.history)
        held = self._held(delivery)
        if verb == "ack":
            said = self.broker.ack(delivery)
            if self.name not in ("SQS", "Pub/Sub, ordering, exactly once"):  # they have rules of their own
                assert (said == "ok") == held
        elif verb == "nack":
            said = self.broker.nack(delivery, data.draw(st.sampled_from(["500", "400", "401", "NO_RESOURCE"])))
        elif verb == "extend":
            said = self.broker.extend(delivery)
        else:
            return
        assert said in ("ok", "ignored", "refused")
        if said != "ok":  # and then nothing has changed but the clock's own work
            own = {"acked", "nacked", "extended", "reopened"}
            assert not any(e.what in own for e in self.broker.history[before:])

    @rule(seconds=st.sampled_from([1, 5, 9, 10, 30, 59, 60, 300, 1000, 4000]))
    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds)
        self.broker.tick()

    @invariant()
    def nothing_is_lost_or_made_up(self) -> None:
        found = states(self.broker.history)
        assert len(found) == self.accepted
        assert sorted(self.broker.left) == sorted(
            next(e.body for e in self.broker.history if e.message == message)
            for message, state in found.items()
            if state == "waiting"
        )
        assert [e for e in self.broker.history if e.what == "lost"] == []  # nothing here documents a loss

    @invariant()
    def time_goes_forward(self) -> None:
        moments = [e.at for e in self.broker.history]
        assert moments == sorted(moments)
        due = self.broker.due()
        assert due is None or due > self.clock()

    @invariant()
    def what_was_acknowledged_does_not_come_again(self) -> None:
        reopens = self.name.startswith("Pub/Sub, ordering") and "exactly" not in self.name
        check_no_delivery_after_an_ack(self.broker.history, reopens=reopens)

    @invariant()
    def a_message_has_one_holder(self) -> None:
        if self.name != "SQS":  # an older handle gives back what a newer one holds: nobody is told
            check_one_holder(self.broker.history)

    @invariant()
    def order_holds_where_it_is_promised(self) -> None:
        if self.name in ORDERED:
            check_order(self.broker.history, self.batches, sessions="sessions" in self.name)

    @invariant()
    def deliveries_are_counted(self) -> None:
        counts: dict[int, int] = defaultdict(int)
        for event in self.broker.history:
            if event.what == "delivered":
                counts[event.message] += 1
                assert event.attempt == counts[event.message]
        assert max(counts.values(), default=0) <= MOST.get(self.name, 1000)

    def teardown(self) -> None:
        """Nobody acknowledges any more: in the end everything is in the dead-letter place."""
        for _ in range(2000):
            while self.broker.receive(10, by="z"):
                pass
            if (due := self.broker.due()) is None:
                break
            self.clock.until(due)
        assert self.broker.left == []
        assert set(states(self.broker.history).values()) <= {"acked", "dead"}

    def _held(self, delivery: Delivery) -> bool:
        """By the history: is this delivery the newest of its message, and is nothing said about it yet?"""
        self.broker.tick()
        message = next(e.message for e in self.broker.history if e.handle == delivery.handle)
        about = [e for e in self.broker.history if e.message == message and e.what in {*CLOSES, "delivered"}]
        return about[-1].what == "delivered" and about[-1].handle == delivery.handle


@pytest.mark.parametrize("name", BROKERS)
def test_rules(name: str) -> None:
    machine = type("Named", (Machine,), {"name": name})
    calm = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        machine, settings=settings(max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=calm)
    )
