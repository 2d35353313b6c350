"""The simulated fleet: against queueing theory, against simpy, one engine against the other, and nothing lost."""

from __future__ import annotations

import importlib
import math
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import labkit
from labkit.errors import SetupError
from labkit.models._input import ModelError
from labkit.models.fleet import FIGURES, Arrivals, Fleet, Run, StepTime, simulate
from labkit.models.hpa import Behavior, Rules
from labkit.models.keda import ScaledObject
from labkit.models.retry import Exponential, Fixed, Jitter
from tests.benchmarks.simpy_fleet import play

# Whichever comes first compiles the engines: half a minute of two free cores, where there are any.
pytestmark = pytest.mark.timeout(600)

HOUR = 3600
ENGINES = ("exact", "ticks")
SLEEPY = ScaledObject(queue_length=8, minimum=0, maximum=5000)
# With the usual tolerance of 10 % it is chance at which of two numbers of pods a fleet stays: see below.
EXACTING = replace(SLEEPY, behavior=Behavior(Rules(tolerance=0.0), Rules(tolerance=0.0)))


def near(exact: Run, ticks: Run, name: str) -> bool:
    """Within 1 %; a time also within one tick; and what is less than a thousandth of the fleet is next to nothing."""
    a, b = exact.figures[name], ticks.figures[name]
    unit = FIGURES[name][0]
    size = {"": exact.figures["steps"], "messages": exact.figures["in_flight_mean"]}.get(unit, 0.0)
    room = 1.0 if unit == "s" else size / 1000 if name != "utilisation" else 0.0
    return abs(a - b) <= max(0.01 * max(a, b), room)


