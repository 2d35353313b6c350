"""What brokers made of a script (:mod:`labkit.models.clouds`): messages on one clock, rows side by side.

:func:`lanes`: a lane for each message, a bar for each time that a worker had it, and how that ended. One message's life
in detail is :func:`labkit.teach.plots.timeline`. :func:`comparison` and :func:`delays`: one row for each broker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from labkit.teach import plots
from labkit.teach.picture import Picture
from labkit.teach.show import Table, table

__all__ = ["comparison", "delays", "lanes"]

_UNITS = {"s": (1, "seconds"), "min": (60, "minutes"), "h": (3600, "hours"), "d": (86_400, "days")}
_TICKS = {"0": 0, "10 s": 10, "1 min": 60, "10 min": 600, "1 h": 3600, "6 h": 21_600, "1 d": 86_400, "4 d": 345_600}
_MOST = 12  # lanes; more of them nobody reads
_OPEN = "#aeb6bf"
_ENDS = {  # what ended a delivery: marker, colour, word
    "acked": ("o", plots.GREEN, "acknowledged"),
    "nacked": ("v", plots.ORANGE, "failed, or given back"),
    "lapsed": ("^", plots.ORANGE, "its time ran out"),
    "superseded": ("<", plots.SKY, "taken back with an earlier one"),
}
_MARKS = {  # what else happens to a message
    "reopened": ("D", plots.SKY, "acknowledged, and open again"),
    "ack refused": ("x", plots.PURPLE, "acknowledgement refused"),
    "ack ignored": ("+", plots.PURPLE, "acknowledgement without effect"),
    "dead-lettered": ("s", plots.INK, "dead-lettered"),
    "lost": ("X", plots.RED, "lost"),
}


@dataclass
class _Lane:
    body: str
    bars: list[tuple[float, float, str]]
    marks: list[tuple[float, str]]


def lanes(
    history: Iterable[Any], *, title: str | None = None, unit: str | None = None, log: bool = False,
    only: Callable[[Any], bool] | None = None, says: str | None = None,
) -> Picture:  # fmt: skip
    """A picture of ``history``: events with ``at``, ``what``, ``body``, ``message`` and ``handle``.

    ``only``: which events to draw; at most 12 messages are drawn. ``unit`` of the axis: ``s``, ``min``, ``h`` or ``d``;
    chosen by the length when None. ``log``: a logarithmic axis, for waits that grow. Raises ``ValueError`` for an
    unknown unit, or when there is nothing to draw.
    """
    events = [event for event in history if only is None or only(event)]
    found = _read(events)
    if not found:
        raise ValueError("lanes needs at least one published message.")
    start = min(event.at for event in events)
    end = max(event.at for event in events) - start
    if unit is None:
        unit = "s" if end <= 1800 else "min" if end <= 3 * 3600 else "h" if end <= 3 * 86_400 else "d"
    if unit not in _UNITS:
        raise ValueError(f"unit must be one of {', '.join(_UNITS)}; got {unit!r}.")
    shown = dict(list(found.items())[:_MOST])
    words = _words(shown, start, unit)
    if len(found) > len(shown):
        words += f" The picture shows the first {_MOST} of {len(found)} messages."
    figure = _figure(shown, start, end, unit, title, log)
    return Picture.of(figure, says or (f"{title}. {words}" if title else words))


def _read(events: list[Any]) -> dict[int, _Lane]:
    found: dict[int, _Lane] = {}
    since: dict[int, float] = {}
    for event in events:
        if event.what in ("published", "dropped"):
            if event.what == "published":
                found[event.message] = _Lane(event.body, [], [])
            continue
        lane = found.get(event.message)
        if lane is None:
            continue
        if event.what == "delivered":
            since[event.message] = event.at
        elif event.what in _ENDS and event.message in since:
            lane.bars.append((since.pop(event.message), event.at, event.what))
        elif event.what in _MARKS:
            lane.marks.append((event.at, event.what))
    last = max((event.at for event in events), default=0.0)
    for message, at in since.items():
        found[message].bars.append((at, last, "open"))
    return found


def _figure(found: Mapping[int, _Lane], start: float, end: float, unit: str, title: str | None, log: bool) -> Any:
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    scale, name = _UNITS[unit]
    used: dict[str, tuple[str, str, str]] = {}
    dot: dict[str, Any] = {"ms": 7, "mec": plots.CARD, "mew": 0.8, "clip_on": False, "ls": ""}
    crowd = {**dot, "mew": 0}  # white edges would hide what lies below
    with plots.style():
        figure, axes = plots.frame(
            title, f"time since the first publication ({name})", "", height=1.6 + 0.36 * len(found)
        )
        if log:
            axes.set_xscale("symlog", linthresh=10 / scale)
            ticks = {word: moment / scale for word, moment in _TICKS.items() if moment <= 2 * end}
            axes.set_xticks(list(ticks.values()), list(ticks), minor=False)
            axes.set_xticks([], minor=True)
            axes.set_xlabel("time since the first publication (logarithmic)")
        for place, lane in enumerate(found.values()):
            y = len(found) - 1 - place
            bars = [((since - start) / scale, (until - since) / scale) for since, until, _ in lane.bars]
            if drawn := [bar for bar in bars if bar[1] > 0]:  # at once: a day of retries has hundreds of them
                axes.broken_barh(drawn, (y - 0.26, 0.52), fc=_OPEN, ec=plots.CARD, lw=0.6)
            for how, (marker, color, _) in _ENDS.items():
                ends = [at + width for (at, width), bar in zip(bars, lane.bars, strict=True) if bar[2] == how]
                if ends:
                    used[how] = _ENDS[how]
                    look = dot if len(bars) < 40 else crowd
                    axes.plot(ends, [y] * len(ends), marker=marker, color=color, **look)
            for moment, what in lane.marks:
                used[what] = _MARKS[what]
                marker, color, _ = _MARKS[what]
                look = {**dot, "mec": color, "mew": 1.6} if marker in "x+" else dot
                axes.plot((moment - start) / scale, y, marker=marker, color=color, **look)
        axes.set_yticks(range(len(found)), [lane.body for lane in found.values()][::-1])
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.set_ylim(-0.6, len(found) - 0.4)
        axes.set_xlim(left=0 if log else -0.01 * end / scale, right=max(end / scale * (1.6 if log else 1.04), 1e-3))
        held = any(until > since for lane in found.values() for since, until, _ in lane.bars)
        items: list[Any] = [Patch(color=_OPEN, label="in a worker's hands")] if held else []
        for key in [*_ENDS, *_MARKS]:
            if key in used:
                marker, color, word = used[key]
                items.append(Line2D([], [], marker=marker, color=color, ls="", ms=7, mew=1.6, label=word))
        figure.legend(handles=items, loc="outside lower left", ncols=3, fontsize=9, handlelength=1.4)
    return figure


def _words(found: Mapping[int, _Lane], start: float, unit: str) -> str:
    scale, _ = _UNITS[unit]

    def at(moment: float) -> str:
        return f"{(moment - start) / scale:,.1f}".removesuffix(".0") + f" {unit}"

    lines = []
    for lane in found.values():
        times = {0: "never delivered", 1: "delivered once", 2: "delivered twice"}
        line = f"{lane.body}: {times.get(len(lane.bars), f'delivered {len(lane.bars)} times')}"
        opened = sum(what == "reopened" for _, what in lane.marks)
        if opened:
            line += (
                f", opened again after its acknowledgement {opened} times"
                if opened > 1
                else (", opened again after its acknowledgement")
            )
        for what in ("dead-lettered", "lost"):
            line += "".join(f", {what} at {at(moment)}" for moment, mark in lane.marks if mark == what)
        acked = [until for _, until, how in lane.bars if how == "acked"]
        line += f", acknowledged at {at(acked[-1])}" if acked else ""
        lines.append(f"{line}.")
    return " ".join(lines)


_COLUMNS = {
    "broker": "broker", "done": "steps done", "run again": "run again",
    "delivered after its ack": "again after ack", "lost": "lost", "dead letters": "dead letters",
    "out of order": "out of order", "dead letter after (s)": "dead letter after",
    "done after the outage (s)": "caught up after", "remember by": "remember by",
}  # fmt: skip


def comparison(reports: Mapping[str, Any]) -> Table:
    """A table with one row for each :class:`labkit.models.clouds.Report`, by the broker's name; long times in hours."""

    def plain(key: str, value: object) -> object:
        if not key.endswith("(s)") or not isinstance(value, float):
            return value
        return _long(value)

    rows = [{"broker": name, **{k: plain(k, v) for k, v in report.row().items()}} for name, report in reports.items()]
    return table(rows, _COLUMNS)


