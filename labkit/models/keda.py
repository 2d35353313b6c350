"""KEDA and its SQS scaler: who wakes a fleet from zero, who puts it to sleep, and what number the HPA gets to see.

KEDA does two jobs. Every 30 seconds it *looks*: is there more than the activation threshold? And whenever the HPA
asks, it *measures*: so many messages for each pod. The look alone decides between zero and some; the HPA does the
rest::

    0 ── more than activation ──▶ 1 (or the minimum) ──▶ the HPA scales
    0 ◀── not active for the cooldown ── any number      not step by step: from 40 straight to 0

With a minimum of 1 and no idle count the left half is never reached: activation and cooldown then decide nothing.

Sources: kedacore/keda, pkg/scalers/aws_sqs_queue_scaler.go, pkg/scaling/executor/scale_scaledobjects.go
(RequestScale), pkg/scaling/scale_handler.go (getScalerState), pkg/fallback/fallback.go and
apis/keda/v1alpha1/scaledobject_webhook.go, all on its main branch between 2.20.2 and 2.21; keda-docs 2.21, aws-sqs,
scaledobject-spec and scaling-deployments; kedacore/keda issue 7770 for the step from any number to zero.
As in :mod:`labkit.models.hpa`, what is exactly as old as the cooldown counts as older.
Left out: several triggers, cached metrics, scaling modifiers, pauses. With a minimum above 0, KEDA 2.21 no longer
measures at its own looks but takes what the HPA asked for; here it measures, which only a count of failures can tell
apart. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from labkit.facts import facts
from labkit.models._input import ModelError, limit, number, whole
from labkit.models.hpa import Behavior

__all__ = ["Fallback", "Keda", "Look", "ScaledObject", "unused"]

_BEHAVIORS = ("static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower")
_FIELDS = {
    "pollingInterval": "polling",
    "cooldownPeriod": "cooldown",
    "initialCooldownPeriod": "initial_cooldown",
    "minReplicaCount": "minimum",
    "maxReplicaCount": "maximum",
    "idleReplicaCount": "idle",
}
_METADATA = {
    "queueLength": "queue_length",
    "activationQueueLength": "activation",
    "scaleOnInFlight": "in_flight",
    "scaleOnDelayed": "delayed",
}
_OF_SLEEP = ("activation", "polling", "cooldown", "initial_cooldown")


@dataclass(frozen=True)
class Fallback:
    """What holds when the queue cannot be measured more than ``failures`` times in a row (``failureThreshold``).

    Looks and measurements count alike. At or below that the HPA gets no number, and nothing changes.
    """

    failures: int
    replicas: int
    behavior: str = "static"

    def __post_init__(self) -> None:
        whole("failures", self.failures, low=0)
        whole("replicas", self.replicas, low=0)
        if self.behavior not in _BEHAVIORS:
            raise ModelError(f"behavior must be one of {', '.join(_BEHAVIORS)}; got {self.behavior!r}.")

    def of(self, current: int) -> int:
        """The replicas to fall back to, with ``current`` ones there."""
        if self.behavior == "currentReplicas":
            return current
        if self.behavior == "currentReplicasIfHigher":
            return max(current, self.replicas)
        return min(current, self.replicas) if self.behavior == "currentReplicasIfLower" else self.replicas


@dataclass(frozen=True)
class ScaledObject:
    """A ScaledObject with one ``aws-sqs-queue`` trigger. Counts in messages and pods, times in seconds.

    Defaults are KEDA's own. Raises :class:`~labkit.models._input.ModelError` for what KEDA refuses.
    """

    queue_length: int = limit("keda.queue_length.default")  # messages for each pod
    activation: int = limit("keda.activation.default")  # active with more than so many messages
    in_flight: bool = facts("keda.scale_on_in_flight.default") == "yes"
    delayed: bool = facts("keda.scale_on_delayed.default") == "yes"
    minimum: int = limit("keda.min_replicas.default")
    maximum: int = limit("keda.max_replicas.default")
    idle: int | None = None
    polling: int = limit("keda.polling_interval.default")
    cooldown: int = limit("keda.cooldown.default")
    initial_cooldown: int = limit("keda.initial_cooldown.default")
    fallback: Fallback | None = None
    behavior: Behavior | None = None  # the HPA's

    def __post_init__(self) -> None:
        whole("queue_length", self.queue_length)
        whole("polling", self.polling)
        whole("maximum", self.maximum)
        for name in ("activation", "cooldown", "initial_cooldown"):
            whole(name, getattr(self, name), low=0)
        whole("minimum", self.minimum, low=0, high=self.maximum)
        if self.idle is not None and whole("idle", self.idle, low=0) >= self.minimum:
            raise ModelError(f"idle must be less than the minimum of {self.minimum}; got {self.idle}.")

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> ScaledObject:
        """From the ``spec`` of a manifest, as a YAML reader gives it. Raises :class:`ModelError`."""
        triggers = spec.get("triggers", [])
        if [trigger.get("type") for trigger in triggers] != ["aws-sqs-queue"]:
            raise ModelError(f"triggers must be one aws-sqs-queue; got {[each.get('type') for each in triggers]}.")
        found: dict[str, Any] = {name: spec[key] for key, name in _FIELDS.items() if key in spec}
        metadata = triggers[0].get("metadata", {})
        found |= {name: _value(key, metadata[key]) for key, name in _METADATA.items() if key in metadata}
        if fallback := spec.get("fallback"):
            behavior = fallback.get("behavior", "static")
            found["fallback"] = Fallback(fallback["failureThreshold"], fallback["replicas"], behavior)
        behavior = spec.get("advanced", {}).get("horizontalPodAutoscalerConfig", {}).get("behavior")
        return cls(**found, behavior=None if behavior is None else Behavior.of(behavior))

    @property
    def sleeps(self) -> bool:
        """Can this fleet be without work at less than its minimum: at zero, or at its idle count?"""
        return self.minimum == 0 or self.idle is not None

    def messages(self, visible: int, in_flight: int = 0, delayed: int = 0) -> int:
        """The one number that KEDA makes of a queue's three."""
        for name, count in (("visible", visible), ("in_flight", in_flight), ("delayed", delayed)):
            whole(name, count, low=0)
        return visible + in_flight * self.in_flight + delayed * self.delayed

    def active(self, messages: int) -> bool:
        return messages > self.activation