# Large enough for chance not to make a per cent: at 3,000 of something its own standard deviation is 1.8 %.
FLEETS = {
    "a day of the worked fleet, with the sun": (
        Fleet(Arrivals.diurnal(500 / 60), StepTime.lognormal(90), scaler=EXACTING),
        24 * HOUR,
    ),
    "a burst on a fleet that stays as it is": (
        Fleet(Arrivals.poisson(15).burst(HOUR, HOUR / 2, 60), StepTime.lognormal(60), replicas=1700),
        4 * HOUR,
    ),
    "steps outlive their visibility": (
        Fleet(
            Arrivals.poisson(30).burst(HOUR / 2, HOUR / 2, 15), StepTime.lognormal(90), replicas=4500, visibility=180,
            heartbeat=False, max_receives=4,
        ),
        3 * HOUR,
    ),
    "three in ten fail": (
        Fleet(
            Arrivals.poisson(30), StepTime.exponential(60), replicas=5000, fails=0.3, max_receives=3,
            retry=Exponential(20),
        ),
        2 * HOUR,
    ),
    "past the model's quota": (
        Fleet(Arrivals.poisson(30), StepTime.lognormal(60), replicas=4000, quota=22_000, retry=Fixed(30)),
        2 * HOUR,
    ),
    "gated at the model's quota": (
        Fleet(Arrivals.poisson(30), StepTime.lognormal(60), replicas=4000, quota=14_000, gated=True),
        2 * HOUR,
    ),
    "at the cap of messages in flight": (
        Fleet(Arrivals.poisson(30), StepTime.fixed(60), replicas=4000, cap=14_000),
        2 * HOUR,
    ),
    "pods crash": (
        Fleet(Arrivals.poisson(8), StepTime.lognormal(60), replicas=900, crashes=48, visibility=60, fails=0.05),
        4 * HOUR,
    ),
    "scaled in, with a minute's grace": (
        Fleet(Arrivals.poisson(5).burst(0, HOUR, 25), StepTime.lognormal(200), scaler=replace(EXACTING, maximum=12_000),
              grace=60),
        4 * HOUR,
    ),
    "scaled in, with a minute's grace and without a heartbeat": (
        Fleet(Arrivals.poisson(5).burst(0, HOUR, 25), StepTime.lognormal(200), scaler=replace(EXACTING, maximum=12_000),
              grace=60, heartbeat=False, visibility=400, max_receives=10),
        4 * HOUR,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FLEETS)
def test_the_engines_agree_on_every_figure(name: str) -> None:
    fleet, seconds = FLEETS[name]
    exact, ticks = (simulate(fleet, seconds, engine=engine, seed=5) for engine in ENGINES)
    far = {
        figure: (exact.figures[figure], ticks.figures[figure]) for figure in FIGURES if not near(exact, ticks, figure)
    }
    assert not far
    assert exact.lost == 0
    assert abs(ticks.lost) < 1e-6


def test_within_the_autoscaler_s_tolerance_the_engines_differ_as_seeds_do() -> None:
    """How many pods a fleet stays at is decided by which side of 10 % one look falls on."""
    fleet = Fleet(Arrivals.diurnal(500 / 60), StepTime.lognormal(90), scaler=SLEEPY)
    exact, ticks = ([simulate(fleet, 12 * HOUR, seed=s, engine=engine) for s in range(3)] for engine in ENGINES)
    for figure in ("steps", "in_flight_mean", "in_flight_peak", "pods_mean", "pod_hours", "utilisation"):
        means = [float(np.mean([run.figures[figure] for run in runs])) for runs in (exact, ticks)]
        assert means[0] == pytest.approx(means[1], rel=0.01), figure
    peaks = [[run.figures["pods_peak"] for run in runs] for runs in (exact, ticks)]
    assert max(peaks[0]) > 1.01 * min(peaks[0])
    assert np.mean(peaks[0]) == pytest.approx(np.mean(peaks[1]), rel=0.05)


def erlang_wait(rate: float, mean: float, servers: int) -> float:
    """Mean wait of M/M/c (Erlang C), by the recursion of Erlang B."""
    load = rate * mean
    blocked = 1.0
    for n in range(1, servers + 1):
        blocked = load * blocked / (n + load * blocked)
    waits = blocked / (1 - load / servers * (1 - blocked))
    return waits * mean / (servers - load)


@pytest.mark.parametrize("engine", ENGINES)
def test_waits_are_those_of_the_formula(engine: str) -> None:
    fleet = Fleet(Arrivals.poisson(1.0), StepTime.exponential(60), steps=1, slots=1, replicas=64)
    runs = [simulate(fleet, 24 * HOUR * 7, engine=engine, seed=seed) for seed in range(4)]  # type: ignore[arg-type]
    wait = float(np.mean([run.figures["wait_mean"] for run in runs]))
    assert wait == pytest.approx(erlang_wait(1.0, 60, 64), rel=0.1)
    assert np.mean([run.figures["busy_mean"] for run in runs]) == pytest.approx(60, rel=0.01)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("shape", ["fixed", "exponential", "lognormal"])
def test_in_flight_is_littles_law_whatever_the_distribution(engine: str, shape: str) -> None:
    fleet = Fleet(Arrivals.poisson(20), getattr(StepTime, shape)(30), steps=3, replicas=300)
    run = simulate(fleet, 6 * HOUR, engine=engine)  # type: ignore[arg-type]
    assert fleet.in_flight == 1800
    later = run.frame.loc[600:]
    assert later["in_flight"].mean() == pytest.approx(1800, rel=0.01)
    assert run.figures["conversation_mean"] == pytest.approx(3 * 30 + 2 * fleet.hop, rel=0.02)


@pytest.mark.parametrize(("engine", "rate"), [("exact", 2), ("ticks", 0.3), ("ticks", 30), ("ticks", 3000)])
def test_what_is_in_flight_fluctuates_as_a_poisson_number_does(engine: str, rate: float) -> None:
    """M/G/∞: the number in service is Poisson distributed, whatever the service time."""
    fleet = Fleet(Arrivals.poisson(rate), StepTime.lognormal(60), steps=1, slots=1000, replicas=1000, cap=10**9)
    frame = simulate(fleet, 24 * HOUR, engine=engine, seed=4).frame.loc[1800:]  # type: ignore[arg-type]
    assert frame["in_flight"].mean() == pytest.approx(60 * rate, rel=0.02)
    assert frame["in_flight"].std() == pytest.approx(math.sqrt(60 * rate), rel=0.12)


@pytest.mark.parametrize("fails", [0.0, 0.2])
def test_simpy_sees_the_same_fleet(fails: float) -> None:
    fleet = Fleet(
        Arrivals.poisson(0.5), StepTime.lognormal(20), steps=4, slots=1, replicas=46, fails=fails, max_receives=3,
        retry=Fixed(5),
    )  # fmt: skip
    if fails:
        fleet = replace(fleet, replicas=57)
    theirs = [play(fleet, 6 * HOUR, seed) for seed in range(3)]
    for engine in ENGINES:
        ours = [simulate(fleet, 6 * HOUR, engine=engine, seed=seed).figures for seed in range(3)]  # type: ignore[arg-type]
        for name in ("steps", "runs", "done"):
            a, b = (sum(each[name] for each in them) for them in (ours, theirs))
            assert a == pytest.approx(b, rel=0.02), (engine, name)
        a, b = (float(np.mean([each["wait_mean"] for each in them])) for them in (ours, theirs))
        assert a == pytest.approx(b, rel=0.35), engine  # a wait of a second near full load: seeds differ by so much
        if fails:
            dead = [sum(each["dead"] for each in them) for them in (ours, theirs)]
            assert dead[0] == pytest.approx(dead[1], rel=0.2)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_seed_is_a_run(engine: str) -> None:
    fleet = Fleet(Arrivals.poisson(2), StepTime.lognormal(30), scaler=SLEEPY, fails=0.1, crashes=5)
    one, again, other = (simulate(fleet, HOUR, seed=seed, engine=engine) for seed in (1, 1, 2))  # type: ignore[arg-type]
    assert one.figures == again.figures
    assert one.frame.equals(again.frame)
    assert one.changes == again.changes
    assert one.figures != other.figures


fleets = st.builds(
    Fleet,
    arrivals=st.builds(
        Arrivals.poisson, st.floats(0.0, 3.0)
    ) | st.builds(lambda mean, at, rate: Arrivals.constant(mean).burst(at, 120, rate),
                  st.floats(0.0, 1.0), st.floats(0, 900), st.floats(0, 5)),
    step_time=st.one_of(
        st.builds(StepTime.fixed, st.floats(1, 200)),
        st.builds(StepTime.lognormal, st.floats(1, 200), st.floats(0.05, 2)),
        st.builds(StepTime.of, st.lists(st.floats(1, 300), min_size=1, max_size=5)),
    ),
    steps=st.integers(1, 6),
    slots=st.integers(1, 12),
    replicas=st.integers(0, 30),
    scaler=st.none() | st.builds(
        ScaledObject, queue_length=st.integers(1, 20), minimum=st.integers(0, 2), maximum=st.integers(2, 40),
        cooldown=st.integers(0, 120), polling=st.integers(1, 60),
    ),
    start=st.integers(0, 90),
    grace=st.integers(0, 120),
    visibility=st.integers(1, 150),
    heartbeat=st.booleans(),
    fails=st.sampled_from([0.0, 0.1, 0.9, 1.0]),
    crashes=st.sampled_from([0.0, 20.0, 100.0]),
    retry=st.builds(Fixed, st.integers(0, 60)) | st.just(Exponential(5)),
    max_receives=st.integers(1, 6),
    quota=st.integers(1, 100),
    gated=st.booleans(),
    throttle=st.integers(1, 5),
    hop=st.integers(1, 5),
    cap=st.integers(1, 300),
)  # fmt: skip


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(fleet=fleets, seed=st.integers(0, 3), engine=st.sampled_from(ENGINES))
def test_nothing_is_lost_in_any_fleet(fleet: Fleet, seed: int, engine: str) -> None:
    run = simulate(fleet, 1800, seed=seed, engine=engine)  # type: ignore[arg-type]
    dust, figures, frame = 1e-6, run.figures, run.frame
    assert abs(run.lost) <= dust
    assert (frame.drop(columns="wait") >= -dust).all().all()
    if not math.isinf(fleet.cap):
        assert frame["in_flight"].max() <= fleet.cap + dust
    assert frame["visible"].max() + frame["in_flight"].max() <= 2 * figures["conversations"] + dust
    assert figures["steps"] <= figures["runs"] + dust
    ended = figures["steps"] + figures["failed"] + figures["superseded"]
    assert ended + frame["busy"].iloc[-1] + figures["killed"] >= figures["runs"] - dust
    if fleet.gated or fleet.quota is None:
        assert figures["throttled"] <= dust
    if fleet.heartbeat:
        assert figures["superseded"] <= dust
    if fleet.fails == 1.0:
        assert figures["steps"] <= dust
    if fleet.scaler and fleet.replicas is not None:
        assert frame["pods"].max() <= max(fleet.scaler.maximum, fleet.replicas)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_step_that_always_outlives_its_visibility_ends_in_the_dead_letter_queue(engine: str) -> None:
    fleet = Fleet(
        Arrivals.constant(0.1), StepTime.fixed(100), steps=3, replicas=20, visibility=60, heartbeat=False,
        max_receives=4,
    )  # fmt: skip
    run = simulate(fleet, HOUR, engine=engine)  # type: ignore[arg-type]
    beating = simulate(replace(fleet, heartbeat=True), HOUR, engine=engine)  # type: ignore[arg-type]
    assert beating.figures["dead"] == beating.figures["superseded"] == 0
    # With free slots each expired message is received again at once, or goes to the dead-letter queue.
    assert run.figures["steps"] == 0
    assert run.figures["dead"] == pytest.approx(run.figures["conversations"], rel=0.08)
    assert run.figures["superseded"] == pytest.approx(4 * run.figures["conversations"], rel=0.06)


@pytest.mark.parametrize("engine", ENGINES)
def test_grace_longer_than_any_step_kills_nothing(engine: str) -> None:
    fleet = Fleet(Arrivals.poisson(1).burst(0, 1200, 10), StepTime.fixed(60), scaler=SLEEPY, grace=61)
    kind = simulate(fleet, 2 * HOUR, engine=engine)  # type: ignore[arg-type]
    harsh = simulate(replace(fleet, grace=0), 2 * HOUR, engine=engine)  # type: ignore[arg-type]
    assert any(change.after < change.before for change in kind.changes)
    assert kind.figures["killed"] == 0
    assert harsh.figures["killed"] > 100
    assert harsh.figures["runs"] > kind.figures["runs"] + 100


def test_pods_that_start_slowly_let_the_queue_grow() -> None:
    fleet = Fleet(Arrivals.constant(5), StepTime.fixed(30), scaler=SLEEPY, start=0)
    fast, slow = (simulate(replace(fleet, start=start), HOUR) for start in (0, 300))
    assert slow.figures["visible_peak"] > 3 * fast.figures["visible_peak"]
    first = slow.frame.index[slow.frame["ready"] > 0][0] - slow.frame.index[slow.frame["pods"] > 0][0]
    assert first == 300


def test_past_the_quota_pressure_becomes_dead_letters_and_a_gate_keeps_it_in_the_queue() -> None:
    fleet = Fleet(
        Arrivals.poisson(8), StepTime.lognormal(60), replicas=1000, quota=5000, max_receives=3, retry=Fixed(10)
    )
    wild, gated = simulate(fleet, HOUR), simulate(replace(fleet, gated=True), HOUR)
    assert wild.figures["dead"] > 1000
    assert gated.figures["dead"] == gated.figures["throttled"] == 0
    assert gated.figures["visible_peak"] > 1000 > wild.figures["visible_peak"]


def test_the_frame_adds_up_to_the_figures() -> None:
    run = simulate(Fleet(Arrivals.poisson(2), StepTime.lognormal(30), scaler=SLEEPY, fails=0.1), HOUR, every=30)
    frame = run.frame
    assert list(frame.index[:3]) == [0, 30, 60]
    assert frame.index[-1] == HOUR
    for name in ("done", "steps", "runs", "failed"):
        assert frame[name].sum() == pytest.approx(run.figures[name])
    assert frame["arrived"].sum() == run.figures["conversations"]
    assert frame["pods"].max() == run.figures["pods_peak"]
    received = frame["runs"] + frame["throttled"]
    assert (frame["wait"] * received).sum() / received.sum() == pytest.approx(run.figures["wait_mean"])


def test_the_autoscaler_is_asked_as_often_as_it_looks() -> None:
    fleet = Fleet(Arrivals.constant(1), StepTime.fixed(30), scaler=ScaledObject(queue_length=10, minimum=0))
    changes = simulate(fleet, HOUR).changes
    assert (changes[0].at, changes[0].by, changes[0].after) == (30, "KEDA", 1)  # nothing is there yet at second 0
    assert (changes[1].at, changes[1].by) == (30, "HPA")  # both begin at second 0


class TestArrivals:
    def test_regular_ones_lose_nothing_to_rounding(self) -> None:
        for rate in (0.1, 1 / 3, 500 / 60):
            assert Arrivals.constant(rate).counts(86_400, np.random.default_rng(5)).sum() == round(rate * 86_400)

    def test_the_wave_changes_the_hours_and_not_the_day(self) -> None:
        rates = Arrivals.diurnal(10, swing=0.6, peak=14 * HOUR).rates(86_400)
        assert rates.sum() == pytest.approx(864_000)
        assert rates.argmax() in (14 * HOUR - 1, 14 * HOUR)
        assert (rates.max(), rates.min()) == (pytest.approx(16), pytest.approx(4))

    def test_a_burst_adds_its_own(self) -> None:
        calm = Arrivals.constant(1)
        assert calm.burst(100, 50, 3).rates(300).sum() == 300 + 150

    def test_poisson_arrivals_vary_as_much_as_their_mean(self) -> None:
        counts = Arrivals.poisson(9).counts(86_400, np.random.default_rng(5))
        assert counts.var() == pytest.approx(9, rel=0.05)


class TestStepTime:
    @pytest.mark.parametrize(
        "times", [StepTime.fixed(90), StepTime.exponential(90), StepTime.lognormal(90, 1.5), StepTime.of([30, 60, 180])]
    )
    def test_draws_and_quantiles_have_the_same_mean_and_spread(self, times: StepTime) -> None:
        draws, table = times.draw(np.random.default_rng(6), 400_000), times.quantiles()
        assert table.mean() == pytest.approx(90, rel=1e-4)
        assert draws.mean() == pytest.approx(90, rel=0.02)
        assert table.std() == pytest.approx(draws.std(), rel=0.05)

    def test_the_share_over_a_timeout_is_the_distribution_s_own(self) -> None:
        assert StepTime.exponential(60).share_over(120) == pytest.approx(math.exp(-2), rel=0.01)
        sigma = math.sqrt(math.log(1 + 0.8**2))
        z = (math.log(180) - math.log(90) + sigma**2 / 2) / sigma
        assert StepTime.lognormal(90, 0.8).share_over(180) == pytest.approx(math.erfc(z / math.sqrt(2)) / 2, rel=0.01)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"arrivals": lambda: Arrivals.poisson(-1)}, "mean must be from 0"),
        ({"step_time": lambda: StepTime.fixed(0.2)}, "mean must be from 1"),
        ({"step_time": lambda: StepTime.of([])}, "at least one"),
        ({"steps": 0}, "steps must be a whole number"),
        ({"visibility": 43_201}, "visibility must be a whole number from 1 to 43200"),
        ({"fails": 1.5}, "fails must be from 0 to 1"),
        ({"gated": True}, "gated must come with a quota"),
        ({"replicas": None}, "replicas must be given"),
        ({"max_receives": 51}, "max_receives"),
        ({"retry": Fixed(50_000)}, "retry must be from 0 to 43200"),
    ],
)
def test_what_cannot_be_is_refused(wrong: dict[str, object], sentence: str) -> None:
    asked = {"arrivals": Arrivals.poisson(1), "step_time": StepTime.fixed(10), "replicas": 1}
    with pytest.raises(ModelError, match=sentence):
        Fleet(
            **{
                **asked,
                **{name: value() if callable(value) and name != "retry" else value for name, value in wrong.items()},
            }
        )  # type: ignore[arg-type]


