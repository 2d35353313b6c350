"""The caller's step, with a mistake in it on request: what notebook 14 breaks and mends.

``STEPS_TABLE`` names the table of the idempotency store. An item there, ``mistake`` and the function's name, says what
is wrong at the moment; without it nothing is. An item and no environment variable: a change of that would start new
execution environments, and the reader would wait for them.

=============== =================================================================================================
``raises``      an exception leaves the handler: the whole batch comes back
``malformed``   the answer names messages under a key that Lambda does not know: the whole batch comes back
``nothing``     what the step raises is logged, and the answer says nothing of it: the whole batch is deleted
=============== =================================================================================================
"""

from __future__ import annotations

import os
from typing import Any

import boto3

from labkit.state.idempotency import IdempotencyStore, Work
from labkit.work import batch

# Made once for each execution environment, and used by all of its invocations.
store = IdempotencyStore(boto3.client("dynamodb"), os.environ["STEPS_TABLE"])


def handler(event: dict[str, Any], context: Any) -> Any:
    steps, mistake = store.for_invocation(context), mistaken()

    def one(record: batch.Record) -> None:
        envelope = record.json()["detail"]
        print(f"run {envelope['trace_id']}")
        if mistake in ("raises", "nothing"):
            raise TimeoutError("the tool does not answer")
        steps.run(Work.of(envelope, "caller"), lambda claim: print(f"done {envelope['trace_id']}"))

    answer = batch.process(event, one)
    if mistake == "raises":
        raise TimeoutError("the tool does not answer")
    if mistake == "malformed":
        return {"batchItemFailures": [{"messageId": record["messageId"]} for record in event["Records"]]}
    return None if mistake == "nothing" else answer


def mistaken() -> str:
    key = {"pk": {"S": "mistake"}, "sk": {"S": "caller"}}
    found = store.client.get_item(TableName=store.table, Key=key, ConsistentRead=True).get("Item", {})
    return str(found.get("what", {}).get("S", ""))
