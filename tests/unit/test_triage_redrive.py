"""Redrive on the stand-in: each kind of letter goes back to where it was going, or stays, with a sentence why."""

from __future__ import annotations

import json
import threading
from collections import Counter
from typing import Any

import pytest

from labkit import Lab
from labkit.ops import redrive
from labkit.ops.redrive import MOVE, SEND, Step
from labkit.ops.triage import TriageError, survey
from labkit.ops.triage.letters import Failure
from labkit.work.dead_letters import ORIGINAL, bury
from labkit.work.functions import Function
from labkit.work.queues import Queue
from tests.unit.test_triage_looks import text, until


@pytest.fixture
def work(lab: Lab) -> Queue:
    return Queue.create(lab, "work", visibility=30, dlq=True, max_receives=1)


def dead_of(queue: Queue) -> Queue:
    assert queue.dlq is not None
    return queue.dlq


def moved(queue: Queue, count: int) -> Queue:
    """``count`` messages that SQS itself has moved to the dead-letter queue."""
    queue.send_batch(range(count))
    until(lambda: not queue.receive(visibility=0) and dead_of(queue).depth().visible == count, "all are moved")
    return dead_of(queue)


def buried(queue: Queue, count: int) -> Queue:
    queue.send_batch({"trace_id": f"t-{n}"} for n in range(count))
    while batch := queue.receive():
        for message in batch:
            assert bury(queue, message, ValueError("no") if message.json()["trace_id"] < "t-3" else KeyError("k"))
    return dead_of(queue)


def test_a_move_task_takes_the_rest_of_what_sqs_moved(lab: Lab, work: Queue) -> None:
    dead = moved(work, 25)
    plan = redrive.plan(dead)
    assert plan.rows() == [("work", "moved by SQS", 25, MOVE)]
    assert (dead.depth().visible, work.depth().total) == (25, 0)  # a plan changes nothing
    done: list[Any] = []
    outcome = plan.run(during=lambda: work.consume(lambda message: done.append(message.json())), within=30)
    assert (outcome.step, outcome.sent, outcome.left, outcome.doubles) == (Step.DONE, 25, 0, [])
    work.consume(lambda message: done.append(message.json()))
    assert sorted(done) == list(range(25))
    assert dead.depth().total == 0
    with pytest.raises(TriageError, match="has run"):
        plan.run()


def test_what_workers_buried_goes_back_without_its_reasons(lab: Lab, work: Queue) -> None:
    dead = buried(work, 6)
    plan = redrive.plan(dead, only="ValueError")
    assert plan.rows() == [("work", "worker raised", 3, SEND)]
    outcome = plan.run(canary=0)
    assert (outcome.step, outcome.sent) == (Step.DONE, 3)
    back = work.receive()
    assert sorted(message.json()["trace_id"] for message in back) == ["t-0", "t-1", "t-2"]
    assert [set(message.attributes) for message in back] == [{ORIGINAL}] * 3
    assert survey(dead).counts == {"KeyError": 3}


def test_by_class_and_by_several(lab: Lab, work: Queue) -> None:
    dead = buried(work, 6)
    assert redrive.plan(dead, only=Failure.WORKER_RAISED).letters == 6
    assert redrive.plan(dead, only=["ValueError", "KeyError"]).letters == 6
    with pytest.raises(TriageError, match=r"no letters of throttled; there are KeyError, ValueError, worker raised\.$"):
        redrive.plan(dead, only=["throttled"])
    for bad in ([], [1], ""):
        with pytest.raises(TriageError, match="by name"):
            redrive.plan(dead, only=bad)  # type: ignore[arg-type]


def test_a_canary_that_comes_back_by_sqs_own_redrive_stops_it(lab: Lab, work: Queue) -> None:
    dead = moved(work, 20)

    def crash() -> None:
        work.receive(visibility=0)  # nobody deletes: the next receive moves it

    outcome = redrive.plan(dead).run(canary=2, during=crash, within=60)
    assert outcome.step is Step.STOPPED
    assert "a canary is back in work-dlq (moved by SQS): work still fails" in outcome.says
    until(lambda: dead.depth().visible == 20, "all are there and visible")
    assert work.depth().total == 0


