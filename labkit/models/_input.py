"""Checks of a model's input: one clear sentence that names the field, the value and the limit."""

from __future__ import annotations

import math

from labkit.errors import LabError
from labkit.facts import facts


class ModelError(LabError, ValueError):
    """A model was asked about something that cannot be: the sentence names the field, the value and the limit."""


def number(field: str, value: float, *, low: float = 0.0, high: float = math.inf, unit: str = "") -> float:
    """``value`` if it lies in [low, high]; else :class:`ModelError`."""
    ok = isinstance(value, (int, float)) and not isinstance(value, bool) and not math.isnan(value)
    if not ok or not low <= value <= high:
        room = f"at least {low:g}" if math.isinf(high) else f"from {low:g} to {high:g}"
        raise ModelError(f"{field} must be {room}{f' {unit}' if unit else ''}; got {value!r}.")
    return value


def whole(field: str, value: int, *, low: int = 1, high: float = math.inf) -> int:
    """``value`` if it is a whole number in [low, high]; else :class:`ModelError`."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        room = f"of at least {low}" if math.isinf(high) else f"from {low} to {high:g}"
        raise ModelError(f"{field} must be a whole number {room}; got {value!r}.")
    return value


def limit(key: str) -> int:
    """A numeric fact as a whole number: ``limit("sqs.visibility.max")`` is 43200."""
    value = facts(key)
    if isinstance(value, str):
        raise ModelError(f"fact {key} must be a number; it is {value!r}.")
    return int(value)
