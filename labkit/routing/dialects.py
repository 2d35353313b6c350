"""Dialects: one answer, as two APIs write it. What an API needs to be spoken, and what an answer consists of.

Modules :mod:`~labkit.routing.chat` (OpenAI) and :mod:`~labkit.routing.converse` (Bedrock) read a request into a
:class:`~labkit.routing.conversation.Conversation` and write a :class:`Reply` out again; the rest of the provider does
not know which of the two it is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from labkit.routing.conversation import Conversation, as_json
from labkit.routing.refusals import Refusal
from labkit.routing.script import Answer

__all__ = ["CONTENT", "END", "FRAME", "Dialect", "Event", "Reply", "invalid", "pieces"]

# What an event of a stream carries: the frame around an answer, a piece of it, or its end.
FRAME, CONTENT, END = "frame", "content", "end"
Event = tuple[str, bytes]

_WORD = re.compile(r"\s*\S+|\s+")
_PART = 16  # characters of a tool's input in one event


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer to a conversation, with what an API says about it: ``key`` makes its ids, ``created`` is in seconds."""

    asked: Conversation
    answer: Answer
    key: str
    created: int = 0

    @property
    def finish(self) -> Literal["stop", "tools", "length"]:
        if self.answer.short:
            return "length"
        return "tools" if self.answer.calls else "stop"

    @property
    def input_tokens(self) -> int:
        return self.asked.input_tokens

    @property
    def output_tokens(self) -> int:
        return self.answer.tokens

    def id(self, what: str, length: int = 24) -> str:
        """An id, such as a tool call's: another one for each call, and the same ones in each run."""
        return hashlib.sha256(f"{self.key}/{what}".encode()).hexdigest()[:length]


class Dialect(Protocol):
    """How one API is spoken. All methods are pure."""

    @property
    def name(self) -> str: ...

    @property
    def stream_type(self) -> str:
        """The Content-Type of a stream."""

    def read(self, body: Mapping[str, Any], model: str, stream: bool) -> Conversation:
        """The request as a conversation. Raises :class:`Refusal` (``invalid``) as the API would refuse it."""

    def whole(self, reply: Reply, milliseconds: int) -> dict[str, Any]:
        """The answer in one piece."""

    def events(self, reply: Reply, started: Milliseconds) -> Iterator[Event]:
        """The answer as a stream."""

    def refused(self, refusal: Refusal, model: str) -> tuple[int, dict[str, str], dict[str, Any]]:
        """Status, headers and body of a refusal."""

    def broken(self, refusal: Refusal, model: str) -> bytes:
        """An error in the middle of a stream."""

    def headers(self, key: str) -> dict[str, str]:
        """What every answer carries."""


class Milliseconds(Protocol):
    def __call__(self) -> int:
        """How many there have been since the request came."""


def pieces(answer: Answer) -> tuple[list[str], list[list[str]]]:
    """The answer's pieces: its text by words, and the input of each tool call by parts of its JSON."""
    inputs = [as_json(call.input) for call in answer.calls]
    return _WORD.findall(answer.text), [[text[at : at + _PART] for at in range(0, len(text), _PART)] for text in inputs]


def invalid(says: str, param: str | None = None) -> Refusal:
    return Refusal("invalid", says=says, param=param)
