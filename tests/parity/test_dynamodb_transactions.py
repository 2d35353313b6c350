"""DynamoDB: TransactWriteItems writes all or nothing, and says which condition did not hold."""

from __future__ import annotations

import threading
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from botocore.exceptions import ClientError

from labkit import facts

from .conftest import Aws
from .rows import row

MODEL = "botocore: dynamodb service model"
TABLE = "transactions"


@pytest.fixture
def db(aws: Aws) -> Any:
    client = aws.client("dynamodb")
    client.create_table(
        TableName=TABLE,
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    client.get_waiter("table_exists").wait(TableName=TABLE, WaiterConfig={"Delay": 1, "MaxAttempts": 30})
    return client


def key(pk: str) -> dict[str, Any]:
    return {"pk": {"S": pk}}


def put(pk: str, **more: Any) -> dict[str, Any]:
    return {"Put": {"TableName": TABLE, "Item": {**key(pk), **more.pop("with_", {})}, **more}}


def new(pk: str, **more: Any) -> dict[str, Any]:
    return put(pk, ConditionExpression="attribute_not_exists(pk)", **more)


def add(pk: str, number: int = 1) -> dict[str, Any]:
    return {
        "Update": {
            "TableName": TABLE,
            "Key": key(pk),
            "UpdateExpression": "ADD n :n",
            "ExpressionAttributeValues": {":n": {"N": str(number)}},
        }
    }


def cancelled(db: Any, *items: dict[str, Any]) -> list[dict[str, Any]]:
    """The reasons of a transaction that is to be cancelled."""
    with pytest.raises(ClientError) as raised:
        db.transact_write_items(TransactItems=list(items))
    assert raised.value.response["Error"]["Code"] == facts("dynamodb.transact.error")
    return list(raised.value.response["CancellationReasons"])


def code(db: Any, *items: dict[str, Any], **more: Any) -> str:
    with pytest.raises(ClientError) as raised:
        db.transact_write_items(TransactItems=list(items), **more)
    return str(raised.value.response["Error"]["Code"])


def there(db: Any, pk: str) -> Any:
    return db.get_item(TableName=TABLE, Key=key(pk), ConsistentRead=True).get("Item")


def count(db: Any, pk: str) -> int:
    return int((there(db, pk) or {}).get("n", {}).get("N", 0))


@row("dynamodb.transact.atomic", "A transaction writes all of its items, or none.", source=MODEL)
def test_all_or_nothing(db: Any) -> None:
    db.transact_write_items(TransactItems=[new("a"), new("b")])
    assert there(db, "a")
    assert there(db, "b")
    cancelled(db, put("c"), new("a"), add("d"))
    assert (there(db, "c"), there(db, "d")) == (None, None)


@row(
    "dynamodb.transact.reasons",
    "A cancelled transaction has a reason for each item in order, None where there is none, and the blocking item "
    "where it was asked for.",
    source=MODEL,
)
def test_reasons(db: Any) -> None:
    db.put_item(TableName=TABLE, Item={**key("a"), "v": {"S": "old"}})
    reasons = cancelled(
        db,
        put("x"),
        new("a", ReturnValuesOnConditionCheckFailure="ALL_OLD"),
        put("y", ConditionExpression="attribute_exists(pk)"),
    )
    refused = facts("dynamodb.transact.condition_code")
    assert [reason["Code"] for reason in reasons] == ["None", refused, refused]
    assert reasons[1]["Item"] == {**key("a"), "v": {"S": "old"}}
    assert "Message" not in reasons[0]
    assert "Item" not in reasons[2]


@row(
    "dynamodb.transact.check",
    "A ConditionCheck holds a transaction back by an item that it does not write.",
    source=MODEL,
)
def test_condition_check(db: Any) -> None:
    check = {"ConditionCheck": {"TableName": TABLE, "Key": key("guard"), "ConditionExpression": "attribute_exists(pk)"}}
    refused = facts("dynamodb.transact.condition_code")
    assert [reason["Code"] for reason in cancelled(db, put("a"), check)] == ["None", refused]
    assert there(db, "a") is None
    db.put_item(TableName=TABLE, Item=key("guard"))
    db.transact_write_items(TransactItems=[put("a"), check])
    assert there(db, "a")
    assert there(db, "guard") == key("guard")


@row("dynamodb.transact.one_each", "No two actions of a transaction may be at the same item.", source=MODEL)
def test_two_actions_on_one_item(db: Any) -> None:
    assert code(db, put("a"), add("a")) in ("ValidationException", "TransactionCanceledException")
    assert there(db, "a") is None


@row("dynamodb.transact.max_items", "A transaction has at most 100 actions.", source=MODEL)
def test_the_most_items(db: Any) -> None:
    most = int(facts("dynamodb.transact.max_items"))
    items = [put(f"item-{n}") for n in range(most + 1)]
    assert code(db, *items) == "ValidationException"
    assert there(db, "item-0") is None
    db.transact_write_items(TransactItems=items[:most])
    assert there(db, f"item-{most - 1}")


@row(
    "dynamodb.transact.token",
    "The same ClientRequestToken writes once; with other parameters it is an error.",
    source=MODEL,
)
def test_client_request_token(db: Any) -> None:
    token = uuid.uuid4().hex
    for _ in range(2):
        db.transact_write_items(TransactItems=[add("a")], ClientRequestToken=token)
    assert count(db, "a") == 1
    assert code(db, add("a", 2), ClientRequestToken=token) == "IdempotentParameterMismatchException"
    db.transact_write_items(TransactItems=[add("a")])
    assert count(db, "a") == 2


@row(
    "dynamodb.transact.invalid_update",
    "An update that cannot be applied, or makes its item too large, cancels the whole transaction as ValidationError.",
    source=MODEL,
)
@pytest.mark.parametrize("large", [False, True])
def test_an_update_that_cannot_be(db: Any, large: bool) -> None:
    db.put_item(TableName=TABLE, Item={**key("a"), "n": {"S": "text"}})
    bad = add("a")
    if large:
        value = "x" * (int(facts("dynamodb.item.max_bytes")) + 1)
        bad["Update"].update(UpdateExpression="SET n = :n", ExpressionAttributeValues={":n": {"S": value}})
    assert [reason["Code"] for reason in cancelled(db, put("b"), bad)] == ["None", "ValidationError"]
    assert there(db, "b") is None


@row("dynamodb.transact.no_table", "A transaction with a table that is not there writes nothing.", source=MODEL)
def test_no_table(db: Any) -> None:
    assert code(db, put("a"), {"Put": {"TableName": "nowhere", "Item": key("a")}}) == "ResourceNotFoundException"
    assert there(db, "a") is None


@row(
    "dynamodb.transact.isolated",
    "Of concurrent transactions at the same items none is half visible to TransactGetItems, and none is lost.",
    source=MODEL,
)
def test_concurrent_transactions(aws: Aws, db: Any) -> None:
    done, passing = threading.Event(), set(str(facts("dynamodb.transact.retried_codes")).split("|"))
    seen: list[tuple[Any, ...]] = []

    def one(work: Any) -> Any:
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                return work()
            except ClientError as error:  # a conflict is AWS's answer to two at once: try again
                codes = {reason["Code"] for reason in error.response.get("CancellationReasons", [])}
                assert codes - {"None"} <= passing
                time.sleep(0.01)
        raise AssertionError("conflicts without end")

    def writes(_: int) -> None:
        for _ in range(15):
            one(lambda: db.transact_write_items(TransactItems=[add("left"), add("right")]))

    def reads() -> None:
        gets = [{"Get": {"TableName": TABLE, "Key": key(pk)}} for pk in ("left", "right")]
        while not done.is_set():
            answer = one(lambda: db.transact_get_items(TransactItems=gets))
            seen.append(tuple(each.get("Item", {}).get("n", {}).get("N") for each in answer["Responses"]))

    with ThreadPoolExecutor(5) as pool:
        reader = pool.submit(reads)
        try:
            list(pool.map(writes, range(4)))
        finally:
            done.set()
        reader.result(90)
    assert [pair for pair in seen if pair[0] != pair[1]] == []
    assert (count(db, "left"), count(db, "right")) == (60, 60)
