"""The learner's copy: solutions blanked, outputs gone, the source untouched."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from labkit.teach.learner import BLANK, NOTE, strip_file, strip_solutions


def cell(source: str, *tags: str, kind: str = "code") -> dict[str, Any]:
    made: dict[str, Any] = {"cell_type": kind, "metadata": {"tags": list(tags)}, "source": source}
    return {**made, "outputs": [{"x": 1}], "execution_count": 3} if kind == "code" else made


SOLUTION = '''import math
timeout: int = 720
a, b = 1, 2

def runs(step: int) -> int:
    """How often it runs."""
    return math.ceil(step / timeout)

print(runs(900))
'''


def book() -> dict[str, Any]:
    cells = [cell("x = 1"), cell(SOLUTION, "solution", "slow"), cell("%time y = 2", "solution"),
             cell("Because.", "solution", kind="markdown")]  # fmt: skip
    return {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def test_solutions_are_blanked_and_the_source_is_left_alone() -> None:
    source = book()
    before = copy.deepcopy(source)
    plain, solved, magic, words = strip_solutions(source)["cells"]
    assert source == before
    assert plain["source"] == "x = 1"
    assert plain["outputs"] == []
    assert plain["execution_count"] is None
    assert solved["source"] == magic["source"] == BLANK
    assert solved["metadata"]["tags"] == ["solution", "slow"]
    assert words["source"] == NOTE


def test_files(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_text(json.dumps(book()), encoding="utf-8")
    assert strip_file(tmp_path / "a.ipynb", tmp_path / "copy" / "a.ipynb") == 3
    assert "math.ceil" not in (tmp_path / "copy" / "a.ipynb").read_text(encoding="utf-8")
