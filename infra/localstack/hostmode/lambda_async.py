"""What is left of asynchronous events that are done with.

**On AWS**: see :mod:`parity.lambda_retry` and :mod:`parity.lambda_destinations`.

**LocalStack** writes a dead-letter event anew and gives it a request id of its own, takes a FIFO queue as a
destination, names the function alone as the resource of an event on a bus, knows the settings of versions and not of
aliases, and counts nothing.

**Here** records, events and what is counted are as the rules say. The attempts stay LocalStack's; a function's tag
``lab:clock-scale`` makes the clock run faster by which it waits between them.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import threading
import time
import uuid
from collections.abc import Callable
from datetime import datetime
from typing import Any

from parity import settings
from parity.lambda_async import qualified
from parity.lambda_destinations import Undelivered, event_entry, shown, standard, text_of
from parity.lambda_logs import moment_text
from parity.lambda_retry import SUCCESS, ZERO_CONCURRENCY, Response, dead_letter_attributes, invocation_record

from hostmode.lambda_metrics import count
from hostmode.lambda_recursion import DEPTH, stopped
from hostmode.lambda_versions import service

logger = logging.getLogger(__name__)


def response_of(result: Any) -> Response | None:
    """What an invocation has answered, None when the function has never run."""
    if result.payload is None:
        return None
    try:
        payload = json.loads(result.payload)
    except ValueError:
        payload = bytes(result.payload).decode(errors="replace")
    return Response(payload, "Unhandled" if result.is_error else None)


def scale_of(arn: str) -> float:
    """How many times faster than real time a function's clock runs."""
    from localstack.services.lambda_.invocation.models import lambda_stores

    region, account = arn.split(":")[3:5]
    tags = lambda_stores[account][region].tags.get_tags(":".join(arn.split(":")[:7]))
    return settings.positive_float(tags, settings.CLOCK_SCALE, 1.0)


class Waiting:
    """LocalStack's client of the queue in which events wait: with the function's clock, and with nothing held up.

    What a poller receives while it is being stopped for an update would come again after the visibility timeout only.
    """

    def __init__(self, client: Any, scale: float, poller: Any) -> None:
        self._client, self._scale, self._poller = client, scale, poller

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def send_message(self, *, DelaySeconds: float = 0, **more: Any) -> Any:
        return self._client.send_message(DelaySeconds=DelaySeconds / self._scale, **more)

    def receive_message(self, *, QueueUrl: str, **more: Any) -> Any:
        answer = self._client.receive_message(QueueUrl=QueueUrl, **more)
        if self._poller is not None and self._poller._shutdown_event.is_set():
            queue = self._client.queue_manager.queues.get(QueueUrl)
            for message in answer.get("Messages") or () if queue is not None else ():
                queue.update_visibility_timeout(message["ReceiptHandle"], 0)
            return {}
        return answer


def _clock() -> None:
    from localstack.services.lambda_.invocation import event_manager

    client, enough = event_manager.get_sqs_client, event_manager.has_enough_time_for_retry
    run = event_manager.Poller.run
    here = threading.local()  # whose thread this is

    def client_of(function_version: Any, client_config: Any = None) -> Any:
        scale = scale_of(function_version.id.unqualified_arn())
        return Waiting(client(function_version, client_config), scale, getattr(here, "poller", None))

    def enough_time(waiting: Any, event_invoke_config: Any) -> bool:
        invocation, now = waiting.invocation, datetime.now()
        age = (now - invocation.invoke_time) * scale_of(invocation.invoked_arn)
        older = dataclasses.replace(invocation, invoke_time=now - age)
        return bool(enough(dataclasses.replace(waiting, invocation=older), event_invoke_config))

    def run_here(self: Any, *arguments: Any, **more: Any) -> None:
        here.poller = self
        run(self, *arguments, **more)

    event_manager.get_sqs_client, event_manager.has_enough_time_for_retry = client_of, enough_time
    event_manager.Poller.run = run_here


def install() -> None:
    _clock()
    _records()


