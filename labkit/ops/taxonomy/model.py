"""The taxonomy's rows of the model's edge: worker → router → model."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from labkit.ops.taxonomy.fleet import Fleet
from labkit.ops.taxonomy.parts import PRIMARY
from labkit.ops.taxonomy.row import Row
from labkit.routing.faults import Down, Fault, Quota
from labkit.work.tasks import Task


def failing(fault: Fault) -> Callable[[Fleet], AbstractContextManager[None]]:
    """An injector: the step asks a model, and ``fault`` stands in front of the one that it asks first."""

    @contextmanager
    def broken(fleet: Fleet) -> Iterator[None]:
        def asks(task: Task) -> str:
            fleet.ask(task.trace_id)
            return fleet.work(task)

        with fleet.stepping(asks), fleet.provider.switch(PRIMARY, fault):
            yield

    return broken


_HOP = "worker → router → model"

ROWS = (
    Row(
        "model-down", _HOP, "provider outage", "5xx across the fleet", "calls refused",
        "a fallback in another failure domain", "num_retries, one chain of fallbacks", failing(Down()),
    ),
    Row(
        "model-quota", _HOP, "quota exhausted", "429 across the fleet", "calls refused",
        "a fallback, behind the fleet's gate", "num_retries, one chain of fallbacks", failing(Quota(0)),
    ),
)  # fmt: skip

__all__ = ["ROWS"]
