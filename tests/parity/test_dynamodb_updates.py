"""DynamoDB: what update expressions set."""

from __future__ import annotations

from .conftest import Aws
from .rows import row

GUIDE = "AWS documentation: DynamoDB Developer Guide"


@row(
    "dynamodb.update.own_values",
    "Attributes that are set from one value, or from one another, change apart",
    source=f"{GUIDE}: Update expressions",
)
def test_values_are_not_shared(aws: Aws) -> None:
    db = aws.client("dynamodb")
    db.create_table(
        TableName="updates",
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    db.get_waiter("table_exists").wait(TableName="updates", WaiterConfig={"Delay": 1, "MaxAttempts": 30})

    def update(expression: str, **values: object) -> dict[str, object]:
        given = {"ExpressionAttributeValues": {f":{name}": value for name, value in values.items()}} if values else {}
        answer = db.update_item(
            TableName="updates",
            Key={"pk": {"S": "a"}},
            UpdateExpression=expression,
            ReturnValues="ALL_NEW",
            **given,
        )
        return {name: value for name, value in answer["Attributes"].items() if name != "pk"}

    one, none = {"M": {"x": {"N": "1"}}}, {"M": {}}
    update("SET m1 = if_not_exists(m1, :none), m2 = if_not_exists(m2, :none), m3 = :none", none=none)
    assert update("SET m1.x = :n", n={"N": "1"}) == {"m1": one, "m2": none, "m3": none}
    assert update("SET m4 = m1") == {"m1": one, "m2": none, "m3": none, "m4": one}
    assert update("REMOVE m1.x") == {"m1": none, "m2": none, "m3": none, "m4": one}
