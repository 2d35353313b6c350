"""Run notebooks and store their outputs: ``python -m tests.notebooks.store notebooks/03_queues.ipynb …`` (none: all).

What is stored is what ``pytest --nbval`` compares, so it is always made by a run and never by hand. Left out is what
would change from machine to machine: the version of Python, timings, widget state.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

ROOT = Path(__file__).resolve().parent.parent.parent
LIMIT = 120  # seconds for one cell


def store(path: Path) -> None:
    """Execute the notebook in a fresh kernel and write it back; on a ``CellExecutionError`` nothing is written."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=LIMIT,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
        record_timing=False,
    )
    client.execute(env={**os.environ, "LABKIT_STATIC": "1"}, stderr=subprocess.DEVNULL)
    notebook.metadata = nbformat.from_dict(
        {
            "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        }
    )
    nbformat.validate(notebook)
    path.write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")


def main(names: list[str]) -> int:
    paths = [Path(name).resolve() for name in names] or sorted((ROOT / "notebooks").glob("*.ipynb"))
    failed = 0
    for path in paths:
        try:
            store(path)
            print(f"stored {path.relative_to(ROOT)}")
        except CellExecutionError as error:
            failed += 1
            print(f"{path.relative_to(ROOT)}: nothing stored\n{error}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
