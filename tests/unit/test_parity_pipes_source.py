"""The source of a pipe in another emulator, its metrics and its calls: without an emulator."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from parity import pipes_source
from parity.esm_gather import Held
from parity.pipes_beside import Beside
from parity.pipes_ledger import Ledger, requests
from parity.pipes_services import Failed, Throttled, Unreached, Unsupported, refusal
from parity.pipes_source import BesideSource, held_of

ARN = "arn:aws:sqs:us-east-1:123456789012:source"


def message(number: int) -> dict[str, Any]:
    return {"MessageId": f"m{number}", "ReceiptHandle": f"h{number}", "Body": str(number), "Attributes": {}}


class Queue:
    """A queue whose long poll lasts for 50 ms; ``fault`` is raised by whatever is called."""

    arn = ARN

    def __init__(self) -> None:
        self.waiting: list[dict[str, Any]] = []
        self.fault: Exception | None = None
        self.receives: list[int] = []
        self.deleted: list[str] = []
        self.given_back: list[str] = []
        self.poll = 0.05
        self.polling = threading.Event()
        self.calls = 0

    def _called(self) -> None:
        self.calls += 1
        if self.fault is not None:
            raise self.fault

    def receive(self, limit: int, wait: int, hidden: int | None) -> list[Mapping[str, Any]]:
        self.receives.append(limit)
        self._called()
        self.polling.set()
        if not self.waiting:
            time.sleep(self.poll)
        taken = self.waiting[:limit]
        del self.waiting[:limit]
        return taken

    def delete(self, handles: Sequence[str]) -> None:
        self._called()
        self.deleted += handles

    def give_back(self, handles: Sequence[str]) -> None:
        self.given_back += handles

    def visibility(self) -> int:
        self._called()
        return 30

    def prepare(self) -> None:
        assert self.receives == []


def until(look: Callable[[], Any]) -> None:
    end = time.monotonic() + 30
    while not look():
        assert time.monotonic() < end, "did not come true in time"
        time.sleep(0.005)


@pytest.fixture
def queue(monkeypatch: pytest.MonkeyPatch) -> Queue:
    monkeypatch.setattr(pipes_source, "PAUSE", 0.05)
    monkeypatch.setattr(pipes_source, "QUICK", 0.02)
    return Queue()


gone: list[str] = []


@pytest.fixture
def source(queue: Queue) -> Iterator[BesideSource]:
    gone.clear()
    made = BesideSource(queue, "pipe", lambda: gone.append(queue.arn))
    yield made
    made.close()
    assert made.ended(30)


def taken(source: BesideSource, limit: int, number: int) -> list[Held]:
    """Receive as a poller does, until there are ``number``."""
    found: list[Held] = []

    def look() -> bool:
        found.extend(source.receive(limit))
        return len(found) >= number

    until(look)
    return found


def test_nothing_is_received_that_nobody_has_room_for(queue: Queue, source: BesideSource) -> None:
    queue.waiting = [message(number) for number in range(5)]
    time.sleep(0.1)
    assert queue.receives == []
    assert [held.id for held in taken(source, 3, 3)] == ["m0", "m1", "m2"]
    time.sleep(0.1)
    assert queue.receives == [3]
    assert len(queue.waiting) == 2


def test_the_poller_is_woken_once(queue: Queue, source: BesideSource) -> None:
    woken: list[float] = []
    source.on_change(lambda: woken.append(time.monotonic()))
    assert source.receive(10) == []
    queue.waiting = [message(0)]
    until(lambda: woken)
    assert [held.id for held in source.receive(10)] == ["m0"]
    source.receive(10)
    queue.waiting = [message(1)]
    until(lambda: source.backlog() or not queue.waiting)
    assert len(woken) == 1


def test_what_the_filter_does_not_take_is_deleted(queue: Queue, source: BesideSource) -> None:
    left_to_the_poller = source.configure(0, lambda record: record["body"] == "3")
    queue.waiting = [message(number) for number in range(6)]
    assert [held.id for held in taken(source, 2, 1)] == ["m3"]
    until(lambda: len(queue.deleted) >= 3)
    assert "h3" not in queue.deleted
    assert left_to_the_poller({})


@pytest.mark.parametrize("fault", [Unreached("nobody there"), Throttled("slower"), Failed("AccessDenied: no")])
def test_a_queue_that_does_not_answer_is_asked_again_with_a_pause(
    queue: Queue, source: BesideSource, fault: Exception
) -> None:
    queue.fault, queue.waiting = fault, [message(0)]
    began = time.monotonic()
    source.receive(1)
    until(lambda: queue.calls >= 4)
    calls = queue.calls
    assert calls - 1 <= (time.monotonic() - began) / pipes_source.PAUSE
    queue.fault = None
    assert [held.id for held in taken(source, 1, 1)] == ["m0"]
    assert gone == []


def test_a_long_poll_that_does_not_wait_makes_no_busy_loop(queue: Queue, source: BesideSource) -> None:
    queue.poll = 0
    began = time.monotonic()
    source.receive(1)
    until(lambda: len(queue.receives) >= 5)
    polls = len(queue.receives)
    assert polls - 1 <= (time.monotonic() - began) / pipes_source.QUICK


def test_a_queue_that_does_not_exist_ends_it(queue: Queue, source: BesideSource) -> None:
    queue.fault = refusal("AWS.SimpleQueueService.NonExistentQueue", "no such queue")
    source.receive(1)
    until(lambda: gone == [ARN])
    assert source.ended(30)


def test_what_comes_in_at_the_end_is_given_back(queue: Queue, source: BesideSource) -> None:
    queue.poll = 0.3
    source.receive(10)
    assert queue.polling.wait(30)
    queue.waiting = [message(0), message(1)]
    source.close()
    assert source.ended(30)
    assert (queue.given_back, queue.deleted) == (["h0", "h1"], [])


def test_a_delete_that_reaches_nobody_is_made_again(queue: Queue, source: BesideSource) -> None:
    batch = [held_of(message(number), ARN, 0, 0, time.time() + 30) for number in range(12)]
    queue.fault = Unreached("nobody there")
    working = threading.Thread(target=source.delete, args=(batch,))
    working.start()
    until(lambda: queue.calls >= 2)
    queue.fault = None
    working.join(30)
    assert queue.deleted == [f"h{number}" for number in range(12)]
    queue.fault = Unreached("nobody there")
    source.delete([held_of(message(99), ARN, 0, 0, time.time() - 1)])  # visible again: no use in waiting
    assert "h99" not in queue.deleted


def test_the_record_has_the_words_of_the_queue() -> None:
    said = {
        "ApproximateReceiveCount": "2",
        "SentTimestamp": "1764589123457",
        "ApproximateFirstReceiveTimestamp": "1764589123459",
        "SenderId": "AIDA",
        "MessageGroupId": "g",
        "SequenceNumber": "18",
        "MessageDeduplicationId": "d",
        "SomethingNew": "x",
    }
    given = {"StringValue": "1", "DataType": "Number"}
    shown = {**message(1), "Attributes": said, "MessageAttributes": {"n": given}, "MD5OfMessageAttributes": "abc"}
    record = held_of(shown, ARN, 0, 0, 1).record
    assert record["attributes"] == {name: value for name, value in said.items() if name != "SomethingNew"}
    assert record["messageAttributes"]["n"]["stringValue"] == "1"
    assert (record["md5OfMessageAttributes"], record["eventSourceARN"]) == ("abc", ARN)
    assert (record["eventSource"], record["awsRegion"], record["body"]) == ("aws:sqs", "us-east-1", "1")


@pytest.mark.parametrize(
    ("code", "kind", "missing"),
    [
        ("TooManyRequestsException", Throttled, False),
        ("ExecutionLimitExceeded", Throttled, False),
        ("StateMachineTypeNotSupported", Unsupported, False),
        ("StateMachineDoesNotExist", Failed, True),
        ("ResourceNotFoundException", Failed, True),
        ("AccessDenied", Failed, False),
    ],
)
def test_what_an_error_means_to_a_pipe(code: str, kind: type, missing: bool) -> None:
    error = refusal(code, "text")
    assert type(error) is kind
    assert getattr(error, "missing", False) is missing


def test_a_thousand_counts_are_one_call_and_none_is_lost() -> None:
    calls: list[tuple[str, str, str, list[dict[str, Any]]]] = []
    refusals = [Unreached("nobody there"), Unreached("nobody there")]
    counted = threading.Event()

    def put(*call: Any) -> None:
        assert counted.wait(30)
        if refusals:
            raise refusals.pop()
        calls.append(call)

    ledger = Ledger(put, every=0.02)
    for number in range(1000):
        ledger.count(("1", "r"), "AWS/EventBridge/Pipes", "Invocations", {"PipeName": "p"}, number % 2, "Count")
    counted.set()
    until(lambda: sum(sum(datum["Counts"]) for call in calls for datum in call[3]) == 1000)
    assert len(calls) <= 2  # the second one has what was counted while the first was made
    until(lambda: "pipes-metrics" not in [thread.name for thread in threading.enumerate()])


def test_one_point_holds_150_values() -> None:
    point = ("N", "Duration", (("PipeName", "p"),), "Milliseconds", 0.0)
    [(namespace, data)] = requests({point: {float(number): 1 for number in range(151)}})
    assert namespace == "N"
    assert [len(datum["Values"]) for datum in data] == [150, 1]


class Sending:
    """A neighbour with a queue; it refuses what ``bad`` says."""

    def __init__(self, *, batches: bool) -> None:
        self.batches = batches
        self.sent: list[str] = []

    def ask(self, service: str, operation: str, account: str, region: str, **members: Any) -> dict[str, Any]:
        from parity.neighbour import Refused

        assert (account, region) == ("1", "us-east-1")
        if operation == "get_queue_url":
            return {"QueueUrl": "url"}
        if operation == "send_message":
            if members["MessageBody"] == "bad":
                raise Refused("InvalidMessageContents", "bad")
            self.sent.append(members["MessageBody"])
            return {}
        bad = [entry for entry in members["Entries"] if entry["MessageBody"] == "bad"]
        if bad and not self.batches:
            raise Refused("InvalidMessageContents", "bad")
        self.sent += [entry["MessageBody"] for entry in members["Entries"] if entry not in bad]
        return {"Failed": [{"Id": entry["Id"]} for entry in bad]}


@pytest.mark.parametrize("batches", [True, False])
@pytest.mark.parametrize(("ordered", "refused", "sent"), [(False, {1}, ["a", "c"]), (True, {1, 2}, ["a"])])
def test_of_a_batch_what_is_bad_comes_back(batches: bool, ordered: bool, refused: set[int], sent: list[str]) -> None:
    neighbour = Sending(batches=batches)
    services = Beside(neighbour, lambda: ("1", "us-east-1"))  # type: ignore[arg-type]
    messages = [{"MessageBody": body} for body in ("a", "bad", "c")]
    assert services.send(ARN, messages, ordered=ordered) == refused
    assert neighbour.sent == sent
