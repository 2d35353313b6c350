"""StartMessageMoveTask, ListMessageMoveTasks, CancelMessageMoveTask: out of a dead-letter queue again.

**On AWS** (API reference; Developer Guide, "Dead-letter queue redrive"; responses recorded on AWS) a task moves the
messages of a dead-letter queue to a destination, or each message back to the queue that it came from. It runs in the
background, at up to ``MaxNumberOfMessagesPerSecond`` (1 to 500), oldest message first, visible messages only; one task
a source queue at a time. A moved message is a new one: new MessageId, new SentTimestamp. The source must be the
dead-letter queue of some SQS queue, the destination of the same type. If the destination is deleted meanwhile, the
task has FAILED with ``AWS.SimpleQueueService.NonExistentQueue``; so it has when the original queue of a message is
gone (seen on AWS, LocalStack pull request 10425). A cancelled task moves on for a moment.

Not verified on AWS: that the receive count starts at 0 again and DeadLetterQueueSourceArn is gone (the Developer Guide
calls the messages new); the failure reason for a message that never had a source (``CouldNotDetermineMessageSource``
here); whether other messages are moved before such a task fails (here they are: the unknown ones stay); the texts for a
rate out of range, for a destination of the other type and for cancelling a task that has ended.

**MiniStack** does not know the three actions.

**Here** each task is a thread with the account and region of its request, which ends with the process. Each message is
taken out and put in as one step under the store's lock: cancelling or failing in the middle loses and doubles nothing.
A task moves what was in the queue when it started, so that messages which fail again do not go round and round.
"""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from parity import sqs_errors as errors
from parity.sqs_errors import SqsError
from parity.sqs_mailbox import Queue, mailbox
from parity.sqs_move_checks import (
    KEPT,
    check_running,
    check_source_arn,
    check_types,
    checked_limit,
    checked_rate,
    read_handle,
)
from parity.sqs_order import Message
from parity.sqs_policies import sources_of
from parity.sqs_store import LOCK, MessageStore

CHUNK = 100  # messages between two looks at the clock, when no rate is given
NO_QUEUE = "AWS.SimpleQueueService.NonExistentQueue"
NO_SOURCE = "CouldNotDetermineMessageSource"

Find = Callable[[str], "Queue | None"]
Deliver = Callable[[Message, Any], bool]

logger = logging.getLogger("parity.sqs")


@dataclass
class MoveTask:
    source_arn: str
    destination_arn: str | None
    rate: int | None
    to_move: int
    started: float
    id: str = field(default_factory=lambda: str(uuid.uuid4()))
    moved: int = 0
    status: str = "RUNNING"
    failure: str | None = None
    stop: threading.Event = field(default_factory=threading.Event)

    @property
    def active(self) -> bool:
        return self.status in ("RUNNING", "CANCELLING")

    @property
    def handle(self) -> str:
        data = json.dumps({"taskId": self.id, "sourceArn": self.source_arn}, separators=(",", ":"))
        return base64.b64encode(data.encode()).decode()

    def describe(self) -> dict[str, Any]:
        entry = {
            "TaskHandle": self.handle if self.status == "RUNNING" else None,
            "Status": self.status,
            "SourceArn": self.source_arn,
            "DestinationArn": self.destination_arn,
            "MaxNumberOfMessagesPerSecond": self.rate,
            "ApproximateNumberOfMessagesMoved": self.moved,
            "ApproximateNumberOfMessagesToMove": self.to_move,
            "FailureReason": self.failure,
            "StartedTimestamp": int(self.started * 1000),
        }
        return {name: value for name, value in entry.items() if value is not None}


def renewed(message: Message, destination: Queue, now: float) -> dict[str, Any]:
    """The moved message: same content, otherwise as if it had just been sent to ``destination``."""
    system = {name: value for name, value in message["sys"].items() if name != "DeadLetterQueueSourceArn"}
    kept = {name: message.get(name) for name in ("body", "md5_body", "md5_attrs", "message_attributes")}
    kept.update({name: message.get(name) for name in ("group_id", "dedup_id")})
    if destination["is_fifo"]:
        destination["fifo_seq"] = destination.get("fifo_seq", 0) + 1
        kept["seq"] = str(destination["fifo_seq"]).zfill(20)
    return {
        **kept,
        "id": str(uuid.uuid4()),
        "sys": {**system, "SentTimestamp": str(int(now * 1000))},
        "sent_at": now,
        "visible_at": now,
        "receive_count": 0,
        "first_receive_at": None,
        "receipt_handle": None,
    }


