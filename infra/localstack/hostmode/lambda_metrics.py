"""The metrics of the namespace AWS/Lambda.

**On AWS**: see :mod:`parity.lambda_metrics`.

**LocalStack** publishes Invocations and Errors of each function, with a thread for each invocation.

**Here** all of them are counted where every invocation passes, throttled ones as well, and where asynchronous events
are taken and given up.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Mapping
from typing import Any

from parity.lambda_metrics import NAMESPACE, dimensions, of_invocation

from hostmode import metrics


def series(manager: Any) -> Mapping[str, str]:
    """What :func:`parity.lambda_metrics.dimensions` asks of a function's configuration, for a version's manager."""
    name = manager.function_version.id
    arn = name.unqualified_arn() if name.qualifier == "$LATEST" else name.qualified_arn()
    return {"FunctionName": name.function_name, "FunctionArn": arn}


def count(manager: Any, metric: str, value: float = 1, unit: str = "Count") -> None:
    name = manager.function_version.id
    for each in dimensions(series(manager)):
        metrics.publish(name.account, name.region, NAMESPACE, metric, each, value, unit)


class Running:
    """How many executions run, of each function and of each account and Region."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: Counter[tuple[str, ...]] = Counter()

    def change(self, name: Any, by: int) -> tuple[int, int]:
        """The numbers of the function and of all, after one has begun (1) or ended (-1)."""
        every, one = (name.account, name.region), (name.account, name.region, name.function_name)
        with self._lock:
            for key in (every, one):
                self._running[key] += by
            return self._running[one], self._running[every]


def install() -> None:
    from localstack.aws.api.lambda_ import TooManyRequestsException
    from localstack.services.lambda_.invocation import version_manager

    manager_class = version_manager.LambdaVersionManager
    invoke, running = manager_class.invoke, Running()

    def counting(self: Any, *, invocation: Any) -> Any:
        name = self.function_version.id
        began = time.monotonic()
        one, every = running.change(name, 1)
        try:
            result = invoke(self, invocation=invocation)
        except TooManyRequestsException:
            count(self, "Throttles")
            raise
        finally:
            running.change(name, -1)
        metric = "ConcurrentExecutions"
        metrics.publish(name.account, name.region, NAMESPACE, metric, {"FunctionName": name.function_name}, one)
        metrics.publish(name.account, name.region, NAMESPACE, metric, {}, every)
        seconds = time.monotonic() - began
        for metric, value, unit in of_invocation(failed=result.is_error, seconds=seconds):
            count(self, metric, value, unit)
        return result

    def counted_elsewhere(*_: Any, **__: Any) -> None:
        """LocalStack's own two metrics."""

    _ = version_manager.record_cw_metric_error, version_manager.record_cw_metric_invocation
    version_manager.record_cw_metric_error = counted_elsewhere
    version_manager.record_cw_metric_invocation = counted_elsewhere
    manager_class.invoke = counting
