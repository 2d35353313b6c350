"""Event stream: how AWS sends events over HTTP, as binary messages that a receiver can check.

``ConverseStream`` answers with one message an event. Each has two checksums, so that a receiver finds the next message
only by a length that is known to be whole::

    total length │ headers length │ CRC-32 of these 8 bytes │ headers │ payload │ CRC-32 of everything before
         4 bytes          4 bytes                   4 bytes                                           4 bytes

A header is a name (its length in one byte) and a typed value; only strings (type 7) are needed here. ``:message-type``
says whether the payload is an ``event`` or an ``exception``. All numbers are big-endian and unsigned.

Source: the Smithy specification, "Amazon Event Stream Specification". Standard library only.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any
from zlib import crc32

from labkit.errors import LabError

__all__ = ["CONTENT_TYPE", "EventStreamError", "event", "exception", "message"]

CONTENT_TYPE = "application/vnd.amazon.eventstream"

_PRELUDE = struct.Struct("!II")
_NUMBER = struct.Struct("!I")
_STRING = 7  # the type of a header's value
_FRAME = 16  # bytes that are neither headers nor payload
# In bytes. The first two by the lengths of their length fields, the others are what AWS SDKs accept (botocore).
_MOST_NAME, _MOST_VALUE, _MOST_HEADERS, _MOST_PAYLOAD = 255, 32_767, 128 * 1024, 24 * 1024 * 1024


class EventStreamError(LabError, ValueError):
    """A message that the encoding has no room for; the sentence names the part, its size and the limit."""


def message(headers: Mapping[str, str], payload: bytes = b"") -> bytes:
    """One message. Raises :class:`EventStreamError` where a part is larger than the encoding allows."""
    head = b"".join(_header(name, value) for name, value in headers.items())
    _fits("the headers of a message", head, _MOST_HEADERS)
    _fits("the payload of a message", payload, _MOST_PAYLOAD)
    prelude = _PRELUDE.pack(_FRAME + len(head) + len(payload), len(head))
    checked = prelude + _NUMBER.pack(crc32(prelude)) + head + payload
    return checked + _NUMBER.pack(crc32(checked))


def event(kind: str, body: Mapping[str, Any]) -> bytes:
    """An event of the stream, such as ``contentBlockDelta``, with ``body`` as JSON."""
    return message({":event-type": kind, **_JSON, ":message-type": "event"}, _json(body))


def exception(kind: str, says: str) -> bytes:
    """An error in the middle of a stream, such as ``throttlingException``: the HTTP status has been 200 by then."""
    return message({":exception-type": kind, **_JSON, ":message-type": "exception"}, _json({"message": says}))


_JSON = {":content-type": "application/json"}


def _json(body: Mapping[str, Any]) -> bytes:
    return json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode(errors="replace")


def _header(name: str, value: str) -> bytes:
    key, content = name.encode(), value.encode()
    if not key:
        raise EventStreamError("a header of a message has a name of at least 1 byte; it is empty.")
    _fits(f"the name of header {name[:40]!r}", key, _MOST_NAME)
    _fits(f"the value of header {name!r}", content, _MOST_VALUE)
    return bytes((len(key),)) + key + bytes((_STRING,)) + len(content).to_bytes(2, "big") + content


def _fits(what: str, part: bytes, most: int) -> None:
    if len(part) > most:
        raise EventStreamError(f"{what} has {len(part):,} bytes; the limit is {most:,}.")
