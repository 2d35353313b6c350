"""Reported: work that runs again after a timeout, answers for another payload, records that outlive their time."""

from __future__ import annotations

import time

import pytest

from labkit import Lab
from labkit.models.windows import Window
from labkit.state.idempotency import Busy, Fenced, IdempotencyStore, PayloadMismatch, Work
from tests.clock import Clock

CHARGE = Work.named("conv-8842-step-7", "payments", {"amount": 10})
SHORT = Window(event_age=0, retention=1)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(lab: Lab, clock: Clock) -> IdempotencyStore:
    return IdempotencyStore.create(lab, "steps", lease=30, window=60, covers=SHORT, clock=clock)


def test_p36_after_a_timeout_the_work_is_taken_over_and_the_far_end_needs_a_key(
    store: IdempotencyStore, clock: Clock
) -> None:
    """A handler timed out after it had charged; the same payload ran again and charged twice.

    To take over is what the lease is for: no store can know whether the charge went through. The far end can, with a
    key that both attempts share. And the late first worker does not write over the newer result.
    """
    charged: dict[str, int] = {}

    def charge(key: str) -> int:
        return charged.setdefault(key, len(charged) + 1)  # what a payment provider does with an idempotency key

    first = store.claim(CHARGE)
    with pytest.raises(Busy):
        store.claim(CHARGE)
    charge(CHARGE.trace_id)
    clock.now += 31  # … and the first worker is gone, or slow
    second = store.claim(CHARGE)
    assert (second.done, second.attempt) == (False, 2)
    second.complete({"charge": charge(CHARGE.trace_id)})
    assert charged == {CHARGE.trace_id: 1}
    with pytest.raises(Fenced) as fenced:
        first.complete({"charge": "mine"})
    assert fenced.value.newer() == {"charge": 1}


@pytest.mark.parametrize("state", ["running", "done"])
def test_p37_the_same_key_with_another_payload_is_an_error_on_every_path(store: IdempotencyStore, state: str) -> None:
    """Key kept, amount changed: the stored answer came back where the record arrived with the refused write.

    The payload is compared wherever a record is read, so never is an old answer given for new work.
    """
    claim = store.claim(CHARGE)
    if state == "done":
        claim.complete({"charge": 1})
    changed = Work.named(CHARGE.trace_id, CHARGE.consumer, {"amount": 1_000})
    with pytest.raises(PayloadMismatch):
        store.claim(changed)
    if state == "running":
        claim.complete({"charge": 1})
    assert store.claim(CHARGE).result == {"charge": 1}  # and the record is untouched


def test_p39_an_expired_item_is_still_there_so_conditions_and_reads_say_the_time(
    store: IdempotencyStore, clock: Clock
) -> None:
    """Items with 60 s to live were read ten minutes later: DynamoDB deletes when it gets to it, days later at worst.

    So time to live is housekeeping, never a condition: the store compares the expiry itself, in the same write.
    """
    store.claim(CHARGE).complete({"charge": 1})
    clock.now += 600
    record = store.look(CHARGE)
    assert record is not None
    assert record.expires_at < clock.now  # expired, and nobody has deleted it
    again = store.claim(CHARGE)
    assert (again.done, again.attempt) == (False, 2)


def test_p39_a_read_that_filters_sees_no_expired_item(lab: Lab) -> None:
    """The reading side of the report: ask for what has not expired, whether the sweep has been there or not."""
    client, table = lab.client("dynamodb"), lab.resource_name("sessions")
    client.create_table(
        TableName=table,
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
        Tags=[{"Key": key, "Value": value} for key, value in lab.tags.items()],
    )
    client.get_waiter("table_exists").wait(TableName=table, WaiterConfig={"Delay": 1, "MaxAttempts": 30})
    now = int(time.time())
    for key, expires in (("old", now - 600), ("live", now + 600)):
        client.put_item(TableName=table, Item={"pk": {"S": key}, "expires_at": {"N": str(expires)}})
    found = client.scan(
        TableName=table, FilterExpression="expires_at > :now", ExpressionAttributeValues={":now": {"N": str(now)}}
    )
    assert [item["pk"]["S"] for item in found["Items"]] == ["live"]
    # A write treats the expired item as absent, and the live one as present.
    for key, taken in (("old", True), ("live", False)):
        try:
            client.put_item(
                TableName=table,
                Item={"pk": {"S": key}, "expires_at": {"N": str(now + 60)}},
                ConditionExpression="attribute_not_exists(pk) OR expires_at < :now",
                ExpressionAttributeValues={":now": {"N": str(now)}},
            )
        except client.exceptions.ConditionalCheckFailedException:
            assert not taken
        else:
            assert taken