def delays(reports: Mapping[str, Any]) -> Picture:
    """For each broker, on a logarithmic axis: from the consumer's return to done, from a failure to its dead letter."""
    kinds = {
        "recovered": ("o", plots.BLUE, "consumer back, until the night's work is done"),
        "noticed": ("s", plots.INK, "first failure, until the poison step is dead-lettered"),
    }
    spoken = {"recovered": "done", "noticed": "dead letter"}
    words = []
    with plots.style():
        figure, axes = plots.frame(None, "time (logarithmic)", "", height=1.5 + 0.34 * len(reports))
        for place, (name, report) in enumerate(reports.items()):
            both = {kind: getattr(report, kind) for kind in kinds}
            known = [value for value in both.values() if value is not None]
            axes.plot(known, [place] * len(known), color=plots.GRID, lw=3, zorder=1)
            for kind, value in both.items():
                if value is not None:
                    marker, color, _ = kinds[kind]
                    axes.plot(value, place, marker=marker, color=color, ms=9, ls="", mec=plots.CARD)
            said = [f"{word} after {_long(both[kind])}" for kind, word in spoken.items() if both[kind] is not None]
            words.append(f"{name}: {', '.join(said) or 'neither'}")
        axes.set_xscale("log")
        ticks = {word: moment for word, moment in _TICKS.items() if moment}
        axes.set_xticks(list(ticks.values()), list(ticks))
        axes.set_xticks([], minor=True)
        axes.set_xlim(4, 200_000)
        axes.set_yticks(range(len(reports)), list(reports))
        axes.set_ylim(len(reports) - 0.5, -0.5)
        axes.tick_params(axis="y", length=0)
        for marker, color, label in kinds.values():
            axes.plot([], [], marker=marker, color=color, ls="", ms=8, label=label)
        figure.legend(loc="outside upper left", ncols=1, fontsize=9)
    return Picture.of(figure, f"Time until the night's work is done, and until the dead letter. {'; '.join(words)}.")


def _long(seconds: float) -> str:
    return f"{seconds:,.0f} s" if seconds < 900 else f"{seconds / 3600:.1f} h"
