"""What a handler writes becomes log events, in the order in which it was written.

**On AWS** each line of standard output or error is one event in CloudWatch Logs, its line break included; a record of
the logging module and the stack trace of an uncaught exception are one event however many lines they have (recorded on
AWS). Lines are there with the time at which they were written, also while the function still runs. ``LogType=Tail``
gives the last 4 KB of the invocation's log (botocore's ``Invoke``).

**MiniStack** joins what it has read within 50 ms of the answer, cuts it at every line break, and gives all of it the
time of the end.

**Here** both outputs of the process are one pipe, in which :func:`parity.lambda_bootstrap.mark` marks records off. The
pipe is read while the invocation runs; when the answer is there, what had been written before it is in the pipe too, so
that nothing has to be waited for and nothing is lost. A line that has no line break yet when the invocation
ends is an event without one. Bytes that are no UTF-8 are shown as U+FFFD.
"""

from __future__ import annotations

import re

TAIL_BYTES = 4096
LONGEST_LINE = 1 << 18  # bytes; a longer line becomes several events (AWS's own limit is not verified)


class Splitter:
    """Cuts the bytes of the pipe into log events."""

    def __init__(self, token: str) -> None:
        self._start = b"\x1e" + token.encode() + b" "
        self._mark = re.compile(re.escape(self._start) + rb"(\d{1,9})\n")
        self._data = b""

    def feed(self, data: bytes) -> list[str]:
        """The events that are complete with ``data``."""
        data = self._data + data
        events, position, begins = [], 0, data.find(self._start)
        while position < len(data):
            if begins == position:  # a record, or the beginning of one
                found = self._mark.match(data, position)
                end = found.end() + int(found[1]) if found else -1
                if end < 0 or end > len(data):
                    break
                events.append(_text(data[found.end() : end]))
                position, begins = end, data.find(self._start, end)
                continue
            # A line ends at its line break, or where a record begins.
            stop = begins if begins >= 0 else len(data)
            longest = position + LONGEST_LINE
            end = data.find(b"\n", position, min(stop, longest)) + 1
            if not end:
                if begins < 0 and stop < longest:
                    break
                end = min(stop, longest)
            events.append(_text(data[position:end]))
            position = end
        self._data = data[position:]
        return events

    def rest(self) -> list[str]:
        """What is left when the invocation is over: a line without a line break."""
        left, self._data = self._data, b""
        return [_text(left)] if left else []


def _text(data: bytes) -> str:
    return data.decode(errors="replace")


class Tail:
    """The last 4 KB of what was added."""

    def __init__(self, size: int = TAIL_BYTES) -> None:
        self._size = size
        self._data = b""

    def add(self, text: str) -> None:
        self._data = (self._data + text.encode(errors="replace"))[-self._size :]

    def __str__(self) -> str:
        return self._data.decode(errors="ignore")  # a character that was cut in two is left out
