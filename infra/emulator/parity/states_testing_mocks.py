"""Whether the mocked result of a task is what its service could answer.

**On AWS** a mocked result is compared with the model of the API: its types, the values of enumerations, and (STRICT,
which is the default) the fields that are required. Fields that the API does not know are let through (Step Functions
API Reference, "MockInput"; refusals recorded on AWS).

**MiniStack** does not compare them.

**Here** botocore's models are compared. The result of a function, of a callback and of a job is the caller's own.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

KINDS: dict[str, tuple[Any, str]] = {
    "structure": (dict, "an object"),
    "map": (dict, "an object"),
    "list": (list, "an array"),
    "string": (str, "a string"),
    "blob": (str, "a string"),
    "timestamp": (str, "a string"),
    "boolean": (bool, "a boolean"),
    **dict.fromkeys(("integer", "long", "float", "double"), ((int, float), "a number")),
}
ANYTHING = frozenset({("lambda", "Payload")})


@functools.cache
def _model(service: str) -> Any:
    from botocore.session import get_session

    return get_session().get_service_model(service)


def output_shape(component: Any) -> Any:
    """The shape of what a Task state's API answers, or None when there is none to compare with."""
    name, action = (getattr(component, f"_get_boto_service_{what}", None) for what in ("name", "action"))
    if name is None or action is None or getattr(component.resource, "condition", None) is not None:
        return None
    from moto.stepfunctions.parser.utils import camel_to_snake_case

    try:
        model = _model(name())
    except Exception:  # noqa: BLE001 - a service that botocore does not know is not compared
        return None
    wanted = action()
    found = [each for each in model.operation_names if camel_to_snake_case(each) == wanted]
    return model.operation_model(found[0]).output_shape if found else None


def faults(shape: Any, value: Any, name: str, *, strict: bool, service: str = "") -> Iterator[str]:
    """What keeps a value from having this shape."""
    if (service, name) in ANYTHING:
        return
    kind, word = KINDS.get(shape.type_name, (object, "anything"))
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool and kind is not object):
        yield f"Field '{name}' must be {word}"
        return
    if shape.type_name == "string" and getattr(shape, "enum", None) and value not in shape.enum:
        yield f"Field '{name}' is not an expected value"
    elif shape.type_name == "structure":
        members = {member[0].upper() + member[1:]: inner for member, inner in shape.members.items()}
        for member in shape.required_members if strict else ():
            if member[0].upper() + member[1:] not in value:
                yield f"Required field '{member[0].upper() + member[1:]}' is missing"
        for member, inner in value.items():
            if member in members:
                yield from faults(members[member], inner, member, strict=strict, service=service)
    elif shape.type_name == "list":
        for inner in value:
            yield from faults(shape.member, inner, name, strict=strict, service=service)
    elif shape.type_name == "map":
        for member, inner in value.items():
            yield from faults(shape.value, inner, member, strict=strict, service=service)


def problem(component: Any, result: Any, mode: str) -> str | None:
    """Why the result of this task is refused, or None."""
    shape = None if mode == "NONE" else output_shape(component)
    if shape is None:
        return None
    service = str(component._get_boto_service_name())
    first = next(faults(shape, result, "result", strict=mode != "PRESENT", service=service), None)
    return None if first is None else f"Mock result schema validation error: {first}"
