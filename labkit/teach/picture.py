"""A picture together with the words that say the same.

Where the words go: the PNG carries them as ``metadata["image/png"]["alt"]``, which nbconvert's classic template and
nbsphinx write into the ``<img>``; JupyterLab 4.6 and nbconvert's lab template do not. An HTML ``<img alt=…>`` would
reach both, and a code host may drop its ``data:`` address and the picture with it. So the PNG stays a PNG, its
``text/plain`` is the words, and below it stands a fold, "In words", that every reader and screen reader can open.
nbval skips the PNG and compares the words.
"""

from __future__ import annotations

import base64
import html
import io
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_DPI = 100  # of the layout; the PNG has twice that, for sharp text on dense screens


class Picture:
    """A rendered figure: ``png`` (bytes), ``says`` (what it shows, in words), ``width`` in CSS pixels."""

    def __init__(self, png: bytes, says: str, width: int) -> None:
        self.png, self.says, self.width = png, says, width

    @classmethod
    def of(cls, figure: Figure, says: str) -> Picture:
        """Render ``figure`` and let it go, so that a long notebook holds no open figures."""
        if not says.strip():
            raise ValueError("says must hold a sentence that tells what the picture shows.")
        buffer = io.BytesIO()
        card = figure.get_facecolor()
        figure.savefig(buffer, format="png", dpi=2 * _DPI, facecolor=card, metadata={"Software": None})
        width = round(figure.get_size_inches()[0] * _DPI)
        figure.clear()
        if figure.canvas.manager is not None:  # it came from pyplot, which would keep it and show it a second time
            from matplotlib import pyplot

            pyplot.close(figure)
        return cls(buffer.getvalue(), says.strip(), width)

    def __repr__(self) -> str:
        return self.says

    def to_html(self) -> str:
        """One ``<img>`` with its alternative text, for a widget."""
        data = base64.b64encode(self.png).decode()
        style = f"width: {self.width}px; max-width: 100%; border-radius: 6px"
        return f'<img alt="{html.escape(self.says, quote=True)}" style="{style}" src="data:image/png;base64,{data}">'

    def bundle(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The MIME bundle and its metadata, as Jupyter takes them."""
        data = {"image/png": base64.b64encode(self.png).decode(), "text/plain": self.says}
        return data, {"image/png": {"alt": self.says, "width": self.width}}

    def _repr_mimebundle_(self, **_: object) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.bundle()

    def _repr_png_(self) -> bytes:
        return self.png

    def _ipython_display_(self) -> None:
        from IPython.display import display

        data, metadata = self.bundle()
        display(data, metadata=metadata, raw=True)  # type: ignore[no-untyped-call]
        words = f"<details><summary>In words</summary>{html.escape(self.says)}</details>"
        display({"text/html": words, "text/plain": ""}, raw=True)  # type: ignore[no-untyped-call]
