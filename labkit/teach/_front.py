"""Is somebody there to turn a knob? And what stays the same from run to run."""

from __future__ import annotations

import os
import re
from typing import Any


def is_live() -> bool:
    """Does a front end that shows widgets stand behind this kernel?

    ``LABKIT_STATIC=1`` says no and ``LABKIT_STATIC=0`` says yes. Else: a Jupyter server names the notebook to the
    kernels it starts (``JPY_SESSION_NAME``), and VS Code sets ``__vsc_ipynb_file__``; nbval, nbconvert and scripts do
    neither, so that a stored output never depends on a widget.
    """
    said = os.environ.get("LABKIT_STATIC", "")
    if said:
        return said == "0"
    shell = _shell()
    if shell is None:
        return False
    return "JPY_SESSION_NAME" in os.environ or "__vsc_ipynb_file__" in shell.user_ns


def in_notebook() -> bool:
    """Is there an IPython kernel that displays rich output?"""
    shell = _shell()
    return shell is not None and hasattr(shell, "kernel")


def _shell() -> Any:
    import sys

    ipython = sys.modules.get("IPython")  # a kernel has it loaded; nobody else needs it
    return ipython.get_ipython() if ipython is not None else None


_PATTERNS = (
    (re.compile(r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "«id»"),
    (re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:?\d\d)?"), "«time»"),
    (re.compile(r"(?<=://)(localhost|\d+\.\d+\.\d+\.\d+|[\w.-]+\.localhost[\w.]*)(:\d+)?"), "«host»"),
    (re.compile(r"(?<=[:/])\d{12}(?=[:/])"), "«account»"),
    (re.compile(r"(?<![\w/+=-])[\w/+=-]{80,}"), "«handle»"),  # receipt handles and task tokens: long and of one piece
)


def stable(text: str) -> str:
    """``text`` with ids, times, local hosts and account numbers replaced by «…»: the same on each run."""
    for pattern, word in _PATTERNS:
        text = pattern.sub(word, text)
    return text
