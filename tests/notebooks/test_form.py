"""The form that every notebook of the course has, and that nbval sees every cell of it."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def load(path: Path) -> list[dict[str, Any]]:
    cells: list[dict[str, Any]] = json.loads(path.read_text())["cells"]
    return cells


def source(cell: dict[str, Any]) -> str:
    return "".join(cell["source"])


def code(path: Path) -> list[dict[str, Any]]:
    return [cell for cell in load(path) if cell["cell_type"] == "code"]


def prose(path: Path) -> str:
    return "\n".join(source(cell) for cell in load(path) if cell["cell_type"] == "markdown")


def tags(cell: dict[str, Any]) -> list[str]:
    found: list[str] = cell["metadata"].get("tags", [])
    return found


every = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def test_they_are_numbered_without_a_gap_and_the_readme_lists_all_in_their_order() -> None:
    numbers = [path.name[:2] for path in NOTEBOOKS]
    assert numbers == [f"{number:02}" for number in range(len(NOTEBOOKS))]
    assert len(numbers) >= 19
    listed = re.findall(
        r"^\| (\d\d) \| \[[^]]+\]\(notebooks/(\w+)\.ipynb\)", (ROOT / "README.md").read_text(), re.MULTILINE
    )
    assert [name for _, name in listed] == [path.stem for path in NOTEBOOKS]
    assert [number for number, _ in listed] == numbers


def test_nbval_collects_every_code_cell() -> None:
    command = [sys.executable, "-m", "pytest", "--nbval", "--nbval-current-env", "--collect-only", "-q", str(FOLDER)]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for path in NOTEBOOKS:
        assert len(re.findall(rf"{path.name}::", listed)) == len(code(path)), path.name


@every
def test_it_has_a_head_a_lab_a_recap_and_an_end(path: Path) -> None:
    head = source(load(path)[0])
    assert re.match(rf"# {path.name[:2]} · ", head)
    assert "**The failure this notebook prevents:**" in head
    assert re.search(r"^\d+ minutes", head, re.M)
    cells = code(path)
    assert f'lab = Lab.open("{path.stem.replace("_", "-")}")' in source(cells[0])
    assert source(cells[-1]).strip() == "lab.close()"
    assert "## Recap" in prose(path)


@every
def test_it_predicts_explains_and_asks(path: Path) -> None:
    text = prose(path)
    assert text.count("**Predict") >= 2
    exercises = re.findall(r"\*\*Exercise (\d\d-\d)\.\*\*", text)
    assert 2 <= len(exercises) <= 4
    assert exercises == [f"{path.name[:2]}-{number}" for number in range(1, len(exercises) + 1)]
    solutions = [cell for cell in code(path) if "solution" in tags(cell)]
    assert len(solutions) == len(exercises)
    for number, cell in zip(exercises, solutions, strict=True):
        shown = json.dumps(cell["outputs"], ensure_ascii=False)
        assert f"{number} ✓" in shown, "the stored solution does not pass its own check"
    for cell in code(path):
        folded = cell["metadata"].get("jupyter", {}).get("source_hidden", False)
        gives_away = "solution" in tags(cell) or "def check_" in source(cell)
        assert folded or not gives_away, f"this gives the answer away, and is not folded: {source(cell)[:80]}"


@every
def test_it_was_run_from_top_to_bottom_and_shows_no_errors(path: Path) -> None:
    cells = code(path)
    assert [cell["execution_count"] for cell in cells] == list(range(1, len(cells) + 1))
    for cell in cells:
        for output in cell["outputs"]:
            assert output.get("name") != "stderr", source(cell)
            assert output["output_type"] != "error" or "raises-exception" in tags(cell)


@every
def test_it_shows_nothing_that_changes_from_run_to_run(path: Path) -> None:
    volatile = re.compile(
        r"[0-9a-f]{8}-[0-9a-f]{4}-|\d{4}-\d\d-\d\dT\d\d:\d\d|127\.0\.0\.1:\d+|localhost:\d+|\b0x[0-9a-f]{6,}"
    )
    for cell in code(path):
        if "nbval-ignore-output" in tags(cell):
            continue
        for output in cell["outputs"]:
            text = json.dumps({k: v for k, v in output.get("data", {}).items() if k != "image/png"}) + "".join(
                output.get("text", "")
            )
            assert not volatile.search(text), f"{source(cell)}\n{volatile.search(text)}"


@every
def test_it_installs_nothing_and_headings_nest(path: Path) -> None:
    for cell in code(path):
        assert not re.search(r"^\s*[!%]\s*(uv|pip|conda|apt)\b|sys\.path", source(cell), re.M)
    levels = [len(found) for found in re.findall(r"^(#+) ", prose(path), re.M)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(later <= earlier + 1 for earlier, later in itertools.pairwise(levels))


@every
def test_each_picture_has_words(path: Path) -> None:
    pictures = 0
    for cell in code(path):
        for output in cell["outputs"]:
            if "image/png" in output.get("data", {}):
                pictures += 1
                words = "".join(output["data"]["text/plain"])
                assert len(words) > 40, words
                assert not words.startswith("<"), words
    assert pictures >= 1


@every
def test_its_links_lead_somewhere(path: Path) -> None:
    for target in re.findall(r"\]\(([^)]+)\)", prose(path)):
        if "://" in target or target.startswith("#"):
            continue
        assert (path.parent / target.split("#")[0]).exists(), target