def test_ten_attributes_binary_ones_and_groups(lab: Lab, work: Queue) -> None:
    nine = {f"a{n}": text(str(n)) for n in range(8)} | {"bytes": {"DataType": "Binary.x", "BinaryValue": b"\x00\xff"}}
    dead = dead_of(work)
    dead.send("nine", MessageAttributes=nine, MessageGroupId="tenant")
    dead.send("ten", MessageAttributes=nine | {"one": {"DataType": "Number.int", "StringValue": "5"}})
    plan = redrive.plan(dead, to=work)
    outcome = plan.run(canary=0)
    assert (outcome.step, outcome.sent, outcome.left) == (Step.STOPPED, 1, 1)
    assert "ten attributes of its own" in outcome.says
    [back] = work.receive()
    assert (back.body, back.group, back.attributes["bytes"]) == ("nine", "tenant", b"\x00\xff")
    assert back.wire["bytes"]["DataType"] == "Binary.x"
    assert len(back.attributes) == 10
    assert [message.body for message in dead.receive()] == ["ten"]


def test_a_fifo_queue_in_order_and_once(lab: Lab) -> None:
    work = Queue.create(lab, "work.fifo", visibility=30, dlq=True, max_receives=1)
    dead = dead_of(work)
    for n in range(25):
        body = {"n": n}
        dead.send(
            body,
            group=f"g{n % 2}",
            MessageDeduplicationId=f"d{n}",
            MessageAttributes={"ERROR_CODE": text("Busy"), "SOURCE_QUEUE_ARN": text(work.arn)},
        )
    plan = redrive.plan(dead)
    assert plan.survey.total + plan.survey.unseen == 25
    seen: list[Any] = []
    outcome = plan.run(canary=2, during=lambda: work.consume(lambda m: seen.append(m.json()["n"])), within=60)
    assert (outcome.step, outcome.sent) == (Step.DONE, 25)
    work.consume(lambda m: seen.append(m.json()["n"]))
    assert sorted(seen) == list(range(25))
    assert [n for n in seen if n % 2] == list(range(1, 25, 2))
    assert [n for n in seen if not n % 2] == list(range(0, 25, 2))


def test_a_second_redrive_within_five_minutes_is_not_dropped(lab: Lab) -> None:
    """The copy has the first letter's mark; were that its deduplication id, SQS would drop the second copy."""
    work = Queue.create(lab, "again.fifo", visibility=30, dlq=True, max_receives=1)
    dead = dead_of(work)
    work.send("task", group="g", MessageDeduplicationId="first")
    for _ in range(2):
        assert len(work.receive(visibility=0)) == 1
        until(lambda: not work.receive(visibility=0) and dead.depth().visible == 1, "it is moved")
        outcome = redrive.plan(dead, to=work, only="moved by SQS").run(canary=0)
        assert (outcome.sent, work.depth().total, dead.depth().total) == (1, 1, 0)


RULE = "arn:aws:events:us-east-1:{account}:rule/default/{name}"


def rule_letter(dead: Queue, rule: str, target: str, event: Any, code: str = "NO_PERMISSIONS") -> None:
    why = {"RULE_ARN": text(rule), "TARGET_ARN": text(target), "ERROR_CODE": text(code), "RETRY_ATTEMPTS": text("0")}
    dead.send(event, MessageAttributes=why)


def make_rule(lab: Lab, name: str, target: str, **options: Any) -> str:
    events = lab.client("events")
    arn: str = events.put_rule(Name=name, EventPattern='{"source":["fleet"]}')["RuleArn"]
    answer = events.put_targets(Rule=name, Targets=[{"Id": "1", "Arn": target, **options}])
    assert not answer["FailedEntryCount"]
    return arn


