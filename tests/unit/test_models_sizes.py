"""Sizes. Golden values: AWS's entry-size rules (docs eb-putevent-size; facts F042 to F045, F007, F011, F090)."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.facts import facts
from labkit.models import sizes
from labkit.models._input import ModelError


def detail(size: int) -> str:
    return '"' + "x" * (size - 2) + '"'


def test_an_entry_counts_utf8_bytes_and_14_for_time() -> None:
    entry = {"Source": "fleet", "DetailType": "step", "Detail": '{"a":"é"}', "Resources": ["r1", "ré"]}
    assert sizes.entry_size(entry) == 5 + 4 + 10 + 2 + 3
    assert sizes.entry_size({**entry, "Time": 0}) == sizes.entry_size(entry) + 14
    assert sizes.entry_size({**entry, "EventBusName": "a-long-name"}) == sizes.entry_size(entry)  # not counted
    assert sizes.entry_size({}) == 0


def test_the_event_is_larger_than_its_entry() -> None:
    entry = {"Source": "fleet", "DetailType": "stép", "Detail": '{"a": 1}', "Resources": ["r1", "r2"]}
    event = {
        "version": "0", "id": "6c4a1c1e-0b7f-4f0e-9d1a-3b2c5e6f7a8b", "detail-type": "stép", "source": "fleet",
        "account": "000000000000", "time": "2026-11-11T09:15:22Z", "region": "us-east-1", "resources": ["r1", "r2"],
        "detail": {"a": 1},
    }  # fmt: skip
    text = json.dumps(event, ensure_ascii=False, separators=(",", ":"))
    assert sizes.event_size({**entry, "Detail": '{"a":1}'}) == len(text.encode())
    assert sizes.event_size(entry) > sizes.entry_size(entry)


def test_a_bus_wants_less_than_its_limit_a_queue_takes_all_of_it() -> None:
    bus, queue = int(facts("events.put.request_bytes")), int(facts("sqs.batch.max_bytes"))
    assert len(sizes.event_batches([{"Detail": detail(bus - 1)}])) == 1
    with pytest.raises(sizes.TooLarge, match=r"entry 1 weighs .* claim check") as found:
        sizes.event_batches([{"Detail": "{}"}, {"Detail": detail(bus)}])
    assert (found.value.index, found.value.size) == (1, bus)
    assert len(sizes.message_batches([{"MessageBody": "x" * queue}])) == 1
    with pytest.raises(sizes.TooLarge):
        sizes.message_batches([{"MessageBody": "x" * (queue + 1)}])


def test_message_attributes_count_with_name_type_and_value() -> None:
    message = {"MessageBody": "é", "MessageAttributes": {"trace": {"DataType": "String", "StringValue": "abc"}}}
    assert sizes.message_size(message) == 2 + 5 + 6 + 3
    message["MessageAttributes"]["raw"] = {"DataType": "Binary", "BinaryValue": b"12"}  # type: ignore[index]
    assert sizes.message_size(message) == 16 + 3 + 6 + 2


def test_a_hundred_small_entries_are_ten_requests() -> None:
    assert [len(b) for b in sizes.event_batches([{"Detail": "{}"}] * 95)] == [10] * 9 + [5]


@given(st.lists(st.integers(0, 60), max_size=60), st.integers(1, 12), st.integers(60, 200))
def test_each_item_is_in_one_batch_in_order_and_no_batch_is_over(weights: list[int], items: int, most: int) -> None:
    things = list(enumerate(weights))
    made = sizes.batches(things, lambda t: t[1], max_items=items, max_bytes=most)
    assert [t for batch in made for t in batch] == things
    assert all(0 < len(b) <= items and sum(t[1] for t in b) <= most for b in made)
    for first, second in itertools.pairwise(made):  # greedy: nothing that still fitted was put off
        assert len(first) == items or sum(t[1] for t in first) + second[0][1] > most


@given(st.lists(st.text(max_size=40), max_size=30))
def test_real_entries_too(texts: list[str]) -> None:
    entries: list[dict[str, Any]] = [{"Source": "s", "DetailType": "d", "Detail": json.dumps(t)} for t in texts]
    assert [e for batch in sizes.event_batches(entries) for e in batch] == entries


def test_the_state_is_the_narrowest_hop() -> None:
    small = {"Source": "s", "DetailType": "d", "Detail": detail(1000)}
    assert not sizes.needs_claim_check(small)
    state = int(facts("sfn.payload.max_bytes"))
    middle = {**small, "Detail": detail(state)}
    assert [h.fits for h in sizes.hops(middle)] == [True, True, False]
    assert sizes.needs_claim_check(middle)
    assert not sizes.needs_claim_check(middle, through=["bus", "queue"])
    # Just under the bus's limit as an entry, over the queue's as an event: the envelope weighs too.
    wide = {**small, "Detail": detail(int(facts("events.put.request_bytes")) - 10)}
    assert [h.fits for h in sizes.hops(wide)] == [True, False, False]
    with pytest.raises(ModelError, match="pigeon"):
        sizes.hops(small, through=["pigeon"])
