"""Whether a resource's own policy lets an AWS service act on it.

**On AWS** a queue, a topic or a function says in its policy which service may act on it, and under which conditions; a
Deny that matches wins, and without an Allow that matches nobody may (IAM User Guide, "Policy evaluation logic" and
"Condition operators").

**LocalStack** keeps the policies and does not look at them.

**Here** :func:`allows` evaluates what such policies are made of: Principal, Action, Resource and their Not forms, and
the conditions on texts, ARNs, truth values and absent keys. An operator that is not known here never holds, so that
its statement, whatever its effect, does not match. Nothing here knows LocalStack.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

Policy = str | Mapping[str, Any] | None
Keys = Mapping[str, str]  # condition keys, their names in lower case

_IF_EXISTS = "ifexists"


def allows(policy: Policy, *, service: str, action: str, resource: str, keys: Keys) -> bool:
    """Whether ``service`` (such as events.amazonaws.com) may perform ``action`` (such as sqs:SendMessage)."""
    document = json.loads(policy) if isinstance(policy, str) and policy else policy or {}
    effects = {
        statement.get("Effect")
        for statement in _list(document.get("Statement"))
        if _principal(statement, service)
        and _named(statement, "Action", action, ignore_case=True)
        and _named(statement, "Resource", resource)
        and _conditions(statement.get("Condition") or {}, keys)
    }
    return "Allow" in effects and "Deny" not in effects


def _list(value: Any) -> list[Any]:
    return [] if value is None else value if isinstance(value, list) else [value]


def _principal(statement: Mapping[str, Any], service: str) -> bool:
    if "NotPrincipal" in statement:
        return not _is_principal(statement["NotPrincipal"], service)
    return _is_principal(statement.get("Principal"), service)


def _is_principal(principal: Any, service: str) -> bool:
    if isinstance(principal, Mapping):
        return "*" in _list(principal.get("AWS")) or bool({"*", service} & set(_list(principal.get("Service"))))
    return "*" in _list(principal)


def _named(statement: Mapping[str, Any], member: str, value: str, *, ignore_case: bool = False) -> bool:
    if f"Not{member}" in statement:
        return not any(_like(value, pattern, ignore_case) for pattern in _list(statement[f"Not{member}"]))
    patterns = _list(statement.get(member))
    return not patterns or any(_like(value, pattern, ignore_case) for pattern in patterns)


def _conditions(conditions: Mapping[str, Mapping[str, Any]], keys: Keys) -> bool:
    return all(
        _holds(operator, keys.get(key.lower()), [str(value) for value in _list(wanted)])
        for operator, tests in conditions.items()
        for key, wanted in tests.items()
    )


def _holds(operator: str, actual: str | None, wanted: list[str]) -> bool:
    name = operator.lower()
    if name == "null":
        return (actual is None) == (wanted[0].lower() == "true") if wanted else False
    optional = name.endswith(_IF_EXISTS)
    name = name.removesuffix(_IF_EXISTS)
    negated = "not" in name
    test = _TESTS.get(name.replace("not", ""))
    if test is None:
        return False
    if actual is None:
        return optional or negated
    return any(test(actual, value) for value in wanted) != negated


def _like(value: str, pattern: str, ignore_case: bool = False) -> bool:
    return (
        _pattern(pattern.lower() if ignore_case else pattern).fullmatch(value.lower() if ignore_case else value)
        is not None
    )


@lru_cache(1024)
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile("".join({"*": ".*", "?": "."}.get(part, re.escape(part)) for part in pattern), re.DOTALL)


_TESTS: Mapping[str, Callable[[str, str], bool]] = {
    "stringequals": lambda actual, wanted: actual == wanted,
    "stringequalsignorecase": lambda actual, wanted: actual.lower() == wanted.lower(),
    "stringlike": _like,
    "arnequals": _like,
    "arnlike": _like,
    "bool": lambda actual, wanted: actual.lower() == wanted.lower(),
}
