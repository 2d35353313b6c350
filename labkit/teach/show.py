"""What a notebook prints, in a form that is the same on each run: tables, counts, errors, events, diagrams.

Stored outputs are compared strictly. So nothing here shows an id, a clock time or an address, and nothing writes to
stderr.
"""

from __future__ import annotations

import dataclasses
import html
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, TypeVar

from labkit.teach._front import in_notebook, is_live, stable

__all__ = [
    "Error",
    "Shown",
    "Table",
    "counts",
    "error",
    "event",
    "json_block",
    "mermaid",
    "progress",
    "stable",
    "table",
]

T = TypeVar("T")


class Shown:
    """Something to look at: ``text`` for everybody, beside it a richer form (``mime``: ``text/html``, …)."""

    def __init__(self, text: str, rich: str, mime: str = "text/html") -> None:
        self.text, self.rich, self.mime = text, rich, mime

    def __repr__(self) -> str:
        return self.text

    def to_html(self) -> str:
        """As HTML, for a widget."""
        return self.rich if self.mime == "text/html" else f"<pre>{html.escape(self.text)}</pre>"

    def _repr_mimebundle_(self, **_: object) -> dict[str, str]:
        return {"text/plain": self.text, self.mime: self.rich}


class Table(Shown):
    """A table: HTML in a front end, aligned columns in text. ``headers`` and ``cells`` hold what it shows, as text."""

    def __init__(self, headers: Sequence[str], values: Sequence[Sequence[object]], caption: str | None = None) -> None:
        self.headers = list(headers)
        self.cells = [[_cell(v) for v in row] for row in values]
        right = [
            bool(values) and all(_is_number(row[i]) or row[i] is None for row in values) for i in range(len(headers))
        ]
        super().__init__(self._plain(right, caption), self._html(right, caption))

    def _plain(self, right: Sequence[bool], caption: str | None) -> str:
        lines = [self.headers, *self.cells]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.headers))]

        def join(line: Sequence[str]) -> str:
            parts = (c.rjust(w) if r else c.ljust(w) for c, w, r in zip(line, widths, right, strict=True))
            return "  ".join(parts).rstrip()

        rule = "  ".join("-" * w for w in widths)
        return "\n".join([*([caption] if caption else []), join(self.headers), rule, *map(join, self.cells)])

    def _html(self, right: Sequence[bool], caption: str | None) -> str:
        def line(tag: str, cells: Sequence[str]) -> str:
            scope = ' scope="col"' if tag == "th" else ""
            sides = ("right" if r else "left" for r in right)
            parts = (
                f'<{tag}{scope} style="text-align: {s}">{html.escape(c)}</{tag}>'
                for c, s in zip(cells, sides, strict=True)
            )
            return f"<tr>{''.join(parts)}</tr>"

        title = f'<caption style="text-align: left">{html.escape(caption)}</caption>' if caption else ""
        body = "\n".join(line("td", row) for row in self.cells)
        return f"<table>{title}\n<thead>{line('th', self.headers)}</thead>\n<tbody>\n{body}\n</tbody></table>"


def table(
    rows: Iterable[object], columns: Sequence[str] | Mapping[str, str] | None = None, caption: str | None = None
) -> Table:
    """A table of ``rows``: dicts, dataclass instances, or sequences (then ``columns`` gives the headers).

    ``columns`` picks and orders the fields; a mapping also renames them. Whole numbers get thousands separators, floats
    four significant digits, None a dash, booleans yes or no.
    """
    kept: list[Any] = [
        {f.name: getattr(r, f.name) for f in dataclasses.fields(r)} if dataclasses.is_dataclass(r) else r for r in rows
    ]
    if kept and not isinstance(kept[0], Mapping):
        headers = list(columns or [])
        if any(len(row) != len(headers) for row in kept):
            raise ValueError("rows that are sequences need `columns` with as many headers as each row has cells.")
        return Table(headers, kept, caption)
    fields = list(columns) if columns is not None else list(dict.fromkeys(key for row in kept for key in row))
    names = [columns[f] for f in fields] if isinstance(columns, Mapping) else [f.replace("_", " ") for f in fields]
    return Table(names, [[row.get(f) for f in fields] for row in kept], caption)


def counts(what: Iterable[object] | Mapping[Any, int], name: str = "what", times: str = "times") -> Table:
    """How often each thing came, sorted by name: for work that finishes in any order."""
    tally = dict(what) if isinstance(what, Mapping) else Counter(what)
    return Table([name, times], [[key, tally[key]] for key in sorted(tally, key=str)])


class Error:
    """Runs what must fail and prints how: ``with show.error(): …`` or ``show.error(lambda: …)``."""

    def __init__(self) -> None:
        self.raised: Exception | None = None

    def __repr__(self) -> str:
        return "" if self.raised is None else describe(self.raised)

    def _ipython_display_(self) -> None:
        """Nothing: it has printed already, and a cell shows its last value."""

    def __enter__(self) -> Error:
        return self

    def __exit__(self, kind: type[BaseException] | None, raised: BaseException | None, _: TracebackType | None) -> bool:
        if raised is not None and not isinstance(raised, Exception):
            return False  # an interrupt is not what the cell wants to show
        self.raised = raised
        print("Nothing failed, and this cell expects an error." if raised is None else describe(raised))
        return raised is not None


