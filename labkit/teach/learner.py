"""The learner's copy of a notebook: the one source, with its solutions blanked and its outputs gone.

A cell with the tag ``solution`` keeps its names and loses what they stand for: ``answer = 2`` becomes ``answer = ...``,
a function keeps its signature and docstring, so that the check below says "not answered yet" and nothing fails.
"""

from __future__ import annotations

import ast
import copy
import json
from pathlib import Path
from typing import Any

PROMPT = "# Your turn: put your answer in place of the three dots, run this cell, then the check below."
NOTE = "*Your turn: write your answer here.*"


def strip_solutions(notebook: dict[str, Any]) -> dict[str, Any]:
    """A learner's copy of an nbformat 4 notebook (a dict); the one given is left as it is."""
    learner = copy.deepcopy(notebook)
    for cell in learner["cells"]:
        tags = cell.get("metadata", {}).get("tags", [])
        if "solution" in tags:
            source = cell["source"] if isinstance(cell["source"], str) else "".join(cell["source"])
            cell["source"] = _stub(source) if cell["cell_type"] == "code" else NOTE
            cell["metadata"]["tags"] = ["exercise" if tag == "solution" else tag for tag in tags]
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


def _stub(source: str) -> str:
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a magic: nothing of it can be kept
        return f"{PROMPT}\n..."
    kept: list[str] = []
    for node in tree.body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            kept.append(ast.unparse(node))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            doc = node.body[:1] if ast.get_docstring(node) is not None else []
            node.body = [*doc, ast.Return(ast.Constant(...))]
            kept.append(ast.unparse(node))
        else:
            targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
            names = [n.id for t in targets if t for n in ast.walk(t) if isinstance(n, ast.Name)]
            kept += [f"{name} = ..." for name in names if f"{name} = ..." not in kept]
    return "\n".join([PROMPT, *(kept or ["..."])])
