"""History: what an execution has done, as rows that a reader can use.

GetExecutionHistory gives events, up to 25,000 of them in pages, and one attempt at a task is five of them.
:meth:`History.steps` makes a row of each attempt. Here is where an incident is read, so nothing of a task token comes
out of it: what was sent with the token (``taskScheduledEventDetails.parameters``) holds it, and whoever has it can end
the task.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from labkit.control.attempts import CALLBACK, Attempt, Follower, Stay

__all__ = ["History", "Step", "read", "redacted"]

_HIDDEN = "«hidden: it holds the task token»"
_TOKEN = "«token»"
_PIECE = re.compile(r"[\w/+=-]+")  # what a token is made of
_LIKE_A_TOKEN = re.compile(r"[\w/+=-]{32,}")  # of one piece, and long


@dataclass(frozen=True)
class Step:
    """One attempt at a state.

    ``attempt`` counts from 1 within a stay in the state, ``retries`` says how many followed this one there.
    ``entered``: ``start`` (first state of the execution, a branch or an iteration), ``next``, ``catch``, ``retry``,
    ``redrive``. ``outcome``: ``succeeded``, ``retried`` (it failed, and a Retry took it), ``caught`` (it failed, and a
    Catch did), ``failed``, ``timed out``, ``aborted``, ``standing``. ``where``: branch or iteration, as in
    ``Research 3``, and which attempt at the whole it belongs to, after the first.
    """

    state: str
    attempt: int
    entered: str
    outcome: str
    error: str | None
    retries: int
    seconds: float | None  # from when it was entered or scheduled; None while it stands
    where: str = ""


class History:
    """Events in order, without tokens. ``status``: RUNNING, or how the execution ended."""

    def __init__(self, events: Iterable[Mapping[str, Any]]) -> None:
        self.events: tuple[Mapping[str, Any], ...] = tuple(redacted(events))
        followed = Follower(iter(self.events))
        self.status, self._stays = followed.status, followed.stays

    def steps(self) -> list[Step]:
        """A row for each attempt at a state, in the order in which the states were entered."""
        return [_row(stay, place, each) for stay in self._stays for place, each in enumerate(stay.attempts, 1)]

    @property
    def standing(self) -> list[str]:
        """The states that it stands in, the outermost first; each once."""
        return _once(stay.name for stay in self._stays if stay.stands)

    @property
    def failed(self) -> list[str]:
        """The states that it failed in, the outermost first; each once. What a Retry or a Catch took is not in it."""
        return _once(stay.name for stay in self._stays if stay.last.outcome in ("failed", "timed out"))

    def waits_in(self, state: str) -> bool:
        """Whether an attempt at ``state`` is under way; for one that waits for a callback, with its token handed on."""
        return any(stay.name == state and stay.parked for stay in self._stays)

    def upto(self, count: int) -> History:
        """The history as it was after its first ``count`` events."""
        return History(self.events[:count])

    def __len__(self) -> int:
        return len(self.events)

    def __repr__(self) -> str:
        return f"<History of {len(self.events)} events, {self.status}>"


def read(client: Any, arn: str) -> History:
    """All pages of an execution's history."""
    pages = client.get_paginator("get_execution_history").paginate(
        executionArn=arn, PaginationConfig={"PageSize": 1000}
    )
    return History(event for page in pages for event in page["events"])


def redacted(events: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The events with everything replaced that is, or may be, a task token.

    What was sent with a token is hidden as a whole. The token itself, known from there, and the value of each key that
    is called after a token are replaced wherever they stand: in inputs and outputs, of a nested execution as well.
    """
    held = list(events)
    secrets: set[str] = set()
    for details in map(_details, held):
        if str(details.get("resource", "")).endswith(CALLBACK):
            sent = _parsed(details.get("parameters"))
            secrets |= set(_tokens(sent)) or {each for each in _texts(sent) if _LIKE_A_TOKEN.fullmatch(each)}
    for details in map(_details, held):
        for text in details.values():
            secrets |= set(_tokens(_parsed(text)))
    without = _Without(secrets)
    for event in held:
        yield {key: _clean(value, without) if key.endswith("Details") else value for key, value in event.items()}


def _clean(details: Mapping[str, Any], without: Callable[[str], str]) -> Mapping[str, Any]:
    clean = {key: without(value) if isinstance(value, str) else value for key, value in details.items()}
    if "parameters" in clean and str(details.get("resource", "")).endswith(CALLBACK):
        clean["parameters"] = _HIDDEN
    return clean


class _Without:
    """A text without the secrets. One pass, however many there are: a Map can hand on a thousand tokens."""

    def __init__(self, secrets: set[str]) -> None:
        self._secrets = secrets
        self._lengths = sorted({len(secret) for secret in secrets}, reverse=True)
        self._odd = [secret for secret in secrets if not _PIECE.fullmatch(secret)]

    def __call__(self, text: str) -> str:
        for secret in self._odd:
            text = text.replace(secret, _TOKEN)
        return _PIECE.sub(self._piece, text) if self._secrets else text

    def _piece(self, found: re.Match[str]) -> str:
        piece, kept, place = found[0], "", 0
        if piece in self._secrets:
            return _TOKEN
        if len(piece) < self._lengths[-1]:
            return piece
        while place < len(piece):  # it may be a part of something longer: of a query string, say
            length = next((each for each in self._lengths if piece[place : place + each] in self._secrets), 0)
            kept += _TOKEN if length else piece[place]
            place += length or 1
        return kept


def _details(event: Mapping[str, Any]) -> Mapping[str, Any]:
    return next((value for key, value in event.items() if key.endswith("EventDetails")), {})


def _parsed(text: Any) -> Any:
    """What a text says in JSON; the text itself where it says nothing."""
    if not isinstance(text, str) or not text.lstrip().startswith(("{", "[", '"')):
        return text
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _tokens(part: Any) -> Iterator[str]:
    """The values of keys that are called after a token, also in JSON that stands in a text."""
    left = [part]  # and no recursion: a document may be nested as deeply as the parser goes
    while left:
        part = left.pop()
        if isinstance(part, Mapping):
            for key, value in part.items():
                if isinstance(value, str) and str(key).lower().endswith("token") and len(value) > 7:
                    yield value
                else:
                    left.append(_parsed(value))
        elif isinstance(part, list):
            left.extend(map(_parsed, part))


def _texts(part: Any) -> Iterator[str]:
    left = [part]
    while left:
        part = left.pop()
        if isinstance(part, Mapping | list):
            left.extend(map(_parsed, part.values() if isinstance(part, Mapping) else part))
        elif isinstance(part, str):
            yield part


def _row(stay: Stay, place: int, each: Attempt) -> Step:
    seconds = None if each.ended is None else round((each.ended - each.began).total_seconds(), 3)
    return Step(
        stay.name,
        place,
        each.entered,
        each.outcome or "standing",
        each.error,
        len(stay.attempts) - place,
        seconds,
        " / ".join(stay.where),
    )


def _once(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))
