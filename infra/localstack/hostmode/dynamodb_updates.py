"""Values that an update expression sets.

**On AWS** see :mod:`parity.dynamodb_updates`: an attribute has a value of its own.

**LocalStack**'s DynamoDB here, moto-ext, lets an attribute that is set from another one share its map.

**Here** it gets a copy."""

from __future__ import annotations

from parity.dynamodb_updates import own


def install() -> None:
    from moto.dynamodb.parsing.executors import NodeExecutor, SetExecutor

    SetExecutor.get_action_value = own(NodeExecutor.get_action_value)
