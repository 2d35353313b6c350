"""Event patterns: which fields of an event a pattern means, and which events TestEventPattern takes.

**On AWS** a pattern is a set of paths whose parts are joined by dots, and so is an event: ``{"state": {"status": …}}``
and ``{"state.status": …}`` are the same, in a pattern and in an event (EventBridge User Guide, "Event pattern syntax";
recorded). What a pattern asks of objects in an array must hold in one of them, and ``exists`` asks for the path in the
whole event, through all arrays (Event Ruler's README, "JSON Array Matching" and "Exists matching"; that library is what
EventBridge matches with). TestEventPattern needs an object with id, account, source, time, region and detail-type, or
it is ValidationException (botocore's documentation of the member; recorded); a ``detail`` that is a text stays one
(recorded). Not verified: whether the event or the pattern is looked at first.

**MiniStack** does not look into event keys with dots, lets a pattern match nothing that asks for a path and for one
below it, answers ``exists`` for each object of an array by itself, takes
any object as an event, with another code for what is none and HTTP 500 for numbers of more than 4,300 digits, and reads
a ``detail`` that is a text as JSON.

**Here** the walk through pattern and event is replaced; the operators are MiniStack's.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

NEEDED = ("id", "account", "source", "time", "region", "detail-type")
MAX_READINGS = 4096  # of keys such as "a.b" beside "a": none that a person writes comes near

Conditions = list[Any]
Paths = Mapping[str, Conditions]
Satisfies = Callable[[Any, Conditions], bool]  # a value that is no object or array; exists is not asked of it


def matches(event: Any, paths: Paths, satisfies: Satisfies) -> bool:
    """Whether an event has, for each path, a value that satisfies one of its conditions.

    ``paths`` is a pattern without ``$or``: conditions by path, the parts of which are joined by dots.
    """
    asked = {
        path: conditions for path, conditions in paths.items() if not _asks(conditions, False) or present(event, path)
    }
    return not asked or _holds(event, asked, satisfies)


def present(event: Any, path: str) -> bool:
    """Whether there is a value at a path: no object, and no empty array."""
    found = [(event, path)]
    while found:
        node, rest = found.pop()
        if isinstance(node, list):
            found.extend((element, rest) for element in node)
        elif isinstance(node, dict):
            found.extend((node[key], below) for key, below in _steps(rest) if key in node)
        elif rest is None:
            return True
    return False


def _asks(conditions: Conditions, exists: bool) -> bool:
    return any(isinstance(each, Mapping) and each.get("exists") is exists for each in conditions)


def _steps(path: str | None) -> Iterator[tuple[str, str | None]]:
    """Each key with which a path can begin, and what is left of the path after it."""
    if path is None:
        return
    parts = path.split(".")
    for count in range(1, len(parts)):
        yield ".".join(parts[:count]), ".".join(parts[count:])
    yield path, None


def _holds(node: Any, asked: Mapping[str | None, Conditions], satisfies: Satisfies) -> bool:
    if isinstance(node, list):
        return any(_holds(element, asked, satisfies) for element in _elements(node))
    if not isinstance(node, dict):
        return asked.keys() == {None} and (_asks(asked[None], True) or satisfies(node, asked[None]))
    readings = [[step for step in _steps(path) if step[0] in node] for path in asked]
    for reading in itertools.islice(itertools.product(*readings), MAX_READINGS):
        below: dict[str, dict[str | None, Conditions]] = defaultdict(dict)
        for (key, rest), conditions in zip(reading, asked.values(), strict=True):
            below[key][rest] = conditions
        if all(_holds(node[key], inner, satisfies) for key, inner in below.items()):
            return True
    return False


def _elements(array: list[Any]) -> Iterator[Any]:
    """The elements of an array and of the arrays in it, at whatever depth."""
    open_ones = [iter(array)]
    while open_ones:
        for element in open_ones[-1]:
            if isinstance(element, list):
                open_ones.append(iter(element))
                break
            yield element
        else:
            open_ones.pop()


def event_of(text: Any) -> dict[str, Any] | None:
    """The event that TestEventPattern is given, or None when AWS would not take it for one."""
    try:
        event = json.loads(text) if isinstance(text, str) else None
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) and all(name in event for name in NEEDED) else None


def install() -> None:
    from ministack.core.responses import error_response_json, json_response
    from ministack.services import eventbridge as eb

    # Named so that a release without them fails at the start. A pattern is compiled to nested objects there, by the
    # first two of them; here it stays what it is, conditions by path.
    _ = eb._write_leaf, eb._copy_alternative, eb._matches_alternative, eb._matches_detail, eb._test_event_pattern
    satisfies, compiled = eb._matches_alternatives, eb._compiled_pattern
    error, refuse = eb._event_pattern_error, eb._invalid_event_pattern

    def write_leaf(alternatives: list[dict[str, Conditions]], path: list[str], conditions: Conditions) -> None:
        if not alternatives:
            alternatives.append({})
        for alternative in alternatives:
            alternative[".".join(path)] = conditions

    def matches_detail(event: Any, paths: Paths) -> bool:
        return bool(paths) and matches(event, paths, satisfies)

    def matches_view(view: Any, paths: Paths) -> bool:
        inside = {path: each for path, each in paths.items() if path == "detail" or path.startswith("detail.")}
        outside = {path: each for path, each in paths.items() if path not in inside}
        if outside and not matches(view.envelope(), outside, satisfies):
            return False  # without having read the detail
        return bool(paths) and (not inside or matches(view.event_with_detail(), inside, satisfies))

    def test_event_pattern(request: Mapping[str, Any]) -> tuple:
        for member in ("Event", "EventPattern"):
            if not request.get(member):
                return error_response_json("ValidationException", f"{member} is required", 400)
        event = event_of(request["Event"])
        if event is None:
            return error_response_json("ValidationException", "Parameter Event is not valid.", 400)
        reason = error(request["EventPattern"])
        if reason is not None:
            return refuse(reason)
        return json_response({"Result": any(matches_detail(event, each) for each in compiled(request["EventPattern"]))})

    eb._write_leaf = write_leaf
    eb._copy_alternative = dict
    eb._matches_detail = matches_detail
    eb._matches_alternative = matches_view
    eb._test_event_pattern = test_event_pattern
