"""What a pipe has counted, on its way to a CloudWatch that is somewhere else.

**On AWS** a service publishes its metrics once a minute, at one-minute resolution; what CloudWatch does not take at the
moment it takes later.

**Here** :class:`Ledger` adds up what is counted, and sends it about once a second as long as there is something, so
that a thousand executions are some ten calls. Equal values share a data point with a count: all statistics stay exact.
What the neighbour has not taken after :data:`PATIENCE` seconds is dropped, with a line in the log."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from parity.metrics import minute_of
from parity.pipes_services import Failed, Throttled

EVERY, PATIENCE = 1.0, 120.0  # seconds
VALUES, DATA = 150, 500  # values of one point, points of one PutMetricData (AWS takes 1,000)

Where = tuple[str, str]  # account, Region
Point = tuple[str, str, tuple[tuple[str, str], ...], str, float]  # namespace, name, dimensions, unit, minute
Datum = dict[str, Any]
logger = logging.getLogger("parity.pipes")


class Ledger:
    """``put(account, region, namespace, data)`` is PutMetricData; it raises :class:`Throttled` to be asked again."""

    def __init__(
        self, put: Callable[[str, str, str, list[Datum]], None], *, every: float = EVERY, patience: float = PATIENCE
    ) -> None:
        self._put = put
        self._every = every
        self._patience = patience
        self._lock = threading.Lock()
        self._open: dict[Where, dict[Point, Counter[float]]] = {}
        self._at_work = False

    def count(
        self, where: Where, namespace: str, name: str, dimensions: Mapping[str, str], value: float, unit: str
    ) -> None:
        point = namespace, name, tuple(sorted(dimensions.items())), unit, minute_of(time.time())
        with self._lock:
            self._open.setdefault(where, {}).setdefault(point, Counter())[float(value)] += 1
            begins, self._at_work = not self._at_work, True
        if begins:
            threading.Thread(target=self._work, name="pipes-metrics", daemon=True).start()

    def _work(self) -> None:
        """Send until nothing is left; the next count begins anew."""
        while True:
            time.sleep(self._every)
            with self._lock:
                taken, self._open = self._open, {}
                if not taken:
                    self._at_work = False
                    return
            for where, points in taken.items():
                for namespace, data in requests(points):
                    self._send(where, namespace, data)

    def _send(self, where: Where, namespace: str, data: list[Datum]) -> None:
        end = time.monotonic() + self._patience
        while True:
            try:
                self._put(*where, namespace, data)
            except Throttled as error:
                if time.monotonic() < end:
                    time.sleep(self._every)
                    continue
                logger.warning("%d points of %s are lost: %s", len(data), namespace, error)
            except Failed as error:
                logger.warning("%d points of %s were refused: %s", len(data), namespace, error)
            except Exception:
                logger.exception("%d points of %s were not sent", len(data), namespace)
            return


def requests(points: Mapping[Point, Mapping[float, int]]) -> Iterator[tuple[str, list[Datum]]]:
    """The calls of PutMetricData that say all this: their namespace and their data."""
    data: dict[str, list[Datum]] = {}
    for (namespace, name, dimensions, unit, minute), values in points.items():
        counted = list(values.items())
        for start in range(0, len(counted), VALUES):
            part = counted[start : start + VALUES]
            data.setdefault(namespace, []).append(
                {
                    "MetricName": name,
                    "Dimensions": [{"Name": key, "Value": value} for key, value in dimensions],
                    "Timestamp": minute,
                    "Unit": unit,
                    "Values": [value for value, _ in part],
                    "Counts": [float(number) for _, number in part],
                }
            )
    for namespace, found in data.items():
        for start in range(0, len(found), DATA):
            yield namespace, found[start : start + DATA]
