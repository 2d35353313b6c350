"""One definition as Mermaid, with what became of each state, and the sentences that say the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from labkit.control.history import History, Step
from labkit.teach.plots import GREEN, INK, ORANGE, PURPLE, RED
from labkit.teach.show import Shown

Definition = Mapping[str, Any]

# Light cards with dark ink and a coloured rim: legible on a dark page, too.
LOOKS = {
    "done": f"fill:#dcf3ea,stroke:{GREEN},color:{INK},stroke-width:2px",
    "failed": f"fill:#fbe3d6,stroke:{RED},color:{INK},stroke-width:3px",
    "caught": f"fill:#f7e6f0,stroke:{PURPLE},color:{INK},stroke-width:2px",
    "standing": f"fill:#fdf1d3,stroke:{ORANGE},color:{INK},stroke-width:3px",
    "unreached": f"fill:#f4f5f6,stroke:#8a929c,color:{INK},stroke-dasharray:4 3",
}
_PLAIN = f"fill:#e8f1f8,stroke:#0072b2,color:{INK}"  # without a history
_BRANCH = f"fill:none,stroke:#8a929c,color:{INK}"
_ROUND = ("([", "])")
_SHAPES = {"Choice": ("{", "}"), "Wait": _ROUND, "Succeed": _ROUND, "Fail": _ROUND}
_FAILED = ("failed", "timed out", "aborted")
_LONGEST = 48  # characters of a condition on an edge


class Drawing:
    """One graph under way."""

    def __init__(self, definition: Definition, history: History | None) -> None:
        self._history = history
        self._steps: dict[str, list[Step]] = {}
        for step in history.steps() if history else ():
            self._steps.setdefault(step.state, []).append(step)
        self._ids: dict[str, str] = {}
        self._lines: list[str] = []
        self._says: dict[str, str] = {}
        self._elsewhere = 0  # how deep inside of a Distributed Map, whose children have histories of their own
        self._machine(definition, "    ", outermost=True)

    def shown(self) -> Shown:
        looks = {**LOOKS, "plain": _PLAIN, "edge": f"fill:{INK},stroke:#8a929c,color:#ffffff"}
        lines = ["flowchart TD", *self._lines, *(f"    classDef {name} {look}" for name, look in looks.items())]
        status = f" Its execution is {self._history.status}." if self._history else ""
        says = f"A state machine of {len(self._ids)} states.{status} {' '.join(self._says[name] for name in self._ids)}"
        text = "\n".join(lines)
        # A blank line around the prose: it is Markdown inside of the element then.
        words = f"<details><summary>In words</summary>\n\n{_prose(says)}\n\n</details>"
        return Shown(says, f"```mermaid\n{text}\n```\n\n{words}", "text/markdown")

    def _machine(self, machine: Definition, indent: str, *, outermost: bool = False) -> None:
        """The states of a machine, or of a branch or an item processor, and the edges between them."""
        states: Definition = machine.get("States", {})
        for name in states:
            self._ids[name] = f"s{len(self._ids)}"
        for name, state in states.items():
            self._state(name, state, indent)
        if outermost:
            self._lines.append(f'{indent}from(("start")):::edge')
            self._edge(indent, "from", self._ids.get(machine.get("StartAt", "")))
        ended = [self._edges(name, state, indent, outermost=outermost) for name, state in states.items()]
        if outermost and any(ended):
            self._lines.append(f'{indent}to(("end")):::edge')

    def _state(self, name: str, state: Definition, indent: str) -> None:
        here, kind, (look, words) = self._ids[name], str(state.get("Type", "")), self._outcome(name)
        inside = list(_inside(state))
        if not inside:
            parts = [name, kind, *([f"retry: {_errors(retried)}"] if (retried := _retried(state)) else [])]
            label = "<br/>".join(map(_text, [*parts, *([words] if words else [])]))
            opens, closes = _SHAPES.get(kind, ("[", "]"))
            self._lines.append(f'{indent}{here}{opens}"{label}"{closes}:::{look or "plain"}')
            return
        title = _text(f"{name} ({kind}){f': {words}' if words else ''}")
        self._lines += [f'{indent}subgraph {here}["{title}"]', f"{indent}    direction {'LR' if inside[1:] else 'TB'}"]
        distributed = state.get("ItemProcessor", {}).get("ProcessorConfig", {}).get("Mode") == "DISTRIBUTED"
        self._elsewhere += distributed
        for place, machine in enumerate(inside, 1):
            if len(inside) == 1:
                self._machine(machine, f"{indent}    ")
                continue
            self._lines += [f'{indent}    subgraph {here}_{place}["branch {place}"]', f"{indent}        direction TB"]
            self._machine(machine, f"{indent}        ")
            self._lines += [f"{indent}    end", f"{indent}    style {here}_{place} {_BRANCH}"]
        self._elsewhere -= distributed
        self._lines += [f"{indent}end", f"{indent}style {here} {LOOKS.get(look, _PLAIN)}"]

    def _edges(self, name: str, state: Definition, indent: str, *, outermost: bool) -> bool:
        """The edges out of a state; True when it can be the last one."""
        kind, here = state.get("Type"), self._ids[name]
        ends = bool(state.get("End")) or kind == "Succeed"
        ways = ["the end"] if ends else []
        if ends and outermost:
            self._edge(indent, here, "to")
        for label, target in _nexts(state):
            self._edge(indent, here, self._ids.get(target), label)
            where = _bare(target)
            ways.append(f"{where} (`{_bare(label)}`)" if label not in ("", "else") else f"{where}{label and ' (else)'}")
        for catcher in state.get("Catch", ()):
            errors, target = _errors(catcher.get("ErrorEquals", ())), catcher.get("Next", "")
            self._edge(indent, here, self._ids.get(target), f"catch {errors}", dashed=True)
            ways.append(_bare(f"{target} (on {errors})"))
        again = f"; it is tried again on {_bare(_errors(retried))}" if (retried := _retried(state)) else ""
        goes = f" goes to {' or '.join(ways)}" if ways else " fails" if kind == "Fail" else ""
        words = _bare(self._outcome(name)[1])
        self._says[name] = f"{_bare(name)} ({kind}){goes}{again}{f': {words}' if words else ''}."
        return ends

    def _edge(self, indent: str, start: str, end: str | None, label: str = "", *, dashed: bool = False) -> None:
        if end is not None:
            said = f'|"{_text(label)}"|' if label else ""
            self._lines.append(f"{indent}{start} {'-.->' if dashed else '-->'}{said} {end}")

    def _outcome(self, name: str) -> tuple[str, str]:
        """The look and the words for what became of a state; nothing of both without a history."""
        if self._history is None or self._elsewhere:
            return "", ""
        last = [row for row in self._steps.get(name, []) if not row.retries]
        if not last:
            return "unreached", "not reached"
        outcomes = Counter("done" if row.outcome == "succeeded" else row.outcome for row in last)
        if outcomes["standing"]:
            look = "standing"
        elif any(outcomes[each] for each in _FAILED):
            look = "failed"
        else:
            look = "caught" if outcomes["caught"] else "done"
        if len(last) > 1:
            return look, ", ".join(f"{count} {word}" for word, count in sorted(outcomes.items()) if count)
        [row], [words] = last, [word for word, count in outcomes.items() if count]
        words += f" ({row.error})" if row.error else ""
        return look, f"{words}, attempt {row.attempt}" if row.attempt > 1 else words


def _inside(state: Definition) -> Iterator[Definition]:
    """The machines inside of a state: branches, or the processor of a Map."""
    yield from state.get("Branches", ())
    for key in ("ItemProcessor", "Iterator"):
        if key in state:
            yield state[key]


def _nexts(state: Definition) -> Iterator[tuple[str, str]]:
    """Labels and targets of the ordinary ways out of a state."""
    if "Next" in state:
        yield "", state["Next"]
    for choice in state.get("Choices", ()):
        yield _condition(choice), choice.get("Next", "")
    if "Default" in state:
        yield "else", state["Default"]


def _retried(state: Definition) -> list[str]:
    return [error for retrier in state.get("Retry", ()) for error in retrier.get("ErrorEquals", ())]


def _errors(names: Sequence[str]) -> str:
    """Names of errors, the first two of many."""
    return ", ".join(names) if len(names) < 4 else f"{', '.join(names[:2])} and {len(names) - 2} more"


def _condition(choice: Definition) -> str:
    """The condition of a choice in one line."""
    if isinstance(condition := choice.get("Condition"), str):
        said = condition.strip().removeprefix("{%").removesuffix("%}").strip()
    else:
        said = ", ".join(f"{key} {value}" for key, value in choice.items() if key not in ("Next", "Comment", "Assign"))
        said = said.removeprefix("Variable ").replace(", ", " ", 1)
    return said if len(said) <= _LONGEST else f"{said[: _LONGEST - 1]}…"


def _text(said: str) -> str:
    """A text for a label: Mermaid has entities of its own, for what it would read as its own language."""
    entities = {"#": "#35;", "&": "#38;", '"': "#quot;", "<": "#lt;", ">": "#gt;", "`": "#96;", "\n": " "}
    return "".join(entities.get(letter, letter) for letter in said)


def _bare(said: str) -> str:
    """A text on one line, without what would begin or end code in Markdown."""
    return " ".join(said.replace("`", "'").split())


def _prose(said: str) -> str:
    """A text for Markdown, which would read emphasis and tags in it; what stands in code is left alone."""
    parts = said.split("`")
    for place in range(0, len(parts), 2):
        parts[place] = "".join(f"\\{letter}" if letter in "\\*_$<>[]|~#" else letter for letter in parts[place])
    return "`".join(parts)
