"""Checks of what a plan is given: one clear sentence, before anything is asked of AWS."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from labkit.control.envelope import Envelope
from labkit.facts import facts
from labkit.models._input import ModelError, number
from labkit.ops.replay.errors import ReplayError

_NAME = re.compile(r"[.\-_A-Za-z0-9]+")  # botocore, events: ReplayName, ArchiveName


def seconds(field: str, value: float, *, finite: bool = False) -> float:
    """``value`` if it is a time of at least 0 s."""
    try:
        return float(number(field, value, unit="s", finite=finite))
    except ModelError as error:
        raise ReplayError(str(error)) from error


def time_of(field: str, value: datetime) -> datetime:
    """``value`` in UTC: botocore sends the hands of the clock, whatever the zone."""
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise ReplayError(f"{field} is a datetime with a time zone; got {value!r:.60}.")
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        raise ReplayError(f"{field} is no time that UTC has; got {value!r:.60}.") from error


def window(since: datetime, until: datetime) -> tuple[datetime, datetime]:
    """The range in whole seconds, which is what an event's time has."""
    start, end = since.replace(microsecond=0), until.replace(microsecond=0)
    if end < until:
        end += timedelta(seconds=1)
    if start >= end:
        raise ReplayError("since must lie before until.")
    return start, end


def name_of(what: str, name: str) -> str:
    """``name`` if a ``what`` ("replay", "archive") can be called so: botocore does not check it, and AWS does."""
    most = int(facts(f"events.{what}_name.max_chars"))
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name) > most:
        raise ReplayError(f"{what} {name!r:.80}: a name has at most {most} letters, digits and . - _")
    return name


def lists(rules: Any, samples: Any, idempotent: Any, allow: Any) -> None:
    """One name, or one sample, where many are meant: Python would take it apart."""
    for what, value in (("rules", rules), ("allow", allow)):
        if what == "rules" and value is None:
            continue
        many = isinstance(value, Collection) and not isinstance(value, str | bytes)
        if not many or not all(isinstance(one, str) for one in value):
            raise ReplayError(f"{what} is a list of texts; got {value!r:.60}.")
    if isinstance(samples, Mapping | Envelope | str | bytes) or not isinstance(samples, Iterable):
        raise ReplayError(f"samples is a list; got {samples!r:.60}.")
    if idempotent is not None and not (
        isinstance(idempotent, Mapping) and all(isinstance(value, bool) for value in idempotent.values())
    ):
        raise ReplayError(f"idempotent maps rules or target ARNs to True or False; got {idempotent!r:.60}.")
