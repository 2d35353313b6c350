"""The stored parity table and what is made of it."""

from __future__ import annotations

import re
from pathlib import Path

from labkit import parity

README = Path(__file__).resolve().parent.parent.parent / "README.md"


def test_every_row_says_what_aws_does_and_how_we_know() -> None:
    rows = parity.read()
    assert len({row.key for row in rows}) == len(rows) > 100
    for row in rows:
        assert re.fullmatch(r"[a-z]+(\.[a-z0-9_-]+)+", row.key), row.key
        assert len(row.behaviour) > 10, row.key
        assert len(row.source) > 5, row.key
        assert row.expected("embedded") == parity.AS_AWS, f"{row.key} is not as AWS on the default target"


def test_the_readme_shows_the_stored_table() -> None:
    shown = re.search(r"<!-- parity: [^\n]*-->\n(.*?)\n<!-- /parity -->", README.read_text(), re.S)
    assert shown is not None
    assert shown.group(1) == parity.markdown()
