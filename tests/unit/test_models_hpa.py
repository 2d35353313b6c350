"""The HPA's rules beside the numbers of Kubernetes' own tests and documentation, and under random loads.

"horizontal_test" and "replica_calculator_test" are kubernetes/kubernetes, pkg/controller/podautoscaler/…_test.go:
inputs and results are theirs, the test's name stands beside each. "docs" is the Kubernetes documentation, Horizontal
Pod Autoscaling.
"""

from __future__ import annotations

import doctest
import math
from collections import deque
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.facts import facts
from labkit.models import hpa, hpa_metrics
from labkit.models._input import ModelError
from labkit.models.hpa import Behavior, Decision, Hpa, Policy, Rules
from labkit.models.hpa_metrics import Pod, Tolerance, in_all, of_pods, per_pod

WIDE = Rules(window=0, policies=(Policy("Pods", 10_000, 15),))


@pytest.mark.parametrize("module", [hpa, hpa_metrics])
def test_the_examples_of_the_docstrings(module: Any) -> None:
    assert doctest.testmod(module).failed == 0


# What a metric asks for


@pytest.mark.parametrize(
    ("usage", "target", "pods", "wish", "source"),
    [
        (8600, 2150, 3, 4, "replica_calculator_test TestReplicaCalcScaleUpPerPodCMExternal"),
        (8600, 2867, 5, 3, "replica_calculator_test TestReplicaCalcScaleDownPerPodCMExternal"),
        (8600, 2900, 3, 3, "replica_calculator_test TestReplicaCalcTolerancePerPodCMExternal"),
        (20_000, 5000, 3, 4, "replica_calculator_test TestReplicaCalcScaleUpCMPerPodObject"),
        (6000, 2000, 5, 3, "replica_calculator_test TestReplicaCalcScaleDownPerPodCMObject"),
        (20_166, 5000, 4, 4, "replica_calculator_test TestReplicaCalcTolerancePerPodCMObject"),
        (20, 5, 3, 4, "keda-docs 2.21 scaledobject-spec, metricType AverageValue"),
        (30, 10, 1, 3, "keda-docs 2.21 aws-sqs, queueLength"),
        (0, 5, 3, 0, "an empty queue wishes for nothing; the minimum is another rule"),
        (7, 5, 0, 2, "no pods, no ratio: ceil(7 / 5)"),
        (11, 10, 1, 1, "exactly 10 % over belongs to the tolerance since 1.33; |1 - 1.1| <= 0.1 was false before"),
        (9, 10, 1, 1, "exactly 10 % under"),
        (89, 10, 10, 9, "11 % under"),
        (11_250, 10, 1125, 1125, "the worked example"),
    ],
)
def test_a_target_for_each_pod(usage: int, target: int, pods: int, wish: int, source: str) -> None:
    assert per_pod(usage, target, pods) == wish, source


@pytest.mark.parametrize(
    ("value", "target", "current", "ready", "wish", "source"),
    [
        (200, 100, 3, 3, 6, "docs: 200m for 100m doubles"),
        (50, 100, 4, 4, 2, "docs: 50m for 100m halves"),
        (20, 5, 3, 3, 12, "keda-docs 2.21 scaledobject-spec, metricType Value"),
        (8600, 14_334, 5, 5, 3, "replica_calculator_test TestReplicaCalcScaleDownCMExternal"),
        (8600, 8888, 3, 3, 3, "replica_calculator_test TestReplicaCalcToleranceCMExternal"),
        (8600, 4400, 3, 1, 2, "replica_calculator_test TestReplicaCalcScaleUpCMExternalIgnoresUnreadyPods"),
        (50_000, 10_000, 3, 1, 5, "replica_calculator_test TestReplicaCalcScaleUpCMObjectIgnoresUnreadyPods"),
    ],
)
def test_a_target_for_the_fleet(value: int, target: int, current: int, ready: int, wish: int, source: str) -> None:
    assert in_all(value, target, current, ready=ready) == wish, source


def pods(*usages: int | None, request: int = 0, unready: int = 0) -> list[Pod]:
    """Pods with these figures; the first ``unready`` of them are set aside."""
    return [Pod(usage, request, "unready" if i < unready else "ready") for i, usage in enumerate(usages)]


