"""JSONata expressions in a definition.

**On AWS** expressions in ``{% … %}`` see ``$states`` and the variables. One that fails, comes to nothing (undefined;
null is a value), to a function, or to a text where a number is needed, raises States.QueryEvaluationError, which Retry
and Catch can name, and leaves one EvaluationFailed event with the field that it stands in, for example ``Output/total``
(Step Functions Developer Guide, "Transforming data with JSONata"; histories recorded on AWS).

**MiniStack** evaluates them with jsonata-python. moto's interpreter wants a Java virtual machine, writes variables into
the expression so that a quotation mark in a value breaks it, and does not know the field.

**Here** jsonata-python evaluates them too, for at most :data:`LONGEST` ms, which is ours. Not verified: the codes and
texts of failures inside an expression, which are the library's; how the field is told inside of an array and of a
Choice.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from .states_jsonata_fields import noted
from .states_jsonata_functions import FUNCTIONS, REMOVED, digest

__all__ = ["Unsupported", "declarations", "digest", "evaluate"]

LONGEST = 10_000  # milliseconds of one evaluation
UNDEFINED = "returned nothing (undefined)."
UNSUPPORTED = "returned an unsupported result type."
NUMBERS = frozenset({"TimeoutSeconds", "HeartbeatSeconds", "MaxConcurrency", "Seconds", "MaxItems"})
NUMBERS |= {"ToleratedFailureCount", "ToleratedFailurePercentage"}


class Unsupported(Exception):
    """The value of an expression is nothing that JSON knows."""


def declarations(values: Mapping[str, Any]) -> str:
    """The assignments in front of an expression, by which it sees these variables."""
    return "".join(f"{name}:={json.dumps(value, separators=(',', ':'))};" for name, value in values.items())


def evaluate(expression: str) -> Any:
    """The value of an expression, as JSON knows it."""
    from jsonata import Jsonata

    program = Jsonata(expression, timeout=LONGEST)
    for name, function in FUNCTIONS.items():
        program.register_lambda(name, function)
    for name in REMOVED:
        program.assign(name, None)
    try:
        return json.loads(json.dumps(program.evaluate(None)))
    except TypeError as error:
        if "is not JSON serializable" in str(error):
            raise Unsupported from None
        raise


def kind_of(value: Any) -> str:
    """What JSONata calls a value of JSON."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "boolean"
    kinds: dict[type, str] = {int: "number", float: "number", str: "string", list: "array", dict: "object"}
    return kinds[type(value)]


def mismatch(field: str, value: Any) -> str | None:
    """What is said of a value that this field does not take."""
    if field not in NUMBERS or kind_of(value) == "number":
        return None
    text = json.dumps(value, separators=(",", ":"))
    return f"returned an unexpected result type. Expected 'number', but was '{kind_of(value)}' for value: {text}"


def sentence(expression: str, field: str, what: str) -> str:
    """The cause of a failure."""
    where = f" specified for the field '{field}'" if field else ""
    return f"The JSONata expression '{expression}'{where} {what}"


class Said(dict[str, Any]):
    """The details of a failure whose event has been written down."""


def change_early() -> None:
    from moto.stepfunctions.parser.asl.jsonata import jsonata as module
    from moto.stepfunctions.parser.asl.utils.encoding import to_json_str

    def encode(bindings: dict[str, Any]) -> str:
        return declarations({name: json.loads(to_json_str(value)) for name, value in bindings.items()})

    def evaluated(expression: str) -> Any:
        try:
            return evaluate(expression)
        except Unsupported:
            raise module.JSONataException("UNKNOWN", UNSUPPORTED) from None
        except Exception as error:
            code = getattr(error, "error", None)
            told = f"{code}: {error}" if code and not str(error).startswith(str(code)) else str(error)
            raise module.JSONataException("UNKNOWN", f"threw an error during evaluation. {told}") from error

    find = module.extract_jsonata_variable_references

    def references(expression: str) -> set[str]:
        return set(find(expression)) - {"$"}  # the item at hand, in a predicate

    _ = module.encode_jsonata_variable_declarations, module._eval_jsonata
    module._ILLEGAL_VARIABLE_REFERENCES.discard("$")
    module.extract_jsonata_variable_references = references
    module.encode_jsonata_variable_declarations = encode  # before states_clients imports what binds it
    module._eval_jsonata = evaluated