def test_a_run_that_cannot_be_is_refused() -> None:
    fleet = Fleet(Arrivals.poisson(1), StepTime.fixed(10), replicas=1)
    with pytest.raises(ModelError, match="engine must be one of ticks, exact"):
        simulate(fleet, 60, engine="fast")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="seconds must be"):
        simulate(fleet, 0)
    with pytest.raises(ModelError, match="use ticks"):
        simulate(replace(fleet, arrivals=Arrivals.poisson(1000)), 86_400, engine="exact")


RATHER = Fleet(
    Arrivals.poisson(2), StepTime.lognormal(30), steps=4, replicas=40, crashes=100, start=10, fails=0.1, max_receives=3
)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("every", [1, 7, 3600])
def test_how_often_a_sample_is_taken_changes_no_figure(engine: str, every: int) -> None:
    usual, other = (simulate(RATHER, 5000, every=each, engine=engine) for each in (60, every))  # type: ignore[arg-type]
    peaks = [name for name in FIGURES if name.endswith("_peak")]
    for name in FIGURES:
        if name not in peaks:
            assert other.figures[name] == pytest.approx(usual.figures[name], rel=1e-6, abs=1e-6), name
    assert other.frame.index[-1] == 5000
    assert other.frame["runs"].sum() == pytest.approx(other.figures["runs"])
    assert abs(other.lost) < 1e-6


