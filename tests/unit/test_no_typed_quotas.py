"""No notebook types a quota by hand: it asks ``facts("…")``, so that a corrected number is correct everywhere."""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from labkit.facts import search

NOTEBOOKS = Path(__file__).resolve().parents[2] / "notebooks"

# Facts of these units are quotas and limits. Prices, ratios and percentages are too short to be told apart.
QUOTA_UNITS = {
    *("s", "bytes", "chars", "1/s", "messages", "entries", "events", "executions", "invocations", "calls", "items"),
    *("runs", "pollers", "sessions", "tokens/min"),
}
# Powers of two, an hour, a day, a week, sizes that anybody picks for a simulation: facts too, but no proof of a quota.
COMMON = {1024, 1200, 1250, 1500, 2048, 2400, 2500, 3600, 4096, 8192, 86400, 604800}
# A number that a cell must show as it is, such as the guide's broken snippet: "# typed on purpose: 1209600".
ON_PURPOSE = re.compile(r"#\s*typed on purpose:\s*([\d_, ]+)")
IN_TEXT = re.compile(r"(?<![\w.,/:-])(?:\d{1,3}(?:[,_]\d{3})+|\d{4,})(?![\w/:-]|[.,]\d)")
FOLD = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.LShift: operator.lshift,
    ast.Pow: operator.pow,
}


@cache
def quotas() -> dict[int, list[str]]:
    """Distinctive number → the keys to use for it, AWS's own limits before worked examples with the same number."""
    found: dict[int, list[str]] = {}
    for fact in search(""):
        if not isinstance(fact.value, int) or fact.value < 1000 or fact.unit not in QUOTA_UNITS:
            continue
        # One significant digit (5,000 or 100,000) is what a simulation picks as well.
        if len(str(fact.value).rstrip("0")) > 1 and fact.value not in COMMON:
            found.setdefault(fact.value, []).append(fact.key)
    for keys in found.values():
        keys.sort(key=lambda key: (key.startswith(("fleet.", "guide")), key))
    return found


def typed_quotas(notebook: Path) -> list[str]:
    """One sentence for each quota typed in a code cell: notebook, cell, line, number and the keys to use instead."""
    problems = []
    for number, cell in enumerate(json.loads(notebook.read_text(encoding="utf-8"))["cells"], 1):
        if cell["cell_type"] != "code":
            continue
        source = "".join(cell["source"])
        allowed = {_int(n) for found in ON_PURPOSE.findall(source) for n in re.findall(r"\d[\d_]*", found)}
        for line, value in sorted(set(_numbers(source))):
            if value in quotas() and value not in allowed:
                use = " or ".join(f'facts("{key}")' for key in quotas()[value])
                problems.append(f"{notebook.name}, cell {number}, line {line}: {value:,} is typed by hand; use {use}")
    return problems


def _numbers(source: str) -> Iterator[tuple[int, int]]:
    """(line, number) of each integer in a cell: literals, constant arithmetic such as 12 * 60 * 60, and text."""
    # Line magics are no Python; an empty line in their place keeps the line numbers.
    plain = "\n".join("" if re.match(r"\s*[%!]", line) else line for line in source.splitlines())
    try:
        tree = ast.parse(plain)
    except SyntaxError:  # a cell of another language (%%bash): its numbers are text
        yield from _in_text(source, 1)
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.expr) and (value := _folded(node)) is not None:
            yield node.lineno, value
        elif isinstance(node, ast.Constant) and isinstance(
            node.value, str
        ):  # the text parts of f-strings are these too
            yield from _in_text(node.value, node.lineno)


def _folded(node: ast.expr) -> int | None:
    if isinstance(node, ast.Constant):
        return node.value if type(node.value) is int else None
    if isinstance(node, ast.BinOp) and (fold := FOLD.get(type(node.op))):
        left, right = _folded(node.left), _folded(node.right)
        # Powers and shifts of large numbers are nobody's quota and could take for ever.
        if left is None or right is None or (fold in (operator.pow, operator.lshift) and not 0 <= right <= 64):
            return None
        return None if fold is operator.floordiv and right == 0 else int(fold(left, right))
    return None


