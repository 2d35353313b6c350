"""Triage and redrive by somebody unlucky: odd letters, odd names, and what goes wrong half-way."""

from __future__ import annotations

import io
import json
from collections import Counter
from typing import Any

import pytest
from botocore.exceptions import ClientError

from labkit import Lab, LabError
from labkit.ops import faults, redrive
from labkit.ops.redrive import MOVE, SEND, Step
from labkit.ops.redrive.destinations import ToFunction, ToMachine
from labkit.ops.redrive.routes import Refusal, Route, Routes
from labkit.ops.redrive.to_queues import ToQueue
from labkit.ops.triage import TriageError, survey
from labkit.ops.triage.letters import Failure, Letter, Writer
from labkit.ops.triage.masking import HIDDEN, masked, masked_body
from labkit.ops.triage.surveys import Survey, trace_of
from labkit.work.dead_letters import bury
from labkit.work.queues import Message, Queue
from tests.unit.test_triage_command import run
from tests.unit.test_triage_looks import many, text, until
from tests.unit.test_triage_redrive import dead_of, moved, rule_letter
from tests.unit.test_triage_redrive_rules import World
from tests.unit.triage_fakes import ARN


@pytest.fixture
def work(lab: Lab) -> Queue:
    return Queue.create(lab, "work", visibility=30, dlq=True, max_receives=1)


def refused(code: str, status: int = 400) -> ClientError:
    answer: Any = {"Error": {"Code": code, "Message": "no"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "Call")


def letter(reason: str = "Busy", **fields: Any) -> Letter:
    return Letter("id-1", reason, fields.pop("source", f"{ARN}work"), 0.0, 1, **fields)


def message(body: str = "{}", id: str = "id-1", group: str | None = None, **attributes: dict[str, Any]) -> Message:
    return Message(id, body, "receipt", 1, 0.0, group=group, wire=attributes)


# What is shown.


def test_half_a_character_and_a_terminals_orders_are_not_printed(lab: Lab, work: Queue) -> None:
    dead = dead_of(work)
    dead.send('{"trace_id": "\\ud800half"}')
    dead.send('{"errorCode": "AC\\ud83d", "errorMessage": "\\u001b[2J\\ud800", "subscriberArn": "arn:\\n\\ud800"}')
    for words in (["--bodies"], ["--redrive"], ["--json"]):
        ran = run("work-dlq", *words)
        assert ran.exit_code == 0, ran.output
        assert "\x1b" not in ran.output
    assert trace_of('{"trace_id": "a\\u001b[31m\\nb"}') == "a\N{REPLACEMENT CHARACTER}[31m b"


def test_a_terminal_of_another_language_is_no_fault(lab: Lab, work: Queue, monkeypatch: pytest.MonkeyPatch) -> None:
    from labkit.cli import triage

    dead_of(work).send("x", MessageAttributes={"ERROR_CODE": text("Lỗi"), "SOURCE_QUEUE_ARN": text(work.arn)})
    out = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(out, encoding="ascii"))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    triage("work-dlq", lab="test", redrive=True)
    assert b"worker raised: L\\u1ed7i" in out.getvalue()


TOKEN = "AQC%2BxyzAQC%2F" + "1234567890%2Bsecret"


@pytest.mark.parametrize(
    "says",
    [
        f"see https://host/?taskToken={TOKEN}&x=1",
        f'{{\\\\\\"taskToken\\\\\\" : \\\\\\"{TOKEN}\\\\\\"}}',
        f"the Task Token is '{TOKEN}'",
        f"taskToken%3D{TOKEN}",
    ],
)
def test_tokens_in_links_and_in_quoted_quotes_are_masked(says: str) -> None:
    for shown in (masked(says, 500), masked_body(says, 500)):
        assert "secret" not in shown
        assert "1234567890" not in shown
        assert HIDDEN in shown


def test_a_token_that_the_cut_of_a_text_would_halve_is_masked() -> None:
    why = {"ERROR_CODE": text("E"), "ERROR_MESSAGE": text("x" * 150 + " " + "Ab1/" * 200)}
    found = Letter.of(
        Message("i", "{}", "r", 1, 0.0, attributes={k: v["StringValue"] for k, v in why.items()}, wire=why)
    )
    assert "Ab1/" not in found.text
    assert found.text.endswith(HIDDEN)


