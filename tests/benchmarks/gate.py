"""The gate beside two bare conditional writes: ``python -m tests.benchmarks.gate``.

The bare side is the least that any counter in DynamoDB costs: one item, an UpdateItem with a condition to go in, and
one to come out. Nobody waits here: each thread finds a permit free.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
from collections.abc import Callable
from typing import Any

from labkit import Lab
from labkit.routing.gate import Gate
from labkit.state import tables
from tests.benchmarks.measure import Row, in_turns, machine, rate

PAIRS, ROUNDS = 64, 25  # short rounds, many of them: what else the machine does hits both sides
CAP = 10


def _bare(client: Any, table: str) -> Callable[[], None]:
    """In and out as two conditional updates of a number, and nothing else."""
    key = {"pk": {"S": "bare"}}
    client.put_item(TableName=table, Item={**key, "taken": {"N": "0"}, "cap": {"N": str(CAP)}})

    def pair() -> None:
        client.update_item(
            TableName=table,
            Key=key,
            UpdateExpression="ADD taken :one",
            ConditionExpression="taken < cap",
            ExpressionAttributeValues={":one": {"N": "1"}},
        )
        client.update_item(
            TableName=table,
            Key=key,
            UpdateExpression="ADD taken :less",
            ConditionExpression="taken > :none",
            ExpressionAttributeValues={":less": {"N": "-1"}, ":none": {"N": "0"}},
        )

    return pair


def _spread(pair: Callable[[], None], threads: int) -> None:
    def some() -> None:
        for _ in range(PAIRS // threads):
            pair()

    crew = [threading.Thread(target=some) for _ in range(threads)]
    for each in crew:
        each.start()
    for each in crew:
        each.join()


def rows() -> list[Row]:
    with Lab.open("benchmark") as lab:
        gate = Gate.create(lab, "overflow", cap=CAP)
        tables.ensure(lab, "bare", ("pk",))
        bare = _bare(lab.client("dynamodb"), lab.resource_name("bare"))

        def ours() -> None:
            with gate.permit():
                pass

        found = []
        for threads in (1, 8):
            rounds = in_turns(
                {"gate": lambda _: _spread(ours, threads), "bare": lambda _: _spread(bare, threads)},  # noqa: B023
                rounds=ROUNDS,
            )
            each = statistics.median(took["gate"] for took in rounds) / PAIRS
            what = f"gate, acquire and release, {threads} thread{'s' * (threads > 1)}: against two bare writes"
            found.append((f"{what} ({1000 * each:.2f} ms a pair)", rate(rounds, "gate", "bare"), "≥ 90 %"))
        assert gate.look().taken == 0
        return found


def main() -> None:
    with tempfile.TemporaryDirectory() as home:
        os.environ["LABKIT_HOME"] = home
        from labkit import embedded

        try:
            print(machine())
            for row in rows():
                print(" | ".join(row))
        finally:
            embedded.SERVER.stop()


if __name__ == "__main__":
    main()