@pytest.mark.parametrize(
    ("found", "target", "current", "wish", "source"),
    [
        (pods(20_000, 10_000, 30_000), 15_000, 3, 4, "TestReplicaCalcScaleUpCM"),
        (pods(50_000, 10_000, 30_000), 15_000, 3, 6, "TestReplicaCalcScaleUpCMUnreadyHotCpuNoLessScale"),
        (pods(50_000, 15_000, 30_000), 15_000, 3, 7, "TestReplicaCalcScaleUpCMUnreadyHotCpuScaleWouldScaleDown"),
        (pods(*[12_000] * 5), 20_000, 5, 3, "TestReplicaCalcScaleDownCM"),
        (pods(20_000, 21_000, 21_000), 20_000, 3, 3, "TestReplicaCalcToleranceCM"),
        (pods(10_000, 10_000, None), 17_000, 2, 2, "TestReplicaCalcDuringRollingUpdateWithMaxSurgeCM"),
        (pods(None, None), 10, 2, None, "no pod has a figure"),
    ],
)
def test_the_mean_of_the_pods(found: list[Pod], target: int, current: int, wish: int | None, source: str) -> None:
    assert of_pods(found, target, current) == wish, source


@pytest.mark.parametrize(
    ("found", "target", "current", "wish", "source"),
    [
        (pods(400, 95, None, None, request=1000), 100, 4, 3, "horizontal_test TestMissingMetrics"),
        (pods(1000, None, request=1000), 100, 2, 2, "TestReplicaCalcMissingMetricsNoChangeEq"),
        (pods(1900, None, request=1000), 100, 2, 2, "TestReplicaCalcMissingMetricsNoChangeGt"),
        (pods(600, None, request=1000), 100, 2, 2, "TestReplicaCalcMissingMetricsNoChangeLt"),
        (pods(100, 450, None, request=1000, unready=1), 50, 3, 3, "TestReplicaCalcMissingMetricsUnreadyChange"),
        (pods(100, 2000, None, request=1000, unready=1), 50, 3, 4, "TestReplicaCalcMissingMetricsUnreadyScaleUp"),
        (pods(100, 100, 100, None, request=1000, unready=1), 50, 4, 3, "TestReplicaCalcMissingMetricsUnreadyScaleDown"),
        (
            [Pod(200, 1000, "unready"), Pod(100, 1000), Pod(100, 2000), Pod(None, 2000)],
            *(300, 4, 2, "TestReplicaCalcMissingMetricsScaleDownTargetOver100"),
        ),
        (pods(100, 100, None, request=1000), 50, 2, 2, "TestReplicaCalcDuringRollingUpdateWithMaxSurge"),
        (
            [*pods(100, 300, 500, 250, 250, request=1000), Pod(900, 1000, "gone"), Pod(None, 1000, "gone")],
            *(50, 5, 3, "scale down: failed pods ignored"),
        ),
        (pods(900, 900, 900, 600, request=1000, unready=3), 30, 4, 4, "docs: not ready yet counts as 0, and turns it"),
        ([Pod(900, 0)], 100, 1, "error", "no requests"),
    ],
)
def test_a_share_of_the_requests(found: list[Pod], target: int, current: int, wish: int | str, source: str) -> None:
    if wish == "error":
        with pytest.raises(ModelError, match="needs a request"):
            of_pods(found, target, current, utilization=True)
    else:
        assert of_pods(found, target, current, utilization=True) == wish, source


def test_a_tolerance_of_ones_own() -> None:
    # replica_calculator_test TestReplicaCalcConfigurableTolerance…: 1 % upwards lets 20,666 of 20,000 through.
    found = pods(20_000, 21_000, 21_000)
    assert of_pods(found, 20_000, 3, tolerance=Tolerance(up=0.01)) == 4
    assert in_all(20_666, 20_000, 3, ready=3, tolerance=Tolerance(up=0.01)) == 4
    # docs: target 100, tolerance 5 %: only above 105.
    assert [in_all(value, 100, 1, ready=1, tolerance=Tolerance(up=0.05)) for value in (105, 106)] == [1, 2]
    assert facts("hpa.tolerance") == Tolerance().up == Tolerance().down


# Without spec.behavior


