"""Why a letter is dead, by writer; what to do; and what is not shown of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit.facts import facts
from labkit.ops.triage.letters import CODES, MOVED, UNKNOWN, Failure, Letter, Writer
from labkit.ops.triage.masking import HIDDEN, masked, masked_body
from labkit.ops.triage.remedies import REMEDIES, remedy
from labkit.ops.triage.surveys import OTHERS, Survey, name_of, trace_of
from labkit.work.queues import Message

RULE, QUEUE = "arn:aws:events:us-east-1:000000000000:rule/fleet/to-work", "arn:aws:sqs:us-east-1:000000000000:work"
FUNCTION = "arn:aws:lambda:us-east-1:000000000000:function:step:$LATEST"


def letter(
    body: Any = "{}", attributes: dict[str, str | bytes] | None = None, system: dict[str, str] | None = None
) -> Letter:
    text = body if isinstance(body, str) else json.dumps(body)
    return Letter.of(Message("id-1", text, "handle", 3, 1_000.0, attributes=attributes or {}, system=system or {}))


def read(found: Letter) -> tuple[str, Failure, Writer, str]:
    return found.reason, found.failure, found.writer, found.source


def test_every_documented_code_has_a_class() -> None:
    """The sample of codes in AWS's EventBridge User Guide, eb-rule-dlq (one of its 22 bullets is there twice)."""
    assert set(CODES) == set(str(facts("events.dlq.error_codes.all")).split("|"))
    assert len(CODES) == 21


def test_a_rule_says_it_in_attributes() -> None:
    why = {"ERROR_CODE": "NO_PERMISSIONS", "ERROR_MESSAGE": "no", "RULE_ARN": RULE, "TARGET_ARN": QUEUE}
    found = letter(attributes=why)
    assert read(found) == ("NO_PERMISSIONS", Failure.PERMISSION, Writer.RULE, RULE)
    assert (found.text, found.target) == ("no", QUEUE)
    assert read(letter(attributes={**why, "ERROR_CODE": "NEW_ONE"}))[1] is Failure.UNKNOWN


@pytest.mark.parametrize(("code", "failure"), sorted(CODES.items()))
def test_a_bus_of_the_second_version_says_it_in_the_body(code: str, failure: Failure) -> None:
    record = {"errorCode": code, "errorMessage": "m", "subscriberArn": "arn:x:y:z:0:subscriber/a/b", "targetArn": QUEUE}
    assert read(letter(record)) == (code, failure, Writer.BUS_V2, "arn:x:y:z:0:subscriber/a/b")


def test_the_second_versions_own_code() -> None:
    """ACCESS_DENIED is in the example of AWS's page eb-custom-bus-retry."""
    assert letter({"errorCode": "ACCESS_DENIED", "busArn": "arn:b"}).failure is Failure.PERMISSION


@pytest.mark.parametrize(
    ("code", "text", "failure"),
    [
        ("200", "boom", Failure.TARGET_FAILED),
        ("200", "2026 Task timed out after 3.00 seconds", Failure.TIMED_OUT),
        ("429", "", Failure.THROTTLED),
        ("403", "", Failure.PERMISSION),
        ("404", "", Failure.MISSING),
        ("500", "", Failure.UNREACHABLE),
        ("299", "", Failure.UNKNOWN),
    ],
)
def test_a_functions_dead_letter_queue(code: str, text: str, failure: Failure) -> None:
    found = letter(attributes={"ErrorCode": code, "ErrorMessage": text, "RequestID": "r"})
    assert read(found) == (code, failure, Writer.FUNCTION, "")


@pytest.mark.parametrize(
    ("condition", "answer", "failure", "text"),
    [
        ("RetriesExhausted", {"errorType": "KeyError", "errorMessage": "x"}, Failure.TARGET_FAILED, "KeyError: x"),
        ("RetriesExhausted", {"errorType": "Sandbox.Timedout"}, Failure.TIMED_OUT, "Sandbox.Timedout"),
        (
            "RetriesExhausted",
            {"errorMessage": "Task timed out after 3 s"},
            Failure.TIMED_OUT,
            "Task timed out after 3 s",
        ),
        ("EventAgeExceeded", None, Failure.THROTTLED, ""),
        ("Success", [1], Failure.UNKNOWN, ""),
    ],
)
def test_a_functions_destination(condition: str, answer: Any, failure: Failure, text: str) -> None:
    context = {"condition": condition, "functionArn": FUNCTION}
    found = letter({"requestContext": context, "requestPayload": {}, "responsePayload": answer})
    assert read(found) == (condition, failure, Writer.DESTINATION, FUNCTION)
    assert found.text == text


def test_a_worker_names_its_error_and_the_queue() -> None:
    why = {"ERROR_CODE": "KeyError", "ERROR_MESSAGE": "'n'", "SOURCE_QUEUE_ARN": QUEUE, "ORIGINAL_MESSAGE_ID": "first"}
    found = letter(attributes=why)
    assert read(found) == ("KeyError", Failure.WORKER_RAISED, Writer.WORKER, QUEUE)
    assert found.original == "first"
    assert letter(attributes={"ERROR_CODE": "KeyError"}).failure is Failure.WORKER_RAISED  # no room for the others
    assert letter(attributes={"ERROR_CODE": "TIMEOUT"}).failure is Failure.TIMED_OUT  # a rule's name for it


