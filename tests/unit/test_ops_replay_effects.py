"""Side effects before and after a replay: what is duplicated, lost, recovered."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit import Lab
from labkit.ops import replay

ids = st.sampled_from(["t1", "t2", "t3", "t4"])
effects = st.dictionaries(ids, st.integers(0, 3))


@given(effects, effects, st.sets(ids))
def test_every_effect_that_a_replay_adds_is_recovered_or_duplicated(
    before: dict[str, int], added: dict[str, int], wanted: set[str]
) -> None:
    after = Counter(before) + Counter(added)
    verdict = replay.verify(before, after, wanted)
    assert len(verdict.recovered) + sum(verdict.duplicated.values()) == sum(added.values())
    assert {one for one in wanted if not after[one]} <= set(verdict.lost)
    assert verdict.clean == (not verdict.duplicated and not verdict.lost)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ({}, {"a": 1}, "recovered 1, lost 0, duplicated 0"),
        ({"a": 1}, {"a": 1}, "recovered 0, lost 0, duplicated 0"),
        ({"a": 1}, {"a": 2}, "recovered 0, lost 0, duplicated 1"),
        ({}, {"a": 2}, "recovered 1, lost 0, duplicated 1"),  # once is a recovery, the second one a duplicate
        ({"a": 2}, {"a": 2}, "recovered 0, lost 0, duplicated 0"),  # doubled before: not this replay's doing
        ({"a": 2}, {"a": 1}, "recovered 0, lost 1, duplicated 0"),
        ({}, {}, "recovered 0, lost 1, duplicated 0"),
    ],
)
def test_verify(before: dict[str, int], after: dict[str, int], says: str) -> None:
    assert str(replay.verify(before, after, ["a"])) == says


def test_a_source_lists_texts() -> None:
    assert replay.count(lambda: ["a", "b", "a"]) == {"a": 2, "b": 1}
    with pytest.raises(replay.ReplayError, match="a source lists trace ids, one for each effect; got None"):
        replay.count(lambda: [None])  # type: ignore[list-item]


@pytest.mark.parametrize("listed", [None, "abc", {"a": 2}, [["a"]], [""], 7])
def test_what_is_no_list_is_not_counted_as_something_else(listed: Any) -> None:
    with pytest.raises(replay.ReplayError, match="a source lists trace ids, one for each effect; got"):
        replay.count(lambda: listed)
    with pytest.raises(replay.ReplayError, match="wanted lists trace ids; got"):
        replay.verify({}, {}, listed)


def test_what_is_no_tally() -> None:
    with pytest.raises(replay.ReplayError, match="a source is a function without arguments; got None"):
        replay.count(None)  # type: ignore[arg-type]
    with pytest.raises(replay.ReplayError, match=r"after is what count\(\) returned; got None"):
        replay.verify({}, None)  # type: ignore[arg-type]


def test_items_of_a_table_are_effects(lab: Lab) -> None:
    client = lab.client("dynamodb")
    client.create_table(
        TableName="charges",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    for number, trace_id in enumerate(["a", "b", "a"]):
        client.put_item(TableName="charges", Item={"pk": {"S": str(number)}, "trace_id": {"S": trace_id}})
    assert replay.count(replay.rows(client, "charges")) == {"a": 2, "b": 1}
    client.put_item(TableName="charges", Item={"pk": {"S": "9"}})
    with pytest.raises(replay.ReplayError, match="an item of charges has no text in trace_id"):
        replay.count(replay.rows(client, "charges"))
    with pytest.raises(replay.ReplayError, match="table 'nowhere' could not be read"):
        replay.count(replay.rows(client, "nowhere"))
