"""AgentCore's rules: bounds of requests, ids of events, namespaces."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parity.agentcore_events import event_id, milliseconds
from parity.agentcore_memories import check_templates
from parity.agentcore_records import Answers, matches, scope_of
from parity.agentcore_requests import Refused, check_body, check_somewhere, check_text
from parity.agentcore_tags import changed, keys_of


@pytest.mark.parametrize(
    ("member", "good", "bad"),
    [
        ("sessionId", ["a", "8842", "s" * 100, "a-b_c"], ["", "s" * 101, "-a", "a.b", "a b", "a\n"]),
        ("actorId", ["ann", "a/b", "a:b:c", "a" * 255], ["", "a" * 256, "/a", "a@b", 7]),
        ("eventId", ["0000001789300800000#ab12"], ["1", "1#", "#a", "1#xyz"]),
        ("namespace", ["/", "/actors/ann/", "a:b", "*"], ["", "n" * 1025, "/a b/", "/{actorId}/"]),
        ("runtimeSessionId", ["s" * 33, "s" * 256, ":" * 40], ["s" * 32, "s" * 257]),
    ],
)
def test_texts_have_bounds(member: str, good: list[str], bad: list[Any]) -> None:
    check_text(member, None)
    for value in good:
        check_text(member, value)
    for value in bad:
        with pytest.raises(Refused, match=f"1 validation error detected: Value at '{member}' failed"):
            check_text(member, value)


@pytest.mark.parametrize(
    "body",
    [
        {"maxResults": 0},
        {"maxResults": 101},
        {"maxResults": "20"},
        {"maxResults": True},
        {"searchCriteria": {"searchQuery": ""}},
        {"searchCriteria": {"searchQuery": "tea", "topK": 101}},
        {"branch": {"name": ""}},
        {"records": [{}] * 101},
        {"metadata": {str(number): {"stringValue": ""} for number in range(16)}},
        {"metadata": {"a;b": {"stringValue": ""}}},
        {"metadata": {"a": {"stringValue": "x" * 257}}},
        {"payload": [{"json": {"content": 1}}, {"conversational": {"role": "SYSTEM"}}]},
    ],
)
def test_bodies_have_bounds(body: dict[str, Any]) -> None:
    with pytest.raises(Refused, match="failed to satisfy constraint: Member must"):
        check_body(body)


def test_what_is_within_the_bounds_passes() -> None:
    check_body({})
    check_body({"maxResults": 100, "nextToken": "x", "namespace": "/a/", "records": [{}] * 100, "metadata": None})
    check_body({"payload": [{"conversational": {"role": "TOOL"}}, "no object"], "branch": {"name": "retry"}})
    check_body({"searchCriteria": {"searchQuery": "two\nlines", "topK": 100}})
    check_somewhere({"namespacePath": "/a/"})
    for nowhere in ({}, {"namespace": ""}):
        with pytest.raises(Refused, match="Either namespace or namespacePath is required"):
            check_somewhere(nowhere)


@given(st.integers(0, 4_000_000_000_000), st.integers(0, 4_000_000_000_000))
def test_ids_are_in_the_order_of_the_times(one: int, two: int) -> None:
    first, second = (event_id(each / 1000, "00") for each in (one, two))
    assert (first < second) == (one < two)


def test_a_time_is_a_number_or_a_text() -> None:
    assert event_id(1_789_300_800.25, "ab") == "0000001789300800250#ab"
    for same in (1_789_300_800, "1789300800", "2026-09-13T12:00:00Z", "2026-09-13T14:00:00+02:00"):
        assert milliseconds(same) == 1_789_300_800_000
    for wrong in (None, "soon", [1]):
        with pytest.raises((TypeError, ValueError)):
            milliseconds(wrong)


def test_a_namespace_is_exact_and_a_path_is_not() -> None:
    here, path = scope_of({"namespace": "/actors/ann/"}), scope_of({"namespacePath": "/actors/ann/"})
    for namespace, exact, below in (
        ("/actors/ann/", True, True),
        ("/actors/ann/sessions/1/", False, True),
        ("/actors/anna/", False, False),
        ("/actors/", False, False),
    ):
        assert (matches(here, [namespace]), matches(path, [namespace])) == (exact, below)
    assert not matches(scope_of({"namespace": "/actors/*/"}), ["/actors/ann/"])
    assert not matches(here, [])


@pytest.mark.parametrize(
    "namespaces",
    [[], ["/a/", "/b/"], [""], ["/a b/"], ["/{actor-id}/"], ["/{actorId/"], ["\n/a/"], ["a" * 513], "/a/"],
)
def test_templates_have_a_form(namespaces: Any) -> None:
    good = {"semanticMemoryStrategy": {"name": "f", "namespaceTemplates": ["/facts/{actorId}/{sessionId}/"]}}
    check_templates([good, {"summaryMemoryStrategy": {"name": "s"}}])
    check_templates("none")
    bad = {"summaryMemoryStrategy": {"name": "s", "namespaces": namespaces}}
    with pytest.raises(Refused, match=r"memoryStrategies\.2\.member\.summaryMemoryStrategy\.namespaces"):
        check_templates([good, bad])


def test_the_newest_answers_are_remembered() -> None:
    answers = Answers(2)
    for key in "abc":
        answers.keep(key, key.upper())
    assert [answers.get(key) for key in "abc"] == [None, "B", "C"]


def test_tags_are_added_and_taken_away() -> None:
    assert changed({"a": "1", "b": "2"}, {"b": "3", "c": "4"}, ()) == {"a": "1", "b": "3", "c": "4"}
    assert changed({"a": "1", "b": "2"}, {}, keys_of({"tagKeys": ["b", "z"]})) == {"a": "1"}
    assert (keys_of({"tagKeys": "b"}), keys_of({})) == (["b"], [])