def test_a_rules_letters_go_to_its_target_and_watch_the_targets_own_dead_letters(lab: Lab, work: Queue) -> None:
    dead = Queue.create(lab, "undelivered", visibility=30)
    rule = make_rule(lab, "to-work", work.arn)
    for n in range(12):
        rule_letter(dead, rule, work.arn, {"id": f"e{n}", "detail": {"n": n}})
    assert redrive.plan(dead).refused[0].says.startswith("Whether the rule changes its input cannot be asked")
    plan = redrive.plan(dead, clients=lab)
    assert plan.rows() == [("work", "no permission", 12, SEND)]

    def fails() -> None:
        for message in work.receive():
            bury(work, message, ValueError("still"))

    stopped = plan.run(canary=2, during=fails, within=30)
    assert "a canary is back in work-dlq (ValueError): work still fails" in stopped.says
    assert (dead.depth().visible, dead_of(work).depth().visible) == (10, 2)
    done: list[int] = []
    outcome = redrive.plan(dead, clients=lab).run(
        during=lambda: work.consume(lambda m: done.append(m.json()["detail"]["n"])), within=30
    )
    assert (outcome.step, outcome.sent) == (Step.DONE, 10)
    work.consume(lambda m: done.append(m.json()["detail"]["n"]))
    assert len(set(done)) == len(done) == 10


def test_what_cannot_be_sent_back_says_why(lab: Lab, work: Queue) -> None:
    dead = Queue.create(lab, "undelivered", visibility=30)
    changed = make_rule(lab, "changes", work.arn, InputPath="$.detail")
    bus = f"arn:aws:events:us-east-1:{lab.account}:event-bus/other"
    gone = RULE.format(account=lab.account, name="gone")
    rule_letter(dead, changed, work.arn, {"n": 1})
    rule_letter(dead, changed, bus, {"n": 2})
    rule_letter(dead, gone, work.arn, {"n": 3})
    dead.send({"errorCode": "ACCESS_DENIED", "subscriberArn": "arn:s", "failedMessages": []})
    dead.send("nobody knows")
    dead.send("{}", MessageAttributes={"ErrorCode": text("200"), "ErrorMessage": text("x")})
    plan = redrive.plan(dead, clients=lab)
    assert plan.rows() == []
    says = "\n".join(sorted(one.says for one in plan.refused))
    for part in (
        "changes its input",
        "every rule that matches",
        "could not be asked for its targets",
        "records ids, not events",
        "does not say which function",
        "Nobody wrote down",
    ):
        assert part in says, part
    assert plan.run().says == "there was nothing to send"
    assert dead.depth().visible == 6


def test_destinations_that_cannot_be(lab: Lab, work: Queue) -> None:
    dead = moved(work, 2)
    fifo = Queue.create(lab, "other.fifo")
    for to, part in (
        (dead, "cannot be sent to work-dlq itself"),
        (fifo, "is FIFO"),
        (f"arn:aws:sqs:us-east-1:{lab.account}:nowhere", "does not answer"),
        (f"arn:aws:lambda:us-east-1:{lab.account}:function:f", "cannot be called without clients"),
    ):
        plan = redrive.plan(dead, to=to)
        assert plan.letters == 0
        assert part in plan.refused[0].says
    for bad in ("work", "arn:aws:sns:us-east-1:0:topic", "arn:aws:states:us-east-1:0:execution:m:e"):
        with pytest.raises(TriageError, match="by its ARN"):
            redrive.plan(dead, to=bad)
    assert dead.depth().visible == 2


FUNCTION = """
def handler(event, context):
    if event["detail"].get("bad"):
        raise ValueError("cannot")
    return event["detail"]["n"]
"""


def test_a_functions_letters_are_invoked_and_a_failing_canary_stops_them(lab: Lab) -> None:
    function = Function.deploy(lab, "step", source=FUNCTION, timeout=15)
    arn = f"arn:aws:lambda:{lab.region}:{lab.account}:function:step"
    assert function.timeout == 15
    dead = Queue.create(lab, "undelivered", visibility=30)
    for n in range(5):
        event = {"detail": {"n": n, "bad": True}}
        dead.send({"requestContext": {"condition": "RetriesExhausted", "functionArn": arn}, "requestPayload": event})
    plan = redrive.plan(dead, clients=lab)
    assert plan.rows() == [("step", "target failed", 5, "invoke, then delete")]
    outcome = plan.run(canary=2)
    assert (outcome.step, outcome.sent, dead.depth().visible) == (Step.STOPPED, 0, 5)
    assert "ValueError cannot" in outcome.says
    well = Queue.create(lab, "well", visibility=30)
    for n in range(5):
        well.send({"detail": {"n": n}}, MessageAttributes={"ErrorCode": text("429"), "ErrorMessage": text("busy")})
    outcome = redrive.plan(well, clients=lab, to=arn).run(canary=2)
    assert (outcome.step, outcome.sent, well.depth().total) == (Step.DONE, 5, 0)


