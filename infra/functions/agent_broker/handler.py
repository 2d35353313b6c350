"""The agent broker as a Lambda function: behind a queue, or called by a rule of EventBridge.

======================================  ================================================================================
``CAPABILITIES``                        ``application/environment/profile`` of AppConfig
``MODEL_ID``                            the model that decides
``DECISIONS_TABLE``                     the table of the idempotency store
``AWS_ENDPOINT_URL_BEDROCK_RUNTIME``    where the model is, when it is not Bedrock: read by the SDK
``MODEL_SECONDS``                       how long one call of the model may take; 8 unless set. The function's timeout
                                        must be longer: a call that cannot end in time is not begun
``MODEL_TRIES``                         calls for one decision; 3 unless set
``POLL_SECONDS``                        between two looks at the capabilities; 60 unless set
======================================  ================================================================================

A queue is the better way in: what fails comes back from there, and goes to the dead-letter queue with its reason. An
event from a rule that fails is raised: Lambda tries twice more and gives it to the function's own dead-letter queue.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from typing import Any

import boto3
import letters

from labkit.state.idempotency import IdempotencyStore
from labkit.work import batch, decisions
from labkit.work.broker import Broker, Dispatched
from labkit.work.capabilities import Capabilities
from labkit.work.decisions import Decider

# Made once for each execution environment, and used by all of its invocations.
store = IdempotencyStore(boto3.client("dynamodb"), os.environ["DECISIONS_TABLE"])
sqs = boto3.client("sqs")
broker = Broker(
    Decider(
        decisions.client(timeout=float(os.environ.get("MODEL_SECONDS", "8"))),
        os.environ["MODEL_ID"],
        tries=int(os.environ.get("MODEL_TRIES", "3")),
    ),
    Capabilities(
        boto3.client("appconfigdata"),
        *os.environ["CAPABILITIES"].split("/"),
        poll=int(os.environ.get("POLL_SECONDS", "60")),
    ),
    store,
    sqs,
)
RESERVE = 2.0  # seconds for recording, sending and answering, after the last call of the model


def handler(event: dict[str, Any], context: Any) -> Any:
    # The lease is the time that is left: nobody can be at work after it.
    leased = store.for_invocation(context)

    def left() -> float:
        return float(context.get_remaining_time_in_millis() / 1000) - RESERVE

    def dispatch(found: Any, receives: int = 1) -> None:
        say(lambda: broker.dispatch(found, left=left, store=leased), receives)

    if "Records" not in event:
        dispatch(event)
        return None
    return batch.process(
        event, lambda record: letters.or_bury(sqs, record, lambda: dispatch(record.body, record.receives))
    )


def say(work: Callable[[], Dispatched], receives: int) -> None:
    """One line in the log for each event that was dispatched; failures are logged where they are answered for."""
    began = time.monotonic()
    done = work()
    line = {"broker": "replayed" if done.replayed else "dispatched", "trace_id": done.trace_id, "agents": done.agents}
    print(json.dumps({**line, "receives": receives, "ms": round((time.monotonic() - began) * 1000, 1)}))
