"""The rules of a Choice state.

**On AWS** each rule has a Next and either one comparison of one Variable, or And, Or or Not over rules without a Next;
in JSONata it has a Condition (Step Functions Developer Guide, "Choice workflow state"; texts quoted from AWS in
public reports).

**MiniStack** does not look at them before they are evaluated.

**Here** they are checked with the definition. Not verified: in which order AWS lists the comparisons, and the texts
about comparisons with a value of the wrong type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .states_schema import Found, fault, is_expression, known, one_of, required, wrong_type

_ORDERS = ("Equals", "LessThan", "GreaterThan", "LessThanEquals", "GreaterThanEquals")
_KINDS = {"String": str, "Numeric": (int, float), "Timestamp": str}
VALUES: Mapping[str, Any] = {
    **{f"{kind}{order}": python for kind, python in _KINDS.items() for order in _ORDERS},
    "BooleanEquals": bool,
    "StringMatches": str,
}
PATHS = tuple(f"{name}Path" for name in VALUES if name != "StringMatches")
TESTS = tuple(f"Is{what}" for what in ("Null", "Present", "Numeric", "String", "Boolean", "Timestamp"))
COMPARISONS = (*VALUES, *PATHS, *TESTS)
FORMS = ("And", "Or", "Not", "Variable", "Condition")
OF_PATHS = frozenset({"And", "Or", "Not", "Variable", *COMPARISONS})
TOP = frozenset({"Next", "Comment", "Assign", "Output"})


def choices(state: Mapping[str, Any], language: str, at: str) -> Found:
    """Everything about the rules of a Choice state."""
    yield from required(state, ("Choices",), at)
    rules = state.get("Choices", ["-"])
    if not isinstance(rules, list):
        yield wrong_type("Array", f"{at}/Choices")
    elif not rules:
        yield fault("Value cannot be empty", f"{at}/Choices")
    elif "Choices" in state:
        for number, rule in enumerate(rules):
            here = f"{at}/Choices[{number}]"
            yield from _rule(rule, language, here, top=True)
            if isinstance(rule, dict):
                yield from required(rule, ("Next",), here)


def _rule(rule: Any, language: str, at: str, *, top: bool) -> Found:
    if not isinstance(rule, dict):
        yield wrong_type("Object", at)
        return
    allowed = OF_PATHS | {"Condition", "Comment"} | (TOP if top else frozenset())
    yield from known(rule, allowed, at)
    foreign = {"Condition", "Output"} if language == "JSONPath" else OF_PATHS
    other = "JSONata" if language == "JSONPath" else "JSONPath"
    strange = [name for name in rule if name in foreign]
    for name in strange:
        text = f"The QueryLanguage is set to '{language}', but field '{name}' is only supported for the '{other}'"
        yield fault(f"{text} QueryLanguage", at)
    if strange:
        return
    if sum(name in rule for name in FORMS) != 1:
        yield fault(f"The object must have only one of the following fields, [{', '.join(FORMS)}]", at)
    elif "Condition" in rule:
        if not isinstance(rule["Condition"], bool) and not is_expression(rule["Condition"]):
            yield fault("JSONata string must start with {% and end with %}", f"{at}/Condition")
    elif "Variable" in rule:
        yield from _comparison(rule, at)
    else:
        yield from _joined(rule, language, at)


def _joined(rule: Mapping[str, Any], language: str, at: str) -> Found:
    if "Not" in rule:
        yield from _rule(rule["Not"], language, f"{at}/Not", top=False)
        return
    name = "And" if "And" in rule else "Or"
    inner = rule[name]
    if not isinstance(inner, list):
        yield wrong_type("Array", f"{at}/{name}")
    elif not inner:
        yield fault("Value cannot be empty", f"{at}/{name}")
    else:
        for number, one in enumerate(inner):
            yield from _rule(one, language, f"{at}/{name}[{number}]", top=False)


def _comparison(rule: Mapping[str, Any], at: str) -> Found:
    yield from one_of(rule, COMPARISONS, at, needed=True)
    for name in ("Variable", *PATHS):
        value = rule.get(name, "$")
        if not isinstance(value, str):
            yield wrong_type("String", f"{at}/{name}")
        elif not value.startswith("$"):
            yield fault("Value is not a Reference Path: Reference path didn't start with '$'", f"{at}/{name}")
    for name, kind in {**VALUES, **dict.fromkeys(TESTS, bool)}.items():
        if name not in rule:
            continue
        value = rule[name]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            word = "Boolean" if kind is bool else "String" if kind is str else "Double"
            yield wrong_type(word, f"{at}/{name}")
