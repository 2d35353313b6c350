"""Knobs to turn: a function of a few numbers, drawn again when one of them changes.

``explore(function, step=slider("step time", "s", 30, 1800, 900))`` shows the result for the starting values everywhere,
and the knobs where a live front end is behind the kernel (:func:`labkit.teach._front.is_live`). A stored output is thus
a picture or a table with its words, which nbval compares and a code host shows; it never needs a widget's state.
"""

from __future__ import annotations

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from labkit.errors import LabError
from labkit.models import queue_life, sizes
from labkit.models._input import limit
from labkit.teach import plots
from labkit.teach._front import is_live
from labkit.teach.picture import Picture
from labkit.teach.show import Shown

_HOW = "Run this cell in JupyterLab to turn the knobs."


@dataclass(frozen=True)
class Control:
    """One knob: its name, unit and start; ``low``, ``high`` and ``step``, or ``options``, say where it goes."""

    label: str
    unit: str
    start: Any
    low: float = 0
    high: float = 0
    step: float = 1
    options: tuple[Any, ...] = ()

    @property
    def says(self) -> str:
        if isinstance(self.start, bool):
            return f"{self.label}: {'on' if self.start else 'off'}"
        return f"{self.label} {_plain(self.start)}{f' {self.unit}' if self.unit else ''}"

    def widget(self) -> Any:
        import ipywidgets as w

        look = {"style": {"description_width": "initial"}, "layout": w.Layout(width="32em", max_width="98%")}
        name = f"{self.label}{f' ({self.unit})' if self.unit else ''}"
        if isinstance(self.start, bool):
            return w.Checkbox(value=self.start, description=name, indent=False, layout=look["layout"])
        if self.options:
            return w.Dropdown(value=self.start, options=list(self.options), description=name, **look)
        kind = w.IntSlider if isinstance(self.start, int) and isinstance(self.step, int) else w.FloatSlider
        span = {"min": self.low, "max": self.high, "step": self.step, "continuous_update": False}
        return kind(value=self.start, description=name, **span, **look)


def slider(label: str, unit: str, low: float, high: float, start: float, step: float = 1) -> Control:
    """A number from ``low`` to ``high`` in ``unit``; whole numbers when ``start`` and ``step`` are."""
    if not low <= start <= high:
        raise ValueError(f"{label}: start must be from {low:g} to {high:g}; got {start!r}.")
    return Control(label, unit, start, low, high, step)


def switch(label: str, start: bool = False) -> Control:
    """On or off."""
    return Control(label, "", bool(start))


def pick(label: str, options: Sequence[Any], start: Any = None, unit: str = "") -> Control:
    """One of ``options``; the first when ``start`` is None."""
    chosen = options[0] if start is None else start
    if chosen not in options:
        raise ValueError(f"{label}: start must be one of the options; got {start!r}.")
    return Control(label, unit, chosen, options=tuple(options))


class Explorer:
    """What :func:`explore` gives; shows itself as a cell's last value. ``static``: the result at the start."""

    def __init__(self, function: Callable[..., object], controls: dict[str, Control]) -> None:
        self.function, self.controls = function, controls
        self.static = _parts(function(**{name: c.start for name, c in controls.items()}))

    @property
    def says(self) -> str:
        return f"Shown for {', '.join(c.says for c in self.controls.values())}. {_HOW}"

    def __repr__(self) -> str:
        return "\n".join([*map(repr, self.static), self.says])

    def build(self) -> Any:
        """The live widget: the knobs, and below them one area that is drawn again on each change."""
        import ipywidgets as w

        knobs = {name: c.widget() for name, c in self.controls.items()}
        area = w.HTML(value=_html(self.static))

        def redraw(_: object) -> None:
            try:
                area.value = _html(_parts(self.function(**{name: k.value for name, k in knobs.items()})))
            except LabError as refused:  # a combination that cannot be: the sentence says why, the knobs stay
                area.value = f"<p><strong>{html.escape(str(refused))}</strong></p>"

        for knob in knobs.values():
            knob.observe(redraw, names="value")
        return w.VBox([*knobs.values(), area])

    def _ipython_display_(self) -> None:
        from IPython.display import display

        if not is_live():
            for part in self.static:
                display(part)  # type: ignore[no-untyped-call]
            display(Shown(self.says, f"<p><em>{html.escape(self.says)}</em></p>"))  # type: ignore[no-untyped-call]
            return
        view = self.build()._repr_mimebundle_()
        data = {**view, "text/plain": repr(self)}
        metadata: dict[str, Any] = {}
        for part in self.static:  # beside the widget, for whoever opens the saved notebook without a kernel
            if isinstance(part, Picture):
                bundle, metadata = part.bundle()
                data["image/png"] = bundle["image/png"]
        display(data, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]


