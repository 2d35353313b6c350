"""``data/facts.csv`` is sound, and ``labkit.facts`` hands it out as promised."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from labkit.errors import LabError
from labkit.facts import Fact, UnknownFact, _parse, fact, facts, search

ROOT = Path(__file__).resolve().parents[2]
DATA = ROOT / "data"
ROWS = list(csv.DictReader((DATA / "facts.csv").open(encoding="utf-8", newline="")))
KEY = re.compile(r"[a-z][a-z0-9_]*(\.[a-z0-9_]+)+")
# Every unit that a row may use. A new one is a decision: first see whether s, bytes, 1/s or a counted noun will do.
MEASURES = {"s", "1/s", "1/min", "bytes", "GB", "MB", "MB/s", "chars", "%", "x", "USD", "days", "tokens/min", "vCPU"}
COUNTED = {
    *("attempts", "attributes", "buses", "calls", "changes", "entries", "events", "executions", "failures", "filters"),
    *("invocations", "items", "levels", "messages", "models", "operations", "pods", "pollers", "queues", "receives"),
    *("replays", "rules", "runs", "sessions", "shapes", "steps", "targets", "tasks"),
}
# What may begin with a digit and still be text: a version, a month, a list.
DIGITS_BUT_TEXT = re.compile(r"\d+\.\d+\.\d+|\d{4}-\d{2}|\d+(\|\d+)+")


def test_columns_are_the_fields_of_a_fact() -> None:
    assert list(ROWS[0]) == [field.name for field in fields(Fact)]


def test_keys_are_unique_well_formed_and_sorted() -> None:
    keys = [row["key"] for row in ROWS]
    assert [key for key in keys if not KEY.fullmatch(key)] == []
    assert sorted(set(keys)) == keys


def test_ids_are_unique_and_every_checked_row_of_the_guide_is_there() -> None:
    ids = [row["id"] for row in ROWS]
    assert len(set(ids)) == len(ids)
    assert [i for i in ids if not re.fullmatch(r"F\d{3}[a-z]?|N\d{3}", i)] == []
    assert {i[:4] for i in ids if i.startswith("F")} == {f"F{n:03}" for n in range(1, 246)}


def _keys_where(wrong: Callable[[dict[str, str]], object]) -> list[str]:
    return [row["key"] for row in ROWS if wrong(row)]


def test_every_value_parses() -> None:
    assert _keys_where(lambda row: not row["value"] or row["value"] != row["value"].strip()) == []
    # A number with a separator, a range or its unit inside would come out as text: nobody could count with it.
    text = [row for row in ROWS if isinstance(_parse(row["value"]), str)]
    assert [r["key"] for r in text if r["value"][0].isdigit() and not DIGITS_BUT_TEXT.fullmatch(r["value"])] == []
    assert [r["key"] for r in text if r["unit"] and not DIGITS_BUT_TEXT.fullmatch(r["value"])] == []


def test_every_row_has_a_known_unit_a_verdict_a_sentence_and_a_source() -> None:
    assert _keys_where(lambda row: row["unit"] not in MEASURES | COUNTED | {""}) == []
    assert _keys_where(lambda row: row["verdict"] not in ("confirmed", "imprecise", "wrong", "unverified")) == []
    assert _keys_where(lambda row: not row["claim"].endswith(".")) == []
    assert _keys_where(lambda row: not row["source"] and row["verdict"] != "unverified") == []


def _ranges() -> list[tuple[str, str, str]]:
    """(low, high, default) of each range: x.min, x.max, x.default, or x.min_y and so on; default may be missing."""
    keys = [row["key"] for row in ROWS]
    named = [tuple(re.sub(r"\.min(?=_|$)", f".{which}", low) for which in ("min", "max", "default")) for low in keys]
    return [(low, high, default) for low, high, default in named if low != high and high in keys]


def test_ranges_are_found() -> None:
    lows = {low for low, _, _ in _ranges()}
    assert {
        "sqs.visibility.min",
        "events.retry.min_age",
        "pubsub.ack_deadline.min",
        "lambda.esm.min_pollers.min",
    } <= lows


@pytest.mark.parametrize(("low", "high", "default"), _ranges())
def test_min_default_max_are_in_order(low: str, high: str, default: str) -> None:
    least, most = facts(low), facts(high)
    assert isinstance(least, int | float)
    assert isinstance(most, int | float)
    assert least <= most
    assert fact(low).unit == fact(high).unit
    if any(row["key"] == default for row in ROWS):
        usual = facts(default)
        assert isinstance(usual, int | float)
        assert least <= usual <= most


@pytest.mark.parametrize(
    ("key", "value", "unit"),
    [
        ("sqs.visibility.default", 30, "s"),
        ("sqs.visibility.max", 12 * 60 * 60, "s"),
        ("sqs.retention.default", 4 * 24 * 60 * 60, "s"),
        ("sqs.retention.max", 14 * 24 * 60 * 60, "s"),
        ("sqs.batch.entries", 10, "messages"),
        ("sqs.message.max_bytes", 2**20, "bytes"),
        ("sqs.inflight.cap", 120_000, "messages"),
        ("sqs.long_poll.max", 20, "s"),
        ("sqs.long_poll.default", 0, "s"),
        ("sqs.fifo.dedup_window", 300, "s"),
        ("sqs.purge.interval", 60, "s"),
        ("events.put.entries", 10, "entries"),
        ("events.put.request_bytes", 2**20, "bytes"),
        ("events.put.time_bytes", 14, "bytes"),
        ("events.retry.max_attempts", 185, "attempts"),
        ("events.retry.max_age", 24 * 60 * 60, "s"),
        ("events.targets_per_rule", 5, "targets"),
        ("sfn.express.max_duration", 5 * 60, "s"),
        ("sfn.payload.max_bytes", 256 * 1024, "bytes"),
        ("lambda.timeout.max", 15 * 60, "s"),
        ("apigateway.rest.timeout", 29, "s"),
        ("sla.lambda", 99.95, "%"),
        ("sqs.inflight.short_poll_error", "OverLimit", ""),
    ],
)
def test_golden_values(key: str, value: int | float | str, unit: str) -> None:
    assert facts(key) == value
    assert type(facts(key)) is type(value)
    assert fact(key).unit == unit


def test_worked_examples_agree_with_the_facts_they_are_made_of() -> None:
    def number(key: str) -> float:
        return float(facts(key))

    assert number("fleet.in_flight") == number("fleet.steps_per_s") * number("fleet.step_time")
    assert number("fleet.in_flight.share") == 100 * number("fleet.in_flight") / number("sqs.inflight.cap")
    assert number("fleet.chain.duration") == number("fleet.chain.steps") * number("fleet.chain.step_time")
    assert number("fleet.steps_per_min") == number("fleet.conversations_per_min") * number(
        "fleet.steps_per_conversation"
    )
    assert number("idempotency.window.needed") == number("guide.retry.max_age") + number("sqs.retention.default")
    assert number("idempotency.window.needed_classic") == (
        number("events.retry.default_age") + number("sqs.retention.default")
    )
    assert number("availability.chain") == pytest.approx(
        number("availability.dependency") ** number("availability.calls"), abs=1e-5
    )


@pytest.mark.parametrize(
    ("key", "shown"),
    [
        ("sqs.inflight.cap", "120,000 messages"),
        ("events.put.rate.us_east_1", "10,000/s"),
        ("sfn.price.express_gb_s", "0.00001667 USD"),
        ("sla.lambda", "99.95 %"),
        ("availability.dependency", "0.999"),
        ("sqs.inflight.short_poll_error", "OverLimit"),
        ("events.retry.skipped_errors", "NO_PERMISSIONS, NO_RESOURCE"),
    ],
)
def test_a_fact_prints_as_value_and_unit(key: str, shown: str) -> None:
    assert str(fact(key)) == shown


def test_a_fact_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        fact("sqs.visibility.max").value = 1  # type: ignore[misc]


def test_an_unknown_key_is_one_sentence_with_the_three_nearest() -> None:
    with pytest.raises(UnknownFact) as caught:
        facts("sqs.visibilty.max")
    assert isinstance(caught.value, LabError)
    assert isinstance(caught.value, KeyError)
    assert re.fullmatch(
        r'There is no fact "sqs\.visibilty\.max"; the nearest keys are sqs\.visibility\.max, [\w.]+, [\w.]+\.',
        str(caught.value),
    )


@pytest.mark.parametrize("key", ["", "?", "SQS.VISIBILITY.MAX"])
def test_even_a_key_that_resembles_nothing_gets_the_sentence(key: str) -> None:
    with pytest.raises(UnknownFact, match=r"There is no fact .*; the nearest keys are .*\."):
        fact(key)


def test_search_finds_by_every_word_in_any_case() -> None:
    found = [f.key for f in search("FIFO window")]
    assert "sqs.fifo.dedup_window" in found
    assert found == sorted(found)
    assert search("fifo window nosuchword") == []


def test_code_and_notebooks_ask_only_for_keys_that_exist() -> None:
    asked = re.compile(r"""\b(?:facts|fact|limit)\(\\?["']([a-z0-9_.]+)\\?["']\)""")
    files = [*ROOT.glob("labkit/**/*.py"), *ROOT.glob("infra/functions/**/*.py"), *ROOT.glob("notebooks/*.ipynb")]
    known = {row["key"] for row in ROWS}
    unknown = [
        f"{path.relative_to(ROOT)}: {key}"
        for path in sorted(files)
        for key in asked.findall(path.read_text(encoding="utf-8"))
        if key not in known
    ]
    assert unknown == []


def test_errata_are_complete_and_each_has_a_notebook() -> None:
    rows = list(csv.DictReader((DATA / "errata.csv").open(encoding="utf-8", newline="")))
    assert list(rows[0]) == ["id", "area", "topic", "guide", "right", "evidence", "notebook"]
    assert [row["id"] for row in rows] == [f"E{n:02}" for n in range(1, 79)]
    assert [row["id"] for row in rows if not all(row.values())] == []
    assert {row["notebook"] for row in rows} <= {f"{n:02}" for n in range(21)}


def test_what_is_said_of_boto3_holds_for_the_one_that_is_installed() -> None:
    import boto3
    from botocore.retries.standard import DEFAULT_MAX_ATTEMPTS

    client = boto3.client("sqs", region_name="us-east-1", aws_access_key_id="1", aws_secret_access_key="2")
    assert client.meta.config.retries["mode"] == "standard"
    assert facts("boto3.attempts.default") == DEFAULT_MAX_ATTEMPTS
    assert facts("boto3.read_timeout.default") == client.meta.config.read_timeout
