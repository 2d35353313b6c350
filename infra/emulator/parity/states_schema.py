"""What each type of state may have, must have and may not have.

**On AWS** a definition is refused for a field that its state's type does not know, for two fields that exclude each
other, for numbers out of range, for States.ALL in company (Step Functions Developer Guide, the page of each type of
state; Amazon States Language specification). The texts are those that ValidateStateMachineDefinition and
CreateStateMachine gave on AWS, as recorded in LocalStack's tests or quoted in public reports.

**MiniStack** looks at JSONata expressions alone.

**Here** these checks are plain functions on a parsed definition; :mod:`parity.states_choices` has those of a Choice
state's rules, :mod:`parity.states_types` what else a type has of its own. Not verified: the texts about values of a
wrong type, Integer apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

SCHEMA = "SCHEMA_VALIDATION_FAILED"
TYPES = ("Task", "Wait", "Pass", "Succeed", "Fail", "Choice", "Parallel", "Map")
EVERYWHERE = frozenset({"Type", "Comment", "QueryLanguage"})
_WAY, _ENDS = frozenset({"InputPath", "OutputPath", "Output"}), frozenset({"Next", "End", "Assign"})
_TRIES = frozenset({"ResultPath", "Parameters", "ResultSelector", "Retry", "Catch"}) | _WAY | _ENDS
TOLERATED = ("ToleratedFailurePercentage", "ToleratedFailureCount")
FIELDS: Mapping[str, frozenset[str]] = {
    "Pass": _WAY | _ENDS | {"Result", "ResultPath", "Parameters"},
    "Task": _TRIES
    | {"Arguments", "Resource", "Credentials"}
    | {"TimeoutSeconds", "TimeoutSecondsPath", "HeartbeatSeconds", "HeartbeatSecondsPath"},
    "Wait": _WAY | _ENDS | {"Seconds", "Timestamp", "SecondsPath", "TimestampPath"},
    "Parallel": _TRIES | {"Arguments", "Branches"},
    "Map": _TRIES
    | {"ItemProcessor", "Iterator", "ItemsPath", "ItemsPointer", "Items", "ItemSelector", "ItemReader", "ItemBatcher"}
    | {"ResultWriter", "MaxConcurrency", "MaxConcurrencyPath", "Label"}
    | {*TOLERATED, *(f"{name}Path" for name in TOLERATED)},
    "Choice": _WAY | {"Assign", "Choices", "Default"},
    "Succeed": _WAY,
    "Fail": frozenset({"Error", "Cause", "ErrorPath", "CausePath"}),
}
_NUMBERS = ("TimeoutSeconds", "HeartbeatSeconds", "Seconds", "Timestamp", "MaxConcurrency", *TOLERATED)
_OF_MAPS = ("MaxItemsPerBatch", "MaxInputBytesPerBatch", "MaxItems")
NUMBER_PATHS = frozenset(f"{name}Path" for name in (*_NUMBERS, *_OF_MAPS))
PATH_ALONE = NUMBER_PATHS | {"InputPath", "OutputPath", "ResultPath", "Parameters", "ResultSelector", "Result"}
PATH_ALONE |= {"ItemsPath", "ErrorPath", "CausePath"}
JSONATA_ALONE = frozenset({"Arguments", "Output", "Items"})
TEMPLATES = ("Parameters", "ResultSelector", "ItemSelector", "BatchInput", "Assign")
MOST = 99_999_999
Range = tuple[float, float | None]  # floats are fields of type Double
RANGES: Mapping[str, Range] = {
    "TimeoutSeconds": (1, MOST),
    "HeartbeatSeconds": (1, MOST),
    "Seconds": (0, MOST),
    "MaxConcurrency": (0, None),
    "ToleratedFailureCount": (0, None),
    "ToleratedFailurePercentage": (0.0, 100.0),
}
RETRY_RANGES: Mapping[str, Range] = {
    "IntervalSeconds": (0, MOST),
    "MaxAttempts": (0, MOST),
    "MaxDelaySeconds": (1, 31_622_400),
    "BackoffRate": (1.0, None),
}
RETRIER = frozenset({"ErrorEquals", "JitterStrategy", "Comment", *RETRY_RANGES})
CATCHER = frozenset({"ErrorEquals", "Next", "ResultPath", "Output", "Assign", "Comment"})
_PLAIN_PATH = re.compile(r"[*?@]|\.\.")
_ILLEGAL_ESCAPE = re.compile(r"\\(?:\\|['{}])|(\\)")


@dataclass(frozen=True)
class Diagnostic:
    """One thing that is wrong (ERROR) or looks so (WARNING), and where."""

    code: str
    message: str
    location: str | None = None
    severity: str = "ERROR"

    def shown(self) -> dict[str, str]:
        place = {} if self.location is None else {"location": self.location}
        return {"severity": self.severity, "code": self.code, "message": self.message, **place}

    def text(self) -> str:
        """As CreateStateMachine writes it; a place that is not known is «null» there too."""
        return f"{self.code}: {self.message} at {'null' if self.location is None else self.location}"


Found = Iterator[Diagnostic]


def fault(message: str, at: str) -> Diagnostic:
    return Diagnostic(SCHEMA, message, at)


def wrong_type(kind: str, at: str) -> Diagnostic:
    return fault(f"Expected value of type {kind}", at)


def is_expression(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("{%") and value.endswith("%}")


def listed(names: Iterable[str]) -> str:
    return f"[{', '.join(names)}]"


def required(fields: Mapping[str, Any], names: Iterable[str], at: str) -> Found:
    missing = [name for name in names if name not in fields]
    if missing:
        yield fault(f"These fields are required: {listed(missing)}", at)


def known(fields: Mapping[str, Any], names: Iterable[str], at: str) -> Found:
    for name in fields:
        if name not in names:
            yield fault(f"Field '{name}' is not supported", at)


def one_of(fields: Mapping[str, Any], names: tuple[str, ...], at: str, *, needed: bool) -> Found:
    number = sum(name in fields for name in names)
    if number > 1:
        yield fault(f"There should only be one of the following fields: {listed(names)}", at)
    elif needed and not number:
        yield fault(f"This object should have only one of the following fields: {listed(names)}", at)


def language_fits(fields: Mapping[str, Any], language: str, at: str) -> Found:
    """Fields of the other query language."""
    other, alone = ("JSONata", JSONATA_ALONE) if language == "JSONPath" else ("JSONPath", PATH_ALONE)
    for name in fields:
        if name in alone:
            yield fault(
                f"The QueryLanguage is set to '{language}', but field '{name}' is only supported for the '{other}' "
                "QueryLanguage",
                at,
            )


def in_range(fields: Mapping[str, Any], ranges: Mapping[str, Range], language: str, at: str) -> Found:
    for name, (least, most) in ranges.items():
        value = fields.get(name, least)
        if language == "JSONata" and is_expression(value):
            continue
        kinds = (int, float) if isinstance(least, float) else (int,)
        if isinstance(value, bool) or not isinstance(value, kinds):
            yield wrong_type("Double" if isinstance(least, float) else "Integer", f"{at}/{name}")
        elif value < least:
            yield fault(f"Minimum value is {least}", f"{at}/{name}")
        elif most is not None and value > most:
            yield fault(f"Maximum value is {most}", f"{at}/{name}")


def paths(fields: Mapping[str, Any], at: str) -> Found:
    """The fields whose values are paths."""
    for name in ("InputPath", "OutputPath", "ResultPath", "ItemsPath", "ErrorPath", "CausePath", *sorted(NUMBER_PATHS)):
        value = fields.get(name)
        if name not in fields or (value is None and name in ("InputPath", "OutputPath", "ResultPath")):
            continue
        intrinsic = name in ("ErrorPath", "CausePath") and isinstance(value, str) and value.startswith("States.")
        if not isinstance(value, str):
            yield wrong_type("String", f"{at}/{name}")
        elif not value.startswith("$") and not intrinsic:
            yield fault("Value must be a valid JSONPath.", f"{at}/{name}")
        elif name in ("ResultPath", "ItemsPath") and _PLAIN_PATH.search(value):
            yield fault("Value is not a Reference Path", f"{at}/{name}")


def templates(fields: Mapping[str, Any], at: str) -> Found:
    """The fields ending in ``.$`` of payload templates."""
    for name in TEMPLATES:
        yield from _template(fields.get(name), f"{at}/{name}")


def _template(value: Any, at: str) -> Found:
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _template(item, f"{at}[{number}]")
    for name, inner in value.items() if isinstance(value, dict) else ():
        if name.endswith(".$"):
            call = isinstance(inner, str) and inner.startswith("States.")
            wrong = call and any(found.group(1) for found in _ILLEGAL_ESCAPE.finditer(inner))
            if wrong or not (call or (isinstance(inner, str) and inner.startswith("$"))):
                text = f"The value for the field '{name}' must be a valid JSONPath or a valid intrinsic function call"
                yield fault(text, at)
        else:
            yield from _template(inner, f"{at}/{name}")


def handlers(state: Mapping[str, Any], language: str, at: str) -> Found:
    """Retry and Catch."""
    for field, names in (("Retry", RETRIER), ("Catch", CATCHER)):
        entries = state.get(field, [])
        if not isinstance(entries, list):
            yield wrong_type("Array", f"{at}/{field}")
            continue
        for number, entry in enumerate(entries):
            here = f"{at}/{field}[{number}]"
            if not isinstance(entry, dict):
                yield wrong_type("Object", here)
                continue
            yield from known(entry, names, here)
            yield from required(entry, ("ErrorEquals",) if field == "Retry" else ("ErrorEquals", "Next"), here)
            yield from _errors(entry.get("ErrorEquals", ["-"]), number == len(entries) - 1, f"{here}/ErrorEquals")
            if field == "Retry":
                yield from in_range(entry, RETRY_RANGES, language, here)
                if entry.get("JitterStrategy", "NONE") not in ("NONE", "FULL"):
                    yield fault("Value should be one of the following: [NONE, FULL]", f"{here}/JitterStrategy")
            else:
                yield from language_fits(entry, language, here)
                yield from paths(entry, here)


def _errors(errors: Any, last: bool, at: str) -> Found:
    if not isinstance(errors, list):
        yield wrong_type("Array", at)
    elif not errors:
        yield fault("Value cannot be empty", at)
    else:
        for number, error in enumerate(errors):
            if not isinstance(error, str):
                yield wrong_type("String", f"{at}[{number}]")
            elif error == "States.ALL" and (len(errors) > 1 or not last):
                yield fault("States.ALL must appear alone and at end of list", f"{at}[{number}]")
