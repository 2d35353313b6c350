"""KEDA's rules and the whole loop: KEDA between zero and some, the HPA above, both on a clock of the test's own."""

from __future__ import annotations

import doctest
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.facts import facts
from labkit.models import scaling
from labkit.models._input import ModelError
from labkit.models.hpa import Behavior, Policy, Rules
from labkit.models.keda import Fallback, Keda, ScaledObject, unused
from labkit.models.scaling import Autoscaler, Change

# The guide's manifest, as a YAML reader gives it.
GUIDES: dict[str, Any] = {
    "minReplicaCount": 2,
    "maxReplicaCount": 60,
    "pollingInterval": 30,
    "cooldownPeriod": 300,
    "triggers": [
        {
            "type": "aws-sqs-queue",
            "metadata": {
                "queueURL": "https://sqs.us-east-1.amazonaws.com/111122223333/agent-researcher",
                "awsRegion": "us-east-1",
                "queueLength": "10",
                "activationQueueLength": "1",
            },
        }
    ],
}


def run(scaler: Autoscaler, seconds: int, visible: int | None, in_flight: int = 0, *, since: int = 0) -> list[Change]:
    """Every second of a queue that stays as it is; the changes of that time."""
    before = len(scaler.changes)
    for second in range(since, since + seconds):
        scaler.step(second, visible, in_flight)
    return scaler.changes[before:]


def steps(changes: list[Change]) -> list[tuple[float, int, int, str]]:
    return [(each.at, each.before, each.after, each.by) for each in changes]


def test_the_examples_of_the_docstrings() -> None:
    assert doctest.testmod(scaling).failed == 0


def test_the_defaults_are_kedas() -> None:
    usual = ScaledObject()
    assert (usual.queue_length, usual.activation, usual.in_flight, usual.delayed) == (5, 0, True, False)
    assert (usual.minimum, usual.maximum, usual.idle) == (0, 100, None)
    assert (usual.polling, usual.cooldown, usual.initial_cooldown) == (30, 300, 0)


def test_a_manifest_is_read_as_it_stands() -> None:
    found = ScaledObject.of(GUIDES)
    assert found == ScaledObject(queue_length=10, activation=1, minimum=2, maximum=60)
    more = {
        **GUIDES,
        "minReplicaCount": 1,
        "idleReplicaCount": 0,
        "initialCooldownPeriod": 60,
        "fallback": {"failureThreshold": 3, "replicas": 6, "behavior": "currentReplicasIfHigher"},
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}}}},
        "triggers": [{"type": "aws-sqs-queue", "metadata": {"scaleOnInFlight": "false", "scaleOnDelayed": True}}],
    }
    found = ScaledObject.of(more)
    assert (found.idle, found.initial_cooldown, found.in_flight, found.delayed) == (0, 60, False, True)
    assert found.fallback == Fallback(3, 6, "currentReplicasIfHigher")
    assert found.behavior == Behavior(down=Rules(window=60))


@pytest.mark.parametrize(
    ("in_flight", "delayed", "messages"),
    [(True, False, 30), (False, False, 10), (True, True, 34), (False, True, 14)],
)
def test_the_number_is_visible_and_what_the_two_switches_add(in_flight: bool, delayed: bool, messages: int) -> None:
    # keda-docs 2.21 aws-sqs, "actual messages"
    assert ScaledObject(in_flight=in_flight, delayed=delayed).messages(10, 20, 4) == messages


# Between zero and some


@pytest.mark.parametrize(("activation", "messages", "replicas"), [(0, 0, 0), (0, 1, 1), (1, 1, 0), (1, 2, 1)])
def test_activation_is_more_than(activation: int, messages: int, replicas: int) -> None:
    """Erratum 33: with activationQueueLength 1 it takes two messages."""
    assert Keda(ScaledObject(activation=activation)).look(0, messages, 0).replicas == replicas


def test_activation_has_priority_over_the_hpas_wish() -> None:
    # keda-docs 2.21 scaling-deployments: threshold 10, activation 50, 40 messages: zero, though the HPA asks for 4.
    scaler = Autoscaler(ScaledObject(queue_length=10, activation=50, cooldown=0), replicas=4)
    assert scaler.step(0, 40) == 0
    assert scaler.hpa.sync(0, 4, [4]).replicas == 4


