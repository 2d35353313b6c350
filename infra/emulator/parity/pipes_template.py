"""What a pipe makes of an event: paths into it, and input templates.

**On AWS** (EventBridge User Guide, "Amazon EventBridge Pipes input transformation", "Amazon EventBridge Pipes targets")

* *implicit body parsing*: a body that is JSON can be looked into, ``<$.body.order.id>``, without anybody decoding it;
* *paths* know names with letters, digits, ``_``, ``-`` and ``/``, indices ``[3]`` and the wildcard ``[*]``. Nobody
  checks them before the first event comes;
* *in the place of a value*, ``{"id": <$.body.id>}``, a text gets its quotes by itself, an object stays an object, and a
  path that leads nowhere gives ``""``; *inside a text*, ``"Order <$.body.id>"``, a text is put in as it is, an object
  loses its quotes, ``{id:7}``, and nothing stands for nothing. (Recorded for the transformers of rules, which have the
  same rules.);
* *a template that is no JSON*, so also the lone ``<$.body>``, is text: the object in it loses its quotes, and a
  function or a state machine cannot take it. ``{"body": <$.body>}`` is the way;
* ``<aws.pipes.event.json>`` is the event with the parsed body, ``<aws.pipes.event>`` the event as it came.

Not verified: that a text in the place of a value is escaped (the guide says that values are not; without that, one
quote in a body would make a template fail whose author did everything right); that the body of what an enrichment
returned is parsed as well; ``<aws.pipes.event.json>`` as the whole template (here the event as JSON) and for a body
that is no JSON (here ``""``); that a JSON template whose result is no JSON fails the execution (recorded for rules:
such an event is not delivered).

**MiniStack** keeps no template.

**Here** :class:`Template` is taken apart once and rendered for each event."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

MAX_TEMPLATE = 8192  # characters
_PATH = re.compile(r"\$(?:\.[\w/-]+(?:\[(?:\d+|\*)\])*|\[(?:\d+|\*)\])*", re.ASCII)
_STEP = re.compile(r"\.([\w/-]+)|\[(\d+|\*)\]", re.ASCII)
_VARIABLE = re.compile(r"<([^<>\s]+)>")
_TEXT_OR_VARIABLE = re.compile(r'"(?:\\.|[^"\\])*"|<[^<>\s]+>', re.S)
EVENT, EVENT_JSON, INGESTION_TIME = "aws.pipes.event", "aws.pipes.event.json", "aws.pipes.event.ingestion-time"


class Missing:
    """What a path gives that leads nowhere."""


MISSING = Missing()


class Unrendered(ValueError):
    """An event does not go through the template."""


def is_path(text: Any) -> bool:
    """Whether a parameter is a path into the event and not a fixed text."""
    return isinstance(text, str) and _PATH.fullmatch(text) is not None


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def parsed(text: Any) -> Any:
    """The JSON value that a text holds; :data:`MISSING` when it holds none."""
    try:
        return json.loads(text, parse_constant=_no_constant)
    except (TypeError, ValueError, RecursionError):
        return MISSING


def _no_constant(literal: str) -> None:
    raise ValueError(f"{literal} is no JSON")


def view_of(event: Any) -> Any:
    """The event as paths see it: with its body parsed, if that is JSON."""
    if isinstance(event, Mapping) and isinstance(event.get("body"), str):
        body = parsed(event["body"])
        if body is not MISSING:
            return {**event, "body": body}
    return event


def look(view: Any, path: str) -> Any:
    """What ``path`` leads to in a view, or :data:`MISSING`."""
    if not is_path(path):
        return MISSING
    found = [view]
    many = False
    for name, index in _STEP.findall(path):
        if name:
            found = [value[name] for value in found if isinstance(value, Mapping) and name in value]
        elif index == "*":
            many = True
            found = [item for value in found if isinstance(value, list) for item in value]
        else:
            place = int(index)
            found = [value[place] for value in found if isinstance(value, list) and place < len(value)]
    if many:
        return found
    return found[0] if found else MISSING


def parameter(value: Any, view: Any) -> Any:
    """A parameter of the target: itself, or what its path leads to."""
    return look(view, value) if is_path(value) else value


class Template:
    """An input template. ``names`` are the variables that are the same for every event: ``aws.pipes.pipe-name`` …"""

    def __init__(self, text: str, names: Mapping[str, str]) -> None:
        self.text = text
        self.names = names
        self.is_json = text.lstrip()[:1] in ("{", "[", '"') or text.strip() == f"<{EVENT_JSON}>"

    def render(self, event: Any, now: float) -> str:
        """The text that becomes of an event. Raises :class:`Unrendered` when a template of JSON gives no JSON."""
        view = view_of(event)

        def value_of(name: str) -> Any:
            if name == EVENT:
                return event
            if name == EVENT_JSON:
                return MISSING if isinstance(event, str) or _has_text_body(view) else view
            if name == INGESTION_TIME:
                return datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
            return self.names[name] if name in self.names else look(view, name)

        def known(name: str) -> bool:
            return name.startswith("$") or name in self.names or name in (EVENT, EVENT_JSON, INGESTION_TIME)

        def inside(found: re.Match[str]) -> str:
            return _inside(value_of(found[1])) if known(found[1]) else found[0]

        def render(found: re.Match[str]) -> str:
            token = found[0]
            if token.startswith('"'):
                return _VARIABLE.sub(inside, token)
            value = value_of(token[1:-1]) if known(token[1:-1]) else token
            return '""' if value is MISSING else compact(value)

        if not self.is_json:
            return _VARIABLE.sub(inside, self.text)
        text = _TEXT_OR_VARIABLE.sub(render, self.text)
        if parsed(text) is MISSING:
            raise Unrendered("The input template gives no valid JSON for this event.")
        return text


def _has_text_body(view: Any) -> bool:
    return isinstance(view, Mapping) and isinstance(view.get("body"), str)


def _inside(value: Any) -> str:
    """A value in the middle of a text."""
    if value is MISSING:
        return ""
    return value if isinstance(value, str) else compact(value).replace('"', "")