MACHINE = {"StartAt": "End", "States": {"End": {"Type": "Succeed"}}}
FAILS = {"StartAt": "End", "States": {"End": {"Type": "Fail", "Error": "Broken"}}}


@pytest.mark.parametrize("works", [True, False])
def test_a_state_machine_is_started_once_for_each_letter(lab: Lab, works: bool) -> None:
    states = lab.client("stepfunctions")
    machine = states.create_state_machine(
        name="m",
        definition=json.dumps(MACHINE if works else FAILS),
        roleArn=f"arn:aws:iam::{lab.account}:role/r",
    )["stateMachineArn"]
    dead = Queue.create(lab, "undelivered", visibility=30)
    for n in range(4):
        dead.send({"detail": {"n": n}})
    outcome = redrive.plan(dead, clients=lab, to=machine).run(canary=1, within=40)
    started = states.list_executions(stateMachineArn=machine)["executions"]
    if works:
        assert (outcome.step, outcome.sent, len(started), dead.depth().total) == (Step.DONE, 4, 4, 0)
    else:
        assert (outcome.step, outcome.sent, len(started), dead.depth().visible) == (Step.STOPPED, 1, 1, 3)
        assert "FAILED" in outcome.says
    assert all(one["name"].startswith("redrive-") for one in started)


def test_two_redrives_at_once_send_each_letter_once(lab: Lab, work: Queue) -> None:
    dead = buried(work, 90)
    plans = [redrive.plan(dead, threads=4) for _ in range(2)]
    both = [threading.Thread(target=lambda plan=plan: plan.run(canary=0)) for plan in plans]
    for one in both:
        one.start()
    for one in both:
        one.join(timeout=90)
    assert sum(plan.outcome.sent for plan in plans if plan.outcome) == 90
    seen: Counter[str] = Counter()
    work.consume(lambda message: seen.update([message.json()["trace_id"]]))
    assert seen == Counter(f"t-{n}" for n in range(90))
    assert dead.depth().total == 0


def test_several_sources_are_several_lanes_and_the_first_that_stops_stops_all(lab: Lab) -> None:
    dead = Queue.create(lab, "shared", visibility=30)
    a, b = (Queue.create(lab, name, visibility=30, dlq=dead, max_receives=1) for name in ("a", "b"))
    for queue in (a, b):
        queue.send_batch(range(4))
        until(lambda queue=queue: not queue.receive(visibility=0) and queue.depth().total == 0, "all are moved")
    plan = redrive.plan(dead)
    assert plan.rows() == [("a", "moved by SQS", 4, SEND), ("b", "moved by SQS", 4, SEND)]
    outcome = plan.run(canary=1, within=3)  # nobody consumes
    assert [str(lane.step) for lane in outcome.lanes] == ["stopped", "planned"]
    assert (a.depth().total, b.depth().total, dead.depth().visible) == (1, 0, 7)


def test_somebody_who_knows_better_than_the_counts(lab: Lab, work: Queue) -> None:
    """The destination is never empty; an idempotency store says that the canaries are done."""
    dead = buried(work, 5)
    work.send("another's")
    outcome = redrive.plan(dead).run(canary=2, within=30, handled=lambda canaries: len(canaries) == 2)
    assert (outcome.step, outcome.sent) == (Step.DONE, 5)


def test_a_slow_consumer_is_not_taken_for_none(lab: Lab, work: Queue) -> None:
    dead = buried(work, 2)
    outcome = redrive.plan(dead).run(canary=1, within=4, during=lambda: work.receive(visibility=60))
    assert "work still works: 1 in flight" in outcome.says