def test_waking_goes_to_one_or_the_minimum_and_not_to_what_is_needed() -> None:
    # keda-docs 2.21 scaling-deployments, activation phase; scale_scaledobjects_test TestScaleFromIdleToMinReplicas…
    assert Keda(ScaledObject()).look(0, 500, 0).replicas == 1
    assert Keda(ScaledObject(minimum=5, idle=0)).look(0, 500, 0).replicas == 5
    assert Keda(ScaledObject(minimum=5)).look(0, 500, 0).replicas == 5


def test_a_burst_on_a_sleeping_fleet() -> None:
    changes = run(Autoscaler(ScaledObject(queue_length=10, maximum=60)), 121, 1000)
    assert steps(changes) == [
        (0, 0, 1, "KEDA"),
        (15, 1, 4, "HPA"),
        (30, 4, 8, "HPA"),
        (45, 8, 16, "HPA"),
        (60, 16, 32, "HPA"),
        (75, 32, 60, "HPA"),
    ]
    # One second too late for the first look costs the rest of the interval.
    scaler = Autoscaler(ScaledObject(queue_length=10))
    assert steps([*run(scaler, 1, 0), *run(scaler, 45, 20, since=1)]) == [(30, 0, 1, "KEDA"), (30, 1, 2, "HPA")]


def test_the_cooldown_counts_from_the_last_active_look() -> None:
    scaler = Autoscaler(ScaledObject(queue_length=10))
    run(scaler, 100, 25)  # the last active look is at 90
    run(scaler, 400, 0, since=100)
    assert steps(scaler.changes)[-1] == (390, 3, 0, "KEDA")
    assert scaler.changes[-1].why == "0 messages, not over 0, and quiet for 300 s: 3 to 0"


def test_to_zero_it_goes_from_any_number_at_once() -> None:
    """Not step by step: the HPA's slow way down is a rule between the minimum and the maximum.

    scale_scaledobjects_test TestScaleToMinReplicasWhenNotActive: 10 to 0; kedacore/keda issue 7770.
    """
    slow = Behavior(down=Rules(window=300, policies=(Policy("Pods", 1, 60),)))
    scaler = Autoscaler(ScaledObject(queue_length=10, cooldown=60, behavior=slow), replicas=40)
    run(scaler, 31, 400)
    run(scaler, 120, 0, since=31)
    assert steps(scaler.changes) == [(90, 40, 0, "KEDA")]
    # With the default cooldown, as long as the HPA's window, it is a matter of seconds who comes first.
    scaler = Autoscaler(ScaledObject(queue_length=10), replicas=40)
    run(scaler, 31, 400)
    assert steps(run(scaler, 600, 0, since=31)) == [(330, 40, 0, "KEDA")]


def test_never_active_and_no_initial_cooldown_is_zero_at_the_first_look() -> None:
    # keda-docs 2.21 scaledobject-spec, initialCooldownPeriod
    assert Autoscaler(ScaledObject(), replicas=5).step(0, 0) == 0
    scaler = Autoscaler(ScaledObject(initial_cooldown=120), replicas=5)
    assert steps(run(scaler, 200, 0)) == [(120, 5, 0, "KEDA")]
    # Once it has been active only the cooldown counts, whatever the initial one says.
    scaler = Autoscaler(ScaledObject(initial_cooldown=600, cooldown=60), replicas=5)
    run(scaler, 1, 3)
    assert steps(run(scaler, 100, 0, since=1))[-1] == (60, 5, 0, "KEDA")


def test_an_idle_count_sleeps_below_the_minimum() -> None:
    # keda-docs 2.21 scaledobject-spec, idleReplicaCount
    scaler = Autoscaler(ScaledObject(queue_length=10, minimum=10, idle=0, cooldown=60))
    run(scaler, 61, 20)
    run(scaler, 100, 0, since=61)
    assert steps(scaler.changes) == [(0, 0, 10, "KEDA"), (120, 10, 0, "KEDA")]


