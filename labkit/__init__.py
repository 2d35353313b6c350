"""labkit: the companion package of Agent Fleet Lab.

``Lab`` is what a notebook opens; ``facts`` looks up a checked number. Everything else is imported from the plane it
lives on: ``labkit.control``, ``labkit.work``, ``labkit.state``, ``labkit.routing``, ``labkit.ops``, ``labkit.models``
and, for notebooks, ``labkit.teach``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

# At once, not when first used: the function shares its module's name, and must be what `labkit.facts` means.
from labkit.facts import fact, facts

__all__ = ["Lab", "LabError", "fact", "facts"]
__version__ = "0.1.0"

if TYPE_CHECKING:
    from labkit.errors import LabError
    from labkit.lab import Lab

_HOMES = {"Lab": "labkit.lab", "LabError": "labkit.errors"}


def __getattr__(name: str) -> Any:
    # Names are fetched when first used: `import labkit` stays cheap for a Lambda handler or a worker's start.
    if name not in _HOMES:
        raise AttributeError(f"module 'labkit' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