@pytest.mark.parametrize("engine", ENGINES)
def test_a_pod_that_crashed_is_back_when_it_has_started(engine: str) -> None:
    """100 a day, each away for 10 s: of 40 pods 39.5 are ready on average, however seldom anybody looks."""
    run = simulate(replace(RATHER, fails=0.0), 6 * HOUR, every=3600, engine=engine)  # type: ignore[arg-type]
    ready = run.figures["busy_mean"] / run.figures["utilisation"] / RATHER.slots
    assert ready == pytest.approx(40 * (1 - 100 * 10 / 86_400), rel=0.005)


@pytest.mark.parametrize("engine", ENGINES)
def test_after_a_run_that_was_broken_off_the_next_one_is_the_same(engine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from labkit.models.fleet.report import Recorder

    first = simulate(RATHER, 600, engine=engine)  # type: ignore[arg-type]

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "passed", interrupted)
        with pytest.raises(KeyboardInterrupt):
            simulate(RATHER, 600, engine=engine)  # type: ignore[arg-type]
    assert simulate(RATHER, 600, engine=engine).figures == first.figures  # type: ignore[arg-type]


def bytes_held(fleet: Fleet, seconds: int) -> int:
    """The most that numpy holds at once during a run."""
    tracemalloc.start()
    try:
        simulate(fleet, seconds, every=3600)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_fleet_that_sleeps_through_a_month_without_work_takes_no_more_than_one_hour_of_it() -> None:
    asleep = Fleet(Arrivals.constant(0), StepTime.fixed(10), replicas=0)
    bare = 40 * 31 * 86_400  # arrivals and waits of each second, and their making
    assert bytes_held(asleep, 31 * 86_400) < bytes_held(asleep, HOUR) + bare


