"""infra/keda: the manifests are accepted, agree with each other, cover the worked fleet, and say nothing idle."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fastjsonschema
import pytest
import yaml

from infra.keda import worker
from labkit.facts import facts
from labkit.models.hpa import Behavior
from labkit.models.keda import ScaledObject, unused
from labkit.models.little import in_flight
from labkit.models.scaling import Autoscaler, Change
from labkit.work.worker import WorkerError
from tests.infra.keda_schema import SCHEMAS, differences

FOLDER = Path(__file__).resolve().parents[2] / "infra" / "keda"
LOAD = int(in_flight(float(facts("fleet.conversations_per_min")) / 60 * 15, 90))
GIVING_BACK = 6  # seconds that a worker takes at most after its grace: labkit.work.worker

FILES = sorted(FOLDER.glob("*.yaml"))
MANIFESTS = {
    (found["kind"], found["metadata"]["name"]): found
    for path in FILES
    for found in yaml.safe_load_all(path.read_text(encoding="utf-8"))
}
SCALED = MANIFESTS["ScaledObject", "researcher-worker"]["spec"]
POD = MANIFESTS["Deployment", "researcher-worker"]["spec"]["template"]["spec"]
[CONTAINER] = POD["containers"]
ENVIRONMENT = {each["name"]: each["value"] for each in CONTAINER["env"]}
[TRIGGER] = SCALED["triggers"]

# The guide's manifest, as facts: errata 32 to 35.
GUIDES: dict[str, Any] = {
    "scaleTargetRef": {"name": "researcher-worker"},
    "minReplicaCount": 2,
    "maxReplicaCount": 60,
    "pollingInterval": 30,
    "cooldownPeriod": 300,
    "triggers": [{**TRIGGER, "metadata": {**TRIGGER["metadata"], "queueLength": "10", "activationQueueLength": "1"}}],
}


# What the API server accepts


def accepted(manifest: dict[str, Any]) -> str:
    """Empty, or the sentence of the schema that refuses it."""
    try:
        fastjsonschema.validate(SCHEMAS[manifest["kind"]], manifest)
    except fastjsonschema.JsonSchemaException as error:
        return str(error.message)
    return ""


def test_there_is_what_a_fleet_needs() -> None:
    assert {kind for kind, _ in MANIFESTS} == set(SCHEMAS)


@pytest.mark.parametrize("kind", sorted(SCHEMAS))
def test_the_manifests_fit_their_schema(kind: str) -> None:
    assert [accepted(found) for (its, _), found in MANIFESTS.items() if its == kind] == [""]


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("spec.maxReplicas", 9, "data.spec must not contain {'maxReplicas'} properties"),  # the HPA's name for it
        ("spec.triggers.0.metadata.queueLength", 9, "data.spec.triggers[0].metadata.queueLength must be string"),
        ("spec.maxReplicaCount", 0, "data.spec.maxReplicaCount must be bigger than or equal to 1"),
        ("spec.triggers", [], "data.spec.triggers must contain at least 1 items"),
        ("spec.fallback.behavior", "hold", "data.spec.fallback.behavior must be one of"),
        ("spec.scaleTargetRef", {}, "data.spec.scaleTargetRef must contain ['name'] properties"),
    ],
)
def test_what_kubernetes_refuses_the_schema_refuses(path: str, value: object, says: str) -> None:
    broken = changed(MANIFESTS["ScaledObject", "researcher-worker"], path, value)
    assert accepted(broken).startswith(says)


def test_the_comparison_with_kedas_own_crd_sees_what_differs() -> None:
    there = {"type": "object", "properties": {"a": {"type": "integer", "minimum": 1}, "b": {"type": "string"}}}
    here = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    assert differences(there, there, "spec") == []
    assert differences(here, there, "spec") == [
        "spec: required is None there, ['a'] here",
        "spec.b: only there",
        "spec.a: minimum is 1 there, None here",
    ]


# They mean each other


def test_the_manifests_name_each_other() -> None:
    assert all(found["metadata"]["namespace"] == "agents" for found in MANIFESTS.values())
    assert ("Deployment", SCALED["scaleTargetRef"]["name"]) in MANIFESTS
    assert ("TriggerAuthentication", TRIGGER["authenticationRef"]["name"]) in MANIFESTS
    assert ("ServiceAccount", POD["serviceAccountName"]) in MANIFESTS
    assert TRIGGER["metadata"]["queueURL"] == ENVIRONMENT["QUEUE_URL"]
    assert TRIGGER["metadata"]["awsRegion"] == ENVIRONMENT["AWS_DEFAULT_REGION"]
    assert f"sqs.{TRIGGER['metadata']['awsRegion']}." in TRIGGER["metadata"]["queueURL"]
    deployment = MANIFESTS["Deployment", "researcher-worker"]["spec"]
    assert deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"]


def test_keda_counts_with_a_role_of_its_own() -> None:
    """Erratum 34: without a roleArn it is the operator's role, which then may read the queues of all teams."""
    identity = MANIFESTS["TriggerAuthentication", "agent-queue-reader"]["spec"]["podIdentity"]
    workers = MANIFESTS["ServiceAccount", "researcher-worker"]["metadata"]["annotations"]["eks.amazonaws.com/role-arn"]
    assert identity["provider"] == "aws"
    assert identity["roleArn"].startswith("arn:aws:iam::")
    assert identity["roleArn"] != workers
    assert "identityOwner" not in identity  # KEDA refuses a roleArn beside the workload's identity


