"""Comparisons with attributes that an item does not have."""

from __future__ import annotations

import operator
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from parity.dynamodb_conditions import ORDERS, disorder, unordered, with_missing

OPERATORS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
sides = st.none() | st.integers(0, 3)


def plain(left: Any, name: str, right: Any) -> bool:
    return bool(OPERATORS[name](left, right))


@given(left=sides, right=sides, name=st.sampled_from(sorted(OPERATORS)))
def test_only_unequal_holds_with_a_side_that_is_missing(left: Any, right: Any, name: str) -> None:
    found = with_missing(plain)(left, name, right)
    if left is None or right is None:
        assert found is (name == "<>")
    else:
        assert found is plain(left, name, right)


@given(left=sides, right=sides)
def test_equal_and_unequal_are_never_both_true(left: Any, right: Any) -> None:
    compare = with_missing(plain)
    assert compare(left, "=", right) is not compare(left, "<>", right)


def test_values_without_an_order() -> None:
    values = {":s": {"S": ""}, ":n": {"N": "1"}, ":b": {"B": b""}, ":l": {"L": []}, ":t": {"BOOL": False}, ":x": 3}
    assert unordered(values) == {":l": "L", ":t": "BOOL"}
    types = {":l": "L"}
    for name in ORDERS:
        assert disorder([("IDENT", "a"), ("OP", name), ("VALUE_REF", ":l")], types) == (name, "L")
        assert disorder([("VALUE_REF", ":l"), ("OP", name), ("IDENT", "a")], types) == (name, "L")
    assert disorder([("IDENT", "a"), ("EQ", "="), ("VALUE_REF", ":l")], types) is None
    assert disorder([("OP", "<")], types) is None
