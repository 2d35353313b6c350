"""Receiving: when messages are due, how many may be in flight, what goes to the dead-letter queue, what is replayed.

**On AWS**: see :mod:`parity.sqs_messages` (in-flight cap), :mod:`parity.sqs_attempts` (ReceiveRequestAttemptId),
:mod:`parity.sqs_store` (redrive).

**LocalStack** shows what is due once a second, has no cap, ignores ReceiveRequestAttemptId, ends a long poll when it
has moved a message to a dead-letter queue, and gives a moved message of a standard queue a new retention period.

**Here** the ``receive`` of LocalStack's queues is called in naps that end when a message is due; a queue with the tag
``lab:in-flight-cap`` is received from under its lock, so that many workers at once do not exceed the cap.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any, NamedTuple

from parity import settings
from parity import sqs_errors as errors
from parity.sqs_attempts import Attempts, Received
from parity.sqs_messages import IN_FLIGHT_CAP
from parity.sqs_polls import Client

from hostmode.sqs_order import judge
from hostmode.sqs_queues import dead_letters

LONGEST_NAP = 0.2  # seconds: so long after its client, a long poll is gone
SHORTEST_NAP = 0.02
POLL = 0.1  # seconds between two looks into a queue whose cap is turned down


class Request(NamedTuple):
    """What LocalStack's queues do not hear of a ReceiveMessage."""

    attempt: str | None  # ReceiveRequestAttemptId
    client: Client


_request: ContextVar[Request] = ContextVar("ReceiveMessage")


@contextmanager
def receiving_for(request: Request) -> Iterator[None]:
    """What is received meanwhile, is received for ``request``."""
    token = _request.set(request)
    try:
        yield
    finally:
        _request.reset(token)


def attempts_of(queue: Any) -> Attempts:
    known: Attempts = vars(queue).setdefault("attempts", Attempts())
    return known


def refresh(queue: Any) -> None:
    """Show what is due."""
    queue.requeue_inflight_messages()
    queue.enqueue_delayed_messages()


def next_due(queue: Any) -> float | None:
    """When the next message becomes visible by itself."""
    with queue.mutex:
        hidden = [message.visibility_deadline for message in queue.inflight]
        delayed = [message.created + message.delay_seconds for message in queue.delayed]
    return min([*hidden, *delayed], default=None)


def cap_of(queue: Any) -> int:
    from localstack.services.sqs.models import sqs_stores

    tags = sqs_stores[queue.account_id][queue.region].tags.get_tags(queue.arn)
    return settings.positive_int(tags, settings.IN_FLIGHT_CAP, IN_FLIGHT_CAP)


def closed(queue: Any, *, fifo: bool) -> bool:
    """Whether a queue has been deleted: its line gives nothing and does not wait any more."""
    return bool((queue.message_group_queue if fifo else queue.visible).is_shutdown)


def redrive(queue: Any, messages: list[Any], *, fifo: bool) -> None:
    """Move messages that were received too often, or put them back when the dead-letter queue has just gone."""
    for message in messages:
        found = dead_letters(queue)
        if found is None:
            queue._put_message(message)
            continue
        for handle in message.receipt_handles:
            queue.receipts.pop(handle, None)
        message.message["Attributes"]["DeadLetterQueueSourceArn"] = queue.arn
        with found[0].mutex:
            moved = found[0].put(
                message=message.message,
                message_group_id=message.message_group_id,
                # So that deduplication cannot swallow it.
                message_deduplication_id=message.message_id if fifo else None,
                delay_seconds=0,
            )
            moved.moved_at = time.time()
            if not fifo:
                moved.created = message.created  # retention goes on
        if fifo:
            queue.update_message_group_visibility(queue.get_message_group(message.message_group_id))


def _received(messages: list[Any], handles: list[str]) -> list[Received]:
    pairs = zip(messages, handles, strict=True)
    return [Received(message.message_id, handle, message.visibility_deadline) for message, handle in pairs]


