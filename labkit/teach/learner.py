"""The learner's copy of a notebook: the one source, with its solutions blanked and its outputs gone."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

BLANK = "# The solution stood here. The exercise is the cell with the three dots."
NOTE = "*The solution stood here.*"


def strip_solutions(notebook: dict[str, Any]) -> dict[str, Any]:
    """A learner's copy of an nbformat 4 notebook (a dict); the one given is left as it is."""
    learner = copy.deepcopy(notebook)
    for cell in learner["cells"]:
        if "solution" in cell.get("metadata", {}).get("tags", []):
            cell["source"] = BLANK if cell["cell_type"] == "code" else NOTE
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    return learner


def strip_file(source: Path, target: Path) -> int:
    """Write the learner's copy of ``source`` to ``target``; gives the number of cells that were blanked."""
    notebook = json.loads(source.read_text(encoding="utf-8"))
    target.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(strip_solutions(notebook), indent=1, ensure_ascii=False)
    target.write_text(f"{text}\n", encoding="utf-8")
    return sum("solution" in cell.get("metadata", {}).get("tags", []) for cell in notebook["cells"])
