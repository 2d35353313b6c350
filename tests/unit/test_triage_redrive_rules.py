"""A redrive under faults: whatever comes, no letter is lost, and a double can be told from its original."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from typing import Any

import pytest
from botocore.exceptions import ClientError
from hypothesis import given, settings
from hypothesis import strategies as st

from labkit.ops import redrive, triage
from labkit.ops.redrive.care import Care
from labkit.ops.redrive.lanes import NEXT, Lane, Step
from labkit.work.dead_letters import ORIGINAL, attributes, reason
from labkit.work.queues import Message, Queue
from tests.unit.triage_fakes import ARN, Clock, FakeSqs, Killed, no_answer

WITHIN = 5.0


def text(value: str) -> dict[str, str]:
    return {"DataType": "String", "StringValue": value}


class Busy(Exception):
    """Why a broken consumer buries: a reason that letters have already."""


class World:
    """A work queue, its dead-letter queue with ``letters`` of two reasons, and a consumer that may be broken."""

    def __init__(self, letters: int, *, broken: bool = False, absent: bool = False) -> None:
        self.clock = Clock()
        self.sqs = FakeSqs(self.clock)
        self.work, self.dead = self.sqs.box("work", redrive_to="dead"), self.sqs.box("dead")
        self.broken, self.absent = broken, absent
        self.handled: Counter[str] = Counter()
        self.marks: dict[str, set[str]] = {}
        self.bodies = [f"body-{n}" for n in range(letters)]
        for n, body in enumerate(self.bodies):
            code = "Busy" if n % 3 else "Bad"
            why = {"ERROR_CODE": text(code), "SOURCE_QUEUE_ARN": text(f"{ARN}work"), ORIGINAL: text(f"first-{n}")}
            self.sqs.put("dead", body, why)
        self.queue = Queue(self.sqs, "http://fake/000000000000/dead")

    def consume(self) -> None:
        """What workers do: handle, or bury with a reason; each in one step, since their crashes are not the subject."""
        if self.absent:
            return
        for copy in list(self.work.copies.values()):
            self.note(copy)
            del self.work.copies[copy.id]
            if self.broken:
                raw = {
                    "MessageId": copy.id,
                    "Body": copy.body,
                    "ReceiptHandle": "",
                    "MessageAttributes": copy.attributes,
                }
                message = Message.of(raw)
                self.sqs.put("dead", copy.body, attributes(message, reason(message, Busy(), source=f"{ARN}work")))
            else:
                self.handled[copy.body] += 1

    def note(self, copy: Any) -> None:
        self.marks.setdefault(copy.body, set()).add(copy.attributes[ORIGINAL]["StringValue"])

    def care(self, **options: Any) -> Care:
        return Care(
            **{"within": WITHIN, "threads": 1, "during": self.consume, "clock": self.clock, "sleep": self.clock.sleep}
            | options
        )

    def copies(self) -> Counter[str]:
        """How many there are of each body, anywhere."""
        boxes = Counter(copy.body for box in self.sqs.boxes.values() for copy in box.copies.values())
        return boxes + self.handled

    def lost(self) -> list[str]:
        return [body for body in self.bodies if not self.copies()[body]]

    def doubled(self) -> list[str]:
        return [body for body, count in self.copies().items() if count > 1]

    def check(self, *, doubles: bool = False) -> None:
        assert self.lost() == []
        for copy in self.work.copies.values():
            self.note(copy)
        for body in self.doubled():
            assert doubles, f"{body} is there twice, and nothing went wrong"
            left = [copy for copy in self.dead.copies.values() if copy.body == body]
            marks = {copy.attributes[ORIGINAL]["StringValue"] for copy in left} | self.marks.get(body, set())
            assert len(marks) == 1, f"the copies of {body} cannot be told: {marks}"


def steps(plan: redrive.Plan) -> list[str]:
    assert plan.outcome is not None
    return [str(step) for lane in plan.outcome.lanes for step in lane.trail]


@given(letters=st.integers(1, 45), canary=st.integers(0, 5))
@settings(max_examples=40)
def test_to_a_queue_that_works_everything_goes_once(letters: int, canary: int) -> None:
    world = World(letters)
    outcome = redrive.plan(world.queue, threads=1).run(world.care(canary=canary))
    assert (outcome.step, outcome.sent, outcome.left, outcome.doubles) == (Step.DONE, letters, 0, [])
    world.consume()
    assert world.handled == Counter(world.bodies)
    assert not world.dead.copies


@given(letters=st.integers(1, 45), canary=st.integers(1, 5))
@settings(max_examples=40)
def test_to_a_queue_that_fails_only_the_canary_goes(letters: int, canary: int) -> None:
    world = World(letters, broken=True)
    plan = redrive.plan(world.queue, threads=1)
    outcome = plan.run(world.care(canary=canary))
    assert outcome.step is Step.STOPPED
    assert outcome.sent == min(canary, letters)
    assert "a canary is back" in outcome.says
    assert steps(plan)[-2:] == ["watch", "stopped"]
    assert Counter(copy.body for copy in world.dead.copies.values()) == Counter(world.bodies)
    assert all(copy.visible_at <= world.clock() for copy in world.dead.copies.values())  # all given back


def test_to_a_queue_that_nobody_consumes_only_the_canary_goes() -> None:
    world = World(20, absent=True)
    plan, world.sqs.polls = redrive.plan(world.queue, threads=1), Counter()
    outcome = plan.run(world.care(canary=2))
    assert (outcome.step, outcome.sent, len(world.work.copies)) == (Step.STOPPED, 2, 2)
    assert "nobody consumes work: 2 messages wait" in outcome.says
    world.check()
    # Looks that decide nothing ask in passing: all servers are asked by the one that hides all that there is.
    assert world.sqs.polls[1] == 1
    assert world.sqs.polls[0] > 20


@given(letters=st.integers(1, 45), canary=st.integers(1, 5), broken=st.booleans(), later=st.integers(0, 8))
@settings(max_examples=40)
def test_what_short_polls_do_not_show_is_found_before_a_canary_is_well(
    letters: int, canary: int, broken: bool, later: int
) -> None:
    """The consumer comes to it after some looks."""
    world, looks = World(letters, broken=broken), itertools.count()
    world.sqs.blind = True
    plan = redrive.plan(world.queue, threads=1)

    def consume() -> None:
        if next(looks) >= later:
            world.consume()

    outcome = plan.run(world.care(canary=canary, settle=later % 3, during=consume))
    if broken:
        assert outcome.sent == min(canary, letters)
        assert "a canary is back" in outcome.says
    else:
        assert (outcome.step, outcome.sent) == (Step.DONE, letters)
    world.check()


@pytest.mark.parametrize("look", range(4))
def test_a_letter_like_the_canaries_that_came_after_the_plan_stops_it_whoever_buried_it(look: int) -> None:
    """A worker of somebody else's, whose letter has no mark of ours, fails at the n-th look."""
    world, looks = World(20), itertools.count()
    why = {"ERROR_CODE": text("Busy"), "SOURCE_QUEUE_ARN": text(f"{ARN}work")}

    def fails() -> None:
        world.clock.now += 0.01
        if next(looks) == look:
            for copy in list(world.work.copies.values()):
                del world.work.copies[copy.id]
                world.sqs.put("dead", copy.body, why)

    outcome = redrive.plan(world.queue, threads=1).run(world.care(canary=2, during=fails))
    assert (outcome.step, outcome.sent) == (Step.STOPPED, 2)
    assert "work may still fail: another letter has come to dead (Busy)" in outcome.says
    assert len(world.dead.copies) == 20


