"""Traces in a notebook: the tree says the same on each run, the waterfall has words."""

from __future__ import annotations

from labkit.ops.spans.record import Link, Note, Record
from labkit.ops.trace_view import gather
from labkit.teach import traces


def span(name: str, began: int, ended: int, parent: str = "", trace: str = "a" * 32, **fields: object) -> Record:
    made = Record(trace, name, parent, name, "consumer", began * 10**9, ended * 10**9, service="worker")
    from dataclasses import replace

    return replace(made, **fields)  # type: ignore[arg-type]


SPANS = [
    span("send", 0, 1),
    span(
        "process", 2, 4, "send", status="error", notes=(Note("exception", 1), Note("dead-lettered", 1)),
        attributes={"labkit.outcome": "dead", "error.type": "Poison", "labkit.receives": 2},
    ),
    span("receive", 1, 2, trace="b" * 32, links=(Link("a" * 32, "send"), Link("c" * 32, "x"))),
]  # fmt: skip


def test_the_tree_tells_what_came_of_it_and_no_id_or_time() -> None:
    table = traces.tree(gather(SPANS))
    assert table.headers == ["span", "made by", "what came of it"]
    assert table.cells == [
        ["send", "worker", ""],
        ["\u00a0\u00a0\u00a0process", "worker", "dead, Poison, receive 2, dead-lettered"],
        ["", "", ""],
        ["receive", "worker", "linked with 2 in other traces"],
    ]
    assert traces.tree(gather(SPANS)[1], "alone").cells == [table.cells[3]]
    assert "aaaa" not in repr(table)


def test_the_waterfall_is_a_picture_with_words() -> None:
    picture = traces.waterfall(gather(SPANS)[0], title="A step")
    assert picture.png.startswith(b"\x89PNG")
    assert repr(picture) == (
        "A step. Spans in their order: send, process. The longest by itself is process. Failed, in red: process."
    )


def test_a_trace_of_no_time_is_drawn_too() -> None:
    assert traces.waterfall(gather([span("only", 1, 1)])[0]).png


def test_a_long_and_deep_trace_is_cut_and_says_so() -> None:
    picture = traces.waterfall(gather([span(f"s{n}", n, n + 1, f"s{n - 1}" if n else "") for n in range(1_000)])[0])
    assert picture.png.startswith(b"\x89PNG")
    assert "s59, and 940 more. " in repr(picture)


def test_what_a_message_brought_along_is_harmless() -> None:
    bad = {"labkit.receives": "lots", "labkit.outcome": ("a",), "error.type": "x\x1b[2J\ny"}
    (row,) = traces.tree(gather([span("on\ne", 0, 1, attributes=bad)])).cells
    assert row == ["on\ufffde", "worker", "('a',), x\ufffd[2J\ufffdy, receive lots"]
