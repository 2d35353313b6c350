"""Trace view: what was found of a trace, as a tree and a waterfall, and the command that draws it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from typer.testing import CliRunner

from labkit import Lab, cli
from labkit.control.machines import Machine
from labkit.control.trace_context import TraceContext
from labkit.ops import trace_view
from labkit.ops.spans import files as tracing_files
from labkit.ops.spans import lab as tracing_lab
from labkit.ops.spans.record import Link, Note, Record
from labkit.ops.trace_view import Trace, find, gather
from labkit.ops.tracing import TraceError, Tracing

T = "4bf92f3577b34da6a3ce929d0e0e4736"


def span(name: str, began: float, ended: float, parent: str = "", *, trace: str = T, **fields: Any) -> Record:
    attributes = {"labkit.work": "conv-1-step-1", **fields.pop("attributes", {})}
    return Record(
        trace, f"{name:0>16}"[-16:], f"{parent:0>16}"[-16:] if parent else "", name, "internal",
        int(began * 1e9), int(ended * 1e9), attributes, **fields,
    )  # fmt: skip


SPANS = [
    span("send", 0, 1),
    span("process", 2, 10, "send", service="worker"),
    span("call", 3, 9, "process"),
    span(
        "first",
        3,
        5,
        "call",
        status="error",
        attributes={"error.type": "RateLimitError", "labkit.outcome": "throttled"},
    ),
    span("second", 5, 9, "call"),
]


def drawn(trace: Trace) -> str:
    console = Console(width=120, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(trace.tree())
    return console.export_text()


def test_the_tree_is_the_same_in_whatever_order_the_spans_come() -> None:
    wanted = [(0, "send"), (1, "process"), (2, "call"), (3, "first"), (3, "second")]
    for seed in range(20):
        mixed = SPANS + SPANS[:2]
        random.Random(seed).shuffle(mixed)
        (trace,) = gather(mixed)
        assert [(row.depth, row.record.name) for row in trace.rows] == wanted
    assert trace.seconds == 10
    assert trace.works == ["conv-1-step-1"]


def test_where_the_time_went() -> None:
    (trace,) = gather(SPANS)
    own = {each.name: trace.own_seconds(each) for each in trace.records}
    assert own == {"send": 1.0, "process": 2.0, "call": 0.0, "first": 2.0, "second": 4.0}


def test_children_that_overlap_or_outlive_their_parent_are_counted_once() -> None:
    (trace,) = gather(
        [span("p", 0, 10), span("a", 1, 5, "p"), span("b", 3, 7, "p"), span("c", 9, 12, "p"), span("d", 11, 12, "p")]
    )
    assert trace.own_seconds(trace.records[0]) == 3.0


def test_a_span_whose_parent_is_missing_stands_at_the_top_and_says_so() -> None:
    (trace,) = gather(SPANS[1:])
    assert [(row.depth, row.orphan) for row in trace.rows][:2] == [(0, True), (1, False)]
    assert "its parent is not here" in drawn(trace)
    assert "its parent is not here" not in drawn(gather(SPANS)[0])


@given(
    st.lists(
        st.tuples(st.integers(0, 8), st.integers(0, 8), st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=12
    )
)
def test_every_span_is_drawn_once_whatever_points_at_whatever(pieces: list[tuple[int, int, int, int]]) -> None:
    found = [span(f"s{own}", a, a + b, f"s{parent}") for own, parent, a, b in pieces]
    (trace,) = gather(found)
    assert sorted(row.record.span_id for row in trace.rows) == sorted({each.span_id for each in found})
    assert len(trace.waterfall(80)) == len(trace.rows)
    assert all(len(line) <= 80 + 4 for line in trace.waterfall(80))


def test_the_waterfall_puts_bars_where_the_time_is() -> None:
    (trace,) = gather(SPANS)
    lines = trace.waterfall(60)
    bars = [(line.rstrip().index(mark), line.count(mark)) for line, mark in zip(lines, "███▒█", strict=True)]
    starts, lengths = zip(*bars, strict=True)
    assert list(starts) == sorted(starts[:3]) + list(starts[3:])
    assert starts[4] > starts[3] == starts[2]
    assert lengths[1] > lengths[2] > lengths[4] > lengths[3] > 0
    assert lines[0].endswith("1.0 s")


def test_what_a_line_says() -> None:
    (trace,) = gather(
        [
            span(
                "p", 0, 1, service="worker", status="error",
                links=(Link("f" * 32, "a" * 16),), notes=(Note("dead-lettered", 1),),
                attributes={"labkit.outcome": "dead", "error.type": "Poison", "labkit.receives": 3, "prompt": "secret"},
            )
        ]
    )  # fmt: skip
    assert trace_view.says(trace.rows[0]) == "worker, dead, Poison, receive 3, dead-lettered, linked with 1 other"


# -- finding ---------------------------------------------------------------------------------------------------------


def test_a_trace_is_found_by_w3cs_id_by_a_header_and_by_the_works_name() -> None:
    replay = TraceContext.root().trace_id
    held = [
        *SPANS,
        span("again", 100, 101, trace=replay),
        span("other", 0, 1, trace="e" * 32, attributes={"labkit.work": "x"}),
    ]
    for wanted in (T, T.upper(), f"  {T} ", f"00-{T}-00f067aa0ba902b7-01"):
        assert [each.trace_id for each in find(held, wanted)] == [T]
    assert [each.trace_id for each in find(held, "conv-1-step-1")] == [T, replay]  # the replay, too


def test_no_name_is_no_work() -> None:
    nameless = span("receive", 0, 1, attributes={"labkit.work": ""})
    for wanted in ("", "  "):
        with pytest.raises(TraceError, match="no span of"):
            find([nameless], wanted)


def test_a_name_out_of_a_message_steers_no_terminal() -> None:
    bad = "x\x1b]0;title\x07\x1b[2J\ny\u202e"
    trace = Trace(T, [span(bad, 0, 1, service=bad, attributes={"labkit.work": bad, "labkit.outcome": bad})])
    for text in (drawn(trace), "\n".join(trace.waterfall()), trace_view.says(trace.rows[0])):
        assert not set(text) & set("\x1b\x07\u202e")
    assert len(trace.waterfall()) == 1


def test_a_clock_that_was_set_back() -> None:
    trace = Trace(T, [span("back", 10, 4), span("child", 11, 12, "back")])
    assert trace.seconds == 2
    assert trace.own_seconds(trace.records[0]) == 0
    assert trace.waterfall()[0].endswith(" -6.0 s")
    assert Trace(T, [span("back", 10, 4)]).seconds == 0


def test_a_deep_trace_keeps_its_names() -> None:
    trace = Trace(T, [span(f"step-{n}", n, n + 1, f"step-{n - 1}" if n else "") for n in range(60)])
    assert [row.depth for row in trace.rows] == list(range(60))
    for text in (drawn(trace), "\n".join(trace.waterfall(80))):
        assert all(f"step-{n}" in text for n in range(60))
    assert "(59 deep) step-59" in drawn(trace)


def test_own_seconds_of_a_large_trace_look_at_ones_own_children_alone() -> None:
    trace = Trace(T, [span("top", 0, 1), *(span(f"s{n}", 0, 1, "top") for n in range(50))])
    trace.records = []  # not gone through again for each
    assert len(trace.children(span("top", 0, 1))) == 50


@pytest.mark.parametrize("wanted", ["nobody", "f" * 32, "", "conv-1", T[:-1]])
def test_what_is_not_there_is_said(wanted: str) -> None:
    with pytest.raises(TraceError, match=r"no span of .* in the 5 spans here"):
        find(SPANS, wanted)


# -- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tracing_files, "folder", lambda: tmp_path)
    with (
        Tracing.open("agent", folder=tmp_path, environ={}) as tracing,
        tracing.span("process", labkit__work="conv-1-step-1"),
        tracing.span("chat nova"),
    ):
        pass
    return tmp_path


def run(*words: str) -> tuple[int, str, Exception | None]:
    done = CliRunner().invoke(cli.app, ["trace", *words], env={"COLUMNS": "100"})
    return done.exit_code, done.stdout, done.exception  # type: ignore[return-value]


def test_the_command_draws_tree_and_waterfall(files: Path) -> None:
    code, said, _ = run("conv-1-step-1")
    assert code == 0
    assert "about conv-1-step-1" in said
    assert said.count("chat nova") == 2  # in the tree, and in the waterfall
    assert "█" in said
    (file,) = files.iterdir()
    assert run("conv-1-step-1", "--file", str(file))[:2] == (code, said)


def test_the_command_speaks_json(files: Path) -> None:
    code, said, _ = run("conv-1-step-1", "--json")
    (trace,) = json.loads(said)
    assert code == 0
    assert [(each["name"], each["depth"]) for each in trace["spans"]] == [("process", 0), ("chat nova", 1)]
    assert run(trace["trace_id"], "--json")[1] == said


def test_the_command_writes_to_a_terminal_without_bars(files: Path) -> None:
    command = [sys.executable, "-m", "labkit.cli", "trace", "conv-1-step-1", "--file", str(files)]
    done = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"chat nova" in done.stdout


def test_the_command_says_what_is_missing(files: Path) -> None:
    assert "no span of nobody in the 2 spans here" in str(run("nobody")[2])
    assert "there is no file or folder" in str(run("x", "--file", str(files / "none"))[2])


def test_the_command_reads_a_lab_that_is_open(lab: Lab, files: Path) -> None:
    with Tracing.open("starter", folder=files, environ={}) as tracing:
        definition = {"StartAt": "Only", "States": {"Only": {"Type": "Pass", "End": True}}}
        execution = tracing.start(Machine.create(lab, "m", definition), {})
        execution.wait(30)
        name = "start m"
    trace = next(each.trace_id for each in tracing_files.read(files) if each.name == name)
    code, said, _ = run(trace, "--lab", "test", "--json")
    assert code == 0
    assert [each["name"] for each in json.loads(said)[0]["spans"]] == ["start m", "m", "Only"]
    assert [each.name for each in tracing_lab.with_states(lab, [])] == []


def test_an_execution_that_is_gone_is_left_out(lab: Lab) -> None:
    gone = span("start", 0, 1, attributes={"labkit.execution": lab.arn("states", "execution:none:x")})
    assert tracing_lab.with_states(lab, [gone]) == [gone]
