"""Definitions of state machines: found, filled with values by name, and checked before anything is made of them.

A definition is JSON in the Amazon States Language. What differs from one deployment to the next (a queue's URL, a
timeout) stands in it as ``${Name}``, as in CloudFormation's ``DefinitionSubstitutions``. Values go into the parsed
definition and not into its text: a quotation mark in a value stays a quotation mark. A string that is nothing but a
placeholder becomes the value with its type, so that ``"TimeoutSeconds": "${StepTimeout}"`` can be 2.
"""

from __future__ import annotations

import copy
import difflib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from labkit import places
from labkit.errors import LabError
from labkit.facts import facts

__all__ = ["Definition", "MachineError", "check", "fill", "load", "placeholders"]

Definition = dict[str, Any]

_PLACEHOLDER = re.compile(r"\$\{(\w+)\}")
_ENDING = ".asl.json"
_DEEPEST = 200  # levels: our choice, far beyond what anybody can read


class MachineError(LabError):
    """A state machine or an execution is not as asked, or Step Functions refused something. ``code`` is AWS's."""

    def __init__(self, says: str, code: str = "") -> None:
        self.code = code
        super().__init__(says)


def load(source: str | Path | Mapping[str, Any]) -> Definition:
    """A definition: a name in ``infra/machines`` ("agent-step" is agent_step.asl.json), a path, or the mapping itself.

    Raises :class:`MachineError`.
    """
    if isinstance(source, Mapping):
        _plain(source)
        return copy.deepcopy(dict(source))
    if not isinstance(source, str | Path) or not str(source):
        raise MachineError(f"a definition is a name, a path or a mapping; got {source!r:.80}.")
    file = Path(source)
    if isinstance(source, str) and len(file.parts) == 1 and not file.suffix:
        folder = places.repository() / "infra" / "machines"
        file = folder / f"{source.replace('-', '_')}{_ENDING}"
        if not file.is_file():
            known = sorted(each.name.removesuffix(_ENDING).replace("_", "-") for each in folder.glob(f"*{_ENDING}"))
            near = difflib.get_close_matches(source, known, n=3, cutoff=0.4) or known
            raise MachineError(f"there is no definition {source!r} in infra/machines; there are {', '.join(near)}.")
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise MachineError(f"the definition {file} cannot be read: {error.strerror}.") from error
    except (ValueError, RecursionError) as error:  # no JSON, no UTF-8, nested without end
        raise MachineError(f"the definition {file} is no JSON: {error}.") from error
    if not isinstance(found, dict):
        raise MachineError(f"the definition {file} is a JSON object; this is {type(found).__name__}.")
    return found


def placeholders(definition: Any) -> set[str]:
    """The names of the values that a definition needs."""
    if isinstance(definition, Mapping):
        return set().union(*map(placeholders, definition.values()))
    if isinstance(definition, list | tuple):
        return set().union(*map(placeholders, definition))
    return set(_PLACEHOLDER.findall(definition)) if isinstance(definition, str) else set()


def fill(definition: Mapping[str, Any], values: Mapping[str, Any]) -> Definition:
    """``definition`` with its placeholders replaced, in the values of its JSON and not in its keys.

    Inside a longer string a value is a text or a number. In a JSONata expression there is none, because a value with a
    quotation mark would be code there: assign it to a variable first, ``"Assign": {"queue": "${QueueUrl}"}``, and write
    ``{% $queue %}``. Raises :class:`MachineError` for a value that is missing, not used, or not what JSON can hold.
    """
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise MachineError(f"the values of a definition are a mapping by name; got {values!r:.80}.")
    _plain(definition)
    needed = placeholders(definition)
    missing, unused = sorted(needed - set(values)), sorted(set(values) - needed)
    if missing:
        raise MachineError(f"the definition needs a value for {', '.join(missing)}.")
    if unused:
        uses = f"it uses {', '.join(sorted(needed))}" if needed else "it has none"
        raise MachineError(f"the definition has no placeholder {', '.join(unused)}; {uses}.")
    try:
        json.dumps(dict(values), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise MachineError(f"a value of the definition is not what JSON can hold: {error}.") from error
    _plain(values)
    filled: Definition = _filled(definition, values)
    return filled


def _plain(definition: Any) -> None:
    """Raises :class:`MachineError` for what has no end, or is nested deeper than can be gone through."""
    try:
        json.dumps(definition, default=str)
    except (TypeError, ValueError, RecursionError) as error:
        raise MachineError(f"a definition is what JSON can hold; this one is not: {error}.") from error
    level, depth = [definition], 0
    while level:
        if (depth := depth + 1) > _DEEPEST:
            raise MachineError(f"a definition is nested {_DEEPEST} levels deep at most; this one is deeper.")
        level = [
            inner
            for part in level
            if isinstance(part, Mapping | list | tuple)
            for inner in (part.values() if isinstance(part, Mapping) else part)
        ]


def _filled(part: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(part, Mapping):
        return {key: _filled(value, values) for key, value in part.items()}
    if isinstance(part, list | tuple):
        return [_filled(value, values) for value in part]
    if not isinstance(part, str) or not _PLACEHOLDER.search(part):
        return part
    if whole := _PLACEHOLDER.fullmatch(part):
        return copy.deepcopy(values[whole[1]])
    if part.lstrip().startswith("{%"):
        raise MachineError(f"{part!r:.80} is an expression: assign the value to a variable, and use that.")

    def text(found: re.Match[str]) -> str:
        value = values[found[1]]
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise MachineError(f"{found[1]} stands inside a text and is a text or a number; got {value!r:.80}.")
        return str(value)

    return _PLACEHOLDER.sub(text, part)


def check(client: Any, definition: Mapping[str, Any], kind: str) -> str:
    """The definition as text, if Step Functions finds nothing wrong with it (ValidateStateMachineDefinition).

    Raises :class:`MachineError` with each finding and its place. Their number and words may change: rely on neither.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        text = json.dumps(definition, allow_nan=False, ensure_ascii=False)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        raise MachineError(f"a definition is what JSON can hold; this one is not: {error}.") from error
    most = int(facts("sfn.definition.max_bytes"))
    if size > most:
        raise MachineError(f"the definition has {size:,} bytes and Step Functions takes {most:,} at most.")
    try:
        answer = client.validate_state_machine_definition(definition=text, type=kind)
    except (BotoCoreError, ClientError) as error:
        raise refused("the definition was not checked", error) from error
    if answer["result"] != "OK":
        findings = [_finding(each) for each in answer.get("diagnostics", []) if each["severity"] == "ERROR"]
        more = "\n  and more" if answer.get("truncated") else ""
        raise MachineError("\n  ".join(["the definition is not valid:", *findings]) + more, "InvalidDefinition")
    return text


def _finding(diagnostic: Mapping[str, Any]) -> str:
    place = diagnostic.get("location")
    return f"{f'{place}: ' if place else ''}{diagnostic['message']} ({diagnostic['code']})"


def refused(what: str, error: Any) -> MachineError:
    """A refusal of Step Functions, or its silence, as a sentence of ours."""
    about = getattr(error, "response", {}).get("Error")
    if not about:
        return MachineError(f"{what}: {str(error).rstrip('.')}.")
    return MachineError(f"{what}: {about['Code']}: {about.get('Message', '')}", str(about["Code"]))
