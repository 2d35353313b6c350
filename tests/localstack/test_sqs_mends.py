"""The parts of SQS's and CloudWatch's mends that need no LocalStack: metrics, dimensions, alarms, the next message."""

from __future__ import annotations

import importlib
import sqlite3
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from queue import PriorityQueue
from types import ModuleType
from typing import Any

import pytest
from parity.sqs_attempts import WINDOW, Attempts, Received
from parity.sqs_errors import SqsError
from parity.sqs_fair import NOISY_IN_FLIGHT

HOSTMODE = Path(__file__).parents[2] / "infra" / "localstack"
PLACE = ("000000000000", "us-east-1")


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Modules of ``hostmode`` by name: they are installed beside LocalStack, not here."""
    monkeypatch.syspath_prepend(str(HOSTMODE))

    def load(name: str) -> ModuleType:
        return importlib.import_module(f"hostmode.{name}")

    return load


# -- metrics -------------------------------------------------------------------------------------------------------


class Database:
    """As much of LocalStack's as is written to."""

    TABLE_SINGLE_METRICS, TABLE_AGGREGATED_METRICS = "single", "aggregated"

    def __init__(self, folder: Path) -> None:
        self.DATABASE_LOCK = threading.RLock()
        self.METRICS_DB = str(folder / "metrics.db")
        common = "account_id, region, namespace, metric_name, dimensions, unit, timestamp"
        with sqlite3.connect(self.METRICS_DB) as connection:
            connection.execute(f"CREATE TABLE single ({common}, value)")
            connection.execute(f"CREATE TABLE aggregated ({common}, sample_count, sum, min, max)")

    def _get_ordered_dimensions_with_separator(self, dims: list[dict[str, str]]) -> str | None:
        return "".join(f"{pair['Name']}={pair['Value']}\t" for pair in dims) or None

    def rows(self, table: str, columns: str) -> list[tuple[Any, ...]]:
        with sqlite3.connect(self.METRICS_DB) as connection:
            return connection.execute(f"SELECT {columns} FROM {table} ORDER BY 1").fetchall()


