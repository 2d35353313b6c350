"""The picture of signals and failures: what it says, and what it refuses."""

from __future__ import annotations

import subprocess
import sys

import pytest

from labkit.ops.taxonomy import ROWS, SIGNALS, Account, Finding
from labkit.teach import taxonomy

DONE = Account(sent=3, done=3, dead=0, lost=0, duplicated=0, runs=3)
BY_KEY = {row.key: row for row in ROWS}


def finding(key: str, *signals: str) -> Finding:
    return Finding(BY_KEY[key], DONE, 3, dict.fromkeys(signals, 1.0))


def test_each_row_is_told_with_the_signals_that_moved() -> None:
    picture = taxonomy.matrix(
        [finding("poison", "received beyond sent", "depth of a queue's DLQ"), finding("swallowed")], title="Seen"
    )
    assert picture.says == (
        "Seen. Which signals moved. poison: depth of a queue's DLQ, received beyond sent; swallowed (silent): nothing."
    )


def test_every_signal_has_a_colour() -> None:
    picture = taxonomy.matrix([finding("poison", *SIGNALS)])
    assert all(name in picture.says for name in SIGNALS)


def test_nothing_to_show_is_refused() -> None:
    for nothing in ([], [finding("poison")]):
        with pytest.raises(ValueError, match="at least one finding"):
            taxonomy.matrix(nothing)


def test_what_draws_is_imported_when_told_and_not_before() -> None:
    script = (
        "import sys; from labkit.teach import taxonomy; assert 'matplotlib' not in sys.modules;"
        "taxonomy.ahead().join(60); assert 'matplotlib.backends.backend_agg' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=120)
