"""UpdateMapRun.

**On AWS** the tolerated failures and the concurrency of a Map run can be changed while it runs; of one that has ended
they cannot (Step Functions API Reference, "UpdateMapRun"; botocore: stepfunctions service model, the reasons of a
ValidationException).

**MiniStack** changes what its own interpreter wrote down.

**Here** new thresholds count from the next item that ends; a new maxConcurrency is shown, and concerns no item that
the run began with, because its workers are there already. Not verified: the texts of the refusals.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .states_callbacks import Response, refusable
from .states_machines import json_answer
from .states_map_runs import known_run
from .states_requests import constraint
from .states_tokens import Refused

MEMBERS: Mapping[str, float | None] = {
    "maxConcurrency": None,
    "toleratedFailureCount": None,
    "toleratedFailurePercentage": 100,
}


def check(data: Mapping[str, Any]) -> dict[str, Any]:
    """What a request changes, or :class:`Refused`."""
    given = {member: data[member] for member in MEMBERS if data.get(member) is not None}
    if not given:
        raise Refused("ValidationException", f"At least one of {', '.join(MEMBERS)} must be specified")
    for member, value in given.items():
        most = MEMBERS[member]
        if value < 0:
            raise constraint(member, value, "Member must have value greater than or equal to 0")
        if most is not None and value > most:
            raise constraint(member, value, f"Member must have value less than or equal to {most}")
    return given


def update(run: Any, data: Mapping[str, Any]) -> None:
    """Change a run as a request says."""
    given = check(data)
    if run.status != "RUNNING":
        raise Refused("ValidationException", "A Map Run that has completed cannot be updated")
    run.update(*(given.get(member) for member in MEMBERS))  # in the order that the interpreter's method has


@refusable
def update_map_run(data: dict[str, Any]) -> Response:
    update(known_run(data.get("mapRunArn", "")), data)
    return json_answer({})


def install() -> None:
    from ministack.services import stepfunctions as sfn

    _ = sfn._update_map_run
    sfn._update_map_run = update_map_run
