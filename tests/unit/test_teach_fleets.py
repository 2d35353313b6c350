"""Simulated fleets, drawn: pictures with words made from the runs, three digits, knobs that all do something."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from labkit.models._input import ModelError
from labkit.models.fleet import Arrivals, Burst, Fleet, Run, StepTime, simulate
from labkit.models.keda import ScaledObject
from labkit.teach import fleets, widgets

pytestmark = pytest.mark.timeout(600)  # for the engines, which may have to be compiled

ONE = Arrivals(0.0, bursts=(Burst(at=0, seconds=1, rate=1),), regular=True)


@pytest.fixture(scope="module")
def run() -> Run:
    """One conversation of one step that takes 90 s."""
    return simulate(Fleet(ONE, StepTime.fixed(90), steps=1, slots=2, replicas=3), 600)


def test_a_run_is_a_picture_whose_words_come_from_it(run: Run) -> None:
    picture = fleets.plot(run, title="One message")
    assert picture.png.startswith(b"\x89PNG")
    assert picture.says == (
        "One message. Waiting (messages): from 0 to 0, highest 0 at 0 min. "
        "In flight (messages): in flight from 0 to 0, highest 1 at 1 min; "
        "slots of the ready pods from 6 to 6, highest 6 at 0 min. "
        "Replicas (pods): from 3 to 3, highest 3 at 0 min."
    )
    assert fleets.plot(run, title="One message").png == picture.png
    assert fleets.plot(run, says="My words.").says == "My words."


def test_several_runs_are_named_and_a_long_one_is_in_hours(run: Run) -> None:
    longer = simulate(run.fleet, 8 * 3600)
    picture = fleets.plot({"short": run, "long": longer}, panels=("in_flight", "open"))
    assert picture.says == (
        "In flight (messages): short from 0 to 0, highest 1 at 0.0167 h; long from 0 to 0, highest 1 at 0.0167 h. "
        "Open (conversations): short from 0 to 0, highest 1 at 0.0167 h; long from 0 to 0, highest 1 at 0.0167 h."
    )


def test_a_quota_that_all_share_is_marked() -> None:
    def fleet(quota: int) -> Run:
        return simulate(Fleet(ONE, StepTime.fixed(90), steps=1, slots=2, replicas=3, quota=quota), 600)

    assert "the line marks the model's quota, 4" in fleets.plot({"a": fleet(4), "b": fleet(4)}).says
    assert "quota" not in fleets.plot({"a": fleet(4), "b": fleet(5)}).says


def test_a_panel_that_there_is_not_is_refused(run: Run) -> None:
    with pytest.raises(ValueError, match=r"panels must be some of visible, .*; got depth\."):
        fleets.plot(run, panels=("depth",))


def test_figures_have_three_digits_and_what_is_counted_is_whole(run: Run) -> None:
    many = simulate(Fleet(Arrivals.constant(10), StepTime.fixed(5), steps=3, slots=10, replicas=20), 1234)
    table = fleets.figures({"one": run, "many": many}, {"steps": "steps", "pods_mean": "pods", "busy_mean": "busy"})
    assert table.headers == ["fleet", "steps", "pods", "busy"]
    assert many.figures["steps"] == 36_690
    assert table.cells == [["one", "1", "3", "0.15"], ["many", "36,700", "20", "149"]]


def test_the_engines_are_compiled_beside_something_else() -> None:
    thread = fleets.ahead()
    thread.join(500)
    assert not thread.is_alive()
    assert thread.daemon  # it does not hold up who wants to leave


def test_what_is_drawn_with_is_loaded_beside_it() -> None:
    code = (
        "import sys; from labkit.teach import fleets\n"
        "fleets.ahead().join(500)\n"
        "missing = {'matplotlib.figure', 'pandas', 'numba'} - set(sys.modules)\n"
        "assert not missing, missing"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=550)


# The knobs


@pytest.fixture(scope="module")
def explorer() -> widgets.Explorer:
    return fleets.explorer()


@cache
def seen(explorer: widgets.Explorer, **other: Any) -> str:
    usual = {name: control.start for name, control in explorer.controls.items()}
    return "\n".join(map(repr, explorer.function(**(usual | other))))


@pytest.mark.parametrize(
    ("knob", "value", "beside"),
    [
        ("minimum", 5, {}),
        ("maximum", 100, {}),
        ("queue_length", 5, {}),
        ("activation", 100, {}),
        ("in_flight", False, {}),
        ("polling", 300, {}),
        ("cooldown", 0, {"queue_length": 30, "activation": 100}),
        ("start", 600, {}),
        ("grace", 0, {}),
        ("behaves", False, {"down": 5}),
        ("up", 10, {}),
        ("up_window", 600, {}),
        ("down", 5, {}),
        ("period", 600, {"down": 20}),
        ("window", 1800, {}),
    ],
)
def test_every_knob_does_something(explorer: widgets.Explorer, knob: str, value: Any, beside: dict[str, Any]) -> None:
    assert seen(explorer, **beside, **{knob: value}) != seen(explorer, **beside)


def test_there_is_a_case_for_every_knob_and_one_for_every_setting_of_a_queue(explorer: widgets.Explorer) -> None:
    [cases] = [mark.args[1] for mark in test_every_knob_does_something.pytestmark]  # type: ignore[attr-defined]
    assert [case[0] for case in cases] == list(explorer.controls)
    # What a fallback, an idle count and delayed messages need is not in this fleet.
    fields = set(ScaledObject.__dataclass_fields__) - {"fallback", "idle", "delayed", "initial_cooldown", "behavior"}
    assert fields <= set(explorer.controls)


def test_it_shows_its_start_and_refuses_what_cannot_be(explorer: widgets.Explorer) -> None:
    assert repr(explorer.static[-1]) == seen(explorer).splitlines()[-1]
    assert repr(explorer.static[0]).startswith("95 % waited ")
    with pytest.raises(ModelError, match="minimum must be a whole number from 0 to 20; got 21"):
        seen(explorer, maximum=20, minimum=21)


def test_nothing_heavy_is_imported_before_it_is_needed() -> None:
    code = (
        "import sys, labkit.teach.fleets\n"
        "heavy = {'matplotlib', 'pandas', 'numpy', 'numba', 'ipywidgets'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
