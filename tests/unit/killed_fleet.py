"""A worker as ``module:factory``, for the test that kills it: where it works is said by environment variables."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path
from typing import Any

from labkit import targets
from labkit.state.idempotency import IdempotencyStore
from labkit.work.queues import Queue
from labkit.work.worker import Task, Worker

# Seconds, unless the environment says otherwise. What a kill leaves comes back soon; and most of its time a process is
# in a step: there the kills are to hit.
VISIBILITY, LEASE, STEP = 3, 2.0, 0.02


def chosen(name: str, default: float) -> float:
    return float(os.environ.get(f"FLEET_{name}", default))


def note(kind: str, *words: str) -> None:
    """One line, appended by one write: lines of several processes do not mix, and a kill cuts none in half."""
    handle = os.open(Path(os.environ["FLEET_FOLDER"]) / kind, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, (" ".join(words) + "\n").encode())
    os.close(handle)


def step(task: Task) -> str:
    note("ran", task.trace_id)
    time.sleep(chosen("STEP", STEP))
    return uuid.uuid4().hex  # another one each time: two runs cannot pass for one


def then(task: Task, result: Any) -> None:
    note("recorded", task.trace_id, result)


def make() -> Worker:
    target, account = targets.connect(), os.environ["FLEET_ACCOUNT"]
    table, lease = os.environ["FLEET_TABLE"], chosen("LEASE", LEASE)
    return Worker(
        Queue(target.client("sqs", account), os.environ["FLEET_QUEUE"]),
        step,
        store=IdempotencyStore(target.client("dynamodb", account), table, lease=lease),
        consumer="researcher",
        then=then,
        threads=4,
        visibility=int(chosen("VISIBILITY", VISIBILITY)),
        wait=1,
        grace=60,
    )
