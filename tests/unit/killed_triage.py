"""A look that is held up for ever: python -m tests.unit.killed_triage ENDPOINT REGION URL HOLD."""

from __future__ import annotations

import sys
import time

import boto3

from labkit.ops.triage import held
from labkit.work.queues import Queue

if __name__ == "__main__":
    endpoint, region, url, hold = sys.argv[1:]
    queue = Queue(boto3.client("sqs", endpoint_url=endpoint, region_name=region), url)
    with held(queue, hold=int(hold)) as messages:
        print(len(messages), flush=True)
        time.sleep(600)
