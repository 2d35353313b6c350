"""Event patterns: which events LocalStack's engine takes otherwise than AWS.

**On AWS**: see :mod:`parity.events_patterns`. A list in anything-but holds texts and numbers, no further patterns, a
``*`` in a wildcard stands for any number of characters, none among them, and the address of a cidr may lie anywhere in
its block (EventBridge User Guide, "Comparison operators for use in event patterns"). Values are compared as JSON:
``true`` is not 1 and no number, and prefix and suffix are for texts (Event Ruler's README).

**LocalStack** takes such a list, and then finds nothing in it; its ``*`` needs at least one character, and may not
stand after an escaped one; a cidr must begin its block. ``true`` is 1 to it, and prefix or suffix with
equals-ignore-case raises for a number, which is HTTP 500. What a pattern asks of objects in an array it finds in
different ones. Some patterns that Event Ruler refuses it takes.

**Here** these places are replaced, and parity's walk through pattern and event is used; they serve the filters of event
source mappings as well.
"""

from __future__ import annotations

import ipaddress
import itertools
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from parity.events_patterns import matches

NOT_IN_A_LIST = "Inside anything but list, start|null|boolean is not supported."
NO_SINGLE_VALUE = "Value of anything-but must be an array or single string/number value."
MIXED = (
    "Inside anything but list, either all values are number or string, mixed type is not supported"  # an empty one too
)
_STEP = re.compile(r"\\[*\\]|\*|[^*]", re.DOTALL)
_TOKEN = re.compile(r"\\.?|\*|[^\\*]", re.DOTALL)


@lru_cache(1024)
def wildcard(pattern: str) -> re.Pattern[str]:
    """A wildcard as a regular expression for the whole text; ``\\*`` is the character itself."""
    parts = (".*" if step == "*" else re.escape(step[-1]) for step in _STEP.findall(pattern))
    return re.compile("".join(parts), re.DOTALL)


def bad_list(condition: Any) -> bool:
    """Whether a condition is an anything-but with a list in which something else stands than texts and numbers."""
    values = condition.get("anything-but") if isinstance(condition, Mapping) else None
    return isinstance(values, list) and not all(
        isinstance(value, str | int | float) and not isinstance(value, bool) for value in values
    )


def bad_wildcard(text: str) -> str | None:
    """Why a wildcard is refused, or None. The place is counted in bytes, a quote before the text among them."""
    tokens, at = _TOKEN.findall(text), 1
    for token, after in itertools.zip_longest(tokens, tokens[1:]):
        if token[0] == "\\" and token not in (r"\*", r"\\"):
            return f"Invalid escape character at pos {at}"
        if token == after == "*":
            return f"Consecutive wildcard characters at pos {at}"
        at += len(token.encode("utf-8", "replace"))
    return None


def refusal(rule: Any) -> str | None:
    """Why a condition is refused that LocalStack would take, or None."""
    if not isinstance(rule, Mapping) or len(rule) != 1:
        return None
    [(operator, operand)] = rule.items()
    if bad_list(rule):
        return NOT_IN_A_LIST
    if operator == "anything-but" and isinstance(operand, bool):
        return NO_SINGLE_VALUE
    if operator == "anything-but" and isinstance(operand, list):
        return MIXED if len({isinstance(value, str) for value in operand}) != 1 else None
    if operator in ("prefix", "suffix") and isinstance(operand, Mapping):
        if not operand:
            return f"{operator.capitalize()} expression name not found"
        inner = operand.get("equals-ignore-case", "")
        return None if isinstance(inner, str) else "equals-ignore-case match pattern must be a string"
    if operator == "numeric" and isinstance(operand, list):
        for sign, value in zip(operand[::2], operand[1::2], strict=False):
            if isinstance(value, bool):
                return f"Value of {'equals' if sign == '=' else sign} must be numeric"
    return None


def same(one: Any, other: Any) -> bool:
    """Whether two values without parts are the same in JSON."""
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


def apart(value: Any, condition: Any) -> bool | None:
    """The verdict where LocalStack's would be wrong, or an exception; None where its own is right."""
    if not isinstance(condition, Mapping):
        return same(value, condition)
    [(operator, operand)] = condition.items()
    if operator == "numeric" and isinstance(value, bool):
        return False
    if operator in ("prefix", "suffix", "cidr") and not isinstance(value, str):
        return False
    if operator == "cidr":
        return within(value, operand)
    if operator == "anything-but" and not isinstance(operand, Mapping):
        return not any(same(value, each) for each in (operand if isinstance(operand, list) else [operand]))
    return None


def within(address: str, block: str) -> bool:
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(block, strict=False)
    except ValueError:
        return False


def install() -> None:
    from localstack.aws.api.events import InvalidEventPatternException
    from localstack.services.events.event_rule_engine import EventPatternCompiler, EventRuleEngine

    validate, validate_cidr = EventPatternCompiler._validate_rule, EventPatternCompiler._validate_cidr_condition
    check_stars, evaluate = EventPatternCompiler._validate_wildcard, EventRuleEngine._evaluate_condition
    _ = EventRuleEngine._evaluate_wildcard, EventRuleEngine._evaluate_nested_event_pattern_on_dict
    _ = EventRuleEngine.flatten_pattern

    def validate_rule(self: EventPatternCompiler, rule: Any, from_: str | None = None) -> None:
        reason = refusal(rule)
        if reason:
            raise InvalidEventPatternException(f"{self.error_prefix}{reason}")
        validate(self, rule, from_)

    def validate_wildcard(self: EventPatternCompiler, value: Any) -> None:
        reason = bad_wildcard(value) if isinstance(value, str) else None
        if reason:
            raise InvalidEventPatternException(f"{self.error_prefix}{reason}")
        stars = value if not isinstance(value, str) else "a*" * _TOKEN.findall(value).count("*")
        check_stars(self, stars)  # for the type and the number of stars

    def validate_block(self: EventPatternCompiler, value: Any) -> None:
        try:
            first = (
                ipaddress.ip_network(value, strict=False) if isinstance(value, str) and value.count("/") == 1 else value
            )
        except ValueError:
            first = value
        validate_cidr(self, first if first is value else str(first))

    def evaluate_wildcard(condition: str, value: Any) -> bool:
        return isinstance(value, str) and wildcard(condition).fullmatch(value) is not None

    def evaluate_pattern(self: EventRuleEngine, pattern: Mapping[str, Any], payload: Any) -> bool:
        def satisfies(value: Any, conditions: list[Any]) -> bool:
            return any(
                evaluate(self, value, condition, field_exists=True) if verdict is None else verdict
                for condition in conditions
                if not (isinstance(condition, Mapping) and "exists" in condition)
                for verdict in [apart(value, condition)]
            )

        return not pattern or any(matches(payload, paths, satisfies) for paths in self.flatten_pattern(pattern))

    EventPatternCompiler._validate_rule = validate_rule
    EventPatternCompiler._validate_wildcard = validate_wildcard
    EventPatternCompiler._validate_cidr_condition = validate_block
    EventRuleEngine._evaluate_wildcard = staticmethod(evaluate_wildcard)
    EventRuleEngine._evaluate_nested_event_pattern_on_dict = evaluate_pattern
