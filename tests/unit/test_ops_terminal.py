"""What is shown of text that came from elsewhere: nothing that steers a terminal, nothing that cannot be printed."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.ops.terminal import one_line, plain

BAD = "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Lỗi 茶, e\u0301 🍵", "Lỗi 茶, e\u0301 🍵"),
        ("\x1b[2Jgone", f"{BAD}[2Jgone"),
        ("a\r\nb\tc", f"a{BAD}{BAD}b{BAD}c"),
        ("\x9b31m\x7f", f"{BAD}31m{BAD}"),
        ("\u2028\u2029", BAD * 2),
        ("\u202eok\u2066\u2069", f"{BAD}ok{BAD}{BAD}"),
        ("\ud83d half", f"{BAD} half"),
        ("\u00a0\u00a0indented", "\u00a0\u00a0indented"),
    ],
)
def test_what_steers_a_terminal_is_shown_as_one_sign_each(text: str, shown: str) -> None:
    assert plain(text) == shown


@pytest.mark.parametrize(
    ("text", "most", "shown"),
    [
        ("  one\r\n two\t\vthree\u2028four\u00a0 five ", 99, "one two three four five"),
        ("\x9b\u202eok\ud800", 9, f"{BAD}{BAD}ok{BAD}"),
        ("abcdef", 6, "abcdef"),
        ("abcdefg", 6, "abcde…"),
        (" \n ", 5, ""),
    ],
)
def test_one_line_of_so_many_characters(text: str, most: int, shown: str) -> None:
    assert one_line(text, most) == shown


@given(text=st.text(st.characters(codec=None)), most=st.integers(1, 40))
def test_whatever_comes_it_can_be_printed_and_stays_on_its_line(text: str, most: int) -> None:
    line = one_line(text, most)
    assert len(line) <= most
    for shown in (plain(text), line):
        shown.encode()
        assert not {unicodedata.category(each) for each in shown} & {"Cc", "Cs", "Zl", "Zp"}
        assert len(shown.splitlines()) <= 1
    assert len(plain(text)) == len(text)
