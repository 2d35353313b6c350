"""In the room: what notebooks show, draw, ask and check.

``from labkit.teach import check, plots, show, widgets``. Only ``plots`` and ``widgets`` load matplotlib and ipywidgets,
and only when they first draw.
"""

from labkit.teach.checks import check

__all__ = ["check"]
