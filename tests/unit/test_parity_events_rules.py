"""PutEvents, PutRule and PutTargets: the checks by themselves, and the form of the event."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from parity import events_envelope as envelope
from parity import events_put as put
from parity.events_http import failure_of_error, failure_of_status
from parity.events_put_targets import check_targets, last_of_each_id, page, unknown_ids
from parity.events_rules import Refused, bus_named, check_name

TEXTS = st.text(max_size=40)
ENTRIES = st.fixed_dictionaries(
    {"Source": TEXTS, "DetailType": TEXTS, "Detail": TEXTS},
    optional={"Time": st.integers(0, 2**31), "Resources": st.lists(TEXTS, max_size=3), "TraceHeader": TEXTS},
)
QUEUE = "arn:aws:sqs:us-east-1:123456789012:q"


@given(ENTRIES)
def test_size_of_an_entry(entry: dict) -> None:
    texts = [entry["Source"], entry["DetailType"], entry["Detail"], *entry.get("Resources", [])]
    expected = sum(len(text.encode("utf-8")) for text in texts) + (14 if "Time" in entry else 0)
    assert put.entry_size(entry) == expected


@given(st.integers(1, 10), st.integers(0, 20))
def test_the_limit_is_on_the_sum(entries: int, over: int) -> None:
    share, rest = divmod(put.MAX_BYTES - 10 + over, entries)
    request = [{"Detail": "x" * (share + (rest if number == 0 else 0))} for number in range(entries)]
    if over < 10:
        put.check_request(request)
    else:
        with pytest.raises(put.InvalidRequest, match="over the limit"):
            put.check_request(request)


@pytest.mark.parametrize(("count", "fits"), [(0, False), (1, True), (10, True), (11, False)])
def test_number_of_entries(count: int, fits: bool) -> None:
    if fits:
        put.check_request([{}] * count)
    else:
        with pytest.raises(put.InvalidRequest, match="1 validation error detected"):
            put.check_request([{}] * count)


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none()))
def test_objects_are_objects(detail: dict) -> None:
    assert put.is_object(json.dumps(detail))
    assert not put.is_object(json.dumps([detail]))
    assert not put.is_object(json.dumps(json.dumps(detail)))


@pytest.mark.parametrize(
    "detail",
    [
        *("", "x", "{{}", "[]", "1", "null", '{"a": NaN}', '{"a": 1} x', "[" * 100_000),
        *('{"a": 1e999}', '{"a": -Infinity}', r'{"a": "\ud800"}', r'{"\udc00": 1}', '{"a": "\ud800"}'),
        *('{"a": %s}' % ("9" * 5000), '{"a":' * 100_000),
    ],
    ids=lambda detail: detail[:15].encode("ascii", "replace").decode(),
)
def test_what_is_no_object(detail: str) -> None:
    assert not put.is_object(detail)


@pytest.mark.parametrize(
    ("moment", "seconds"),
    [
        (None, 7),
        (1_640_995_200, 1_640_995_200),
        (1_640_995_200.9, 1_640_995_200),
        ("1640995200.5", 1_640_995_200),
        ("2022-01-01T00:00:00Z", 1_640_995_200),
        ("2022-01-01", 1_640_995_200),
        (-0.5, -1),
    ],
)
def test_time_in_whole_seconds(moment: object, seconds: int) -> None:
    assert put.whole_seconds(moment, 7.9) == seconds


@pytest.mark.parametrize("moment", ["soon", "nan", "inf", 1e300, -1e300, 253_402_300_800, [], {}, True])
def test_what_is_no_time(moment: object) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        put.whole_seconds(moment, 0)


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("\ud800"),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
)
MEMBERS = st.sampled_from([*put.TEXTS, "Resources", "Time", "Else"])


@settings(deadline=None)
@given(ANYTHING | st.lists(st.dictionaries(MEMBERS, ANYTHING, max_size=4), max_size=12))
def test_whatever_is_put_is_refused_or_judged(entries: object) -> None:
    try:
        put.check_types(entries)
        put.check_request(entries)  # type: ignore[arg-type]
    except put.InvalidRequest as refused:
        str(refused).encode()
        return
    for entry in entries:  # type: ignore[attr-defined]
        if put.entry_error(entry) is None:
            json.dumps({name: entry.get(name) for name in put.TEXTS}, ensure_ascii=False).encode()


def test_order_of_members() -> None:
    event = dict.fromkeys(sorted(envelope.ORDER, reverse=True), 1) | {"else": 2}
    assert list(envelope.in_order(event)) == [*envelope.ORDER, "else"]
    del event["replay-name"]
    assert "replay-name" not in envelope.in_order(event)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("$", {"a": {"b": [1, {"c": None}], "x y": 2}}),
        ("$.a.b[0]", 1),
        ("$.a.b[1].c", None),
        ("$.a['x y']", 2),
        ("$.a.none", "default"),
        ("$.a.b[5]", "default"),
        ("$.a.b.c", "default"),
        ("$..a", "default"),
    ],
)
def test_input_path(path: str, value: object) -> None:
    assert envelope.at_path({"a": {"b": [1, {"c": None}], "x y": 2}}, path, "default") == value


def test_values_in_a_template() -> None:
    assert envelope.rendered("a", in_string=True) == "a"
    assert envelope.rendered("a", in_string=False) == '"a"'
    assert envelope.rendered({"a": ["b", 1]}, in_string=True) == "{a:[b,1]}"
    assert envelope.rendered({"a": ["ü"]}, in_string=False) == '{"a":["ü"]}'
    assert envelope.rendered(True, in_string=True) == "true"


@given(st.text(max_size=70))
def test_names(name: str) -> None:
    good = 1 <= len(name) <= 64 and all(char.isascii() and (char.isalnum() or char in ".-_") for char in name)
    if good:
        check_name(name, "name", 64)
    else:
        with pytest.raises(Refused):
            check_name(name, "name", 64)


def test_names_of_buses() -> None:
    arn = "arn:aws:events:us-east-1:123456789012:event-bus/fleet"
    assert bus_named(None, "1", "r") == bus_named("", "1", "r") == "default"
    assert bus_named("fleet", "1", "r") == "fleet"
    assert bus_named(arn, "123456789012", "us-east-1") == "fleet"
    for account, region in (("210987654321", "us-east-1"), ("123456789012", "eu-west-1")):
        with pytest.raises(Refused) as refused:
            bus_named(arn, account, region)
        assert refused.value.code == "ResourceNotFoundException"
    for bad in ("arn:aws:events", "arn:aws:sqs:r:1:event-bus/x", "arn:aws:events:r:1:rule/x"):
        with pytest.raises(Refused) as refused:
            bus_named(bad, "1", "r")
        assert refused.value.code == "ValidationException"


@given(st.sets(st.sampled_from("abcdefgh")), st.lists(st.sampled_from("abcdefgh"), max_size=8))
def test_five_targets(existing: set[str], new: list[str]) -> None:
    targets = [{"Id": identity, "Arn": QUEUE} for identity in new]
    if len(existing | set(new)) <= 5:
        check_targets(targets, existing, "us-east-1")
        assert [target["Id"] for target in last_of_each_id(targets)] == list(dict.fromkeys(new))
    else:
        with pytest.raises(Refused) as refused:
            check_targets(targets, existing, "us-east-1")
        assert refused.value.code == "LimitExceededException"


@pytest.mark.parametrize(
    "more",
    [
        {"Arn": f"{QUEUE}.fifo"},
        {"Arn": f"{QUEUE}.fifo", "SqsParameters": {}},
        {"Arn": "arn:aws:states:us-east-1:123456789012:stateMachine:m"},
        {"RetryPolicy": {"MaximumRetryAttempts": -1}},
        {"RetryPolicy": {"MaximumEventAgeInSeconds": 59}},
        {"DeadLetterConfig": {"Arn": f"{QUEUE}.fifo"}},
        {"DeadLetterConfig": {"Arn": "queue"}},
        {"Input": "{}", "InputPath": "$.detail"},
        {"InputTransformer": {"InputTemplate": "<none>"}},
    ],
)
def test_targets_that_are_refused(more: dict) -> None:
    with pytest.raises(Refused):
        check_targets([{"Id": "t", "Arn": QUEUE} | more], [], "us-east-1")


def test_removing_ids() -> None:
    assert unknown_ids("r", ["a", "b"], ["a"]) == [
        {
            "TargetId": "b",
            "ErrorCode": "ResourceNotFoundException",
            "ErrorMessage": "Rule 'r' does not have a target with the Id 'b'.",
        }
    ]


@given(st.lists(st.integers()), st.integers(1, 10))
def test_pages_hold_everything_once(items: list[int], limit: int) -> None:
    found, start = [], 0
    while start is not None:
        shown, start = page(items, start, limit)
        assert len(shown) <= limit
        found += shown
    assert found == items


@pytest.mark.parametrize("status", [200, 202, 204, 301, 400, 401, 403, 404, 407, 409, 422, 429, 500, 503, 599])
def test_http_statuses(status: int) -> None:
    failure = failure_of_status(status)
    if status < 300:
        assert failure is None
    else:
        assert failure is not None
        assert failure.retried == (status >= 500 or status in (401, 407, 409, 429))


def test_http_errors() -> None:
    assert failure_of_error(TimeoutError()).code == "TIMEOUT"
    assert failure_of_error(ConnectionRefusedError()).code == "CONNECTION_FAILURE"
    assert failure_of_error(ConnectionRefusedError()).retried
