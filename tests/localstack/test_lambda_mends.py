"""The parts of the mends of Lambda, its queues' mappings and DynamoDB that need no LocalStack."""

from __future__ import annotations

import importlib
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from parity.esm_records import record_of

HOSTMODE = Path(__file__).parents[2] / "infra" / "localstack"
ARN = "arn:aws:sqs:us-east-1:000000000000:work"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Modules of ``hostmode`` by name: they are installed beside LocalStack, not here."""
    monkeypatch.syspath_prepend(str(HOSTMODE))
    return lambda name: importlib.import_module(f"hostmode.{name}")


@pytest.mark.parametrize(
    ("left", "sign", "right", "holds"),
    [
        (("N", Decimal(2)), "<", ("N", Decimal(10)), True),
        (("N", Decimal("0.000")), "=", ("N", Decimal(0)), True),
        (("N", Decimal(2)), "<", ("S", "10"), False),
        (("S", "2"), "<>", ("N", Decimal(2)), True),
        (("NULL", None), "=", ("NULL", None), True),
        (("L", []), "<", ("L", [1]), False),
        (None, "=", None, False),
        (None, "<>", None, True),
        (None, "<", ("N", Decimal(9)), False),
    ],
)
def test_a_comparison_looks_at_types(module: Any, left: Any, sign: str, right: Any, holds: bool) -> None:
    assert module("dynamodb_conditions").compared(left, sign, right) is holds


def test_a_transaction_token_lives_ten_minutes(module: Any) -> None:
    now = [0.0]
    tokens = module("dynamodb_writes").Tokens(lambda: now[0])
    tokens.keep(("1", "us-east-1", "a"), "request")
    now[0] = 599.0
    assert tokens.find(("1", "us-east-1", "a")) == "request"
    assert tokens.find(("2", "us-east-1", "a")) is None
    now[0] = 601.0
    assert tokens.find(("1", "us-east-1", "a")) is None


def test_a_received_message_becomes_a_record(module: Any) -> None:
    message = {
        "MessageId": "id",
        "ReceiptHandle": "handle",
        "Body": "hello",
        "MD5OfBody": "digest",
        "Attributes": {
            "SenderId": "000000000000",
            "SentTimestamp": "1700000000001",
            "ApproximateReceiveCount": "2",
            "ApproximateFirstReceiveTimestamp": "1700000000002",
            "MessageGroupId": "group",
        },
    }
    record = record_of(module("esm_poller").as_message(message), arn=ARN, digest=None)
    assert record["attributes"] == {
        "ApproximateReceiveCount": "2",
        "SentTimestamp": "1700000000001",
        "MessageGroupId": "group",
        "SenderId": "000000000000",
        "ApproximateFirstReceiveTimestamp": "1700000000002",
    }
    assert list(record)[:4] == ["messageId", "receiptHandle", "body", "attributes"]
    assert (record["eventSourceARN"], record["awsRegion"]) == (ARN, "us-east-1")


def test_an_update_with_empty_members_removes_them(module: Any) -> None:
    mapping = {"ScalingConfig": {}, "FilterCriteria": {"Filters": []}, "Enabled": True, "BatchSize": 1}
    module("esm_api").drop_empty(mapping)
    assert mapping == {"BatchSize": 1}


def test_the_seventeenth_invocation_in_a_chain_is_one_too_many(module: Any) -> None:
    recursion = module("lambda_recursion")
    depth = recursion.depth_after({})
    for _ in range(15):
        assert not recursion.stopped(depth, "Terminate")
        depth = recursion.depth_after(recursion.headers_for(SimpleNamespace(trace_context={recursion.DEPTH: depth})))
    assert depth == 16
    assert not recursion.stopped(16, None)
    assert recursion.stopped(17, "Terminate")
    assert not recursion.stopped(17, "Allow")
    assert recursion.depth_after({recursion.HEADER: "no number"}) == 1
