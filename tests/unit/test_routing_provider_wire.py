"""The event stream's encoding, against golden messages and the decoder that botocore has."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from botocore.eventstream import ChecksumMismatch, EventStreamBuffer
from hypothesis import given
from hypothesis import strategies as st

from labkit.routing import eventstream
from labkit.routing.eventstream import EventStreamError

# Messages of the Smithy specification's test suite, as in botocore's tests/unit/test_eventstream.py.
EMPTY = b"\x00\x00\x00\x10\x00\x00\x00\x00\x05\xc2H\xeb}\x98\xc8\xff"
PAYLOAD = b"\x00\x00\x00\x1d\x00\x00\x00\x00\xfdR\x8cZ{'foo':'bar'}\xc3e96"
BODY = b"{'foo':'bar'}"
ONE_HEADER = (
    b"\x00\x00\x00=\x00\x00\x00 \x07\xfd\x83\x96\x0ccontent-type\x07\x00\x10application/json"
    + BODY
    + b"\x8d\x9c\x08\xb1"
)


def decoded(data: bytes) -> list[Any]:
    buffer = EventStreamBuffer()
    buffer.add_data(data)
    return [(message.headers, message.payload) for message in buffer]


def test_golden_messages() -> None:
    assert eventstream.message({}) == EMPTY
    assert eventstream.message({}, BODY) == PAYLOAD
    assert eventstream.message({"content-type": "application/json"}, BODY) == ONE_HEADER


HEADERS = st.dictionaries(st.text(st.characters(codec="utf-8"), min_size=1, max_size=40),
                          st.text(st.characters(codec="utf-8"), max_size=80), max_size=4)  # fmt: skip


@given(st.lists(st.tuples(HEADERS, st.binary(max_size=200)), min_size=1, max_size=4))
def test_what_is_written_is_read_by_botocore(messages: list[tuple[dict[str, str], bytes]]) -> None:
    assert decoded(b"".join(eventstream.message(*each) for each in messages)) == messages


def test_events_and_exceptions_are_told_apart() -> None:
    event = {":event-type": "messageStart", ":content-type": "application/json", ":message-type": "event"}
    assert decoded(eventstream.event("messageStart", {"role": "assistant"})) == [(event, b'{"role":"assistant"}')]
    ((headers, payload),) = decoded(eventstream.exception("throttlingException", "Too many."))
    assert headers[":message-type"] == "exception"
    assert headers[":exception-type"] == "throttlingException"
    assert payload == b'{"message":"Too many."}'


def test_a_flipped_bit_is_found_by_both_checksums() -> None:
    sent = eventstream.event("messageStart", {"role": "assistant"})
    for at in (7, 9, len(sent) - 10):  # the headers' length, its checksum, the payload
        bent = bytearray(sent)
        bent[at] ^= 1
        with pytest.raises(ChecksumMismatch):
            decoded(bytes(bent))


def test_lengths_count_everything() -> None:
    sent = eventstream.message({"a": "b"}, b"xyz")
    total, headers, _ = struct.unpack("!III", sent[:12])
    assert (total, headers) == (len(sent), 1 + 1 + 1 + 2 + 1)


@pytest.mark.parametrize(
    ("headers", "payload", "says"),
    [
        ({"": "x"}, b"", "at least 1 byte"),
        ({"n" * 256: "x"}, b"", "the name of header 'n+' has 256 bytes; the limit is 255"),
        ({"n": "v" * 32_768}, b"", "the value of header 'n' has 32,768 bytes; the limit is 32,767"),
        ({str(n): "v" * 32_000 for n in range(5)}, b"", "the headers of a message has"),
        ({}, b"x" * (24 * 1024 * 1024 + 1), "the payload of a message has 25,165,825 bytes; the limit is 25,165,824"),
    ],
)
def test_what_has_no_room_is_refused(headers: dict[str, str], payload: bytes, says: str) -> None:
    with pytest.raises(EventStreamError, match=says):
        eventstream.message(headers, payload)
