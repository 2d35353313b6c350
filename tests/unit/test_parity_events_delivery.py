"""The delivery engine, with targets that fail as told and a clock that only moves when asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parity.events_delivery import DIMENSIONS, Engine, Failure, clock_scale, dead_letter_attributes, series
from parity.events_retry import RetryPolicy, Timer

THROTTLED = Failure("THROTTLING", "slow down")
FORBIDDEN = Failure("NO_PERMISSIONS", "not allowed")


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Target:
    """Fails with each of ``outcomes`` in turn (None: succeeds), then for ever with the last."""

    outcomes: list[Exception | None]
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    scale: float = 1.0
    blocking: bool = False
    has_dead_letter_queue: bool = True
    dead_letter_error: Exception | None = None
    rule_arn: str = "arn:rule"
    target_arn: str = "arn:target"
    there: bool = True
    delivered: int = 0
    attempts: int = 0
    buried: list[dict[str, str]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def send(self) -> None:
        outcome = self.outcomes[min(self.attempts, len(self.outcomes) - 1)]
        self.attempts += 1
        if outcome is not None:
            raise outcome
        self.delivered += 1

    def wanted(self) -> bool:
        return self.there

    def bury(self, attributes: dict[str, str]) -> None:
        if self.dead_letter_error is not None:
            raise self.dead_letter_error
        self.buried.append(dict(attributes))

    def count(self, metric: str) -> None:
        assert metric in DIMENSIONS
        self.counts[metric] += 1


class World:
    def __init__(self, chance: Callable[[], float] = lambda: 0.5) -> None:
        self.clock = Clock()
        self.timer = Timer(self.clock, threaded=False)
        self.engine = Engine(self.timer, chance=chance)

    def run(self, target: Target) -> float:
        """Deliver to the end; the seconds of real time that it took."""
        started = self.clock.now
        self.engine.deliver(target)
        while (due := self.timer.next_due()) is not None:
            self.clock.now = max(self.clock.now, due)
            self.timer.run_due()
        return self.clock.now - started


def test_success_at_once() -> None:
    target = Target([None])
    assert World().run(target) == 0
    assert target.delivered == 1
    assert target.counts == {"InvocationAttempts": 1, "SuccessfulInvocationAttempts": 1, "Invocations": 1}


def test_a_failure_that_no_retry_mends_goes_straight_to_the_queue() -> None:
    target = Target([FORBIDDEN, None])
    World().run(target)
    assert target.attempts == 1
    assert target.buried == [
        {
            "RULE_ARN": "arn:rule",
            "TARGET_ARN": "arn:target",
            "ERROR_CODE": "NO_PERMISSIONS",
            "ERROR_MESSAGE": "not allowed",
            "RETRY_ATTEMPTS": "0",
        }
    ]
    assert target.counts["InvocationsSentToDlq"] == target.counts["FailedInvocations"] == 1


def test_the_target_recovers() -> None:
    target = Target([THROTTLED, THROTTLED, None])
    World().run(target)
    assert (target.delivered, target.buried) == (1, [])
    assert target.counts["RetryInvocationAttempts"] == 2
    assert target.counts["Invocations"] == 1
    assert target.counts["FailedInvocations"] == 0


def test_the_last_failure_is_the_one_that_is_told() -> None:
    target = Target([THROTTLED, Failure("TIMEOUT", "late")], policy=RetryPolicy(retries=1))
    World().run(target)
    assert target.buried[0]["ERROR_CODE"] == "TIMEOUT"
    assert target.buried[0]["EXHAUSTED_RETRY_CONDITION"] == "MaximumRetryAttempts"


def test_the_age_runs_out_at_its_second_not_before() -> None:
    target = Target([THROTTLED], policy=RetryPolicy(age=60))
    assert World().run(target) == pytest.approx(60)
    assert target.buried[0]["EXHAUSTED_RETRY_CONDITION"] == "MaximumEventAgeInSeconds"
    assert target.buried[0]["RETRY_ATTEMPTS"] == str(target.attempts - 1)


@pytest.mark.parametrize("scale", [0.5, 1.0, 60.0, 20_000.0])
def test_a_scaled_run_makes_the_same_attempts(scale: float) -> None:
    plain, scaled = (Target([THROTTLED], policy=RetryPolicy(age=3600), scale=factor) for factor in (1.0, scale))
    took = World().run(plain)
    assert World().run(scaled) == pytest.approx(took / scale)
    assert plain.buried == scaled.buried


def test_time_that_attempts_take_is_not_scaled() -> None:
    """A slow machine must not age an event by hours because its clock runs fast."""
    world = World()

    class Slow(Target):
        def send(self) -> None:
            world.clock.now += 0.05
            super().send()

    target = Slow([THROTTLED], scale=100_000)
    world.run(target)
    assert target.buried[0]["RETRY_ATTEMPTS"] == "185"


@pytest.mark.parametrize("error", [Failure("NO_PERMISSIONS", "no"), RuntimeError("broken")])
def test_a_dead_letter_queue_that_cannot_be_written(error: Exception) -> None:
    target = Target([FORBIDDEN], dead_letter_error=error)
    World().run(target)
    assert target.counts["InvocationsFailedToBeSentToDlq"] == 1
    assert target.counts["InvocationsSentToDlq"] == 0


def test_without_a_dead_letter_queue() -> None:
    target = Target([FORBIDDEN], has_dead_letter_queue=False)
    World().run(target)
    assert target.buried == []
    assert target.counts == {"InvocationAttempts": 1, "Invocations": 1, "FailedInvocations": 1}


def test_an_error_of_ours_is_retried_and_costs_no_event() -> None:
    target = Target([RuntimeError("broken"), None])
    World().run(target)
    assert target.delivered == 1
    broken = Target([RuntimeError("broken")], policy=RetryPolicy(retries=2))
    World().run(broken)
    assert broken.buried[0]["ERROR_CODE"] == "INTERNAL_ERROR"


def test_a_target_that_is_removed_gets_nothing_more() -> None:
    world = World()
    target = Target([THROTTLED, None])
    world.engine.deliver(target)
    target.there = False
    world.clock.now += 3600
    world.timer.run_due()
    assert (target.attempts, target.delivered, target.buried) == (1, 0, [])
    assert target.counts["FailedInvocations"] == 1
    assert len(world.timer) == 0


def test_a_target_that_breaks_everything_does_not_stop_the_others() -> None:
    class Broken(Target):
        def count(self, metric: str) -> None:
            raise RuntimeError("broken")

    world, good = World(), Target([THROTTLED, None])
    world.engine.deliver(Broken([None]))
    world.run(good)
    assert good.delivered == 1


def test_an_attempt_that_may_block_runs_in_the_background() -> None:
    waiting: list[Callable[[], None]] = []
    engine = Engine(Timer(Clock(), threaded=False), background=waiting.append)
    target = Target([None], blocking=True)
    engine.deliver(target)
    assert target.attempts == 0
    waiting.pop()()
    assert target.delivered == 1


OUTCOMES = st.lists(st.sampled_from([None, THROTTLED, FORBIDDEN, RuntimeError("broken")]), min_size=1, max_size=12)


@given(OUTCOMES, st.integers(0, 12), st.integers(60, 4000), st.sampled_from([1.0, 7.0, 900.0]), st.randoms())
def test_every_event_ends_once(outcomes: list, retries: int, age: int, scale: float, draw: object) -> None:
    target = Target(outcomes, policy=RetryPolicy(retries, age), scale=scale)
    took = World(draw.random).run(target)  # type: ignore[attr-defined]
    assert target.delivered + len(target.buried) == 1
    assert target.attempts <= retries + 1
    assert took <= age / scale + 1e-6
    counts = target.counts
    assert counts["Invocations"] == 1
    assert counts["InvocationAttempts"] == target.attempts == counts["RetryInvocationAttempts"] + 1
    assert counts["SuccessfulInvocationAttempts"] + counts["FailedInvocations"] == 1


@pytest.mark.parametrize(
    ("rule", "bus", "scale"),
    [({}, {}, 3.0), ({}, {"lab:clock-scale": "20"}, 20.0), ({"lab:clock-scale": "5"}, {"lab:clock-scale": "20"}, 5.0)]
    + [({"lab:clock-scale": bad}, {}, 3.0) for bad in ("", "fast", "0", "-1", "inf", "nan")]
    + [({"lab:clock-scale": bad}, {}, 3.0) for bad in ("1e-11", "0.0009", "1e10", "1e400")]
    + [({"lab:clock-scale": good}, {}, float(good)) for good in ("0.001", "1e9")],
)
def test_clock_scale(rule: dict[str, str], bus: dict[str, str], scale: float) -> None:
    assert clock_scale(rule, bus, 3.0) == scale


def test_attributes_name_a_condition_only_when_a_limit_ended_the_delivery() -> None:
    arguments = {"rule_arn": "r", "target_arn": "t", "failure": THROTTLED, "retries": 3}
    assert "EXHAUSTED_RETRY_CONDITION" not in dead_letter_attributes(**arguments, exhausted=None)
    assert all(isinstance(value, str) for value in dead_letter_attributes(**arguments, exhausted="x").values())


def test_series_of_a_metric() -> None:
    def of(metric: str, bus: str, rule: str) -> list[dict[str, str]]:
        found: Iterator[dict[str, str]] = series(metric, bus=bus, rule=rule)
        return list(found)

    assert of("FailedInvocations", "default", "r") == [{"RuleName": "r"}]
    assert of("FailedInvocations", "b", "r") == [{"EventBusName": "b", "RuleName": "r"}]
    assert of("Invocations", "b", "r") == [{"EventBusName": "b", "RuleName": "r"}, {}]
    assert of("TriggeredRules", "default", "r") == [{"RuleName": "r"}, {"EventBusName": "default"}, {}]
