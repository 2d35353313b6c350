"""The judge of partial batch responses, by itself."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parity.esm_response import failed

IDS = ("a", "b", "c")
ALL, NONE = frozenset(IDS), frozenset[str]()


def entries(*identifiers: Any) -> dict[str, Any]:
    return {"batchItemFailures": [{"itemIdentifier": identifier} for identifier in identifiers]}


@pytest.mark.parametrize(
    "answer",
    [None, {}, "", b"", entries(), {"batchItemFailures": None}, {"statusCode": 200}, {"BatchItemFailures": [{}]}],
)
def test_complete_success(answer: Any) -> None:
    assert failed(answer, IDS) == NONE


@pytest.mark.parametrize(
    "answer",
    [
        "not an object",
        b"not JSON",
        '{"batchItemFailures": []}',
        True,
        7,
        [],
        ["a"],
        {"batchItemFailures": "a"},
        {"batchItemFailures": {"itemIdentifier": "a"}},
        {"batchItemFailures": ["a"]},
        {"batchItemFailures": [None]},
        {"batchItemFailures": [{}]},
        {"batchItemFailures": [{"ItemIdentifier": "a"}]},
        {"batchItemFailures": [{"itemIdentifier": ["a"]}]},
        entries(""),
        entries(None),
        entries("z"),
        entries("a", "z"),
        entries(1),
    ],
)
def test_complete_failure(answer: Any) -> None:
    assert failed(answer, IDS) == ALL


def test_partial_failure() -> None:
    assert failed(entries("b", "b") | {"more": 1}, IDS) == {"b"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3) | st.sampled_from(IDS),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["batchItemFailures", "itemIdentifier", "x"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON, st.sets(st.sampled_from(IDS)))
def test_any_answer_is_judged_and_names_only_messages_of_the_batch(answer: Any, ids: set[str]) -> None:
    assert failed(answer, ids) <= ids


@given(st.sets(st.text(min_size=1), min_size=1), st.data())
def test_the_reported_messages_and_no_others_have_failed(ids: set[str], data: st.DataObject) -> None:
    reported = data.draw(st.sets(st.sampled_from(sorted(ids))))
    assert failed(entries(*reported), ids) == reported
