"""Explorers: a static result everywhere, knobs where a front end is there, a sentence for what cannot be."""

from __future__ import annotations

import pytest

from labkit.models.queue_life import live
from labkit.teach import _front, plots, widgets
from labkit.teach.picture import Picture
from labkit.teach.widgets import explore, pick, slider, switch


def test_live_is_said_by_the_environment_else_static(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LABKIT_STATIC", raising=False)
    assert not _front.is_live()  # no kernel here
    monkeypatch.setenv("LABKIT_STATIC", "0")
    assert _front.is_live()
    monkeypatch.setenv("LABKIT_STATIC", "1")
    monkeypatch.setenv("JPY_SESSION_NAME", "x.ipynb")
    assert not _front.is_live()


def test_the_static_form_says_for_which_values() -> None:
    shown = explore(lambda n, on, name: f"{n} {on} {name}", n=slider("size", "KiB", 1, 9, 3), on=switch("beat"),
                    name=pick("kind", ["a", "b"]))  # fmt: skip
    assert repr(shown).splitlines() == [
        "3 False a",
        "Shown for size 3 KiB, beat: off, kind a. Run this cell in JupyterLab to turn the knobs.",
    ]


def test_turning_a_knob_draws_again() -> None:
    view = explore(lambda n: f"n is {n}", n=slider("n", "", 0, 9, 3)).build()
    knob, area = view.children
    assert area.value == "<div><p>n is 3</p></div>"
    assert knob.description == "n"
    knob.value = 7
    assert area.value == "<div><p>n is 7</p></div>"


def test_what_cannot_be_shows_its_sentence_and_the_knobs_stay() -> None:
    view = explore(
        lambda v: plots.timeline(live(visibility=v, step=3)), v=slider("visibility", "s", 0, 90_000, 30)
    ).build()
    knob, area = view.children
    assert 'alt="Receive 1' in area.value
    knob.value = 90_000
    assert "visibility must be from 0 to 43200 s" in area.value
    knob.value = 60
    assert "<img" in area.value


def test_visibility_explorer_starts_with_the_slow_worker_and_its_cures_work() -> None:
    shown = widgets.visibility_explorer()
    picture, verdict = shown.static
    assert isinstance(picture, Picture)
    assert repr(verdict) == "Started 4 times, finished 4 times; the message is dead-lettered."
    cured = shown.function(step=900, visibility=720, heartbeat=True, crash=False, after=0, receives=4)
    assert isinstance(cured, tuple)
    assert cured[1] == "Started once, finished once; the message is deleted."


def test_size_explorer_counts_bytes_not_letters() -> None:
    shown = widgets.size_explorer()
    assert "Too large for the state" in repr(shown)
    for letters in ("English (1 byte a letter)", "emoji (4 bytes)"):
        result = shown.function(kib=100, letters=letters, entries=25)
        assert isinstance(result, tuple)
        assert result[1] == "Fits everywhere. 25 of them go in 3 PutEvents requests."


@pytest.mark.parametrize("make", [lambda: slider("n", "", 1, 2, 3), lambda: pick("n", [1], 2)])
def test_a_start_outside_the_range_is_named(make) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(ValueError, match="n: start must be"):
        make()
