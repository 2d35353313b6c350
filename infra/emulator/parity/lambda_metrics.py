"""The metrics of the namespace AWS/Lambda.

**On AWS** an invocation that ran publishes Invocations, Errors (0 or 1), Throttles (0) and Duration, and each has a
series for all functions, for the function, and for the function with its version or alias (``Resource``). A request
that is throttled counts in Throttles alone: it is neither an invocation nor an error. ConcurrentExecutions is to be
viewed as a maximum. Asynchronous events count in AsyncEventsReceived when Lambda takes them, and in AsyncEventsDropped
when they are given up; records that cannot be delivered count in DestinationDeliveryFailures and DeadLetterErrors
(Lambda Developer Guide, "Types of metrics for Lambda functions"; the zeros are not verified).

**MiniStack** counts only what comes through Invoke, nothing from queues and state machines, counts a throttled request
as an invocation, and an asynchronous one when it arrives.

**Here** it is counted where every invocation passes, whoever causes it. The series with ExecutedVersion are not made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from . import metrics

NAMESPACE = "AWS/Lambda"


def dimensions(config: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """The series of one function: all functions, the function, and as it was addressed (by version or alias)."""
    name = config["FunctionName"]
    yield {}
    yield {"FunctionName": name}
    yield {"FunctionName": name, "Resource": config["FunctionArn"].split(":function:")[1]}


def count(config: Mapping[str, Any], metric: str, value: float = 1, *, unit: str = "Count") -> None:
    """Add to a metric of the function, in the current account and Region."""
    for series in dimensions(config):
        metrics.count(NAMESPACE, metric, series, value, unit=unit)


def of_invocation(*, failed: bool, seconds: float) -> Iterator[tuple[str, float, str]]:
    """What an invocation that ran publishes: metric, value, unit."""
    yield "Invocations", 1, "Count"
    yield "Errors", int(failed), "Count"
    yield "Throttles", 0, "Count"
    yield "Duration", round(seconds * 1000, 2), "Milliseconds"


def invoked(config: Mapping[str, Any], *, failed: bool, seconds: float) -> None:
    """An invocation that ran is over."""
    for metric, value, unit in of_invocation(failed=failed, seconds=seconds):
        count(config, metric, value, unit=unit)


def running(name: str, of_function: int, of_all: int) -> None:
    """So many executions run at the moment, the one that has just begun included."""
    metrics.count(NAMESPACE, "ConcurrentExecutions", {"FunctionName": name}, of_function)
    metrics.count(NAMESPACE, "ConcurrentExecutions", {}, of_all)


def install() -> None:
    from ministack.services import lambda_svc

    def counted_elsewhere(*_: Any, **__: Any) -> None:
        """What is counted here for callers of Invoke is counted for everybody by lambda_concurrency."""

    _ = lambda_svc._emit_lambda_metrics
    lambda_svc._emit_lambda_metrics = counted_elsewhere
