"""Requests, policies, move tasks, metrics and alarms of SQS: the arithmetic, without a server."""

from __future__ import annotations

import base64
import json
import threading
import time
from typing import Any

import pytest
from parity import metrics, metrics_alarms
from parity.sqs_errors import SqsError
from parity.sqs_mailbox import Mailbox
from parity.sqs_move_checks import read_handle
from parity.sqs_move_tasks import MoveTask, Tasks, run
from parity.sqs_policies import Source, admits, check_allow_policy, check_redrive_policy
from parity.sqs_purge import PAUSE, Pause
from parity.sqs_queues import page
from parity.sqs_requests import batch_result, check_batch, size_of
from parity.sqs_wire import json_error, query_code, xml_error

WORK, DEAD = (f"arn:aws:sqs:us-east-1:000000000000:{name}" for name in ("work", "dead"))


def queue(arn: str, **attributes: str) -> dict[str, Any]:
    return {
        "name": arn.split(":")[-1],
        "is_fifo": arn.endswith(".fifo"),
        "attributes": {"QueueArn": arn, **attributes},
        "messages": Mailbox(arn, fifo=arn.endswith(".fifo")),
    }


# -- requests and errors -------------------------------------------------------------------------------------------


def test_attributes_count_against_the_size() -> None:
    attributes = {
        "text": {"DataType": "String", "StringValue": "ä"},
        "data": {"DataType": "Binary", "BinaryValue": base64.b64encode(b"12345").decode()},
    }
    assert size_of({"MessageBody": "öö", "MessageAttributes": attributes}) == 4 + (4 + 6 + 2) + (4 + 6 + 5)


def test_an_empty_list_is_left_out_of_a_batch_result() -> None:
    assert batch_result([{"Id": "1"}], []) == {"Successful": [{"Id": "1"}]}
    assert batch_result([], [{"Id": "1"}]) == {"Failed": [{"Id": "1"}]}


@pytest.mark.parametrize(
    ("entries", "code"),
    [
        ([], "EmptyBatchRequest"),
        ([{"Id": str(n)} for n in range(11)], "TooManyEntriesInBatchRequest"),
        ([{"Id": "a\n"}], "InvalidBatchEntryId"),
        ([{"Id": "a"}, {"Id": "a"}], "BatchEntryIdsNotDistinct"),
    ],
)
def test_the_form_of_a_batch(entries: list[dict[str, str]], code: str) -> None:
    with pytest.raises(SqsError) as caught:
        check_batch(entries, "Entry")
    assert caught.value.code == code


def test_errors_on_the_wire() -> None:
    status, headers, body = json_error("InvalidParameterValue", "text")
    assert (status, headers["x-amzn-query-error"]) == (400, "InvalidParameterValue;Sender")
    assert json.loads(body) == {"__type": "com.amazonaws.sqs#InvalidParameterValueException", "message": "text"}
    assert query_code("QueueDoesNotExist") == "AWS.SimpleQueueService.NonExistentQueue"
    assert query_code("OverLimit") == "OverLimit"
    assert b"<Message>a &lt; b</Message>" in xml_error("InvalidParameterValue", "a < b")[2]


# -- policies ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allow", "expected"),
    [
        (None, True),
        ({"redrivePermission": "allowAll"}, True),
        ({"redrivePermission": "denyAll"}, False),
        ({"redrivePermission": "byQueue", "sourceQueueArns": [WORK]}, True),
        ({"redrivePermission": "byQueue", "sourceQueueArns": [DEAD]}, False),
    ],
)
def test_who_may_name_a_dead_letter_queue(allow: dict[str, Any] | None, expected: bool) -> None:
    text = None if allow is None else json.dumps(allow)
    assert admits(text, WORK) is expected
    queues = {DEAD: queue(DEAD, **({"RedriveAllowPolicy": text} if text else {}))}
    policy = json.dumps({"deadLetterTargetArn": DEAD, "maxReceiveCount": 1})
    if expected:
        check_redrive_policy(policy, Source(WORK, fifo=False), queues.get)
    else:
        with pytest.raises(SqsError, match="RedrivePolicy"):
            check_redrive_policy(policy, Source(WORK, fifo=False), queues.get)


