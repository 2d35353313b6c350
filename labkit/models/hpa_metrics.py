"""What one metric asks for: the first half of the Horizontal Pod Autoscaler, from a measured number to a wish.

Every kind of metric becomes a *ratio* of what is and what should be. Near 1 nothing is asked for; else the wish is the
number of replicas that brings the ratio to 1::

    AverageValue  (a queue)   ratio = messages / (target x pods)       wish = ceil(messages / target)
    Value         (an age)    ratio = value / target                   wish = ceil(ratio x ready pods)
    of each pod   (CPU)       ratio = mean of the pods / target        wish = ceil(ratio x pods counted)

Only the last one knows what a pod is doing. For a queue a pod counts from the moment that it is wanted: one that still
starts is no reason to ask for another.

Sources: Kubernetes, pkg/controller/podautoscaler/replica_calculator.go and metrics/utilization.go, as of 1.33, where
the tolerance became two numbers; the Kubernetes documentation, Horizontal Pod Autoscaling, "Algorithm details".
Left out: from when on a pod counts as ready. The caller says it; the HPA derives it from the pod's conditions and two
flags of the controller. Standard library only.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from labkit.facts import facts
from labkit.models._input import ModelError, number, whole

__all__ = ["Pod", "Tolerance", "in_all", "of_pods", "per_pod"]


@dataclass(frozen=True)
class Tolerance:
    """How far from 1 a ratio may be, upwards and downwards, with nothing done; both ends belong to it.

    >>> Tolerance().holds(1.1), Tolerance().holds(1.11)
    (True, False)
    """

    up: float = float(facts("hpa.tolerance"))
    down: float = float(facts("hpa.tolerance"))

    def __post_init__(self) -> None:
        number("tolerance up", self.up)
        number("tolerance down", self.down)

    def holds(self, ratio: float) -> bool:
        return 1.0 - self.down <= ratio <= 1.0 + self.up


def per_pod(usage: float, target: float, pods: int, tolerance: Tolerance | None = None) -> int:
    """The wish of an External or Object metric with ``AverageValue``: ``target`` of ``usage`` for each pod.

    ``pods`` are those that exist (``status.replicas``), ready or not, and they matter for the tolerance alone. Without
    any there is no ratio, so nothing is within it. Raises :class:`~labkit.models._input.ModelError`.

    >>> per_pod(30, 10, pods=1), per_pod(32, 10, pods=3), per_pod(34, 10, pods=3)
    (3, 3, 4)
    """
    _measured(usage, target)
    whole("pods", pods, low=0)
    if pods and (tolerance or Tolerance()).holds(usage / (target * pods)):
        return pods
    return math.ceil(usage / target)


def in_all(value: float, target: float, current: int, *, ready: int, tolerance: Tolerance | None = None) -> int:
    """The wish of an External or Object metric with ``Value``: ``target`` for the fleet as a whole.

    It multiplies the *ready* pods: three replicas of which one is ready ask for what that one would need.
    """
    _measured(value, target)
    whole("current", current, low=0)
    whole("ready", ready, low=0)
    if not current:  # only where the HPA may scale to zero by itself, which is a feature gate
        return math.ceil(value / target)
    if (tolerance or Tolerance()).holds(value / target):
        return current
    return math.ceil(value / target * ready)


@dataclass(frozen=True)
class Pod:
    """One pod as a metric sees it. ``usage`` and ``request`` in thousandths (millicores); ``usage`` None: no figure.

    ``state``: ``unready`` is set aside (pending, or for CPU not ready yet), ``gone`` (failed, or being deleted) does
    not count at all.
    """

    usage: int | None
    request: int = 0
    state: Literal["ready", "unready", "gone"] = "ready"


def of_pods(
    pods: Sequence[Pod], target: int, current: int, *, utilization: bool = False, tolerance: Tolerance | None = None
) -> int | None:
    """The wish of a Pods or Resource metric; None when no pod has a figure: then the metric is missing.

    ``target`` in thousandths, or with ``utilization`` in per cent of the pods' requests. A pod without a figure is
    assumed to speak against the change: for a step down it uses its whole target (or request, if that is more), for a
    step up nothing; and so does, for a step up, one that is not ready. Where that turns the direction, nothing happens.
    Means are whole numbers here, rounded down, as they are there.
    """
    whole("target", target)
    holds = (tolerance or Tolerance()).holds
    counted = [pod for pod in pods if pod.state == "ready" and pod.usage is not None]
    missing = [pod for pod in pods if pod.state == "ready" and pod.usage is None]
    unready = [pod for pod in pods if pod.state == "unready"]
    if not counted:
        return None

    def ratio(figures: list[tuple[int, int]]) -> float:
        usage, requests = sum(used for used, _ in figures), sum(request for _, request in figures)
        if utilization and not requests:
            raise ModelError("utilization needs a request of each pod, in thousandths; all of them are 0.")
        return (usage * 100 // requests if utilization else usage // len(figures)) / target

    figures = [(pod.usage or 0, pod.request) for pod in counted]
    first = ratio(figures)
    if not missing and not (unready and first > 1.0):
        return current if holds(first) else math.ceil(first * len(counted))
    if first < 1.0:
        figures += [(p.request * max(100, target) // 100 if utilization else target, p.request) for p in missing]
    elif first > 1.0:
        figures += [(0, pod.request) for pod in (*missing, *unready)]
    second = ratio(figures)
    wish = math.ceil(second * len(figures))
    turned = (second - 1.0) * (first - 1.0) < 0 or (second - 1.0) * (wish - current) < 0
    return current if holds(second) or turned else wish


def _measured(value: float, target: float) -> None:
    number("usage", value)
    if not number("target", target):
        raise ModelError("target must be more than 0; got 0.")
