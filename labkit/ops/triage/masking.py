"""Masking: text of a dead letter, fit to be shown: no task token is in it, and nothing that a terminal acts on
(:mod:`labkit.ops.terminal`).

Whoever has a task token can end the step that waits for it, so triage shows none: not from a body, not from an error
text that quotes one.
"""

from __future__ import annotations

import json
import re
from typing import Any

from labkit.ops.terminal import one_line

HIDDEN = "**********"  # as pydantic shows a secret
_NAME = re.compile(r"task[\s_-]?token", re.IGNORECASE)
# With its name, also quoted several times over, and with "%2B" for "+", as in a link.
_NAMED = re.compile(r"(task[\s_-]?token(?:\W{1,24}|%3D|\s+is\W{1,24}))([\w+/=.%-]{8,})", re.IGNORECASE)
_LONG = re.compile(r"[\w+/=%-]{200,}")  # a token without its name; Step Functions' have several hundred characters
_DEPTH = 20


def masked(text: str, most: int) -> str:
    """``text`` without task tokens, as :func:`~labkit.ops.terminal.one_line` shows it."""
    return one_line(_LONG.sub(HIDDEN, _NAMED.sub(rf"\1{HIDDEN}", text)), most)


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
