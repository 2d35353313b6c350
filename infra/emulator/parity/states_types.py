"""What a Task, Wait, Parallel or Map state has beyond the fields of the others.

**On AWS** a Task names a resource that exists in its Region, a Wait has one of four fields, a Parallel a branch, a Map
one processor, and an Express state machine waits for nothing and has no distributed Map (Step Functions Developer
Guide, the pages of these states, "Choosing workflow type"; texts recorded on AWS or quoted from it in public reports).

**MiniStack** does not look at them.

**Here** they are checked with the definition. Which integrations exist is known for the commonest services alone. Not
verified: that AWS refuses a HeartbeatSeconds that is not smaller than TimeoutSeconds, which its guide demands, and the
text of that; the texts about a processor's Mode and a
Label.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from .states_choices import choices
from .states_schema import (
    SCHEMA,
    Diagnostic,
    Found,
    Range,
    fault,
    in_range,
    is_expression,
    known,
    language_fits,
    one_of,
    required,
    wrong_type,
)

INNER = ("ItemProcessor", "Iterator")
WAITS = ("SecondsPath", "Seconds", "TimestampPath", "Timestamp")
_TOKEN = ("", ".waitForTaskToken")
INTEGRATIONS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "lambda": {"invoke": _TOKEN},
    "sqs": {"sendMessage": _TOKEN},
    "sns": {"publish": _TOKEN},
    "events": {"putEvents": _TOKEN},
    "dynamodb": dict.fromkeys(("getItem", "putItem", "updateItem", "deleteItem"), ("",)),
    "states": {"startExecution": (*_TOKEN, ".sync", ".sync:2")},
}
_MOMENT = re.compile(
    r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])T([01]\d|2[0-3]):[0-5]\d:[0-5]\d(\.\d+)?(Z|[+-]\d\d:\d\d)"
)
LONGEST_LABEL = 40
_NOT_IN_LABELS = re.compile(r'[\s<>{}\[\]?*"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f]')
PARTS: Mapping[str, Mapping[str, Range]] = {
    "ItemReader": {"MaxItems": (0, 100_000_000)},
    "ItemBatcher": {"MaxItemsPerBatch": (0, None), "MaxInputBytesPerBatch": (0, None)},
    "ResultWriter": {},
}


def inner(state: Mapping[str, Any], at: str) -> Iterator[tuple[Any, str]]:
    """The definitions inside a state: branches, or what a Map state does with its items."""
    branches = state.get("Branches")
    for number, branch in enumerate(branches if isinstance(branches, list) else ()):
        yield branch, f"{at}/Branches[{number}]"
    for name in INNER:
        if name in state:
            yield state[name], f"{at}/{name}"


def of_type(state: dict[str, Any], at: str, kind: str, language: str) -> Found:
    type_ = state["Type"]
    if type_ == "Task":
        yield from _task(state, at)
        yield from _express(state, at, kind)
    elif type_ == "Wait":
        yield from _wait(state, language, at)
    elif type_ == "Choice":
        yield from choices(state, language, at)
    elif type_ == "Parallel":
        yield from required(state, ("Branches",), at)
        if not isinstance(state.get("Branches", []), list):
            yield wrong_type("Array", f"{at}/Branches")
        elif "Branches" in state and not state["Branches"]:
            yield fault("Value cannot be empty", f"{at}/Branches")
    elif type_ == "Map":
        yield from _map(state, at, kind, language)


def _express(state: dict[str, Any], at: str, kind: str) -> Found:
    from .states_engine import express_error

    reason = express_error({"States": {"": state}}) if kind == "EXPRESS" else None
    if reason:
        message = reason.removeprefix(f"{SCHEMA}: ").partition(" at /States/")[0]
        yield fault(message, f"{at}/Resource")


def processor(definition: Any) -> Mapping[str, Any]:
    config = definition.get("ProcessorConfig") if isinstance(definition, dict) else None
    return config if isinstance(config, dict) else {}


def _map(state: dict[str, Any], at: str, kind: str, language: str) -> Found:
    yield from one_of(state, INNER, at, needed=True)
    label = state.get("Label", "-")
    if not isinstance(label, str) or not 1 <= len(label) <= LONGEST_LABEL or _NOT_IN_LABELS.search(label):
        yield Diagnostic("INVALID_LABEL_NAME", f"Invalid label name: {label}", f"{at}/Label")
    for name, numbers in PARTS.items():
        part, here = state.get(name, {}), f"{at}/{name}"
        if not isinstance(part, dict):
            yield wrong_type("Object", here)
            continue
        yield from language_fits(part, language, here)
        config = part.get("ReaderConfig", part) if name == "ItemReader" else part
        here = here if config is part else f"{here}/ReaderConfig"
        if isinstance(config, dict):
            yield from in_range(config, numbers, language, here)
            for number in numbers:
                yield from one_of(config, (number, f"{number}Path"), here, needed=False)
    for name in INNER:
        config, here = processor(state.get(name)), f"{at}/{name}/ProcessorConfig"
        mode = config.get("Mode", "INLINE")
        if mode not in ("INLINE", "DISTRIBUTED"):
            yield fault("Value should be one of the following: [INLINE, DISTRIBUTED]", f"{here}/Mode")
        elif mode == "INLINE":
            yield from known(config, {"Mode"}, here)
        else:
            yield from required(config, ("ExecutionType",), here)
            if config.get("ExecutionType", "STANDARD") not in ("STANDARD", "EXPRESS"):
                yield fault("Value should be one of the following: [STANDARD, EXPRESS]", f"{here}/ExecutionType")
            if kind == "EXPRESS":
                text = "The field 'Mode' with value 'DISTRIBUTED' is not supported inside 'EXPRESS' state machines"
                yield fault(text, f"{here}/Mode")


def _task(state: Mapping[str, Any], at: str) -> Found:
    """What a Task state has beyond the others."""
    yield from required(state, ("Resource",), at)
    resource = state.get("Resource", "arn:")
    if not isinstance(resource, str):
        yield wrong_type("String", f"{at}/Resource")
    elif not resource.startswith("arn:"):
        yield fault("Value is not a valid resource ARN", f"{at}/Resource")
    elif not integration_exists(resource):
        text = "The value is not a valid resource ARN, or the resource is not available in this region."
        yield fault(f"The resource provided {resource} is not recognized. {text}", f"{at}/Resource")
    credentials = state.get("Credentials")
    if isinstance(credentials, dict) and not {"RoleArn", "RoleArn.$"} & credentials.keys():
        yield fault("The field 'RoleArn' is required but was missing", f"{at}/Credentials")
    beat, limit = state.get("HeartbeatSeconds"), state.get("TimeoutSeconds")
    if type(beat) is int and type(limit) is int and beat >= limit:
        yield fault("Value must be smaller than the value of 'TimeoutSeconds'", f"{at}/HeartbeatSeconds")


def integration_exists(resource: str) -> bool:
    """Whether ``arn:aws:states:::service:action`` is one, as far as :data:`INTEGRATIONS` knows."""
    parts = resource.split(":", 6)
    if len(parts) < 7 or parts[2] != "states" or parts[3] or parts[5] not in INTEGRATIONS:
        return True
    action, dot, pattern = parts[6].partition(".")
    return dot + pattern in INTEGRATIONS[parts[5]].get(action, ())


def _wait(state: Mapping[str, Any], language: str, at: str) -> Found:
    yield from one_of(state, WAITS, at, needed=True)
    moment = state.get("Timestamp")
    if "Timestamp" in state and not (language == "JSONata" and is_expression(moment)):
        if not isinstance(moment, str):
            yield wrong_type("String", f"{at}/Timestamp")
        elif not _MOMENT.fullmatch(moment):
            yield fault("String does not match RFC3339 timestamp", f"{at}/Timestamp")