def error(function: Callable[[], object] | None = None) -> Error:
    """Run ``function``, or the ``with`` block, and print the class, the code and the sentence of its error.

    When nothing fails it says so. Understands botocore's ClientError, pydantic's ValidationError and labkit's own.
    """
    shown = Error()
    if function is not None:
        with shown:
            function()
    return shown


def describe(raised: Exception) -> str:
    """One error as text: what :func:`error` prints."""
    name = type(raised).__name__
    response = getattr(raised, "response", None)
    if isinstance(response, Mapping) and "Error" in response:
        about = response["Error"]
        call = getattr(raised, "operation_name", None)
        return stable(f"{call + ': ' if call else ''}{about.get('Code', name)}\n  {about.get('Message', '')}".rstrip())
    listed = getattr(raised, "errors", None)
    if callable(listed) and hasattr(raised, "error_count"):  # pydantic
        lines = [f"  {'.'.join(map(str, e['loc'])) or '(whole)'}: {e['msg']}" for e in listed()]
        return stable("\n".join([f"{name}: {getattr(raised, 'title', '')}", *lines]))
    sentence = str(raised).strip()
    return stable(f"{name}\n  {sentence}" if sentence else name)


_VOLATILE = {
    "id": "id", "time": "time", "account": "account", "host": "host", "messageid": "id", "receipthandle": "handle",
    "eventid": "id", "requestid": "id", "tasktoken": "token", "task_token": "token", "token": "token", "senderid": "id",
    "senttimestamp": "time", "approximatefirstreceivetimestamp": "time", "timestamp": "time", "ingestion-time": "time",
    "startdate": "time", "stopdate": "time", "creationdate": "time", "lastmodified": "time", "createdat": "time",
}  # fmt: skip


def json_block(value: object, *, hide: Iterable[str] = (), keep: Iterable[str] = ()) -> Shown:
    """JSON with what changes from run to run («id», «time», «handle» …) replaced, and ResponseMetadata left out.

    ``hide``: more keys to replace; ``keep``: keys to leave as they are, though they may change.
    """
    words = {**_VOLATILE, **{key.lower(): "…" for key in hide}}
    for key in keep:
        words.pop(key.lower(), None)
    text = json.dumps(_steady(value, words), indent=2, ensure_ascii=False, default=str)
    return Shown(text, f"```json\n{text}\n```", "text/markdown")


event = json_block  # an event, a message or a response of AWS


def mermaid(text: str, says: str) -> Shown:
    """A Mermaid diagram and the sentence that says the same."""
    return Shown(says, f"```mermaid\n{text.strip()}\n```\n\n{says}", "text/markdown")


def progress(items: Iterable[T], label: str, total: int | None = None) -> Iterator[T]:
    """``items``, with a bar in a front end while they pass. At the end one line, the same everywhere."""
    size = total if total is not None else len(items) if isinstance(items, Sequence) else None
    handle: Any = None
    if is_live() and in_notebook():
        from IPython.display import display

        handle = display({"text/plain": f"{label}: starting"}, raw=True, display_id=True)  # type: ignore[no-untyped-call]
    done = 0
    try:
        for item in items:
            yield item
            done += 1
            if handle is not None:
                handle.update({"text/plain": _bar(label, done, size)}, raw=True)
    finally:
        last = f"{label}: {done:,}" + (f" of {size:,}" if size is not None else "")
        if handle is None:
            print(last)
        else:
            handle.update({"text/plain": last}, raw=True)


def _bar(label: str, done: int, size: int | None) -> str:
    if not size:
        return f"{label}: {done:,}"
    full = round(24 * min(done, size) / size)
    return f"{label}: {'█' * full}{'░' * (24 - full)} {done:,} of {size:,}"


def _steady(value: object, words: Mapping[str, str]) -> object:
    if isinstance(value, Mapping):
        out: dict[str, object] = {}
        for key, item in value.items():
            word = words.get(str(key).lower())
            if key != "ResponseMetadata":
                out[str(key)] = f"«{word}»" if word and not isinstance(item, (Mapping, list)) else _steady(item, words)
        return out
    if isinstance(value, (set, frozenset)):
        value = sorted(value, key=str)
    if isinstance(value, (list, tuple)):
        return [_steady(item, words) for item in value]
    if isinstance(value, (bytes, bytearray)):
        return f"«{len(value)} bytes»"
    return stable(value) if isinstance(value, str) else value


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _cell(value: object) -> str:
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.0f}" if value.is_integer() or abs(value) >= 1000 else f"{value:.4g}"
    return stable(str(value))
