"""The learner's copy: solutions blanked to names, outputs gone, the source untouched, and still runnable."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from labkit.teach.learner import NOTE, PROMPT, strip_file, strip_solutions


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


def test_solutions_keep_their_names_only() -> None:
    source = book()
    before = copy.deepcopy(source)
    plain, solved, magic, words = strip_solutions(source)["cells"]
    assert source == before
    assert plain["source"] == "x = 1"
    assert plain["outputs"] == []
    assert plain["execution_count"] is None
    assert solved["source"].splitlines() == [
        PROMPT,
        "import math",
        "timeout = ...",
        "a = ...",
        "b = ...",
        "def runs(step: int) -> int:",
        '    """How often it runs."""',
        "    return ...",
    ]
    assert solved["metadata"]["tags"] == ["exercise", "slow"]
    assert magic["source"] == f"{PROMPT}\n..."
    assert words["source"] == NOTE


def test_the_copy_runs_and_its_checks_say_not_answered() -> None:
    from labkit.teach import check

    names: dict[str, Any] = {}
    exec(strip_solutions(book())["cells"][1]["source"], names)
    assert check("x").number(names["a"], right=1).ok is None
    assert check("x").code(names["runs"], cases=[(900, 2)]).ok is None


def test_files(tmp_path: Path) -> None:
    (tmp_path / "a.ipynb").write_text(json.dumps(book()), encoding="utf-8")
    assert strip_file(tmp_path / "a.ipynb", tmp_path / "copy" / "a.ipynb") == 3
    assert "math.ceil" not in (tmp_path / "copy" / "a.ipynb").read_text(encoding="utf-8")