@pytest.mark.parametrize(
    ("current", "wish", "low", "high", "replicas", "reason"),
    [
        (5, 7, 3, 8, 7, "DesiredWithinRange"),  # horizontal_test TestConvertDesiredReplicasWithRules, as are these:
        (3, 1, 2, 8, 2, "TooFewReplicas"),
        (3, 1000, 1, 2000, 6, "ScaleUpLimit"),
        (20, 1000, 1, 10, 10, "SucceededRescale"),  # there the limits alone are asked; a sync stops before them
        (1, 2, 2, 6, 2, "SucceededRescale"),  # horizontal_test TestScaleUpRCImmediately
        (6, 1, 2, 5, 5, "SucceededRescale"),  # horizontal_test TestScaleDownRCImmediately
        (1, 50, 1, 60, 4, "ScaleUpLimit"),  # max(2 x 1, 4)
        (100, 150, 100, 120, 120, "TooManyReplicas"),
    ],
)
def test_unset_the_step_up_ends_at_twice_or_4(
    current: int, wish: int, low: int, high: int, replicas: int, reason: str
) -> None:
    found = fresh(Hpa(minimum=low, maximum=high)).sync(0, current, [wish])
    assert (found.replicas, found.reason) == (replicas, reason)


def fresh(found: Hpa, *wishes: tuple[float, int]) -> Hpa:
    """With these wishes in its memory (at second, replicas); without any, with one from long ago."""
    found._wishes = deque(wishes or [(-100_000, 1)])
    return found


@pytest.mark.parametrize(
    ("log", "replicas"),
    [
        ([], 3),  # horizontal_test TestNormalizeDesiredReplicas, with a wish of 3
        ([(-120, 4), (-60, 5)], 5),
        ([(-120, 1), (-60, 2)], 3),
        ([(-600, 10), (-540, 9)], 3),
        ([(-600, 10), (-60, 4), (-120, 5), (-540, 9)], 5),
    ],
)
def test_unset_the_highest_wish_of_five_minutes_holds(log: list[tuple[float, int]], replicas: int) -> None:
    found = fresh(Hpa(maximum=100), *log).sync(0, 10, [3])
    assert found.replicas == replicas
    assert (found.reason == "ScaleDownStabilized") == (replicas > 3)


def run(found: Hpa, wishes: list[int | None], *, current: int, every: float = 15.0, since: float = 0.0) -> list[int]:
    """The replicas after each sync."""
    seen = []
    for turn, wish in enumerate(wishes):
        current = found.sync(since + turn * every, current, [wish]).replicas
        seen.append(current)
    return seen


def test_one_metric_that_is_content_lets_an_older_wish_through() -> None:
    assert fresh(Hpa(maximum=6), (-60, 5)).sync(0, 3, [3, None]).replicas == 5
    assert fresh(Hpa(maximum=6), (-60, 5)).sync(0, 3, [2, None]).replicas == 3


def test_unset_a_burst_doubles_every_15_seconds_and_the_way_down_waits_300() -> None:
    found = Hpa(maximum=60)
    assert run(found, [1125] * 6, current=1) == [4, 8, 16, 32, 60, 60]
    assert run(found, [2] * 21, current=60, since=90) == [60] * 19 + [2] * 2


def test_a_new_controller_takes_what_is_there_for_wanted() -> None:
    # horizontal_test TestScaleDownStabilizeInitialSize: the first thing that it remembers is the current size.
    assert run(Hpa(maximum=60), [2] * 22, current=10) == [10] * 20 + [2] * 2


# With it


def rules(*limits: int, window: int = 0, select: Any = "Max") -> Rules:
    """pods, their period, per cent, their period: 0 for no such policy (generateScalingRules of horizontal_test)."""
    pods, pods_period, percent, percent_period = limits
    found = [Policy("Pods", pods, pods_period)] if pods else []
    found += [Policy("Percent", percent, percent_period)] if percent else []
    return Rules(window, tuple(found), select)


def events(*sizes: int) -> list[tuple[float, int]]:
    """Spread over the last 120 seconds, each in the middle of its part (generateEventsUniformDistribution)."""
    part = 120 / len(sizes)
    return [(-(120 - part * (i + 1) + part / 2), size) for i, size in enumerate(sizes)]


NONE = Rules(window=0)


