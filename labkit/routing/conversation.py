"""Conversation: what a model is asked, whatever the API's dialect: who said what, which tools there are, what is next.

A model has no memory. Each call brings the whole conversation, and an agent's loop is one that grows::

    user       What is the weather in Oslo?        <- the prompt
    assistant  calls weather(city="Oslo")          <- the answer of step 0
    user       result of that call: 4 degrees
    assistant  It is 4 degrees.                    <- the answer of step 1

So a prompt, and how many answers it has had already, say where a conversation stands: nothing needs to be remembered
between two calls, and the same call gets the same answer.

**Tokens** are estimated: 4 characters are one, and each text is rounded up by itself. Real tokenizers differ by model
and language; this estimate is the same on every machine. Input is every text, tool call and result, and what describes
the tools; output is text, and names and inputs of tool calls. There is no charge for the frame of a message.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = ["Conversation", "Tool", "ToolCall", "ToolResult", "Turn", "as_json", "tokens"]

CHARACTERS = 4  # of text in one token
_WORDS = 48  # characters of a prompt that a log shows


def tokens(text: str) -> int:
    """How many tokens ``text`` is taken for: a quarter of its characters, rounded up."""
    return -(-len(text) // CHARACTERS)


def as_json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True, default=str)


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's wish that a tool be called. ``id`` is what its result refers to; a script leaves it to the provider.

    A tool that the request does not offer is a slip of the script and refused, unless ``invented``: models do that too.
    """

    name: str
    input: Mapping[str, Any] = field(default_factory=dict)
    id: str = ""
    invented: bool = False

    @property
    def tokens(self) -> int:
        return tokens(self.name) + tokens(as_json(self.input))


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a tool gave: its text (JSON where it was structured), and whether it worked."""

    id: str
    text: str
    ok: bool = True


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool that the model may call: its name, what it is for, and the JSON Schema of its input."""

    name: str
    description: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Turn:
    """One message: text, with the calls of an assistant or the results that a user's program brings."""

    role: Literal["user", "assistant"]
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    results: tuple[ToolResult, ...] = ()

    @property
    def tokens(self) -> int:
        parts = [self.text, *(result.text for result in self.results)]
        return sum(map(tokens, parts)) + sum(call.tokens for call in self.calls)


@dataclass(frozen=True, slots=True)
class Conversation:
    """One call of a model. ``choice``: ``auto``, ``none`` (no tool), ``any`` (some tool) or ``tool`` (``forced``)."""

    model: str
    turns: tuple[Turn, ...]
    system: str = ""
    tools: tuple[Tool, ...] = ()
    choice: Literal["auto", "none", "any", "tool"] = "auto"
    forced: str = ""
    max_tokens: int | None = None
    stream: bool = False
    include_usage: bool = True  # of a stream; the other answers always have it

    @property
    def prompt(self) -> str:
        """The last text of the user's. Results of tools are none: they belong to the prompt before."""
        at = self._asked
        return self.turns[at].text if at >= 0 else ""

    @property
    def step(self) -> int:
        """How many answers this prompt has had: 0, and 1 when the result of a first tool call has come back."""
        return sum(turn.role == "assistant" for turn in self.turns[self._asked + 1 :])

    @property
    def results(self) -> tuple[ToolResult, ...]:
        """What the tools gave that the last answer called; empty when none was."""
        return self.turns[-1].results if self.turns else ()

    @property
    def result(self) -> str:
        """The text of the last of :attr:`results`; empty when there is none."""
        return self.results[-1].text if self.results else ""

    @property
    def input_tokens(self) -> int:
        described = sum(tokens(each.name + each.description + as_json(each.schema)) for each in self.tools)
        return tokens(self.system) + described + sum(turn.tokens for turn in self.turns)

    @property
    def words(self) -> str:
        """How the prompt begins, on one line: for a log."""
        line = " ".join(self.prompt.split())
        return line if len(line) <= _WORDS else line[: _WORDS - 1] + "…"

    @property
    def digest(self) -> str:
        """12 hex digits that stand for everything said so far. The same in every dialect; ids of calls do not count."""
        said = [[t.role, t.text, [[c.name, c.input] for c in t.calls], [r.text for r in t.results]] for t in self.turns]
        return hashlib.sha256(as_json([self.system, said]).encode(errors="replace")).hexdigest()[:12]

    @property
    def _asked(self) -> int:
        return max((at for at, turn in enumerate(self.turns) if turn.role == "user" and turn.text), default=-1)
