"""What fails comes back: errors, partial responses, throttles."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from typing import Any

import pytest

from .conftest import Aws
from .esm_kit import GUIDE, RECORDED, REPORTS, mapped, prepared
from .lambda_kit import until
from .rows import ours, row
from .sqs_helpers import counts

ERRORS = f"{GUIDE}, Handling errors for an SQS event source"


@row(
    "lambda.esm.success",
    "Without ReportBatchItemFailures in the mapping, a function that returns has its whole batch deleted, "
    "whatever it returns.",
    source=f"{GUIDE}, Using Lambda with Amazon SQS",
)
@pytest.mark.parametrize("answer", [None, {"batchItemFailures": [{"itemIdentifier": ""}]}, {"report": "a"}])
def test_success_deletes(aws: Aws, answer: Any) -> None:
    work = mapped(aws, answer=answer)
    work.send("a", "b")
    work.messages(2)
    work.drained()


@row(
    "lambda.esm.error",
    "After an error the batch stays invisible until the visibility timeout ends, comes back with a receive count that "
    "is one higher, and ends in the dead-letter queue by the queue's redrive policy.",
    source=f"{RECORDED} test_redrive_policy_with_failing_lambda",
)
def test_an_error_leaves_the_batch_to_the_queue(aws: Aws) -> None:
    work = mapped(aws, visibility=7, timeout=5, max_receives=2)
    work.send("fail")
    first, second = work.calls(2)
    assert second.began - first.began > 1.5
    assert (first.receives, second.receives) == ([1], [2])
    (dead,) = work.dead_letters()
    assert dead["MessageId"] == work.sent["fail"]
    assert len(work.heard()) == 2


@row(
    "lambda.esm.error.others",
    "An error of one batch does not keep the messages that come after it from being delivered.",
    source=ERRORS,
)
def test_an_error_does_not_hold_up_the_next_message(aws: Aws) -> None:
    work = mapped(aws, BatchSize=1)
    work.send("warm")
    work.calls(1)
    work.send("fail")
    work.calls(2)
    work.send("next")
    failed, after = work.calls(3)[1:]
    assert (failed.bodies, after.bodies) == (["fail"], ["next"])


@row(
    "lambda.esm.error.batch",
    "An error fails the whole batch, also in a mapping with ReportBatchItemFailures: all its messages come back.",
    source=f"{RECORDED} test_report_batch_item_failures_on_lambda_error",
)
def test_an_error_fails_the_whole_batch(aws: Aws) -> None:
    work = prepared(aws, visibility=5, timeout=5, max_receives=1)
    work.send("fail", "good")
    work.map(FunctionResponseTypes=REPORTS)
    assert {message["Body"] for message in work.dead_letters(2)} == {"fail", "good"}


@row(
    "lambda.esm.report.partial",
    "With ReportBatchItemFailures the reported messages come back after the visibility timeout; the others are "
    "deleted.",
    source=f"{RECORDED} test_report_batch_item_failures",
)
def test_only_the_reported_messages_come_back(aws: Aws) -> None:
    work = prepared(aws, visibility=7, timeout=5, answer={"report": "bad"}, max_receives=2)
    work.send("good one", "bad", "good two")
    work.map(FunctionResponseTypes=REPORTS)
    assert [message["Body"] for message in work.dead_letters()] == ["bad"]
    calls = work.heard()
    assert sorted(body for call in calls for body in call.bodies) == ["bad", "bad", "good one", "good two"]
    work.drained()


def outcome(aws: Aws, answers: list[Any]) -> list[str]:
    """What becomes of the batch for which a function returns each of ``answers``: deleted, or failed as a whole."""
    first = prepared(aws, visibility=10, max_receives=1)
    works = [first]
    for number in range(1, len(answers)):
        works.append(prepared(aws, f"work-{number}", visibility=10, max_receives=1, shared=first))
    for work, answer in zip(works, answers, strict=True):
        work.send(f"answer {json.dumps(answer)}", "other")
        work.map(wait=False, FunctionResponseTypes=REPORTS)
    for work in works:
        work.drained()
    found = []
    for work in works:
        assert work.dead
        buried = counts(aws.client("sqs"), work.dead)[0]
        assert buried in (0, 2)
        found.append("failed" if buried else "deleted")
    return found


@row(
    "lambda.esm.report.success",
    "An empty list, a list that is null, an empty answer and an answer that is null are a complete success.",
    source=f"{ERRORS}; {RECORDED} test_report_batch_item_failures_empty_json_batch_succeeds",
)
def test_complete_success(aws: Aws) -> None:
    answers = [{"batchItemFailures": []}, {"batchItemFailures": None}, {}, None]
    assert outcome(aws, answers) == ["deleted"] * len(answers)


@row(
    "lambda.esm.report.failure",
    "An identifier under another key, an empty one, one that is null and that of no message in the batch are a "
    "complete failure: the whole batch comes back.",
    source=f"{ERRORS}; {RECORDED} test_report_batch_item_failures_invalid_result_json_batch_fails",
)
def test_complete_failure(aws: Aws) -> None:
    entries = [{"ItemIdentifier": "x"}, {"itemIdentifier": ""}, {"itemIdentifier": None}, {"itemIdentifier": "x"}]
    assert outcome(aws, [{"batchItemFailures": [entry]} for entry in entries]) == ["failed"] * len(entries)


@ours("AWS says only that an answer that is not valid JSON is a complete failure; these are valid and of another shape")
def test_answers_of_another_shape_are_a_complete_failure(aws: Aws) -> None:
    answers = ["text", 7, [], {"batchItemFailures": "a"}, {"batchItemFailures": ["a"]}]
    assert outcome(aws, answers) == ["failed"] * len(answers)


@ours("AWS calls a list that is null a success; that an answer with another key is one as well follows, unverified")
def test_answers_without_the_list_are_a_complete_success(aws: Aws) -> None:
    answers: list[Any] = ["", {"statusCode": 200}, {"BatchItemFailures": [{"itemIdentifier": "x"}]}]
    assert outcome(aws, answers) == ["deleted"] * len(answers)


@row(
    "lambda.esm.throttle",
    "A throttled delivery counts as a receive: with no concurrency left and maxReceiveCount=1 the message ends in the "
    "dead-letter queue although the function never ran.",
    source=f"{ERRORS}; Configuring a queue to use with Lambda (maxReceiveCount of at least 5)",
)
def test_a_throttle_costs_a_receive(aws: Aws) -> None:
    work = prepared(aws, visibility=6, timeout=5, max_receives=1)
    aws.client("lambda").put_function_concurrency(FunctionName=work.name, ReservedConcurrentExecutions=0)
    work.map()
    began = time.monotonic()
    work.send("never seen")
    until(lambda: counts(aws.client("sqs"), work.url)[1] == 1)
    (dead,) = work.dead_letters()
    assert time.monotonic() - began > 5.5
    assert dead["Attributes"]["ApproximateReceiveCount"] == "2"  # the delivery, and the receive of this test
    assert work.heard() == []


@row(
    "lambda.esm.throttle.retried",
    "Within the visibility timeout a throttled batch is tried again, and its messages keep their receive count.",
    source=ERRORS,
)
def test_a_throttled_batch_is_tried_again(aws: Aws) -> None:
    work = prepared(aws)
    api = aws.client("lambda")
    api.put_function_concurrency(FunctionName=work.name, ReservedConcurrentExecutions=0)
    work.map()
    work.send("later")
    until(lambda: work.depth()[1] == 1)
    time.sleep(1)  # it has been received: now it is throttled
    api.delete_function_concurrency(FunctionName=work.name)
    (call,) = work.calls(1)
    assert call.receives == [1]
    work.drained()


@row(
    "lambda.esm.throttle.reserved",
    "A mapping does not look at the function's reserved concurrency: it receives more than can run, and what is "
    "throttled waits invisible. Nothing runs beyond the reservation, and nothing is lost.",
    source="AWS re:Post knowledge center: lambda-sqs-scaling; " + ERRORS,
)
def test_a_mapping_receives_more_than_the_reservation(aws: Aws) -> None:
    work = prepared(aws)
    aws.client("lambda").put_function_concurrency(FunctionName=work.name, ReservedConcurrentExecutions=1)
    work.send(*[f"sleep 1.5 {number}" for number in range(4)])
    work.map(BatchSize=1)
    until(lambda: work.depth()[1] >= 2)
    calls = work.calls(4)
    assert all(before.ended <= after.began for before, after in pairwise(calls))
    work.drained()
