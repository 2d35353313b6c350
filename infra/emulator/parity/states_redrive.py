"""RedriveExecution.

**On AWS** a redrive gives an unsuccessful Standard execution another attempt from where it stood, under its ARN, with
the definition and the role of its start; its TimeoutSeconds and its retries count anew (Step Functions API Reference,
"RedriveExecution"; Developer Guide, "Restarting state machine executions with redrive"; recorded on AWS).

**MiniStack** does not know the action.

**Here** it is as documented; see :mod:`parity.states_redrive_rules` for what is refused. Not verified: the texts of
InvalidArn for what is no ARN, and of a child's refusal.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from .states_callbacks import Response, refusable
from .states_executions import known_execution
from .states_records import RUNS, Ended, iso
from .states_redrive_children import NO_LONGER
from .states_redrive_rules import REDRIVABLE, Last, Requests, why_not
from .states_runs import Run
from .states_tokens import Refused

BY_MAP_RUN = "Execution was started by a Map Run and can be redriven by redriving its parent"
DELETED = "State machine is in DELETING status"

_redriving = threading.Lock()
_requests = Last()


def redriven(
    record: dict[str, Any], token: str | None, again: Callable[[dict[str, Any], Ended], Any], machine_is_gone: bool
) -> str:
    """Redrive an execution, unless this request has been answered: the date of the redrive, or :class:`Refused`.

    ``again(record, stood)`` makes another run of the record, from where it stood; the run is started here.
    """
    arn = record["executionArn"]
    stood = REDRIVABLE.get(arn)
    if stood is not None:
        stood.over.wait(5.0)  # its end is being announced
    with _redriving:  # of two calls at the same time, one redrives it
        now = datetime.now(UTC)
        requests = _requests.get(arn) or Requests()
        date = requests.answer(token, now)
        run = None
        if date is None:
            run = _again(record, now, again, machine_is_gone)
            date = str(record["redriveDate"])
            requests.remember(token, date, now)
            _requests.put(arn, requests)
    if run is not None:
        run.start()
    return date


def _again(
    record: dict[str, Any], now: datetime, again: Callable[[dict[str, Any], Ended], Any], machine_is_gone: bool
) -> Any:
    """Another run of this execution, or :class:`Refused`."""
    arn = record["executionArn"]
    stood = REDRIVABLE.get(arn)
    reason = why_not(record, now, stood is not None)
    if "mapRunArn" in record:
        reason = BY_MAP_RUN
    elif machine_is_gone:
        reason = DELETED
    if reason is not None:
        raise Refused("ExecutionNotRedrivable", f"Execution {arn} invalid for redrive as: {reason}")
    if RUNS.full():
        raise Refused("ExecutionLimitExceeded", "The stand-in runs no more executions at the same time.")
    before = dict(record)
    record.update(NO_LONGER, redriveCount=record.get("redriveCount", 0) + 1, redriveDate=iso(now))
    try:
        run = again(record, stood)
    except BaseException:
        record.update(before)
        raise
    REDRIVABLE.take(arn)
    RUNS.began(run)
    record["status"] = "RUNNING"
    return run


def forget() -> None:
    """Forget the requests that were answered."""
    _requests.clear()


@refusable
def redrive_execution(data: dict[str, Any]) -> Response:
    from ministack.core.responses import get_account_id, get_region, json_response
    from ministack.services import stepfunctions as sfn

    def again(record: dict[str, Any], stood: Ended) -> Run:
        return Run(record, stood.machine, stood.value, get_account_id(), get_region(), stood.scope)

    record = known_execution(data)
    gone = record["stateMachineArn"] not in sfn._state_machines
    answer: Response = json_response({"redriveDate": redriven(record, data.get("clientToken"), again, gone)})
    return answer


def install() -> None:
    from ministack.core.concurrency import run_reentrant
    from ministack.services import stepfunctions as sfn

    handle, forget_all = sfn.handle_request, sfn.reset
    _ = sfn._finalize_response, sfn._executions

    async def handle_request(method: str, path: str, headers: Any, body: bytes, query: Any) -> Any:
        if headers.get("x-amz-target", "").endswith(".RedriveExecution"):
            answer = await run_reentrant(redrive_execution, json.loads(body or b"{}"), thread_name="states-redrive")
            return sfn._finalize_response(answer)
        return await handle(method, path, headers, body, query)

    def reset() -> None:
        forget_all()
        forget()

    sfn.handle_request = handle_request
    sfn.reset = reset
