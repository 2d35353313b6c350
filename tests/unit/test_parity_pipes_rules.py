"""Paths, templates, states and outcomes of a pipe, without a stand-in."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parity import pipes_checks as checks
from parity import pipes_states as states
from parity.pipes_executions import MISSES, MISSING_FOR, Misses
from parity.pipes_run import came_back, ids_of, items_of
from parity.pipes_services import Failed, each
from parity.pipes_stages import array
from parity.pipes_template import MISSING, Template, Unrendered, look, view_of

NAMES = {"aws.pipes.pipe-name": "steps"}
EVENT = {"messageId": "m1", "body": json.dumps({"n": 7, "t": "x", "o": {"k": [1, 2]}, "l": [{"v": 1}, {"v": 2}]})}


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$.body.n", 7),
        ("$.body.o.k[1]", 2),
        ("$.body.l[*].v", [1, 2]),
        ("$.messageId", "m1"),
        ("$.body.none", MISSING),
        ("$.body.l[9]", MISSING),
        ("$.body[", MISSING),
    ],
)
def test_paths(path: str, value: Any) -> None:
    assert look(view_of(EVENT), path) == value


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ('{"a":<$.body.t>,"b":"<$.body.t>-<$.body.n>"}', '{"a":"x","b":"x-7"}'),
        ('{"a":<$.body.o>}', '{"a":{"k":[1,2]}}'),
        ('{"a":"it is <$.body.o>"}', '{"a":"it is {k:[1,2]}"}'),
        ('{"a":<$.none>,"b":"<$.none>"}', '{"a":"","b":""}'),
        ("<$.body.o>", "{k:[1,2]}"),
        ("<aws.pipes.pipe-name> <unknown>", "steps <unknown>"),
    ],
)
def test_templates(text: str, result: str) -> None:
    assert Template(text, NAMES).render(EVENT, 0) == result


def test_the_event_in_a_template() -> None:
    rendered = json.loads(Template('{"j":<aws.pipes.event.json>,"e":<aws.pipes.event>}', {}).render(EVENT, 0))
    assert rendered["e"] == EVENT
    assert rendered["j"] == {**EVENT, "body": json.loads(EVENT["body"])}


@given(st.text())
def test_any_body_goes_into_the_place_of_a_value(body: str) -> None:
    event = {"body": json.dumps({"t": body})}
    assert json.loads(Template('{"t":<$.body.t>}', {}).render(event, 0)) == {"t": body}


def test_a_poisoned_text_is_refused_and_not_delivered() -> None:
    with pytest.raises(Unrendered):
        Template('{"t":"<$.body.t>"}', {}).render({"body": json.dumps({"t": 'a"b'})}, 0)


@pytest.mark.parametrize("empty", ["", None, {}, []])
def test_an_empty_answer_sends_nothing_on(empty: Any) -> None:
    assert items_of(empty) == []


@pytest.mark.parametrize(("answer", "items"), [([{}], [{}]), ({"a": 1}, [{"a": 1}]), ("x", ["x"]), (0, [0])])
def test_other_answers_go_on(answer: Any, items: list[Any]) -> None:
    assert items_of(answer) == items


def test_what_comes_back() -> None:
    ids = ["a", "b", "c"]
    assert came_back({1}, ids, ids) == {"b"}
    assert came_back({0}, [None], ids) == set(ids)  # nobody knows which message that was
    assert came_back({"batchItemFailures": [{"itemIdentifier": "c"}]}, ids, ids) == {"c"}
    assert came_back({"batchItemFailures": [{"itemIdentifier": "?"}]}, ids, ids) == set(ids)
    for quiet in (None, "done", {"ok": True}, [1]):
        assert came_back(quiet, ids, ids) == set()
    assert ids_of([{"messageId": "b"}, {}, "x"], ids, enriched=True) == ["b", None, None]


def test_an_ordered_source_sends_nothing_after_a_failure() -> None:
    sent: list[int] = []

    def send(index: int) -> None:
        if index == 1:
            raise Failed("no")
        sent.append(index)

    assert each(4, send, ordered=True) == {1, 2, 3}
    assert sent == [0]
    sent.clear()
    assert each(4, send, ordered=False) == {1}


def test_a_batch_for_a_function_is_json() -> None:
    assert array(['{"a":1}']) == '[{"a":1}]'
    with pytest.raises(Failed):
        array(["{a:1}"])


def test_a_pipe_is_on_its_way_for_a_moment() -> None:
    pipe: dict[str, Any] = {"CurrentState": "STOPPED", "StateReason": None}
    states.move(pipe, "CREATING", "RUNNING", states.POLLER, 100.0)
    assert (states.state(pipe, 100.0), states.reason(pipe, 100.0), states.receives(pipe, 100.0)) == (
        "CREATING",
        None,
        False,
    )
    later = 100.0 + states.LAG
    assert (states.state(pipe, later), states.reason(pipe, later), states.receives(pipe, later)) == (
        "RUNNING",
        states.POLLER,
        True,
    )


def test_a_target_that_keeps_being_missing_stops_the_pipe_and_one_success_forgives() -> None:
    misses = Misses()
    for number in range(MISSES):
        assert not misses.enough(True, number / 10)
    assert misses.enough(True, MISSING_FOR)
    assert not misses.enough(False, MISSING_FOR)
    assert not misses.enough(True, 10 * MISSING_FOR)


@pytest.mark.parametrize(
    ("settings", "fifo", "refused"),
    [
        ({"BatchSize": 1}, True, False),
        ({"BatchSize": 1, "MaximumBatchingWindowInSeconds": 1}, True, True),
        ({"BatchSize": 11}, False, True),
        ({"BatchSize": 11, "MaximumBatchingWindowInSeconds": 1}, False, False),
    ],
)
def test_what_the_poller_refuses(settings: dict[str, int], fifo: bool, refused: bool) -> None:
    pipe = {"Target": "arn:aws:lambda:us-east-1:1:function:f", "SourceParameters": {"SqsQueueParameters": settings}}
    assert (checks.poller_refusal(pipe, {"is_fifo": fifo}) is not None) == refused
