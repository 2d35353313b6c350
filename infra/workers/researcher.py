"""A worker as a container starts it: ``labkit run infra.workers.researcher:make``.

Everything it needs to know comes from its environment: ``QUEUE_URL``, ``STEPS_TABLE``, and, as for any AWS SDK, the
Region, the credentials and, off AWS, the endpoint. ``STEP_LOG`` is a file for one line a step, to see who ran what;
``STEP_SECONDS`` says how long a step takes, ``VISIBILITY`` for how many seconds a message is hidden; a claim holds for
half as long. Where an envelope carries a task token, the state machine that waits for it is told: that the step is at
work, and its result.
"""

from __future__ import annotations

import json
import os
import time

import boto3

from labkit.control.callbacks import Callbacks
from labkit.state.idempotency import IdempotencyStore
from labkit.work.answering import answering
from labkit.work.queues import Queue
from labkit.work.worker import Task, Worker, WorkerError


def make() -> Worker:
    """Short times, so that a class sees what happens after a kill; a fleet's are some twenty times longer."""
    url, table = (os.environ.get(name, "") for name in ("QUEUE_URL", "STEPS_TABLE"))
    if not url or not table:
        raise WorkerError("the researcher needs QUEUE_URL, of its queue, and STEPS_TABLE, a name, in its environment.")
    visibility = int(os.environ.get("VISIBILITY", "2"))
    queue, callbacks = Queue(boto3.client("sqs"), url), Callbacks(boto3.client("stepfunctions"))
    return Worker(
        queue,
        answering(callbacks, queue, research),
        store=IdempotencyStore(boto3.client("dynamodb"), table, lease=visibility / 2),
        consumer="researcher",
        threads=4,
        visibility=visibility,
        wait=1,
        grace=5,
        keep_alive=callbacks.keep_alive,
        then=callbacks.then,
    )


def research(task: Task) -> str:
    """The step: what an agent would do for minutes, in a tenth of a second or as long as we are told."""
    started = time.time()
    time.sleep(float(os.environ.get("STEP_SECONDS", "0.1")))
    note({"trace_id": task.trace_id, "attempt": task.attempt, "from": started, "to": time.time(), "pid": os.getpid()})
    return f"researched by attempt {task.attempt}"


def note(line: dict[str, object]) -> None:
    if path := os.environ.get("STEP_LOG"):
        # One write of a short line: what several processes append does not mix.
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, (json.dumps(line) + "\n").encode())
        os.close(handle)