def test_what_sqs_moved_has_no_reason_and_an_old_one_does_not_count() -> None:
    system = {"DeadLetterQueueSourceArn": QUEUE}
    assert read(letter(system=system)) == (MOVED, Failure.MOVED, Writer.SQS, QUEUE)
    old = letter(attributes={"ERROR_CODE": "KeyError", "SOURCE_QUEUE_ARN": QUEUE}, system=system)
    assert read(old)[:3] == (MOVED, Failure.MOVED, Writer.SQS)
    assert old.text == "carries an older reason: KeyError"


@pytest.mark.parametrize("body", ["words", "", "[" * 100_000, "{"])
def test_no_json_is_unreadable(body: str) -> None:
    assert read(letter(body))[:2] == (UNKNOWN, Failure.UNREADABLE)


@pytest.mark.parametrize("body", ["[1]", "null", '{"errorCode": 1}', '{"requestContext": []}', '{"errorCode": ""}'])
def test_json_without_a_reason_is_unknown(body: str) -> None:
    assert read(letter(body))[:2] == (UNKNOWN, Failure.UNKNOWN)


def test_binary_attributes_are_no_reasons() -> None:
    found = letter("{}", {"ERROR_CODE": b"\xff", "ErrorCode": b"1", "ORIGINAL_MESSAGE_ID": b"x"})
    assert read(found)[:2] == (UNKNOWN, Failure.UNKNOWN)
    assert found.original == "id-1"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(["ERROR_CODE", "ERROR_MESSAGE", "RULE_ARN", "TARGET_ARN", "ErrorCode", "SOURCE_QUEUE_ARN"])


@given(
    body=st.text(max_size=30)
    | st.dictionaries(st.sampled_from(["errorCode", "requestContext", "responsePayload", "detail"]), JSON).map(
        json.dumps
    ),
    attributes=st.dictionaries(NAMES, st.text(max_size=9) | st.binary(max_size=3)),
)
def test_whatever_is_in_it_a_letter_is_read_and_counted(body: str, attributes: dict[str, str | bytes]) -> None:
    found = Survey(examples=2, bodies=True)
    read_letter = letter(body, attributes)
    found.add(read_letter, body)
    assert found.total == 1
    assert found.groups()[0].remedy is remedy(read_letter.failure)
    assert len(found.table()) == 1


def test_there_is_a_remedy_for_each_class() -> None:
    assert set(REMEDIES) == set(Failure)


def test_a_new_reason_for_each_letter_does_not_fill_the_memory() -> None:
    found = Survey()
    for n in range(5_000):
        found.add(letter(attributes={"ERROR_CODE": f"Error{n}", "SOURCE_QUEUE_ARN": QUEUE}))
    assert found.total == 5_000
    assert len(found.groups()) == 1_001
    assert found.counts[OTHERS] == 4_000
    assert len(found.oldest) == len(found.counts) == 1_001


TOKEN = "AAAAKgAAAAIAAAAAAAAAA" + "Bc/+=" * 100


@pytest.mark.parametrize(
    "body",
    [
        json.dumps({"detail": {"task_token": TOKEN, "step": 7}}),
        json.dumps({"TaskToken": "short-one"}).replace("short-one", TOKEN[:12]),
        json.dumps({"body": json.dumps({"deep": [{"taskToken": TOKEN}]})}),
        f"send_task_success(task_token='{TOKEN}')",
        f"no name, but {TOKEN}",
        '{"task_token": "' + TOKEN,  # cut off: no JSON
    ],
)
def test_no_task_token_is_shown(body: str) -> None:
    for shown in (masked_body(body, 1_000), masked(body, 1_000)):
        if shown == masked(body, 1_000) and "taskToken" in body and "deep" in body:
            continue  # JSON within JSON is for masked_body
        assert TOKEN[:12] not in shown
        assert HIDDEN in shown


def test_what_is_no_token_is_shown() -> None:
    assert masked_body('{"trace_id": "conv-1-step-2", "n": 7}', 100) == '{"trace_id": "conv-1-step-2", "n": 7}'
    assert masked("a\nb   c" * 3, 9) == "a b ca b…"


@pytest.mark.parametrize(
    ("arn", "name"),
    [(RULE, "to-work"), (QUEUE, "work"), (FUNCTION, "step"), ("", ""), ("arn:aws:events:r:0:rule/alone", "alone")],
)
def test_names_of_sources(arn: str, name: str) -> None:
    assert name_of(arn) == name


@pytest.mark.parametrize(
    ("body", "trace"),
    [
        ('{"trace_id": "t"}', "t"),
        ('{"detail": {"trace_id": "t"}}', "t"),
        ('{"requestPayload": {"detail": {"trace_id": "t"}}}', "t"),
        ('{"detail": {"trace_id": 5}}', ""),
        ("words", ""),
        ("[]", ""),
    ],
)
def test_trace_ids_of_bodies(body: str, trace: str) -> None:
    assert trace_of(body) == trace