@pytest.mark.parametrize(
    ("up", "down", "ups", "downs", "low", "high", "current", "wish", "replicas", "reason"),
    [
        # horizontal_test TestScalingWithRules
        (NONE, NONE, [], [], 3, 8, 5, 7, 7, "DesiredWithinRange"),
        (NONE, NONE, [], [], 2, 8, 3, 1, 2, "TooFewReplicas"),
        (NONE, NONE, [], [], 100, 150, 100, 1000, 150, "TooManyReplicas"),
        (rules(0, 0, 1, 60), NONE, [], [], 1, 2000, 3, 1000, 4, "ScaleUpLimit"),
        (NONE, rules(20, 60, 0, 0), [], [], 3, 2000, 1000, 3, 980, "ScaleDownLimit"),
        (NONE, NONE, [], [], 1, 1000, 10, 50, 20, "ScaleUpLimit"),
        (rules(100, 60, 100, 60), NONE, [], [], 1, 1000, 10, 500, 110, "ScaleUpLimit"),
        (rules(2, 60, 100, 60), NONE, [], [], 1, 1000, 10, 500, 20, "ScaleUpLimit"),
        (rules(100, 60, 0, 0), NONE, [], [], 1, 1000, 10, 50, 50, "DesiredWithinRange"),
        (rules(30, 60, 0, 0), NONE, [], [], 1, 1000, 10, 50, 40, "ScaleUpLimit"),
        (rules(0, 0, 200, 60), NONE, [], [], 1, 1000, 10, 50, 30, "ScaleUpLimit"),
        (NONE, rules(20, 60, 1, 60), [], [], 1, 1000, 100, 2, 80, "ScaleDownLimit"),
        (NONE, rules(2, 60, 1, 60), [], [], 1, 1000, 100, 2, 98, "ScaleDownLimit"),
        (NONE, rules(100, 60, 0, 0), [], [], 1, 1000, 10, 0, 1, "TooFewReplicas"),
        (NONE, rules(0, 0, 100, 60), [], [], 5, 1000, 10, 2, 5, "TooFewReplicas"),
        (NONE, rules(5, 60, 0, 0), [], [], 1, 1000, 10, 2, 5, "ScaleDownLimit"),
        (NONE, rules(0, 0, 50, 60), [], [], 1, 1000, 10, 5, 5, "DesiredWithinRange"),
        (rules(300, 60, 0, 0), NONE, events(1, 5, 9), [], 1, 200, 100, 500, 200, "TooManyReplicas"),
        (rules(0, 0, 10_000, 60), NONE, events(1, 5, 9), [], 1, 200, 100, 500, 200, "TooManyReplicas"),
        (rules(5, 120, 0, 0), NONE, events(1, 5, 9), [], 1, 1000, 100, 500, 100, "ScaleUpLimit"),
        (rules(150, 120, 0, 0), NONE, events(1, 5, 9), [], 1, 1000, 100, 500, 235, "ScaleUpLimit"),
        (rules(0, 0, 200, 120), NONE, events(1, 5, 9), [], 1, 1000, 100, 500, 255, "ScaleUpLimit"),
        (rules(0, 0, 300, 300), NONE, events(4), events(2), 1, 1000, 6, 24, 16, "ScaleUpLimit"),
        (NONE, NONE, [], events(1, 5, 9), 1, 1000, 10, 5, 5, "DesiredWithinRange"),
        (NONE, rules(115, 120, 0, 0), [], events(1, 5, 9), 1, 1000, 100, 0, 1, "TooFewReplicas"),
        (NONE, rules(130, 120, 0, 0), [], events(1, 5, 9), 5, 1000, 100, 0, 5, "TooFewReplicas"),
        (NONE, rules(0, 0, 100, 120), [], events(1, 5, 9), 5, 1000, 100, 2, 5, "TooFewReplicas"),
        (NONE, rules(5, 120, 0, 0), [], events(1, 5, 9), 1, 1000, 100, 2, 100, "ScaleDownLimit"),
        (NONE, rules(0, 0, 50, 120), [], events(2, 4, 6), 1, 1000, 100, 0, 56, "ScaleDownLimit"),
        (NONE, rules(0, 0, 50, 180), events(2), events(4), 1, 1000, 10, 1, 6, "ScaleDownLimit"),
        (NONE, rules(0, 0, 10, 120), [], events(10, 10, 10), 1, 1000, 100, 0, 100, "ScaleDownLimit"),
        (NONE, rules(0, 0, 1000, 120), [], events(10, 10, 10), 1, 1000, 10, 5, 5, "DesiredWithinRange"),
        (rules(1000, 30, 100, 60), NONE, events(8, 12, 9, 11), [], 1, 1000, 100, 200, 200, "DesiredWithinRange"),
        (NONE, rules(1000, 30, 100, 60), [], events(8, 12, 9, 11), 1, 1000, 100, 5, 5, "DesiredWithinRange"),
        # TestCalculateScaleUpLimitWithScalingRules, TestCalculateScaleDownLimitWithBehaviors, TestUpscaleCap…
        (rules(2, 60, 50, 60, select="Min"), NONE, [], [], 1, 100, 1, 50, 2, "ScaleUpLimit"),
        (NONE, rules(2, 60, 50, 60, select="Min"), [], [], 1, 100, 5, 1, 3, "ScaleDownLimit"),
        (rules(0, 0, 700, 60), NONE, [], [], 1, 100, 3, 60, 24, "ScaleUpLimit"),
        (rules(0, 0, 700, 60), NONE, [], [], 1, 20, 3, 60, 20, "TooManyReplicas"),
        # docs: at most 10 % and at most 5 pods a minute; and scaling down switched off
        (NONE, rules(5, 60, 10, 60, select="Min"), [], [], 1, 100, 80, 10, 75, "ScaleDownLimit"),
        (NONE, Rules(window=0, select="Disabled"), [], [], 1, 100, 80, 10, 80, "ScaleDownLimit"),
        (Rules(select="Disabled"), NONE, [], [], 1, 100, 8, 10, 8, "ScaleUpLimit"),
        # the same floating point as there: 100 x 1.1 is a little more than 110, 30 x (1 - 0.9) a little less than 3
        (rules(0, 0, 10, 60), NONE, [], [], 1, 1000, 100, 500, 111, "ScaleUpLimit"),
        (NONE, rules(0, 0, 90, 60), [], [], 1, 1000, 30, 1, 2, "ScaleDownLimit"),
    ],
)
def test_policies_count_from_the_start_of_their_period(
    up: Rules,
    down: Rules,
    ups: list[tuple[float, int]],
    downs: list[tuple[float, int]],
    low: int,
    high: int,
    current: int,
    wish: int,
    replicas: int,
    reason: str,
) -> None:
    found = fresh(Hpa(minimum=low, maximum=high, behavior=Behavior(up, down)))
    found._changes = {1: list(ups), -1: list(downs)}
    decision = found.sync(0, current, [wish])
    assert (decision.replicas, decision.reason) == (replicas, reason)


