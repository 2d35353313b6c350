"""A pipe whose queue, functions, state machines and buses are in this process: calls of MiniStack's own functions.

**On AWS** what a pipe touches is in its account and Region. **MiniStack** has nothing that reads a queue for a pipe.
**Here** :class:`Inside` is the plainest of the two implementations of :class:`parity.pipes_services.Services`: each
call goes to the service's own function, so that what the service refuses, and how, is the service's business. The
pipe's role is what gives it permission: the policies that a rule needs on queue and function do not matter."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from parity import metrics
from parity.esm_gather import Held
from parity.esm_pollers import Hands
from parity.pipes_services import HIDDEN, Failed, Message, Takes, Throttled, each, refusal
from parity.sqs_errors import SqsError
from parity.sqs_mailbox import mailbox

Pipe = Mapping[str, Any]


class InsideSource(Hands):
    """One pipe's queue in MiniStack."""

    def __init__(self, account: str, region: str, pipe: Pipe, queue: Any, scope: Any, sqs: Any) -> None:
        super().__init__((account, region, pipe["Name"]), {"FunctionArn": pipe["Arn"]}, queue, scope, sqs, None)

    def serves(self, queue: Any) -> bool:
        return self.box is mailbox(queue)

    def configure(self, window: int, takes: Takes) -> Takes:
        self.mapping["MaximumBatchingWindowInSeconds"] = window
        return takes

    def close(self) -> None:
        """Nothing is held here."""

    def ended(self, within: float) -> bool:
        return True

    def receive(self, limit: int) -> list[Held]:
        window = self.mapping["MaximumBatchingWindowInSeconds"]
        if not window:
            return super().receive(limit)
        with self._scope(self.account, self.region):
            try:
                queue = self._sqs._get_q(self.url)
            except SqsError:  # the queue is gone
                return []
            messages = self._sqs._collect_msgs(queue, limit, HIDDEN + window)
            if messages:
                self.box.tell("received", len(messages))
            return [self._held(message) for message in messages]

    def _function(self) -> Any:
        """A pipe polls whatever becomes of its target, and an execution that misses it fails."""
        return self.mapping


class Inside:
    """MiniStack's services. All calls are made in the scope of the pipe's account and Region."""

    def __init__(self, sqs: Any, functions: Any, machines: Any, events: Any, scope: Any, current: Any) -> None:
        self._sqs = sqs
        self._functions = functions
        self._machines = machines
        self._events = events
        self._scope = scope
        self._current = current

    # -- queues ----------------------------------------------------------------------------------------------------

    def queue(self, arn: str) -> Mapping[str, Any] | None:
        found: Mapping[str, Any] | None = self._sqs._queue_by_arn(arn)
        return found

    glance = queue

    def source(self, pipe: Pipe, queue: Mapping[str, Any], gone: Callable[[], None]) -> InsideSource:
        account, region = self._current()
        return InsideSource(account, region, pipe, queue, self._scope, self._sqs)

    def send(self, arn: str, messages: Sequence[Message], *, ordered: bool) -> set[int]:
        queue = self.queue(arn)
        if queue is None:
            raise Failed(f"The queue {arn} does not exist.", missing=True)

        def send(index: int) -> None:
            try:
                self._sqs._act_send_message({"QueueUrl": queue["url"], **messages[index]}, queue["url"])
            except self._sqs._Err as error:
                raise Failed(error.message, missing=error.code == "QueueDoesNotExist") from error

        return each(len(messages), send, ordered=ordered)

    # -- buses -----------------------------------------------------------------------------------------------------

    def put(self, bus: str, entries: Sequence[dict[str, Any]]) -> set[int]:
        name = bus.rsplit("/", 1)[-1]
        if name != "default" and name not in self._events._event_buses:
            raise Failed(f"The event bus {bus} does not exist.", missing=True)
        answer = answered(self._events._put_events({"Entries": [{"EventBusName": bus, **entry} for entry in entries]}))
        return {index for index, result in enumerate(answer["Entries"]) if "EventId" not in result}

    # -- functions -------------------------------------------------------------------------------------------------

    def call(self, function: str, payload: str) -> Any:
        result = self._functions._execute_function(self._function(function), json.loads(payload))
        if result.get("throttle"):
            raise Throttled(f"The function {function} is throttled.")
        if result.get("error"):
            raise Failed(f"The function {function} failed.")
        body = result.get("body")
        return body.decode("utf-8", "replace") if isinstance(body, bytes) else body

    def send_to(self, function: str, payload: str) -> None:
        self._functions.invoke_async_with_retry(self._function(function), json.loads(payload))

    def _function(self, arn: str) -> dict[str, Any]:
        function, config, _ = self._functions._get_func_record_for_ref(arn)
        if not function or not config:
            raise Failed(f"The function {arn} does not exist.", missing=True)
        record: dict[str, Any] = self._functions._execution_record_for_config(function, config)
        return record

    # -- state machines --------------------------------------------------------------------------------------------

    def run(self, machine: str, payload: str) -> Mapping[str, Any]:
        self._exists(machine)
        return answered(self._machines._start_sync_execution({"stateMachineArn": machine, "input": payload}))

    def start(self, machine: str, payload: str) -> None:
        self._exists(machine)
        answered(self._machines._start_execution({"stateMachineArn": machine, "input": payload}))

    def _exists(self, arn: str) -> None:
        if self._machines._resolve_state_machine_arn(arn) is None:
            raise Failed(f"The state machine {arn} does not exist.", missing=True)

    # -- metrics ---------------------------------------------------------------------------------------------------

    def count(self, namespace: str, name: str, dimensions: Mapping[str, str], value: float, unit: str) -> None:
        metrics.count(namespace, name, dimensions, value, unit=unit)


def answered(response: tuple[int, Any, bytes]) -> dict[str, Any]:
    """The body of a service's answer. Raises when it is a refusal."""
    status, _, body = response
    answer: dict[str, Any] = json.loads(body)
    if status >= 400:
        raise refusal(str(answer.get("__type", "")), str(answer.get("message", "")))
    return answer


def services(scope: Any) -> Inside:
    """Those of the MiniStack of this process. Fails loudly when a name that is called is gone."""
    from ministack.core.responses import get_account_id, get_region
    from ministack.services import eventbridge, lambda_svc, sqs
    from ministack.services import stepfunctions as sfn

    _ = sqs._queue_by_arn, sqs._act_send_message, sqs._Err, sqs._get_q, sqs._collect_msgs
    _ = lambda_svc._get_func_record_for_ref, lambda_svc._execution_record_for_config, lambda_svc._execute_function
    _ = lambda_svc.invoke_async_with_retry, sfn._resolve_state_machine_arn, sfn._start_execution
    _ = sfn._start_sync_execution, eventbridge._put_events, eventbridge._event_buses
    return Inside(sqs, lambda_svc, sfn, eventbridge, scope, lambda: (get_account_id(), get_region()))
