"""Terminal: text that came from somewhere else, fit to be shown.

Whoever can send a message, or name a span, could write to the operator's terminal: control characters steer it, a
change of direction turns the rest of a line around, and half a character (JSON has escapes for those, too) cannot be
printed at all.
"""

from __future__ import annotations

import re

__all__ = ["one_line", "plain"]

_UNSHOWN = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    """``text`` with U+FFFD for each character that would steer a terminal, a line's end among them."""
    return _UNSHOWN.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(text: str, most: int) -> str:
    """``text`` as :func:`plain` shows it, with one space for any white space, cut to ``most`` characters."""
    line = plain(" ".join(text.split()))
    return line if len(line) <= most else line[: most - 1] + "…"
