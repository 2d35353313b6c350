"""The bytes that a handler writes, cut into log events."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parity.lambda_bootstrap import mark, pack, unpack
from parity.lambda_output import LONGEST_LINE, Splitter, Tail

TOKEN = "0123456789abcdef"


def record(text: str) -> bytes:
    return mark(TOKEN, len(text.encode())) + text.encode()


def events(*chunks: bytes) -> list[str]:
    splitter = Splitter(TOKEN)
    return [event for chunk in chunks for event in splitter.feed(chunk)] + splitter.rest()


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (b"", []),
        (b"one\n", ["one\n"]),
        (b"one\ntwo\n", ["one\n", "two\n"]),
        (b"one\ntwo", ["one\n", "two"]),
        (b"\n\n", ["\n", "\n"]),
        (b"\xff\xfe\n", ["\ufffd\ufffd\n"]),
        (record("a\nb"), ["a\nb"]),
        (b"before" + record("a\nb") + b"after\n", ["before", "a\nb", "after\n"]),
        (record("a") + record("") + record("b\n"), ["a", "", "b\n"]),
        (record("ä"), ["ä"]),
        (b"\x1enot a mark\n", ["\x1enot a mark\n"]),
        (mark("another", 3) + b"abc\n", ["\x1eanother 3\n", "abc\n"]),
    ],
)
def test_events(written: bytes, expected: list[str]) -> None:
    assert events(written) == expected


def test_a_line_is_kept_until_it_is_complete() -> None:
    splitter = Splitter(TOKEN)
    assert splitter.feed(b"half") == []
    assert splitter.feed(b" and half\nmore") == ["half and half\n"]
    assert splitter.rest() == ["more"]
    assert splitter.rest() == []


def test_a_line_without_end_is_cut() -> None:
    data = b"x" * (2 * LONGEST_LINE + 5)
    for size in (1 << 16, 4 * LONGEST_LINE):
        found = events(*(data[start : start + size] for start in range(0, len(data), size)))
        assert [len(event) for event in found] == [LONGEST_LINE, LONGEST_LINE, 5]


def test_a_record_that_never_comes_to_its_end_is_shown() -> None:
    assert "".join(events(record("abcdef")[:-2])).endswith("abcd")


lines = st.lists(
    st.one_of(
        st.text(st.characters(exclude_characters="\x1e\n", exclude_categories=("Cs",)), max_size=9).map(
            lambda text: (f"{text}\n".encode(), f"{text}\n")
        ),
        st.text(st.characters(exclude_categories=("Cs",)), max_size=9).map(lambda text: (record(text), text)),
    ),
    max_size=9,
)


@given(lines, st.integers(1, 12))
def test_however_it_arrives(written: list[tuple[bytes, str]], size: int) -> None:
    data = b"".join(line for line, _ in written)
    chunks = [data[start : start + size] for start in range(0, len(data), size)]
    assert events(*chunks) == [text for _, text in written]


def test_the_tail() -> None:
    tail = Tail(10)
    for text in ("0123456789", "abc", ""):
        tail.add(text)
    assert str(tail) == "3456789abc"
    tail.add("é" * 5)
    tail.add("x")
    assert str(tail) == "éééé" + "x"  # nine bytes: half a character is left out


@given(st.dictionaries(st.text(max_size=5), st.integers()), st.binary(max_size=50), st.integers(1, 20))
def test_frames_however_they_arrive(header: dict[str, int], body: bytes, size: int) -> None:
    data, buffer, found = pack(header, body) * 2, bytearray(), []
    for start in range(0, len(data), size):
        buffer += data[start : start + size]
        while (frame := unpack(buffer)) is not None:
            found.append(frame)
    assert found == [(header, body)] * 2
    assert not buffer
