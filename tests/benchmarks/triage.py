"""Triage of a dead-letter queue: labkit's survey against a script that calls the AWS CLI for ten messages at a time.

The CLI is no dependency of the course. What stands in for one call of it is one fresh Python process that imports
botocore, makes a client, and receives ten messages with a wait of 5 s, grouping them as it goes: less than the CLI
itself does (no argument parser, no output formats, no second and third process to sort and count). Where a CLI is
(``AWS_CLI=path``), it is measured beside it.

Both sides in turns, in one run. Memory is what tracemalloc sees at the peak of a survey; the receipt handles are in a
file.
"""

from __future__ import annotations

import itertools
import os
import shutil
import statistics
import subprocess
import sys
import tracemalloc
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from labkit import Lab
from labkit.ops import redrive
from labkit.ops.triage import survey
from labkit.work.queues import Queue
from tests.benchmarks.measure import Row, seconds

LETTERS, CALLS, ROUNDS = 10_000, 12, 3
SIZES = (1_000, 10_000, int(os.environ.get("TRIAGE_LARGEST", "30000")))

SCRIPT = """
import sys, collections
import botocore.session
client = botocore.session.get_session().create_client("sqs", endpoint_url=sys.argv[1], region_name=sys.argv[2])
found = client.receive_message(QueueUrl=sys.argv[3], MaxNumberOfMessages=10, MessageAttributeNames=["All"],
                               WaitTimeSeconds=5).get("Messages", [])
codes = collections.Counter(m["MessageAttributes"]["ERROR_CODE"]["StringValue"] for m in found)
print(sum(codes.values()))
"""


def rows() -> list[Row]:
    with Lab.open("benchmark") as lab:
        return [*_speed(lab), _memory(lab), _redrive(lab)]


def fill(queue: Queue, count: int) -> None:
    """``count`` dead letters of three reasons, as a rule writes them."""
    reasons = itertools.cycle(["ERROR_FROM_TARGET", "TIMEOUT", "NO_PERMISSIONS"])

    def attribute(value: str) -> dict[str, str]:
        return {"DataType": "String", "StringValue": value}

    def ten(start: int) -> None:
        entries = [
            {
                "Id": str(n),
                "MessageBody": f'{{"detail":{{"trace_id":"t-{start + n}","text":"{"x" * 400}"}}}}',
                "MessageAttributes": {
                    "ERROR_CODE": attribute(next(reasons)),
                    "ERROR_MESSAGE": attribute("the target did not take it"),
                    "SOURCE_QUEUE_ARN": attribute(queue.arn.replace("dead", "work")),
                },
            }
            for n in range(min(10, count - start))
        ]
        answer = queue.client.send_message_batch(QueueUrl=queue.url, Entries=entries)
        assert not answer.get("Failed"), answer

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(ten, range(0, count, 10)))


def _speed(lab: Lab) -> list[Row]:
    dead, again = Queue.create(lab, "dead", visibility=60), Queue.create(lab, "again", visibility=600)
    fill(dead, LETTERS)
    fill(again, ROUNDS * CALLS * 20)
    endpoint = str(lab.target.endpoint)
    environment = {**os.environ, **lab.target.environment(lab.account)}
    process = (sys.executable, "-c", SCRIPT, endpoint, lab.region, again.url)
    aws = os.environ.get("AWS_CLI") or shutil.which("aws")
    receive = ("sqs", "receive-message", "--queue-url", again.url, "--max-number-of-messages", "10")
    cli = (
        str(aws),
        "--endpoint-url",
        endpoint,
        *receive,
        "--message-attribute-names",
        "All",
        "--wait-time-seconds",
        "5",
    )

    def calls(command: tuple[str, ...]) -> Callable[[], None]:
        def run() -> None:
            for _ in range(CALLS):
                subprocess.run(command, env=environment, check=True, capture_output=True)

        return run

    def look() -> None:
        found = survey(dead)
        assert (found.total, found.complete) == (LETTERS, True), (found.total, found.unseen)
        assert dead.depth().visible == LETTERS

    sides = {"process": (calls(process), CALLS * 10), "labkit": (look, LETTERS)}
    if aws:
        sides["cli"] = (calls(cli), CALLS * 10)
    ratios: dict[str, list[float]] = {}
    rate: list[float] = []
    for turn in range(ROUNDS):
        each = {name: seconds(sides[name][0]) / sides[name][1] for name in sorted(sides, reverse=bool(turn % 2))}
        rate.append(1 / each["labkit"])
        for name in each:
            ratios.setdefault(name, []).append(each[name] / each["labkit"])
    dead.client.delete_queue(QueueUrl=again.url)
    what = f"triage of {LETTERS:,} dead letters, per message: against"
    speed = f"({statistics.median(rate):,.0f} letters/s)"
    found = [(f"{what} a process per ten", f"{statistics.median(ratios['process']):.0f} × {speed}", "≥ 20 ×")]
    if aws:
        found.append((f"{what} the AWS CLI", f"{statistics.median(ratios['cli']):.0f} ×", "≥ 20 ×"))
    return found


def _memory(lab: Lab) -> Row:
    dead = Queue.create(lab, "dead-flat", visibility=60)
    peaks, there = [], 0
    for size in SIZES:
        fill(dead, size - there)
        there = size
        tracemalloc.start()
        try:
            found = survey(dead)
            peaks.append(tracemalloc.get_traced_memory()[1] / 1e6)
        finally:
            tracemalloc.stop()
        assert found.total == size == dead.depth().visible, (found.total, dead.depth())
    says = ", ".join(f"{size:,}: {peak:.2f}" for size, peak in zip(SIZES, peaks, strict=True))
    return f"survey's peak memory, MB ({says})", f"{peaks[-1] / peaks[1]:.2f} × from 10,000 on", "flat"


def _redrive(lab: Lab) -> Row:
    work = Queue.create(lab, "work", visibility=60)
    dead = Queue.create(lab, "dead-work", visibility=60)
    fill(dead, LETTERS)
    outcome = []
    took = seconds(lambda: outcome.append(redrive.plan(dead, to=work).run(canary=0)))
    assert (outcome[0].sent, outcome[0].doubles, dead.depth().total) == (LETTERS, [], 0), outcome
    seen: Counter[str] = Counter()
    while batch := work.receive(wait=1):
        seen.update(message.body for message in batch)
        work.delete(*batch)
    assert len(seen) == LETTERS == seen.total(), "lost or doubled"
    return f"redrive of {LETTERS:,}, look included", f"{LETTERS / took:,.0f} letters/s, 0 lost, 0 doubled", ""
