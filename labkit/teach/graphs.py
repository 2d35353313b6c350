"""State machines drawn: the definition as a graph, and where an execution stands in it.

:func:`graph` is Mermaid, so it follows the theme and is text in a diff. Each state says its outcome in words as well as
in colour; a Catch is a dashed edge with the errors that it takes, and a Retry stands in its state.
:func:`animate` walks through an execution, event by event.
"""

from __future__ import annotations

import html
from typing import Any

from labkit.control.definitions import load
from labkit.control.history import History
from labkit.control.machines import Machine
from labkit.teach._drawing import Definition, Drawing
from labkit.teach._front import in_notebook, is_live
from labkit.teach.show import Shown

__all__ = ["Animation", "animate", "graph"]

_CHANGES = ("Entered", "Exited", "Scheduled", "Submitted", "Failed", "TimedOut", "Aborted", "Redriven")
_HOW = "Run this cell in JupyterLab to walk through it."


def graph(machine: Machine | Definition | str, history: History | None = None) -> Shown:
    """The definition of ``machine`` (or a definition, or its name in ``infra/machines``) as a graph.

    With ``history`` each state shows what became of it. States of the same name in several iterations are one state
    with a count of each outcome.
    """
    definition = machine.definition if isinstance(machine, Machine) else machine
    return Drawing(load(definition), history).shown()


class Animation:
    """What :func:`animate` gives; shows itself as a cell's last value. ``frames`` is how many pictures it has."""

    def __init__(self, machine: Machine | Definition | str, history: History) -> None:
        self.machine, self.history = machine, history
        kinds = [str(event["type"]) for event in history.events]
        self._ends = [place for place, kind in enumerate(kinds, 1) if kind.endswith(_CHANGES) or place == len(kinds)]
        self._kinds = kinds

    @property
    def frames(self) -> int:
        return len(self._ends)

    def at(self, frame: int) -> Shown:
        """The picture after the event of this frame; frames count from 1."""
        return graph(self.machine, self.history.upto(self._ends[frame - 1]))

    def caption(self, frame: int) -> str:
        """What has just happened: the event, and where the execution stands after it."""
        end = self._ends[frame - 1]
        standing = self.history.upto(end).standing
        where = f"it stands in {', '.join(standing)}" if standing else "it stands nowhere"
        return f"{frame} of {self.frames}: {self._kinds[end - 1]}; {where}."

    @property
    def static(self) -> Shown:
        """The last picture."""
        return self.at(self.frames) if self.frames else graph(self.machine, self.history)

    @property
    def says(self) -> str:
        return f"The end of {self.frames} pictures. {_HOW}"

    def __repr__(self) -> str:
        return f"{self.static!r}\n{self.says}"

    def build(self, draw: Any) -> Any:
        """The live widget: a play button and a slider; ``draw(shown)`` is called with each picture."""
        import ipywidgets as w

        play = w.Play(min=1, max=self.frames, value=self.frames, interval=900)
        slider = w.IntSlider(min=1, max=self.frames, value=self.frames, description="event", readout=False)
        says = w.HTML(value=html.escape(self.caption(self.frames)))
        w.jslink((play, "value"), (slider, "value"))

        def move(change: Any) -> None:
            frame = int(change["new"])
            says.value = html.escape(self.caption(frame))
            draw(self.at(frame))

        slider.observe(move, names="value")
        return w.VBox([w.HBox([play, slider]), says])

    def _ipython_display_(self) -> None:
        from IPython.display import display

        if not (is_live() and in_notebook() and self.frames):
            display(self.static)  # type: ignore[no-untyped-call]
            display(Shown(self.says, f"<p><em>{html.escape(self.says)}</em></p>"))  # type: ignore[no-untyped-call]
            return
        handle: Any = None

        def draw(shown: Shown) -> None:
            if handle is not None:
                handle.update(shown)

        view = self.build(draw)._repr_mimebundle_()
        display({**view, "text/plain": self.says}, raw=True)  # type: ignore[no-untyped-call]
        handle = display(self.static, display_id=True)  # type: ignore[no-untyped-call]


def animate(machine: Machine | Definition | str, history: History) -> Animation:
    """Walk through ``history`` by its events: a play button and a slider in a live front end, else the last picture."""
    return Animation(machine, history)
