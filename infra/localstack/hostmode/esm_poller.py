"""Event source mappings of queues at work: batches, windows, how many run at once, what comes back.

**On AWS**: see :mod:`parity.esm_poller` and what it is made of.

**LocalStack** has a thread for each mapping, which processes one batch at a time, takes what one receive gives for a
window, waits up to ten seconds after an empty receive, lets a throttled batch go at once, and reads less out of a
partial response.

**Here** it is still that thread, LocalStack's calls of SQS and Lambda and its filter: what to do next are the steps of
:class:`parity.esm_poller.Poller`. Between two steps the thread sleeps until something comes into its queue."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from botocore.exceptions import ClientError
from parity.esm_gather import Batch, Held
from parity.esm_poller import Job, Outcome, Poller
from parity.esm_pollers import settings_of
from parity.esm_records import record_of, size_of

from hostmode.sqs_queues import find, view
from hostmode.sqs_receive import next_due

LOOK = 1.0  # seconds between looks at whether the queue and the function are there
AT_ONCE = 10  # messages of one DeleteMessageBatch
THROTTLED = "TooManyRequestsException"

logger = logging.getLogger(__name__)


def as_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message of ReceiveMessage, as :func:`parity.esm_records.record_of` takes one."""
    attributes = message.get("Attributes") or {}
    return {
        "id": message["MessageId"],
        "receipt_handle": message["ReceiptHandle"],
        "body": message["Body"],
        "md5_body": message["MD5OfBody"],
        "message_attributes": message.get("MessageAttributes"),
        "sys": attributes,
        "receive_count": attributes["ApproximateReceiveCount"],
        "sent_at": int(attributes["SentTimestamp"]) / 1000,
        "first_receive_at": int(attributes["ApproximateFirstReceiveTimestamp"]) / 1000,
        "seq": attributes.get("SequenceNumber"),
        "group_id": attributes.get("MessageGroupId"),
        "dedup_id": attributes.get("MessageDeduplicationId"),
    }


class Hands:
    """One mapping's queue and function. ``sqs_poller`` is LocalStack's, ``function`` looks the function up."""

    def __init__(self, sqs_poller: Any, mapping: Mapping[str, Any], function: Callable[[], Any]) -> None:
        self._sqs_poller = sqs_poller
        self._mapping = mapping
        self._function = function
        self._arn = mapping["EventSourceArn"]
        self._listening: Any = None  # the line of LocalStack's queue that tells us
        self._due = 0.0
        self._changed = threading.Condition()
        self._seen: tuple[Any, bool] = (None, False)
        self.poller = Poller(
            self,
            settings_of(mapping, fifo=self._arn.endswith(".fifo")),
            invoke=self.invoke,
            wake=self.wake,
            clock=time.time,
            takes=self.takes,
        )

    # -- turns -----------------------------------------------------------------------------------------------------

    def wake(self, at: float = 0) -> None:
        with self._changed:
            self._due = min(self._due, at)
            self._changed.notify()

    def turn(self) -> None:
        """Take a step when one is due, and otherwise wait for a moment."""
        with self._changed:
            if self._due > time.time():
                self._changed.wait(min(self._due - time.time(), LOOK))
        seen = find(self._arn), self._function() is not None
        if seen == self._seen and self._due > time.time():
            return
        self._seen = seen
        with self._changed:
            self._due = math.inf
        again = self.poller.step()
        if again is not None:
            self.wake(again)

    # -- the queue -------------------------------------------------------------------------------------------------

    def receive(self, limit: int) -> list[Held]:
        queue = find(self._arn)
        if queue is None or self._function() is None or self._sqs_poller.stopping.is_set():
            return []
        try:
            answer = self._sqs_poller.source_client.receive_message(
                QueueUrl=self._sqs_poller.queue_url,
                MaxNumberOfMessages=limit,
                WaitTimeSeconds=0,
                MessageAttributeNames=["All"],
                MessageSystemAttributeNames=["All"],
            )
        except ClientError as error:  # the queue has just gone, or has reached its cap
            logger.info("nothing received from %s: %s", self._arn, error)
            return []
        now = time.time()
        return [self._held(message, now, now + queue.visibility_timeout) for message in answer.get("Messages", [])]

    def _held(self, message: Mapping[str, Any], now: float, until: float) -> Held:
        window = self._mapping.get("MaximumBatchingWindowInSeconds") or 0
        digest = message.get("MD5OfMessageAttributes")
        record = record_of(as_message(message), arn=self._arn, digest=digest, window=window)
        return Held(message["MessageId"], message["ReceiptHandle"], record, size_of(record), now, until)

    def delete(self, batch: Batch) -> None:
        for start in range(0, len(batch), AT_ONCE):
            part = batch[start : start + AT_ONCE]
            entries = [{"Id": str(number), "ReceiptHandle": held.handle} for number, held in enumerate(part)]
            try:
                self._sqs_poller.source_client.delete_message_batch(
                    QueueUrl=self._sqs_poller.queue_url, Entries=entries
                )
            except Exception as error:  # noqa: BLE001 - the queue is gone, or LocalStack is ending
                logger.info("%d messages of %s not deleted: %s", len(part), self._arn, error)

    def backlog(self) -> bool:
        queue = find(self._arn)
        return queue is not None and queue.approximate_number_of_messages > 0 and self._function() is not None

    def next_change(self) -> float | None:
        queue = find(self._arn)
        return next_due(queue) if queue is not None else None

    def on_change(self, waiter: Callable[[], None]) -> None:
        queue = find(self._arn)
        if queue is not None:
            self._listening = queue.message_group_queue if view(queue)["is_fifo"] else queue.visible
            vars(self._listening).setdefault("waiters", set()).add(waiter)

    def forget(self, waiter: Callable[[], None]) -> None:
        if self._listening is not None:
            self._listening.waiters.discard(waiter)

    def takes(self, record: Mapping[str, Any]) -> bool:
        if not self._sqs_poller.filter_patterns:
            return True
        return bool(self._sqs_poller.lab_filter.takes(dict(record)))

    # -- the function ----------------------------------------------------------------------------------------------

    def invoke(self, job: Job) -> None:
        """Invoke on a thread of its own: a function may take long."""
        thread = threading.Thread(target=self._run, args=(job,), name="event-source-mapping", daemon=True)
        try:
            thread.start()
        except RuntimeError:  # this machine has no more threads
            self.poller.finished(job, Outcome(throttled=True))

    def _run(self, job: Job) -> None:
        from localstack.services.lambda_.event_source_mapping.senders.sender import PartialFailureSenderError

        try:
            answer = self._sqs_poller.processor.sender.send_events([held.record for held in job.batch])
            outcome = Outcome(answer=answer)
        except PartialFailureSenderError as error:
            outcome = Outcome(answer=error.partial_failure_payload)
        except ClientError as error:
            throttled = error.response["Error"]["Code"] == THROTTLED
            outcome = Outcome(error=not throttled, throttled=throttled)
        except Exception as error:  # noqa: BLE001 - the function failed, or the call did: the batch comes back
            logger.debug("an invocation for %s failed: %s", self._arn, error)
            outcome = Outcome(error=True)
        self.poller.finished(job, outcome)


