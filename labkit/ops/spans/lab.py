"""What a lab holds of traces beside its files: the lines that its functions logged, and its executions' histories.

Read with plain clients and without opening the lab: it may be open in somebody's notebook.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from labkit import kinds
from labkit.control.executions import Execution
from labkit.control.machines import MachineError
from labkit.ops.metrics import Clients
from labkit.ops.spans.record import Record, read_line
from labkit.ops.spans.states import spans_of
from labkit.work.logs import Log

__all__ = ["from_logs", "with_states"]

_MOST = 20_000  # the newest lines of each function's log


def from_logs(clients: Clients, *, prefix: str = "", since: float | None = None) -> Iterator[Record]:
    """The spans that functions have logged, those whose name begins with ``prefix``, since an epoch second."""
    logs = clients.client("logs")
    pages = logs.get_paginator("describe_log_groups").paginate(logGroupNamePrefix=f"{kinds.LOGS}{prefix}")
    for group in [each["logGroupName"] for page in pages for each in page["logGroups"]]:
        for text in Log(logs, group).lines(since, limit=_MOST):
            yield from read_line(text)


def with_states(clients: Clients, records: Iterable[Record]) -> list[Record]:
    """``records``, and the states of the executions that they have started. One that is gone is left out."""
    held = list(records)
    states = clients.client("stepfunctions")
    for arn in dict.fromkeys(str(each.attributes.get("labkit.execution", "")) for each in held):
        if not arn:
            continue
        try:
            held += spans_of(Execution(states, arn))
        except MachineError:
            continue  # deleted with its machine, or of another account
    return held