def _records() -> None:
    from localstack.aws.api.lambda_ import InvocationType
    from localstack.aws.connect import connect_to
    from localstack.services.lambda_.invocation.event_manager import LambdaEventManager, Poller
    from localstack.services.lambda_.invocation.models import lambda_stores
    from localstack.utils.aws.arns import sqs_queue_url_for_arn

    enqueue = LambdaEventManager.enqueue_event

    def clients(arn: str) -> Any:
        region, account = arn.split(":")[3:5]
        return connect_to(aws_access_key_id=account, region_name=region)

    def forward(arn: str, record: dict[str, Any], trace: dict[str, Any]) -> None:
        """Invoke a function, one step deeper: functions that are each other's destination are stopped."""
        region, account, _, name, *qualifier = arn.split(":")[3:]
        function = lambda_stores[account][region].functions.get(name)
        depth = trace.get(DEPTH, 1) + 1
        if function is not None and stopped(depth, function.recursive_loop):
            raise Undelivered(f"{arn} is called in a loop")
        service().invoke(
            function_name=name,
            qualifier=qualifier[0] if qualifier else None,
            region=region,
            account_id=account,
            invocation_type=InvocationType.Event,
            client_context=None,
            request_id=str(uuid.uuid4()),
            payload=text_of(record).encode(),
            trace_context={**trace, DEPTH: depth},
        )

    def send_record(arn: str, record: dict[str, Any], trace: dict[str, Any]) -> None:
        target = arn.split(":")[2]
        if target == "lambda":
            forward(arn, record, trace)
        elif target == "events":
            answer = clients(arn).events.put_events(Entries=[event_entry(arn, record)])
            if answer["FailedEntryCount"]:
                raise Undelivered(str(answer["Entries"]))
        else:
            send_message(arn, text_of(record), {})

    def send_message(arn: str, body: str, attributes: dict[str, Any]) -> None:
        if standard(arn) == "sns":
            clients(arn).sns.publish(TopicArn=arn, Message=body, MessageAttributes=attributes)
        else:
            url = sqs_queue_url_for_arn(arn)
            clients(arn).sqs.send_message(QueueUrl=url, MessageBody=body, MessageAttributes=attributes)

    def attempt(manager: Any, metric: str, send: Callable[[], None]) -> None:
        try:
            send()
        except Exception as error:  # noqa: BLE001 - what cannot be delivered is lost, and counted
            logger.info("no delivery of what became of an event of %s: %s", manager.function_arn, error)
            count(manager, metric)

    def destination(self: Any, done: Any, result: Any, settings: Any, condition: str, kind: str) -> None:
        manager, invocation = self.version_manager, done.invocation
        alias = invocation.invoked_arn.split(":")[7:]
        settings = manager.function.event_invoke_configs.get(alias[0]) if alias else settings
        arn = (((settings and settings.destination_config) or {}).get(kind) or {}).get("Destination")
        if not arn:
            return
        record = invocation_record(
            moment=moment_text(time.time()),
            request_id=invocation.request_id,
            function_arn=qualified(invocation.invoked_arn),
            version=manager.function_version.id.qualifier,
            condition=condition,
            invocations=done.retries + (condition != ZERO_CONCURRENCY),
            event=json.loads(invocation.payload),
            response=response_of(result),
        )
        attempt(manager, "DestinationDeliveryFailures", lambda: send_record(arn, record, invocation.trace_context))

    def succeeded(self: Any, sqs_invocation: Any, invocation_result: Any, event_invoke_config: Any) -> None:
        destination(self, sqs_invocation, invocation_result, event_invoke_config, SUCCESS, "OnSuccess")

    def failed(self: Any, sqs_invocation: Any, invocation_result: Any, settings: Any, failure_cause: str) -> None:
        destination(self, sqs_invocation, invocation_result, settings, failure_cause, "OnFailure")

    def dropped(self: Any, sqs_invocation: Any, invocation_result: Any) -> None:
        manager, invocation = self.version_manager, sqs_invocation.invocation
        count(manager, "AsyncEventsDropped")
        arn = manager.function_version.config.dead_letter_arn
        if arn:
            attributes = shown(dead_letter_attributes(invocation.request_id, response_of(invocation_result)))
            body = bytes(invocation.payload).decode()
            attempt(manager, "DeadLetterErrors", lambda: send_message(arn, body, attributes))

    def accept(self: Any, invocation: Any) -> None:
        count(self.version_manager, "AsyncEventsReceived")
        enqueue(self, invocation)

    _ = Poller.process_success_destination, Poller.process_failure_destination, Poller.process_dead_letter_queue
    Poller.process_success_destination = succeeded
    Poller.process_failure_destination = failed
    Poller.process_dead_letter_queue = dropped
    LambdaEventManager.enqueue_event = accept
