"""JSONata expressions in a definition.

**On AWS** expressions in ``{% … %}`` see ``$states`` and the variables; besides JSONata's own functions there are
``$hash``, ``$uuid``, ``$parse`` and a few others. One that fails raises States.QueryEvaluationError, which Retry and
Catch can name, and leaves an EvaluationFailed event (Step Functions Developer Guide, "Transforming data with
JSONata").

**MiniStack** evaluates them with jsonata-python. moto's interpreter wants a Java virtual machine, and writes variables
into the expression so that a quotation mark in a value breaks it.

**Here** jsonata-python evaluates them too. Not verified: the causes of failures, whose text is the library's.
"""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from typing import Any

DIGESTS = {"MD5": "md5", "SHA-1": "sha1", "SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512"}


def declarations(values: Mapping[str, Any]) -> str:
    """The assignments in front of an expression, by which it sees these variables."""
    return "".join(f"{name}:={json.dumps(value, separators=(',', ':'))};" for name, value in values.items())


def digest(text: str, how: str) -> str:
    """``$hash``: the digest of a text, in hexadecimal digits."""
    return hashlib.new(DIGESTS[how], text.encode()).hexdigest()


def evaluate(expression: str) -> Any:
    """The value of an expression, as JSON knows it."""
    from jsonata import Jsonata

    program = Jsonata(expression)
    program.register_lambda("hash", digest)
    program.register_lambda("uuid", lambda: str(uuid.uuid4()))
    program.register_lambda("parse", json.loads)
    return json.loads(json.dumps(program.evaluate(None)))


def change_early() -> None:
    from moto.stepfunctions.parser.asl.jsonata import jsonata as module
    from moto.stepfunctions.parser.asl.utils.encoding import to_json_str

    def encode(bindings: dict[str, Any]) -> str:
        return declarations({name: json.loads(to_json_str(value)) for name, value in bindings.items()})

    def evaluated(expression: str) -> Any:
        try:
            return evaluate(expression)
        except Exception as error:
            raise module.JSONataException("UNKNOWN", str(error)) from error

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

    for name in ("$hash", "$uuid", "$parse"):  # declared in front of each expression otherwise
        functions._DECLARATION_BY_VARIABLE_REFERENCE.pop(name)
    _failures()
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


def _failures() -> None:
    from moto.stepfunctions.parser.api import HistoryEventType
    from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import (
        FailureEvent,
        FailureEventException,
    )
    from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name import StatesErrorName
    from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name_type import StatesErrorNameType
    from moto.stepfunctions.parser.asl.component.common.string.string_expression import StringJSONata
    from moto.stepfunctions.parser.asl.eval.event.event_detail import EventDetails
    from moto.stepfunctions.parser.asl.jsonata.jsonata import JSONataException

    original = StringJSONata._eval_body

    def body(self: Any, env: Any) -> None:
        try:
            original(self, env)
        except JSONataException as error:
            name = StatesErrorName(typ=StatesErrorNameType.StatesQueryEvaluationError)
            cause = f"The JSONata expression '{self.expression}' threw an error: {error.details}"
            details = EventDetails(evaluationFailedEventDetails={"error": name.error_name, "cause": cause})
            kind = HistoryEventType.EvaluationFailed
            env.event_manager.add_event(context=env.event_history_context, event_type=kind, event_details=details)
            failure = FailureEvent(env=env, error_name=name, event_type=kind, event_details=details)
            raise FailureEventException(failure) from None

    StringJSONata._eval_body = body


def install() -> None:
    from . import states_engine

    states_engine.on_load(change_early, early=True)
    states_engine.on_load(change)