def again(queue: Any, name: str, visibility: int | None, result: Any) -> bool:
    """Fill ``result`` with the batch of an earlier receive of this name; False when there is none any more."""
    attempts = attempts_of(queue)
    with queue.mutex:
        batch = attempts.known(name, time.time())
        if batch is None:
            return False
        handles = [received.handle for received in batch]
        messages = [queue.receipts.get(handle) for handle in handles]
        if any(message is None or message not in queue.inflight or message.is_visible for message in messages):
            return False
        if _received(messages, handles) != batch:
            return False
        for message in messages:
            message.update_visibility_timeout(queue.visibility_timeout if visibility is None else visibility)
        attempts.replayed(name, _received(messages, handles))
        result.successful, result.receipt_handles = messages, handles
        return True


def install() -> None:
    from localstack.services.sqs import models

    def receiving(receive: Callable[..., Any], *, fifo: bool) -> Callable[..., Any]:
        def collect(queue: Any, number: int, nap: float, visibility: int | None, **more: Any) -> tuple[Any, float]:
            """What there is, or None at the cap; and for how long to sleep when it is nothing."""
            cap = cap_of(queue)
            held = cap != IN_FLIGHT_CAP
            with queue.mutex if held else nullcontext():
                room = cap - len(queue.inflight)
                if room <= 0:
                    return None, min(nap, POLL)
                if not fifo:
                    judge(queue)
                result = receive(queue, min(number, room), 0 if held else nap, visibility, **more)
            redrive(queue, result.dead_letter_messages, fifo=fifo)
            result.dead_letter_messages = []
            return result, min(nap, POLL if held else SHORTEST_NAP)

        def receive_until(
            self: Any,
            num_messages: int = 1,
            wait_time_seconds: float | None = None,
            visibility_timeout: int | None = None,
            *,
            poll_empty_queue: bool = False,
        ) -> Any:
            until = time.time() + (wait_time_seconds or 0)
            name, client = _request.get(Request(None, Client()))
            found = models.ReceiveMessageResult()
            if fifo and name and again(self, name, visibility_timeout, found):
                return found
            while True:
                refresh(self)
                now = time.time()
                left, due = until - now, next_due(self)
                # One that gathers messages for the whole of its time is not to be interrupted.
                longest = left if poll_empty_queue else min(left, LONGEST_NAP, left if due is None else due - now)
                nap = max(longest, SHORTEST_NAP) if left > 0 else 0
                result, pause = collect(self, num_messages, nap, visibility_timeout, poll_empty_queue=poll_empty_queue)
                if result is None and not wait_time_seconds and not fifo:
                    raise errors.over_limit(self.name, cap_of(self))
                if result is not None and result.successful:
                    if fifo and name:
                        batch = _received(result.successful, result.receipt_handles)
                        attempts_of(self).remember(name, batch, time.time())
                    return result
                if time.time() >= until or closed(self, fifo=fifo) or client.gone:
                    return found
                time.sleep(pause)

        return receive_until

    clear, describe = models.SqsQueue.clear, models.SqsQueue.get_queue_attributes
    add = models.SqsQueue.add_inflight_message
    _ = models.SqsQueue.requeue_inflight_messages, models.SqsQueue.enqueue_delayed_messages
    _ = models.StandardQueue._put_message, models.FifoQueue._put_message, models.FifoQueue.get_message_group

    def clear_all(self: Any) -> None:
        attempts_of(self).clear()
        clear(self)

    def describe_now(self: Any, *arguments: Any, **named: Any) -> Any:
        refresh(self)
        return describe(self, *arguments, **named)

    def add_locked(self: Any, message: Any) -> None:
        with self.mutex:  # others look at the messages of a queue while it is held
            add(self, message)

    models.SqsQueue.clear, models.SqsQueue.get_queue_attributes = clear_all, describe_now
    models.SqsQueue.add_inflight_message = add_locked
    models.StandardQueue.receive = receiving(models.StandardQueue.receive, fifo=False)
    models.FifoQueue.receive = receiving(models.FifoQueue.receive, fifo=True)
