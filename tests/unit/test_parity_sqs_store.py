"""The message store of SQS by itself, on a clock that the test moves."""

from __future__ import annotations

import base64
import time
from collections import Counter
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from parity.sqs_errors import SqsError
from parity.sqs_handles import MAX_VISIBILITY, Receipt, decode, encode
from parity.sqs_order import READY, LazyHeap, Message
from parity.sqs_store import DeadLetter, MessageStore

ARN = "arn:aws:sqs:us-east-1:000000000000:work"
DEAD = f"{ARN}-dead"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def record(name: str, now: float, *, delay: float = 0, group: str | None = None) -> dict[str, Any]:
    return {
        "id": name,
        "body": name,
        "sent_at": now,
        "visible_at": now + delay,
        "receive_count": 0,
        "group_id": group,
        "sys": {},
    }


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(clock: Clock) -> MessageStore:
    return MessageStore(ARN, clock=clock)


def ids(batch: list[dict[str, Any]]) -> list[str]:
    return [message["id"] for message in batch]


# -- receipt handles -----------------------------------------------------------------------------------------------


def test_a_handle_says_what_it_was_made_of() -> None:
    receipt = Receipt(ARN, "id", 3, 12.5)
    assert decode(encode(receipt)) == receipt
    assert encode(receipt) != encode(receipt)
    assert encode(receipt).startswith("AQEB")
    told = Receipt(ARN, "the-id-of-a-message", 3, 12.5)
    assert b"the-id-of-a-message" not in base64.b64decode(encode(told))


@pytest.mark.parametrize(
    "handle",
    ["", "garbage", "AQEB", "AQEBAAAA", "äöü", encode(Receipt(ARN, "id", 1, 0))[:-4]],
    ids=lambda handle: f"{len(handle)} letters",
)
def test_garbage_is_no_handle(handle: str) -> None:
    assert decode(handle) is None


@pytest.mark.parametrize("position", range(4, 60, 3))
def test_a_changed_handle_is_no_handle(position: int) -> None:
    handle = encode(Receipt(ARN, "id", 1, 0))
    changed = handle[:position] + ("A" if handle[position] != "A" else "B") + handle[position + 1 :]
    assert decode(changed) is None


# -- one rule at a time --------------------------------------------------------------------------------------------


def test_a_handle_expires_twelve_hours_after_its_receive(store: MessageStore, clock: Clock) -> None:
    store.put(record("a", clock()))
    [message] = store.receive(1, 30)
    clock.now += MAX_VISIBILITY + 1
    with pytest.raises(SqsError, match="expired"):
        store.delete(message["receipt_handle"])


def test_visibility_is_twelve_hours_in_all(store: MessageStore, clock: Clock) -> None:
    store.put(record("a", clock()))
    [message] = store.receive(1, MAX_VISIBILITY)
    clock.now += 3600
    with pytest.raises(SqsError, match="beyond the limit"):
        store.change_visibility(message["receipt_handle"], MAX_VISIBILITY - 3599)
    store.change_visibility(message["receipt_handle"], MAX_VISIBILITY - 3600)
    clock.now += MAX_VISIBILITY - 3601
    assert store.counts() == (0, 1, 0)
    clock.now += 2
    assert store.counts() == (1, 0, 0)


def test_retention_counts_from_the_send_and_takes_messages_in_flight(store: MessageStore, clock: Clock) -> None:
    store.retention = 60
    store.put(record("old", clock()))
    store.receive(1, 1000)
    clock.now += 30
    store.put(record("new", clock()))
    clock.now += 30
    assert store.counts() == (1, 0, 0)
    assert ids(store.receive(10, 0)) == ["new"]


@pytest.mark.parametrize(("fifo", "left"), [(False, 0), (True, 1)])
def test_only_a_fifo_dead_letter_queue_starts_retention_anew(clock: Clock, fifo: bool, left: int) -> None:
    store = MessageStore(ARN, fifo=fifo, clock=clock)
    dead = MessageStore(DEAD, fifo=fifo, clock=clock)
    dead.retention = 60
    store.put(record("a", clock(), group="g"))
    store.receive(1, 0)
    clock.now += 50
    assert store.receive(1, 0, DeadLetter(dead, 1)) == []
    assert dead.counts() == (1, 0, 0)
    assert dead.oldest() == clock()
    clock.now += 20
    assert dead.counts() == (left, 0, 0)


def test_a_message_back_in_sight_keeps_its_place_until_the_third_receive(store: MessageStore, clock: Clock) -> None:
    for name in "abc":
        store.put(record(name, clock()))
    for _ in range(2):
        assert ids(store.receive(1, 5)) == ["a"]
        clock.now += 6
    assert ids(store.receive(1, 5)) == ["a"]
    clock.now += 6
    assert ids(store.receive(10, 5)) == ["b", "c", "a"]