def test_a_class_that_is_not_there_is_said(lab: Lab, work: Queue) -> None:
    dead_of(work).send("x", MessageAttributes={"ERROR_CODE": text("Bad"), "SOURCE_QUEUE_ARN": text(work.arn)})
    ran = run("work-dlq", "--class", "throtled")
    assert "none of throtled; there are Bad, worker raised" in ran.stdout
    assert "empty" in str(run("work-dlq", "--class", "").exception)


def test_a_sample_takes_no_more_than_asked(lab: Lab, work: Queue) -> None:
    dead = dead_of(work)
    dead.send_batch(range(60))
    for count in (1, 7, 25):
        found = survey(dead, at_most=count)
        assert (found.total, found.unseen) == (count, 60 - count)
    ran = run("work-dlq", "--sample", "1")
    assert ran.stdout.startswith("work-dlq: 1 letter (59 more were not seen)")


def test_letters_that_expire_during_a_look_are_no_fault() -> None:
    sqs, queue = many(20)

    def expire(call: str) -> None:
        if call == "change":
            sqs.refuse = lambda call, id: "InvalidParameterValue" if id.startswith(("m3:", "m4:")) else None

    sqs.fault = expire
    found = survey(queue, threads=1)
    assert (found.total, sqs.boxes["dead"].copies["m5"].visible_at <= sqs.clock()) == (20, True)


# Names.


def test_a_queue_of_the_same_name_in_another_region_is_not_taken_for_it(lab: Lab, work: Queue) -> None:
    dead = dead_of(work)
    elsewhere = {name: f"arn:aws:sqs:eu-west-1:{lab.account}:{name}" for name in ("work", "work-dlq")}
    dead.send("x", MessageAttributes={"ERROR_CODE": text("Bad"), "SOURCE_QUEUE_ARN": text(elsewhere["work"])})
    for words in (
        [elsewhere["work-dlq"]],
        ["work-dlq", "--redrive", "--to", elsewhere["work"]],
        [f"https://sqs.eu-west-1.amazonaws.com/{lab.account}/work-dlq"],
    ):
        ran = run(*words)
        assert isinstance(ran.exception, LabError), ran.output
        assert "eu-west-1" in str(ran.exception)
    plan = redrive.plan(dead)
    assert (plan.letters, len(plan.refused)) == (0, 1)
    assert "is not in reach" in plan.refused[0].says
    assert dead.depth().visible == 1


@pytest.mark.parametrize("source", ["", "garbage", "arn:aws:iam::1:role/x", "arn:aws:lambda:r:1:function:f"])
def test_a_worker_comes_from_a_queue_or_nobody_knows(source: str) -> None:
    route = Routes(None, None).of(letter(source=source, writer=Writer.WORKER))
    assert route == Refusal("The letter names no source queue: say where to.")
    record = Routes(None, None).of(letter(source=f"{ARN}work", writer=Writer.DESTINATION))
    assert isinstance(record, Refusal)
    assert Routes(None, None).of(letter(writer=Writer.SQS)) == Route(f"{ARN}work")


def test_a_function_that_is_not_there_is_no_plan(lab: Lab, work: Queue) -> None:
    dead = moved(work, 1)
    plan = redrive.plan(dead, clients=lab, to=f"arn:aws:lambda:{lab.region}:{lab.account}:function:nobody")
    assert plan.letters == 0
    assert "does not answer" in plan.refused[0].says


def test_refusals_of_more_kinds_than_are_kept_are_counted() -> None:
    world = World(0)
    for n in range(1_030):
        why = {"ERROR_CODE": text("Bad"), "SOURCE_QUEUE_ARN": text(f"nowhere/q{n}")}
        world.sqs.put("dead", "x", why)
        world.sqs.put("dead", "x", why)
    plan = redrive.plan(world.queue, threads=1)
    assert sum(one.letters for one in plan.refused) == 2_060
    assert len(plan.refused) == 1_001


# What is sent.