def test_steps_that_outlive_the_run_take_no_room_beyond_it() -> None:
    """The longest of such steps takes a year; a ring of its seconds would be 5 GB."""
    endless = Fleet(Arrivals.poisson(1), StepTime.lognormal(86_400, 5), replicas=100, visibility=43_200)
    assert endless.step_time.quantiles().max() > 300 * 86_400
    assert bytes_held(endless, HOUR) < 100e6
    exact, ticks = (simulate(replace(endless, replicas=1000), HOUR, engine=engine) for engine in ENGINES)  # type: ignore[arg-type]
    assert ticks.figures["steps"] == pytest.approx(exact.figures["steps"], rel=0.1)
    assert ticks.figures["in_flight_mean"] == pytest.approx(exact.figures["in_flight_mean"], rel=0.05)


def test_a_run_that_would_take_more_than_there_is_says_so_at_once() -> None:
    fleet = Fleet(
        Arrivals.poisson(1), StepTime.lognormal(86_400, 5), steps=1000, max_receives=50, replicas=1, retry=Fixed(1)
    )
    with pytest.raises(ModelError, match="the tick engine holds 4 GB at most, and this run takes"):
        simulate(fleet, 31 * 86_400)
    with pytest.raises(ModelError, match="the exact engine holds 20,000,000 slots at most; here are 1,000,000,000"):
        simulate(replace(fleet, steps=1, replicas=10**6, slots=1000), 60, engine="exact")


