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

**Here** :class:`Stages` says what is called with what; the calls themselves are those of :mod:`parity.pipes_services`,
as the account of the pipe. What the role may is not checked."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from parity.pipes_checks import service_of
from parity.pipes_services import Failed, Message, Services, Stopped, Unsupported
from parity.pipes_template import MISSING, is_path, parameter, parsed


class Stages:
    """The enrichment and the target of pipes. All is called in the scope of the pipe's account and Region."""

    def __init__(self, services: Services) -> None:
        self._services = services

    # -- enrichment ------------------------------------------------------------------------------------------------

    def enrich(self, arn: str, texts: Sequence[str]) -> Any:
        """What the enrichment returned for a batch: a JSON value, or text."""
        if service_of(arn) == "lambda":
            return self._services.call(arn, array(texts))
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
        payload = array(texts)
        if service == "lambda" and waits:
            return self._services.call(arn, payload)
        if waits:
            return self._call_machine(arn, payload, "a target that is called synchronously")
        (self._services.send_to if service == "lambda" else self._services.start)(arn, payload)
        return set()

    def _to_queue(
        self, arn: str, parameters: Mapping[str, Any], views: Sequence[Any], texts: Sequence[str], ordered: bool
    ) -> set[int]:
        given = [name for name in ("MessageGroupId", "MessageDeduplicationId") if parameters.get(name)]
        made: list[tuple[int, Message]] = []
        for index, (view, text) in enumerate(zip(views, texts, strict=True)):
            try:
                made.append(
                    (index, {"MessageBody": text, **{name: _text(name, parameters[name], view) for name in given}})
                )
            except Failed:
                if ordered:
                    break
        refused = self._services.send(arn, [message for _, message in made], ordered=ordered) if made else set()
        taken = {index for place, (index, _) in enumerate(made) if place not in refused}
        return set(range(len(texts))) - taken

    def _to_bus(
        self, pipe: Mapping[str, Any], parameters: Mapping[str, Any], views: Sequence[Any], texts: Sequence[str]
    ) -> set[int]:
        entries = []
        for view, text in zip(views, texts, strict=True):
            entry: dict[str, Any] = {
                "DetailType": _text("DetailType", parameters.get("DetailType") or "Event from aws:sqs", view),
                "Source": _text("Source", parameters.get("Source") or f"Pipe {pipe['Name']}", view),
                "Detail": text,
                "Resources": [_text("Resources", one, view) for one in parameters.get("Resources") or []],
            }
            if parameters.get("Time"):
                entry["Time"] = _time(parameters["Time"], view)
            entries.append(entry)
        return self._services.put(pipe["Target"], entries)

    def _call_machine(self, arn: str, payload: str, role: str) -> Any:
        try:
            answer = self._services.run(arn, payload)
        except Unsupported as error:
            raise Stopped(
                f"The state machine {arn} is a Standard workflow, which cannot be {role}: a Standard workflow takes "
                "FIRE_AND_FORGET only."
            ) from error
        if answer["status"] != "SUCCEEDED":
            raise Failed(f"The execution of {arn} ended with {answer.get('error') or answer['status']}.")
        return json.loads(answer.get("output") or "null")


def array(texts: Sequence[str]) -> str:
    """A batch as one JSON array. Raises :class:`Failed` when an item is no JSON."""
    if any(parsed(text) is MISSING for text in texts):
        raise Failed("A function or a state machine takes JSON only, and an item of the batch is none.")
    return f"[{','.join(texts)}]"


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
