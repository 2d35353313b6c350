"""The step of an agent as a Lambda function, once: a duplicate is answered from the record.

``STEPS_TABLE`` names the table. The lease is the time that the invocation has left: nobody can be at work after it.
"""

from __future__ import annotations

import os
from typing import Any

import boto3

from labkit.state.idempotency import IdempotencyStore, Work
from labkit.work import batch

# Made once for each execution environment, and used by all of its invocations.
store = IdempotencyStore(boto3.client("dynamodb"), os.environ["STEPS_TABLE"])


def handler(event: dict[str, Any], context: Any) -> batch.Response:
    steps = store.for_invocation(context)

    def one(record: batch.Record) -> None:
        envelope = record.json()
        # What this raises (Busy among it) fails the record alone: it comes back.
        steps.run(Work.of(envelope, "researcher"), lambda claim: research(envelope))

    return batch.process(event, one)


def research(envelope: dict[str, Any]) -> str:
    print(f"running {envelope['trace_id']}")
    return f"about {envelope['payload']['topic']}"