def test_with_a_minimum_of_two_activation_and_cooldown_decide_nothing() -> None:
    """Erratum 32. KEDA warns of the two times when the guide's manifest is applied."""
    assert unused(GUIDES) == ("pollingInterval", "cooldownPeriod", "activationQueueLength")

    def changes(activation: int = 0, cooldown: int = 300) -> list[tuple[float, int, int, str]]:
        scaler = Autoscaler(
            ScaledObject(queue_length=10, minimum=2, maximum=60, activation=activation, cooldown=cooldown)
        )
        for turn, visible in enumerate((0, 400, 1, 0, 0)):
            run(scaler, 300, visible, since=300 * turn)
        return steps(scaler.changes)

    assert changes() == changes(1, 120) == changes(5000, 0)
    assert changes()[-1][1:] == (40, 2, "HPA")
    # Either of these makes them count.
    assert unused({**GUIDES, "minReplicaCount": 0}) == unused({**GUIDES, "idleReplicaCount": 0}) == ()


def test_the_guides_fleet_ends_at_60_where_1125_are_needed() -> None:
    """Erratum 35."""
    guides = ScaledObject.of(GUIDES)
    scaler = Autoscaler(guides)
    run(scaler, 121, 0, int(float(facts("fleet.in_flight"))))
    assert scaler.replicas == 60
    assert guides.maximum * guides.queue_length == facts("guide.keda.capacity")
    assert scaler.why.endswith("HPA: 1125 wanted, and 60 is the maximum")
    assert -(-int(float(facts("fleet.in_flight"))) // guides.queue_length) == facts("fleet.pods.needed")


def test_replicas_that_somebody_sets_are_put_right_by_whose_turn_it_is() -> None:
    scaler = Autoscaler(ScaledObject(minimum=5, maximum=10))
    scaler.replicas = 1
    assert (scaler.step(0, 0), scaler.changes[-1].by) == (5, "KEDA")  # …TestScaleToMinReplicasFromLowerInitial…
    scaler.replicas = 30
    assert (scaler.step(15, 0), scaler.changes[-1].by) == (10, "HPA")
    scaler.replicas = 0
    assert scaler.step(16, 0) == 0
    scaler.step(30, 0)
    # The HPA, which met 30 when it began, still takes them for wanted: it doubles what KEDA has set.
    assert steps(scaler.changes)[-2:] == [(30, 0, 5, "KEDA"), (30, 5, 10, "HPA")]


def test_pods_that_exist_not_replicas_decide_what_is_close_enough() -> None:
    scaled = ScaledObject(queue_length=10)
    assert Autoscaler(scaled, replicas=4).step(15, 42, pods=4) == 4
    assert Autoscaler(scaled, replicas=4).step(15, 42, pods=3) == 5


# A queue that cannot be read


def test_without_a_fallback_an_unreadable_queue_freezes_the_fleet() -> None:
    scaler = Autoscaler(ScaledObject(queue_length=10))
    run(scaler, 61, 30)
    assert scaler.replicas == 3
    assert run(scaler, 3600, None, since=61) == []
    assert scaler.why == "KEDA: the queue cannot be read: nothing changes; HPA: " + scaler.why.partition("HPA: ")[2]
    assert "1 of 1 metrics missing" in scaler.why


def test_a_fallback_counts_looks_and_measurements_alike() -> None:
    # keda pkg/fallback: more than failureThreshold in a row; with 2 syncs for each look that is soon.
    scaler = Autoscaler(ScaledObject(queue_length=10, fallback=Fallback(3, 6)))
    run(scaler, 61, 30)
    assert steps(run(scaler, 60, None, since=61)) == [(105, 3, 6, "HPA")]  # 75, 90, 90, and the fourth
    assert scaler.keda.failures == 6
    run(scaler, 15, 30, since=121)
    assert scaler.keda.failures == 0


def test_a_fallback_wakes_a_sleeping_fleet_where_only_looks_count() -> None:
    scaler = Autoscaler(ScaledObject(queue_length=10, fallback=Fallback(3, 6)))
    assert steps(run(scaler, 121, None)) == [(90, 0, 1, "KEDA"), (90, 1, 4, "HPA"), (105, 4, 6, "HPA")]


def test_a_fallback_to_zero_does_not_wait_for_itself() -> None:
    # scale_scaledobjects.go: only fallback.replicas other than 0 keeps the fleet awake below the threshold
    assert Autoscaler(ScaledObject(fallback=Fallback(3, 0)), replicas=5).step(0, None) == 0
    assert Autoscaler(ScaledObject(fallback=Fallback(3, 6)), replicas=5).step(0, None) == 5


@pytest.mark.parametrize(
    ("behavior", "current", "replicas"),
    [
        # keda-docs 2.21 scaledobject-spec, fallback.behavior
        ("static", 3, 6),
        ("currentReplicas", 3, 3),
        ("currentReplicasIfHigher", 9, 9),
        ("currentReplicasIfHigher", 3, 6),
        ("currentReplicasIfLower", 3, 3),
        ("currentReplicasIfLower", 9, 6),
    ],
)
def test_what_it_falls_back_to(behavior: str, current: int, replicas: int) -> None:
    assert Fallback(3, 6, behavior).of(current) == replicas


# Bad input

HIGHER_OR_LOWER = ", currentReplicasIfHigher, currentReplicasIfLower"


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: ScaledObject(queue_length=0), "queue_length must be a whole number of at least 1; got 0."),
        (lambda: ScaledObject(minimum=101), "minimum must be a whole number from 0 to 100; got 101."),
        (lambda: ScaledObject(idle=0), "idle must be less than the minimum of 0; got 0."),
        (lambda: ScaledObject(minimum=2, idle=2), "idle must be less than the minimum of 2; got 2."),
        (lambda: ScaledObject(polling=0), "polling must be a whole number of at least 1; got 0."),
        (lambda: ScaledObject(cooldown=-1), "cooldown must be a whole number of at least 0; got -1."),
        (lambda: Fallback(-1, 6), "failures must be a whole number of at least 0; got -1."),
        (
            lambda: Fallback(3, 6, "all"),
            f"behavior must be one of static, currentReplicas{HIGHER_OR_LOWER}; got 'all'.",
        ),
        (
            lambda: ScaledObject.of({"triggers": [{"type": "aws-sqs-queue", "metadata": {"queueLength": "ten"}}]}),
            "queueLength must be a whole number, true or false; got 'ten'.",
        ),
        (lambda: ScaledObject.of({}), "triggers must be one aws-sqs-queue; got []."),
        (lambda: ScaledObject().messages(-1), "visible must be a whole number of at least 0; got -1."),
        (lambda: Autoscaler(ScaledObject()).step(-1, 0), "now must be at least 0 s; got -1."),
    ],
)
def test_what_keda_refuses_is_refused_in_one_sentence(make: Callable[[], object], sentence: str) -> None:
    with pytest.raises(ModelError) as caught:
        make()
    assert str(caught.value) == sentence


