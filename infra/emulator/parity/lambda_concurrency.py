"""How many executions run at once, and what a request gets that is one too many.

**On AWS** a function's reserved concurrency holds for all its versions and aliases together, 0 stops it, and the sum of
all reservations must leave 100 of the account's 1,000 unreserved. A request beyond is refused with
TooManyRequestsException, HTTP 429, ``Rate Exceeded.`` and a Reason; it has not run. (Recorded on AWS: the answers, 0
and 1. Documented: the account's limits.)

**MiniStack** forgets the reservation when a version or an alias is called, has texts of its own, takes any reservation,
and reports a limit that depends on the machine's memory.

**Here** every execution passes :func:`execute`, whoever causes it: it is throttled, runs, and is counted. The machine's
memory still sets a limit for all accounts together, below AWS's 1,000 on a small one: a request beyond it is throttled
with the account's Reason.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from typing import Any

from . import lambda_metrics
from .lambda_request import Request, current

ACCOUNT_LIMIT = 1000
UNRESERVED = 100
REASONS = {
    "function": "ReservedFunctionConcurrentInvocationLimitExceeded",
    "account": "ConcurrentInvocationLimitExceeded",
}
MESSAGE = "Rate Exceeded."


def throttled(limit: str) -> dict[str, Any]:
    """The result of an execution that did not run; ``limit`` is ``function`` or ``account``."""
    body = {"__type": "TooManyRequestsException", "Reason": REASONS[limit], "Type": "User", "message": MESSAGE}
    return {"throttle": True, "error": True, "body": body, "log": ""}


def reservation_error(wanted: int, others: Iterable[int]) -> str | None:
    """Why so many executions cannot be reserved beside the ``others``, or None."""
    if wanted + sum(others) <= ACCOUNT_LIMIT - UNRESERVED:
        return None
    return (
        "Specified ReservedConcurrentExecutions for function decreases account's UnreservedConcurrentExecution below "
        f"its minimum value of [{UNRESERVED}]."
    )


def install() -> None:
    from ministack.services import lambda_svc

    acquire, put, settings = (
        lambda_svc._acquire_execution_slot,
        lambda_svc._put_function_concurrency,
        lambda_svc._get_account_settings,
    )

    def slot(function: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[str | None, str | None]:
        # The record of a version has no reservation: the function's own is meant.
        return acquire(lambda_svc._functions.get(config["FunctionName"]) or function, config)

    def execute(function: Mapping[str, Any], event: Any) -> dict[str, Any]:
        config = function.get("config") or function
        if lambda_svc._function_config_scope_mismatch(config):
            return lambda_svc._run_with_function_config_scope(config, execute, function, event)
        request = current.get() or Request()
        token = current.set(request)
        taken, limit = slot(function, config)
        try:
            if taken is None:
                lambda_metrics.count(config, "Throttles")
                return throttled(limit or "account")
            total, each = lambda_svc.executions_in_flight()
            lambda_metrics.running(config["FunctionName"], each.get(taken, 1), total)
            began = time.monotonic()
            result = lambda_svc._execute_function_dispatch(function, config, event, request.identity, time.time())
            seconds = result.get("duration", time.monotonic() - began)
            lambda_metrics.invoked(config, failed=bool(result.get("error")), seconds=seconds)
            return result
        finally:
            lambda_svc._release_execution_slot(taken)
            current.reset(token)

    def put_concurrency(name: str, data: Mapping[str, Any]) -> Any:
        functions = lambda_svc._functions
        if name not in functions:
            return lambda_svc._function_qualifier_not_found(name, "$LATEST")  # the ARN in this error is qualified
        others = [functions[other].get("concurrency") or 0 for other in functions if other != name]
        error = reservation_error(data.get("ReservedConcurrentExecutions", 0), others)
        if error:
            return lambda_svc.error_response_json("InvalidParameterValueException", error, 400)
        return put(name, data)

    def account_settings() -> Any:
        answer = json.loads(settings()[2])
        reserved = sum(record.get("concurrency") or 0 for record in lambda_svc._functions.values())
        answer["AccountLimit"]["ConcurrentExecutions"] = ACCOUNT_LIMIT
        answer["AccountLimit"]["UnreservedConcurrentExecutions"] = ACCOUNT_LIMIT - reserved
        return lambda_svc.json_response(answer)

    _ = lambda_svc._execute_function, lambda_svc._execute_function_dispatch, lambda_svc._release_execution_slot
    _ = lambda_svc._function_config_scope_mismatch, lambda_svc._run_with_function_config_scope
    _ = lambda_svc.executions_in_flight, lambda_svc._functions, lambda_svc.error_response_json, lambda_svc.json_response
    lambda_svc._acquire_execution_slot = slot
    lambda_svc._execute_function = execute
    lambda_svc._put_function_concurrency = put_concurrency
    lambda_svc._get_account_settings = account_settings
