"""Trace view: spans put together again, as a tree and as a waterfall.

Spans come from many processes in any order, some twice, and some not at all: a process that was killed has not written
its last ones, and a share of the traces is perhaps not recorded. So a span whose parent is missing stands at the top,
with a note; and what is drawn is what was found, never a guess.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labkit.control import trace_context
from labkit.ops.spans.record import Record
from labkit.ops.terminal import plain
from labkit.ops.tracing import TraceError

if TYPE_CHECKING:
    from rich.tree import Tree

__all__ = ["Row", "Trace", "find", "gather"]

_SHOWN = (  # attributes that say what happened, and what they are called in a line
    ("labkit.outcome", ""),
    ("error.type", ""),
    ("http.response.status_code", ""),
    ("labkit.receives", "receive"),
    ("labkit.deployment", "at"),
    ("gen_ai.usage.input_tokens", "in"),
    ("gen_ai.usage.output_tokens", "out"),
)
_DEEPEST = 20  # levels that the tree goes to the right; a terminal is no wider
_HEX = re.compile("[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Row:
    """One span in a trace: ``depth`` below the top, and seconds after the trace began."""

    depth: int
    record: Record
    began: float
    ended: float
    orphan: bool  # it has a parent, and that is not here


class Trace:
    """All that was found of one trace. Attributes: ``trace_id`` (W3C's), ``records``, ``rows`` (parents first)."""

    def __init__(self, trace_id: str, records: Iterable[Record]) -> None:
        self.trace_id = trace_id
        self.records = sorted({each.span_id: each for each in records}.values(), key=lambda each: each.began)
        if not self.records:
            raise TraceError(f"trace {trace_id} has no spans.")
        self.began = min(each.began for each in self.records)
        self.ended = max(max(each.began, each.ended) for each in self.records)  # a clock may have been set back
        there = {each.span_id for each in self.records}
        self._tops: list[Record] = []
        self._below: dict[str, list[Record]] = defaultdict(list)
        for each in self.records:
            inside = each.parent_id in there and each.parent_id != each.span_id
            (self._below[each.parent_id] if inside else self._tops).append(each)
        self.rows = list(self._walk())

    @property
    def seconds(self) -> float:
        return (self.ended - self.began) / 1e9

    @property
    def works(self) -> list[str]:
        """The names of the work that is in it, in order."""
        return list(dict.fromkeys(each.work for each in self.records if each.work))

    def children(self, of: Record) -> list[Record]:
        return list(self._below.get(of.span_id, ()))

    def own_seconds(self, of: Record) -> float:
        """The seconds of a span in which none of its children was at work: where the time really went."""
        covered, until = 0, of.began
        for each in self.children(of):  # in order of their beginnings
            start, end = max(each.began, until), min(each.ended, of.ended)
            if end > start:
                covered, until = covered + end - start, end
        return max(0, of.ended - of.began - covered) / 1e9

    def tree(self) -> Tree:
        """For rich: a line for each span."""
        from rich.text import Text
        from rich.tree import Tree

        head = f"trace {self.trace_id}, {_spans(len(self.records))}, {_long(self.seconds)}"
        top = Tree(Text(plain(head + (f", about {', '.join(self.works)}" if self.works else ""))))
        at = [top]
        for row in self.rows:
            line = Text(plain(row.record.name), style="bold red" if row.record.status == "error" else "bold")
            line.append(f"  {_long(row.record.seconds)}", style="not bold cyan")
            line.append(f"  {says(row)}", style="not bold dim")
            if row.depth >= _DEEPEST:
                line = Text(f"({row.depth} deep) ", style="dim") + line
            del at[min(row.depth, _DEEPEST) + 1 :]
            at.append(at[-1].add(line))
        return top

    def waterfall(self, width: int = 100) -> list[str]:
        """Lines of text: the name of each span, and a bar from its beginning to its end."""
        most = max(20, width // 2)
        names = [f"{'  ' * min(row.depth, most // 4)}{plain(row.record.name)}" for row in self.rows]
        left = min(max(map(len, names)), most)
        room = max(10, width - left - 12)
        total = max(self.seconds, 1e-9)
        lines = []
        for row, name in zip(self.rows, names, strict=True):
            start = min(int(room * row.began / total), room - 1)
            length = min(max(1, round(room * (row.ended - row.began) / total)), room - start)
            mark = "▒" if row.record.status == "error" else "█"
            bar = f"{' ' * start}{mark * length}".ljust(room)
            shown = name if len(name) <= left else f"{name[: left - 1]}…"
            lines.append(f"{shown.ljust(left)} {bar} {_long(row.record.seconds):>9}")
        return lines

    def as_json(self) -> dict[str, Any]:
        """What a program wants of it."""
        return {
            "trace_id": self.trace_id,
            "seconds": round(self.seconds, 6),
            "works": self.works,
            "spans": [
                {
                    "span_id": row.record.span_id,
                    "parent_id": row.record.parent_id or None,
                    "depth": row.depth,
                    "name": row.record.name,
                    "kind": row.record.kind,
                    "service": row.record.service,
                    "began": round(row.began, 6),
                    "seconds": round(row.record.seconds, 6),
                    "status": row.record.status or None,
                    "attributes": dict(row.record.attributes),
                    "events": [{"name": note.name, **note.attributes} for note in row.record.notes],
                    "links": [f"{each.trace_id}-{each.span_id}" for each in row.record.links],
                }
                for row in self.rows
            ],
        }

    def _walk(self) -> Iterator[Row]:
        left, seen = [(0, each) for each in reversed(self._tops)], set()
        while left:
            depth, record = left.pop()
            seen.add(record.span_id)
            orphan = depth == 0 and bool(record.parent_id)
            yield Row(depth, record, (record.began - self.began) / 1e9, (record.ended - self.began) / 1e9, orphan)
            left += [(depth + 1, each) for each in reversed(self.children(record))]
        for each in self.records:  # spans that are each other's parents: nobody's clock makes those, a bad file may
            if each.span_id not in seen:
                yield Row(0, each, (each.began - self.began) / 1e9, (each.ended - self.began) / 1e9, True)

    def __repr__(self) -> str:
        return f"<Trace {self.trace_id} of {_spans(len(self.records))}>"


def says(row: Row) -> str:
    """What a line says of a span beside its name and its time."""
    record = row.record
    parts = [record.service] if record.service else []
    for key, called in _SHOWN:
        value = record.attributes.get(key)
        if value is None or (key == "labkit.receives" and value == 1):
            continue
        if key == "error.type" and value == record.attributes.get("labkit.outcome"):
            continue
        parts.append(f"{called} {value}".strip())
    parts += [note.name for note in record.notes if note.name != "exception"]
    elsewhere = [each for each in record.links if each.trace_id != record.trace_id]
    if elsewhere:
        parts.append(f"linked with {len(elsewhere)} other{'s' if len(elsewhere) > 1 else ''}")
    if row.orphan:
        parts.append("its parent is not here")
    return plain(", ".join(parts))


def gather(records: Iterable[Record]) -> list[Trace]:
    """All traces, the oldest first."""
    found: dict[str, list[Record]] = defaultdict(list)
    for each in records:
        found[each.trace_id].append(each)
    return sorted((Trace(trace_id, spans) for trace_id, spans in found.items()), key=lambda trace: trace.began)


def find(records: Iterable[Record], wanted: str) -> list[Trace]:
    """The traces that ``wanted`` names, the oldest first.

    W3C's trace id (32 hex digits, or a whole ``traceparent``) names one; the name of a piece of work, the ``trace_id``
    of its envelope, every trace that it is in: one, and one more for each replay. Raises :class:`TraceError` when there
    is none.
    """
    held = list(records)
    context = trace_context.parse(wanted)
    wanted = context.trace_id if context else wanted.strip()
    if _HEX.fullmatch(wanted.lower()):
        ids: Sequence[str] = [wanted.lower()]
    else:
        ids = sorted({each.trace_id for each in held if wanted and each.work == wanted})
    found = gather(each for each in held if each.trace_id in ids)
    if not found:
        raise TraceError(
            f"no span of {wanted:.130} in the {_spans(len(held))} here: it was not recorded, or not exported yet, or "
            "written elsewhere (--file, --lab)."
        )
    return found


def _spans(count: int) -> str:
    return f"{count:,} span{'' if count == 1 else 's'}"


def _long(seconds: float) -> str:
    if seconds < 0:  # by the clock; it ended before it began
        return f"-{_long(-seconds)}"
    if seconds < 0.001:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 600 else f"{seconds / 60:.0f} min"