def test_what_cannot_be_watched_is_not_sent_and_no_double() -> None:
    """The destination goes between the plan and the canary."""
    world = World(5)
    plan = redrive.plan(world.queue, threads=1)

    def gone(call: str) -> None:
        if call == "get_queue_attributes" and world.queue.url.endswith("dead") and world.dead_is_held():
            raise refused("NonExistentQueue")

    world.dead_is_held = lambda: any(copy.visible_at > world.clock() for copy in world.dead.copies.values())  # type: ignore[attr-defined]
    world.sqs.fault = gone
    outcome = plan.run(world.care(canary=2))
    assert (outcome.step, outcome.sent, outcome.left, outcome.doubles) == (Step.STOPPED, 0, 5, [])
    world.check()


@pytest.mark.parametrize("code", ["InternalError", "ServiceUnavailable", "InternalFailure"])
def test_after_a_fault_of_sqs_nobody_knows_whether_it_was_sent(code: str) -> None:
    world = World(3)
    plan = redrive.plan(world.queue, threads=1)

    def late(call: str) -> None:
        if call == "send":
            raise refused(code, 500)

    world.sqs.late = late
    outcome = plan.run(world.care(canary=0))
    assert (outcome.step, outcome.sent) == (Step.STOPPED, 0)
    assert set(outcome.doubles) == set(world.dead.copies)  # all are in both queues, and named
    world.check(doubles=True)


def test_a_destination_that_is_deleted_half_way_is_not_tried_for_each_letter() -> None:
    world = World(600)
    plan = redrive.plan(world.queue, threads=1)
    sends = [0]

    def gone(call: str) -> None:
        if call == "send":
            sends[0] += 1
            if sends[0] > 5:
                raise refused("NonExistentQueue")

    world.sqs.fault = gone
    outcome = plan.run(world.care(canary=0))
    assert (outcome.step, outcome.sent, sends[0]) == (Step.STOPPED, 50, 15)
    assert "NonExistentQueue" in outcome.says
    world.check()
    assert len(world.dead.copies) == 550


@pytest.mark.parametrize(("canary", "gone"), [(0, 4), (2, 4), (2, 9)])
def test_letters_that_are_gone_by_then_are_said(canary: int, gone: int) -> None:
    world = World(9)
    plan = redrive.plan(world.queue, threads=1)
    for id in list(world.dead.copies)[:gone]:
        world.handled[world.dead.copies.pop(id).body] += 1
    outcome = plan.run(world.care(canary=canary))
    assert (outcome.step, outcome.sent, outcome.left) == (Step.DONE, 9 - gone, gone)
    assert outcome.says.endswith(f"{gone} of the plan were gone, or in others' hands")


def test_an_interrupt_says_how_far_it_came() -> None:
    world = World(9)
    plan = redrive.plan(world.queue, threads=1)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        plan.run(world.care(canary=2, during=interrupt))
    assert plan.outcome is not None
    assert plan.outcome.says == "stopped: interrupted; sent: 2 letters, 7 stay in dead"
    world.check()


def test_where_a_canary_could_not_be_watched_none_is_sent(lab: Lab) -> None:
    """The destination's dead-letter queue has one of its own: a look there would use up receives."""
    last = Queue.create(lab, "last", visibility=30)
    between = Queue.create(lab, "between", visibility=30, dlq=last)
    target = Queue.create(lab, "target", visibility=30, dlq=between)
    dead = Queue.create(lab, "dead", visibility=30)
    dead.send_batch(range(3))
    outcome = redrive.plan(dead, to=target).run(canary=1, within=5)
    assert (outcome.step, outcome.sent, outcome.doubles) == (Step.STOPPED, 0, [])
    assert "between has a dead-letter queue of its own" in outcome.says
    assert (target.depth().total, dead.depth().visible) == (0, 3)


def test_letters_beside_do_not_keep_a_move_task_from_its_work(lab: Lab, work: Queue) -> None:
    """The destination is another queue, whose own dead letters are of other kinds."""
    dead = moved(work, 5)
    target = Queue.create(lab, "target", visibility=30, dlq=True)
    dead_of(target).send_batch(["of old", "of old"])
    outcome = redrive.plan(dead, to=target).run(during=lambda: target.consume(lambda message: None), within=40)
    assert (outcome.step, outcome.sent) == (Step.DONE, 5)
    assert outcome.says.endswith("by a move task")