@pytest.mark.parametrize(
    ("up", "down", "log", "current", "wish", "replicas"),
    [
        # horizontal_test TestNormalizeDesiredReplicasWithBehavior
        (0, 0, [], 100, 5, 5),
        (0, 180, [(-120, 4), (-60, 5)], 100, 3, 5),
        (300, 0, [(-120, 4), (-60, 5)], 1, 7, 4),
        (300, 0, [(-120, 1), (-60, 2)], 100, 3, 3),
        (0, 300, [(-120, 4), (-60, 5)], 1, 3, 3),
        (0, 0, [(-600, 10), (-540, 9)], 100, 3, 3),
        (0, 0, [(-600, 10), (-540, 9)], 1, 100, 100),
        (0, 180, [(-600, 10), (-60, 4), (-120, 5), (-540, 9)], 100, 3, 5),
        (300, 0, [(-6000, 10), (-60, 6), (-120, 5), (-180, 9)], 1, 100, 5),
        (300, 300, [(-6000, 2), (-180, 3)], 2, 1, 2),
        (300, 300, [(-6000, 2), (-180, 1)], 2, 3, 2),
    ],
)
def test_windows_in_both_directions(
    up: int, down: int, log: list[tuple[float, int]], current: int, wish: int, replicas: int
) -> None:
    policies = (Policy("Pods", 1000, 15),)
    found = fresh(Hpa(maximum=1000, behavior=Behavior(Rules(up, policies), Rules(down, policies))), *log)
    assert found.sync(0, current, [wish]).replicas == replicas


def test_the_documentations_way_from_80_to_10() -> None:
    # docs: 8 of 80 in the first step, 8 of 72 in the next (7.2, rounded up), and 4 at a time from 40 on.
    behavior = Behavior.of(
        {
            "scaleDown": {
                "stabilizationWindowSeconds": 0,
                "policies": [
                    {"type": "Pods", "value": 4, "periodSeconds": 60},
                    {"type": "Percent", "value": 10, "periodSeconds": 60},
                ],
            }
        }
    )
    steps = run(fresh(Hpa(maximum=100, behavior=behavior)), [10] * 14, current=80, every=60)
    assert steps == [72, 64, 57, 51, 45, 40, 36, 32, 28, 24, 20, 16, 12, 10]
    # The HPA syncs every 15 seconds, but the period is a minute: three of four syncs change nothing.
    assert run(fresh(Hpa(maximum=100, behavior=behavior)), [10] * 6, current=80) == [72] * 4 + [64] * 2