def test_where_letters_come_without_end_the_look_ends_with_its_time() -> None:
    world = World(5)
    other = {"ERROR_CODE": text("Other"), "SOURCE_QUEUE_ARN": text(f"{ARN}work")}
    plan = redrive.plan(world.queue, threads=1)

    def one_more(call: str) -> None:
        if call == "receive":
            world.clock.now += 0.5
            world.sqs.put("dead", "others", other)

    world.sqs.fault = one_more
    outcome = plan.run(world.care(canary=1))
    assert (outcome.step, outcome.sent) == (Step.STOPPED, 1)
    assert "letters come to dead without end: it is not known whether the canary is well" in outcome.says
    assert world.clock.now < 1_000 + 4 * WITHIN


def test_a_queue_that_begins_to_fail_later_stops_the_rest() -> None:
    world = World(60)
    plan = redrive.plan(world.queue, threads=1)
    seen = []

    def consume(step: str, sent: int, of: int) -> None:
        world.broken = sent > 20
        if step == Step.REST:
            world.consume()
        seen.append((step, sent, of))

    outcome = plan.run(world.care(progress=consume))
    assert outcome.step is Step.STOPPED
    assert "a letter is back in dead (Busy): work still fails" in outcome.says
    assert 20 < outcome.sent < 60
    world.check()


