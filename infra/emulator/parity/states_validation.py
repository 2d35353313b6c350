"""ValidateStateMachineDefinition, and the refusals of CreateStateMachine and UpdateStateMachine.

**On AWS** a definition is checked before it is taken: its JSON, the fields of each state, its transitions. ERROR keeps
the state machine from being made, WARNING does not; ValidateStateMachineDefinition answers with both, its sisters with
InvalidDefinition and the text of the errors (Step Functions API Reference, "ValidateStateMachineDefinition",
"ValidateStateMachineDefinitionDiagnostic" with the codes; answers recorded on AWS in LocalStack's tests; texts quoted
from AWS in public reports: a Next to nowhere, unreachable states, no terminal state, duplicate names).

**MiniStack** finds broken JSON and JSONata.

**Here** :func:`diagnostics` finds what :mod:`parity.states_definition` knows of the fields, and then what is wrong
with the way through the states. Whatever the interpreter does not understand is an error besides, because it could not
run here. Not verified: whether AWS looks at the transitions when a field is wrong (here: not); which of several states
that reach each other, and nothing else them, AWS calls unreachable (here: the first); the texts of warnings and of
JSONata that does not parse; the order of these checks and those of roles and encryption.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from . import states_definition
from .states_choices import VALUES
from .states_schema import TEMPLATES, Diagnostic, Found, fault, is_expression
from .states_tokens import Refused

MOST = 100  # diagnostics of one answer
TARGET = "MISSING_TRANSITION_TARGET"
ENDS = ("Succeed", "Fail")
_LOOKS_LIKE_A_PATH = re.compile(r"\$\$?[.\[]|States\.\w+\(")


def diagnostics(definition: str, kind: str) -> list[Diagnostic]:
    """What is wrong with a definition for a state machine of this type; nothing when it is only not understood here."""
    try:
        return _diagnostics(definition, kind)
    except RecursionError:
        return [Diagnostic("TOO_DEEPLY_NESTED", "The definition is too deeply nested.")]


def _diagnostics(definition: str, kind: str) -> list[Diagnostic]:
    document, broken = states_definition.read(definition)
    if broken is not None:
        return [broken]
    found = list(states_definition.fields(document, kind))
    if found:
        return found
    scopes = list(states_definition.scopes(document))
    for scope, at in scopes:
        found += transitions(scope, at)
    found += repeated(scopes)
    for scope, at in scopes:
        for name, state in scope["States"].items():
            if state.get("QueryLanguage", document.get("QueryLanguage", "JSONPath")) == "JSONata":
                found += expressions(state, f"{at}/States/{name}")
            else:
                found += warnings(state, f"{at}/States/{name}")
    return found


def targets(state: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Where a state can lead, and which of its fields says so."""
    for field in ("Next", "Default"):
        if field in state:
            yield state[field], field
    for field in ("Choices", "Catch"):
        for number, entry in enumerate(state.get(field, ())):
            yield entry["Next"], f"{field}[{number}]/Next"


def transitions(scope: Mapping[str, Any], at: str) -> Found:
    """Targets that do not exist; no state that ends; states that nothing leads to. Branches are scopes of their own."""
    states = scope["States"]
    if scope["StartAt"] not in states:
        yield Diagnostic(TARGET, f"Missing 'Next' target: {scope['StartAt']}", f"{at}/StartAt")
    leads: dict[str, set[str]] = {}
    for name, state in states.items():
        leads[name] = set()
        for target, field in targets(state):
            leads[name].add(target)
            if target not in states:
                yield Diagnostic(TARGET, f"Missing 'Next' target: {target}", f"{at}/States/{name}/{field}")
    if not any(state["Type"] in ENDS or state.get("End") is True for state in states.values()):
        yield Diagnostic("MISSING_END_STATE", "Workflow has no terminal state")
        return
    for name in unreachable(scope["StartAt"], leads):
        yield Diagnostic(TARGET, f'State "{name}" is not reachable.', f"{at}/States/{name}")


def unreachable(start: str, leads: Mapping[str, set[str]]) -> Iterator[str]:
    """The states that no other leads to, and of a circle that is cut off its first; not what follows from those."""
    reached = {start}

    def follow(name: str) -> None:
        todo = [name]
        while todo:
            new = leads.get(todo.pop(), set()) - reached
            reached.update(new)
            todo += new

    led_to = {target for name, found in leads.items() for target in found if target != name}
    follow(start)
    for cut_off in (lambda name: name not in led_to, lambda name: True):
        for name in leads:
            if name not in reached and cut_off(name):
                yield name
                reached.add(name)
                follow(name)


def repeated(scopes: list[tuple[dict[str, Any], str]]) -> Found:
    """Names that several states of one state machine have, wherever they are."""
    seen: set[str] = set()
    for scope, at in scopes:
        for name in scope["States"]:
            if name in seen or name in getattr(scope["States"], "twice", ()):
                yield Diagnostic("DUPLICATE_STATE_NAME", f"Duplicate State name: {name}", f"{at}/States/{name}")
            seen.add(name)


