"""Checks of a model's input: one clear sentence that names the field, the value and the limit."""

from __future__ import annotations

import math
from collections.abc import Sequence

from labkit.errors import LabError
from labkit.facts import facts


class ModelError(LabError, ValueError):
    """A model was asked about something that cannot be: the sentence names the field, the value and the limit."""


_MOST = 1e15  # of anything that is reckoned with: a product of several of them is still a number


def number(
    field: str, value: float, *, low: float = 0.0, high: float = math.inf, unit: str = "", finite: bool = False
) -> float:
    """``value`` if it lies in [low, high], and below 1e15 where ``finite``; else :class:`ModelError`."""
    ok = isinstance(value, (int, float)) and not isinstance(value, bool) and _is_a_float(value)
    most = min(high, _MOST) if finite else high
    if not ok or not low <= value <= most:
        over = ok and value > most
        room = f"at least {low:g}" if math.isinf(high) and not over else f"from {low:g} to {most:g}"
        raise ModelError(f"{field} must be {room}{f' {unit}' if unit else ''}; got {_shown(value)}.")
    return value


def _is_a_float(value: float) -> bool:
    """Is it a number that a float can hold?"""
    try:
        return not math.isnan(value)
    except OverflowError:
        return False


def whole(field: str, value: int, *, low: int = 1, high: float = math.inf) -> int:
    """``value`` if it is a whole number in [low, high]; else :class:`ModelError`."""
    ok = isinstance(value, int) and not isinstance(value, bool)
    most = min(high, _MOST)
    if not ok or not low <= value <= most:
        over = ok and value > most
        room = f"of at least {low}" if math.isinf(high) and not over else f"from {low} to {most:g}"
        raise ModelError(f"{field} must be a whole number {room}; got {_shown(value)}.")
    return value


def flag(field: str, value: bool) -> bool:
    """``value`` if it is True or False; else :class:`ModelError`: the text "no" is true, for Python."""
    if not isinstance(value, bool):
        raise ModelError(f"{field} must be True or False; got {_shown(value)}.")
    return value


def one_of(field: str, value: str, known: Sequence[str]) -> str:
    """``value`` if it is one of the ``known`` texts; else :class:`ModelError`."""
    if not isinstance(value, str) or value not in known:
        raise ModelError(f"{field} must be one of {', '.join(known)}; got {_shown(value)}.")
    return value


def a(field: str, value: object, kind: type, example: str) -> None:
    """Raise :class:`ModelError` unless ``value`` is a ``kind``; the sentence shows an ``example`` of one."""
    if not isinstance(value, kind):
        raise ModelError(f"{field} must be made as in {example}; got {_shown(value)}.")


def _shown(value: object) -> str:
    """The value, on one line, and not at the length of a page."""
    if isinstance(value, int) and value.bit_length() > 64:
        return f"a number of about {int(value.bit_length() * math.log10(2)) + 1} digits"
    shown = " ".join(repr(value).split())
    return shown if len(shown) <= 60 else f"{shown[:40]} … {shown[-15:]}"


def limit(key: str) -> int:
    """A numeric fact as a whole number: ``limit("sqs.visibility.max")`` is 43200."""
    value = facts(key)
    if isinstance(value, str):
        raise ModelError(f"fact {key} must be a number; it is {value!r}.")
    return int(value)
