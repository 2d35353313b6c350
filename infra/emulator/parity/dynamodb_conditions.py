"""Comparisons in the condition and filter expressions of DynamoDB.

**On AWS** an attribute that an item does not have is equal to nothing, not even to another one that is missing: with
it ``=``, ``<``, ``<=``, ``>``, ``>=``, BETWEEN and IN are false, and ``<>`` is true. A value of the request that has no
order (a list, a map, a set, a Boolean, null) beside ``<`` and its like is a ValidationException, whatever the item has
(Amazon DynamoDB Developer Guide, "Condition and filter expressions, operators, and functions"; seen on AWS by the test
suite of ScyllaDB's Alternator).

**MiniStack** finds two missing attributes equal, and takes such values.

**Here** it is as documented. Not verified: the type that the refusal names for other values than strings and numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

ORDERED = frozenset({"S", "N", "B"})
ORDERS = frozenset({"<", "<=", ">", ">="})
Token = tuple[str, str]
Compare = Callable[[Any, str, Any], bool]


def missing_compared(operator: str) -> bool:
    """What a comparison says when at least one of its sides is missing."""
    return operator == "<>"


def with_missing(compare: Compare) -> Compare:
    """The comparison of two values, also where an item has not got one of them."""

    def compared(left: Any, operator: str, right: Any) -> bool:
        if left is None or right is None:
            return missing_compared(operator)
        return compare(left, operator, right)

    return compared


def unordered(values: Mapping[str, Any]) -> dict[str, str]:
    """The values of a request that have no order, with their types."""
    types = {name: next(iter(value), "") for name, value in values.items() if isinstance(value, dict)}
    return {name: str(kind) for name, kind in types.items() if kind and kind not in ORDERED}


def disorder(tokens: Sequence[Token], types: Mapping[str, str]) -> tuple[str, str] | None:
    """The operator that needs an order, and the type of the value beside it that has none."""
    for number, (kind, operator) in enumerate(tokens):
        if operator not in ORDERS or kind == "VALUE_REF":
            continue
        for _, beside in (*tokens[max(0, number - 1) : number], *tokens[number + 1 : number + 2]):
            if beside in types:
                return operator, types[beside]
    return None


def refusal(slot: str, tokens: Sequence[Token], values: Mapping[str, Any] | None) -> str | None:
    """Why an expression is refused, or None. ``slot`` is the request's member, ``values`` its attribute values."""
    types = unordered(values or {})
    wrong = disorder(tokens, types) if types else None
    if wrong is None:
        return None
    what = "Incorrect operand type for operator or function; operator or function:"
    return f"Invalid {slot}: {what} {wrong[0]}, operand type: {wrong[1]}"


def install() -> None:
    from ministack.services import dynamodb

    evaluate = dynamodb._evaluate_condition

    def evaluated(expr: str, item: Any, attr_values: Any, attr_names: Any, slot: str = "ConditionExpression") -> Any:
        result = evaluate(expr, item, attr_values, attr_names, slot)  # a broken expression is refused first
        refused = refusal(slot, dynamodb._tokenize(expr), attr_values) if expr and expr.strip() else None
        if refused is not None:
            raise ValueError(refused)
        return result

    dynamodb._compare_ddb = with_missing(dynamodb._compare_ddb)
    dynamodb._evaluate_condition = evaluated