def expressions(value: Any, at: str) -> Found:
    """JSONata in a state, but for what is inside branches and processors, that does not parse."""
    if isinstance(value, dict):
        for name, inner in value.items():
            if name not in ("Branches", "ItemProcessor", "Iterator"):
                yield from expressions(inner, f"{at}/{name}")
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from expressions(inner, f"{at}[{number}]")
    elif isinstance(value, str) and value.startswith("{%"):
        if not is_expression(value):
            yield fault("JSONata string must start with {% and end with %}", at)
            return
        problem = _jsonata_problem(value[2:-2].strip())
        if problem is not None:
            yield Diagnostic("INVALID_JSONATA_EXPRESSION", problem, at)


def _jsonata_problem(text: str) -> str | None:
    try:
        from jsonata import Jsonata
    except ModuleNotFoundError:  # outside of the stand-in's environment
        return None
    try:
        Jsonata(text)
    except Exception as error:  # noqa: BLE001 - the library raises its own, and plain ones on some texts
        return str(error)
    return None


def warnings(state: Mapping[str, Any], at: str) -> Found:
    """Values that look like a path, where AWS takes them as they are."""
    if "Result" in state:
        yield from _paths_in(
            state["Result"], f"{at}/Result", "PASS_RESULT_IS_STATIC", "A Pass state's Result is static."
        )
    for field in TEMPLATES:
        text = "The field's name does not end with '.$', so that its value is no path."
        yield from _paths_in(state.get(field), f"{at}/{field}", "NO_DOLLAR", text)
    for number, rule in enumerate(state.get("Choices", ())):
        for name in VALUES:
            text = f"The value is compared as it is; '{name}Path' takes a path."
            yield from _paths_in(rule.get(name), f"{at}/Choices[{number}]/{name}", "NO_PATH", text)


def _paths_in(value: Any, at: str, code: str, text: str) -> Found:
    if isinstance(value, dict):
        for name, inner in value.items():
            if not name.endswith(".$") or code == "PASS_RESULT_IS_STATIC":
                yield from _paths_in(inner, f"{at}/{name}", code, text)
    elif isinstance(value, list):
        for number, inner in enumerate(value):
            yield from _paths_in(inner, f"{at}[{number}]", code, text)
    elif isinstance(value, str) and _LOOKS_LIKE_A_PATH.match(value):
        yield Diagnostic(code, text, at, "WARNING")


def errors(definition: str, kind: str) -> list[Diagnostic]:
    """The errors of a definition, what the interpreter does not understand among them."""
    from . import states_engine

    found = [one for one in diagnostics(definition, kind) if one.severity == "ERROR"]
    if not found:
        try:
            states_engine.check(definition, kind)
        except states_engine.InvalidDefinition as error:
            found = [Diagnostic("SCHEMA_VALIDATION_FAILED", str(error))]
    return found


def check_definition(definition: Any, kind: str) -> None:
    """Raise :class:`Refused` unless a state machine of this type can have this definition."""
    found = errors(str(definition), kind)
    if found:
        text = ", ".join(one.text() for one in found)
        raise Refused("InvalidDefinition", f"Invalid State Machine Definition: '{text}'")


def validation(definition: str, kind: str, severity: str = "ERROR", most: int = 0) -> dict[str, Any]:
    """The answer of ValidateStateMachineDefinition."""
    found = errors(definition, kind)
    failed = bool(found)
    if severity == "WARNING":
        found += [one for one in diagnostics(definition, kind) if one.severity == "WARNING"]
    most = most or MOST
    return {
        "result": "FAIL" if failed else "OK",
        "diagnostics": [one.shown() for one in found[:most]],
        "truncated": len(found) > most,
    }


def asked(data: Mapping[str, Any]) -> dict[str, Any]:
    """The same, for a request."""
    definition, most = data.get("definition"), data.get("maxResults") or 0
    for member, value, values in (
        ("type", data.get("type") or "STANDARD", ("STANDARD", "EXPRESS")),
        ("severity", data.get("severity") or "ERROR", ("ERROR", "WARNING")),
    ):
        if value not in values:
            told = f"Member must satisfy enum value set: [{', '.join(values)}]"
            raise _constraint(member, value, told)
    if not isinstance(definition, str) or not definition:
        raise _constraint("definition", definition, "Member must have length greater than or equal to 1")
    if not 0 <= most <= MOST:
        bound = f"less than or equal to {MOST}" if most > MOST else "greater than or equal to 0"
        raise _constraint("maxResults", most, f"Member must have value {bound}")
    return validation(definition, data.get("type") or "STANDARD", data.get("severity") or "ERROR", most)


def _constraint(member: str, value: Any, told: str) -> Refused:
    text = f"1 validation error detected: Value '{value}' at '{member}' failed to satisfy constraint: {told}"
    return Refused("ValidationException", text)


def install() -> None:
    from ministack.core.responses import json_response
    from ministack.services import stepfunctions as sfn

    from .states_callbacks import Response, refusable

    _ = sfn._validate_state_machine_definition

    @refusable
    def validate(data: dict[str, Any]) -> Response:
        answer: Response = json_response(asked(data))
        return answer

    sfn._validate_state_machine_definition = validate
    sfn._OFF_LOOP_ACTIONS |= {"ValidateStateMachineDefinition"}