def test_samples_of_a_minute_come_together(module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics, database = module("metrics"), Database(tmp_path)
    monkeypatch.setattr(metrics.time, "time", lambda: 1_000_030.0)
    for size in (5, 1, 3):
        metrics.publish(*PLACE, "N", "size", {"Q": "a"}, size, "Bytes")
    metrics.publish(*PLACE, "N", "all")
    metrics.write(database)
    columns = "metric_name, dimensions, unit, timestamp, sample_count, sum, min, max"
    assert database.rows("aggregated", columns) == [
        ("all", None, "Count", 1_000_020, 1, 1, 1, 1),
        ("size", "Q=a\t", "Bytes", 1_000_020, 3, 9, 1, 5),
    ]
    metrics.write(database)
    assert len(database.rows("aggregated", columns)) == 2


def test_a_gauge_stands_for_its_minute(module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics, database = module("metrics"), Database(tmp_path)
    now = 2_000_000.0
    monkeypatch.setattr(metrics.time, "time", lambda: now)
    for value in (3, 4, 4, 3):
        metrics.gauge(*PLACE, "N", "age", None, value)
        metrics.write(database)
        assert database.rows("single", "timestamp, value") == [(now // 60 * 60, value)]
    first, now = now // 60 * 60, now + 60
    metrics.gauge(*PLACE, "N", "age", None, 3)
    metrics.write(database)
    assert database.rows("single", "timestamp, value") == [(first, 3), (now // 60 * 60, 3)]


def test_publishing_from_many_threads_loses_nothing(module: Any, tmp_path: Path) -> None:
    metrics, database = module("metrics"), Database(tmp_path)
    threads = [
        threading.Thread(target=lambda: [metrics.publish(*PLACE, "N", "threads") for _ in range(500)]) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        metrics.write(database)
    metrics.write(database)
    assert sum(row[0] for row in database.rows("aggregated", "sample_count")) == 2000


@pytest.mark.parametrize(
    ("named", "exactly", "among"),
    [
        ({"A": "my_q"}, ["A=my_q\t"], ["A=my_q\t", "A=my_q\tB=1\t"]),
        ({"A": "x=y"}, ["A=x=y\t"], ["A=x=y\t"]),
        ({"B": "1", "A": "my_q"}, ["A=my_q\tB=1\t"], ["A=my_q\tB=1\t"]),
        ({"A": "my"}, [], []),
    ],
)
def test_dimensions_are_met_exactly_or_among_others(
    module: Any, tmp_path: Path, named: dict[str, str], exactly: list[str], among: list[str]
) -> None:
    dimensions = module("metrics_dimensions")
    stored = ["A=my_q\t", "A=My_q\t", "A=my-q\t", "A=my_q\tB=1\t", "A=x=y\t", None]
    pairs = [{"Name": name, "Value": value} for name, value in named.items()]
    with dimensions.Sqlite.connect(str(tmp_path / "db")) as connection:
        connection.execute("CREATE TABLE t (d)")
        connection.executemany("INSERT INTO t VALUES (?)", [(text,) for text in stored])
        for kind, expected in ((list, exactly), (dimensions.Filters, among)):
            wanted = dimensions.search_text(kind(pairs))
            found = connection.execute("SELECT d FROM t WHERE d LIKE ? ORDER BY d", (wanted,)).fetchall()
            assert [text for (text,) in found] == expected


def test_a_filter_without_a_value_and_texts_read_back(module: Any) -> None:
    dimensions = module("metrics_dimensions")
    wanted = dimensions.search_text(dimensions.Filters([{"Name": "A"}]))
    assert dimensions.matches(wanted, "A=x=y\tB=1\t")
    assert not dimensions.matches(wanted, "AA=1\t")
    assert dimensions.restored("A=x=y\tB=1\t") == [{"Name": "A", "Value": "x=y"}, {"Name": "B", "Value": "1"}]
    assert dimensions.restored(None) == []


def test_an_alarm_sees_its_periods(module: Any) -> None:
    class Data:
        def get_metric_data_stat(self, account: str, region: str, **query: Any) -> dict[str, list[float]]:
            self.query = query
            return {"timestamps": [960, 1080], "values": [1.0, 2.0]}

    data = Data()
    alarm = {
        "Namespace": "N",
        "MetricName": "m",
        "Dimensions": [{"Name": "A", "Value": "1"}],
        "Statistic": "Sum",
        "Period": 60,
        "EvaluationPeriods": 3,
    }
    assert module("metrics_alarms").values_of(data, *PLACE, alarm, 1100.0) == [1.0, None, 2.0]
    assert data.query["start_time"].timestamp() == 960
    assert data.query["end_time"].timestamp() == 1140


# -- messages ------------------------------------------------------------------------------------------------------


@dataclass(order=True, unsafe_hash=True)
class Sent:
    priority: float
    message_group_id: str | None = None
    receive_count: int = 0


@dataclass
class Queue:
    """As much of LocalStack's standard queue as is looked at."""

    visible: Any
    inflight: dict[Any, None]
    delayed: set[Any]
    mutex: Any


def test_what_failed_three_times_goes_to_the_back(module: Any) -> None:
    line = module("sqs_order").line_of(PriorityQueue)()
    for message in (Sent(1, receive_count=3), Sent(2, receive_count=2), Sent(3)):
        line.put_nowait(message)
    assert [line.get_nowait().receive_count for _ in range(3)] == [2, 0, 3]


def test_a_quiet_tenant_overtakes(module: Any) -> None:
    order = module("sqs_order")
    line = order.line_of(PriorityQueue)()
    in_flight = dict.fromkeys(Sent(number, "noisy") for number in range(NOISY_IN_FLIGHT))
    queue = Queue(line, in_flight, set(), threading.RLock())
    for message in (Sent(100, "noisy"), Sent(101, "noisy"), Sent(102, "quiet"), Sent(103)):
        line.put_nowait(message)
    order.judge(queue)  # nobody has sent anything with a group yet, as far as the line knows
    assert not line.tenants.noisy
    for tenant in ("noisy", "quiet"):
        line.tenants.sent(tenant, time.time())
    order.judge(queue)
    assert line.tenants.noisy == {"noisy"}
    assert [line.get_nowait().priority for _ in range(4)] == [102, 103, 100, 101]
    in_flight.clear()
    order.judge(queue)
    assert not line.tenants.noisy
    assert not line.tenants.last_send


def test_each_group_has_its_own_deduplication_ids(module: Any) -> None:
    recent = module("sqs_order").Recent()
    recent.group = "g1"
    recent["1"] = "first"
    recent.group = "g2"
    assert recent.get("1") is None
    recent["1"] = "second"
    recent.group = "g1"
    assert recent.get("1") == "first"


def test_parameters_and_errors_by_their_names(module: Any) -> None:
    given = {"queue_url": "u", "max_number_of_messages": 1, "receive_request_attempt_id": "a"}
    assert set(module("sqs_requests").data_of(given)) == {"QueueUrl", "MaxNumberOfMessages", "ReceiveRequestAttemptId"}

    class Refused(Exception):
        code, status_code = "InvalidParameterValueException", 400

    error = module("sqs_errors").understood(Refused("why"))
    assert isinstance(error, SqsError)
    assert (error.code, error.message, error.status) == ("InvalidParameterValue", "why", 400)


def test_attempts_are_remembered_for_five_minutes() -> None:
    attempts, batch = Attempts(), [Received("m", "h", 30.0)]
    attempts.remember("a", batch, 0.0)
    assert attempts.known("a", WINDOW - 1) == batch
    later = [Received("m", "h", 60.0)]
    attempts.replayed("a", later)
    assert attempts.known("a", WINDOW - 1) == later
    assert attempts.known("b", 1.0) is None
    assert attempts.known("a", WINDOW) is None