@pytest.mark.parametrize("heartbeat", [True, False])
def test_messages_of_killed_workers_come_back_as_late_as_in_the_exact_engine(heartbeat: bool) -> None:
    """With hours of timeout too, in which there is no time for a sum over all pairs of seconds."""
    fleet = Fleet(
        Arrivals.poisson(4), StepTime.lognormal(300), steps=2, replicas=400, crashes=40, visibility=20_000,
        heartbeat=heartbeat,
    )  # fmt: skip
    exact, ticks = (simulate(fleet, 8 * HOUR, engine=engine).figures for engine in ENGINES)  # type: ignore[arg-type]
    for name in ("killed", "runs", "in_flight_mean", "done"):
        assert ticks[name] == pytest.approx(exact[name], rel=0.03), name


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"arrivals": 3}, r"arrivals must be made as in Arrivals.poisson\(2.5\); got 3"),
        ({"step_time": 30}, "step_time must be made as in StepTime.lognormal"),
        ({"scaler": {"queue_length": 8}}, "scaler must be made as in ScaledObject"),
        ({"scaler": ScaledObject(maximum=10**8)}, "the scaler's maximum must be a whole number from 1 to 1e"),
        ({"retry": 30}, r"retry must be made as in Fixed\(30\); got 30"),
        ({"retry": Fixed(math.inf)}, "retry must be from 0 to 43200 s; got inf"),
        ({"retry": Exponential(1, 1e300)}, "retry must be from 0 to 43200 s"),
        ({"retry": Jitter(Fixed(30))}, "give its Jitter a seed"),
        ({"heartbeat": "no"}, "heartbeat must be True or False; got 'no'"),
        ({"gated": 1, "quota": 5}, "gated must be True or False; got 1"),
        ({"quota": 10**30}, "quota must be a whole number from 1 to 1e"),
        ({"cap": 2**63}, "cap must be a whole number from 1 to 1e"),
        ({"replicas": 10**9}, "replicas must be a whole number from 0 to 1e"),
    ],
)
def test_what_is_of_another_kind_is_refused(wrong: dict[str, object], sentence: str) -> None:
    asked = {"arrivals": Arrivals.poisson(1), "step_time": StepTime.fixed(10), "replicas": 1, **wrong}
    with pytest.raises(ModelError, match=sentence):
        Fleet(**asked)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: StepTime(30, "gamma"), "shape must be one of fixed, exponential, lognormal, measured; got 'gamma'"),
        (lambda: StepTime(30, "measured"), "at least one; got none"),
        (lambda: StepTime.of(["soon"]), "measured step times must be a list of seconds; got list"),
        (lambda: StepTime.of(30), "measured step times must be a list of seconds; got int"),
        (lambda: StepTime.of([5, math.nan]), "a measured step time must be from 0 to 86400 s; got nan"),
        (lambda: Arrivals(1, bursts=[(1, 2, 3)]), "bursts must be made as in"),
        (lambda: Arrivals(1, bursts=((1, 2, 3),)), "bursts must be made as in"),
        (lambda: Arrivals.poisson(1).burst(0, 60, math.inf), "rate must be from 0 to 1e"),
    ],
)
def test_inputs_of_another_kind_are_refused(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ModelError, match=sentence):
        make()