@pytest.mark.parametrize(
    "policy",
    [
        "",
        "[]",
        '{"deadLetterTargetArn": "queue", "maxReceiveCount": 1}',
        '{"deadLetterTargetArn": "arn:aws:sns:us-east-1:000000000000:dead", "maxReceiveCount": 1}',
        '{"deadLetterTargetArn": "arn:aws:sqs:eu-west-1:000000000000:dead", "maxReceiveCount": 1}',
        f'{{"deadLetterTargetArn": "{DEAD}", "maxReceiveCount": 1.5}}',
        f'{{"deadLetterTargetArn": "{DEAD}", "maxReceiveCount": null}}',
        f'{{"deadLetterTargetArn": "{DEAD}", "maxReceiveCount": 1, "more": 1}}',
    ],
)
def test_a_bad_redrive_policy(policy: str) -> None:
    with pytest.raises(SqsError) as caught:
        check_redrive_policy(policy, Source(WORK, fifo=False), {DEAD: queue(DEAD)}.get)
    assert caught.value.code == "InvalidParameterValue"


def test_a_queue_may_name_itself() -> None:
    check_redrive_policy(f'{{"deadLetterTargetArn": "{WORK}", "maxReceiveCount": 1}}', Source(WORK, fifo=False), {}.get)


@pytest.mark.parametrize("policy", ['{"redrivePermission": "byQueue", "sourceQueueArns": [1]}', "null", '{"a": 1}'])
def test_a_bad_allow_policy(policy: str) -> None:
    with pytest.raises(SqsError):
        check_allow_policy(policy)


def test_pages() -> None:
    assert page(["a", "b", "c"], 2, None) == (["a", "b"], "2")
    assert page(["a", "b", "c"], 2, "2") == (["c"], None)
    assert page(["a"], None, None) == (["a"], None)


def test_a_pause_ends() -> None:
    pause = Pause()
    assert not pause.running("a", 0)
    pause.start("a", 0)
    assert pause.running("a", PAUSE - 1)
    assert not pause.running("b", 1)
    assert not pause.running("a", PAUSE)


# -- move tasks ----------------------------------------------------------------------------------------------------


def dead_letters(*sources: str | None) -> dict[str, dict[str, Any]]:
    """A dead-letter queue with one message of each source, and the queue "work"."""
    queues = {WORK: queue(WORK), DEAD: queue(DEAD)}
    for number, source in enumerate(sources):
        system = {"DeadLetterQueueSourceArn": source} if source else {}
        queues[DEAD]["messages"].append({"id": str(number), "body": str(number), "sys": system, "receive_count": 5})
    return queues


def task(queues: dict[str, dict[str, Any]], destination: str | None = None, rate: int | None = None) -> MoveTask:
    return MoveTask(DEAD, destination, rate, len(queues[DEAD]["messages"]), time.time() + 1)


def bodies(queues: dict[str, dict[str, Any]], arn: str) -> list[str]:
    return [message["body"] for message in queues[arn]["messages"]]


def test_a_task_moves_each_message_to_its_source() -> None:
    queues = dead_letters(WORK, WORK)
    moving = task(queues)
    run(moving, queues[DEAD]["messages"], queues.get)
    assert (moving.status, moving.moved, moving.failure) == ("COMPLETED", 2, None)
    assert bodies(queues, WORK) == ["0", "1"]
    [first, _] = queues[WORK]["messages"]
    assert (first["receive_count"], first["id"] == "0") == (0, False)
    assert "DeadLetterQueueSourceArn" not in first["sys"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [(None, "CouldNotDetermineMessageSource"), (f"{WORK}-gone", "AWS.SimpleQueueService.NonExistentQueue")],
)
def test_a_message_without_a_source_stays(source: str | None, reason: str) -> None:
    queues = dead_letters(source, WORK)
    moving = task(queues)
    run(moving, queues[DEAD]["messages"], queues.get)
    assert (moving.status, moving.failure, moving.moved) == ("FAILED", reason, 1)
    assert (bodies(queues, DEAD), bodies(queues, WORK)) == (["0"], ["1"])