def test_hiding_a_visible_message_and_showing_it_again_delivers_it_once(store: MessageStore, clock: Clock) -> None:
    store.put(record("a", clock()))
    [message] = store.receive(1, 0)
    for _ in range(3):
        store.change_visibility(message["receipt_handle"], 5)
        store.change_visibility(message["receipt_handle"], 0)
    assert ids(store.receive(10, 30)) == ["a"]
    assert store.receive(10, 30) == []


def test_a_received_message_is_a_copy(store: MessageStore, clock: Clock) -> None:
    store.put(record("a", clock()))
    [first] = store.receive(1, 0)
    [second] = store.receive(1, 0)
    assert first["receipt_handle"] != second["receipt_handle"]
    assert (first["receive_count"], second["receive_count"]) == (1, 2)


def test_waiters_are_called_once_at_the_next_change(store: MessageStore, clock: Clock) -> None:
    calls: list[int] = []
    store.on_change(lambda: calls.append(1))
    store.put(record("a", clock()))
    store.put(record("b", clock()))
    assert calls == [1]


def test_the_next_change_is_when_a_message_becomes_visible(store: MessageStore, clock: Clock) -> None:
    store.put(record("a", clock(), delay=7))
    assert store.next_change() == clock() + 7
    clock.now += 7
    [message] = store.receive(1, 30)
    assert store.next_change() == clock() + 30
    store.delete(message["receipt_handle"])
    assert store.next_change() is None


def test_an_attempt_is_remembered_for_five_minutes(clock: Clock) -> None:
    store = MessageStore(ARN, fifo=True, clock=clock)
    store.put(record("a", clock(), group="g"))
    store.remember("try", store.receive(1, 1000))
    clock.now += 299
    again = store.receive_again("try", 1000)
    assert again is not None
    assert ids(again) == ["a"]
    assert store.next_change() == clock() + 1000
    clock.now += 2
    assert store.receive_again("try", 1000) is None


def test_an_attempt_is_void_once_its_visibility_timeout_is_over(clock: Clock) -> None:
    store = MessageStore(ARN, fifo=True, clock=clock)
    store.put(record("a", clock(), group="g"))
    store.remember("try", store.receive(1, 10))
    clock.now += 11
    assert store.receive_again("try", 10) is None


def test_a_lazy_heap_sweeps_out_what_is_stale() -> None:
    heap = LazyHeap("ready", (READY,))
    message = Message(record("a", 0))
    message.state = READY
    for key in range(1000):
        heap.push(key, message, live=1)
    assert len(heap._heap) <= 64 + 1
    assert heap.pop() is message
    assert heap.pop() is None


def test_ten_thousand_messages_drain_fast(clock: Clock) -> None:
    """A receive costs the same with a long backlog as with a short one."""
    for fifo in (False, True):
        store = MessageStore(ARN, fifo=fifo, clock=clock)
        for number in range(10_000):
            store.put(record(str(number), clock(), group=f"g{number % 100}" if fifo else None))
        started = time.thread_time()
        drained = 0
        while batch := store.receive(10, 30):
            for message in batch:
                drained += store.delete(message["receipt_handle"])
        assert drained == 10_000
        assert time.thread_time() - started < 10  # of the processor; a second on any machine, quadratic takes minutes


@pytest.mark.parametrize("fifo", [False, True])
def test_a_receive_looks_at_each_message_once(clock: Clock, fifo: bool) -> None:
    """Also when the queue is its own dead-letter queue, or when two queues are each other's."""

    @given(
        st.integers(0, 6),
        st.integers(1, 3),
        st.lists(st.tuples(st.booleans(), st.integers(1, 10), st.sampled_from([0, 0, 5])), max_size=12),
        st.booleans(),
    )
    @settings(deadline=None)
    def ends(sent: int, limit: int, receives: list[tuple[bool, int, int]], same: bool) -> None:
        first = MessageStore(ARN, fifo=fifo, clock=clock)
        second = first if same else MessageStore(DEAD, fifo=fifo, clock=clock)
        offered: list[str] = []
        for store in {id(first): first, id(second): second}.values():
            watch(store, offered)
        woken: list[int] = []
        for number in range(sent):
            first.put(record(str(number), clock(), group=f"g{number % 2}"))
        for other, number, visibility in receives:
            store, target = (second, first) if other else (first, second)
            offered.clear()
            store.on_change(lambda: woken.append(1))
            found = store.receive(number, visibility, DeadLetter(target, limit))
            assert len(offered) == len(set(offered))
            assert len(found) <= number
            assert not woken, "a receive woke the pollers of its own queue"
            store._waiters.clear()
            clock.now += 1
            assert len(first) + (0 if same else len(second)) == sent

    def watch(store: MessageStore, offered: list[str]) -> None:
        candidates = store._order.candidates

        def watched(limit: int, in_flight: int, now: float) -> list[Message]:
            batch = candidates(limit, in_flight, now)
            offered.extend(message["id"] for message in batch)
            assert len(offered) <= 100, "the receive does not end"
            return batch

        store._order.candidates = watched  # type: ignore[method-assign]

    ends()


