"""Metrics: read what AWS counts about queues and rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol


class Clients(Protocol):
    """Whoever makes boto3 clients: a lab, or a ``boto3.Session``."""

    def client(self, service: str, /) -> Any: ...


def sums(
    lab: Clients, namespace: str, names: Iterable[str], dimensions: Mapping[str, str], *, minutes: int = 60
) -> dict[str, float]:
    """The sum of each metric over the last ``minutes``; 0 for one that was never published.

    ``namespace``: ``AWS/SQS``, ``AWS/Events``. ``dimensions`` must be exactly those of the series: a rule of a custom
    bus has EventBusName and RuleName. The embedded stand-in counts at once; on AWS a count takes a minute and more to
    appear. Counts stay when a resource is deleted: compare two readings to see what happened between them.
    """
    found = _read(lab, namespace, names, dimensions, minutes, "Sum")
    return {name: float(sum(values)) for name, values in found.items()}


def latest(
    lab: Clients, namespace: str, names: Iterable[str], dimensions: Mapping[str, str], *, minutes: int = 60
) -> dict[str, float | None]:
    """The newest value of each gauge (a depth, an age) within the last ``minutes``; None where nothing was published.

    Arguments as in :func:`sums`. Several samples of one minute, if there are any, count with their largest. On AWS SQS
    publishes each minute while a queue is in use, and the value is a minute or two old; the embedded stand-in measures
    at the moment of the question.
    """
    found = _read(lab, namespace, names, dimensions, minutes, "Maximum")
    return {name: values[-1] if values else None for name, values in found.items()}


def _read(
    lab: Clients, namespace: str, names: Iterable[str], dimensions: Mapping[str, str], minutes: int, stat: str
) -> dict[str, list[float]]:
    """A statistic of each metric, minute by minute, the oldest first."""
    listed = list(names)
    now = datetime.now(UTC)
    queries = [
        {
            "Id": f"m{index}",
            "MetricStat": {
                "Metric": {
                    "Namespace": namespace,
                    "MetricName": name,
                    "Dimensions": [{"Name": key, "Value": value} for key, value in dimensions.items()],
                },
                "Period": 60,
                "Stat": stat,
            },
        }
        for index, name in enumerate(listed)
    ]
    answer = lab.client("cloudwatch").get_metric_data(
        MetricDataQueries=queries,
        StartTime=now - timedelta(minutes=minutes),
        EndTime=now + timedelta(minutes=1),
    )
    found = {  # sorted here, so that no default of ScanBy matters
        result["Id"]: [float(value) for _, value in sorted(zip(result["Timestamps"], result["Values"], strict=True))]
        for result in answer["MetricDataResults"]
    }
    return {name: found.get(f"m{index}", []) for index, name in enumerate(listed)}
