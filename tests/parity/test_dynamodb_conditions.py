"""DynamoDB: what a condition says about attributes that an item does not have, and how large keys and items may be."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from labkit import facts

from .conftest import Aws
from .rows import row

GUIDE = "AWS documentation: DynamoDB Developer Guide"
OPERATORS = f"{GUIDE}: Condition and filter expressions, operators, and functions"
SEEN = "seen on AWS: ScyllaDB test/alternator/test_condition_expression.py"
QUOTAS = f"{GUIDE}: Service, account, and table quotas"
TABLE = "conditions"


@pytest.fixture
def db(aws: Aws) -> Any:
    client = aws.client("dynamodb")
    names = ("pk", "HASH"), ("sk", "RANGE")
    client.create_table(
        TableName=TABLE,
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name, _ in names],
        KeySchema=[{"AttributeName": name, "KeyType": kind} for name, kind in names],
        BillingMode="PAY_PER_REQUEST",
    )
    client.get_waiter("table_exists").wait(TableName=TABLE, WaiterConfig={"Delay": 1, "MaxAttempts": 30})
    put(client, x={"N": "1"}, y={"N": "1"}, many={"L": []})
    return client


def put(db: Any, pk: str = "a", sk: str = "b", **more: Any) -> None:
    db.put_item(TableName=TABLE, Item={"pk": {"S": pk}, "sk": {"S": sk}, **more})


def answer(db: Any, condition: str, pk: str = "a", **values: Any) -> str:
    """What an update of the item under a condition comes to: "holds", or the code of the refusal."""
    request = {"TableName": TABLE, "Key": {"pk": {"S": pk}, "sk": {"S": "b"}}}
    given = {":done": {"BOOL": True}, **{f":{name}": value for name, value in values.items()}}
    try:
        db.update_item(
            **request,
            UpdateExpression="SET done = :done",
            ConditionExpression=condition,
            ExpressionAttributeValues=given,
        )
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return "holds"


FAILS = facts("dynamodb.condition.error")


@row("dynamodb.condition.missing", "An attribute that is missing is equal to nothing, and unequal to all", source=SEEN)
def test_missing(db: Any) -> None:
    one = {"N": "1"}
    for pk in ("a", "new"):  # an item that is there, and none at all
        assert answer(db, "p = q", pk=pk) == FAILS
        assert answer(db, "p = :one", pk=pk, one=one) == FAILS
        assert answer(db, "p IN (q, :one)", pk=pk, one=one) == FAILS
    assert answer(db, "x = y") == "holds"
    assert answer(db, "p <> q") == answer(db, "p <> x") == answer(db, "p <> :one", one=one) == "holds"


@row("dynamodb.condition.order", "With an attribute that is missing nothing is less, and nothing between", source=SEEN)
def test_order(db: Any) -> None:
    for operator in ("<", "<=", ">", ">="):
        assert answer(db, f"p {operator} q") == FAILS
        assert answer(db, f"p {operator} :n", n={"N": "0"}) == answer(db, f":n {operator} p", n={"N": "9"}) == FAILS
    assert answer(db, "p BETWEEN q AND r") == answer(db, "x BETWEEN q AND :n", n={"N": "9"}) == FAILS
    assert answer(db, "many < :n", n={"N": "1"}) == FAILS


@row(
    "dynamodb.condition.operand",
    "A value without an order beside < is a ValidationException, and no condition that fails",
    source=SEEN,
)
def test_operand(db: Any) -> None:
    for value in ({"L": []}, {"BOOL": True}, {"NULL": True}, {"M": {}}):
        assert answer(db, "x < :value", value=value) == "ValidationException"
        assert answer(db, ":value >= p", value=value) == "ValidationException"
        assert answer(db, "x = :value", value=value) == FAILS


@row(
    "dynamodb.condition.lease",
    "Absent or expired: a lease can be taken once, and again when it is over",
    source=OPERATORS,
)
def test_lease(db: Any) -> None:
    """The condition of every lease: OR with a function, and a comparison that is false where there is none."""
    free = "attribute_not_exists(held) OR held < :now"
    assert answer(db, "held < :now", now={"N": "5"}) == FAILS
    assert answer(db, "attribute_not_exists(held) AND held < :now", now={"N": "5"}) == FAILS
    assert answer(db, free, now={"N": "5"}) == "holds"
    put(db, held={"N": "7"})
    assert answer(db, free, now={"N": "7"}) == FAILS
    assert answer(db, free, now={"N": "8"}) == "holds"
    assert answer(db, "NOT held < :now", now={"N": "7"}) == "holds"


@row("dynamodb.condition.filter", "Filters see a missing attribute as conditions do", source=OPERATORS)
def test_filter(db: Any) -> None:
    def count(expression: str, **values: Any) -> int:
        more = {"ExpressionAttributeValues": values} if values else {}
        return int(db.scan(TableName=TABLE, FilterExpression=expression, **more)["Count"])

    assert (count("p = q"), count("p <> q"), count("x = y"), count("p < x")) == (0, 1, 1, 0)


@row("dynamodb.key.size", "A partition key has at most 2,048 bytes, a sort key 1,024", source=QUOTAS)
def test_key_size(db: Any) -> None:
    most = int(facts("dynamodb.key.partition.max_bytes"))
    put(db, pk="p" * most)
    put(db, sk="s" * 1024)
    for keys in ({"pk": "p" * (most + 1)}, {"sk": "s" * 1025}, {"pk": "é" * (most // 2 + 1)}):
        with pytest.raises(ClientError) as raised:
            put(db, **keys)
        assert raised.value.response["Error"]["Code"] == "ValidationException"


@row("dynamodb.item.size", "An item has at most 400 KB, with the names of its attributes", source=QUOTAS)
def test_item_size(db: Any) -> None:
    most = int(facts("dynamodb.item.max_bytes"))
    besides = len("pk" + "a" + "sk" + "b" + "body")
    put(db, body={"S": "x" * (most - besides)})
    with pytest.raises(ClientError) as raised:
        put(db, body={"S": "x" * (most - besides + 1)})
    assert raised.value.response["Error"]["Code"] == "ValidationException"
    with pytest.raises(ClientError) as raised:
        db.update_item(
            TableName=TABLE,
            Key={"pk": {"S": "a"}, "sk": {"S": "b"}},
            UpdateExpression="SET more = :more",
            ExpressionAttributeValues={":more": {"S": "x"}},
        )
    assert raised.value.response["Error"]["Code"] == "ValidationException"
