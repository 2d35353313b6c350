"""Masking: text of a dead letter, fit to be shown: task tokens are not in it.

Whoever has a task token can end the step that waits for it, so triage shows none: not from a body, not from an error
text that quotes one.
"""

from __future__ import annotations

import json
import re
from typing import Any

HIDDEN = "**********"  # as pydantic shows a secret
_NAME = re.compile("task_?-?token", re.IGNORECASE)
_NAMED = re.compile(r"(task_?-?token\W{1,8})([\w+/=.-]{8,})", re.IGNORECASE)
_LONG = re.compile(r"[\w+/=-]{200,}")  # a token without its name; Step Functions' have several hundred characters
_DEPTH = 20


def masked(text: str, most: int) -> str:
    """``text`` without task tokens, on one line, cut to ``most`` characters."""
    plain = " ".join(_LONG.sub(HIDDEN, _NAMED.sub(rf"\1{HIDDEN}", text)).split())
    return plain if len(plain) <= most else plain[: most - 1] + "…"


def masked_body(body: str, most: int) -> str:
    """A message's body without task tokens: in JSON, also in JSON within JSON, by the field's name; else as text."""
    return masked(_inside(body, 0), most)


def _inside(text: str, depth: int) -> str:
    try:
        held: Any = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return json.dumps(_clean(held, depth), ensure_ascii=False) if isinstance(held, dict | list) else text


def _clean(value: Any, depth: int) -> Any:
    if depth > _DEPTH:
        return "…"
    if isinstance(value, dict):
        return {key: HIDDEN if _NAME.search(str(key)) else _clean(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list):
        return [_clean(inner, depth + 1) for inner in value]
    return _inside(value, depth + 1) if isinstance(value, str) and value[:1] in "{[" else value
