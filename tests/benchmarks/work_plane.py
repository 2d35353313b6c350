"""The work plane: idempotency beside Powertools and beside two bare writes, the worker beside bare loops."""

from __future__ import annotations

import itertools
import json
import threading
from typing import Any

from labkit import Lab
from labkit.state.idempotency import IdempotencyStore, Work
from labkit.work.queues import Queue
from labkit.work.worker import Task, Worker
from tests.benchmarks.measure import Row, in_turns, rate, seconds

STEPS, MESSAGES = 150, 1_000
THREADS = 8


def rows() -> list[Row]:
    with Lab.open("benchmark") as lab:
        return [*_idempotency(lab), *_worker(lab)]


def _table(lab: Lab, name: str) -> str:
    table = lab.resource_name(name)
    lab.client("dynamodb").create_table(
        TableName=table,
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        BillingMode="PAY_PER_REQUEST",
    )
    return table


def _bare(client: Any, table: str, key: str) -> None:
    """A claim and a result, as two conditional writes and nothing else."""
    client.put_item(
        TableName=table, Item={"id": {"S": key}, "s": {"S": "running"}}, ConditionExpression="attribute_not_exists(id)"
    )
    client.update_item(
        TableName=table,
        Key={"id": {"S": key}},
        UpdateExpression="SET s = :done, r = :result",
        ConditionExpression="s = :running",
        ExpressionAttributeValues={":done": {"S": "done"}, ":running": {"S": "running"}, ":result": {"S": '{"ok":1}'}},
    )


def _idempotency(lab: Lab) -> list[Row]:
    from aws_lambda_powertools.utilities.idempotency import (
        DynamoDBPersistenceLayer,
        IdempotencyConfig,
        idempotent_function,
    )

    client = lab.client("dynamodb")
    store = IdempotencyStore.create(lab, "steps")
    bare = _table(lab, "bare")
    layer = DynamoDBPersistenceLayer(table_name=_table(lab, "powertools"), boto3_client=client)

    # The same care: the payload is checked, nothing is cached in the process.
    config = IdempotencyConfig(event_key_jmespath="trace_id", payload_validation_jmespath="payload")

    @idempotent_function(data_keyword_argument="body", persistence_store=layer, config=config)
    def theirs(body: dict[str, Any]) -> dict[str, int]:
        return {"ok": 1}

    def body(turn: int, number: int) -> dict[str, Any]:
        return {"trace_id": f"conv-{turn}-step-{number}", "payload": {"n": number}}

    def ours(turn: int) -> None:
        for number in range(STEPS):
            store.run(Work.of(body(turn, number), "researcher"), lambda claim: {"ok": 1})

    def powertools(turn: int) -> None:
        for number in range(STEPS):
            theirs(body=body(turn, number))

    def two_writes(turn: int) -> None:
        for number in range(STEPS):
            _bare(client, bare, f"{turn}-{number}")

    first = in_turns({"labkit": ours, "powertools": powertools, "bare": two_writes})
    again = in_turns({"labkit": ours, "powertools": powertools})  # the same steps: every one is a replay
    return [
        ("idempotency, first time: rate against Powertools", rate(first, "labkit", "powertools"), "≥ 100 %"),
        ("idempotency, first time: rate against two bare writes", rate(first, "labkit", "bare"), "≥ 90 %"),
        ("idempotency, replay: rate against Powertools", rate(again, "labkit", "powertools"), "≥ 100 %"),
    ]


def _worker(lab: Lab) -> list[Row]:
    queue = Queue.create(lab, "work", dlq=True)
    sqs, db = lab.client("sqs"), lab.client("dynamodb")
    bare_table = _table(lab, "bare-loop")
    store = IdempotencyStore.create(lab, "worker-steps")
    runs = itertools.count()

    def fill() -> None:
        run = next(runs)
        queue.send_batch([json.dumps({"trace_id": f"run-{run}-{n}", "payload": n}) for n in range(MESSAGES)])

    def bare(writes: bool, batch: int) -> None:
        def loop() -> None:
            while found := sqs.receive_message(
                QueueUrl=queue.url,
                MaxNumberOfMessages=batch,
                MessageSystemAttributeNames=["All"],
                MessageAttributeNames=["All"],
            ).get("Messages", []):
                for message in found:
                    body = json.loads(message["Body"])
                    if writes:
                        _bare(db, bare_table, body["trace_id"])
                entries = [{"Id": str(i), "ReceiptHandle": m["ReceiptHandle"]} for i, m in enumerate(found)]
                sqs.delete_message_batch(QueueUrl=queue.url, Entries=entries)

        threads = [threading.Thread(target=loop) for _ in range(THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def step(task: Task) -> dict[str, int]:
        return {"ok": 1}

    def ours(with_store: bool, prefetch: int) -> None:
        worker = Worker(
            queue,
            step,
            store=store if with_store else None,
            parse=json.loads,
            threads=THREADS,
            prefetch=prefetch,
            visibility=120,
            wait=0,
        )
        worker.run(until_empty=True)

    found = []
    for writes, batch, what in (
        (False, 10, "worker, 8 threads, no store, ten a receive: rate against bare loops"),
        (True, 10, "worker, 8 threads, with store, ten a receive: against bare loops and writes"),
        (True, 1, "worker, 8 threads, with store, one a receive: against bare loops and writes"),
    ):
        rounds = []
        for turn in range(5):
            took = {}
            for name in ("bare", "labkit") if turn % 2 else ("labkit", "bare"):
                fill()
                run = (lambda: bare(writes, batch)) if name == "bare" else (lambda: ours(writes, batch))  # noqa: B023
                took[name] = seconds(run)
            rounds.append(took)
        found.append((what, rate(rounds, "labkit", "bare"), "≥ 90 %"))
    return found
