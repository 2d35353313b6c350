"""Tables: make a DynamoDB table in a lab, or take the one that the lab has made before.

Creating says what is to be, here as everywhere in labkit: a cell that is run twice finds its table, and whatever stands
in it. A table of the same name with other keys, or one that is not the lab's, is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from labkit.errors import LabError

if TYPE_CHECKING:
    from labkit.lab import Lab

__all__ = ["TableError", "ensure"]

_WITHIN = {"Delay": 1, "MaxAttempts": 30}  # seconds, and how often


class TableError(LabError):
    """A table was not made; the sentence says why."""


def ensure(lab: Lab, name: str, keys: Sequence[str], indexes: Mapping[str, Sequence[str]] | None = None) -> bool:
    """Make the table ``name`` with these key attributes (all texts) and indexes by name; True when it is new.

    ``keys``: partition key, and sort key where there is one; the same for each index, which holds whole items. Raises
    :class:`TableError`.
    """
    from botocore.exceptions import ClientError, ParamValidationError, WaiterError

    client, full, indexes = lab.client("dynamodb"), lab.resource_name(name), indexes or {}
    attributes = sorted({*keys, *(key for each in indexes.values() for key in each)})
    wanted: dict[str, Any] = {
        "TableName": full,
        "AttributeDefinitions": [{"AttributeName": key, "AttributeType": "S"} for key in attributes],
        "KeySchema": _schema(keys),
        "BillingMode": "PAY_PER_REQUEST",
        "Tags": [{"Key": key, "Value": value} for key, value in lab.tags.items()],
    }
    if indexes:
        whole = {"ProjectionType": "ALL"}
        wanted["GlobalSecondaryIndexes"] = [
            {"IndexName": index, "KeySchema": _schema(each), "Projection": whole} for index, each in indexes.items()
        ]
    made = True
    try:
        try:
            client.create_table(**wanted)
        except ClientError as error:
            if error.response["Error"]["Code"] != "ResourceInUseException":
                raise
            made = False
        client.get_waiter("table_exists").wait(TableName=full, WaiterConfig=_WITHIN)
        if not made:
            _same(lab, client, full, wanted)
    except (ClientError, ParamValidationError, WaiterError) as error:
        raise TableError(f"table {name!r:.80} was not made: {error}") from error
    return made


def _same(lab: Lab, client: Any, full: str, wanted: Mapping[str, Any]) -> None:
    found = client.describe_table(TableName=full)["Table"]
    there = {each["IndexName"]: each["KeySchema"] for each in found.get("GlobalSecondaryIndexes", [])}
    asked = {each["IndexName"]: each["KeySchema"] for each in wanted.get("GlobalSecondaryIndexes", [])}
    if found["KeySchema"] != wanted["KeySchema"] or there != asked:
        raise TableError(f"table {full} exists with other keys or indexes; nothing was changed.")
    tag = lab.scope.tag
    if tag is not None:
        tags = client.list_tags_of_resource(ResourceArn=found["TableArn"]).get("Tags", [])
        if {"Key": tag[0], "Value": tag[1]} not in tags:
            raise TableError(f"table {full} exists and is not this lab's; nothing was changed.")


def _schema(keys: Sequence[str]) -> list[dict[str, str]]:
    return [{"AttributeName": key, "KeyType": kind} for key, kind in zip(keys, ("HASH", "RANGE"), strict=False)]
