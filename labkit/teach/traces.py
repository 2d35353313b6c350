"""Traces in a notebook: the tree as a table that is the same on each run, and the waterfall as a picture.

A table shows who caused what and what came of it, never an id, a time or a duration. Times are in the picture, whose
words say the order alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from labkit.ops.terminal import plain
from labkit.ops.trace_view import Row, Trace
from labkit.teach import plots
from labkit.teach.picture import Picture
from labkit.teach.show import Table

__all__ = ["tree", "waterfall"]

_INDENT = "\u00a0\u00a0\u00a0"  # HTML would swallow plain spaces
_KINDS = {"producer": plots.ORANGE, "consumer": plots.BLUE, "client": plots.GREEN, "server": plots.SKY}
_STATES = "states"
_LONGEST = 52  # characters of a name beside the bars
_MOST = 60  # bars of a picture
_DEEPEST = 8  # levels that names go to the right: what is left of the width is theirs
_SPACE, _LETTER = 3.2, 5.8  # how wide they are, in points


def tree(traces: Trace | Iterable[Trace], caption: str | None = None) -> Table:
    """A row for each span, below the one that caused it: ``made by`` (the service), and what came of it."""
    listed = [traces] if isinstance(traces, Trace) else list(traces)
    rows = []
    for number, trace in enumerate(listed, 1):
        if number > 1:
            rows.append(("", "", ""))
        rows += [
            (f"{_INDENT * row.depth}{plain(row.record.name)}", plain(row.record.service), _came(row))
            for row in trace.rows
        ]
    return Table(["span", "made by", "what came of it"], rows, caption)


def _cut(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…"


def _wide(name: str) -> float:
    spaces = name.count(_INDENT[0])
    return _SPACE * spaces + _LETTER * (len(name) - spaces)


def _came(row: Row) -> str:
    record = row.record
    outcome, error = record.attributes.get("labkit.outcome"), record.attributes.get("error.type")
    parts = list(dict.fromkeys(str(part) for part in (outcome, error) if part))
    if (receives := record.attributes.get("labkit.receives", 1)) != 1:
        parts.append(f"receive {receives}")
    parts += [note.name for note in record.notes if note.name != "exception"]
    if elsewhere := sum(each.trace_id != record.trace_id for each in record.links):
        parts.append(f"linked with {elsewhere} in {'other traces' if elsewhere > 1 else 'another trace'}")
    return plain(", ".join(parts))


def waterfall(trace: Trace, *, title: str | None = None, says: str | None = None) -> Picture:
    """A bar for each span, from its beginning to its end; failed ones are red. Of a long trace: the first bars."""
    rows = trace.rows[:_MOST]
    left_out = len(trace.rows) - len(rows)
    unit, scale = ("s", 1.0) if trace.seconds >= 2 else ("ms", 1_000.0)
    with plots.style():
        figure, axes = plots.frame(title, f"time since the trace began ({unit})", "", height=1.1 + 0.3 * len(rows))
        for place, row in enumerate(rows):
            failed = row.record.status == "error"
            color = plots.RED if failed else plots.PURPLE if row.record.service == _STATES else None
            color = color or _KINDS.get(row.record.kind, plots.FAINT)
            # What takes no time at this scale is still to be seen.
            wide = max(row.ended - row.began, trace.seconds / 300) * scale
            axes.barh(place, wide, left=row.began * scale, height=0.62, color=color)
        names = [_cut(f"{_INDENT * min(row.depth, _DEEPEST)}{plain(row.record.name)}") for row in rows]
        axes.set_yticks(range(len(names)), names, ha="left")
        axes.tick_params(axis="y", length=0, pad=max(map(_wide, names)))
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlim(0, max(trace.seconds, 1e-6) * scale * 1.02)
    failed_ones = [plain(row.record.name) for row in rows if row.record.status == "error"]
    slowest = plain(max(trace.records, key=trace.own_seconds).name)
    words = (
        f"{title + '. ' if title else ''}Spans in their order: {', '.join(plain(row.record.name) for row in rows)}"
        f"{f', and {left_out:,} more' if left_out else ''}. "
        f"The longest by itself is {slowest}." + (f" Failed, in red: {', '.join(failed_ones)}." if failed_ones else "")
    )
    return Picture.of(figure, says or words)
