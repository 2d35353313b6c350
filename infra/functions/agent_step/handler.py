"""The step of an agent as a Lambda function: a batch of envelopes comes in, an answer for each goes out.

Serves a standard queue and a FIFO one alike. ``ON_FAILURE`` says how far a failure reaches on a FIFO queue: "group",
unless it is set, or "all". Each step that is done is one line in the log.
"""

from __future__ import annotations

import json
import os
from typing import Any

import step

from labkit.work import batch


def handler(event: dict[str, Any], context: Any) -> batch.Response:
    # Read at each call, not at import: an execution environment lives on, and the reach is to be seen where it acts.
    reach = os.environ.get("ON_FAILURE", "group")
    return batch.process(event, one, on_failure="all" if reach == "all" else "group")


def one(record: batch.Record) -> None:
    """One message: its envelope, the step, a line about it. Whatever is raised fails this message alone."""
    envelope = step.envelope(record.json())
    answer = step.run(envelope, record.receives)
    print(json.dumps({"step": "done", "trace_id": record.trace_id, "receives": record.receives, "answer": answer}))
