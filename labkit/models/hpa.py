"""The Horizontal Pod Autoscaler: the second half, from a wish to a number of replicas. A state machine without a clock.

Every 15 seconds it compares what the metrics ask for (:mod:`labkit.models.hpa_metrics`) with what there is::

    wish ─▶ highest of all metrics ─▶ stabilise ─▶ limit the step ─▶ minimum, maximum ─▶ replicas
                                      over time     by what it did lately

*Stabilise*: the highest wish of the last 300 s holds, so a fleet shrinks only when nobody has wanted more for that
long. *Limit*: without ``spec.behavior`` a step ends at twice the replicas, or at 4 if that is more. With any behavior
at all, even an empty one, policies take its place: so many pods, or so many per cent, *more* than at the start of a
period. So 1 replica becomes 4 without and 5 with the very "defaults" of the documentation.

What the limits count: the HPA's own changes, up and down, as far back as the period goes. What KEDA or a person does
to the replicas is in none of them. At 0 replicas it does nothing at all; who wants it to work again sets 1.

Sources: Kubernetes, pkg/controller/podautoscaler/horizontal.go (reconcileAutoscaler, computeReplicasForMetrics,
stabilizeRecommendation, stabilizeRecommendationWithBehaviors, convertDesiredReplicasWithRules and
...WithBehaviorRate, storeScaleEvent; read as of a release before 1.33), pkg/apis/autoscaling/v2/defaults.go and
validation/validation.go.
One thing is ours: what is exactly as old as its window counts as older. A controller's clock drifts by
milliseconds a turn, so that it never meets the case; a simulation in whole seconds meets nothing else.
Left out: the feature gate by which the HPA itself scales to zero. Standard library only.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from labkit.facts import facts
from labkit.models._input import ModelError, limit, number, whole
from labkit.models.hpa_metrics import Tolerance

__all__ = ["Behavior", "Decision", "Hpa", "Policy", "Rules"]

# How far up a step may go without a behavior: so many times what there is, and at least to so many pods.
_UNSET_FACTOR, _UNSET_LEAST = limit("hpa.unset.scale_up.factor"), limit("hpa.unset.scale_up.least")


@dataclass(frozen=True)
class Policy:
    """``value`` pods or per cent in any ``period`` seconds (``type``, ``value`` and ``periodSeconds``)."""

    kind: Literal["Pods", "Percent"]
    value: int
    period: int

    def __post_init__(self) -> None:
        if self.kind not in ("Pods", "Percent"):
            raise ModelError(f"kind must be Pods or Percent; got {self.kind!r}.")
        whole("value", self.value)
        whole("period", self.period, low=limit("hpa.policy.period.min"), high=limit("hpa.policy.period.max"))

    def reach(self, start: int, sign: int) -> int:
        """How far one may go from ``start`` replicas, up (1) or down (-1); a percentage is rounded in its favour."""
        if self.kind == "Pods":
            return start + sign * self.value
        # The same floating point as there: 10 % more than 100 are 111.
        return math.ceil(start * (1 + self.value / 100)) if sign > 0 else int(start * (1 - self.value / 100))


@dataclass(frozen=True)
class Rules:
    """One direction of ``spec.behavior``; None is the field left out, for which the API server puts its default."""

    window: int | None = None  # stabilizationWindowSeconds
    policies: tuple[Policy, ...] | None = None
    select: Literal["Max", "Min", "Disabled"] = "Max"  # selectPolicy: Max lets through the larger change
    tolerance: float | None = None

    def __post_init__(self) -> None:
        if self.window is not None:
            whole("window", self.window, low=limit("hpa.stabilization.min"), high=limit("hpa.stabilization.max"))
        if self.policies is not None and not self.policies:
            raise ModelError("policies must have at least one policy, or be None for the default; got none.")
        if self.select not in ("Max", "Min", "Disabled"):
            raise ModelError(f"select must be Max, Min or Disabled; got {self.select!r}.")

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Rules:
        """From ``scaleUp`` or ``scaleDown`` as it stands in a manifest."""
        wrong = sorted(set(spec) - {"stabilizationWindowSeconds", "policies", "selectPolicy", "tolerance"})
        if wrong:
            raise ModelError(
                f"behavior has stabilizationWindowSeconds, policies, selectPolicy, tolerance; got {wrong}."
            )
        found = spec.get("policies")
        policies = found and tuple(Policy(each["type"], each["value"], each["periodSeconds"]) for each in found)
        window, select = spec.get("stabilizationWindowSeconds"), spec.get("selectPolicy", "Max")
        return cls(window, policies, select, spec.get("tolerance"))


@dataclass(frozen=True)
class Behavior:
    """``spec.behavior``. To set one direction is to give the other one its defaults, too."""

    up: Rules = field(default_factory=Rules)
    down: Rules = field(default_factory=Rules)

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> Behavior:
        """From a manifest: ``{"scaleDown": {"stabilizationWindowSeconds": 60}}``. Raises :class:`ModelError`."""
        if wrong := sorted(set(spec) - {"scaleUp", "scaleDown"}):
            raise ModelError(f"behavior has scaleUp and scaleDown; got {wrong}.")
        return cls(Rules.of(spec.get("scaleUp", {})), Rules.of(spec.get("scaleDown", {})))


@dataclass(frozen=True)
class Decision:
    """What one sync decided. ``wish``: what the metrics asked for, None where none was read. ``reason``: Kubernetes'
    own word, as in the conditions and events of ``kubectl describe hpa``; ``why``: the same in a few more words."""

    replicas: int
    wish: int | None
    reason: str
    why: str


class Hpa:
    """One HPA and what it remembers: its wishes and its own changes.

    ``behavior`` None: ``spec.behavior`` is not set. Raises :class:`~labkit.models._input.ModelError`.

    >>> unset, empty = Hpa(maximum=60), Hpa(maximum=60, behavior=Behavior())
    >>> [each.sync(0, 1, [50]).replicas for each in (unset, empty)]
    [4, 5]
    """

    def __init__(self, *, maximum: int, minimum: int = 1, behavior: Behavior | None = None) -> None:
        self.minimum = whole("minimum", minimum)
        self.maximum = whole("maximum", maximum, low=minimum)
        self.behavior = behavior
        rules = behavior or Behavior()
        usual = float(facts("hpa.tolerance"))
        up, down = (usual if each.tolerance is None else each.tolerance for each in (rules.up, rules.down))
        self.tolerance = Tolerance(up, down)
        windows = limit("hpa.scale_up.stabilization"), limit("hpa.scale_down.stabilization")
        self._window = {
            sign: usual if each.window is None else each.window
            for sign, each, usual in zip((1, -1), (rules.up, rules.down), windows, strict=True)
        }
        period = limit("hpa.policy.period.default")
        more = (
            Policy("Pods", limit("hpa.scale_up.pods"), period),
            Policy("Percent", limit("hpa.scale_up.percent"), period),
        )
        less = (Policy("Percent", limit("hpa.scale_down.percent"), period),)
        self._policies = {1: rules.up.policies or more, -1: rules.down.policies or less}
        self._select = {1: rules.up.select, -1: rules.down.select}
        self._wishes: deque[tuple[float, int]] = deque()
        self._changes: dict[int, list[tuple[float, int]]] = {1: [], -1: []}
        self._last = -math.inf

    def reads(self, current: int) -> bool:
        """Does a sync ask for metrics at this number of replicas? Not at 0, nor outside of minimum and maximum."""
        return self.minimum <= current <= self.maximum

    def sync(self, now: float, current: int, wishes: Sequence[int | None]) -> Decision:
        """One turn at second ``now`` with ``current`` replicas (``spec.replicas``) and one wish for each metric.

        A wish of None is a metric that could not be had. Raises :class:`ModelError` for a clock that goes back.
        """
        self._last = number("now", now, low=self._last, unit="s")
        whole("current", current, low=0)
        if not self._wishes:
            self._wishes.append((now, current))  # a controller that has just started takes what is there for wanted
        if not current:
            return Decision(0, None, "ScalingDisabled", "at 0 replicas the HPA does nothing")
        if not self.reads(current):
            bound, word = (self.maximum, "above") if current > self.maximum else (self.minimum, "below")
            return self._done(now, current, Decision(bound, None, "SucceededRescale", f"{current} is {word} {bound}"))
        known = [whole("wish", wish, low=0) for wish in wishes if wish is not None]
        wish = max(known, default=None)
        if wish is None or (len(known) < len(wishes) and wish < current):
            then = "nothing, or up, but not down" if known else "nothing"
            why = f"{len(wishes) - len(known)} of {len(wishes)} metrics missing: {then}"
            return Decision(current, wish, "FailedComputeMetricsReplicas", why)
        stable, held = self._stabilise(now, current, wish)
        replicas, reason, why = self._bounded(now, current, stable)
        if held and replicas == stable:
            reason, why = held
        return self._done(now, current, Decision(replicas, wish, reason, why))

    def _stabilise(self, now: float, current: int, wish: int) -> tuple[int, tuple[str, str] | None]:
        up, down = self._window[1], self._window[-1]
        lowest = highest = wish
        for at, said in self._wishes:
            if now - at < up and said < lowest:
                lowest = said
            if now - at < down and said > highest:
                highest = said
        # Without behavior only the way down is stabilised, and without a look at what there is now.
        stable = highest if self.behavior is None else min(max(current, lowest), highest)
        self._wishes.append((now, wish))
        while now - self._wishes[0][0] >= max(up, down, 1):
            self._wishes.popleft()
        if stable == wish:
            return stable, None
        if wish < stable:
            return stable, ("ScaleDownStabilized", f"{wish} now, but {highest} within {down} s, and the highest holds")
        return stable, ("ScaleUpStabilized", f"{wish} now, but {lowest} within {up} s, and the lowest holds")

    def _bounded(self, now: float, current: int, wish: int) -> tuple[int, str, str]:
        if self.behavior is None:
            most = max(_UNSET_FACTOR * current, _UNSET_LEAST)
            least = 0
        else:
            most, least = max(current, self._reach(now, current, 1)), min(current, self._reach(now, current, -1))
        if wish > min(most, self.maximum):
            if most < self.maximum:
                return most, "ScaleUpLimit", _limited(wish, current, most)
            return self.maximum, "TooManyReplicas", f"{wish} wanted, and {self.maximum} is the maximum"
        if wish < max(least, self.minimum):
            if least > self.minimum:
                return least, "ScaleDownLimit", _limited(wish, current, least)
            return self.minimum, "TooFewReplicas", f"{wish} wanted, and {self.minimum} is the minimum"
        return wish, "DesiredWithinRange", f"{wish} wanted"

    def _reach(self, now: float, current: int, sign: int) -> int:
        if self._select[sign] == "Disabled":
            return current
        reached = [policy.reach(self._start(now, current, policy.period), sign) for policy in self._policies[sign]]
        return max(reached) if (self._select[sign] == "Max") == (sign > 0) else min(reached)

    def _start(self, now: float, current: int, period: int) -> int:
        """How many replicas there were a period ago, as far as this HPA has changed them."""
        added, removed = (sum(by for at, by in self._changes[sign] if now - at < period) for sign in (1, -1))
        return current - added + removed

    def _done(self, now: float, current: int, decision: Decision) -> Decision:
        change = decision.replicas - current
        if change and self.behavior is not None:
            sign = 1 if change > 0 else -1
            longest = max(policy.period for policy in self._policies[sign])
            old = [i for i, (at, _) in enumerate(self._changes[sign]) if now - at >= longest]
            # One that no policy of its own direction needs makes room, also when the other direction still counts it.
            if old:
                self._changes[sign][old[-1]] = (now, abs(change))
            else:
                self._changes[sign].append((now, abs(change)))
        return decision


def _limited(wish: int, current: int, reach: int) -> str:
    if reach == current:
        return f"{wish} wanted, and no step from {current} is allowed yet"
    return f"{wish} wanted, and a step from {current} may go to {reach}"
