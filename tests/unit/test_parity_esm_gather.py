"""How batches are gathered, on a clock that the test moves."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parity.esm_gather import MAX_RECEIVE, Batch, Gatherer, Held
from parity.esm_records import event_of, event_size, record_of, size_of


def held(name: str, *, since: float = 0, until: float = 1_000, size: int = 1, handle: str = "h") -> Held:
    return Held(name, handle, {}, size, since, until)


def names(batch: Batch | None) -> list[str] | None:
    return None if batch is None else [one.id for one in batch]


def test_without_a_window_a_batch_is_what_one_receive_gave() -> None:
    gatherer = Gatherer(10)
    assert gatherer.take(0) is None
    gatherer.add(held("a"))
    gatherer.add(held("b"))
    assert names(gatherer.take(0)) == ["a", "b"]
    assert gatherer.take(0) is None


def test_a_window_is_counted_from_the_first_message() -> None:
    gatherer = Gatherer(10, 2)
    gatherer.add(held("a", since=0))
    gatherer.add(held("b", since=1.5))
    assert gatherer.due() == 2
    assert gatherer.take(1.9) is None
    assert names(gatherer.take(2)) == ["a", "b"]
    assert gatherer.due() is None


def test_a_full_batch_does_not_wait_for_the_window() -> None:
    gatherer = Gatherer(2, 300)
    gatherer.add(held("a"))
    assert gatherer.room() == 1
    gatherer.add(held("b"))
    assert gatherer.room() == 0
    assert names(gatherer.take(0)) == ["a", "b"]


def test_what_does_not_fit_opens_the_next_batch() -> None:
    gatherer = Gatherer(10, 5, max_event=event_size(10))
    gatherer.add(held("a", size=6))
    gatherer.add(held("b", size=4))
    assert gatherer.take(0) is None  # full to the byte, but another one might still be empty
    gatherer.add(held("c", size=1, since=3))
    assert gatherer.room() == 0
    assert names(gatherer.take(3)) == ["a", "b"]
    assert gatherer.due() == 8
    assert names(gatherer.take(8)) == ["c"]


def test_a_single_message_that_is_too_large_goes_alone() -> None:
    gatherer = Gatherer(10, max_event=5)
    gatherer.add(held("a", size=50))
    gatherer.add(held("b", size=1))
    assert names(gatherer.take(0)) == ["a"]
    assert names(gatherer.take(0)) == ["b"]


def test_a_message_that_is_visible_again_is_let_go() -> None:
    gatherer = Gatherer(10, 5)
    gatherer.add(held("a", until=2))
    gatherer.add(held("b", since=1, until=100))
    assert gatherer.take(2) is None
    assert gatherer.due() == 6
    assert names(gatherer.take(6)) == ["b"]


def test_a_message_that_was_received_again_counts_once_and_the_window_goes_on() -> None:
    gatherer = Gatherer(10, 5)
    gatherer.add(held("a", until=2, size=3, handle="old"))
    gatherer.add(held("a", since=2, until=10, size=4, handle="new"))
    batch = gatherer.take(5)
    assert batch is not None
    assert [one.handle for one in batch] == ["new"]


SIZES = st.integers(1, 40)
ARRIVALS = st.lists(st.tuples(st.floats(0, 3), SIZES, st.floats(0.5, 20)), max_size=60)


@given(ARRIVALS, st.integers(1, 12), st.sampled_from([0, 1, 5]), st.booleans())
def test_no_message_is_lost_or_twice_and_the_limits_are_kept(
    arrivals: list[tuple[float, int, float]], batch_size: int, window: int, patient: bool
) -> None:
    """Messages arrive over time; those that are let go must have become visible again, and come back as receives."""
    gatherer = Gatherer(batch_size, window, max_event=event_size(100))
    now, taken, received = 0.0, Counter[str](), {}

    def take() -> None:
        while (batch := gatherer.take(now)) is not None:
            assert 1 <= len(batch) <= batch_size
            assert event_size(sum(one.size for one in batch)) <= event_size(100)
            assert all(one.until > now for one in batch)
            if len(batch) < batch_size and not len(gatherer):
                assert now >= batch[0].since + window
            taken.update(one.id for one in batch)

    for number, (pause, size, visible) in enumerate(arrivals):
        now += pause
        take()
        assert gatherer.room() <= MAX_RECEIVE
        if not gatherer.room():
            continue
        one = held(f"m{number}", since=now, until=now + (visible if patient else 1_000), size=size)
        received[one.id] = one
        gatherer.add(one)
    while len(gatherer):
        now += 1
        take()
    assert set(taken.values()) <= {1}
    assert all(received[name].until <= now for name in received.keys() - taken.keys())


def test_a_record_and_its_size() -> None:
    message = {
        "id": "id",
        "receipt_handle": "handle",
        "body": "été",
        "md5_body": "digest",
        "sent_at": 1.5,
        "first_receive_at": 2.0,
        "receive_count": 3,
        "message_attributes": {
            "Title": {"DataType": "String", "StringValue": "x"},
            "Blob": {"DataType": "Binary", "BinaryValue": b"\x00"},
        },
        "sys": {"SentTimestamp": "1500", "AWSTraceHeader": "Root=1", "DeadLetterQueueSourceArn": "arn:source"},
        "group_id": None,
    }
    arn = "arn:aws:sqs:eu-west-1:123456789012:work"
    record = record_of(message, arn=arn, digest="d", sender="123456789012")
    assert record == {
        "messageId": "id",
        "receiptHandle": "handle",
        "body": "été",
        "attributes": {
            "ApproximateReceiveCount": "3",
            "AWSTraceHeader": "Root=1",
            "SentTimestamp": "1500",
            "SenderId": "123456789012",
            "ApproximateFirstReceiveTimestamp": "2000",
            "DeadLetterQueueSourceArn": "arn:source",
        },
        "messageAttributes": {
            "Title": {"stringValue": "x", "stringListValues": [], "binaryListValues": [], "dataType": "String"},
            "Blob": {"binaryValue": "AA==", "stringListValues": [], "binaryListValues": [], "dataType": "Binary"},
        },
        "md5OfMessageAttributes": "d",
        "md5OfBody": "digest",
        "eventSource": "aws:sqs",
        "eventSourceARN": arn,
        "awsRegion": "eu-west-1",
    }
    assert list(event_of([record, record])) == ["Records"]


@pytest.mark.parametrize(("digest", "window", "has"), [("d", 0, "d"), (None, 0, False), (None, 1, None), ("d", 1, "d")])
def test_the_digest_of_the_attributes_is_absent_or_null_or_there(
    digest: str | None, window: int, has: str | bool | None
) -> None:
    message = {"id": "i", "receipt_handle": "h", "body": "b", "md5_body": "m", "sent_at": 1, "receive_count": 1}
    record = record_of(message, arn="arn:aws:sqs:us-east-1:1:q", digest=digest, window=window)
    assert record.get("md5OfMessageAttributes", False) == has


@given(st.lists(st.text(), max_size=5))
def test_the_size_of_an_event_is_that_of_its_json(bodies: list[str]) -> None:
    import json

    records = [{"body": body} for body in bodies]
    text = json.dumps(event_of(records), ensure_ascii=False, separators=(",", ":"))
    assert event_size(sum(map(size_of, records))) == len(text.encode("utf-8", "surrogatepass"))
