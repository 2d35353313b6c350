"""Message move tasks: out of a dead-letter queue again.

**On AWS**: see :mod:`parity.sqs_move_tasks`.

**LocalStack** keeps MessageId and receive count of a moved message, lets deduplication swallow messages that go back
to a FIFO queue, calls the failure by a name of its own, and takes any rate and any type of destination.

**Here** the tasks stay LocalStack's, and the rules move the messages."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

from parity.sqs_move_checks import check_running, check_source_arn, check_types, checked_limit, checked_rate
from parity.sqs_move_tasks import run

from hostmode.sqs_handles import take
from hostmode.sqs_queues import find, find_view, view
from hostmode.sqs_receive import refresh

# Of a moved message; what it has to do with the old one is gone.
KEPT = ("SenderId", "AWSTraceHeader")


class Task:
    """A task of LocalStack as :func:`parity.sqs_move_tasks.run` works on one."""

    def __init__(self, task: Any) -> None:
        self._task = task
        self.id, self.stop = task.task_id, task.cancel_event
        self.destination_arn, self.rate = task.destination_arn, task.max_number_of_messages_per_second
        self.started = time.time()

    @property
    def moved(self) -> int:
        return int(self._task.approximate_number_of_messages_moved or 0)

    @moved.setter
    def moved(self, number: int) -> None:
        self._task.approximate_number_of_messages_moved = number

    @property
    def status(self) -> str:
        return str(self._task.status)

    @status.setter
    def status(self, status: str) -> None:
        self._task.status = status

    @property
    def failure(self) -> str | None:
        return str(self._task.failure_reason)

    @failure.setter
    def failure(self, reason: str | None) -> None:
        self._task.failure_reason = reason


class Source:
    """The messages of a dead-letter queue of LocalStack, for :func:`parity.sqs_move_tasks.run`."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self._fifo = view(queue)["is_fifo"]

    @property
    def closed(self) -> bool:
        return find(self._queue.arn) is not self._queue

    def _visible(self) -> list[Any]:
        queue = self._queue
        with queue.mutex:
            refresh(queue)
            if not self._fifo:
                return list(queue.visible.queue)
            # Nothing may overtake a message of its group that is in flight.
            open_groups = [group for group in queue.message_groups.values() if group not in queue.inflight_groups]
            return [message for group in open_groups for message in group.messages]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.movable(float("inf")))

    def movable(self, since: float) -> list[dict[str, Any]]:
        """Visible messages that came before ``since`` (epoch seconds), oldest first."""
        here = [m for m in self._visible() if getattr(m, "moved_at", m.created) <= since]
        here.sort(key=lambda m: (m.created, m.sequence_number or "", m.priority))
        return [{"id": m.message_id, "sys": m.message["Attributes"], "message": m} for m in here]

    def deliver(self, record: dict[str, Any], target: dict[str, Any]) -> bool:
        """Take a message out and put it into another queue as a new one."""
        message = record["message"]
        if not self._take(message):
            return False
        attributes = {name: value for name, value in message.message["Attributes"].items() if name in KEPT}
        attributes["SentTimestamp"] = str(int(time.time() * 1000))
        target["queue"].put(
            message={**message.message, "MessageId": str(uuid.uuid4()), "Attributes": attributes},
            message_group_id=message.message_group_id,
            message_deduplication_id=message.message_deduplication_id,
            delay_seconds=0,
        )
        return True

    def _take(self, message: Any) -> bool:
        if not self._fifo:
            return take(self._queue, message)
        with self._queue.mutex:
            group = self._queue.get_message_group(message.message_group_id)
            if group in self._queue.inflight_groups or message not in group.messages:
                return False
            group.messages = sorted(other for other in group.messages if other is not message)
            return True


def install() -> None:
    from localstack.services.sqs.provider import MessageMoveTaskManager, SqsProvider, decode_move_task_handle

    start, show = SqsProvider.start_message_move_task, SqsProvider.list_message_move_tasks
    cancel = SqsProvider.cancel_message_move_task
    _ = MessageMoveTaskManager._run

    def start_task(self: Any, context: Any, source_arn: str, destination_arn: Any = None, **more: Any) -> Any:
        check_source_arn(source_arn)
        checked_rate({"MaxNumberOfMessagesPerSecond": more.get("max_number_of_messages_per_second")})
        source, target = find_view(source_arn), find_view(destination_arn or "")
        if source and target:
            check_types(destination_arn, target, source)
        return start(self, context, source_arn=source_arn, destination_arn=destination_arn, **more)

    def show_tasks(self: Any, context: Any, max_results: Any = None, **more: Any) -> Any:
        limit = checked_limit({} if max_results is None else {"MaxResults": max_results})
        return show(self, context, max_results=limit, **more)

    def cancel_task(self: Any, context: Any, task_handle: str, **more: Any) -> Any:
        try:
            known = self.get_store(context.account_id, context.region).move_tasks
            task = known.get(decode_move_task_handle(task_handle)[0])
        except ValueError:
            task = None  # LocalStack says so
        if task is not None:
            check_running(task.status)
        return cancel(self, context, task_handle=task_handle, **more)

    def run_task(self: Any, move_task: Any) -> None:
        source = Source(self._get_queue_by_arn(move_task.source_arn))
        run(Task(move_task), source, find_view, deliver=source.deliver)  # type: ignore[arg-type]

    SqsProvider.start_message_move_task, SqsProvider.list_message_move_tasks = start_task, show_tasks
    SqsProvider.cancel_message_move_task = cancel_task
    MessageMoveTaskManager._run = run_task
