"""The researcher as its Deployment runs it: ``python -m labkit.work.processes infra.keda.worker:make``.

Every time and count comes from the Deployment's environment, so that Kubernetes, KEDA and the worker go by the same
numbers: ``SLOTS`` steps at once, ``STEP_LIMIT`` seconds for one, a ``GRACE`` that ends before the pod's own. The
step is the course's (:func:`infra.workers.researcher.research`); put yours in its place.

It is one process and not ``labkit run``: that one starts processes of its own, and gives them 25 s to end.
"""

from __future__ import annotations

import os

import boto3

from infra.workers.researcher import research
from labkit.control.callbacks import Callbacks
from labkit.facts import facts
from labkit.state.idempotency import IdempotencyStore
from labkit.work.answering import answering
from labkit.work.queues import Queue
from labkit.work.worker import Worker, WorkerError

NEEDED = ("QUEUE_URL", "STEPS_TABLE", "SLOTS", "VISIBILITY", "STEP_LIMIT", "GRACE")


def make() -> Worker:
    """Raises :class:`~labkit.work.worker.WorkerError` for what is missing or no number: the pod then does not start."""
    said = {name: os.environ.get(name, "") for name in NEEDED}
    if missing := [name for name, value in said.items() if not value]:
        raise WorkerError(f"the researcher needs {', '.join(missing)} in its environment.")
    try:
        slots, visibility, limit, grace = (int(said[name]) for name in NEEDED[2:])
    except ValueError as error:
        raise WorkerError(f"{', '.join(NEEDED[2:])} are whole numbers: {error}.") from error
    queue, callbacks = Queue(boto3.client("sqs"), said["QUEUE_URL"]), Callbacks(boto3.client("stepfunctions"))
    return Worker(
        queue,
        answering(callbacks, queue, research),
        # Shorter than the visibility: what comes back after a crash must find the claim free.
        store=IdempotencyStore(boto3.client("dynamodb"), said["STEPS_TABLE"], lease=visibility * 2 / 3),
        consumer="researcher",
        threads=slots,
        visibility=visibility,
        limit=limit,
        wait=int(facts("sqs.long_poll.max")),
        grace=grace,
        keep_alive=callbacks.keep_alive,
        then=callbacks.then,
    )
