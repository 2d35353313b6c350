"""What a mapping may be, what states it passes through, and what its filter sees: the pure parts."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from parity.esm_api import changed, shown
from parity.esm_checks import Refused, check_mapping, check_request, check_timeouts
from parity.esm_filter import JSON_BODY, NO_BODY, TEXT_BODY, Filter, body_format, patterns_of, view_of
from parity.esm_pollers import Hands, settings_of
from parity.esm_states import LAG, TRANSITION, after_update, deleted, receives, settled, state, transition
from parity.sqs_mailbox import Mailbox

PLAIN = {"BatchSize": 10, "MaximumBatchingWindowInSeconds": 0, "FunctionResponseTypes": []}


def refusal(request: dict[str, Any], *, refuses: Any = lambda pattern: False) -> str | None:
    try:
        check_request(request, refuses)
    except Refused as refused:
        return refused.code
    return None


@pytest.mark.parametrize(
    "request_",
    [
        {},
        {"BatchSize": 1},
        {"BatchSize": 10_000},
        {"MaximumBatchingWindowInSeconds": 300},
        {"ScalingConfig": {}},
        {"ScalingConfig": {"MaximumConcurrency": 2}},
        {"ProvisionedPollerConfig": {"MaximumPollers": 10_000}},
        {"FunctionResponseTypes": ["ReportBatchItemFailures"]},
        {"FilterCriteria": {"Filters": [{"Pattern": "p"}] * 5}},
        {"FilterCriteria": {}},
        {"DestinationConfig": {}},
    ],
)
def test_good_requests(request_: dict[str, Any]) -> None:
    assert refusal(request_) is None


@pytest.mark.parametrize(
    "request_",
    [
        {"BatchSize": 0},
        {"BatchSize": 10_001},
        {"BatchSize": "5"},
        {"BatchSize": True},
        {"MaximumBatchingWindowInSeconds": -1},
        {"MaximumBatchingWindowInSeconds": 301},
        {"ScalingConfig": {"MaximumConcurrency": 1}},
        {"ScalingConfig": {"MaximumConcurrency": 1_001}},
        {"ProvisionedPollerConfig": {"MinimumPollers": 201}},
        {"FunctionResponseTypes": ["Everything"]},
        {"FilterCriteria": {"Filters": [{"Pattern": "x" * 4_097}]}},
    ],
)
def test_what_the_service_model_refuses(request_: dict[str, Any]) -> None:
    assert refusal(request_) == "ValidationException"


@pytest.mark.parametrize(
    "request_",
    [
        {"FilterCriteria": {"Filters": [{"Pattern": "p"}] * 6}},
        {"FilterCriteria": {"Filters": [{}]}},
        {"MaximumRetryAttempts": 3},
        {"StartingPosition": "LATEST"},
    ],
)
def test_what_a_queue_does_not_have(request_: dict[str, Any]) -> None:
    assert refusal(request_, refuses=lambda pattern: not pattern) == "InvalidParameterValueException"


@pytest.mark.parametrize(
    ("changes", "fifo", "good"),
    [
        ({}, False, True),
        ({"BatchSize": 11}, False, False),
        ({"BatchSize": 11, "MaximumBatchingWindowInSeconds": 1}, False, True),
        ({"BatchSize": 11}, True, False),
        ({"MaximumBatchingWindowInSeconds": 1}, True, False),
        ({"ScalingConfig": {"MaximumConcurrency": 2}, "ProvisionedPollerConfig": {"MinimumPollers": 2}}, False, False),
        ({"ProvisionedPollerConfig": {"MinimumPollers": 1}}, False, False),
        ({"ProvisionedPollerConfig": {"MaximumPollers": 1}}, False, False),
        ({"ProvisionedPollerConfig": {"MinimumPollers": 3, "MaximumPollers": 2}}, False, False),
        ({"ProvisionedPollerConfig": {"MinimumPollers": 2, "MaximumPollers": 2}}, True, True),
    ],
)
def test_members_that_must_go_together(changes: dict[str, Any], fifo: bool, good: bool) -> None:
    if good:
        check_mapping(PLAIN | changes, fifo=fifo)
    else:
        with pytest.raises(Refused):
            check_mapping(PLAIN | changes, fifo=fifo)


def test_the_visibility_timeout_covers_the_functions_timeout() -> None:
    check_timeouts(30, 30)
    with pytest.raises(Refused, match="Queue visibility timeout: 29 seconds is less than Function timeout: 30 seconds"):
        check_timeouts(29, 30)


# -- states --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("enabled", "name", "meanwhile", "afterwards", "polls"),
    [
        (True, "Creating", "Creating", "Enabled", False),
        (True, "Enabling", "Enabling", "Enabled", False),
        (True, "Updating", "Updating", "Enabled", True),
        (False, "Updating", "Updating", "Disabled", False),
        (False, "Disabling", "Disabling", "Disabled", False),
    ],
)
def test_a_transition_takes_its_time(enabled: bool, name: str, meanwhile: str, afterwards: str, polls: bool) -> None:
    mapping = {"Enabled": enabled, TRANSITION: transition(name, 100)}
    assert (state(mapping, 100), settled(mapping, 100), receives(mapping, 100)) == (meanwhile, False, polls)
    later = 100 + LAG
    assert (state(mapping, later), settled(mapping, later), receives(mapping, later)) == (afterwards, True, enabled)


def test_a_deletion_is_readable_until_it_is_done() -> None:
    mapping = {"Enabled": False, TRANSITION: transition("Deleting", 100)}
    assert (state(mapping, 100), deleted(mapping, 100), settled(mapping, 100)) == ("Deleting", False, False)
    assert deleted(mapping, 100 + LAG)
    assert not settled(mapping, 100 + LAG)


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [(True, True, "Updating"), (False, False, "Updating"), (True, False, "Disabling"), (False, True, "Enabling")],
)
def test_the_state_of_an_update(before: bool, after: bool, name: str) -> None:
    assert after_update({"Enabled": before}, {"Enabled": after}) == name


# -- members -------------------------------------------------------------------------------------------------------


def test_a_change_keeps_what_it_does_not_name_and_an_empty_object_removes() -> None:
    scaling, criteria = {"MaximumConcurrency": 3}, {"Filters": [{"Pattern": "p"}]}
    before = PLAIN | {"ScalingConfig": scaling, "FilterCriteria": criteria, "Enabled": True, "UUID": "u"}
    assert changed(before, {"BatchSize": 3}) == before | {"BatchSize": 3}
    after = changed(before, {"ScalingConfig": {}, "FilterCriteria": {"Filters": []}, "Enabled": False, "UUID": "other"})
    assert after == PLAIN | {"Enabled": False, "UUID": "u"}


def test_answers_show_no_members_of_ours() -> None:
    mapping = PLAIN | {"UUID": "u", "FunctionName": "f", "Qualifier": None, TRANSITION: transition("Creating", 1)}
    assert shown(mapping, "arn", 1) == PLAIN | {
        "UUID": "u",
        "EventSourceMappingArn": "arn",
        "State": "Creating",
        "StateTransitionReason": "USER_INITIATED",
    }


def test_settings_of_a_record_that_somebody_else_made() -> None:
    settings = settings_of({"BatchSize": "7", "FunctionResponseTypes": None}, fifo=True)
    assert (settings.batch_size, settings.window, settings.reports, settings.fifo) == (7, 0, False, True)


# -- filters -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "wants"),
    [
        ({"body": {"k": ["v"]}}, JSON_BODY),
        ({"body": ["text"]}, TEXT_BODY),
        ({"messageId": ["m"]}, NO_BODY),
    ],
)
def test_what_a_pattern_wants_of_the_body(pattern: dict[str, Any], wants: str) -> None:
    assert body_format(json.dumps(pattern)) == wants


@pytest.mark.parametrize("pattern", ["", "null", "text", "[1]"])
def test_what_is_no_pattern_wants_nothing(pattern: str) -> None:
    assert body_format(pattern) == NO_BODY


@pytest.mark.parametrize(
    ("body", "format_", "seen"),
    [
        ('{"k": 1}', JSON_BODY, {"k": 1}),
        ("[1]", JSON_BODY, [1]),
        ("42", TEXT_BODY, "42"),
        ("null", TEXT_BODY, "null"),
        ("{broken", TEXT_BODY, "{broken"),
        ("[" * 100_000, TEXT_BODY, "[" * 100_000),
    ],
)
def test_what_a_pattern_sees_of_the_body(body: str, format_: str, seen: Any) -> None:
    found, view = view_of({"body": body, "messageId": "m"})
    assert (found, view["body"], view["messageId"]) == (format_, seen, "m")


@pytest.mark.parametrize(("body", "taken"), [('{"k": 1}', {JSON_BODY, NO_BODY}), ("plain", {TEXT_BODY, NO_BODY})])
def test_both_sides_must_agree_on_the_format(body: str, taken: set[str]) -> None:
    patterns = {JSON_BODY: '{"body": {"k": [1]}}', TEXT_BODY: '{"body": ["plain"]}', NO_BODY: '{"messageId": ["m"]}'}
    for name, pattern in patterns.items():
        asked: list[str] = []

        def matches(pattern: str, record: Any, asked: list[str] = asked) -> bool:
            asked.append(pattern)
            return True

        assert Filter([pattern], matches).takes({"body": body}) == (name in taken)
        assert bool(asked) == (name in taken)


def test_filters_are_joined_by_or_and_none_takes_all() -> None:
    wanted = Filter(["a", "b"], lambda pattern, record: record["body"] == pattern)
    assert [wanted.takes({"body": body}) for body in "abc"] == [True, True, False]
    assert Filter([], lambda pattern, record: False).takes({"body": "x"})
    assert patterns_of({"FilterCriteria": {"Filters": [{"Pattern": "p"}, {}]}}) == ["p", ""]
    assert patterns_of({}) == []


# -- hands ---------------------------------------------------------------------------------------------------------


def test_a_mapping_that_is_shown_as_disabled_takes_nothing_although_its_poller_has_not_been_stopped_yet() -> None:
    asked: list[int] = []
    sqs = SimpleNamespace(_receive_messages_for_esm=lambda url, limit: asked.append(limit) or [])
    functions = SimpleNamespace(_get_func_record_for_qualifier=lambda name, qualifier: ({"code": b""}, {}))
    arn = "arn:aws:sqs:us-east-1:000000000000:work"
    queue = {"url": "url", "is_fifo": False, "attributes": {"QueueArn": arn}, "messages": Mailbox(arn, fifo=False)}
    mapping = PLAIN | {"FunctionName": "f", "Enabled": True}
    key = ("000000000000", "us-east-1", "uuid")
    hands = Hands(key, mapping, queue, lambda account, region: nullcontext(), sqs, functions)
    assert hands.receive(10) == []
    assert (asked, hands.idle) == ([10], False)
    mapping["Enabled"] = False
    assert hands.receive(10) == []
    assert (asked, hands.idle) == ([10], True)  # and it is looked after when the mapping is enabled again