def unused(spec: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields of a manifest's ``spec`` that are set and decide nothing, because this fleet never sleeps.

    KEDA warns of ``pollingInterval`` and ``cooldownPeriod`` when such a manifest is applied. Raises
    :class:`~labkit.models._input.ModelError`.
    """
    if ScaledObject.of(spec).sleeps:
        return ()
    given = {**spec, **spec["triggers"][0].get("metadata", {})}
    return tuple(key for key, name in (_FIELDS | _METADATA).items() if name in _OF_SLEEP and key in given)


@dataclass(frozen=True)
class Look:
    """What one look of KEDA decided: ``replicas``, what it took the queue for, and why."""

    replicas: int
    state: Literal["active", "inactive", "cooling down", "error"]
    why: str


class Keda:
    """KEDA's operator for one ScaledObject that was created at second ``created``: it remembers when the queue was
    last active, and how often in a row it could not be read."""

    def __init__(self, scaled: ScaledObject, *, created: float = 0.0) -> None:
        self.scaled = scaled
        self.created = number("created", created, unit="s")
        self.last_active: float | None = None
        self.failures = 0

    def measure(self, messages: int | None, current: int) -> float | None:
        """The number for the HPA: the messages, in a fallback those for its replicas, None when there is none."""
        self.failures = 0 if messages is not None else self.failures + 1
        fallback = self.scaled.fallback
        if messages is None and fallback is not None and self.failures > fallback.failures:
            return float(self.scaled.queue_length * fallback.of(current))
        return messages

    def look(self, now: float, messages: int | None, current: int) -> Look:
        """One poll at second ``now``: ``messages`` None is a queue that could not be read."""
        scaled, some = self.scaled, max(self.scaled.minimum, 1)
        fell_back = self.measure(messages, current) is not None and messages is None
        if fell_back or (messages is not None and scaled.active(messages)):
            self.last_active = now
            what = "the fallback holds" if fell_back else f"{_messages(messages)}, over {scaled.activation}"
            if current == 0 or (scaled.idle is not None and current < scaled.minimum):
                return Look(some, "active", f"{what}: {current} to {some}")
            return Look(current, "active", f"{what}: between {some} and {scaled.maximum} the HPA decides")
        # A fallback to 0 replicas is no reason to wait for it.
        if messages is None and (scaled.fallback is None or scaled.fallback.replicas):
            return Look(current, "error", "the queue cannot be read: nothing changes")
        unread = messages is None
        what = "the queue cannot be read" if unread else f"{_messages(messages)}, not over {scaled.activation}"
        rest = scaled.minimum if scaled.idle is None else scaled.idle
        if current > rest and scaled.sleeps:
            since = self.created if self.last_active is None else self.last_active
            wait = scaled.initial_cooldown if self.last_active is None else scaled.cooldown
            if now - since < wait:
                return Look(current, "cooling down", f"{what}: quiet for {now - since:g} of {wait} s")
            return Look(rest, "inactive", f"{what}, and quiet for {now - since:g} s: {current} to {rest}")
        if scaled.idle is None and current < scaled.minimum:
            return Look(scaled.minimum, "inactive", f"{what}: up to the minimum of {scaled.minimum}")
        return Look(current, "inactive", what)


def _value(key: str, value: object) -> int:
    """A trigger's metadata are text, also where they mean a number or a switch."""
    text = str(value).lower()
    if text in ("true", "false"):
        return text == "true"
    if not text.isdecimal():
        raise ModelError(f"{key} must be a whole number, true or false; got {value!r}.")
    return int(text)


def _messages(count: int | None) -> str:
    return "1 message" if count == 1 else f"{count} messages"
