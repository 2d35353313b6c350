"""Metrics: read what AWS counts about queues and rules."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from labkit.lab import Lab


def sums(
    lab: Lab, namespace: str, names: Iterable[str], dimensions: Mapping[str, str], *, minutes: int = 60
) -> dict[str, float]:
    """The sum of each metric over the last ``minutes``; 0 for one that was never published.

    ``namespace``: ``AWS/SQS``, ``AWS/Events``. ``dimensions`` must be exactly those of the series: a rule of a custom
    bus has EventBusName and RuleName. The embedded stand-in counts at once; on AWS a count takes a minute and more to
    appear. Counts stay when a resource is deleted: compare two readings to see what happened between them.
    """
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
                "Stat": "Sum",
            },
        }
        for index, name in enumerate(listed)
    ]
    answer = lab.client("cloudwatch").get_metric_data(
        MetricDataQueries=queries, StartTime=now - timedelta(minutes=minutes), EndTime=now + timedelta(minutes=1)
    )
    found = {result["Id"]: sum(result["Values"]) for result in answer["MetricDataResults"]}
    return {name: float(found.get(f"m{index}", 0)) for index, name in enumerate(listed)}