def _in_text(text: str, line: int) -> Iterator[tuple[int, int]]:
    for found in IN_TEXT.finditer(text):
        yield line + text.count("\n", 0, found.start()), _int(found[0])


def _int(text: str) -> int:
    return int(re.sub(r"[,_]", "", text))


def test_no_notebook_types_a_quota() -> None:
    assert [problem for path in sorted(NOTEBOOKS.glob("*.ipynb")) for problem in typed_quotas(path)] == []


def _notebook(folder: Path, *cells: str, kind: str = "code") -> Path:
    path = folder / "99_made_up.ipynb"
    path.write_text(json.dumps({"cells": [{"cell_type": kind, "source": cell.splitlines(True)} for cell in cells]}))
    return path


def test_a_typed_quota_is_named_with_notebook_cell_number_and_key(tmp_path: Path) -> None:
    path = _notebook(tmp_path, "import boto3", "depth = 5\nfull = depth > 120_000\n")
    (problem,) = typed_quotas(path)
    assert problem.startswith("99_made_up.ipynb, cell 2, line 2: 120,000 is typed by hand; use ")
    assert 'facts("sqs.inflight.cap")' in problem


@pytest.mark.parametrize(
    ("cell", "key"),
    [
        ("sqs.create_queue(Attributes={'VisibilityTimeout': 43200})", "sqs.visibility.max"),
        ("limit = 1048576", "events.put.request_bytes"),
        ("limit = 1024 * 1024", "events.put.request_bytes"),
        ("limit = 1 << 20", "events.put.request_bytes"),
        ("week = 14 * 24 * 60 * 60", "sqs.retention.max"),
        ("almost = 262_144 - 1", "sfn.payload.max_bytes"),
        ("print(f'{depth} of 120,000 in flight')", "sqs.inflight.cap"),
        ("print('retention: 345600 s')", "sqs.retention.default"),
        ("text = '''\nVisibilityTimeout = 43200\n'''", "sqs.visibility.max"),
        ("%time x = 1\ny = 43_200", "sqs.visibility.max"),
        ("%%bash\naws sqs set-queue-attributes --attributes VisibilityTimeout=43200", "sqs.visibility.max"),
    ],
)
def test_every_way_to_type_a_quota_is_seen(tmp_path: Path, cell: str, key: str) -> None:
    (problem,) = typed_quotas(_notebook(tmp_path, cell))
    assert key in problem


@pytest.mark.parametrize(
    "cell",
    [
        "cap = facts('sqs.inflight.cap')",
        "events = 1000\nhour = 3600\nkib = 1024\nmany = 10_000\nday = 24 * 3600",
        "arn = 'arn:aws:sqs:us-east-1:000043200000:work'\nday = '2026-11-30'\nversion = '1.43200.1'",
        "name = 'trace-43200-x'\nhalf = 43200.5\nflag = True",
        "broken = {'MessageRetentionPeriod': 1209600}  # typed on purpose: 1209600 (the guide's own form)",
        "big = 2 ** 4096\nnone = 7 // 0",
        "",
    ],
)
def test_other_numbers_are_left_alone(tmp_path: Path, cell: str) -> None:
    assert typed_quotas(_notebook(tmp_path, cell)) == []


def test_an_exemption_holds_for_its_number_and_its_cell_only(tmp_path: Path) -> None:
    exempt = "a = 1209600  # typed on purpose: 1209600\nb = 43200"
    problems = typed_quotas(_notebook(tmp_path, exempt, "c = 1209600"))
    assert [problem.split(":")[0] for problem in problems] == [
        "99_made_up.ipynb, cell 1, line 2",
        "99_made_up.ipynb, cell 2, line 1",
    ]


def test_prose_may_name_a_number(tmp_path: Path) -> None:
    assert typed_quotas(_notebook(tmp_path, "About 120,000 messages.", kind="markdown")) == []


def test_limits_of_aws_are_offered_before_worked_examples() -> None:
    assert quotas()[120_000][0].startswith("sqs.")
    assert not {1000, 5000, 100_000, *COMMON} & set(quotas())
