"""A definition as it is written: its JSON, and the fields of each of its states.

**On AWS** what is no JSON is INVALID_JSON_DESCRIPTION, with the place; a field that is missing, too much or wrong is
SCHEMA_VALIDATION_FAILED, with the path to its object (Step Functions API Reference,
"ValidateStateMachineDefinitionDiagnostic"; answers recorded on AWS in LocalStack's tests).

**MiniStack** looks at JSON and JSONata alone.

**Here** :func:`read` and :func:`fields` find the same, also in branches and processors. Not verified: the text and the
column for JSON that goes wrong elsewhere than at a word, the texts for a name over 80 characters and for JSON that is
nested too deeply.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from . import states_schema as schema
from .states_schema import Diagnostic, Found, fault
from .states_types import INNER, inner, of_type, processor

LONGEST_NAME = 80
QUOTED = 500  # characters of the definition in the place of a fault
TOP = frozenset({"Comment", "StartAt", "States", "Version", "TimeoutSeconds", "QueryLanguage"})
LANGUAGES = ("JSONPath", "JSONata")
Scope = tuple[dict[str, Any], str]


class Fields(dict[str, Any]):
    """A JSON object that remembers which names stood in it twice."""

    twice: tuple[str, ...] = ()


def _object(pairs: list[tuple[str, Any]]) -> Fields:
    made = Fields(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        made.twice = tuple(name for name in made if names.count(name) > 1)
    return made


def read(definition: str) -> tuple[Any, Diagnostic | None]:
    """The parsed definition, or what keeps it from being parsed."""
    if not definition.strip():
        return None, Diagnostic(schema.SCHEMA, "Definition must be a valid JSON object")
    try:
        document = json.loads(definition, object_pairs_hook=_object)
    except ValueError as error:
        return None, _no_json(definition, error)
    if not isinstance(document, dict):
        return None, Diagnostic(schema.SCHEMA, "Definition must be a valid JSON object")
    return document, None


def _no_json(definition: str, error: ValueError) -> Diagnostic:
    line, column, at = (getattr(error, name, 1) for name in ("lineno", "colno", "pos"))
    token = re.match(r"\w+", definition[at:])
    message = str(getattr(error, "msg", error))
    if token and message == "Expecting value":
        column += len(token[0])
        expected = "(JSON String, Number, Array, Object or token 'null', 'true' or 'false')"
        message = f"Unrecognized token '{token[0]}': was expecting {expected}"
    place = f'[Source: (String)"{definition[:QUOTED]}"; line: {line}, column: {column}]'
    return Diagnostic("INVALID_JSON_DESCRIPTION", f"{message}\n at {place}", place)


def scopes(document: dict[str, Any]) -> Iterator[Scope]:
    """A definition and all those inside it, with the path of each."""
    todo: list[Scope] = [(document, "")]
    while todo:
        scope, at = todo.pop(0)
        yield scope, at
        for name, state in scope["States"].items():
            todo += [(found, path) for found, path in inner(state, f"{at}/States/{name}")]


def fields(document: dict[str, Any], kind: str) -> Found:
    """What is wrong with the fields of a definition, in all of its states."""
    language = _language(document, "JSONPath")
    yield from _spoken(document, "")
    yield from schema.known(document, TOP, "/")
    if document.get("Version", "1.0") != "1.0":
        yield fault("Value should be one of the following: [1.0]", "/Version")
    yield from schema.in_range(document, {"TimeoutSeconds": (0, schema.MOST)}, "JSONPath", "")
    yield from _scope(document, "", kind, language)


def _language(fields: Mapping[str, Any], otherwise: str) -> str:
    return "JSONPath" if fields.get("QueryLanguage", otherwise) == "JSONPath" else "JSONata"


def _spoken(fields: Mapping[str, Any], at: str) -> Found:
    if fields.get("QueryLanguage", "JSONPath") not in LANGUAGES:
        yield fault(f"Value should be one of the following: {schema.listed(LANGUAGES)}", f"{at}/QueryLanguage")


def _scope(scope: Any, at: str, kind: str, language: str) -> Found:
    if not isinstance(scope, dict):
        yield schema.wrong_type("Object", at or "/")
        return
    yield from schema.required(scope, ("States", "StartAt"), at or "/")
    if not isinstance(scope.get("StartAt", ""), str):
        yield schema.wrong_type("String", f"{at}/StartAt")
    states = scope.get("States", {})
    if not isinstance(states, dict):
        yield schema.wrong_type("Object", f"{at}/States")
        return
    if "States" in scope and not states:
        yield fault("Value cannot be empty", f"{at}/States")
    for name, state in states.items():
        here = f"{at}/States/{name}"
        if len(name) > LONGEST_NAME:
            yield Diagnostic("INVALID_STATE_NAME", f"A state's name has at most {LONGEST_NAME} characters.", here)
        yield from _state(state, here, kind, language)


def _state(state: Any, at: str, kind: str, language: str) -> Found:
    if not isinstance(state, dict):
        yield schema.wrong_type("Object", at)
        return
    yield from schema.required(state, ("Type",), at)
    type_ = state.get("Type")
    if type_ not in schema.TYPES:
        if "Type" in state:
            values = schema.listed(schema.TYPES)
            yield fault(f"The field 'Type' should have one of these values: {values}", f"{at}/Type")
        return
    yield from schema.known(state, schema.FIELDS[type_] | schema.EVERYWHERE, at)
    yield from _spoken(state, at)
    spoken = _language(state, language)
    if (language, spoken) == ("JSONata", "JSONPath"):
        yield fault("'QueryLanguage' can not be 'JSONPath' if set to 'JSONata' for whole state machine", at)
    yield from schema.language_fits(state, spoken, at)
    yield from schema.in_range(state, schema.RANGES, spoken, at)
    for name in ("TimeoutSeconds", "HeartbeatSeconds", "MaxConcurrency", *schema.TOLERATED, "Error", "Cause"):
        yield from schema.one_of(state, (name, f"{name}Path"), at, needed=False)
    if spoken == "JSONPath":
        yield from schema.paths(state, at)
        yield from schema.templates(state, at)
    yield from schema.handlers(state, spoken, at)
    if "Next" in schema.FIELDS[type_]:
        ways = {name: state[name] for name in ("Next", "End") if state.get(name, False) is not False}
        yield from schema.one_of(ways, ("Next", "End"), at, needed=True)
    for name in ("Next", "Default"):
        if not isinstance(state.get(name, ""), str):
            yield schema.wrong_type("String", f"{at}/{name}")
    yield from of_type(state, at, kind, spoken)
    for found, path in inner(state, at):
        allowed = {"StartAt", "States", "Comment"} | ({"ProcessorConfig"} if path.endswith(INNER) else set())
        if isinstance(found, dict):
            yield from schema.known(found, allowed, path)
        inside = processor(found).get("ExecutionType") if processor(found).get("Mode") == "DISTRIBUTED" else None
        yield from _scope(found, path, "EXPRESS" if inside == "EXPRESS" else kind, language)
