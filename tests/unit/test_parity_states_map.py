"""Batches, thresholds and result files of distributed Map states."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parity.states_batches import batches, is_constant, jobs, template, understood
from parity.states_map import exceeds
from parity.states_map_runs import MapRuns
from parity.states_results import manifest


def mapped(**more: Any) -> str:
    return json.dumps({"StartAt": "M", "States": {"M": {"Type": "Map", **more}}})


@given(items=st.lists(st.integers(0, 10**6)), most=st.integers(1, 5), room=st.integers(1, 20))
def test_batches_keep_the_order_and_both_limits(items: list[int], most: int, room: int) -> None:
    found = batches(items, most, room)
    assert [item for batch in found for item in batch] == items
    assert all(1 <= len(batch) <= most for batch in found)
    assert all(len(batch) == 1 or sum(len(str(item)) for item in batch) <= room for batch in found)


def test_jobs() -> None:
    assert jobs([1, 2], None) == [(1, 1), (2, 1)]
    assert jobs([1, 2, 3], {"MaxItemsPerBatch": 2}) == [({"Items": [1, 2]}, 2), ({"Items": [3]}, 1)]
    with_input = jobs([1], {"MaxInputBytesPerBatch": 9, "BatchInput": {"a": 1}})
    assert with_input == [({"BatchInput": {"a": 1}, "Items": [1]}, 1)]
    assert jobs([], {"MaxItemsPerBatch": 2}) == []


def test_a_definition_without_batches_stays_as_it_is() -> None:
    text = mapped(ToleratedFailurePercentage=2.5)
    assert understood(text) == (text, {})


def test_what_the_grammar_does_not_know_is_taken_out() -> None:
    inner = json.loads(mapped(ItemBatcher={"MaxItemsPerBatch": 3}))
    inner["States"] = {"Inner": inner["States"]["M"]}
    text, found = understood(mapped(ItemBatcher={"MaxItemsPerBatch": 2}, ItemProcessor=inner))
    assert found == {"M": {"MaxItemsPerBatch": 2}, "Inner": {"MaxItemsPerBatch": 3}}
    assert "ItemBatcher" not in text
    text, found = understood(mapped(ToleratedFailurePercentage=30))
    assert (json.loads(text)["States"]["M"]["ToleratedFailurePercentage"], found) == (30.0, {})
    assert "30.0" in text


@pytest.mark.parametrize(
    "batcher",
    [
        None,
        {},
        {"BatchInput": 1},
        {"MaxItemsPerBatch": 0},
        {"MaxItemsPerBatch": True},
        {"MaxItemsPerBatch": 2, "Nonsense": 1},
    ],
)
def test_batchers_that_are_refused(batcher: Any) -> None:
    with pytest.raises(ValueError, match="of M must"):
        understood(mapped(ItemBatcher=batcher))


def test_batchers_that_a_run_has_to_evaluate() -> None:
    assert is_constant({"MaxItemsPerBatch": 2, "BatchInput": {"a": "$.b"}})
    paths = {"MaxItemsPerBatchPath": "$.n", "BatchInput": {"a.$": "$.a"}}
    assert not is_constant(paths)
    assert not is_constant({"MaxItemsPerBatch": "{% $n %}"})
    assert json.loads(template(paths, "JSONPath"))["States"]["B"]["Parameters"] == {
        "MaxItemsPerBatch.$": "$.n",
        "BatchInput": {"a.$": "$.a"},
    }
    assert json.loads(template({"MaxItemsPerBatch": "{% $n %}"}, "JSONata"))["States"]["B"]["Output"] == {
        "MaxItemsPerBatch": "{% $n %}"
    }


@pytest.mark.parametrize(
    ("failed", "count", "percentage", "over"),
    [
        (0, None, None, False),
        (1, None, None, True),
        (3, 3, None, False),
        (4, 3, None, True),
        (3, None, 30, False),
        (4, None, 30, True),
        (3, 3, 20, True),
        (3, 2, 30, True),
        (3, 3, 30, False),
        (10, None, 100, False),
    ],
)
def test_thresholds_of_ten_items(failed: int, count: int | None, percentage: float | None, over: bool) -> None:
    assert exceeds(failed, 10, count, percentage) is over


def test_the_manifest_names_the_files_in_front_of_it() -> None:
    children = [{"Status": "SUCCEEDED", "Output": "1"}, {"Status": "FAILED", "Error": "E"}]
    files = manifest("bucket", "out", "arn:aws:states:r:1:mapRun:m/l:id", children)
    assert list(files) == ["out/id/FAILED_0.json", "out/id/SUCCEEDED_0.json", "out/id/manifest.json"]
    listed = json.loads(files["out/id/manifest.json"])["ResultFiles"]
    assert listed["PENDING"] == []
    assert listed["SUCCEEDED"] == [{"Key": "out/id/SUCCEEDED_0.json", "Size": len(files["out/id/SUCCEEDED_0.json"])}]
    assert json.loads(files["out/id/FAILED_0.json"]) == [children[1]]
    assert list(manifest("bucket", "", "arn:aws:states:r:1:mapRun:m/l:id", [])) == ["id/manifest.json"]


def test_the_last_runs_are_known() -> None:
    class Run:
        def __init__(self, number: int) -> None:
            self.map_run_arn, self.execution_arn = f"run-{number}", f"execution-{number % 2}"

    runs, known = [Run(number) for number in range(4)], MapRuns(kept=3)
    for run in runs:
        known.add(run)
    assert known.get("run-0") is None
    assert known.of("execution-1") == [runs[1], runs[3]]
    known.clear()
    assert known.of("execution-1") == []


def test_a_name_with_an_accent_stays_as_it_is() -> None:
    processor = {"StartAt": "Inside", "States": {"Inside": {"Type": "Pass", "End": True}}}
    state = {"Type": "Map", "ItemBatcher": {"MaxItemsPerBatch": 2}, "ItemProcessor": processor, "End": True}
    text, found = understood(json.dumps({"StartAt": "Été", "States": {"Été": state}}))
    assert list(found) == ["Été"]
    assert "Été" in text
