"""A partial batch with Powertools for AWS Lambda, to set beside labkit's own.

``ON_FAILURE`` is read as in agent_step: "group", unless it is set, or "all". Like labkit's, and unlike Powertools'
default, a batch in which everything failed is reported, not raised.
"""

from __future__ import annotations

import json
import os
from typing import Any

from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    SqsFifoPartialProcessor,
    process_partial_response,
)
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord


def handler(event: dict[str, Any], context: Any) -> Any:
    processor: BatchProcessor
    if event["Records"][0]["eventSourceARN"].endswith(".fifo"):
        processor = SqsFifoPartialProcessor(skip_group_on_error=os.environ.get("ON_FAILURE", "group") == "group")
    else:
        processor = BatchProcessor(EventType.SQS)
    processor.raise_on_entire_batch_failure = False
    return process_partial_response(event, one, processor, context)


def one(record: SQSRecord) -> None:
    envelope = json.loads(record.body)
    envelope = envelope.get("detail", envelope)
    if envelope["payload"].get("fail"):
        raise ValueError(f"{envelope['trace_id']} was told to fail")
    receives = int(record.attributes.approximate_receive_count)
    print(json.dumps({"step": "done", "trace_id": envelope["trace_id"], "receives": receives}))
