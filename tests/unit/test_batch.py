"""The partial batch: what is tried, what is reported, what is logged; the same answers as Powertools gives."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, SqsFifoPartialProcessor
from aws_lambda_powertools.utilities.batch import process_partial_response as powertools
from aws_lambda_powertools.utilities.batch.exceptions import BatchProcessingError, UnexpectedBatchTypeError
from hypothesis import given
from hypothesis import strategies as st

from labkit.work.batch import AllFailed, BatchRefused, BatchResponseError, Record, check_response, process

QUEUE = "arn:aws:sqs:us-east-1:123456789012:work"


def record(name: str, body: Any = "{}", *, group: str | None = None, receives: int = 1, fifo: bool = False) -> Any:
    attributes = {"ApproximateReceiveCount": str(receives)}
    if group is not None:
        attributes["MessageGroupId"] = group
    return {
        "messageId": name,
        "receiptHandle": f"handle-{name}",
        "body": body if isinstance(body, str) else json.dumps(body),
        "attributes": attributes,
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": QUEUE + (".fifo" if fifo else ""),
        "awsRegion": "us-east-1",
    }


def lane(*names: str) -> dict[str, Any]:
    """A FIFO event; the first letter of each name is its group."""
    return {"Records": [record(name, group=name[0], fifo=True) for name in names]}


def ids(response: Any) -> list[str]:
    return [item["itemIdentifier"] for item in response["batchItemFailures"]]


def failing(*names: str, tried: list[str] | None = None) -> Callable[[Record], None]:
    def handle(got: Record) -> None:
        if tried is not None:
            tried.append(got.id)
        if got.id in names:
            raise ValueError(f"{got.id} cannot be done")

    return handle


def quiet(line: str) -> None:
    """A log that nobody reads."""


def test_the_others_are_done_and_only_what_failed_is_reported() -> None:
    tried: list[str] = []
    event = {"Records": [record(name) for name in "abcd"]}
    answer = process(event, failing("d", "b", tried=tried), log=quiet)
    assert answer == {"batchItemFailures": [{"itemIdentifier": "b"}, {"itemIdentifier": "d"}]}
    assert tried == ["a", "b", "c", "d"]
    assert process(event, failing(), log=quiet) == {"batchItemFailures": []}


def test_a_body_that_is_no_json_fails_its_own_record() -> None:
    event = {"Records": [record("a"), record("b", "{cut off"), record("c", "")]}
    said: list[Any] = []
    assert ids(process(event, lambda got: got.json(), log=said.append)) == ["b", "c"]
    assert "message b holds no JSON" in json.loads(said[0])["error"]


def test_a_parser_runs_inside_the_guard_and_makes_what_the_handler_takes() -> None:
    event = {"Records": [record("a", {"n": 1}), record("b", {"m": 1}), record("c", {"n": 3})]}
    numbers: list[int] = []
    answer = process(event, numbers.append, parse=lambda raw: json.loads(raw["body"])["n"], log=quiet)
    assert ids(answer) == ["b"]
    assert numbers == [1, 3]


@pytest.mark.parametrize(
    ("on_failure", "reported", "tried"),
    [
        ("group", ["a2", "a3", "b4"], ["a1", "b1", "a2", "b2", "b3", "b4", "c1"]),
        ("all", ["a2", "b2", "a3", "b3", "b4", "c1"], ["a1", "b1", "a2"]),
    ],
)
def test_how_far_a_failure_reaches_on_a_fifo_queue(on_failure: Any, reported: list[str], tried: list[str]) -> None:
    event = lane("a1", "b1", "a2", "b2", "a3", "b3", "b4", "c1")
    seen: list[str] = []
    answer = process(event, failing("a2", "b4", tried=seen), on_failure=on_failure, log=quiet)
    assert ids(answer) == reported
    assert seen == tried


def test_a_fifo_queue_is_known_by_its_arn_not_by_the_groups() -> None:
    """A fair queue is a standard queue whose messages have groups: nothing is held back there."""
    groups = {"Records": [record(name, group="tenant") for name in ("a", "b", "c")]}
    assert ids(process(groups, failing("a"), log=quiet)) == ["a"]
    assert ids(process(groups, failing("a"), fifo=True, log=quiet)) == ["a", "b", "c"]
    assert ids(process(lane("a1", "a2"), failing("a1"), fifo=False, log=quiet)) == ["a1"]


def test_what_a_record_holds() -> None:
    event = {"detail-type": "agent.step.requested", "detail": {"trace_id": "conv-7-step-2", "payload": {}}}
    raw = record("a", event, group="seven", receives=3)
    raw["messageAttributes"] = {"tenant": {"stringValue": "quiet", "dataType": "String"}}
    got = Record.of(raw)
    assert (got.id, got.trace_id, got.receives, got.group) == ("a", "conv-7-step-2", 3, "seven")
    assert got.attributes == {"tenant": "quiet"}
    assert got.json() == event
    assert got.raw["receiptHandle"] == "handle-a"


@pytest.mark.parametrize(
    ("body", "trace"),
    [
        ({"trace_id": "t-1"}, "t-1"),
        ({"detail": {"trace_id": "t-2"}, "trace_id": "outer"}, "t-2"),
        ({"detail": "text", "trace_id": "t-3"}, None),
        ({"trace_id": 7}, None),
        ([1, 2], None),
        ("no json", None),
        ("[" * 100_000, None),
    ],
)
def test_the_trace_is_found_where_it_is_and_nothing_breaks_where_it_is_not(body: Any, trace: str | None) -> None:
    assert Record.of(record("a", body)).trace_id == trace


def test_every_failure_is_one_line_with_message_trace_receives_error_and_stack() -> None:
    def handle(got: Record) -> None:
        raise KeyError("model\nname")

    said: list[str] = []
    process({"Records": [record("a", {"trace_id": "t-1"}, receives=2)]}, handle, log=said.append)
    [line] = said
    assert "\n" not in line
    fields = json.loads(line)
    assert fields["stack"].startswith("Traceback")
    assert "in handle" in fields.pop("stack")
    assert fields == {
        "batch": "record failed",
        "message_id": "a",
        "trace_id": "t-1",
        "receives": "2",
        "group": None,
        "error": "KeyError: 'model\\nname'",
    }


def test_what_was_not_tried_is_logged_with_what_it_waits_for() -> None:
    said: list[Any] = []
    process(lane("a1", "a2"), failing("a1"), log=lambda line: said.append(json.loads(line)))
    assert [(line["batch"], line["message_id"]) for line in said] == [
        ("record failed", "a1"),
        ("record not tried", "a2"),
    ]
    assert said[1]["error"] == "message a1 before it failed"


def test_without_being_told_it_logs_as_an_error(caplog: pytest.LogCaptureFixture) -> None:
    process({"Records": [record("a")]}, failing("a"))
    [entry] = caplog.records
    assert entry.levelname == "ERROR"
    assert json.loads(entry.getMessage())["message_id"] == "a"


def test_an_error_that_cannot_say_what_it_is_is_reported_like_any_other() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError("no")

    def handle(got: Record) -> None:
        raise Mute

    said: list[str] = []
    assert ids(process({"Records": [record("a"), record("b")]}, handle, log=said.append)) == ["a", "b"]
    assert "Mute" in said[0]


def test_an_error_with_a_megabyte_to_say_does_not_fill_the_log() -> None:
    def handle(got: Record) -> None:
        raise ValueError("x" * 1_000_000)

    said: list[str] = []
    process({"Records": [record("a")]}, handle, log=said.append)
    assert len(said[0]) < 20_000


def test_all_of_it_failing_is_an_error_only_if_asked_for() -> None:
    event = {"Records": [record("a"), record("b")]}
    assert ids(process(event, failing("a", "b"), log=quiet)) == ["a", "b"]
    with pytest.raises(AllFailed, match=r"all 2 records failed; the first one: ValueError: a cannot be done") as caught:
        process(event, failing("a", "b"), log=quiet, raise_when_all_fail=True)
    assert ids(caught.value.response) == ["a", "b"]
    assert isinstance(caught.value.__cause__, ValueError)
    assert ids(process(event, failing("b"), log=quiet, raise_when_all_fail=True)) == ["b"]
    assert process({"Records": []}, failing(), raise_when_all_fail=True) == {"batchItemFailures": []}


def test_an_interrupt_is_not_a_failed_record() -> None:
    def handle(got: Record) -> None:
        raise SystemExit(1)

    with pytest.raises(SystemExit):
        process({"Records": [record("a")]}, handle, log=quiet)


def test_a_handler_that_would_have_to_be_awaited_has_not_run() -> None:
    async def handle(got: Record) -> None:
        raise AssertionError("never reached")

    said: list[str] = []
    assert ids(process({"Records": [record("a")]}, handle, log=said.append)) == ["a"]
    assert "handle is asynchronous and was not run" in said[0]


@pytest.mark.parametrize("event", [None, [], {}, {"Records": None}, {"Records": {}}, {"detail": {}}])
def test_what_is_no_event_of_a_queue_is_a_sentence(event: Any) -> None:
    with pytest.raises(BatchRefused, match="has a list Records"):
        process(event, failing())


@pytest.mark.parametrize("raw", [None, {}, {"messageId": ""}, {"messageId": 7}, {"Sns": {}}])
def test_a_record_that_could_not_be_reported_stops_the_batch_before_anything_is_done(raw: Any) -> None:
    tried: list[str] = []
    with pytest.raises(BatchRefused, match=r"Records\[1\] has no messageId"):
        process({"Records": [record("a"), raw]}, failing(tried=tried))
    assert tried == []


def test_an_unknown_reach_is_a_sentence() -> None:
    with pytest.raises(BatchRefused, match="on_failure is 'queue'; it can be 'group' or 'all'"):
        process(lane("a1"), failing(), on_failure="queue")  # type: ignore[arg-type]


BATCH = {"Records": [record("a"), record("b")]}


@pytest.mark.parametrize(
    ("response", "says", "messages"),
    [
        (None, "is empty", "deleted"),
        ({}, "is empty", "deleted"),
        ({"batchItemFailures": None}, "has no list batchItemFailures", "deleted"),
        ({"BatchItemFailures": [{"itemIdentifier": "a"}]}, "it has 'BatchItemFailures'", "deleted"),
        ({"statusCode": 200, "body": "{}"}, "it has 'statusCode', 'body'", "deleted"),
        ("done", "no object but 'done'", "returned"),
        ([{"itemIdentifier": "a"}], "no object", "returned"),
        ({"batchItemFailures": "a"}, "no list but 'a'", "returned"),
        ({"batchItemFailures": {"itemIdentifier": "a"}}, "no list", "returned"),
        ({"batchItemFailures": ["a"]}, r"batchItemFailures\[0\] has no itemIdentifier", "returned"),
        ({"batchItemFailures": [{"messageId": "a"}]}, "it is {'messageId': 'a'}", "returned"),
        ({"batchItemFailures": [{"itemIdentifier": ""}]}, "itemIdentifier is ''", "returned"),
        ({"batchItemFailures": [{"itemIdentifier": None}]}, "itemIdentifier is None", "returned"),
        ({"batchItemFailures": [{"itemIdentifier": "a"}, {"itemIdentifier": "handle-b"}]}, r"\[1\] names", "returned"),
        ({"batchItemFailures": [{"itemIdentifier": {"a"}}]}, "not what JSON can hold", "returned"),
    ],
)
def test_an_answer_that_lambda_would_misread_is_named_with_what_would_happen(
    response: Any, says: str, messages: str
) -> None:
    with pytest.raises(BatchResponseError, match=says) as caught:
        check_response(response, BATCH)
    assert caught.value.messages == messages
    assert ("return every message" in str(caught.value)) == (messages == "returned")


@pytest.mark.parametrize("named", [[], ["a"], ["b", "a"]])
def test_a_right_answer_is_given_back(named: list[str]) -> None:
    response = {"batchItemFailures": [{"itemIdentifier": name} for name in named]}
    assert check_response(response, BATCH) is response


# --- the same events, the same answers as Powertools for AWS Lambda ---------------------------------------------------

NAMES = [f"m{index}" for index in range(10)]


@st.composite
def batches(draw: st.DrawFn, *, fifo: bool) -> tuple[dict[str, Any], set[str]]:
    """An event of 1 to 10 records in up to three groups, and which of them fail; some bodies are no JSON."""
    names = draw(st.permutations(NAMES))[: draw(st.integers(1, 10))]
    bodies = st.sampled_from(["{}", '{"detail": {"trace_id": "t"}}', "{cut off", ""])
    records = [record(name, draw(bodies), group=draw(st.sampled_from("xyz")), fifo=fifo) for name in names]
    return {"Records": records}, draw(st.sets(st.sampled_from(names)))


def both(event: dict[str, Any], failing: set[str], processor: BatchProcessor, **ours: Any) -> tuple[Any, Any]:
    """What Powertools and what labkit make of it: the answer and what was tried, or that all of it failed."""
    calls: list[list[str]] = [[], []]

    def run(index: int, name: str, load: Callable[[], Any]) -> None:
        calls[index].append(name)
        load()
        if name in failing:
            raise ValueError(name)

    def theirs(record: Any) -> None:
        run(0, record.message_id, lambda: json.loads(record.body))

    answers: list[Any] = []
    for attempt in (
        lambda: powertools(event, theirs, processor),
        lambda: process(event, lambda got: run(1, got.id, got.json), log=quiet, **ours),
    ):
        try:
            answers.append(attempt())
        except (BatchProcessingError, AllFailed):
            answers.append("all failed")
    return (answers[0], calls[0]), (answers[1], calls[1])


@given(batches(fifo=False))
def test_a_standard_queue_is_answered_as_by_powertools(case: tuple[dict[str, Any], set[str]]) -> None:
    theirs, ours = both(*case, BatchProcessor(EventType.SQS, raise_on_entire_batch_failure=False))
    assert ours == theirs
    assert check_response(ours[0], case[0]) == theirs[0]


@pytest.mark.parametrize(("skip_group", "on_failure"), [(True, "group"), (False, "all")])
@given(batches(fifo=True))
def test_a_fifo_queue_is_answered_as_by_powertools(
    skip_group: bool, on_failure: str, case: tuple[dict[str, Any], set[str]]
) -> None:
    processor = SqsFifoPartialProcessor(skip_group_on_error=skip_group)
    processor.raise_on_entire_batch_failure = False  # its constructor does not take it
    theirs, ours = both(*case, processor, on_failure=on_failure)
    assert ours == theirs
    assert check_response(ours[0], case[0]) == theirs[0]


@given(batches(fifo=False))
def test_powertools_raises_by_default_when_labkit_does_if_asked(case: tuple[dict[str, Any], set[str]]) -> None:
    theirs, ours = both(*case, BatchProcessor(EventType.SQS), raise_when_all_fail=True)
    assert ours == theirs


def test_where_the_two_differ() -> None:
    """Nothing to do is an error to Powertools; a handler that must be awaited has succeeded, unrun; so has, on a FIFO
    queue told to go on with other groups, whatever is behind a failure without a group (which SQS does not send)."""
    with pytest.raises(UnexpectedBatchTypeError):
        powertools({"Records": []}, failing(), BatchProcessor(EventType.SQS))
    assert process({"Records": []}, failing()) == {"batchItemFailures": []}

    async def later(record: Any) -> None: ...

    held: list[Any] = []

    def remembered(record: Any) -> Any:
        held.append(later(record))
        return held[-1]

    assert powertools(BATCH, remembered, BatchProcessor(EventType.SQS)) == {"batchItemFailures": []}
    assert ids(process(BATCH, remembered, log=quiet)) == ["a", "b"]
    for coroutine in held:
        coroutine.close()

    def fails_at_a(record: Any) -> None:
        if (record.id if isinstance(record, Record) else record.message_id) == "a":
            raise ValueError

    groupless = {"Records": [record(name, fifo=True) for name in "ab"]}
    assert ids(powertools(groupless, fails_at_a, SqsFifoPartialProcessor(skip_group_on_error=True))) == ["a"]
    assert ids(process(groupless, fails_at_a, log=quiet)) == ["a", "b"]


def test_a_function_that_takes_it_along_takes_nothing_else() -> None:
    script = (
        "import sys; before = set(sys.modules); import labkit.work.batch;"
        "new = {name.split('.')[0] for name in set(sys.modules) - before};"
        "print(sorted(new - set(sys.stdlib_module_names)));"
        "print(sorted(name for name in sys.modules if name.startswith('labkit')))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "['labkit']",
        "['labkit', 'labkit.errors', 'labkit.facts', 'labkit.work', 'labkit.work.batch']",
    ]
