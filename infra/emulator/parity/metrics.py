"""Metrics that AWS services publish about themselves, so that they can be read in CloudWatch.

**On AWS** a service publishes its own metrics once a minute, at one-minute resolution: the time of a data point is the
start of its minute, and ``StartTime`` of a query is rounded down to a whole minute (CloudWatch API, ``GetMetricData``;
Amazon SQS Developer Guide, "Available CloudWatch metrics"). A counter adds up within the minute; a gauge is a sample.

**MiniStack** has a ``record_metric`` that a few services use (SQS and EventBridge do not), keeps one point per call,
and lets a background thread lose a point: eviction replaces the list that the thread is appending to.

**Here**, :func:`count` and :func:`gauge` add to the point of the current minute, so that 10,000 sends are one point and
not 10,000, under one lock. A gauge is sampled when somebody asks (see :func:`on_query`): the value is there at once,
where AWS takes a minute or two. Within a minute the newest sample of a gauge stands.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

MINUTE = 60
SEARCHED = 32  # points
KEPT = 14 * 24 * 3600  # seconds; MiniStack keeps two weeks

_lock = threading.RLock()
_samplers: list[Callable[[], None]] = []

Point = dict[str, Any]


def minute_of(moment: float) -> float:
    """The start of the minute that ``moment`` (epoch seconds) lies in."""
    return moment // MINUTE * MINUTE


def add_count(points: list[Point], value: float, unit: str, dimensions: Mapping[str, str], now: float) -> None:
    """Count ``value`` once more in the current minute. Equal values share a point: all statistics stay exact.

    Only the newest points are searched, so that many different values (sizes) cost nothing but points.
    """
    stamp = minute_of(now)
    for point in points[: -SEARCHED - 1 : -1]:
        if point["Timestamp"] < stamp:
            break
        if point["Value"] == value and point["Unit"] == unit:
            point["Count"] += 1
            return
    points.append(
        {"Timestamp": stamp, "Value": float(value), "Count": 1.0, "Unit": unit, "Dimensions": dict(dimensions)}
    )


def set_gauge(points: list[Point], value: float, unit: str, dimensions: Mapping[str, str], now: float) -> None:
    """Let ``value`` stand for the current minute, in place of an earlier sample of it."""
    stamp = minute_of(now)
    while points and points[-1]["Timestamp"] >= stamp:
        points.pop()
    points.append(
        {"Timestamp": stamp, "Value": float(value), "Count": 1.0, "Unit": unit, "Dimensions": dict(dimensions)}
    )


def count(
    namespace: str, name: str, dimensions: Mapping[str, str] | None = None, value: float = 1, *, unit: str = "Count"
) -> None:
    """Count ``value`` for a metric of the current account and region (those of the request, or of the thread's scope).

    ``count("AWS/Events", "Invocations", {"RuleName": "orders"})`` adds one invocation.
    """
    _publish(add_count, namespace, name, dimensions or {}, value, unit)


def gauge(
    namespace: str, name: str, dimensions: Mapping[str, str] | None = None, value: float = 0, *, unit: str = "Count"
) -> None:
    """Set a metric of the current account and region to ``value`` for the current minute."""
    _publish(set_gauge, namespace, name, dimensions or {}, value, unit)


def on_query(sampler: Callable[[], None]) -> None:
    """Call ``sampler`` before every CloudWatch query and alarm evaluation, in the scope of the caller."""
    _samplers.append(sampler)


def sample() -> None:
    """Bring the gauges of the current account and region up to date."""
    for sampler in _samplers:
        sampler()


def _publish(
    store: Callable[..., None], namespace: str, name: str, dimensions: Mapping[str, str], value: float, unit: str
) -> None:
    from ministack.services import cloudwatch

    dims = dict(dimensions)
    with _lock:
        bucket = cloudwatch._metric_bucket((namespace, name, cloudwatch._dims_key(dims)))
        store(bucket, value, unit, dims, time.time())


def points_of(namespace: str, name: str, dimensions: Mapping[str, str]) -> list[Point]:
    """The points of one metric of the current account and region, as they are now."""
    from ministack.services import cloudwatch

    with _lock:
        return [
            dict(p) for p in cloudwatch._metrics.get((namespace, name, cloudwatch._dims_key(dict(dimensions)))) or []
        ]


def evict(series: dict[Any, list[Point]], now: float) -> None:
    """Drop points that CloudWatch would no longer keep, in place, and series without points."""
    for key, points in list(series.items()):
        keep = next((index for index, point in enumerate(points) if point["Timestamp"] >= now - KEPT), len(points))
        del points[:keep]
        if not points:
            del series[key]


def whole_minutes(data: dict[str, Any], parse: Callable[[Any], float | None]) -> dict[str, Any]:
    """The parameters of a query with ``StartTime`` rounded down to a whole minute."""
    start = data.get("StartTime")
    moment = parse(start[0] if isinstance(start, list) else start)
    return data if moment is None else {**data, "StartTime": minute_of(moment)}


def install() -> None:
    from ministack.services import cloudwatch

    def queried(handler: Callable[..., Any]) -> Callable[..., Any]:
        def handle(params: dict[str, Any], data: dict[str, Any], *protocol: Any) -> Any:
            sample()
            with _lock:
                parse = cloudwatch._parse_ts
                return handler(whole_minutes(params, parse), whole_minutes(data, parse), *protocol)

        return handle

    def evict_old() -> None:
        with _lock:
            evict(cloudwatch._metrics._data, time.time())

    _ = cloudwatch._metric_bucket, cloudwatch._dims_key, cloudwatch._evict_old_metrics
    cloudwatch._evict_old_metrics = evict_old
    for name in ("_get_metric_data", "_get_metric_statistics", "_list_metrics"):
        setattr(cloudwatch, name, queried(getattr(cloudwatch, name)))
