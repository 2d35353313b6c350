"""The simulated fleet: against queueing theory, against simpy, one engine against the other, and nothing lost."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from labkit.models._input import ModelError
from labkit.models.fleet import FIGURES, Arrivals, Fleet, Run, StepTime, simulate
from labkit.models.hpa import Behavior, Rules
from labkit.models.keda import ScaledObject
from labkit.models.retry import Exponential, Fixed
from tests.benchmarks.simpy_fleet import play

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
    rng = np.random.default_rng(5)

    def test_regular_ones_lose_nothing_to_rounding(self) -> None:
        for rate in (0.1, 1 / 3, 500 / 60):
            assert Arrivals.constant(rate).counts(86_400, self.rng).sum() == round(rate * 86_400)

    def test_the_wave_changes_the_hours_and_not_the_day(self) -> None:
        rates = Arrivals.diurnal(10, swing=0.6, peak=14 * HOUR).rates(86_400)
        assert rates.sum() == pytest.approx(864_000)
        assert rates.argmax() in (14 * HOUR - 1, 14 * HOUR)
        assert (rates.max(), rates.min()) == (pytest.approx(16), pytest.approx(4))

    def test_a_burst_adds_its_own(self) -> None:
        calm = Arrivals.constant(1)
        assert calm.burst(100, 50, 3).rates(300).sum() == 300 + 150

    def test_poisson_arrivals_vary_as_much_as_their_mean(self) -> None:
        counts = Arrivals.poisson(9).counts(86_400, self.rng)
        assert counts.var() == pytest.approx(9, rel=0.05)


class TestStepTime:
    rng = np.random.default_rng(6)

    @pytest.mark.parametrize(
        "times", [StepTime.fixed(90), StepTime.exponential(90), StepTime.lognormal(90, 1.5), StepTime.of([30, 60, 180])]
    )
    def test_draws_and_quantiles_have_the_same_mean_and_spread(self, times: StepTime) -> None:
        draws, table = times.draw(self.rng, 400_000), times.quantiles()
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
    with pytest.raises(ModelError, match="engine must be ticks or exact"):
        simulate(fleet, 60, engine="fast")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="seconds must be"):
        simulate(fleet, 0)
    with pytest.raises(ModelError, match="use ticks"):
        simulate(replace(fleet, arrivals=Arrivals.poisson(1000)), 86_400, engine="exact")
