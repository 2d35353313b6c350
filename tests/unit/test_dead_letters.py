"""What a buried message carries: the newest reason, the first message's id, and never more than SQS takes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit import Lab
from labkit.facts import facts
from labkit.ops import faults, redrive
from labkit.ops.redrive import Step
from labkit.ops.triage import survey
from labkit.ops.triage.letters import Letter
from labkit.work.dead_letters import CODE, LAST, ORIGINAL, RECEIVES, SOURCE, TEXT, TRACE, attributes, bury, reason
from labkit.work.queues import Message, Queue
from tests.unit.test_triage_redrive import dead_of

MOST = int(facts("sqs.message.max_attributes"))
REASON = [CODE, TEXT, ORIGINAL, TRACE, RECEIVES, SOURCE, LAST]  # the most important first


def text(value: str) -> dict[str, str]:
    return {"DataType": "String", "StringValue": value}


def message(id: str, wire: Mapping[str, Any] | None = None, receives: int = 1) -> Message:
    raw = {"MessageId": id, "Body": "{}", "ReceiptHandle": "r", "MessageAttributes": dict(wire or {})}
    return Message.of({**raw, "Attributes": {"ApproximateReceiveCount": str(receives)}})


def buried(one: Message, error: Exception, trace_id: str = "t-1") -> dict[str, Any]:
    """What :func:`bury` would send."""
    return attributes(one, reason(one, error, source="arn:queue", trace_id=trace_id))


def values(carried: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value["StringValue"] for name, value in carried.items()}


def test_the_first_burial_names_the_message_itself() -> None:
    own = {"tenant": {"DataType": "String.name", "StringValue": "acme"}}
    carried = buried(message("m-1", own, receives=3), ValueError("no"))
    assert values(carried) == {
        CODE: "ValueError", TEXT: "no", ORIGINAL: "m-1", TRACE: "t-1", RECEIVES: "3", SOURCE: "arn:queue",
        "tenant": "acme",
    }  # fmt: skip
    assert carried["tenant"] == own["tenant"]


@pytest.mark.parametrize("left", [{ORIGINAL}, set(REASON)])
def test_a_second_burial_keeps_the_original_and_renews_the_reason(left: set[str]) -> None:
    """A redrive leaves the mark alone on the copy; a move task of SQS leaves everything."""
    first = buried(message("m-1", receives=3), ValueError("no"))
    copy = message("m-2", {name: value for name, value in first.items() if name in left}, receives=2)
    again = buried(copy, KeyError("topic"))
    assert values(again) == {
        CODE: "KeyError", TEXT: "'topic'", ORIGINAL: "m-1", TRACE: "t-1", RECEIVES: "2", SOURCE: "arn:queue",
        LAST: "m-2",
    }  # fmt: skip
    third = buried(message("m-3", again), ValueError("no"))
    assert (values(third)[ORIGINAL], values(third)[LAST], len(third)) == ("m-1", "m-3", len(again))


def test_names_that_are_there_already_take_no_further_room() -> None:
    own = {f"a{n}": text(str(n)) for n in range(4)}
    first = buried(message("m-1", own), ValueError("no"))
    assert len(first) == MOST
    again = buried(message("m-2", first, receives=5), KeyError("topic"))
    assert again.keys() == first.keys()  # no room for LAST, which comes last
    assert values(again) == values(first) | {CODE: "KeyError", TEXT: "'topic'", RECEIVES: "5"}


def test_an_original_that_is_no_text_is_none() -> None:
    carried = buried(message("m-1", {ORIGINAL: {"DataType": "Binary", "BinaryValue": b"x"}}), ValueError("no"))
    assert carried[ORIGINAL] == text("m-1")
    assert LAST not in carried


@given(
    own=st.lists(st.sampled_from([f"a{n}" for n in range(10)]), unique=True),
    left=st.lists(st.sampled_from(REASON), unique=True),
)
def test_never_more_than_sqs_takes_and_what_the_sender_set_stays(own: list[str], left: list[str]) -> None:
    wire = {name: text(f"old {name}") for name in [*own, *left][:MOST]}
    carried = buried(message("m-2", wire), KeyError("topic"))
    assert len(carried) <= MOST
    assert carried.keys() >= wire.keys()
    assert all(carried[name] == wire[name] for name in wire if name not in REASON)
    wanted = reason(message("m-2", wire), KeyError("topic"), source="arn:queue", trace_id="t-1")
    added = [name for name in wanted if name not in wire]
    assert [name for name in added if name in carried] == added[: MOST - len(wire)]  # the most important first
    assert all(values(carried)[name] == wanted[name] for name in wanted if name in carried)


def test_where_there_is_no_room_for_a_reason_it_stays(lab: Lab, caplog: pytest.LogCaptureFixture) -> None:
    queue = Queue.create(lab, "work", visibility=30, dlq=True, max_receives=3)
    queue.send("full", MessageAttributes={f"a{n}": text("x") for n in range(MOST)})
    [full] = queue.receive()
    with caplog.at_level(logging.WARNING):
        assert not bury(queue, full, ValueError("no"))
    assert "has no room for its reason" in caplog.text
    assert queue.depth().in_flight == 1
    assert not bury(Queue.create(lab, "alone"), full, ValueError("no"))


@pytest.fixture
def work(lab: Lab) -> Queue:
    return Queue.create(lab, "work", visibility=60, dlq=True, max_receives=4)


def fails(work: Queue, error: Exception) -> list[str]:
    """What a worker does with everything that is there; the ids of the messages."""
    some = work.receive()
    assert all(bury(work, each, error, trace_id="t") for each in some)
    return [each.id for each in some]


def look(dead: Queue) -> list[Message]:
    """Everything in the queue, left visible."""
    return [each for _ in range(20) if (some := dead.receive(visibility=30)) for each in some]


def test_after_a_kill_between_send_and_delete_both_letters_name_the_same_original(lab: Lab, work: Queue) -> None:
    """The redrive's delete never comes; the copy is handled, fails, and is buried: the double can be told."""
    dead = dead_of(work)
    work.send({"n": 1})
    [first] = fails(work, ValueError("no"))
    with faults.inject(lab.client("sqs"), faults.Cut(), "DeleteMessageBatch"):
        outcome = redrive.plan(dead).run(canary=0)
    assert (outcome.step, outcome.sent, len(outcome.doubles)) == (Step.STOPPED, 0, 1)
    [second] = fails(work, KeyError("topic"))
    assert second != first
    both = look(dead)
    letters = [Letter.of(each) for each in both]
    assert sorted(each.reason for each in letters) == ["KeyError", "ValueError"]
    assert {each.original for each in letters} == {each.attributes[ORIGINAL] for each in both} == {first}
    assert {each.attributes.get(LAST) for each in both} == {None, second}
    dead.give_back(*both)
    # The double is no canary that has come back: the next redrive takes both.
    outcome = redrive.plan(dead).run(canary=1, within=60, during=lambda: work.consume(lambda each: None))
    assert (outcome.step, outcome.sent, dead.depth().total) == (Step.DONE, 2, 0)


@pytest.mark.parametrize("own", [0, 3, 8])
def test_a_canary_that_is_buried_again_is_known_also_where_it_has_no_room_for_its_note(
    lab: Lab, work: Queue, own: int
) -> None:
    dead = dead_of(work)
    for n in range(4):
        work.send({"n": n}, MessageAttributes={f"a{i}": text("x") for i in range(own)})
    fails(work, ValueError("no"))
    for _ in range(2):  # the second time the canary has its mark already
        outcome = redrive.plan(dead, to=work).run(canary=1, within=60, during=lambda: fails(work, KeyError("topic")))
        assert "a canary is back in work-dlq (KeyError): work still fails" in outcome.says
        assert (outcome.sent, dead.depth().visible, work.depth().total) == (1, 4, 0)
    assert survey(dead).total == 4
