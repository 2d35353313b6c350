"""Plots with one look: a light card with dark ink, legible on a dark page too, and colours that the colour-blind tell
apart (Okabe and Ito, 2008). Each function returns a :class:`Picture`, whose words are made from the same data.

``says`` replaces those words; give it where the data is measured and differs a little from run to run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from labkit.teach.picture import Picture

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["BLUE", "GREEN", "INK", "ORANGE", "PURPLE", "RED", "SKY", "Picture", "bars", "curve", "frame", "histogram"]
__all__ += ["picture", "steps", "style", "timeline"]

CARD, INK, FAINT, GRID = "#fbfbf8", "#22272e", "#5b6470", "#dcdfe3"
BLUE, RED, GREEN, ORANGE, PURPLE, SKY = "#0072b2", "#d55e00", "#009e73", "#e69f00", "#cc79a7", "#56b4e9"
CYCLE = (BLUE, ORANGE, GREEN, PURPLE, SKY, RED)  # red last: it marks what is over a limit

RC: dict[str, Any] = {
    "figure.facecolor": CARD, "axes.facecolor": CARD, "savefig.facecolor": CARD,
    "text.color": INK, "axes.labelcolor": INK, "axes.edgecolor": FAINT, "xtick.color": FAINT, "ytick.color": FAINT,
    "xtick.labelcolor": INK, "ytick.labelcolor": INK, "font.family": "DejaVu Sans", "font.size": 10,
    "axes.titlesize": 11, "axes.titleweight": "bold", "axes.titlelocation": "left", "axes.titlepad": 10,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.axisbelow": True,
    "grid.color": GRID, "grid.linewidth": 0.8, "lines.linewidth": 2.0, "legend.frameon": False,
}  # fmt: skip


def style() -> AbstractContextManager[None]:
    """The look, for a figure of your own: ``with plots.style(): figure, axes = pyplot.subplots()``."""
    import matplotlib as mpl
    from cycler import cycler

    look: Any = {**RC, "axes.prop_cycle": cycler(color=CYCLE)}
    return mpl.rc_context(look)


def picture(figure: Figure, says: str) -> Picture:
    """A figure of your own as a :class:`Picture`; ``says`` tells in words what it shows."""
    return Picture.of(figure, says)


def frame(title: str | None, xlabel: str, ylabel: str, *, height: float = 3.2) -> tuple[Figure, Axes]:
    """A figure 7.2 inches wide with one labelled axes, made without pyplot: nothing global, nothing to close."""
    from matplotlib.figure import Figure
    from matplotlib.layout_engine import ConstrainedLayoutEngine

    figure = Figure(figsize=(7.2, height), layout=ConstrainedLayoutEngine(w_pad=0.12, h_pad=0.1))
    axes = figure.subplots()
    axes.set(xlabel=xlabel, ylabel=ylabel)
    if title:
        axes.set_title(title)
    return figure, axes


def say(value: float) -> str:
    """A number for the words: three significant digits, thousands separated, the same on each machine."""
    rounded = float(f"{value:.3g}")
    if 0 < abs(rounded) < 1e-4:
        return "nearly 0"
    return f"{rounded:,.0f}" if rounded.is_integer() or abs(rounded) >= 1000 else f"{rounded:g}"


def legend(axes: Axes, entries: int) -> None:
    """A legend above the plot, where it hides no data; none for a single series."""
    if entries > 1:
        axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=min(entries, 4), borderaxespad=0.2)
        axes.set_title(axes.get_title(loc="left"), pad=28, loc="left")


def _join(title: str | None, *sentences: str) -> str:
    return " ".join(s.rstrip(".") + "." for s in (title or "", *sentences) if s)


def bars(
    values: Mapping[str, float] | Mapping[str, Mapping[str, float]], *, label: str, title: str | None = None,
    ceiling: tuple[float, str] | None = None, says: str | None = None,
) -> Picture:  # fmt: skip
    """Horizontal bars, one per name, or one group of bars per name: ``{"step 9 fails": {"restart": 21, …}, …}``.

    ``label``: quantity and unit of the axis. ``ceiling``: a limit and its name; bars over it are red.
    """
    groups: dict[str, dict[str, float]] = {
        name: {k: float(v) for k, v in value.items()} if isinstance(value, Mapping) else {"": float(value)}
        for name, value in values.items()
    }
    series = list(dict.fromkeys(key for group in groups.values() for key in group))
    with style():
        figure, axes = frame(title, label, "", height=1.25 + 0.34 * len(series) * len(groups) + 0.12 * len(groups))
        thick = 0.8 / max(1, len(series))
        for i, key in enumerate(series):
            where = [n + (i - (len(series) - 1) / 2) * thick for n, g in enumerate(groups.values()) if key in g]
            sizes = [g[key] for g in groups.values() if key in g]
            colors = [RED if ceiling and v > ceiling[0] else CYCLE[i % len(CYCLE)] for v in sizes]
            drawn = axes.barh(where, sizes, height=thick * 0.88, color=colors)
            axes.fill([], [], color=CYCLE[i % len(CYCLE)], label=key)  # for the legend: the first bar may be red
            axes.bar_label(drawn, labels=[say(v) for v in sizes], padding=4, color=INK)
        axes.set_yticks(range(len(groups)), list(groups))
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.tick_params(axis="y", length=0)
        axes.margins(x=0.12)
        if all(v.is_integer() for g in groups.values() for v in g.values()):
            axes.locator_params(axis="x", integer=True)  # half a message is nothing to mark
        if ceiling:
            _ceiling(axes, ceiling, vertical=True)
        legend(axes, len(series))
    named = [(f"{name}, {key}" if key else name, v) for name, g in groups.items() for key, v in g.items()]
    parts = [f"{name}: {say(v)}{_over(v, ceiling)}" for name, v in named]
    return Picture.of(figure, says or _join(title, f"Bars of {label}: {'; '.join(parts)}", _names(ceiling)))


def steps(
    times: Sequence[float], series: Mapping[str, Sequence[float]], *, xlabel: str, ylabel: str,
    title: str | None = None, marks: Sequence[tuple[float, str]] = (), ceiling: tuple[float, str] | None = None,
    says: str | None = None,
) -> Picture:  # fmt: skip
    """Quantities that change in steps and hold between (depth, replicas), over time. ``marks``: moments with a name."""
    return _lines(times, series, xlabel, ylabel, title, ceiling, marks, says, step=True)


def curve(
    x: Sequence[float], series: Mapping[str, Sequence[float]], *, xlabel: str, ylabel: str, title: str | None = None,
    ceiling: tuple[float, str] | None = None, marks: Sequence[tuple[float, str]] = (),
    xscale: str = "linear", yscale: str = "linear", says: str | None = None,
) -> Picture:  # fmt: skip
    """Smooth lines over ``x``. ``ceiling``: a limit on y and its name; ``marks``: places on x with a name."""
    return _lines(x, series, xlabel, ylabel, title, ceiling, marks, says, scales=(xscale, yscale))


def histogram(
    values: Sequence[float], *, xlabel: str, title: str | None = None, ceiling: tuple[float, str] | None = None,
    bins: int = 40, says: str | None = None,
) -> Picture:  # fmt: skip
    """How often each size came. ``ceiling``: a limit on x and its name; what is over it is red."""
    import numpy as np

    data = np.asarray(values, dtype=float)
    edges = np.histogram_bin_edges(data, bins)
    words = ""
    with style():
        figure, axes = frame(title, xlabel, "how many")
        width = edges[1] - edges[0]
        if ceiling and edges[0] < ceiling[0] < edges[-1]:  # an edge on the ceiling, so that no bar is half over
            below = np.ceil((ceiling[0] - edges[0]) / width)
            edges = ceiling[0] + width * (np.arange(len(edges) + 1) - below)
        count, edges = np.histogram(data, edges)
        colors = [RED if ceiling and left >= ceiling[0] - width / 2 else BLUE for left in edges[:-1]]
        axes.bar(edges[:-1], count, width, align="edge", color=colors, edgecolor=CARD, linewidth=0.6)
        axes.grid(visible=False, axis="x")
        if ceiling:
            share = 100 * float((data > ceiling[0]).mean())
            words = f"{say(share)} % are over {ceiling[1]} ({say(ceiling[0])})"
            _ceiling(axes, (ceiling[0], f"{ceiling[1]}: {say(share)} % over"), vertical=True)
    middle = f"{len(data):,} values from {say(float(data.min()))} to {say(float(data.max()))}"
    middle += f", median {say(float(np.median(data)))}"
    return Picture.of(figure, says or _join(title, f"Histogram of {xlabel}: {middle}", words))


def timeline(life: Any, *, title: str | None = None, unit: str | None = None, says: str | None = None) -> Picture:
    """A message's life: when it was hidden, who worked on it, and how each delivery ended.

    ``life``: a :class:`labkit.models.queue_life.Life`, or its deliveries as rows (dataclasses or dicts with
    ``number``, ``worker``, ``received_at``, ``visible_again_at``, ``finished_at``, ``crashed_at``, ``outcome``).
    ``unit`` of the axis: ``s``, ``min``, ``h`` or ``d``; chosen by the length when None.
    """
    from labkit.teach import _timeline

    return _timeline.draw(life, title, unit, says)


def _lines(
    x: Sequence[float], series: Mapping[str, Sequence[float]], xlabel: str, ylabel: str, title: str | None,
    ceiling: tuple[float, str] | None, marks: Sequence[tuple[float, str]], says: str | None, *,
    step: bool = False, scales: tuple[str, str] = ("linear", "linear"),
) -> Picture:  # fmt: skip
    words = []
    with style():
        figure, axes = frame(title, xlabel, ylabel)
        axes.set(xscale=scales[0], yscale=scales[1])
        dashes: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.4)), (0, (5, 2, 1, 2)))
        for i, (name, y) in enumerate(series.items()):
            axes.plot(x, y, label=name, drawstyle="steps-post" if step else "default", linestyle=dashes[i % 4])
            top = max(range(len(y)), key=y.__getitem__)
            peak = f"{say(y[top])} at {say(x[top])}{_over(y[top], ceiling)}"
            words.append(f"{name} goes from {say(y[0])} to {say(y[-1])}, highest {peak}")
        if scales[1] == "linear" and min(min(y) for y in series.values()) >= 0:
            axes.set_ylim(bottom=0)
        if ceiling:
            third = max(1, len(x) // 3)
            left, right = (
                min(abs(v - ceiling[0]) for y in series.values() for v in y[part])
                for part in (slice(None, third), slice(-third, None))
            )
            _ceiling(axes, ceiling, vertical=False, at_end=right > left)
        if marks:
            axes.set_ylim(top=axes.get_ylim()[1] * 1.12)  # room for the names
        for place, name in marks:
            axes.axvline(place, color=FAINT, linewidth=1, linestyle=(0, (2, 2)))
            axes.annotate(name, (place, 1), xycoords=("data", "axes fraction"), xytext=(4, -2), va="top",
                          textcoords="offset points", fontsize=9, color=FAINT)  # fmt: skip
        legend(axes, len(series))
    noted = "; ".join(f"{name} at {say(place)}" for place, name in marks)
    spoken = (f"{ylabel} over {xlabel}: {'; '.join(words)}", _names(ceiling), noted and f"Marked: {noted}")
    return Picture.of(figure, says or _join(title, *spoken))


def _ceiling(axes: Axes, ceiling: tuple[float, str], *, vertical: bool, at_end: bool = False) -> None:
    """The line of a limit, in view, with its name beside it."""
    value, name = ceiling
    if vertical:
        axes.axvline(value, color=RED, linewidth=1.4)
        axes.set_xlim(right=max(axes.get_xlim()[1], value * 1.25))
        axes.annotate(name, (value, 1), xycoords=("data", "axes fraction"), xytext=(5, -2), va="top",
                      textcoords="offset points", color=RED, fontsize=9, backgroundcolor=CARD)  # fmt: skip
    else:
        axes.axhline(value, color=RED, linewidth=1.4)
        axes.set_ylim(top=max(axes.get_ylim()[1], value * 1.12))
        axes.annotate(name, (1 if at_end else 0, value), xycoords=("axes fraction", "data"), va="bottom",
                      xytext=(-5 if at_end else 5, 3), ha="right" if at_end else "left",
                      textcoords="offset points", color=RED, fontsize=9)  # fmt: skip


def _over(value: float, ceiling: tuple[float, str] | None) -> str:
    return " (over)" if ceiling and value > ceiling[0] else ""


def _names(ceiling: tuple[float, str] | None) -> str:
    return f"The line marks {ceiling[1]}, {say(ceiling[0])}" if ceiling else ""