def test_letters_that_come_meanwhile_stay_for_the_next_time() -> None:
    world = World(30)
    plan = redrive.plan(world.queue, threads=1)
    for n in range(25):
        world.bodies.append(f"late-{n}")
        world.sqs.put("dead", f"late-{n}", {"ERROR_CODE": text("Late"), "SOURCE_QUEUE_ARN": text(f"{ARN}work")})
    outcome = plan.run(world.care(canary=0))
    assert (outcome.step, outcome.sent, len(world.dead.copies)) == (Step.DONE, 30, 25)
    world.check()


CALLS = ("receive", "send", "delete", "change", "get_queue_attributes")


@given(
    letters=st.integers(1, 35),
    canary=st.integers(0, 4),
    at=st.integers(1, 40),
    late=st.booleans(),
    broken=st.booleans(),
    data=st.data(),
)
@settings(max_examples=150)
def test_killed_at_any_call_nothing_is_lost_and_doubles_are_told(
    letters: int, canary: int, at: int, late: bool, broken: bool, data: st.DataObject
) -> None:
    """The process dies before or after its n-th call and makes no other; a second redrive ends the work."""
    world = World(letters, broken=broken)
    plan = redrive.plan(world.queue, threads=1)
    count = [0]

    def die(_: str) -> None:
        count[0] += 1
        if count[0] >= at:
            raise Killed

    setattr(world.sqs, "late" if late else "fault", die)
    with contextlib.suppress(Killed):
        plan.run(world.care(canary=canary))
    world.sqs.fault = world.sqs.late = lambda call: None
    world.consume()  # where it is broken, the copy of a double becomes a letter, too
    world.check(doubles=True)
    assert len(world.doubled()) <= 10  # no more than one batch is between a send and its delete
    world.clock.now += 1_000  # the visibility of what it held ends
    assert all(copy.visible_at <= world.clock() for copy in world.dead.copies.values())
    world.broken = False
    world.consume()
    if world.dead.copies:
        outcome = redrive.plan(world.queue, threads=1).run(world.care(canary=data.draw(st.integers(0, 3))))
        assert outcome.step is Step.DONE
    world.consume()
    world.check(doubles=True)
    assert set(world.handled) == set(world.bodies)


@given(
    faults=st.lists(st.tuples(st.sampled_from(CALLS), st.integers(0, 12), st.booleans()), max_size=4),
    letters=st.integers(1, 35),
)
@settings(max_examples=150)
def test_calls_without_an_answer_lose_nothing(faults: list[tuple[str, int, bool]], letters: int) -> None:
    """Calls that do not arrive, and calls whose answer does not: nobody knows which of the two it was."""
    world = World(letters)
    plan = redrive.plan(world.queue, threads=1)
    counts: Counter[tuple[str, bool]] = Counter()

    def at(late: bool) -> Any:
        def fault(call: str) -> None:
            counts[call, late] += 1
            if (call, counts[call, late] - 1, late) in faults:
                raise no_answer()

        return fault

    world.sqs.fault, world.sqs.late = at(False), at(True)
    outcome = plan.run(world.care())
    world.sqs.fault = world.sqs.late = lambda call: None
    world.check(doubles=True)
    ids = {copy.id: copy.body for copy in world.dead.copies.values()}
    assert {ids[id] for id in outcome.doubles if id in ids} >= set(world.doubled())  # each double is named
    if not faults:
        assert outcome.step is Step.DONE


