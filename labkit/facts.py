"""The numbers of the course, by name: ``facts("sqs.visibility.max")`` is 43200, in seconds.

They come from ``data/facts.csv``, where each row has a unit, a claim in words and a source that was checked.
A notebook asks here instead of typing a quota: a number that AWS changes is then corrected in one place.
"""

from __future__ import annotations

import csv
import difflib
import re
from dataclasses import dataclass
from decimal import Decimal
from functools import cache
from pathlib import Path

from labkit.errors import LabError

__all__ = ["Fact", "UnknownFact", "fact", "facts", "search"]

_NUMBER = re.compile(r"-?\d+(\.\d+)?")


class UnknownFact(LabError, KeyError):
    """No fact has this key; the sentence names it and the nearest ones."""

    def __str__(self) -> str:
        # KeyError shows the repr of its argument, which would put the sentence in quotes.
        return Exception.__str__(self)


@dataclass(frozen=True, slots=True)
class Fact:
    """One row of ``data/facts.csv``; ``str()`` gives value and unit, as in "120,000 messages"."""

    key: str
    value: int | float | str  # the right value, where the guide differs
    unit: str  # s, bytes, messages, 1/s, % …; empty for text and plain ratios
    claim: str
    verdict: str  # of what the guide says: confirmed, imprecise, wrong, unverified
    guide_says: str
    source: str
    id: str

    def __str__(self) -> str:
        # Decimal keeps a small price readable: 0.00001667, not 1.667e-05.
        shown = self.value.replace("|", ", ") if isinstance(self.value, str) else f"{Decimal(repr(self.value)):,f}"
        if self.unit.startswith("1/"):
            return f"{shown}{self.unit[1:]}"
        return f"{shown} {self.unit}".rstrip()


def facts(key: str) -> int | float | str:
    """The value of a fact: an int or a float where it is a number, else text (a list is separated by ``|``).

    The unit is in ``fact(key).unit``: seconds for durations, bytes for sizes. Raises UnknownFact.
    """
    return fact(key).value


def fact(key: str) -> Fact:
    """The whole row: value, unit, claim, verdict on the guide, source. Raises UnknownFact."""
    rows = _load()
    if key not in rows:
        near = difflib.get_close_matches(key, rows, n=3, cutoff=0.0)
        raise UnknownFact(f'There is no fact "{key}"; the nearest keys are {", ".join(near)}.')
    return rows[key]


def search(text: str) -> list[Fact]:
    """The facts that have every word of ``text`` in their key, claim or unit, in any case, sorted by key."""
    words = text.lower().split()
    return [f for f in _load().values() if all(w in f"{f.key} {f.claim} {f.unit}".lower() for w in words)]


@cache
def _load() -> dict[str, Fact]:
    with _path().open(encoding="utf-8", newline="") as lines:
        _header, *rows = csv.reader(lines)  # its columns are the fields of Fact, in this order (a test holds it so)
        return {key: Fact(key, _parse(value), *rest) for key, value, *rest in rows}


def _path() -> Path:
    package = Path(__file__).resolve().parent
    # A wheel carries its own copy; a checkout reads the file that people edit.
    packed, checkout = package / "_data" / "facts.csv", package.parent / "data" / "facts.csv"
    return packed if packed.is_file() else checkout


def _parse(text: str) -> int | float | str:
    if not _NUMBER.fullmatch(text):
        return text
    return float(text) if "." in text else int(text)
