"""Metrics that AWS services publish about themselves, in LocalStack's CloudWatch.

**On AWS**: see :mod:`parity.metrics`. In short: one point a minute, stamped with the start of its minute; a counter
adds up, a gauge is a sample; ``StartTime`` of a query is rounded down to a whole minute.

**LocalStack** has its services call PutMetricData through boto for each single value (about 50 a second, at the price
of the service's own speed), stamps them with the second, and shows them when a thread of a pool gets round to it.

**Here** a service calls one of two functions, from any thread, as often as it likes; they only touch a dictionary:

* ``publish(account, region, "AWS/Events", "Invocations", {"RuleName": "orders"})`` counts one invocation, or with a
  ``value`` and a ``unit`` one sample of a size or a duration;
* ``gauge(account, region, "AWS/SQS", "ApproximateAgeOfOldestMessage", {"QueueName": "q"}, 7, "Seconds")`` says what the
  value is in the current minute, in place of what was said before. ``on_query(sampler)`` has ``sampler(account,
  region)`` called before CloudWatch reads, which is the moment to set gauges.

What has come together is written to CloudWatch's database, where PutMetricData writes as well, before each reading of
it: so GetMetricData, GetMetricStatistics, ListMetrics and alarms see everything at once, and no thread is needed. It
does not matter whether the service CloudWatch has been used yet.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import closing
from datetime import UTC, datetime
from typing import Any, NamedTuple

from parity.metrics import minute_of

Sampler = Callable[[str, str], None]


class Series(NamedTuple):
    """One row of CloudWatch's tables, up to its numbers."""

    account: str
    region: str
    namespace: str
    name: str
    dimensions: tuple[tuple[str, str], ...]
    unit: str
    minute: int


class Total(NamedTuple):
    """What was counted: the columns of LocalStack's table for StatisticValues."""

    samples: int
    sum: float
    least: float
    most: float

    def plus(self, value: float) -> Total:
        return Total(self.samples + 1, self.sum + value, min(self.least, value), max(self.most, value))


_lock = threading.Lock()
_counted: dict[Series, Total] = {}
_gauged: dict[Series, float] = {}
_stored: dict[Series, float] = {}  # gauges that the database holds, of the current minute
_samplers: list[Sampler] = []


def _series(
    account: str, region: str, namespace: str, name: str, dimensions: Mapping[str, str] | None, unit: str
) -> Series:
    minute = int(minute_of(time.time()))
    return Series(account, region, namespace, name, tuple(sorted((dimensions or {}).items())), unit, minute)


def publish(
    account: str,
    region: str,
    namespace: str,
    name: str,
    dimensions: Mapping[str, str] | None = None,
    value: float = 1,
    unit: str = "Count",
) -> None:
    """Add one sample to a metric of ``account`` and ``region``. No dimensions are a series of its own, as on AWS."""
    series = _series(account, region, namespace, name, dimensions, unit)
    with _lock:
        known = _counted.get(series)
        _counted[series] = known.plus(value) if known else Total(1, value, value, value)


def gauge(
    account: str,
    region: str,
    namespace: str,
    name: str,
    dimensions: Mapping[str, str] | None = None,
    value: float = 0,
    unit: str = "Count",
) -> None:
    """Let ``value`` stand for the current minute of a metric, in place of an earlier one."""
    series = _series(account, region, namespace, name, dimensions, unit)
    with _lock:
        if _stored.get(series) != value or series in _gauged:
            _gauged[series] = value


def on_query(sampler: Sampler) -> None:
    """Call ``sampler(account, region)`` before CloudWatch reads metrics of that account and region."""
    _samplers.append(sampler)


def write(database: Any) -> None:
    """Move into LocalStack's ``CloudwatchDatabase`` what was published since the last time."""
    with database.DATABASE_LOCK:  # taken first: who finds nothing to write must not read before it is written
        with _lock:
            counted, gauged = dict(_counted), dict(_gauged)
            _counted.clear()
            _gauged.clear()
            _stored.update(gauged)
            for series in [series for series in _stored if series.minute < minute_of(time.time())]:
                del _stored[series]
        if not (counted or gauged):
            return

        def common(series: Series) -> tuple[Any, ...]:
            pairs = [{"Name": name, "Value": value} for name, value in series.dimensions]
            text = database._get_ordered_dimensions_with_separator(pairs)
            return (*series[:4], text, series.unit, series.minute)

        columns = "account_id, region, namespace, metric_name, dimensions, unit, timestamp"
        totals, values = database.TABLE_AGGREGATED_METRICS, database.TABLE_SINGLE_METRICS
        same = " AND ".join(f"{column.strip()} IS ?" for column in columns.split(","))
        with closing(sqlite3.connect(database.METRICS_DB)) as connection, connection:
            connection.execute("PRAGMA synchronous = OFF")  # these files end with the process
            connection.executemany(
                f"INSERT INTO {totals} ({columns}, sample_count, sum, min, max) VALUES (?,?,?,?,?,?,?,?,?,?,?)",
                [(*common(series), *total) for series, total in counted.items()],
            )
            connection.executemany(f"DELETE FROM {values} WHERE {same}", [common(series) for series in gauged])
            connection.executemany(
                f"INSERT INTO {values} ({columns}, value) VALUES (?,?,?,?,?,?,?,?)",
                [(*common(series), value) for series, value in gauged.items()],
            )


def _whole_minute(moment: datetime) -> datetime:
    return datetime.fromtimestamp(minute_of(moment.timestamp()), UTC)


def install() -> None:
    from localstack.services.cloudwatch.cloudwatch_database_helper import CloudwatchDatabase

    def queried(read: Callable[..., Any]) -> Callable[..., Any]:
        def reading(self: Any, account_id: str, region: str, *more: Any, **named: Any) -> Any:
            for sampler in _samplers:
                sampler(account_id, region)
            write(self)
            if named.get("start_time"):
                named["start_time"] = _whole_minute(named["start_time"])
            return read(self, account_id, region, *more, **named)

        return reading

    _ = CloudwatchDatabase._get_ordered_dimensions_with_separator, CloudwatchDatabase.METRICS_DB
    for name in ("get_metric_data_stat", "get_units_for_metric_data_stat", "list_metrics"):
        setattr(CloudwatchDatabase, name, queried(getattr(CloudwatchDatabase, name)))
