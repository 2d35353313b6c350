"""Payloads: what Step Functions takes as input, output, error and cause, said before the call and not after it."""

from __future__ import annotations

import json
from typing import Any

from labkit.errors import LabError
from labkit.facts import facts

_CUT = " … (cut)"


class PayloadError(LabError):
    """A payload is not JSON, or too large; the sentence names the size and the limit."""


def as_json(what: str, value: Any) -> str:
    """``value`` as compact JSON of 256 KiB at most. Raises :class:`PayloadError`, which names ``what``."""
    text, size = any_json(what, value)
    most = int(facts("sfn.payload.max_bytes"))
    if size > most:
        raise PayloadError(
            f"{what} has {size:,} bytes and Step Functions takes {most:,} at most; put it into S3 and pass on where it "
            "lies (a claim check)."
        )
    return text


def any_json(what: str, value: Any) -> tuple[str, int]:
    """``value`` as compact JSON of any size, and its bytes. Raises :class:`PayloadError`, which names ``what``."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
        return text, len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        says = "it has half a character" if isinstance(error, UnicodeError) else str(error)
        raise PayloadError(f"{what} is not what JSON can hold: {says}.") from None


def error_name(name: str) -> str:
    """``name`` if an error can be called so. Retry and Catch match it, so one that is too long is refused, not cut."""
    most = int(facts("sfn.error.max_chars"))
    if not isinstance(name, str) or not 1 <= len(name) <= most:
        size = f"{len(name)} characters" if isinstance(name, str) else type(name).__name__
        raise PayloadError(f"an error's name is a text of 1 to {most} characters; got {size}.")
    return name.encode(errors="replace").decode()


def of_exception(error: BaseException) -> tuple[str, str]:
    """Name and cause for an exception: its class, and what it says. Always fit to be sent, however odd it is.

    A name that is too long is cut here: nobody chose it to be matched, and a task that fails under a part of its name
    is better than one that is waited for until it times out.
    """
    try:
        says = str(error)
    except Exception:  # noqa: BLE001 - an error that cannot be printed is an error all the same
        says = "(its text could not be had)"
    return error_name(type(error).__name__[: int(facts("sfn.error.max_chars"))] or "Exception"), cause(says)


def cause(text: str) -> str:
    """``text`` as a cause: cut, with a mark at the end, where it is longer than Step Functions takes."""
    most = int(facts("sfn.cause.max_chars"))
    text = str(text).encode(errors="replace").decode()
    return text if len(text) <= most else text[: most - len(_CUT)] + _CUT
