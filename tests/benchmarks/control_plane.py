"""The control plane: executions that wait for their tokens, and all of them answered."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil

from labkit import Lab, embedded
from labkit.control.callbacks import Callbacks
from labkit.control.envelope import Envelope
from labkit.control.machines import Execution, Machine, wait_all
from labkit.work.functions import Function
from labkit.work.queues import Queue
from tests.benchmarks.measure import Row, seconds

PARKED, MOST = 200, 1_000
THREADS = 8
ITEMS, BATCH = 1_000, 10
# An item is a reference, and so is its answer: no payload passes through the state machine.
RESEARCH = """
import boto3, json

s3 = boto3.client("s3")

def handler(event, context):
    answers = []
    for ref in event["Items"]:
        asked = json.loads(s3.get_object(Bucket=ref["bucket"], Key=ref["key"])["Body"].read())
        key = ref["key"].replace("questions", "answers")
        s3.put_object(Bucket=ref["bucket"], Key=key, Body=json.dumps({"n": asked["n"], "answer": asked["text"]}))
        answers.append({"bucket": ref["bucket"], "key": key})
    return answers
"""


def rows() -> list[Row]:
    with Lab.open("benchmark") as lab:
        fleet = _Fleet(lab)
        took = seconds(lambda: fleet.round(PARKED))
        found: list[Row] = [(f"{PARKED} executions parked on tokens and resumed", f"{took:.1f} s", "< 10 s")]
        if lab.target.name == "embedded":
            before = fleet.megabytes()
            parked = fleet.park(MOST)
            within = fleet.megabytes()
            fleet.answer()
            wait_all(parked, 120)
            memory = f"{within:.0f} MB, {before:.0f} MB before"
            found.append((f"stand-in's memory with {MOST:,} executions parked", memory, "stated"))
        took = seconds(_fan_out(lab))
        found.append((f"distributed Map of {ITEMS:,} items with claim check", f"{took:.1f} s", "< 25 s"))
        return found


def _fan_out(lab: Lab) -> Callable[[], object]:
    """A Map run over references to questions of 8 KB; what is measured is the execution."""
    s3, bucket = lab.client("s3"), lab.bucket_name("research")
    s3.create_bucket(Bucket=bucket)
    references = [{"bucket": bucket, "key": f"questions/{n}.json"} for n in range(ITEMS)]

    def put(n: int) -> None:
        s3.put_object(Bucket=bucket, Key=references[n]["key"], Body=json.dumps({"n": n, "text": "why? " * 1_600}))

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(put, range(ITEMS)))
    s3.put_object(Bucket=bucket, Key="items.json", Body=json.dumps(references))
    function = Function.deploy(lab, "research", source=RESEARCH, timeout=60)
    work = {"Type": "Task", "Resource": "arn:aws:states:::lambda:invoke", "End": True, "OutputPath": "$.Payload"}
    work["Parameters"] = {"FunctionName": function.arn, "Payload.$": "$"}
    research = {
        "Type": "Map",
        "ItemReader": {
            "Resource": "arn:aws:states:::s3:getObject",
            "ReaderConfig": {"InputType": "JSON"},
            "Parameters": {"Bucket": bucket, "Key": "items.json"},
        },
        "ItemBatcher": {"MaxItemsPerBatch": BATCH},
        "MaxConcurrency": THREADS,
        "ItemProcessor": {
            "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"},
            "StartAt": "Work",
            "States": {"Work": work},
        },
        "ResultWriter": {
            "Resource": "arn:aws:states:::s3:putObject",
            "Parameters": {"Bucket": bucket, "Prefix": "results"},
        },
        "End": True,
    }
    machine = Machine.create(lab, "research", {"StartAt": "Research", "States": {"Research": research}})

    def run() -> None:
        outcome = machine.start().wait(within=120, every=0.25)
        if not outcome.succeeded:
            raise RuntimeError(f"the Map run ended as {outcome}.")

    return run


class _Fleet:
    """The agent's state machine, its queue, and whoever answers."""

    def __init__(self, lab: Lab) -> None:
        self.queue = Queue.create(lab, "steps", visibility=300)
        values = {
            "QueueUrl": self.queue.url,
            "HeartbeatWindow": 300,
            "StepTimeout": 600,
            "Retries": 0,
            "RetryAfter": 1,
        }
        self.machine = Machine.create(lab, "agent-step", "agent-step", values=values)
        self.callbacks = Callbacks(lab)

    def round(self, count: int) -> None:
        parked = self.park(count)
        self.answer()
        wait_all(parked, 60, every=0.25)

    def park(self, count: int) -> list[Execution]:
        """Start executions, and wait until the token of each is in the queue."""
        given = {"conversation_id": "8842", "agent_class": "researcher", "payload": {"q": "why"}}
        with ThreadPoolExecutor(THREADS) as pool:
            started = list(pool.map(lambda step: self.machine.start({**given, "step": step}), range(count)))
        end = time.monotonic() + 60
        while self.queue.depth().visible < count and time.monotonic() < end:
            time.sleep(0.05)
        return started

    def answer(self) -> None:
        """Succeed with every token in the queue."""

        def some(_: int) -> None:
            while messages := self.queue.receive(10):
                for message in messages:
                    self.callbacks.succeed(Envelope.parse(message.body).task_token, {"answer": 42})
                self.queue.delete(*messages)

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(some, range(THREADS)))

    @staticmethod
    def megabytes() -> float:
        """Resident memory of the stand-in's process, in MB."""
        return float(psutil.Process(embedded.SERVER.ensure().pid).memory_info().rss) / 2**20
