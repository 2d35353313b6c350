"""Which messages a function gets to see: the filter criteria of a mapping.

**On AWS** (Lambda Developer Guide, "Using event filtering with an Amazon SQS event source", "Filter rule syntax") up
to five patterns, joined by OR, in the language of EventBridge's patterns. A message that none of them takes is deleted
from the queue; it does not go to a dead-letter queue. ``body`` is matched as JSON or as text, and both sides must
agree:

===============  ===================  ===============================
body of message  ``body`` in pattern  what happens
===============  ===================  ===============================
text             text                 matched
text             JSON                 message dropped
JSON             text                 message dropped
JSON             JSON                 matched
either           absent               only the other keys are matched
===============  ===================  ===============================

Recorded: a body of text is dropped by a pattern of JSON; a pattern that is null, a text, or has a value that is no
non-empty list is refused with "Invalid filter pattern definition.". The guide now says that only ``body`` can be
filtered on, where it used to name the metadata as well: here the other keys are matched. Not verified: that a body is
JSON when it is an object or a list (a number, say, is text), the text for a sixth filter.

**MiniStack** knows five of the operators, ignores patterns that it cannot read, and matches text against JSON.

**Here** the mapping uses the stand-in's matcher of EventBridge patterns."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from parity.esm_records import Record

MAX_FILTERS = 5
JSON_BODY, TEXT_BODY, NO_BODY = "JSON", "text", "absent"

Matcher = Callable[[str, Mapping[str, Any]], bool]


def patterns_of(mapping: Mapping[str, Any]) -> list[str]:
    """The patterns of a mapping's filter criteria."""
    criteria = mapping.get("FilterCriteria") or {}
    return [str(entry.get("Pattern") or "") for entry in criteria.get("Filters") or []]


def body_format(pattern: str) -> str:
    """What a pattern expects of the body."""
    try:
        body = json.loads(pattern).get("body")
    except (ValueError, AttributeError, RecursionError):
        return NO_BODY
    if body is None:
        return NO_BODY
    return JSON_BODY if isinstance(body, Mapping) else TEXT_BODY


def view_of(record: Record) -> tuple[str, Record]:
    """The format of a record's body, and the record as patterns see it."""
    try:
        body = json.loads(record["body"])
    except (ValueError, RecursionError):
        body = None
    if isinstance(body, dict | list):
        return JSON_BODY, {**record, "body": body}
    return TEXT_BODY, record


class Filter:
    """Whether a mapping's function gets a record. Without patterns it gets all."""

    def __init__(self, patterns: Sequence[str], matches: Matcher) -> None:
        self._patterns = [(pattern, body_format(pattern)) for pattern in patterns]
        self._matches = matches

    def takes(self, record: Record) -> bool:
        if not self._patterns:
            return True
        found, view = view_of(record)
        return any(wants in (NO_BODY, found) and self._matches(pattern, view) for pattern, wants in self._patterns)
