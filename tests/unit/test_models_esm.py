"""Lambda's event source mapping: the numbers of the facts, the stand-in's own rules, AWS's formula and Little's law."""

from __future__ import annotations

import doctest
import math
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parity import esm_scaling
from parity.esm_scaling import Bounds, Scaling

from labkit.facts import facts
from labkit.models import esm
from labkit.models._input import ModelError
from labkit.models.esm import Curve, Esm, Pollers, events_per_poller, pollers


def fact(key: str) -> float:
    return float(facts(key))


def test_the_examples_of_the_docstrings() -> None:
    assert doctest.testmod(esm).failed == 0


def test_the_stand_in_and_the_model_say_the_same_numbers() -> None:
    assert fact("lambda.esm.standard.start") == esm_scaling.START
    assert fact("lambda.esm.standard.growth") == esm_scaling.PER_MINUTE
    assert fact("lambda.esm.standard.cap") == esm_scaling.MOST
    assert fact("lambda.esm.provisioned.growth") == esm_scaling.PROVISIONED_PER_MINUTE
    assert fact("lambda.esm.poller.invocations") == esm_scaling.PER_POLLER
    assert fact("lambda.esm.min_pollers.default") == esm_scaling.MIN_POLLERS == Pollers().minimum
    assert fact("lambda.esm.max_pollers.default") == esm_scaling.MAX_POLLERS == Pollers().maximum


@pytest.mark.parametrize(
    ("mapping", "curve"),
    [
        ({}, Curve.of()),
        ({"ScalingConfig": {"MaximumConcurrency": 50}}, Curve.of(max_concurrency=50)),
        ({"ScalingConfig": {"MaximumConcurrency": 2}}, Curve.of(max_concurrency=2)),
        ({"ProvisionedPollerConfig": {"MinimumPollers": 2}}, Curve.of(provisioned=Pollers())),
        (
            {"ProvisionedPollerConfig": {"MinimumPollers": 20, "MaximumPollers": 10_000}},
            Curve.of(provisioned=Pollers(20, 10_000)),
        ),
    ],
)
def test_the_stand_in_and_the_model_grow_alike(mapping: dict[str, dict[str, int]], curve: Curve) -> None:
    bounds = Bounds.of(mapping, fifo=False)
    assert (bounds.start, bounds.per_minute, bounds.most) == (curve.start, curve.per_minute, curve.most)
    theirs, ours = Scaling(bounds, ceiling=100_000), Esm(curve)
    for second in range(0, 900, 3):
        if 300 <= second < 330:
            theirs.calm()
            ours.step(second, visible=5, running=0)
        else:
            theirs.busy(second)
            ours.step(second, visible=5, running=ours.concurrency)
        assert ours.concurrency == theirs.limit, second
    theirs.calm()
    theirs.idle()
    assert ours.step(900, visible=0, running=0) == theirs.limit == curve.start


def test_from_5_to_the_ceiling_takes_more_than_four_minutes() -> None:
    standard = Curve.of()
    assert [standard.after(second) for second in (0, 60, 120, 240, 249, 3600)] == [5, 305, 605, 1205, 1250, 1250]
    assert standard.until(1250) == 249
    assert standard.until(1251) == math.inf
    assert Curve.of(provisioned=Pollers(maximum=200)).until(1250) == pytest.approx(73.8)
    # The worked example is beyond both: 11,250 at once.
    in_flight = int(fact("fleet.in_flight"))
    assert standard.until(in_flight) == Curve.of(provisioned=Pollers()).until(in_flight) == math.inf
    assert Curve.of(provisioned=Pollers(200, 10_000)).most == fact("lambda.esm.provisioned.cap")
    assert Curve.of(provisioned=Pollers(200, 10_000)).most == standard.most * fact("lambda.esm.provisioned.cap_factor")


def test_it_grows_only_while_all_are_busy_and_messages_wait() -> None:
    found = Esm(Curve.of())
    assert found.step(0, visible=100, running=0) == 5
    assert found.step(60, visible=100, running=5) == 5  # busy from here on
    assert found.step(120, visible=100, running=5) == 305
    assert found.why == "all are busy and messages wait: 300 a minute"
    assert found.step(180, visible=100, running=100) == 305
    assert found.step(240, visible=0, running=100) == 305  # what runs is not taken away
    assert found.step(300, visible=0, running=0) == 5


