"""Writes of DynamoDB: one at a time and whole, with the answer that was asked for.

**On AWS**

* a conditional write reads and writes in one step, and one that is refused changes nothing;
* ``ReturnValues=UPDATED_NEW`` and ``UPDATED_OLD`` return every attribute that the update names, also one that has kept
  its value (API reference, UpdateItem);
* an item has 400 KB at most, with the names of its attributes (Developer Guide, quotas);
* a transaction with the ``ClientRequestToken`` of one in the last ten minutes does nothing and succeeds, or is refused
  when it is another one; an update in it that cannot be applied cancels it as ValidationError (service model).

**LocalStack**'s DynamoDB here, moto-ext, has no lock, so that of two conditional writes at once both may hold; an
update that fails half way leaves the first half; attributes that have not changed are left out; an item may have
405,000 bytes; tokens are not looked at, and a bad update refuses the whole request.

**Here** requests of data take turns, and the rest is as on AWS."""

from __future__ import annotations

import contextvars
import copy
import functools
import json
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from hostmode.dynamodb_conditions import refused

MOST = 400 * 1024  # bytes of an item
TOKEN_LIFE = 600.0  # seconds
DATA = (
    "get_item",
    "put_item",
    "update_item",
    "delete_item",
    "query",
    "scan",
    "batch_get_item",
    "batch_write_item",
    "transact_get_items",
    "transact_write_items",
    "execute_statement",
    "execute_transaction",
    "batch_execute_statement",
)
RETURNED = ("UPDATED_NEW", "UPDATED_OLD")


class ValidationError(Exception):
    """An update in a transaction that cannot be applied. moto takes the class's name for the reason's code."""


class Tokens:
    """The transactions of the last ten minutes, by account, Region and token."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._seen: dict[tuple[str, str, str], tuple[float, str]] = {}

    def find(self, key: tuple[str, str, str]) -> str | None:
        """The request that was seen with this token."""
        oldest = self._clock() - TOKEN_LIFE
        self._seen = {known: found for known, found in self._seen.items() if found[0] >= oldest}
        return self._seen[key][1] if key in self._seen else None

    def keep(self, key: tuple[str, str, str], request: str) -> None:
        self._seen[key] = self._clock(), request


def named(expression: str, names: Mapping[str, str]) -> set[str]:
    """The attributes that an update's expression sets as a whole, not in part."""
    from moto.dynamodb.parsing import ast_nodes as nodes
    from moto.dynamodb.parsing.expressions import UpdateExpressionParser

    actions = [nodes.UpdateExpressionSetAction, nodes.UpdateExpressionAddAction, nodes.UpdateExpressionDeleteAction]
    found = set()
    for action in UpdateExpressionParser.make(expression.strip()).find_clauses(actions):
        path = action.children[0].children
        if len(path) != 1:
            continue  # a part of a map or a list: moto's answer has it when it has changed
        if isinstance(path[0], nodes.ExpressionAttributeName):
            found.add(names.get(path[0].get_attribute_name_placeholder(), ""))
        else:
            found.add(path[0].get_attribute_name())
    return found


def install() -> None:
    from moto.dynamodb import comparisons, exceptions, responses
    from moto.dynamodb.models import DynamoDBBackend, dynamo_type

    handler = responses.DynamoHandler
    lock = threading.RLock()
    tokens = Tokens()
    in_transaction = contextvars.ContextVar("in_transaction", default=False)
    inapplicable = (exceptions.IncorrectDataType, exceptions.IncorrectOperandType, exceptions.ItemSizeToUpdateTooLarge)

    def attributes(self: Any) -> dict[str, Any]:
        item = self.dynamodb_backend.get_item(self.body["TableName"], self.body["Key"])
        return copy.deepcopy(item.to_json()["Attributes"]) if item else {}

    def turn(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        @functools.wraps(call)
        def taking_turns(self: Any) -> Any:
            reason = refused(self.body, comparisons.ConditionExpressionParser)
            if reason is not None:
                raise exceptions.MockValidationException(reason)
            with lock:
                return call(self)

        return taking_turns

    def updating(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def update_item(self: Any) -> Any:
            wanted = self.body.get("ReturnValues")
            if wanted not in RETURNED or not self.body.get("UpdateExpression"):
                return call(self)
            with lock:
                before = attributes(self) if wanted == "UPDATED_OLD" else {}
                answer = json.loads(call(self))
                values = before if wanted == "UPDATED_OLD" else attributes(self)
                names = named(self.body["UpdateExpression"], self.body.get("ExpressionAttributeNames") or {})
                whole = {name: values[name] for name in names if name in values}
                return responses.dynamo_json_dump({**answer, "Attributes": {**answer.get("Attributes", {}), **whole}})

        return update_item

    def transacting(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
        def transact_write_items(self: Any) -> Any:
            token = self.body.get("ClientRequestToken")
            request = json.dumps(self.body["TransactItems"], sort_keys=True)
            key = self.current_account, self.region, str(token)
            with lock:
                known = tokens.find(key) if token else None
                if known not in (None, request):
                    raise exceptions.DynamodbException(
                        "com.amazonaws.dynamodb.v20120810#IdempotentParameterMismatchException",
                        "The parameters of this request do not match those of the one with the same token.",
                    )
                if known is not None:
                    return responses.dynamo_json_dump({})
                answer = call(self)
                if token:
                    tokens.keep(key, request)
                return answer

        return transact_write_items

    update, transact = DynamoDBBackend.update_item, DynamoDBBackend.transact_write_items

    def update_whole(self: Any, table_name: str, key: dict[str, Any], *arguments: Any, **more: Any) -> Any:
        item = self.get_item(table_name, key)
        before = copy.deepcopy(item.attrs) if item else None
        try:
            return update(self, table_name, key, *arguments, **more)
        except Exception as error:
            if item is not None:
                item.attrs = before
            elif self.get_item(table_name, key) is not None:
                self.delete_item(table_name, key)
            if in_transaction.get() and isinstance(error, inapplicable):
                raise ValidationError(error.message) from error
            raise

    def transact_whole(self: Any, *arguments: Any, **more: Any) -> None:
        entered = in_transaction.set(True)
        try:
            transact(self, *arguments, **more)
        finally:
            in_transaction.reset(entered)

    def set_item(self: Any, name: str, value: Any) -> None:
        sizes = (dynamo_type.bytesize(key) + _size(each) for key, each in {**self, name: value}.items())
        if sum(sizes) > MOST:
            raise exceptions.ItemSizeTooLarge
        dict.__setitem__(self, name, value)

    def _size(value: Any) -> int:
        return int(value.size() if isinstance(value, dynamo_type.DynamoType) else dynamo_type.bytesize(str(value)))

    _ = dynamo_type.LimitedSizeDict.__setitem__, responses.dynamo_json_dump, exceptions.DynamodbException
    DynamoDBBackend.update_item = update_whole
    DynamoDBBackend.transact_write_items = transact_whole
    dynamo_type.LimitedSizeDict.__setitem__ = set_item
    handler.update_item = updating(handler.update_item)
    handler.transact_write_items = transacting(handler.transact_write_items)
    for name in DATA:
        setattr(handler, name, turn(getattr(handler, name)))
