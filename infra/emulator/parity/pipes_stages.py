"""How a pipe calls its enrichment and its target.

**On AWS** (User Guide, "Amazon EventBridge Pipes targets", "Amazon EventBridge Pipes batching and concurrency") the
pipe's role makes the calls: SendMessageBatch, PutEvents, Invoke, StartExecution or StartSyncExecution. A queue and a
bus get one message or event for each item; a function and a state machine get the whole batch as one JSON array, also
when it holds one item only. ``REQUEST_RESPONSE``, the default, waits for the answer; a Standard state machine cannot be
called so, and the pipe stops itself with a StateReason. Without parameters an event has the detail type ``Event from
aws:sqs`` and the source ``Pipe`` and the pipe's name (seen in public). Text that is no JSON cannot go to a function, a
state machine or a bus. An Invoke that is throttled, and an execution that the quota does not allow, is tried again
without another receive. Not verified: the StateReason of a pipe that stops itself.

The pipe's role is what gives it permission: the policies that a rule needs on queue and function do not matter here.

**MiniStack** delivers nothing from a queue.

**Here** each call goes to the service's own function, as the account of the pipe. What the role may is not checked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from parity.pipes_checks import service_of
from parity.pipes_template import MISSING, is_path, parameter, parsed

THROTTLES = ("ExecutionLimitExceeded", "ThrottlingException", "TooManyRequestsException", "RequestThrottled")


class Failed(Exception):
    """The whole batch goes back. ``missing``: what was called does not exist."""

    def __init__(self, message: str, *, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


class Throttled(Exception):
    """Another attempt may succeed, with the same receive."""


class Stopped(Exception):
    """The pipe cannot work as it is, and stops itself."""


class Stages:
    """Calls to MiniStack's services. All are made in the scope of the pipe's account and Region."""

    def __init__(self, sqs: Any, functions: Any, machines: Any, events: Any) -> None:
        self._sqs = sqs
        self._functions = functions
        self._machines = machines
        self._events = events

    # -- enrichment ------------------------------------------------------------------------------------------------

    def enrich(self, arn: str, texts: Sequence[str]) -> Any:
        """What the enrichment returned for a batch: a JSON value, or text."""
        if service_of(arn) == "lambda":
            return self._call_function(arn, array(texts))
        return self._call_machine(arn, array(texts), "an enrichment")

    # -- targets ---------------------------------------------------------------------------------------------------

    def deliver(self, pipe: Mapping[str, Any], views: Sequence[Any], texts: Sequence[str], *, ordered: bool) -> Any:
        """Send a batch: ``texts`` are what the target gets, ``views`` what paths in its parameters look into.

        Returns the target's answer for a function or an Express state machine, otherwise the indices of the items
        that the target did not take. With ``ordered``, nothing is sent after one that was not taken.
        """
        arn, parameters = pipe["Target"], pipe.get("TargetParameters") or {}
        service = service_of(arn)
        if service == "sqs":
            return self._to_queue(arn, parameters.get("SqsQueueParameters") or {}, views, texts, ordered)
        if service == "events":
            return self._to_bus(pipe, parameters.get("EventBridgeEventBusParameters") or {}, views, texts)
        kind = "LambdaFunctionParameters" if service == "lambda" else "StepFunctionStateMachineParameters"
        waits = (parameters.get(kind) or {}).get("InvocationType") != "FIRE_AND_FORGET"
        if service == "lambda":
            return self._call_function(arn, array(texts)) if waits else self._send_to_function(arn, array(texts))
        if waits:
            return self._call_machine(arn, array(texts), "a target that is called synchronously")
        return self._start_machine(arn, array(texts))

    def _to_queue(
        self, arn: str, parameters: Mapping[str, Any], views: Sequence[Any], texts: Sequence[str], ordered: bool
    ) -> set[int]:
        queue = self._sqs._queue_by_arn(arn)
        if queue is None:
            raise Failed(f"The queue {arn} does not exist.", missing=True)

        def send(index: int) -> None:
            message: dict[str, Any] = {"QueueUrl": queue["url"], "MessageBody": texts[index]}
            for name in ("MessageGroupId", "MessageDeduplicationId"):
                if parameters.get(name):
                    message[name] = _text(name, parameters[name], views[index])
            try:
                self._sqs._act_send_message(message, queue["url"])
            except self._sqs._Err as error:
                raise Failed(error.message, missing=error.code == "QueueDoesNotExist") from error

        return each(len(texts), send, ordered=ordered)

    def _to_bus(
        self, pipe: Mapping[str, Any], parameters: Mapping[str, Any], views: Sequence[Any], texts: Sequence[str]
    ) -> set[int]:
        entries = []
        for view, text in zip(views, texts, strict=True):
            entry: dict[str, Any] = {
                "EventBusName": pipe["Target"],
                "DetailType": _text("DetailType", parameters.get("DetailType") or "Event from aws:sqs", view),
                "Source": _text("Source", parameters.get("Source") or f"Pipe {pipe['Name']}", view),
                "Detail": text,
                "Resources": [_text("Resources", one, view) for one in parameters.get("Resources") or []],
            }
            if parameters.get("Time"):
                entry["Time"] = _time(parameters["Time"], view)
            entries.append(entry)
        name = pipe["Target"].rsplit("/", 1)[-1]
        if name != "default" and name not in self._events._event_buses:
            raise Failed(f"The event bus {pipe['Target']} does not exist.", missing=True)
        answer = _answer(self._events._put_events({"Entries": entries}))
        return {index for index, result in enumerate(answer["Entries"]) if "EventId" not in result}

    # -- functions -------------------------------------------------------------------------------------------------

    def _function(self, arn: str) -> dict[str, Any]:
        function, config, _ = self._functions._get_func_record_for_ref(arn)
        if not function or not config:
            raise Failed(f"The function {arn} does not exist.", missing=True)
        record: dict[str, Any] = self._functions._execution_record_for_config(function, config)
        return record

    def _call_function(self, arn: str, payload: str) -> Any:
        result = self._functions._execute_function(self._function(arn), json.loads(payload))
        if result.get("throttle"):
            raise Throttled(f"The function {arn} is throttled.")
        if result.get("error"):
            raise Failed(f"The function {arn} failed.")
        body = result.get("body")
        return body.decode("utf-8", "replace") if isinstance(body, bytes) else body

    def _send_to_function(self, arn: str, payload: str) -> set[int]:
        self._functions.invoke_async_with_retry(self._function(arn), json.loads(payload))
        return set()

    # -- state machines --------------------------------------------------------------------------------------------

    def _call_machine(self, arn: str, payload: str, role: str) -> Any:
        base = self._machine(arn)
        if self._machines._state_machines[base]["type"] != "EXPRESS":
            raise Stopped(
                f"The state machine {arn} is a Standard workflow, which cannot be {role}: a Standard workflow takes "
                "FIRE_AND_FORGET only."
            )
        answer = _answer(self._machines._start_sync_execution({"stateMachineArn": arn, "input": payload}))
        if answer["status"] != "SUCCEEDED":
            raise Failed(f"The execution of {arn} ended with {answer.get('error') or answer['status']}.")
        return json.loads(answer.get("output") or "null")

    def _start_machine(self, arn: str, payload: str) -> set[int]:
        self._machine(arn)
        _answer(self._machines._start_execution({"stateMachineArn": arn, "input": payload}))
        return set()

    def _machine(self, arn: str) -> str:
        base = self._machines._resolve_state_machine_arn(arn)
        if base is None:
            raise Failed(f"The state machine {arn} does not exist.", missing=True)
        return str(base)


def array(texts: Sequence[str]) -> str:
    """A batch as one JSON array. Raises :class:`Failed` when an item is no JSON."""
    if any(parsed(text) is MISSING for text in texts):
        raise Failed("A function or a state machine takes JSON only, and an item of the batch is none.")
    return f"[{','.join(texts)}]"


def each(number: int, send: Callable[[int], None], *, ordered: bool) -> set[int]:
    """Send each item, and return the indices of those that failed. Raises when what was called does not exist."""
    failed: set[int] = set()
    for index in range(number):
        if failed and ordered:
            failed.add(index)
            continue
        try:
            send(index)
        except Failed as error:
            if error.missing and index == 0:
                raise
            failed.add(index)
    return failed


def _text(name: str, value: str, view: Any) -> str:
    found = parameter(value, view)
    if isinstance(found, bool) or not isinstance(found, str | int | float):
        raise Failed(f"{name} is {value}, and that leads to no text in an event of the batch.")
    return str(found)


def _time(path: str, view: Any) -> Any:
    found = parameter(path, view)
    if is_path(path) and isinstance(found, str):
        try:
            return datetime.fromisoformat(found).timestamp()
        except ValueError:
            found = MISSING
    if isinstance(found, bool) or not isinstance(found, int | float):
        raise Failed(f"Time is {path}, and that leads to no time in an event of the batch.")
    return found


def _answer(response: tuple[int, Any, bytes]) -> dict[str, Any]:
    """The body of a service's answer. Raises when it is a refusal."""
    status, _, body = response
    answer: dict[str, Any] = json.loads(body)
    if status < 400:
        return answer
    code = str(answer.get("__type", ""))
    if code in THROTTLES:
        raise Throttled(f"{code}: {answer.get('message', '')}")
    raise Failed(f"{code}: {answer.get('message', '')}")