def test_a_cancelled_task_leaves_the_rest() -> None:
    queues = dead_letters(*[WORK] * 50)
    moving = task(queues, rate=1)
    some = threading.Event()

    def find(arn: str) -> dict[str, Any] | None:
        if moving.moved:  # this is the second one
            some.set()
        return queues.get(arn)

    thread = threading.Thread(target=run, args=(moving, queues[DEAD]["messages"], find))
    thread.start()
    assert some.wait(30)
    moving.stop.set()
    thread.join(30)
    assert moving.status == "CANCELLED"
    assert 2 <= moving.moved < 50
    assert bodies(queues, WORK) + bodies(queues, DEAD) == [str(number) for number in range(50)]
    assert len(bodies(queues, WORK)) == moving.moved


def test_a_task_ends_when_its_queue_is_deleted() -> None:
    queues = dead_letters(*[WORK] * 50)
    dead = queues[DEAD]["messages"]
    moving = task(queues)

    def find(arn: str) -> dict[str, Any] | None:
        if moving.moved == 3:
            dead.close()
        return queues.get(arn)

    run(moving, dead, find)
    assert (moving.status, moving.failure) == ("FAILED", "AWS.SimpleQueueService.NonExistentQueue")
    assert moving.moved == len(bodies(queues, WORK)) == 3


def test_a_task_that_breaks_has_ended(caplog: pytest.LogCaptureFixture) -> None:
    queues = dead_letters(WORK)
    moving = task(queues)

    def find(arn: str) -> dict[str, Any] | None:
        raise RuntimeError("broken")

    run(moving, queues[DEAD]["messages"], find)
    assert (moving.status, moving.active) == ("FAILED", False)
    assert "broken" in caplog.text


def test_a_task_is_cancelled_in_time_or_not_at_all() -> None:
    for pause in (0, 0, 0.0005, 0.001):
        queues = dead_letters(WORK, WORK)
        work = {**queues[DEAD], "attributes": {**queues[DEAD]["attributes"]}}
        source = {
            **queues[WORK],
            "attributes": {
                **queues[WORK]["attributes"],
                "RedrivePolicy": json.dumps({"deadLetterTargetArn": DEAD, "maxReceiveCount": 1}),
            },
        }
        threads: list[threading.Thread] = []

        def spawn(target: Any, *arguments: Any, thread_name: str, threads: list = threads) -> None:
            threads.append(threading.Thread(target=target, args=arguments))
            threads[-1].start()

        tasks = Tasks(queues.get, lambda work=work, source=source: [work, source], spawn)
        handle = tasks.start({"SourceArn": DEAD}, "")["TaskHandle"]
        time.sleep(pause)
        expected = "CANCELLED"
        try:
            tasks.cancel({"TaskHandle": handle}, "")
        except SqsError as error:
            expected = {"UnsupportedOperation": "COMPLETED"}[error.code]
        threads[0].join(30)
        assert tasks.show({"SourceArn": DEAD}, "")["Results"][0]["Status"] == expected


