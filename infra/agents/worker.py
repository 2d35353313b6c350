"""Agents as workers: ``labkit run infra.agents.worker:strands``, ``labkit run infra.agents.worker:langgraph``.

Everything they need to know comes from the environment: ``QUEUE_URL``, ``STEPS_TABLE``, ``AGENT_MODEL``, and, as for
any AWS SDK, the Region, the credentials and, off AWS, the endpoints. ``STEP_LOG`` is a file for one line a tool call,
``TOOL_SECONDS`` says how long one takes, ``VISIBILITY`` for how many seconds a message is hidden; a claim holds for
half as long.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import boto3

from infra.agents.agent import Result, model_id
from labkit.models.retry import Exponential, Jitter
from labkit.state.idempotency import IdempotencyStore
from labkit.work.queues import Queue
from labkit.work.worker import Task, Worker, WorkerError


def strands() -> Worker:
    from infra.agents import strands_step

    strands_step.model()  # what it lacks is said before a message waits
    return make(strands_step.step)


def langgraph() -> Worker:
    from infra.agents import langgraph_step

    langgraph_step.bedrock()
    return make(langgraph_step.step)


def make(step: Callable[[Task], Result]) -> Worker:
    """The same worker for both. Its consumer is the same, too: what one has recorded, the other does not do again."""
    url, table = (os.environ.get(name, "") for name in ("QUEUE_URL", "STEPS_TABLE"))
    if not url or not table:
        raise WorkerError("an agent needs QUEUE_URL, of its queue, and STEPS_TABLE, a name, in its environment.")
    model_id()
    visibility = int(os.environ.get("VISIBILITY", "2"))
    return Worker(
        Queue(boto3.client("sqs"), url),
        step,
        store=IdempotencyStore(boto3.client("dynamodb"), table, lease=visibility / 2),
        consumer="agent",
        threads=4,
        visibility=visibility,
        wait=1,
        grace=5,
        retry=Jitter(Exponential(0.5, cap=8)),
    )
