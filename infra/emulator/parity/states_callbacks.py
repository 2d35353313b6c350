"""SendTaskSuccess, SendTaskFailure and SendTaskHeartbeat.

**On AWS** whoever has the token ends the task or says that it is still at work; the call returns when that is written
down (Step Functions API Reference, the three actions). What each refuses is in :mod:`parity.states_tokens`.

**MiniStack** puts the result where its own interpreter polls for it.

**Here** the calls reach the attempt that waits for them. What an activity's worker asks for is in
:mod:`parity.states_activities`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from .states_tokens import TOKENS, Refused, check_output, check_size

Response = tuple[int, dict[str, str], bytes]


def refused(error: Refused) -> Response:
    """The answer to a request that is refused."""
    from ministack.core.responses import error_response_json

    answer: Response = error_response_json(error.code, error.message, 400)
    return answer


def refusable(operation: Callable[[dict[str, Any]], Response]) -> Callable[[dict[str, Any]], Response]:
    """Answer a :class:`Refused` as the service does."""

    @functools.wraps(operation)
    def answered(data: dict[str, Any]) -> Response:
        try:
            return operation(data)
        except Refused as error:
            return refused(error)

    return answered


def succeed(data: Mapping[str, Any]) -> None:
    """What SendTaskSuccess does."""
    token, output = data.get("taskToken", ""), data.get("output", "")
    check_size("output", output)
    TOKENS.look(token)  # the token before the output: a worker that is too late is told so
    check_output(output)
    attempt = TOKENS.take(token)
    from moto.stepfunctions.parser.asl.eval.callback.callback import CallbackOutcomeSuccess

    attempt.notify(CallbackOutcomeSuccess(callback_id=token, output=output))


def fail(data: Mapping[str, Any]) -> None:
    """What SendTaskFailure does."""
    token = data.get("taskToken", "")
    attempt = TOKENS.take(token)
    from moto.stepfunctions.parser.asl.eval.callback.callback import CallbackOutcomeFailure

    attempt.notify(CallbackOutcomeFailure(callback_id=token, error=data.get("error"), cause=data.get("cause")))


def beat(data: Mapping[str, Any]) -> None:
    """What SendTaskHeartbeat does."""
    TOKENS.look(data.get("taskToken", "")).notify_heartbeat()


def _answered(does: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], Response]:
    @refusable
    def send(data: dict[str, Any]) -> Response:
        from ministack.core.responses import json_response

        does(data)
        answer: Response = json_response({})
        return answer

    return send


class Activities:
    """The activities of one account and Region, as the interpreter asks for them."""

    def __init__(self, account: str, region: str) -> None:
        self._scope = account, region

    def get(self, arn: str) -> Any:
        from ministack.core.responses import request_scope
        from ministack.services import stepfunctions

        with request_scope(*self._scope):
            queue = stepfunctions._activity_tasks.get(arn)
        return None if queue is None else _Queue(queue)


class _Queue:
    def __init__(self, tasks: list[dict[str, str]]) -> None:
        self._tasks = tasks

    def add_task(self, task: Any) -> None:
        self._tasks.append({"taskToken": task.task_token, "input": task.task_input})


def install() -> None:
    from ministack.services import stepfunctions

    _ = stepfunctions._send_task_success, stepfunctions._send_task_failure, stepfunctions._send_task_heartbeat
    _ = stepfunctions._activity_tasks

    stepfunctions._send_task_success = _answered(succeed)
    stepfunctions._send_task_failure = _answered(fail)
    stepfunctions._send_task_heartbeat = _answered(beat)