def test_measured_times_are_drawn_in_any_order() -> None:
    assert (np.diff(StepTime(4, "measured", measured=(9.0, 1.0, 2.0)).quantiles()) >= 0).all()


COLD = """
import sys
sys.path.insert(0, sys.argv[1])
from numba.core import caching
if "nowhere" in sys.argv[1]:
    caching.CacheImpl._locator_classes = []
from labkit.models.fleet import Arrivals, Fleet, StepTime, simulate
print(simulate(Fleet(Arrivals.constant(1), StepTime.fixed(5), replicas=2), 60).figures["steps"])
"""


def copied(folder: Path) -> Path:
    """labkit with nothing compiled."""
    root = Path(labkit.__file__).parent
    shutil.copytree(root, folder / "labkit", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "data").mkdir()
    shutil.copy(root.parent / "data" / "facts.csv", folder / "data")
    return folder


def python(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", COLD, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_two_processes_compile_at_once_and_a_third_finds_it(tmp_path: Path) -> None:
    folder = str(copied(tmp_path))
    both = [python(folder) for _ in range(2)]
    said = [each.communicate(timeout=300) for each in both] + [python(folder).communicate(timeout=300)]
    assert len({out for out, _ in said}) == 1, said
    assert float(said[0][0]) > 0
    assert list(tmp_path.rglob("*.nbi"))


def test_where_numba_may_keep_nothing_the_simulation_still_runs(tmp_path: Path) -> None:
    """A read-only installation whose user has no folder for a cache either."""
    (tmp_path / "nowhere").mkdir()
    out, err = python(str(copied(tmp_path / "nowhere"))).communicate(timeout=300)
    assert err == ""
    assert float(out) > 0
    assert not list(tmp_path.rglob("*.nbi"))


def test_without_numba_there_is_one_sentence() -> None:
    with pytest.raises(SetupError, match=r"need the extra `course`.*numba cannot be imported; type `make setup`"):
        reloaded_without("numba")


def reloaded_without(package: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, package, None)
        patch.delitem(sys.modules, "labkit.models.fleet.compiled")
        importlib.import_module("labkit.models.fleet.compiled")