# -- all rules together --------------------------------------------------------------------------------------------


class Conservation(RuleBasedStateMachine):
    """Whatever happens: each message is in exactly one of the queue, its dead-letter queue, and the deleted ones; a
    message in flight is not delivered; and handles do what a simple model says."""

    fifo = False

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.sent = 0
        self.deleted: set[str] = set()
        self.receives: Counter[str] = Counter()
        self.handles: list[tuple[bool, str, int, str]] = []  # in the dead-letter queue?, id, receive, handle
        self.hidden_until: dict[str, float] = {}

    @initialize(limit=st.integers(1, 4))
    def start(self, limit: int) -> None:
        self.limit = limit
        self.store = MessageStore(ARN, fifo=self.fifo, clock=self.clock)
        self.dead = MessageStore(DEAD, fifo=self.fifo, clock=self.clock)

    @rule(delay=st.sampled_from([0, 0, 5]), group=st.sampled_from(["g1", "g2", "g3"]))
    def send(self, delay: float, group: str) -> None:
        name = str(self.sent)
        self.sent += 1
        self.store.put(record(name, self.clock(), delay=delay, group=group))
        self.hidden_until[name] = self.clock() + delay

    @rule(number=st.integers(1, 10), visibility=st.sampled_from([0, 1, 10, 60]), dead=st.booleans())
    def receive(self, number: int, visibility: int, dead: bool) -> None:
        store = self.dead if dead else self.store
        batch = store.receive(number, visibility, None if dead else DeadLetter(self.dead, self.limit))
        assert len(batch) <= number
        assert len(set(ids(batch))) == len(batch)
        for message in batch:
            name = message["id"]
            assert self.hidden_until.get(name, 0) <= self.clock(), "delivered while in flight or delayed"
            self.receives[name] += 1
            assert message["receive_count"] == self.receives[name]
            assert dead or self.receives[name] <= self.limit
            self.handles.append((dead, name, self.receives[name], message["receipt_handle"]))
            self.hidden_until[name] = self.clock() + visibility

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        dead, name, receive, handle = data.draw(st.sampled_from(self.handles))
        here = name in self.names(self.dead if dead else self.store)
        newest = receive == self.receives[name]
        valid = not self.fifo or (newest and self.hidden_until[name] > self.clock())
        try:
            gone = (self.dead if dead else self.store).delete(handle)
        except SqsError:
            assert here
            assert not valid
            return
        assert gone == (here and newest)
        if gone:
            self.deleted.add(name)

    @precondition(lambda self: self.handles)
    @rule(data=st.data(), seconds=st.sampled_from([0, 5, 100]))
    def change_visibility(self, data: st.DataObject, seconds: int) -> None:
        dead, name, receive, handle = data.draw(st.sampled_from(self.handles))
        here = name in self.names(self.dead if dead else self.store)
        valid = here and (not self.fifo or (receive == self.receives[name] and self.hidden_until[name] > self.clock()))
        try:
            (self.dead if dead else self.store).change_visibility(handle, seconds)
        except SqsError:
            assert not valid
            return
        assert valid
        self.hidden_until[name] = self.clock() + seconds

    @precondition(lambda self: self.handles)
    @rule(data=st.data())
    def wrong_queue(self, data: st.DataObject) -> None:
        dead, _, _, handle = data.draw(st.sampled_from(self.handles))
        with pytest.raises(SqsError, match="not a valid receipt handle"):
            (self.store if dead else self.dead).delete(handle)

    @rule(seconds=st.sampled_from([1, 4, 11, 61]))
    def wait(self, seconds: float) -> None:
        self.clock.now += seconds

    @staticmethod
    def names(store: MessageStore) -> list[str]:
        return [message["id"] for message in store]

    @invariant()
    def every_message_is_in_one_place(self) -> None:
        if not hasattr(self, "store"):
            return
        places = Counter([*self.names(self.store), *self.names(self.dead), *self.deleted])
        assert places == Counter(str(number) for number in range(self.sent))

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "store"):
            return
        for store in (self.store, self.dead):
            visible, in_flight, delayed = store.counts()
            assert visible + in_flight + delayed == len(store)
            hidden = [name for name in self.names(store) if self.hidden_until[name] > self.clock()]
            assert in_flight + delayed == len(hidden)

    def teardown(self) -> None:
        """In the end everything can be had."""
        if not hasattr(self, "store"):
            return
        self.clock.now += MAX_VISIBILITY
        for store in (self.store, self.dead):
            while batch := store.receive(10, 60):
                self.deleted.update(message["id"] for message in batch if store.delete(message["receipt_handle"]))
        assert len(self.deleted) == self.sent


class FifoConservation(Conservation):
    fifo = True


TestStandardQueue = Conservation.TestCase
TestStandardQueue.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestFifoQueue = FifoConservation.TestCase
TestFifoQueue.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
