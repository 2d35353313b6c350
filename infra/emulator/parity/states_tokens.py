"""Task tokens: what a token stands for, and until when.

**On AWS** each attempt at a state that waits for a callback has a token of its own, in ``$$.Task.Token``.
SendTaskSuccess and SendTaskFailure end the attempt; once it has ended, in whatever way, its token is refused with
TaskTimedOut. A token that never was is InvalidToken; an output that is not JSON is InvalidOutput and leaves the token
as it was. Inputs and outputs have at most 262,144 bytes (Step Functions API Reference; botocore: stepfunctions service
model; Developer Guide, "Wait for a callback with the task token").

**MiniStack** takes any output and answers TaskDoesNotExist when it does not know a token. moto's interpreter keeps one
token through all the attempts at a state.

**Here** :class:`Tokens` knows those that live, and the last 100,000 that do not any more. Not verified: that AWS looks
at the token before it looks at the output.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from typing import Any

MAX_BYTES = 262_144
REMEMBERED = 100_000


class Refused(Exception):
    """A request is refused, with this error code and message."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def check_size(member: str, text: str) -> None:
    """Raise :class:`Refused` when a payload is larger than the service takes."""
    if len(text.encode("utf-8", "surrogatepass")) > MAX_BYTES:
        raise Refused(
            "ValidationException",
            f"1 validation error detected: Value at '{member}' failed to satisfy constraint: "
            f"Member must have length less than or equal to {MAX_BYTES}",
        )


def check_output(output: Any) -> None:
    """Raise :class:`Refused` unless the output of a task is JSON."""
    try:
        json.loads(output)
    except (TypeError, ValueError):
        raise Refused("InvalidOutput", "Invalid Output: 'Invalid JSON'") from None


class Tokens:
    """What each token stands for while it lives; of a dead one only that it has lived."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._live: dict[str, Any] = {}
        self._dead: OrderedDict[str, None] = OrderedDict()
        self._remembered = remembered
        self._lock = threading.Lock()

    def born(self, token: str, attempt: Any) -> None:
        with self._lock:
            self._live[token] = attempt

    def died(self, token: str) -> None:
        with self._lock:
            self._bury(token)

    def look(self, token: Any) -> Any:
        """The attempt that this token stands for, or :class:`Refused`."""
        with self._lock:
            return self._found(token)

    def take(self, token: Any) -> Any:
        """The same, and the token is dead from now on: of two calls that end an attempt, one does."""
        with self._lock:
            attempt = self._found(token)
            self._bury(token)
            return attempt

    def _found(self, token: Any) -> Any:
        if token in self._live:
            return self._live[token]
        if token in self._dead:
            raise Refused("TaskTimedOut", "Task Timed Out: 'Provided task does not exist anymore'")
        raise Refused("InvalidToken", "Invalid Token: 'Invalid token'")

    def _bury(self, token: str) -> None:
        if self._live.pop(token, None) is not None:
            self._dead[token] = None
            while len(self._dead) > self._remembered:
                self._dead.popitem(last=False)


TOKENS = Tokens()


def change() -> None:
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.service import state_task_service_callback as of
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.state_task_activitiy import StateTaskActivity
    from moto.stepfunctions.parser.asl.eval.callback.callback import CallbackEndpoint, CallbackPoolManager

    add, add_task = CallbackPoolManager.add, CallbackPoolManager.add_activity_task
    interrupt = CallbackEndpoint.interrupt_all
    attempt, activity_attempt = of.StateTaskServiceCallback._eval_execution, StateTaskActivity._eval_execution

    def added(self: Any, callback_id: str) -> Any:
        endpoint = add(self, callback_id)
        TOKENS.born(callback_id, endpoint)
        return endpoint

    def added_task(self: Any, callback_id: str, activity_arn: str, activity_input: str) -> Any:
        endpoint = add_task(self, callback_id, activity_arn, activity_input)
        TOKENS.born(callback_id, endpoint)
        return endpoint

    def interrupted(self: Any) -> None:  # also called at the end of each attempt
        TOKENS.died(self.callback_id)
        interrupt(self)

    def with_own_token(self: Any, env: Any) -> None:
        context = env.states.context_object
        waits = self.resource.condition == of.ResourceCondition.WaitForTaskToken
        if waits and context.context_object_data["State"].get("RetryCount", 0):
            env.callback_pool_manager.add(context.update_task_token())
        try:
            attempt(self, env)
        finally:  # also when the call that should have carried the token failed
            if waits:
                over(env)

    def with_activity_token(self: Any, env: Any) -> None:
        try:
            activity_attempt(self, env)
        finally:
            over(env)

    def over(env: Any) -> None:
        token = (env.states.context_object.context_object_data.get("Task") or {}).get("Token")
        if token:
            TOKENS.died(token)
            env.callback_pool_manager._pool.pop(token, None)

    CallbackPoolManager.add = added
    CallbackPoolManager.add_activity_task = added_task
    CallbackEndpoint.interrupt_all = interrupted
    of.StateTaskServiceCallback._eval_execution = with_own_token
    StateTaskActivity._eval_execution = with_activity_token


def install() -> None:
    from . import states_engine

    states_engine.on_load(change)