class _Sends:
    """SQS, as far as a send to a FIFO queue needs it."""

    def __init__(self) -> None:
        self.bodies: list[str] = []

    def send_message_batch(self, QueueUrl: str, Entries: Any) -> Any:
        self.bodies += [one["MessageBody"] for one in Entries]
        return {"Successful": [{"Id": one["Id"], "MessageId": f"m-{one['Id']}"} for one in Entries]}


def test_nothing_overtakes_a_letter_that_cannot_be_sent_to_its_group() -> None:
    client = _Sends()
    target = Queue(client, "http://fake/0/work.fifo", arn=f"{ARN}work.fifo")
    source = Queue(client, "http://fake/0/dead.fifo", arn=f"{ARN}dead.fifo")
    ten = {f"a{n}": text("x") for n in range(10)}
    some = [
        (message("a1", "1", "a", **ten), letter()),
        (message("a2", "2", "a"), letter()),
        (message("b1", "3", "b"), letter()),
        (message("a3", "4", "a"), letter()),
    ]
    sent = ToQueue(target, source=source).send(some)
    assert client.bodies == ["b1"]
    assert (set(sent.done), set(sent.unfit)) == ({2}, {0, 1, 3})


def test_a_move_task_needs_a_queue_that_serves_one_source_or_a_name(lab: Lab) -> None:
    """Of another source a letter can come at any time, and would be moved to the wrong queue."""
    dead = Queue.create(lab, "shared", visibility=30)
    a, b = (Queue.create(lab, name, visibility=30, dlq=dead, max_receives=1) for name in ("a", "b"))
    a.send_batch(range(4))
    until(lambda: not a.receive(visibility=0) and dead.depth().visible == 4, "all are moved")
    assert redrive.plan(dead).rows() == [("a", "moved by SQS", 4, SEND)]
    assert redrive.plan(dead, to=b).rows() == [("b", "moved by SQS", 4, MOVE)]


@pytest.mark.parametrize("when", ["before the canary", "during the watch"])
def test_a_letter_of_another_kind_that_comes_meanwhile_is_not_moved_along(lab: Lab, work: Queue, when: str) -> None:
    dead = moved(work, 6)
    plan = redrive.plan(dead)
    assert plan.rows() == [("work", "moved by SQS", 6, MOVE)]
    came: list[str] = []

    def comes() -> None:
        if not came:
            came.append("one")
            rule_letter(dead, "arn:aws:events:us-east-1:0:rule/r", f"arn:aws:sqs:us-east-1:{lab.account}:other", {})

    def during() -> None:
        comes()
        work.consume(lambda message: None)

    if when == "before the canary":
        comes()

    outcome = plan.run(during=during, within=40)
    assert (outcome.step, outcome.sent, dead.depth().visible) == (Step.DONE, 6, 1)
    assert survey(dead).by_class() == {Failure.PERMISSION: 1}


def test_a_canary_behind_its_group_in_the_destinations_own_fifo_dead_letter_queue_is_not_well(lab: Lab) -> None:
    """A FIFO queue hides what comes to a group behind those that are held: its number is all that can be seen."""
    source, to = (Queue.create(lab, f"{name}.fifo", visibility=60, dlq=True, max_receives=4) for name in "ab")
    for queue, count in ((to, 12), (source, 6)):
        for n in range(count):
            queue.send({"n": n}, group="g", MessageDeduplicationId=f"{n}")
        while some := queue.receive():
            assert all(bury(queue, each, ValueError("no")) for each in some)

    def during() -> None:
        for each in to.receive():
            assert bury(to, each, ValueError("still no"))

    outcome = redrive.plan(dead_of(source), to=to).run(canary=1, within=60, during=during)
    assert (outcome.step, outcome.sent) == (Step.STOPPED, 1)
    assert (dead_of(source).depth().total, dead_of(to).depth().total, to.depth().total) == (5, 13, 0)