def change() -> None:
    from moto.stepfunctions.parser.asl.component.intrinsic import jsonata as functions

    functions._DECLARATION_BY_VARIABLE_REFERENCE.clear()  # declared in front of each expression otherwise
    _failures(noted())
    _states()


def _states() -> None:
    """``$states`` as a whole: a result or an error, whichever there is, and not the other as null."""
    from moto.stepfunctions.parser.asl.eval.states import States

    declare = States.to_variable_declarations

    def declared(self: Any, variable_references: set[str] | None = None) -> str:
        kept = self._states_data
        failed = kept.get("errorOutput") is not None
        hidden = {"result"} if failed or kept.get("result") is None else set()
        hidden |= set() if failed else {"errorOutput"}
        if variable_references and "$states" not in variable_references:
            hidden = set()  # each is asked for by its name
        self._states_data = {name: value for name, value in kept.items() if name not in hidden}
        try:
            return str(declare(self, variable_references))
        finally:
            self._states_data = kept

    States.to_variable_declarations = declared


def _failures(field: Callable[[], str]) -> None:
    from moto.stepfunctions.parser.api import HistoryEventType
    from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import (
        FailureEvent,
        FailureEventException,
    )
    from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name import StatesErrorName
    from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name_type import StatesErrorNameType
    from moto.stepfunctions.parser.asl.component.common.string import string_expression as module
    from moto.stepfunctions.parser.asl.eval.event.event_detail import EventDetails
    from moto.stepfunctions.parser.asl.eval.event.event_manager import EventManager
    from moto.stepfunctions.parser.asl.jsonata.jsonata import JSONataException, eval_jsonata_expression

    def defined(env: Any, expression: str, whole: str, result: Any) -> None:
        if result is None and not eval_jsonata_expression(f"$exists({whole})"):
            raise JSONataException("UNKNOWN", UNDEFINED)
        told = mismatch(field(), result)
        if told is not None:
            raise JSONataException("UNKNOWN", told)

    original, details_of, add = (
        module.StringJSONata._eval_body,
        FailureEventException.get_evaluation_failed_event_details,
        EventManager.add_event,
    )

    def body(self: Any, env: Any) -> None:
        try:
            original(self, env)
        except JSONataException as error:
            name, kind = StatesErrorName(typ=StatesErrorNameType.StatesQueryEvaluationError), "evaluationFailed"
            cause = sentence(self.expression, field(), str(error.details))
            said = Said(error=name.error_name, cause=cause, location=field())
            details = EventDetails(**{f"{kind}EventDetails": said})
            failed = HistoryEventType.EvaluationFailed
            failure = FailureEventException(FailureEvent(env, name, failed, details))
            event = EventDetails(**{f"{kind}EventDetails": details_of(failure)})
            env.event_manager.add_event(context=env.event_history_context, event_type=failed, event_details=event)
            raise failure from None

    def shown(self: Any) -> Any:
        details = (self.failure_event.event_details or {}).get("evaluationFailedEventDetails")
        return details if isinstance(details, Said) else details_of(self)

    def add_event(self: Any, context: Any, event_type: Any, event_details: Any = None, **more: Any) -> Any:
        if isinstance((event_details or {}).get("evaluationFailedEventDetails"), Said):
            return len(self._history_event_list)  # the states that can be tried again write it down as well
        return add(self, context, event_type, event_details, **more)

    module.validate_jsonata_expression_output = defined
    module.StringJSONata._eval_body = body
    FailureEventException.get_evaluation_failed_event_details = shown
    EventManager.add_event = add_event


def install() -> None:
    from . import states_engine

    states_engine.on_load(change_early, early=True)
    states_engine.on_load(change)