@given(data=st.data(), letters=st.integers(1, 30))
@settings(max_examples=80)
def test_entries_that_fail_in_a_batch_stay_and_the_others_go(data: st.DataObject, letters: int) -> None:
    world = World(letters)
    plan = redrive.plan(world.queue, threads=1)
    bad = data.draw(st.sets(st.sampled_from(world.bodies)))
    world.sqs.refuse = lambda call, id: "InvalidMessageContents" if call == "send" and id in bad else None
    outcome = plan.run(world.care(canary=0))
    assert {copy.body for copy in world.dead.copies.values()} == bad
    assert outcome.sent == letters - len(bad)
    assert (outcome.step is Step.STOPPED) == bool(bad)
    assert outcome.doubles == []
    world.check()


def test_a_canary_that_cannot_be_sent_stays_and_is_given_back_with_the_others() -> None:
    world = World(25)
    plan = redrive.plan(world.queue, threads=1)
    world.sqs.refuse = lambda call, id: "InvalidMessageContents" if call == "send" else None
    outcome = plan.run(world.care(canary=2))
    assert (outcome.step, outcome.sent, outcome.doubles) == (Step.STOPPED, 0, [])
    assert "a canary could not be sent to work: InvalidMessageContents" in outcome.says
    assert all(copy.visible_at <= world.clock() for copy in world.dead.copies.values())
    world.check()


def test_a_delete_that_fails_is_said_and_the_double_is_named() -> None:
    world = World(12)
    plan = redrive.plan(world.queue, threads=1)
    world.sqs.refuse = lambda call, id: "InvalidAddress" if call == "delete" and id.startswith("m5:") else None
    outcome = plan.run(world.care(canary=0))
    assert outcome.doubles == ["m5"]
    assert "1 letter got to work and may be in both queues, the delete failed: InvalidAddress" in outcome.says
    world.check(doubles=True)


def test_without_a_hold_nothing_is_sent() -> None:
    """A process that stood still for longer than it holds: others may have the letters."""
    world = World(12)
    plan = redrive.plan(world.queue, threads=1)
    received = world.sqs.late

    def stall(call: str) -> None:
        received(call)
        if call == "receive":
            world.clock.now += 500

    world.sqs.late = stall
    outcome = plan.run(world.care(canary=0))
    assert outcome.step is Step.STOPPED
    assert not world.work.copies
    assert "no longer held" in outcome.says
    world.check()


def test_a_refused_receive_is_a_sentence() -> None:
    world = World(3)
    plan = redrive.plan(world.queue, threads=1)

    def denied(call: str) -> None:
        if call == "receive":
            raise ClientError({"Error": {"Code": "AccessDenied", "Message": "not you"}}, "ReceiveMessage")

    world.sqs.fault = denied
    outcome = plan.run(world.care())
    assert outcome.step is Step.STOPPED
    assert "AccessDenied" in outcome.says


@pytest.mark.parametrize("step", list(Step))
def test_a_lane_takes_no_step_that_does_not_follow(step: Step) -> None:
    for last in Step:
        world = World(1)
        lane = Lane(world.queue, _Nowhere(), lambda letter: True, 1)
        lane.trail.append(last)
        if step in NEXT[last]:
            lane.enter(step)
            assert lane.step is step
        else:
            with pytest.raises(triage.TriageError, match="cannot become"):
                lane.enter(step)


class _Nowhere:
    name = arn = "nowhere"

    def ready(self) -> None: ...
    def send(self, letters: Any) -> Any: ...
    def try_out(self, letters: Any) -> Any: ...
    def fate(self) -> Any: ...
    def dead_letters(self) -> None:
        return None


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"canary": -1}, "0 to 10"),
        ({"canary": True}, "0 to 10"),
        ({"within": 0}, "watched for up to"),
        ({"within": 10, "settle": 10}, "watched for up to"),
        ({"rate": 501}, "1 to 500"),
    ],
)
def test_bad_care_is_a_sentence(options: dict[str, Any], says: str) -> None:
    with pytest.raises(triage.TriageError, match=says):
        Care(**options)
