"""Event patterns: the operators that LocalStack's engine reads otherwise than AWS.

**On AWS** a list in anything-but holds texts and numbers, no further patterns, and a ``*`` in a wildcard stands for any
number of characters, none among them (EventBridge User Guide, "Comparison operators for use in event patterns").

**LocalStack** takes such a list, and then finds nothing in it; its ``*`` needs at least one character.

**Here** the two places are replaced; they serve the filters of event source mappings as well.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

NOT_IN_A_LIST = "Inside anything but list, start|null|boolean is not supported."
_STEP = re.compile(r"\\[*\\]|\*|[^*]", re.DOTALL)


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


def install() -> None:
    from localstack.aws.api.events import InvalidEventPatternException
    from localstack.services.events.event_rule_engine import EventPatternCompiler, EventRuleEngine

    validate = EventPatternCompiler._validate_rule
    _ = EventRuleEngine._evaluate_wildcard

    def validate_rule(self: EventPatternCompiler, rule: Any, from_: str | None = None) -> None:
        if bad_list(rule):
            raise InvalidEventPatternException(f"{self.error_prefix}{NOT_IN_A_LIST}")
        validate(self, rule, from_)

    def evaluate_wildcard(condition: str, value: Any) -> bool:
        return isinstance(value, str) and wildcard(condition).fullmatch(value) is not None

    EventPatternCompiler._validate_rule = validate_rule
    EventRuleEngine._evaluate_wildcard = staticmethod(evaluate_wildcard)