def test_any_behavior_changes_the_first_step_up() -> None:
    """The documentation's defaults are those of a behavior that is set; unset is another rule."""
    unset, empty = Hpa(maximum=60), Hpa(maximum=60, behavior=Behavior())
    assert run(unset, [50] * 5, current=1) == [4, 8, 16, 32, 50]
    assert run(empty, [50] * 5, current=1) == [5, 10, 20, 40, 50]
    only_down = Behavior.of({"scaleDown": {"stabilizationWindowSeconds": 60}})
    assert run(Hpa(maximum=60, behavior=only_down), [50], current=1) == [5]
    assert only_down.up == Rules()


def test_what_others_do_to_the_replicas_is_no_event() -> None:
    found = fresh(Hpa(maximum=100, behavior=Behavior(up=rules(2, 60, 0, 0))))
    assert found.sync(0, 1, [50]).replicas == 3
    assert found.sync(15, 3, [50]).replicas == 3
    assert found.sync(30, 20, [50]).replicas == 20  # somebody set 20: the period's start is 20 - 2
    assert found.sync(60, 20, [50]).replicas == 22


def test_a_change_that_its_own_direction_needs_no_more_makes_room_for_the_next() -> None:
    """As in storeScaleEvent: then the other direction, with a longer period, forgets it as well."""
    behavior = Behavior(up=rules(5, 15, 0, 0), down=rules(2, 60, 0, 0))
    found = fresh(Hpa(maximum=100, behavior=behavior))
    assert run(found, [50, 50, 1], current=10) == [15, 20, 13]  # a minute ago there were 10; it takes them for 20 - 5
    apart = fresh(Hpa(maximum=100, behavior=behavior))
    assert run(apart, [15, 15, 1], current=10) == [15, 15, 8]  # nothing forgotten: 15 - 5 - 2


def test_after_a_burst_the_policy_down_counts_from_before_the_burst() -> None:
    """At most 2 pods a minute, and 22 go at once: a period limits the difference, not the way."""
    behavior = Behavior(up=rules(20, 60, 0, 0), down=rules(2, 60, 0, 0))
    assert run(fresh(Hpa(maximum=100, behavior=behavior)), [30, 1], current=10) == [30, 8]


# Missing metrics, zero, bad input


@pytest.mark.parametrize(
    ("current", "wishes", "replicas", "reason"),
    [
        (5, [None], 5, "FailedComputeMetricsReplicas"),
        (5, [], 5, "FailedComputeMetricsReplicas"),
        (5, [3, None], 5, "FailedComputeMetricsReplicas"),  # horizontal_test TestNoScaleDownOneMetricEmpty
        (3, [4, None], 4, "DesiredWithinRange"),  # horizontal_test TestScaleUpOneMetricEmpty
        (3, [2, 5, 4], 5, "DesiredWithinRange"),  # docs: the largest
        (0, [7], 0, "ScalingDisabled"),  # docs: implicit maintenance-mode deactivation
    ],
)
def test_missing_metrics_hold_but_let_a_step_up_through(
    current: int, wishes: list[int | None], replicas: int, reason: str
) -> None:
    found = fresh(Hpa(minimum=1, maximum=6)).sync(0, current, wishes)
    assert (found.replicas, found.reason) == (replicas, reason)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: Hpa(minimum=0, maximum=5), "minimum must be a whole number of at least 1; got 0."),
        (lambda: Hpa(minimum=6, maximum=5), "maximum must be a whole number of at least 6; got 5."),
        (lambda: Policy("Pods", 0, 60), "value must be a whole number of at least 1; got 0."),
        (lambda: Policy("Pods", 1, 1801), "period must be a whole number from 1 to 1800; got 1801."),
        (lambda: Policy("Pod", 1, 60), "kind must be Pods or Percent; got 'Pod'."),  # type: ignore[arg-type]
        (lambda: Rules(window=3601), "window must be a whole number from 0 to 3600; got 3601."),
        (lambda: Rules(policies=()), "policies must have at least one policy, or be None for the default; got none."),
        (lambda: Rules(select="All"), "select must be Max, Min or Disabled; got 'All'."),  # type: ignore[arg-type]
        (lambda: Behavior.of({"scaledown": {}}), r"behavior has scaleUp and scaleDown; got \['scaledown'\]."),
        (lambda: Behavior.of({"scaleUp": {"window": 5}}), r"behavior has stabilizationWindowSeconds, .*'window'\]."),
        (lambda: per_pod(1, 0, 1), "target must be more than 0; got 0."),
        (lambda: per_pod(-1, 5, 1), "usage must be at least 0; got -1."),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(make: Any, sentence: str) -> None:
    with pytest.raises(ModelError, match=f"^{sentence}$"):
        make()


