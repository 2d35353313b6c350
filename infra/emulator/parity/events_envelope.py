"""The event as a target receives it.

**On AWS** the body is compact JSON with the members in the order version, id, detail-type, source, account, time,
region, (replay-name,) resources, detail; a value that an input transformer puts in is compact too, and a list or object
inside a string loses its quotes (recorded: the delivery through SNS, which keeps the text of the body, and the nested
input templates). Characters outside ASCII are taken to stay as they are (not recorded).

**MiniStack** writes the members in another order and with a space after each colon and comma, which also makes a
message longer than on AWS.

**Here** the order is put right where MiniStack builds the event, and the text is made by :func:`text`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

ORDER = (
    "version",
    "id",
    "detail-type",
    "source",
    "account",
    "time",
    "region",
    "replay-name",
    "resources",
    "detail",
)

_MISSING = object()
_PATH_PART = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")


def in_order(event: Mapping[str, Any]) -> dict[str, Any]:
    """The event's members in AWS's order; members that AWS does not have come last."""
    known = {name: event[name] for name in ORDER if name in event}
    return known | {name: value for name, value in event.items() if name not in known}


def text(value: Any) -> str:
    """A JSON value as EventBridge writes it: compact."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def at_path(event: Any, path: str, default: Any = None) -> Any:
    """What ``InputPath`` selects (dots, indices and quoted names after ``$``), or ``default`` when it is not there."""
    rest = path.removeprefix("$")
    value, position = event, 0
    while position < len(rest):
        part = _PATH_PART.match(rest, position)
        if part is None:
            return default
        name, index, quoted, double = part.groups()
        value = _member(value, int(index) if index is not None else name or quoted or double)
        if value is _MISSING:
            return default
        position = part.end()
    return value


def _member(value: Any, key: Any) -> Any:
    if isinstance(key, int):
        return value[key] if isinstance(value, list) and key < len(value) else _MISSING
    return value.get(key, _MISSING) if isinstance(value, dict) else _MISSING


def rendered(value: Any, *, in_string: bool) -> str:
    """A value that an input template names, inside a string of the template or standing alone."""
    if isinstance(value, str):
        return value if in_string else text(value)
    return text(value).replace('"', "") if in_string else text(value)


def install() -> None:
    from ministack.services import eventbridge as eb

    view_of = eb._pattern_event_view
    _ = eb._EventView, eb._render_placeholder  # named here so that a release without them fails at the start

    def ordered_view(event: Mapping[str, Any]) -> Any:
        view = view_of(event)
        view._envelope = in_order(view._envelope)
        return view

    def render(name: str, token: str, replacements: Mapping[str, Any], in_string: bool) -> str:
        return rendered(replacements[name], in_string=in_string) if name in replacements else token

    eb._pattern_event_view = ordered_view
    eb._render_placeholder = render
