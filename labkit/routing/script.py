"""Script: what a model says, written down beforehand, so that a run can be repeated and a test can expect words.

A script is a list of rules, tried in order; the first one that fits the prompt answers::

    script = (
        Script()
        .on("What is 2 + 2?", "4")                                      # the whole prompt
        .on(contains("weather"), [ToolCall("weather", {"city": "Oslo"}), # a list: first this answer, then,
                                  lambda asked: f"It is {asked.result}."])  # when the tool's result is there, this
        .on(re.compile(r"order (\\d+)"), "That order has been sent.")
        .on(lambda asked: asked.system.startswith("You judge"), "yes")  # anything about the conversation
    )

A prompt that no rule fits gets the ``default``. Without one it is refused, in words: an agent that asks what nobody
expected should fail a test, not get a friendly nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from labkit.errors import LabError
from labkit.routing.conversation import CHARACTERS, Conversation, ToolCall, tokens

__all__ = ["Answer", "Says", "Script", "ScriptError", "Unscripted", "When", "contains"]


class ScriptError(LabError, ValueError):
    """A script that cannot be: the sentence names the rule and what it lacks."""


class Unscripted(LabError):
    """The script has no answer to this, or none that the request allows. It is a fault of the test, not of the model's,
    so that nobody should try again."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a model says in one go: text, calls of tools, or both. ``short``: ``max_tokens`` cut it off."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    short: bool = False

    @classmethod
    def of(cls, value: Any) -> Answer:
        """A text, a :class:`~labkit.routing.conversation.ToolCall` or an answer, as an answer. Raises ScriptError."""
        if isinstance(value, str):
            value = cls(value)
        elif isinstance(value, ToolCall):
            value = cls(calls=(value,))
        if not isinstance(value, Answer) or not (value.text or value.calls):
            raise ScriptError(f"an answer is a text that is not empty, a ToolCall or an Answer; got {value!r:.80}.")
        return value

    @property
    def tokens(self) -> int:
        return tokens(self.text) + sum(call.tokens for call in self.calls)

    def within(self, most: int | None) -> Answer:
        """The answer as ``most`` tokens hold it: text is cut, and calls that do not fit are left out whole."""
        if most is None or self.tokens <= most:
            return self
        return Answer(self.text[: most * CHARACTERS], short=True)


Says = str | ToolCall | Answer | Callable[[Conversation], Any]
When = str | re.Pattern[str] | Callable[[Conversation], object]


def contains(text: str) -> Callable[[Conversation], bool]:
    """Fits a prompt that has ``text`` somewhere, in upper or lower case."""
    if not isinstance(text, str) or not text:
        raise ScriptError(f"contains takes a text that is not empty; got {text!r:.80}.")
    return lambda asked: text.lower() in asked.prompt.lower()


_WHEN: dict[str, Callable[[str], When]] = {"exact": str, "contains": contains, "regex": re.compile}  # in JSON


