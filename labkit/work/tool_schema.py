"""Tool schemas: the part of JSON Schema that an AgentCore gateway takes, and what does not fit one.

botocore's model of bedrock-agentcore-control (``SchemaDefinition``): ``type``, ``properties``, ``required``, ``items``,
``description``, and nothing else. There is no ``enum`` and no ``minimum``: what is narrower than a type is said in the
description, and checked by the tool or by a rule of the policy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

KEYS = ("type", "properties", "required", "items", "description")
_DEEPEST = 20
_IS: dict[str, Callable[[Any], bool]] = {
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "number": lambda value: isinstance(value, (int, float)) and not isinstance(value, bool),
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, (list, tuple)),
}


def flaw(schema: Any, where: str = "inputSchema", deep: int = 0) -> str | None:
    """What a gateway would refuse in ``schema``, in a sentence; None when it is sound."""
    if not isinstance(schema, Mapping) or schema.get("type") not in _IS or deep > _DEEPEST:
        return f"{where} has a type, one of {', '.join(_IS)}, and is {_DEEPEST} levels deep at most"
    if strange := sorted(map(str, set(schema) - set(KEYS))):
        return f"{where} has {', '.join(strange)}, and a gateway takes only {', '.join(KEYS)}"
    properties, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(properties, Mapping) or not isinstance(required, (list, tuple)):
        return f"{where} has properties by name, and required as a list"
    if unknown := [str(name) for name in required if name not in properties]:
        return f"{where} requires {', '.join(unknown)}, and does not describe it"
    below = [(f"{where}.{name}", each) for name, each in properties.items()]
    below += [(f"{where}[]", schema["items"])] if "items" in schema else []
    return next((found for name, each in below if (found := flaw(each, name, deep + 1))), None)


def misfit(schema: Mapping[str, Any], value: Any, where: str = "input") -> str | None:
    """What is wrong with ``value``, in words that a model can act on; None when it fits.

    A name that the schema does not know is no mistake, as in JSON Schema: tools leave it alone.
    """
    if not _IS[schema["type"]](value):
        return f"{where} must be of type {schema['type']}; got {value!r:.60}"
    if isinstance(value, Mapping):
        if missing := [str(name) for name in schema.get("required", ()) if name not in value]:
            return f"{where} lacks {', '.join(missing)}"
        known = schema.get("properties", {})
        parts = [(f"{where}.{name}", known[name], each) for name, each in value.items() if name in known]
    elif isinstance(value, (list, tuple)) and "items" in schema:
        parts = [(f"{where}[{number}]", schema["items"], each) for number, each in enumerate(value)]
    else:
        parts = []
    return next((found for name, part, each in parts if (found := misfit(part, each, name))), None)