# Under any load

QUEUES = st.lists(st.one_of(st.none(), st.integers(0, 700)), min_size=1, max_size=80)


@settings(max_examples=150, deadline=None)
@given(
    QUEUES,
    st.integers(0, 5),
    st.integers(0, 60),
    st.booleans(),
    st.integers(0, 3),
    st.sampled_from([None, Fallback(1, 4)]),
    st.sampled_from([None, Behavior(), Behavior(down=Rules(window=30, policies=(Policy("Percent", 25, 60),)))]),
)
def test_asleep_or_between_minimum_and_maximum_and_always_the_same(
    queue: list[int | None],
    minimum: int,
    more: int,
    idles: bool,
    activation: int,
    fallback: Fallback | None,
    behavior: Behavior | None,
) -> None:
    scaled = ScaledObject(
        queue_length=10,
        activation=activation,
        minimum=minimum,
        maximum=max(1, minimum + more),
        idle=0 if idles and minimum else None,
        cooldown=60,
        fallback=fallback,
        behavior=behavior,
    )

    def seen() -> tuple[list[int], list[Change]]:
        scaler = Autoscaler(scaled)
        return [scaler.step(turn * 5.0, visible) for turn, visible in enumerate(queue)], scaler.changes

    replicas, changes = seen()
    awake = range(max(1, minimum), scaled.maximum + 1)
    assert all(each in awake or (each == 0 and scaled.sleeps) for each in replicas)
    assert all(each.by == "KEDA" for each in changes if 0 in (each.before, each.after))
    assert (replicas, changes) == seen()


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 400), st.integers(1, 20))
def test_a_steady_queue_ends_at_what_it_needs_and_stays(messages: int, queue_length: int) -> None:
    scaler = Autoscaler(ScaledObject(queue_length=queue_length, maximum=60))
    run(scaler, 200, messages)
    needed = min(60, -(-messages // queue_length))
    assert 0.9 <= messages / (queue_length * scaler.replicas) <= 1.1 or scaler.replicas == needed
    assert run(scaler, 600, messages, since=200) == []
