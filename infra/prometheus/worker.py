"""The researcher with its numbers: ``labkit run infra.prometheus.worker:make --processes 4``.

Each process takes a port of its own, the first free one of :data:`PORTS`; ``prometheus.yaml`` asks all of them. A
seventeenth process finds none and does not start: a worker that nobody can see is not what was asked for.
"""

from __future__ import annotations

from infra.workers import researcher
from labkit.ops.scrape import MetricsPort
from labkit.ops.steps import StepMetrics
from labkit.work.worker import Worker

PORTS = range(9310, 9326)


def make() -> Worker:
    """Raises what the researcher does, and :class:`~labkit.ops.scrape.MetricsError` where no port is free."""
    worker = researcher.make()
    MetricsPort(StepMetrics(worker, "researcher").registry, PORTS)  # its thread ends with the process
    return worker
