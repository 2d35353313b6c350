"""Tenants of a fair queue, order by order, without a server."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parity.sqs_fair import NOISY_IN_FLIGHT, QUIET_AFTER, Tenants
from parity.sqs_store import MessageStore


class Queue:
    """A standard queue with a clock."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.store = MessageStore("arn:aws:sqs:us-east-1:000000000000:work", clock=lambda: self.now)

    def send(self, tenant: str | None, number: int = 1) -> None:
        for _ in range(number):
            message = {"sent_at": self.now, "visible_at": self.now, "receive_count": 0, "sys": {}, "body": ""}
            self.store.put({**message, "id": str(uuid.uuid4()), "group_id": tenant})

    def receive(self, number: int, visibility: float = 1000) -> list[Any]:
        return self.store.receive(number, visibility)


def tenants(batch: list[dict[str, Any]]) -> list[str]:
    return [message["group_id"] for message in batch]


@pytest.fixture
def queue() -> Queue:
    return Queue()


def test_the_quiet_come_first(queue: Queue) -> None:
    queue.send("noisy", 100)
    queue.receive(NOISY_IN_FLIGHT)
    queue.send("quiet", 2)
    assert tenants(queue.receive(4)) == ["quiet", "quiet", "noisy", "noisy"]


def test_one_below_the_threshold_is_not_noisy(queue: Queue) -> None:
    queue.send("noisy", 100)
    queue.receive(NOISY_IN_FLIGHT - 1)
    queue.send("quiet")
    assert tenants(queue.receive(2)) == ["noisy", "noisy"]


@pytest.mark.parametrize(("others", "expected"), [(270, "even"), (269, "quiet")])
def test_a_tenth_of_the_messages_in_flight_is_not_noisy(queue: Queue, others: int, expected: str) -> None:
    for number in range(others):
        queue.send(f"other-{number}")
    queue.receive(others)
    queue.send("even", 40)
    queue.receive(30)
    queue.send("quiet")
    assert tenants(queue.receive(1)) == [expected]


def test_of_two_noisy_tenants_the_one_with_fewer_in_flight_is_next(queue: Queue) -> None:
    queue.send("loud", 40)
    queue.send("less", 30)
    queue.receive(70)
    queue.send("loud", 20)
    queue.send("less", 20)
    assert tenants(queue.receive(10)) == ["less"] * 10
    assert sorted(tenants(queue.receive(4))) == ["less", "less", "loud", "loud"]  # 40 each now: in turn


def test_a_message_without_a_group_is_its_own_tenant(queue: Queue) -> None:
    queue.send(None, 100)
    queue.receive(50)
    queue.send("quiet")
    assert tenants(queue.receive(2)) == [None, None]


def test_silence_makes_quiet(queue: Queue) -> None:
    queue.send("noisy", 100)
    queue.receive(30)
    queue.send("quiet")
    assert tenants(queue.receive(1)) == ["quiet"]
    queue.now += QUIET_AFTER
    queue.send("quiet")
    assert tenants(queue.receive(1)) == ["noisy"]


def test_a_small_share_makes_quiet(queue: Queue) -> None:
    queue.send("noisy", 100)
    batch = queue.receive(30)
    queue.send("quiet")
    queue.receive(1)
    for message in batch:
        queue.store.delete(message["receipt_handle"])
    queue.send("quiet")
    assert tenants(queue.receive(1)) == ["noisy"]


def test_nothing_is_kept_of_a_tenant_without_messages(queue: Queue) -> None:
    queue.send("a", 3)
    for message in queue.receive(3):
        queue.store.delete(message["receipt_handle"])
    judge: Tenants = queue.store._order.tenants  # type: ignore[union-attr]
    assert not judge.in_flight
    assert not judge.backlog
    assert not judge.last_send


@given(
    steps=st.lists(
        st.tuples(
            st.sampled_from(["send", "receive", "delete", "wait"]),
            st.sampled_from(["a", "b", "c", None]),
            st.integers(1, 40),
        ),
        max_size=30,
    )
)
def test_fairness_loses_nothing(steps: list[tuple[str, str | None, int]]) -> None:
    queue = Queue()
    sent, gone, held = 0, 0, []
    for step, tenant, number in steps:
        if step == "send":
            queue.send(tenant, number)
            sent += number
        elif step == "receive":
            held += queue.receive(number, 50)
        elif step == "wait":
            queue.now += number
        else:
            gone += sum(queue.store.delete(message["receipt_handle"]) for message in held[:number])
            held = held[number:]
    queue.now += 1000
    while batch := queue.receive(10):
        gone += sum(queue.store.delete(message["receipt_handle"]) for message in batch)
    assert gone == sent