def run(
    task: MoveTask,
    source: MessageStore,
    find: Find,
    now: Callable[[], float] = time.time,
    deliver: Deliver | None = None,
) -> None:
    """Move the messages of ``task``. ``find`` gives the queue for an ARN. Returns when the task is over.

    ``deliver`` takes a visible message out of ``source`` and puts it into a queue, and says whether it could.
    """

    def into_mailbox(message: Message, queue: Queue) -> bool:
        return source.move(message, mailbox(queue), renewed(message, queue, now()))

    try:
        failure = _move(task, source, find, deliver or into_mailbox)
    except Exception:  # a task that died without an end would be its queue's one active task for ever
        logger.exception("the message move task %s broke", task.id)
        failure = "InternalError"
    with LOCK:  # so that a cancellation comes before the end or is refused
        if task.stop.is_set() and failure is None:
            task.status = "CANCELLED"
        else:
            task.failure = failure
            task.status = "FAILED" if failure else "COMPLETED"


def _move(task: MoveTask, source: MessageStore, find: Find, deliver: Deliver) -> str | None:
    """Move until nothing is left, or the task is cancelled. Returns why the task has failed, if it has."""
    unknown: set[str] = set()
    pause = 1 / task.rate if task.rate else 0.0
    while batch := [message for message in source.movable(task.started) if message["id"] not in unknown]:
        for index, message in enumerate(batch):
            arn = task.destination_arn or message["sys"].get("DeadLetterQueueSourceArn")
            if task.stop.wait((pause or (0.001 if index % CHUNK == 0 else 0)) if task.moved else 0):
                return None
            with LOCK:
                if source.closed:
                    return NO_QUEUE
                queue = find(arn) if arn else None
                if queue is not None:
                    task.moved += deliver(message, queue)
            if queue is None:
                if task.destination_arn:
                    return NO_QUEUE
                unknown.add(message["id"])
    if source.closed:
        return NO_QUEUE
    if not unknown:
        return None
    known = [m for m in source if m["id"] in unknown and m["sys"].get("DeadLetterQueueSourceArn")]
    return NO_QUEUE if known else NO_SOURCE


class Tasks:
    """All tasks, the newest of a source queue first."""

    def __init__(self, find: Find, queues: Callable[[], list[Queue]], spawn: Callable[..., Any]) -> None:
        self._find = find
        self._queues = queues
        self._spawn = spawn
        self._of: dict[str, list[MoveTask]] = {}

    def _source(self, arn: str) -> Queue:
        check_source_arn(arn)
        queue = self._find(arn)
        if queue is None:
            raise errors.no_such_resource("SourceArn")
        return queue

    def start(self, data: dict[str, Any], url: str) -> dict[str, Any]:
        arn, target_arn, rate = self._required(data, "SourceArn"), data.get("DestinationArn"), checked_rate(data)
        with LOCK:
            source = self._source(arn)
            if not sources_of(self._queues(), arn):
                raise SqsError("InvalidParameterValue", "Source queue must be configured as a Dead Letter Queue.")
            if target_arn:
                target = self._find(target_arn)
                if target is None:
                    raise errors.no_such_resource("DestinationArn")
                check_types(target_arn, target, source)
            tasks = self._of.setdefault(arn, [])
            if tasks and tasks[0].active:
                raise SqsError(
                    "InvalidParameterValue",
                    "There is already a task running. Only one active task is allowed for a source queue arn at a "
                    "given time.",
                )
            box = mailbox(source)
            started = time.time()
            task = MoveTask(arn, target_arn, rate, len(box.movable(started)), started)
            self._spawn(run, task, box, self._find, thread_name=f"sqs-move-{source['name']}")
            tasks.insert(0, task)
            del tasks[KEPT:]
        return {"TaskHandle": task.handle}

    def show(self, data: dict[str, Any], url: str) -> dict[str, Any]:
        arn = self._required(data, "SourceArn")
        limit = checked_limit(data)
        self._source(arn)
        return {"Results": [task.describe() for task in self._of.get(arn, [])[:limit]]}

    def cancel(self, data: dict[str, Any], url: str) -> dict[str, Any]:
        task_id, arn = read_handle(self._required(data, "TaskHandle"))
        self._source(arn)
        with LOCK:
            task = next((task for task in self._of.get(arn, []) if task.id == task_id), None)
            if task is None:
                raise SqsError("ResourceNotFoundException", "Task does not exist.", 404)
            check_running(task.status)
            task.status = "CANCELLING"
            task.stop.set()
        return {"ApproximateNumberOfMessagesMoved": task.moved}

    @staticmethod
    def _required(data: dict[str, Any], name: str) -> str:
        if not data.get(name):
            raise errors.missing(name)
        return str(data[name])


def install() -> None:
    from ministack.core.concurrency import spawn_background
    from ministack.services import sqs

    tasks = Tasks(sqs._queue_by_arn, lambda: sqs._queues.values(), spawn_background)
    sqs._HANDLERS["StartMessageMoveTask"] = tasks.start
    sqs._HANDLERS["ListMessageMoveTasks"] = tasks.show
    sqs._HANDLERS["CancelMessageMoveTask"] = tasks.cancel