def test_a_task_ends_although_its_messages_come_back() -> None:
    """Messages that fail again while the task runs are not moved a second time."""
    queues = dead_letters(WORK, WORK, WORK)
    work, dead = queues[WORK]["messages"], queues[DEAD]["messages"]
    rounds = 0

    def find(arn: str) -> dict[str, Any] | None:
        nonlocal rounds
        rounds += 1
        for message in list(work):
            work.move(message, dead, {**message, "moved_at": time.time() + 5})
        return queues.get(arn)

    moving = task(queues)
    run(moving, dead, find)
    assert (moving.status, moving.moved, rounds) == ("COMPLETED", 3, 3)
    assert len(work) + len(dead) == 3


def test_what_a_task_shows() -> None:
    moving = MoveTask(DEAD, None, None, 3, 1.5)
    assert read_handle(moving.handle) == (moving.id, DEAD)
    assert moving.describe() == {
        "TaskHandle": moving.handle,
        "Status": "RUNNING",
        "SourceArn": DEAD,
        "ApproximateNumberOfMessagesMoved": 0,
        "ApproximateNumberOfMessagesToMove": 3,
        "StartedTimestamp": 1500,
    }
    moving.status = "COMPLETED"
    assert "TaskHandle" not in moving.describe()


@pytest.mark.parametrize("handle", ["foobared", "", base64.b64encode(b"[]").decode(), base64.b64encode(b"{}").decode()])
def test_a_bad_task_handle(handle: str) -> None:
    with pytest.raises(SqsError, match="Value for parameter TaskHandle is invalid"):
        read_handle(handle)


# -- metrics and alarms --------------------------------------------------------------------------------------------


def test_counts_of_one_minute_share_a_point() -> None:
    points: list[metrics.Point] = []
    for moment, value in ((60.0, 1), (61.0, 1), (61.5, 5), (119.9, 1), (120.0, 1)):
        metrics.add_count(points, value, "Count", {"Q": "q"}, moment)
    assert [(p["Timestamp"], p["Value"], p["Count"]) for p in points] == [(60, 1, 3), (60, 5, 1), (120, 1, 1)]


def test_a_gauge_keeps_the_newest_sample_of_a_minute() -> None:
    points: list[metrics.Point] = []
    for moment, value in ((60.0, 3), (90.0, 7), (125.0, 1)):
        metrics.set_gauge(points, value, "Count", {}, moment)
    assert [(p["Timestamp"], p["Value"]) for p in points] == [(60, 7), (120, 1)]


def test_old_points_are_dropped_in_place() -> None:
    points = [{"Timestamp": 0.0}, {"Timestamp": 100.0}]
    series: dict[str, list[metrics.Point]] = {"a": points, "b": [{"Timestamp": 1.0}]}
    metrics.evict(series, metrics.KEPT + 50)
    assert series == {"a": [{"Timestamp": 100.0}]}
    assert series["a"] is points


ALARM = {"ComparisonOperator": "GreaterThanThreshold", "Threshold": 5.0, "EvaluationPeriods": 3}


@pytest.mark.parametrize(
    ("values", "settings", "expected"),
    [
        ([6, 6, 6], {}, "ALARM"),
        ([6, 5, 6], {}, "OK"),
        ([6, 5, 6], {"DatapointsToAlarm": 2}, "ALARM"),
        ([None, 6, 6], {"DatapointsToAlarm": 2}, "ALARM"),
        ([None, None, None], {}, "INSUFFICIENT_DATA"),
        ([None, None, None], {"TreatMissingData": "ignore"}, None),
        ([None, None, None], {"TreatMissingData": "notBreaching"}, "OK"),
        ([None, None, 6], {"TreatMissingData": "breaching"}, "ALARM"),
        ([None, None, 6], {"TreatMissingData": "notBreaching"}, "OK"),
    ],
)
def test_what_an_alarm_makes_of_its_values(
    values: list[float | None], settings: dict[str, Any], expected: str | None
) -> None:
    assert metrics_alarms.verdict(values, {**ALARM, **settings}) == expected


def test_the_periods_of_an_alarm_end_with_the_one_under_way() -> None:
    assert metrics_alarms.periods(130.0, 60, 3) == [0, 60, 120]
