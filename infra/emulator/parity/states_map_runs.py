"""ListMapRuns and DescribeMapRun.

**On AWS** each run of a distributed Map state has an ARN, its counts of items and of child executions, and the
thresholds that it was started with. Both calls refuse what is no ARN of their kind with InvalidArn; a list of Map runs
comes in pages (Step Functions API Reference, "DescribeMapRun", "ListMapRuns").

**MiniStack** shows what its own interpreter wrote down.

**Here** the counts are the run's own, also while it runs; the last :data:`KEPT` runs are known. ListExecutions with a
mapRunArn shows the children that have begun. Not verified: the order of the Map runs of an execution (here: the last
one first, as in other lists).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from .states_callbacks import Response, refusable
from .states_requests import Row, check_arn, page
from .states_tokens import Refused

KEPT = 1000


class MapRuns:
    """The runs that are known, by their ARNs."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._runs: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, run: Any) -> None:
        with self._lock:
            self._runs[run.map_run_arn] = run
            while len(self._runs) > self._kept:
                self._runs.popitem(last=False)

    def get(self, arn: str) -> Any:
        return self._runs.get(arn)

    def of(self, execution_arn: str) -> list[Any]:
        with self._lock:
            return [run for run in self._runs.values() if run.execution_arn == execution_arn]

    def clear(self) -> None:
        with self._lock:
            self._runs.clear()


MAP_RUNS = MapRuns()


def change() -> None:
    from moto.stepfunctions.parser.asl.component.state.exec.state_map.iteration.itemprocessor.map_run_record import (
        MapRunRecordPoolManager,
    )

    add = MapRunRecordPoolManager.add

    def added(self: Any, map_run_record: Any) -> None:
        add(self, map_run_record)
        MAP_RUNS.add(map_run_record)

    MapRunRecordPoolManager.add = added


@refusable
def list_map_runs(data: dict[str, Any]) -> Response:
    from ministack.core.responses import json_response

    from .states_executions import known_execution

    answer: Response = json_response(listed(data, known_execution(data)["executionArn"]))
    return answer


def listed(data: Mapping[str, Any], arn: str) -> dict[str, Any]:
    """The page of an execution's Map runs that the request asks for."""
    items = [run.list_item() for run in reversed(MAP_RUNS.of(arn))]
    rows: list[Row] = [(str(item["startDate"]), item["mapRunArn"], item) for item in items]
    return page(data, "mapRuns", rows, newest_first=True)


def known_run(arn: Any) -> Any:
    """The Map run with this ARN in the account and Region of the request, or :class:`Refused`."""
    from ministack.core.responses import get_account_id, get_region

    return run_in(arn, get_account_id(), get_region())


def run_in(arn: Any, account: str, region: str) -> Any:
    check_arn(arn, "mapRun")
    run = MAP_RUNS.get(arn)
    if run is None or arn.split(":")[3:5] != [region, account]:
        raise Refused("ResourceNotFound", f"Resource not found: '{arn}'")
    return run


@refusable
def describe_map_run(data: dict[str, Any]) -> Response:
    from ministack.core.responses import json_response

    answer: Response = json_response(description(known_run(data.get("mapRunArn", ""))))
    return answer


def description(run: Any) -> dict[str, Any]:
    """What DescribeMapRun shows of a run."""
    found: dict[str, Any] = run.describe()
    found["redriveCount"] = getattr(run, "redrive_count", 0)
    if found["redriveCount"]:
        found["redriveDate"] = run.redrive_date
    for name, counter in (("itemCounts", run.item_counter), ("executionCounts", run.execution_counter)):
        waiting = getattr(counter, "pending_redrive", None)
        found[name] |= {"failuresNotRedrivable": 0, "pendingRedrive": waiting.get() if waiting else 0}
    return found


def install() -> None:
    from ministack.services import stepfunctions as sfn

    from . import states_engine

    _ = sfn._list_map_runs, sfn._describe_map_run
    forget_all = sfn.reset

    def reset() -> None:
        forget_all()
        MAP_RUNS.clear()

    sfn._list_map_runs = list_map_runs
    sfn._describe_map_run = describe_map_run
    sfn.reset = reset
    states_engine.on_load(change)
