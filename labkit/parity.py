"""The parity table: which of AWS's behaviours each emulator has been seen to have. The parity suite writes it.

``published`` is LocalStack 4.14.0 without the rules that host mode adds: measured once, on 2026-11-30, with local
processes for Lambda and without Pipes; nothing runs against it any more.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

AS_AWS = "as AWS"
DIFFERS = "differs"
NOT_RUN = "not run"
COLUMNS = ("embedded", "localstack", "published")
NAMES = {
    "embedded": "embedded",
    "localstack": "LocalStack 4.14.0 in host mode",
    "published": "LocalStack 4.14.0 as published",
}


@dataclass(frozen=True)
class Row:
    """One behaviour: ``key`` (``sqs.delete.superseded``), a sentence, how we know, and what was seen on each target."""

    key: str
    behaviour: str
    source: str
    seen: Mapping[str, str] = field(default_factory=dict)

    def expected(self, target: str) -> str:
        return self.seen.get(target, NOT_RUN)

    @property
    def service(self) -> str:
        return self.key.split(".")[0]


def _file() -> Path:
    packed = Path(__file__).parent / "_data" / "parity.csv"
    return packed if packed.exists() else Path(__file__).resolve().parent.parent / "data" / "parity.csv"


def read() -> list[Row]:
    """All rows, by key."""
    with _file().open(newline="", encoding="utf-8") as source:
        return [
            Row(line["row"], line["behaviour"], line["source"], {target: line[target] for target in COLUMNS})
            for line in csv.DictReader(source)
        ]


def write(rows: Iterable[Row]) -> None:
    """Replace the table. For the parity suite alone."""
    with _file().open("w", newline="", encoding="utf-8") as target:
        out = csv.writer(target, lineterminator="\n")
        out.writerow(["row", "behaviour", "source", *COLUMNS])
        for row in sorted(rows, key=lambda row: row.key):
            out.writerow([row.key, row.behaviour, row.source, *(row.expected(name) for name in COLUMNS)])


def markdown() -> str:
    """The summary as a Markdown table: what the README shows."""
    head = ["| service | behaviours | " + " | ".join(f"as AWS: {NAMES[target]}" for target in COLUMNS) + " |"]
    head.append("|---|---|" + "---|" * len(COLUMNS))
    rows = [
        f"| {line['service']} | {line['rows']} | "
        + " | ".join(NOT_RUN if line[target] is None else str(line[target]) for target in COLUMNS)
        + " |"
        for line in summary()
    ]
    return "\n".join([*head, *rows])


def summary() -> list[dict[str, object]]:
    """Rows per service and how many of them each target passes: ``service``, ``rows``, then one column a target.

    None for a target on which no row of the service has been run.
    """
    rows = read()
    lines = []
    for service in dict.fromkeys(row.service for row in rows):
        mine = [row for row in rows if row.service == service]
        line: dict[str, object] = {"service": service, "rows": len(mine)}
        for target in COLUMNS:
            seen = [row.expected(target) for row in mine]
            line[target] = None if set(seen) == {NOT_RUN} else seen.count(AS_AWS)
        lines.append(line)
    return lines
