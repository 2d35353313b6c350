"""A human gate in a notebook: what a group is asked, with two buttons each where somebody is there to press them.

The stored output is the list of what is asked; under nbval a cell answers by code (:meth:`Approvals.approve`).
"""

from __future__ import annotations

import html
from typing import Any

from labkit.control.approval_requests import as_text
from labkit.control.approvals import AlreadyAnswered, Approvals, NoSuchRequest, Request, TooLate
from labkit.errors import LabError
from labkit.teach import show
from labkit.teach._front import is_live

__all__ = ["Gate", "gate"]

_HOW = "Run this cell in JupyterLab to answer with a button."


class Gate:
    """What :func:`gate` gives; shows itself as a cell's last value. ``static``: the requests as they are now."""

    def __init__(self, approvals: Approvals, group: str, by: str) -> None:
        self.approvals, self.group, self.by = approvals, group, by
        self.static = show.table(
            [(_says(each), each.state) for each in approvals.pending(group)],
            [f"{group} is asked", "state"],
        )

    def __repr__(self) -> str:
        return f"{self.static!r}\n{_HOW}"

    def build(self) -> Any:
        """The live widget: one line for each request; a line stays when it is answered, and says how."""
        import ipywidgets as w

        name = w.Text(value=self.by, description="Your name")
        requests = self.approvals.pending(self.group)
        lines = [self._line(each, name) for each in requests] or [w.HTML("<p>Nothing waits for an answer.</p>")]
        return w.VBox([name, *lines])

    def _line(self, request: Request, name: Any) -> Any:
        import ipywidgets as w
        from botocore.exceptions import BotoCoreError, ClientError

        says = w.HTML(f"<code>{html.escape(_says(request))}</code>")
        buttons = [
            w.Button(description="Approve", button_style="success", icon="check"),
            w.Button(description="Reject", button_style="danger", icon="times"),
        ]

        def answered(decision: Any) -> Any:
            def press(_: object) -> None:
                for button in buttons:
                    button.disabled = True
                try:
                    taken = self.approvals.decide(request.id, decision, name.value.strip())
                    said = f"{taken.state} by {taken.decided_by}"
                except (LabError, BotoCoreError, ClientError) as refused:
                    said = str(refused)
                    if not isinstance(refused, AlreadyAnswered | TooLate | NoSuchRequest):
                        # A name that cannot be, or no answer: let them try again. The same twice is harmless.
                        for button in buttons:
                            button.disabled = False
                says.value = f"<code>{html.escape(_says(request))}</code> <strong>{html.escape(said)}</strong>"

            return press

        for button, decision in zip(buttons, ("approved", "rejected"), strict=True):
            button.on_click(answered(decision))
        return w.HBox([says, *buttons])

    def _ipython_display_(self) -> None:
        from IPython.display import display

        if is_live():
            view = self.build()._repr_mimebundle_()
            display({**view, "text/plain": repr(self)}, raw=True)  # type: ignore[no-untyped-call]
            return
        display(self.static)  # type: ignore[no-untyped-call]
        display(show.Shown(_HOW, f"<p><em>{_HOW}</em></p>"))  # type: ignore[no-untyped-call]


def gate(approvals: Approvals, group: str, *, by: str = "") -> Gate:
    """The requests of ``group``, to be answered in the name of ``by`` or of whoever types a name there."""
    return Gate(approvals, group, by)


def _says(request: Request) -> str:
    return as_text(request.question)
