"""Plots: a PNG and the words that say the same, no figure left open, no pyplot needed."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from labkit.models.queue_life import Heartbeat, live
from labkit.teach import plots

MAKERS: dict[str, Callable[[], plots.Picture]] = {
    "timeline": lambda: plots.timeline(live(visibility=720, step=[900, 600]), title="Case C"),
    "timeline of a poison message": lambda: plots.timeline(live(visibility=30, step=9, crash=5, retention=3600)),
    "timeline with heartbeat": lambda: plots.timeline(live(visibility=60, step=900, heartbeat=Heartbeat(20, 60))),
    "bars": lambda: plots.bars({"bus": 12.5, "state": 130}, label="share (%)", ceiling=(100, "limit")),
    "grouped bars": lambda: plots.bars({"step 9": {"restart": 21, "resume": 13}}, label="steps paid"),
    "steps": lambda: plots.steps([0, 1, 2], {"depth": [0, 5, 1]}, xlabel="s", ylabel="messages", marks=[(1, "now")]),
    "curve": lambda: plots.curve([1, 2], {"a": [1, 4], "b": [2, 3]}, xlabel="x", ylabel="y", ceiling=(3, "cap")),
    "histogram": lambda: plots.histogram([1, 2, 2, 3, 9], xlabel="time (s)", ceiling=(4, "timeout")),
}


@pytest.mark.parametrize("name", MAKERS)
def test_each_is_a_png_with_words(name: str) -> None:
    picture = MAKERS[name]()
    assert picture.png.startswith(b"\x89PNG")
    assert len(picture.png) < 150_000
    data, metadata = picture.bundle()
    assert data["text/plain"] == metadata["image/png"]["alt"] == repr(picture)
    assert metadata["image/png"]["width"] == 720
    assert 'alt="' in picture.to_html()
    again = MAKERS[name]()
    assert again.says == picture.says
    assert again.png == picture.png


def test_the_words_are_made_from_the_data() -> None:
    assert MAKERS["timeline"]().says == (
        "Case C. Receive 1 at 0 s by worker 1, visible again at 720 s, late delete, removes nothing at 900 s. "
        "Receive 2 at 720 s by worker 2, deleted at 1,320 s. The message is deleted at 1,320 s."
    )
    assert "120 receives in all. The message has expired at 3,600 s." in MAKERS["timeline of a poison message"]().says
    assert "state: 130 (over)" in MAKERS["bars"]().says
    assert "20 % are over timeout (4)" in MAKERS["histogram"]().says
    assert plots.bars({"a": 1}, label="x", says="My words.").says == "My words."


def test_counts_have_no_marks_between_whole_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    marks: dict[str, list[float]] = {}

    def keep(figure: Any, says: str) -> plots.Picture:
        marks[says] = list(figure.axes[0].get_xticks())
        return plots.Picture(b"", says, 720)

    monkeypatch.setattr(plots.Picture, "of", keep)
    plots.bars({"bad input": 1, "unknown": 4}, label="letters", says="counts")
    plots.bars({"bus": 0.5, "queue": 1.0}, label="share", says="shares")
    assert all(mark.is_integer() for mark in marks["counts"])
    assert not all(mark.is_integer() for mark in marks["shares"])


def test_measured_rows_draw_too() -> None:
    rows = [
        {"number": 1, "worker": "a", "received_at": 0, "visible_again_at": 2, "outcome": "crashed", "crashed_at": 1},
        {"number": 2, "worker": "b", "received_at": 2, "finished_at": 3, "outcome": "deleted"},
    ]
    assert "by worker b, deleted at 3 s" in plots.timeline(rows).says
    with pytest.raises(ValueError, match="outcome must be one of"):
        plots.timeline([{"received_at": 0, "outcome": "lost"}])
    with pytest.raises(ValueError, match="at least one"):
        plots.timeline([])
    with pytest.raises(ValueError, match="unit must be"):
        plots.timeline(rows, unit="fortnight")


def test_a_figure_of_your_own_is_closed_and_needs_words() -> None:
    from matplotlib import pyplot

    with plots.style():
        figure, axes = pyplot.subplots()
        axes.plot([1, 2])
    with pytest.raises(ValueError, match="says"):
        plots.picture(figure, " ")
    assert plots.picture(figure, "A line.").says == "A line."
    assert pyplot.get_fignums() == []


def test_imports_stay_light() -> None:
    code = (
        "import sys, labkit, labkit.teach, labkit.teach.plots, labkit.teach.widgets, labkit.teach.show\n"
        "import labkit.models.queue_life, labkit.models.chains, labkit.models.retry, labkit.models.sizes\n"
        "heavy = {'matplotlib', 'pandas', 'ipywidgets', 'numpy', 'IPython', 'boto3'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_legend_has_the_colours_of_the_series_also_where_the_first_bar_is_red(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown: list[Any] = []

    def keep(figure: Any, says: str) -> plots.Picture:
        shown.extend(handle.get_facecolor() for handle in figure.axes[0].get_legend().get_patches())
        return plots.Picture(b"", says, 720)

    monkeypatch.setattr(plots.Picture, "of", keep)
    for first in (12, 2):  # over the ceiling, and under it
        plots.bars({"a": {"x": first, "y": 3}}, label="n", ceiling=(10, "cap"))
    assert shown[:2] == shown[2:]
    assert shown[0] != shown[1]
