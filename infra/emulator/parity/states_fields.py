"""Fields of a state that the interpreter's grammar does not know.

**On AWS** a definition may hold all that the Amazon States Language has. **MiniStack** does not parse definitions, and
moto's grammar refuses some fields of a Map state, or takes them in one form only.

**Here** such a field is taken out of the definition before it is parsed, and given to the state that is made of it:
:func:`learn`. What a field does is each module's own affair.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

State = dict[str, Any]


def every(program: Any) -> Iterator[tuple[str, State]]:
    """Each state of a parsed definition by its name, also in branches and Map states; the outer one first."""
    states = program.get("States") if isinstance(program, dict) else None
    for name, state in states.items() if isinstance(states, dict) else ():
        if isinstance(state, dict):
            yield name, state
            branches = state.get("Branches")
            inner = branches if isinstance(branches, list) else ()
            for each in (state.get("ItemProcessor"), state.get("Iterator"), *inner):
                yield from every(each)


def written(document: Any) -> str:
    """A definition as text again, its characters as they are: names are shown as they are written."""
    text = json.dumps(document, ensure_ascii=False)
    return text if text.encode(errors="replace").decode() == text else json.dumps(document)  # half a character


def learn(understood: Callable[[str], tuple[str, Mapping[str, Any]]], give: Callable[[Any, Any], None]) -> None:
    """Have ``understood`` take its fields out of each definition, and ``give`` hand them to the Map state made of it.

    ``understood(definition)`` returns the definition without them, and what it found, by the name of the state;
    ``give(state, found)`` is called for each Map state, with None where nothing was found.
    """
    from moto.stepfunctions.parser.asl.component.state.exec.state_map.state_map import StateMap
    from moto.stepfunctions.parser.asl.parse.asl_parser import AmazonStateLanguageParser

    parse, props = AmazonStateLanguageParser.parse, StateMap.from_state_props
    here = threading.local()  # states are made while their definition is parsed, in one thread

    def parsed(definition: str) -> Any:
        text, here.found = understood(definition)
        return parse(text)

    def from_state_props(self: Any, state_props: Any) -> None:
        props(self, state_props)
        give(self, getattr(here, "found", {}).get(self.name))

    AmazonStateLanguageParser.parse = staticmethod(parsed)
    StateMap.from_state_props = from_state_props