def test_the_formula_and_its_example() -> None:
    """Erratum 41: the formula gives events a second of one poller; the prose of the same page takes it for pollers."""
    assert events_per_poller(kilobytes=3, seconds=1, batch=10) == fact("lambda.esm.poller.example.events_per_s")
    assert pollers(1000, seconds=1, batch=10, kilobytes=3) == fact("lambda.esm.poller.example.pollers")
    # Its three parts: bytes, invocations, polls.
    assert events_per_poller(kilobytes=100, seconds=0.1, batch=10) == 11  # ceil(1024 / 100)
    assert events_per_poller(kilobytes=1, seconds=4, batch=10) == 30  # ceil(10 / 4) x 10
    assert events_per_poller(kilobytes=1, seconds=0.1, batch=1) == 10  # 10 polls of 1
    assert events_per_poller(kilobytes=1, seconds=0.1, batch=1000) == 100  # 10 polls of 10


def test_for_long_steps_the_formula_promises_more_than_ten_invocations_can_do() -> None:
    rate, seconds = fact("fleet.steps_per_s"), fact("fleet.step_time")
    assert math.ceil(rate / events_per_poller(kilobytes=1, seconds=seconds, batch=1)) == 125
    assert pollers(rate, seconds=seconds, batch=1) == fact("fleet.in_flight") / 10 == 1125


@settings(max_examples=200, deadline=None)
@given(st.integers(1, 500), st.integers(1, 900), st.integers(1, 10))
def test_so_many_pollers_can_always_do_the_work_and_one_less_could_not(rate: int, seconds: int, batch: int) -> None:
    found = pollers(rate, seconds=seconds, batch=batch)
    assert rate * seconds <= found * 10 * batch
    fewer = found - 1
    formula = events_per_poller(kilobytes=1, seconds=seconds, batch=batch)
    assert rate * seconds > fewer * 10 * batch or rate > fewer * formula


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from([Curve.of(), Curve.of(max_concurrency=30), Curve.of(provisioned=Pollers(2, 60))]),
    st.lists(st.tuples(st.integers(0, 90), st.integers(0, 20), st.integers(0, 100)), min_size=1, max_size=40),
)
def test_never_above_the_ceiling_never_faster_than_the_slope_and_always_the_same(
    curve: Curve, steps: list[tuple[int, int, int]]
) -> None:
    def seen() -> list[int]:
        found, now, levels = Esm(curve), 0, [curve.start]
        for wait, visible, share in steps:
            now += wait
            levels.append(found.step(now, visible=visible, running=found.concurrency * share // 100))
            assert levels[-1] - levels[-2] <= wait * curve.per_minute / 60 + 1
        return levels

    levels = seen()
    assert all(min(curve.start, curve.most) <= each <= curve.most for each in levels)
    assert levels == seen()


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Pollers(1), "minimum must be a whole number from 2 to 200; got 1."),
        (lambda: Pollers(201), "minimum must be a whole number from 2 to 200; got 201."),
        (lambda: Pollers(50, 40), "maximum must be a whole number from 50 to 10000; got 40."),
        (lambda: Pollers(2, 10_001), "maximum must be a whole number from 2 to 10000; got 10001."),
        (lambda: Curve.of(max_concurrency=1), "max_concurrency must be a whole number from 2 to 1000; got 1."),
        (lambda: Curve.of(max_concurrency=1250), "max_concurrency must be a whole number from 2 to 1000; got 1250."),
        (
            lambda: Curve.of(max_concurrency=50, provisioned=Pollers()),
            "max_concurrency must be None in provisioned mode; got 50.",
        ),
        (lambda: pollers(1, seconds=0, batch=1), "seconds must be more than 0; got 0."),
        (lambda: pollers(1, seconds=1, batch=0), "batch must be a whole number of at least 1; got 0."),
        (lambda: Esm(Curve.of()).step(-1, visible=0, running=0), "now must be at least 0 s; got -1."),
    ],
)
def test_what_aws_refuses_is_refused_in_one_sentence(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ModelError) as caught:
        make()
    assert str(caught.value) == sentence