def install() -> None:
    from localstack.services.lambda_.event_source_mapping import esm_worker
    from localstack.services.lambda_.event_source_mapping.esm_worker_factory import EsmWorkerFactory
    from localstack.services.lambda_.event_source_mapping.pollers.sqs_poller import SqsPoller
    from localstack.services.lambda_.invocation.models import lambda_stores
    from localstack.services.sqs.queue import InterruptibleQueue
    from localstack.utils.event_matcher import matches_event
    from parity.esm_filter import Filter, patterns_of

    make, put = EsmWorkerFactory.get_esm_worker, InterruptibleQueue.put

    def put_and_tell(self: Any, item: Any, *arguments: Any, **more: Any) -> None:
        put(self, item, *arguments, **more)
        for waiter in list(vars(self).get("waiters", ())):
            self.waiters.discard(waiter)
            waiter()

    def function_of(mapping: Mapping[str, Any]) -> Callable[[], Any]:
        region, account, name = mapping["FunctionArn"].split(":")[3], *mapping["FunctionArn"].split(":")[4:7:2]
        return lambda: lambda_stores[account][region].functions.get(name)

    def make_worker(self: Any) -> Any:
        worker = make(self)
        if isinstance(worker.poller, SqsPoller):
            poller = worker.poller
            poller.stopping = worker._shutdown_event
            poller.lab_filter = Filter(patterns_of(worker.esm_config), matches_event)
            poller.hands = Hands(poller, worker.esm_config, function_of(worker.esm_config))
        return worker

    def poll(self: Any) -> None:
        self.hands.turn()

    def close(self: Any) -> None:
        self.hands.poller.close()

    def then_wake(change: Callable[[Any], None]) -> Callable[[Any], None]:
        def changed(self: Any) -> None:
            change(self)
            if isinstance(self.poller, SqsPoller):
                self.poller.hands.wake()

        return changed

    _ = SqsPoller.poll_events, SqsPoller.close, esm_worker.LAMBDA_EVENT_SOURCE_MAPPING_POLL_INTERVAL_SEC
    esm_worker.LAMBDA_EVENT_SOURCE_MAPPING_POLL_INTERVAL_SEC = 0  # a turn waits by itself
    InterruptibleQueue.put = put_and_tell
    EsmWorkerFactory.get_esm_worker = make_worker
    SqsPoller.poll_events, SqsPoller.close = poll, close
    for name in ("stop", "delete", "stop_for_shutdown"):
        setattr(esm_worker.EsmWorker, name, then_wake(getattr(esm_worker.EsmWorker, name)))
