"""The functions that Step Functions adds to JSONata.

**On AWS** these are ``$partition``, ``$range``, ``$hash``, ``$random`` with an optional seed, ``$uuid`` and ``$parse``;
``$eval`` is not supported. Those that take whole numbers round others down (Step Functions Developer Guide,
"Transforming data with JSONata", "JSONata functions provided by Step Functions").

**MiniStack** has some of them. moto's interpreter declares most in JSONata, with ``$randomSeeded``, which AWS does not
know (recorded).

**Here** they are functions of Python. Not verified: which number a seed leads to; the texts of what they refuse; that
they come to nothing where their first argument does; that ``$eval`` fails as any function does that is not there.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import random
import uuid
from collections.abc import Callable, Mapping
from typing import Any

DIGESTS = {"MD5": "md5", "SHA-1": "sha1", "SHA-256": "sha256", "SHA-384": "sha384", "SHA-512": "sha512"}
LARGEST_RANGE = 1_000_000  # elements, as the range operator of JSONata


def whole(number: Any) -> int:
    """A number rounded down."""
    if isinstance(number, bool) or not isinstance(number, (int, float)):
        raise ValueError(f"Expected a number, but was: {json.dumps(number, default=str)}")
    return math.floor(number)


def partition(values: Any, size: Any) -> list[list[Any]]:
    """``$partition``: the array in pieces of this size; the last one may be shorter."""
    step, items = whole(size), values if isinstance(values, list) else [values]
    if step < 1:
        raise ValueError("The size of a partition must be greater than zero.")
    return [items[at : at + step] for at in range(0, len(items), step)]


def ranged(first: Any, last: Any, delta: Any) -> list[int]:
    """``$range``: the numbers from the first to the last one, which is among them if the steps lead there."""
    start, end, step = whole(first), whole(last), whole(delta)
    if step == 0:
        raise ValueError("The step of a range must not be zero.")
    found = range(start, end + (1 if step > 0 else -1), step)
    if len(found) > LARGEST_RANGE:
        raise ValueError(f"A range must not have more than {LARGEST_RANGE} elements.")
    return list(found)


def digest(text: str, how: str) -> str:
    """``$hash``: the digest of a text, in hexadecimal digits."""
    if not isinstance(text, str):
        raise ValueError("Expected a string to make a hash of.")
    if how not in DIGESTS:
        raise ValueError(f"The algorithm must be one of {', '.join(DIGESTS)}.")
    return hashlib.new(DIGESTS[how], text.encode()).hexdigest()


def drawn(seed: Any = None) -> float:
    """``$random``: a number from 0 up to 1, the same one for the same seed."""
    return random.random() if seed is None else random.Random(whole(seed)).random()


def parsed(text: Any) -> Any:
    """``$parse``: the value of a text of JSON."""
    if not isinstance(text, str):
        raise ValueError("Expected a string to parse.")
    return json.loads(text)


def of_something(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, of nothing for nothing, as JSONata's own have it."""

    @functools.wraps(function)
    def called(*arguments: Any) -> Any:
        return None if arguments and arguments[0] is None else function(*arguments)

    return called


FUNCTIONS: Mapping[str, Callable[..., Any]] = {
    "partition": of_something(partition),
    "range": of_something(ranged),
    "hash": of_something(digest),
    "random": of_something(drawn),
    "uuid": lambda: str(uuid.uuid4()),
    "parse": of_something(parsed),
}
REMOVED = ("eval",)  # of JSONata's own
