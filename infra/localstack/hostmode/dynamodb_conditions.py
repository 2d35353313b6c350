"""Comparisons in the condition and filter expressions of DynamoDB.

**On AWS** see :mod:`parity.dynamodb_conditions`: with a missing attribute only ``<>`` is true, and a value that has no
order beside ``<`` and its like is refused.

**LocalStack**'s DynamoDB here, moto-ext, takes a missing attribute for null, so that two of them are equal and nothing
lies between null and null; it compares a number with a text, and numbers as floats of 53 bits.

**Here** the comparisons are parity's, of values with their types. ``size`` stays moto's."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

from parity.dynamodb_conditions import ORDERED, ORDERS, refusal, with_missing

Side = tuple[str, Any]  # type and value
SLOTS = ("ConditionExpression", "FilterExpression")
CLASSES = {
    "=": "OpEqual",
    "<>": "OpNotEqual",
    "<": "OpLessThan",
    "<=": "OpLessThanOrEqual",
    ">": "OpGreaterThan",
    ">=": "OpGreaterThanOrEqual",
}
_FUNCTIONS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def _compare(left: Side, sign: str, right: Side) -> bool:
    if sign in ORDERS:
        return left[0] == right[0] and left[0] in ORDERED and _FUNCTIONS[sign](left[1], right[1])
    return (left == right) is (sign == "=")


compared = with_missing(_compare)


def side(operand: Any, item: Any) -> Side | None:
    """One side of a comparison as an item has it, None where it has not."""
    if not hasattr(operand, "get_type"):  # size(…)
        return "N", Decimal(operand.expr(item))
    kind = operand.get_type(item)
    if kind is None:
        return None
    if kind != "N":
        return kind, operand.expr(item)
    return kind, Decimal(operand.value if hasattr(operand, "value") else operand._get_attr(item).value)


def refused(request: Mapping[str, Any], parser: type) -> str | None:
    """Why one of the expressions in a request or in one of its transaction's items is refused, or None."""
    parts = [request, *(part for item in request.get("TransactItems") or () for part in item.values())]
    for part in parts:
        values = part.get("ExpressionAttributeValues")
        for slot in SLOTS:
            if not values or not part.get(slot):
                continue
            try:
                nodes = parser(part[slot], None, values)._lex_condition_expression()
            except ValueError:  # a broken expression: moto says so
                continue
            tokens = [("VALUE_REF" if node.text.startswith(":") else "", node.text) for node in nodes]
            if (reason := refusal(slot, tokens, values)) is not None:
                return reason
    return None


def _parsing() -> None:
    """What moto's parser stumbles over is the caller's fault, and no internal error."""
    from moto.dynamodb import comparisons
    from moto.dynamodb.exceptions import MockValidationException

    parse = comparisons.ConditionExpressionParser.parse

    def parsed(self: Any) -> Any:
        try:
            return parse(self)
        except MockValidationException:
            raise
        except Exception as error:
            # AWS names the token; this sentence is not AWS's.
            raise MockValidationException(
                f"Invalid expression: it cannot be read ({error or type(error).__name__})"
            ) from error

    comparisons.ConditionExpressionParser.parse = parsed


def install() -> None:
    from moto.dynamodb import comparisons

    _parsing()

    def comparing(sign: str) -> Callable[[Any, Any], bool]:
        def expr(self: Any, item: Any) -> bool:
            return compared(side(self.lhs, item), sign, side(self.rhs, item))

        return expr

    def between(self: Any, item: Any) -> bool:
        value = side(self.attr, item)
        return compared(side(self.start, item), "<=", value) and compared(value, "<=", side(self.end, item))

    def among(self: Any, item: Any) -> bool:
        value = side(self.attr, item)
        return any(compared(value, "=", side(possible, item)) for possible in self.possible_values)

    _ = comparisons.AttributePath._get_attr, comparisons.AttributeValue.get_type
    _ = comparisons.ConditionExpressionParser._lex_condition_expression
    replacements = {name: comparing(sign) for sign, name in CLASSES.items()}
    for name, replacement in {**replacements, "FuncBetween": between, "FuncIn": among}.items():
        _ = getattr(comparisons, name).expr
        getattr(comparisons, name).expr = replacement