def explore(function: Callable[..., object], **controls: Control) -> Explorer:
    """``function``, called with the value of each control by name; it returns a Picture, a table, a text, or a tuple.

    Raise :class:`LabError` in it for a combination that cannot be: its sentence is shown in place of the result.
    """
    return Explorer(function, controls)


def visibility_explorer() -> Explorer:
    """One message's life, by visibility timeout and step time, with a heartbeat or a crash."""

    def life(step: int, visibility: int, heartbeat: bool, crash: bool, after: int, receives: int) -> tuple[object, ...]:
        beat = queue_life.Heartbeat(interval=max(1.0, visibility / 3), extension=visibility) if heartbeat else None
        found = queue_life.live(
            visibility=visibility, step=step, heartbeat=beat, crash={1: after} if crash else None,
            max_receive_count=receives, polling_delay=1,
        )  # fmt: skip
        ran = f"Started {_times(found.executions)}, finished {_times(found.completions)}"
        return plots.timeline(found), f"{ran}; the message is {found.ended}."

    return explore(
        life,
        step=slider("step time", "s", 30, 1800, 900, 30),
        visibility=slider("visibility timeout", "s", 30, 1800, 720, 30),
        heartbeat=switch("heartbeat at a third of the timeout"),
        crash=switch("first worker dies"),
        after=slider("if so, it dies after", "s", 0, 1800, 120, 30),
        receives=slider("max receive count", "", 1, 6, 4),
    )


def size_explorer() -> Explorer:
    """A payload's share of each limit on its way, and how many of its kind share a request."""

    def weigh(kib: int, letters: str, entries: int) -> tuple[object, ...]:
        character, width = _LETTERS[letters]
        entry = {"Source": "fleet.coordinator", "DetailType": "agent.step.requested", "Time": 0}
        entry["Detail"] = '{"text":"' + character * (kib * 1024 // width) + '"}'
        found = sizes.hops(entry)
        stuck = [hop.name for hop in found if not hop.fits]
        verdict = f"Too large for the {' and the '.join(stuck)}: send a claim check." if stuck else "Fits everywhere."
        if found[0].fits:
            verdict += f" {entries} of them go in {len(sizes.event_batches([entry] * entries))} PutEvents requests."
        shares = {f"{hop.name} ({hop.limit / 1024:,.0f} KiB)": hop.percent for hop in found}
        return plots.bars(shares, label="share of the limit (%)", ceiling=(100, "limit")), verdict

    return explore(
        weigh,
        kib=slider("payload", "KiB", 1, limit("events.put.request_bytes") // 1024, 300),
        letters=pick("written in", list(_LETTERS)),
        entries=slider("entries to send", "", 1, 50, 25),
    )


_LETTERS = {"English (1 byte a letter)": ("a", 1), "Vietnamese ế (3 bytes)": ("ế", 3), "emoji (4 bytes)": ("🙂", 4)}


def _parts(result: object) -> tuple[object, ...]:
    """What the function returned, as things that display well."""
    given = result if isinstance(result, tuple) else (result,)
    return tuple(Shown(p, f"<p>{html.escape(p)}</p>") if isinstance(p, str) else p for p in given)


def _html(parts: Sequence[object]) -> str:
    def one(part: Any) -> str:
        if hasattr(part, "to_html"):
            return str(part.to_html())
        return f"<pre>{html.escape(repr(part))}</pre>"

    return "".join(f"<div>{one(part)}</div>" for part in parts)


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