def test_the_number_of_replicas_is_the_autoscalers_alone() -> None:
    assert "replicas" not in MANIFESTS["Deployment", "researcher-worker"]["spec"]


# The pod and the worker in it


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The worker that the Deployment's command makes in the Deployment's environment. A queue is asked for its ARN."""
    attributes = {"Attributes": {"QueueArn": "arn:aws:sqs:us-east-1:111122223333:agent-researcher"}}
    region = SimpleNamespace(region_name=ENVIRONMENT["AWS_DEFAULT_REGION"])
    answering = SimpleNamespace(get_queue_attributes=lambda **_: attributes, meta=region)
    monkeypatch.setattr(worker.boto3, "client", lambda service: answering)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    assert CONTAINER["command"][:-1] == ["python", "-m", "labkit.work.processes"]
    assert CONTAINER["command"][-1] == f"{worker.__name__}:make"
    return worker.make()


def test_the_worker_goes_by_the_numbers_of_its_deployment(made: Any) -> None:
    assert made.queue.url == TRIGGER["metadata"]["queueURL"]
    assert (made.threads, made.visibility, made.grace) == (slots(), 180, 600)
    assert made._handler.limit == int(ENVIRONMENT["STEP_LIMIT"])
    assert made._handler.every <= made.visibility / 2  # a beat may be lost


def test_every_step_at_work_may_end_before_the_pod_is_killed() -> None:
    limit, grace = int(ENVIRONMENT["STEP_LIMIT"]), int(ENVIRONMENT["GRACE"])
    assert limit <= grace
    assert grace + GIVING_BACK < POD["terminationGracePeriodSeconds"]
    assert POD["terminationGracePeriodSeconds"] > int(facts("k8s.termination_grace.default"))


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("STEPS_TABLE", "", "the researcher needs STEPS_TABLE in its environment."),
        ("SLOTS", "ten", "SLOTS, VISIBILITY, STEP_LIMIT, GRACE are whole numbers: .*'ten'"),
        ("SLOTS", "0", "threads must be a whole number from 1 to 256"),
    ],
)
def test_a_worker_that_lacks_a_number_does_not_start(
    made: Any, monkeypatch: pytest.MonkeyPatch, name: str, value: str, says: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(WorkerError, match=says):
        worker.make()


# The fleet that it allows


def slots() -> int:
    return int(ENVIRONMENT["SLOTS"])


def test_the_load_is_the_worked_examples() -> None:
    assert facts("fleet.in_flight") == LOAD
    assert math.ceil(LOAD / slots()) == facts("fleet.pods.needed")


def test_the_fleet_that_it_allows_covers_the_load_and_the_guides_does_not() -> None:
    """Erratum 35."""
    ours, guides = ScaledObject.of(SCALED), ScaledObject.of(GUIDES)
    assert guides.maximum * slots() == int(facts("guide.keda.capacity")) < LOAD
    assert LOAD < ours.maximum * slots() < float(facts("sqs.inflight.cap"))


def test_whom_the_tolerance_leaves_waiting_has_a_slot_all_the_same() -> None:
    tolerance = 1 + float(facts("hpa.tolerance"))
    ours, guides = ScaledObject.of(SCALED), ScaledObject.of(GUIDES)
    assert ours.queue_length * tolerance <= slots() < (ours.queue_length + 1) * tolerance  # the most that fits
    assert guides.queue_length * tolerance > slots()


def test_it_gets_there_from_its_minimum_in_the_two_and_a_half_minutes_that_the_manifest_says_and_holds() -> None:
    scaler = Autoscaler(ScaledObject.of(SCALED))
    for second in range(0, 3600, 15):
        scaler.step(second, max(0, LOAD - scaler.replicas * slots()), min(LOAD, scaler.replicas * slots()))
    assert scaler.changes[-1].after * slots() >= LOAD
    assert scaler.changes[-1].at <= 150
    assert SCALED["fallback"]["replicas"] == scaler.changes[-1].after == math.ceil(LOAD / (slots() - 1))


def test_what_an_outage_of_an_hour_leaves_is_worked_off_in_three() -> None:
    rate = float(facts("fleet.steps_per_s"))
    spare = ScaledObject.of(SCALED).maximum * slots() / float(facts("fleet.step_time")) - rate
    assert rate / spare == pytest.approx(3)


# No field is there for nothing


def leaves(spec: Any, path: str = "") -> Iterator[str]:
    if isinstance(spec, dict | list):
        items = spec.items() if isinstance(spec, dict) else enumerate(spec)
        for key, value in items:
            yield from leaves(value, f"{path}.{key}" if path else str(key))
    else:
        yield path


def changed(spec: Any, path: str, value: object = None) -> Any:
    """A copy with one field changed; without it, where ``value`` is None."""
    copied = copy.deepcopy(spec)
    *way, last = path.split(".")
    where = copied
    for key in way:
        where = where[int(key) if isinstance(where, list) else key]
    if value is None:
        del where[last]
    else:
        where[last] = value
    return copied


# Each field of ours with another value, or None: left out. The first five are names, which the test above follows.
NAMES = [
    "scaleTargetRef.name",
    *(f"triggers.0.{name}" for name in ("type", "authenticationRef.name", "metadata.queueURL", "metadata.awsRegion")),
]
DOWN = "advanced.horizontalPodAutoscalerConfig.behavior.scaleDown"
OTHER = {
    "minReplicaCount": None,
    "maxReplicaCount": None,
    "fallback.failureThreshold": 5,
    "fallback.replicas": 1300,
    "fallback.behavior": None,
    f"{DOWN}.stabilizationWindowSeconds": None,
    f"{DOWN}.policies.0.type": "Pods",
    f"{DOWN}.policies.0.value": 20,
    f"{DOWN}.policies.0.periodSeconds": 90,
    "triggers.0.metadata.queueLength": None,
}


def day(spec: dict[str, Any]) -> list[Change]:
    """Quiet, a burst, an outage's backlog, a queue that cannot be read (twice), and quiet again; every 15 seconds."""
    parts: list[tuple[int, int | None]] = [
        (900, 0),
        (1200, 9_000),
        (600, None),
        (1200, 100_000),
        (600, None),
        (300, 12_000),
        (7200, 0),
    ]
    scaler, now = Autoscaler(ScaledObject.of(spec)), 0
    for seconds, messages in parts:
        for _ in range(seconds // 15):
            scaler.step(now, messages)
            now += 15
    return scaler.changes


def test_each_field_of_the_scaled_object_decides_something() -> None:
    assert unused(SCALED) == ()
    assert sorted([*OTHER, *NAMES]) == sorted(leaves(SCALED))
    usual = day(SCALED)
    assert [path for path, value in OTHER.items() if day(changed(SCALED, path, value)) == usual] == []


def test_three_fields_of_the_guides_decide_nothing() -> None:
    """Erratum 32: whatever stands in them."""
    assert unused(GUIDES) == ("pollingInterval", "cooldownPeriod", "activationQueueLength")
    usual = day(GUIDES)
    for path, values in {
        "pollingInterval": (5, 600),
        "cooldownPeriod": (0, 3600),
        "triggers.0.metadata.activationQueueLength": ("0", "5000"),
    }.items():
        assert [day(changed(GUIDES, path, value)) == usual for value in values] == [True, True]
    # And the two that are there to slow the way down do not: 60 pods go at once, after the HPA's own five minutes.
    assert [(each.before, each.after) for each in usual if each.after < each.before] == [(60, 2)]


def test_a_behavior_of_the_scaled_object_leaves_the_way_up_to_the_defaults() -> None:
    behavior = ScaledObject.of(SCALED).behavior
    assert behavior is not None
    assert behavior.up == Behavior().up