class Script:
    """Rules in order, and a ``default`` for everything else (None: refuse). Threads may share one."""

    def __init__(self, default: Says | Sequence[Says] | None = None) -> None:
        self._rules: list[tuple[Callable[[Conversation], object], tuple[Any, ...]]] = []
        self._default = None if default is None else _steps(default)

    def on(self, when: When, says: Says | Sequence[Says]) -> Script:
        """Add a rule; returns the script. A list in ``says`` is one answer a step. Raises :class:`ScriptError`.

        ``when`` is the whole prompt, a regular expression that is found in it, or a function of the conversation. An
        answer may be such a function too; where that returns None, the next rules are tried.
        """
        if isinstance(when, str):
            text = when
            fits: Callable[[Conversation], object] = lambda asked: asked.prompt == text  # noqa: E731
        elif isinstance(when, re.Pattern):
            pattern = when
            fits = lambda asked: pattern.search(asked.prompt)  # noqa: E731
        elif callable(when):
            fits = when
        else:
            raise ScriptError(f"a rule fits a text, a regular expression or what a function says; got {when!r:.80}.")
        self._rules.append((fits, _steps(says)))
        return self

    def answer(self, asked: Conversation) -> Answer:
        """What the model says now. Raises :class:`Unscripted`, also where a function of the script fails."""
        try:
            for fits, steps in self._rules:
                if fits(asked) and (found := _step(steps, asked)) is not None:
                    return _allowed(found, asked)
            if self._default is not None and (found := _step(self._default, asked)) is not None:
                return _allowed(found, asked)
        except Unscripted:
            raise
        except Exception as error:
            raise Unscripted(f"the script failed at {asked.words!r}: {type(error).__name__}: {error}") from error
        raise Unscripted(f"the script has no answer to {asked.words!r}, and no default.")

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Script:
        """A script from plain data (JSON)::

            {"rules": [{"exact": "…" or "contains": "…" or "regex": "…", "says": "…" or {"tool": "…", "input": {…}}
                        or a list of those, one a step}], "default": "…"}

        Raises :class:`ScriptError`.
        """
        if not isinstance(data, Mapping) or not isinstance(data.get("rules", []), list):
            raise ScriptError("a script is an object with a list of rules.")
        default = data.get("default")
        script = cls(None if default is None else _plain(default, "the default"))
        for number, rule in enumerate(data.get("rules", [])):
            where = f"rule {number} of the script"
            given = [key for key in ("exact", "contains", "regex") if key in rule] if isinstance(rule, Mapping) else []
            if len(given) != 1 or not isinstance(rule[given[0]], str) or "says" not in rule:
                raise ScriptError(f"{where} needs one of exact, contains and regex, a text, and says.")
            text: str = rule[given[0]]
            try:
                when = _WHEN[given[0]](text)
            except re.error as error:
                raise ScriptError(f"{where} has a regular expression that is none: {error}.") from error
            script.on(when, _plain(rule["says"], where))
        return script

    @classmethod
    def load(cls, path: Path | str) -> Script:
        """The script in a JSON file. Raises :class:`ScriptError`."""
        try:
            return cls.of(json.loads(Path(path).read_text(encoding="utf-8")))
        except (OSError, ValueError) as error:
            if isinstance(error, ScriptError):
                raise
            raise ScriptError(f"the script {path} cannot be read: {error}") from error


def _steps(says: Any) -> tuple[Any, ...]:
    """The answers of one rule, in order; checked now, where a mistake is easy to find."""
    steps = tuple(says) if isinstance(says, Sequence) and not isinstance(says, str) else (says,)
    if not steps:
        raise ScriptError("a rule has at least one answer; its list is empty.")
    return tuple(each if callable(each) else Answer.of(each) for each in steps)


def _step(steps: tuple[Any, ...], asked: Conversation) -> Answer | None:
    if asked.step >= len(steps):
        if len(steps) == 1 and callable(steps[0]):
            return _called(steps[0], asked)  # one function for the whole conversation sees by itself where it stands
        raise Unscripted(
            f"the script has {len(steps)} answer{'s' if len(steps) > 1 else ''} to {asked.words!r}, and is asked for "
            f"answer {asked.step + 1}."
        )
    found = steps[asked.step]
    return _called(found, asked) if callable(found) else found


def _called(says: Callable[[Conversation], Any], asked: Conversation) -> Answer | None:
    found = says(asked)
    return None if found is None else Answer.of(found)


def _allowed(answer: Answer, asked: Conversation) -> Answer:
    """The answer, if a model could give it to this request."""
    called, offered = {call.name for call in answer.calls}, {tool.name for tool in asked.tools}
    trouble = ""
    if unknown := {call.name for call in answer.calls if not call.invented} - offered:
        trouble = (
            f"calls {', '.join(sorted(unknown))}, and the request offers {', '.join(sorted(offered)) or 'no tool'}"
        )
    elif called and asked.choice == "none":
        trouble = "calls a tool, and the request forbids it"
    elif not called and asked.choice in ("any", "tool"):
        trouble = "is text, and the request demands a tool call"
    elif asked.choice == "tool" and called != {asked.forced}:
        trouble = f"calls {', '.join(sorted(called))}, and the request demands {asked.forced}"
    if trouble:
        raise Unscripted(f"the script's answer to {asked.words!r} {trouble}.")
    return answer


def _plain(says: Any, where: str) -> Any:
    if isinstance(says, list):
        return [_plain(each, where) for each in says]
    if isinstance(says, Mapping) and isinstance(says.get("tool"), str) and isinstance(says.get("input", {}), Mapping):
        return ToolCall(says["tool"], says.get("input", {}))
    if isinstance(says, str) and says:
        return says
    raise ScriptError(f'{where} says a text, {{"tool": …, "input": …}}, or a list of those; got {says!r:.80}.')