@pytest.mark.parametrize("fault", [faults.Throttled(), faults.Failing(), faults.Unanswered(), faults.Cut()])
def test_a_move_task_that_nobody_answers_for_a_while_is_followed_to_its_end(
    lab: Lab, work: Queue, fault: faults.Fault
) -> None:
    dead = moved(work, 6)
    plan = redrive.plan(dead)
    with faults.inject(lab.client("sqs"), fault, "ListMessageMoveTasks", times=3) as injected:
        outcome = plan.run(canary=0)
    assert injected.made == 3
    assert (outcome.step, outcome.sent, outcome.left) == (Step.DONE, 6, 0)


def test_a_move_task_that_may_have_begun_is_not_said_to_have_left_everything(lab: Lab, work: Queue) -> None:
    dead = moved(work, 6)
    plan = redrive.plan(dead)
    with faults.inject(lab.client("sqs"), faults.Unanswered(), "StartMessageMoveTask"):
        outcome = plan.run(canary=0)
    assert outcome.step is Step.STOPPED
    assert "whether a move task has begun is not known" in outcome.says
    assert outcome.says.endswith("sent: 0 letters or more, at most 6 stay in work-dlq")
    until(lambda: dead.depth().total + work.depth().total == 6, "all are there")


# What is called.


class _Lambda:
    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.calls: Counter[str] = Counter()

    def get_function_configuration(self, FunctionName: str) -> Any:
        return {"Timeout": 3}

    def invoke(self, FunctionName: str, InvocationType: str, Payload: bytes) -> Any:
        self.calls[InvocationType] += 1
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


FUNCTION = "arn:aws:lambda:us-east-1:000000000000:function:step"


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        (b'["a", "list"]', "['a', 'list']"),
        (b"no json", "no json"),
        (b"", "Unhandled"),
        (b'{"errorType": "E", "errorMessage": "taskToken=abcdefghijkl"}', f"E taskToken={HIDDEN}"),
    ],
)
def test_whatever_a_failing_function_says_is_a_sentence_without_tokens(payload: bytes, says: str) -> None:
    client = _Lambda({"FunctionError": "Unhandled", "Payload": io.BytesIO(payload)})
    sent = ToFunction(client, FUNCTION).try_out([(message(), letter())])
    assert says in sent.unfit[0]
    assert "abcdef" not in sent.unfit[0]


def test_after_a_fault_of_lambdas_nobody_knows_whether_it_was_called() -> None:
    client = _Lambda(refused("ServiceException", 500), refused("TooManyRequestsException", 429))
    sent = ToFunction(client, FUNCTION).send([(message(), letter()), (message(), letter())])
    assert (set(sent.unsure), set(sent.refused)) == ({0}, {1})


@pytest.mark.parametrize(("state", "done"), [("SUCCEEDED", True), ("RUNNING", True), ("FAILED", False)])
def test_an_execution_from_before_a_crash_that_has_failed_is_no_delivery(state: str, done: bool) -> None:
    class States:
        def describe_state_machine(self, stateMachineArn: str) -> Any:
            return {"type": "STANDARD"}

        def start_execution(self, **_: Any) -> Any:
            raise refused("ExecutionAlreadyExists")

        def describe_execution(self, executionArn: str) -> Any:
            assert executionArn.endswith(":execution:m:redrive-id-1")
            return {"status": state}

    sent = ToMachine(States(), "arn:aws:states:us-east-1:0:stateMachine:m").send([(message(), letter())])
    assert bool(sent.done) is done
    assert bool(sent.unfit) is not done


def test_json_and_a_survey_agree(lab: Lab, work: Queue) -> None:
    """One count in three shapes, for letters of several kinds."""
    dead = moved(work, 3)
    work.send("y")
    bury(work, work.receive()[0], ValueError("no"))
    said = json.loads(run("work-dlq", "--json").stdout)
    found: Survey = survey(dead)
    assert said["letters"] == found.total == sum(group["letters"] for group in said["groups"]) == 4
    assert found.names() == ["ValueError", "moved by SQS", "worker raised"]
    with pytest.raises(TriageError, match="there are ValueError, moved by SQS, worker raised"):
        redrive.plan(dead, only="nonsense")
