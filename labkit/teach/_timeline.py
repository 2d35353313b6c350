"""The drawing behind :func:`labkit.teach.plots.timeline`: one lane for the message, one for each worker."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from labkit.teach import plots
from labkit.teach.picture import Picture

_UNITS = {"s": (1, "seconds"), "min": (60, "minutes"), "h": (3600, "hours"), "d": (86_400, "days")}
_MOST = 12  # deliveries drawn; more of them is a stripe that nobody reads
_HIDDEN, _VISIBLE = "#aeb6bf", "#f4d58d"
_ENDS = {  # outcome: marker, colour, word
    "deleted": ("o", plots.GREEN, "deleted"),
    "crashed": ("X", plots.RED, "crashed"),
    "late delete": ("D", plots.PURPLE, "late delete, removes nothing"),
    "gone": ("s", plots.INK, "finished after it was gone"),
    "working": (">", plots.FAINT, "still running"),
}


def draw(life: Any, title: str | None, unit: str | None, says: str | None) -> Picture:
    given = life.deliveries if hasattr(life, "deliveries") else life
    rows = [_row(d) for d in given]
    if not rows:
        raise ValueError("a timeline needs at least one delivery.")
    ended, ended_at = getattr(life, "ended", None), getattr(life, "ended_at", None)
    if ended is None and rows[-1]["outcome"] == "deleted":
        ended, ended_at = "deleted", rows[-1]["finished_at"]
    shown = rows[:_MOST]
    cut = len(rows) > len(shown)
    stops = [t for d in shown for t in (d["received_at"], d["visible_again_at"], _stop(d)) if t is not None]
    end = max([*stops, *([ended_at] if ended_at is not None and not cut else [])])
    if unit is None:
        unit = "s" if end <= 1800 else "min" if end <= 3 * 3600 else "h" if end <= 3 * 86_400 else "d"
    if unit not in _UNITS:
        raise ValueError(f"unit must be one of {', '.join(_UNITS)}; got {unit!r}.")
    words = _words(rows, ended, ended_at, unit)
    if cut:
        words += f" The picture shows the first {_MOST}."
    figure = _figure(shown, "" if cut else ended, ended_at, end, unit, title)
    return Picture.of(figure, says or (f"{title}. {words}" if title else words))


def _figure(
    rows: list[dict[str, Any]], ended: str | None, ended_at: float | None, end: float, unit: str, title: str | None
) -> Any:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    scale, name = _UNITS[unit]
    workers = list(dict.fromkeys(d["worker"] for d in rows))
    lanes = {w: len(workers) - i for i, w in enumerate(workers)}  # the message lies at 0, below its workers
    dot: dict[str, Any] = {"ms": 9, "mec": plots.CARD, "mew": 1, "clip_on": False}
    with plots.style():
        height = 1.75 + 0.42 * len(workers)
        figure, axes = plots.frame(title, f"time since the first receive ({name})", "", height=height)
        axes.grid(visible=False, axis="y")
        for i, d in enumerate(rows):
            start, again, stop = d["received_at"], d["visible_again_at"], _stop(d)
            last = ended_at if ended and ended_at is not None else end
            later = rows[i + 1]["received_at"] if i + 1 < len(rows) else last
            until = again if again is not None else min(x for x in (stop, ended_at, end) if x is not None)
            axes.broken_barh([(start / scale, (until - start) / scale)], (-0.3, 0.6), fc=_HIDDEN, ec=plots.CARD, lw=1)
            if until - start > 0.16 * end:
                middle = (start + until) / 2 / scale
                axes.text(middle, 0, f"receive {d['number']}", ha="center", va="center", fontsize=9)
            if again is not None:
                axes.broken_barh([(again / scale, (later - again) / scale)], (-0.3, 0.6), color=_VISIBLE, lw=0)
                axes.plot([again / scale] * 2, [-0.42, lanes[d["worker"]]], color=plots.ORANGE, lw=1.3, ls=(0, (3, 2)))
                axes.plot(again / scale, -0.42, marker="^", color=plots.ORANGE, ms=8, clip_on=False)
            ran = (stop if stop is not None else end) - start
            over = 0.0 if again is None else max(0.0, ran - (again - start))
            lane = lanes[d["worker"]]
            axes.broken_barh([(start / scale, (ran - over) / scale)], (lane - 0.22, 0.44), color=plots.BLUE)
            if over:  # from here on two workers may hold the same step
                axes.broken_barh([((again or 0) / scale, over / scale)], (lane - 0.22, 0.44), color=plots.SKY, lw=0)
            marker, color, _ = _ENDS[d["outcome"]]
            axes.plot((start + ran) / scale, lane, marker=marker, color=color, **dot)
        if ended in ("dead-lettered", "expired") and ended_at is not None:
            axes.plot(ended_at / scale, 0, marker="s", color=plots.INK, **dot)
            axes.annotate(ended, (ended_at / scale, 0), xytext=(8, 0), textcoords="offset points", va="center")
        axes.set_yticks([0, *lanes.values()], ["message", *(f"worker {w}" for w in workers)])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(-0.62, len(workers) + 0.5)
        axes.set_xlim(0, end / scale * (1.16 if ended in ("dead-lettered", "expired") else 1.04) or 1)
        items: list[Any] = [Patch(color=_HIDDEN, label="hidden")]
        if any(d["visible_again_at"] is not None for d in rows):
            items += [Line2D([], [], marker="^", color=plots.ORANGE, ls="", ms=8, label="visible again")]
        items += [Patch(color=plots.BLUE, label="working")]
        if any(_overran(d) for d in rows):
            items += [Patch(color=plots.SKY, label="working, no longer hidden")]
        for outcome in dict.fromkeys(d["outcome"] for d in rows):
            marker, color, word = _ENDS[outcome]
            items.append(Line2D([], [], marker=marker, color=color, ls="", ms=8, label=word))
        figure.legend(handles=items, loc="outside lower left", ncols=3, fontsize=9, handlelength=1.4)
    return figure


def _words(rows: list[dict[str, Any]], ended: str | None, ended_at: float | None, unit: str) -> str:
    scale, _ = _UNITS[unit]

    def at(t: float) -> str:
        return f"{t / scale:,.1f}".removesuffix(".0") + f" {unit}"

    lines = []
    for d in rows[:4]:
        line = f"Receive {d['number']} at {at(d['received_at'])} by worker {d['worker']}"
        if d["visible_again_at"] is not None:
            line += f", visible again at {at(d['visible_again_at'])}"
        stop = _stop(d)
        lines.append(f"{line}, {_ENDS[d['outcome']][2]}{f' at {at(stop)}' if stop is not None else ''}.")
    if len(rows) > 4:
        lines.append(f"{len(rows):,} receives in all.")
    if ended is not None and ended_at is not None:
        lines.append(f"The message {'has' if ended == 'expired' else 'is'} {ended} at {at(ended_at)}.")
    return " ".join(lines)


def _row(delivery: Any) -> dict[str, Any]:
    given = vars(delivery) if dataclasses.is_dataclass(delivery) else delivery
    if not isinstance(given, Mapping) or "received_at" not in given:
        raise ValueError(f"a timeline takes a Life, or deliveries with received_at; got {delivery!r}.")
    blank = {"number": 1, "worker": 1, "visible_again_at": None, "finished_at": None, "crashed_at": None}
    row = {**blank, "outcome": "working", **given}
    if row["outcome"] not in _ENDS:
        raise ValueError(f"outcome must be one of {', '.join(_ENDS)}; got {row['outcome']!r}.")
    return row


def _stop(row: Mapping[str, Any]) -> float | None:
    stop: float | None = row["crashed_at"] if row["finished_at"] is None else row["finished_at"]
    return stop


def _overran(row: Mapping[str, Any]) -> bool:
    again, stop = row["visible_again_at"], _stop(row)
    return again is not None and (stop is None or again < stop)