def test_the_clock_does_not_go_back() -> None:
    found = Hpa(maximum=5)
    found.sync(15, 1, [1])
    with pytest.raises(ModelError, match=r"^now must be at least 15 s; got 0\.$"):
        found.sync(0, 1, [1])


# Under any load

WISHES = st.lists(st.one_of(st.none(), st.integers(0, 200)), min_size=1, max_size=60)
BEHAVIORS = st.builds(
    Behavior,
    *[
        st.builds(
            Rules,
            st.sampled_from([None, 0, 15, 60, 300]),
            st.one_of(
                st.none(),
                st.lists(
                    st.builds(Policy, st.sampled_from(["Pods", "Percent"]), st.integers(1, 120), st.integers(1, 120)),
                    min_size=1,
                    max_size=3,
                ).map(tuple),
            ),
            st.sampled_from(["Max", "Min", "Disabled"]),
        )
    ]
    * 2,
)


def decisions(found: Hpa, wishes: list[int | None], current: int) -> list[Decision]:
    seen = []
    for turn, wish in enumerate(wishes):
        seen.append(found.sync(turn * 15.0, current, [wish]))
        current = seen[-1].replicas
    return seen


@settings(max_examples=150, deadline=None)
@given(WISHES, st.none() | BEHAVIORS, st.integers(1, 20), st.integers(0, 60), st.integers(0, 90))
def test_never_outside_of_minimum_and_maximum_and_always_the_same(
    wishes: list[int | None], behavior: Behavior | None, low: int, more: int, start: int
) -> None:
    seen = decisions(Hpa(minimum=low, maximum=low + more, behavior=behavior), wishes, start)
    assert all(each.replicas == 0 if not start else low <= each.replicas <= low + more for each in seen)
    assert all(each.reason and each.why for each in seen)
    assert seen == decisions(Hpa(minimum=low, maximum=low + more, behavior=behavior), wishes, start)


@settings(max_examples=150, deadline=None)
@given(WISHES, st.sampled_from([None, 0, 15, 60, 300]), st.integers(1, 60))
def test_it_never_shrinks_below_the_highest_wish_of_the_window(
    wishes: list[int | None], window: int | None, start: int
) -> None:
    seen = decisions(Hpa(maximum=60, behavior=Behavior(down=Rules(window))), wishes, start)
    reach = max(1, math.ceil((300 if window is None else window) / 15))
    before = start
    for turn, each in enumerate(seen):
        if each.replicas < before:
            recent = [wish for wish in wishes[max(0, turn - reach + 1) : turn + 1] if wish is not None]
            assert each.replicas >= min(before, max(recent))
        before = each.replicas


@settings(max_examples=150, deadline=None)
@given(WISHES, st.integers(1, 30), st.integers(1, 120), st.integers(1, 30))
def test_in_no_period_does_it_add_or_remove_more_than_the_policy(
    wishes: list[int | None], value: int, period: int, start: int
) -> None:
    policy = (Policy("Pods", value, period),)
    behavior = Behavior(Rules(0, policy), Rules(0, policy))
    after = [start, *(each.replicas for each in decisions(Hpa(maximum=500, behavior=behavior), wishes, start))]
    for turn, (before, now) in enumerate(pairwise(after)):
        first = max(0, turn + 1 - math.ceil(period / 15))  # the sync before which the period began
        assert abs(now - after[first]) <= value or abs(now - after[first]) <= abs(before - after[first])


@settings(max_examples=100, deadline=None)
@given(st.integers(0, 5000), st.integers(1, 50), st.integers(1, 200))
def test_a_wish_for_a_queue_is_what_there_is_or_the_least_that_suffices(usage: int, target: int, there: int) -> None:
    wish = per_pod(usage, target, there)
    assert wish == there or (wish - 1) * target < usage <= wish * target
