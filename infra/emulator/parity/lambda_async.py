"""Asynchronous invocation: a queue of events, and what is left of those that are done with.

**On AWS** Invoke with InvocationType Event puts the event into a queue of Lambda's own and answers at once. Attempts
follow (:mod:`parity.lambda_attempts`); when they are over, the invocation record goes to the OnSuccess or OnFailure
destination, and an event that was given up to the dead-letter queue (Lambda Developer Guide, "Invoking a Lambda
function asynchronously"). EventBridge, SNS and S3 invoke functions in this way.

**MiniStack** runs each event in a thread of its own; SNS calls functions synchronously there, and their retries and
destinations never see the event.

**Here** 32 threads work at the queue in the order of arrival, and one timer brings events back. The function's tag
``lab:clock-scale`` makes the clock run that many times faster.
"""

from __future__ import annotations

import json
import logging
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import lambda_metrics
from .events_retry import Timer
from .lambda_attempts import Engine, Event, Function
from .lambda_destinations import Undelivered, send_message, send_record, text_of
from .lambda_logs import moment_text
from .lambda_request import Request, current
from .lambda_retry import SUCCESS, RetryPolicy, dead_letter_attributes, invocation_record
from .settings import CLOCK_SCALE, positive_float

WORKERS = 32

logger = logging.getLogger("parity.lambda")


def qualified(arn: str) -> str:
    """A function's ARN as invocation records show it: with ``$LATEST`` when it has no version or alias."""
    return arn if len(arn.split(":")) > 7 else f"{arn}:$LATEST"


def install() -> None:
    from ministack.core.responses import request_scope
    from ministack.services import lambda_svc, sns

    default_scale = positive_float(os.environ, "LAB_CLOCK_SCALE", 1.0)
    timer = Timer()
    pool = ThreadPoolExecutor(WORKERS, "lambda-async")

    def find(arn: str) -> Function | None:
        _, _, _, region, account, resource = arn.split(":", 5)
        name, _, qualifier = resource.split(":", 1)[1].partition(":")
        with request_scope(account, region):
            base = lambda_svc._functions.get(name)
            record, config = lambda_svc._effective_func_record_for_qualifier(base, qualifier or None)
        if base is None or record is None:
            return None
        target = lambda_svc._execution_record_for_config(record, {**config, "FunctionArn": arn})
        settings = lambda_svc._event_invoke_config(base, qualifier.replace("$LATEST", "")) or {}
        destinations = settings.get("DestinationConfig") or {}
        return Function(
            config=target["config"],
            run=lambda event: lambda_svc._execute_function(target, event),
            policy=RetryPolicy.of(settings),
            on_success=(destinations.get("OnSuccess") or {}).get("Destination"),
            on_failure=(destinations.get("OnFailure") or {}).get("Destination"),
            dead_letter=(config.get("DeadLetterConfig") or {}).get("TargetArn"),
            stopped=base.get("concurrency") == 0,
            scale=positive_float(base.get("tags") or {}, CLOCK_SCALE, default_scale),
        )

    def count(function: Function, metric: str) -> None:
        _, _, _, region, account, _ = function.config["FunctionArn"].split(":", 5)
        with request_scope(account, region):
            lambda_metrics.count(function.config, metric)

    def forward(arn: str, event: Any) -> None:
        function = find(arn)
        if function is None:
            raise Undelivered(f"{arn} does not exist")
        # A hop as an Invoke call is one: functions that are each other's destination are stopped like a recursive one.
        depth, name = lambda_svc._invoke_depth.get() + 1, function.config["FunctionName"]
        if lambda_svc._recursive_loop_drop(name, lambda_svc._functions.get(name) or {}, depth) is not None:
            raise Undelivered(f"{arn} is called in a loop")
        lambda_svc._invoke_depth.set(depth)
        accept(arn, event, Request(), text_of(event))

    def deliver(function: Function, event: Event, condition: str) -> None:
        record = invocation_record(
            moment=moment_text(time.time()),
            request_id=event.request.identity,
            function_arn=qualified(event.arn),
            version=function.config["Version"],
            condition=condition,
            invocations=event.invocations,
            event=event.payload,
            response=event.response,
        )
        failed = condition != SUCCESS
        destination = function.on_failure if failed else function.on_success
        if destination:
            attempt(function, "DestinationDeliveryFailures", lambda: send_record(destination, record, forward))
        if failed and (queue := function.dead_letter):
            attributes = dead_letter_attributes(event.request.identity, event.response)
            attempt(function, "DeadLetterErrors", lambda: send_message(queue, event.text, attributes))

    def attempt(function: Function, metric: str, send: Callable[[], None]) -> None:
        try:
            send()
        except Undelivered as error:
            logger.info("no delivery of what became of an event of %s: %s", function.config["FunctionArn"], error)
            count(function, metric)
        except Exception:
            logger.exception("no delivery of what became of an event of %s", function.config["FunctionArn"])
            count(function, metric)

    engine = Engine(timer, find=find, submit=pool.submit, count=count, deliver=deliver)

    def accept(arn: str, event: Any, request: Request, text: str) -> None:
        engine.accept(Event(arn, event, request, text, timer.clock()))

    def invoke_async(function: Mapping[str, Any], event: Any) -> None:
        config = function.get("config") or function
        request = current.get() or Request()
        text = request.text if request.text is not None else json.dumps(event)
        accept(config["FunctionArn"], event, request, text)

    class Asynchronously:
        """What SNS knows of Lambda, with the call that waits replaced by one that does not."""

        def __getattr__(self, name: str) -> Any:
            return invoke_async if name == "_execute_function_with_config_scope" else getattr(lambda_svc, name)

    def forget() -> None:
        timer.clear()
        reset()

    reset = lambda_svc.reset
    _ = lambda_svc.invoke_async_with_retry, lambda_svc._effective_func_record_for_qualifier, sns._lambda_svc
    _ = lambda_svc._execution_record_for_config, lambda_svc._event_invoke_config, lambda_svc._functions
    _ = lambda_svc._invoke_depth, lambda_svc._recursive_loop_drop
    lambda_svc.invoke_async_with_retry = invoke_async
    lambda_svc.reset = forget
    sns._lambda_svc = Asynchronously()
