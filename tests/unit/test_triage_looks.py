"""A look loses nothing: killed in the middle, two at once, messages that come meanwhile, groups of a FIFO queue."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from labkit import Lab
from labkit.ops.triage import Failure, TriageError, survey
from labkit.ops.triage.holding import Hold
from labkit.ops.triage.receipts import Receipts
from labkit.work.queues import Message, Queue
from tests.unit.triage_fakes import Clock, FakeSqs


def text(value: str) -> dict[str, str]:
    return {"DataType": "String", "StringValue": value}


def until(holds: Callable[[], bool], what: str, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.1)


@pytest.fixture
def queue(lab: Lab) -> Queue:
    return Queue.create(lab, "dead", visibility=30)


def begin(lab: Lab, queue: Queue, hold: int) -> subprocess.Popen[str]:
    """A process that holds everything; returns when it does."""
    command = [sys.executable, "-m", "tests.unit.killed_triage", str(lab.target.endpoint), lab.region, queue.url]
    environment = {**os.environ, **lab.target.environment(lab.account)}
    process = subprocess.Popen([*command, str(hold)], env=environment, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert int(process.stdout.readline()) == queue.depth().in_flight
    return process


def test_killed_in_the_middle_everything_comes_back_by_itself(lab: Lab, queue: Queue) -> None:
    queue.send_batch(range(40))
    process = begin(lab, queue, hold=8)
    time.sleep(9)  # longer than one hold: it renews
    assert queue.depth().visible == 0
    process.kill()
    process.wait()
    until(lambda: queue.depth().visible == 40, "all are visible")
    assert survey(queue).total == 40


def test_interrupted_everything_is_given_back_at_once(lab: Lab, queue: Queue) -> None:
    queue.send_batch(range(15))
    process = begin(lab, queue, hold=600)
    process.send_signal(signal.SIGINT)
    process.wait(timeout=60)
    assert (queue.depth().visible, queue.depth().in_flight) == (15, 0)


def test_two_looks_at_once_share_the_letters_and_lose_none(queue: Queue) -> None:
    queue.send_batch(range(300))
    found: list[Any] = []
    meet = threading.Barrier(2)

    def look() -> None:
        alone = [True]

        def some(done: int, of: int) -> None:
            if alone and alone.pop():
                meet.wait(60)  # both have some before one of them has all

        found.append(survey(queue, threads=4, progress=some))

    both = [threading.Thread(target=look) for _ in range(2)]
    for one in both:
        one.start()
    for one in both:
        one.join(timeout=90)
    assert len(found) == 2
    assert all(1 <= one.total <= 300 for one in found)  # each says what it saw; a late one may see what was given back
    assert (queue.depth().visible, queue.depth().in_flight) == (300, 0)
    assert (survey(queue).total, survey(queue).complete) == (300, True)


def test_messages_that_come_meanwhile_are_seen_or_said(queue: Queue) -> None:
    queue.send_batch(range(50))
    found = survey(queue, threads=1, progress=lambda done, of: queue.send("late") if done <= 30 else None)
    assert found.total + found.unseen == queue.depth().visible > 50
    assert queue.depth().in_flight == 0


def test_what_others_hold_is_said(queue: Queue) -> None:
    queue.send_batch(range(20))
    theirs = queue.receive(10)
    found = survey(queue)
    assert (found.total, found.unseen, found.complete) == (10, 10, False)
    assert queue.depth().in_flight == len(theirs)  # theirs is still theirs


def test_a_fifo_queue_shows_no_more_of_a_group_while_some_are_held(lab: Lab) -> None:
    dead = Queue.create(lab, "dead.fifo", visibility=30)
    for n in range(24):
        dead.send(f"body {n}", group="busy" if n < 22 else "calm", MessageDeduplicationId=str(n))
    found = survey(dead)
    assert found.total + found.unseen == 24
    assert not found.complete
    assert (dead.depth().visible, dead.depth().in_flight) == (24, 0)
    bodies = [message.body for _ in range(2) for message in dead.receive(10)]
    busy = [body for body in bodies if body not in ("body 22", "body 23")]
    assert busy == [f"body {n}" for n in range(len(busy))]  # the order is as it was


def test_an_error_among_many_threads_ends_them_all_and_everything_is_given_back(queue: Queue) -> None:
    queue.send_batch(range(120))

    def breaks(done: int, of: int) -> None:
        if done >= 40:
            raise RuntimeError("the reader's mistake")

    with pytest.raises(RuntimeError):
        survey(queue, progress=breaks)
    assert (queue.depth().visible, queue.depth().in_flight) == (120, 0)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("labkit-triage")]


def test_ages_sources_and_examples(lab: Lab) -> None:
    queue = Queue.create(lab, "aged", visibility=30, attributes={"MessageRetentionPeriod": "3600"})
    why = {"ERROR_CODE": text("THROTTLING"), "RULE_ARN": text("arn:aws:events:r:0:rule/fleet/to-work")}
    before = time.time()
    for n in range(5):
        body = {"detail": {"trace_id": f"t-{n}", "task_token": "very-secret-token"}}
        queue.send(body, MessageAttributes={**why, "ERROR_MESSAGE": text("slow down")})
    found = survey(queue, examples=2, bodies=True)
    [group] = found.groups()
    assert (group.failure, group.reason, group.origin, group.letters) == (Failure.THROTTLED, "THROTTLING", "to-work", 5)
    assert before - 5 < group.oldest <= group.newest < time.time() + 5
    assert group.ends == group.oldest + 3600
    assert group.most_receives == 1
    assert {one.trace_id for one in group.examples} <= {f"t-{n}" for n in range(5)}
    assert [one.text for one in group.examples] == ["slow down"] * 2
    assert all("very-secret" not in one.body and "task_token" in one.body for one in group.examples)
    assert survey(queue).groups()[0].most_receives == 2
    assert all(one.body == "" for one in survey(queue).groups()[0].examples)
    frame = found.frame()
    assert list(frame["letters"]) == [5]
    assert found.matrix() == {"throttled": {"to-work": 5.0}}
    assert found.table()[0]["redrive"] == "now, slowly"


def test_an_empty_survey_has_its_columns(queue: Queue) -> None:
    found = survey(queue)
    assert (found.total, found.complete, found.groups(), found.matrix()) == (0, True, [], {})
    assert list(found.frame().columns)[:4] == ["class", "reason", "source", "letters"]


@pytest.mark.parametrize("options", [{"examples": -1}, {"examples": 101}, {"at_most": True}, {"at_most": 1.5}])
def test_bad_settings_of_a_survey(queue: Queue, options: dict[str, Any]) -> None:
    with pytest.raises(TriageError):
        survey(queue, **options)


# In memory, where a hundred thousand messages cost nothing.


def many(count: int) -> tuple[FakeSqs, Queue]:
    sqs = FakeSqs(Clock())
    sqs.box("dead")
    body = json.dumps({"detail": {"trace_id": "t", "text": "x" * 300}})
    for n in range(count):
        sqs.put("dead", body, {"ERROR_CODE": text("Busy" if n % 2 else "Bad")})
    return sqs, Queue(sqs, "http://fake/000000000000/dead")


def peak(count: int) -> int:
    """Bytes at the peak of a survey, beyond what the messages themselves take in this fake."""
    sqs, queue = many(count)
    for copy in sqs.boxes["dead"].copies.values():
        copy.handle, copy.receives = f"{copy.id}:1", 1  # what the fake will hold anyway
    survey(queue, at_most=20, threads=1)
    sqs.clock.now += 1_000
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        fake = 0
        found = survey(queue, threads=1)
        fake = sum(sys.getsizeof(copy.handle) + 64 for copy in sqs.boxes["dead"].copies.values())
        assert found.total == count
        return tracemalloc.get_traced_memory()[1] - before - fake
    finally:
        tracemalloc.stop()


def test_memory_does_not_grow_with_the_queue() -> None:
    """Eight times the letters: far less than 200 bytes for each, which their handles alone would take."""
    small, large = peak(500), peak(4_000)
    assert large - small < 3_500 * 60, (small, large)


def test_receipts_come_back_in_order_from_any_number_of_threads() -> None:
    receipts = Receipts()
    try:
        handles = [f"handle-{n}-" + "x" * (n % 300) for n in range(5_000)]

        def add(part: int) -> None:
            for handle in handles[part::4]:
                receipts.add([Message("i", "b", handle, 1, 0.0)])

        threads = [threading.Thread(target=add, args=[part]) for part in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert Counter(receipts) == Counter(handles)
        assert receipts.count == 5_000
        assert receipts.size == sum(len(handle) + 1 for handle in handles)
    finally:
        receipts.close()


def test_at_the_in_flight_cap_the_look_ends_and_says_so() -> None:
    sqs, queue = many(50)
    received = [0]

    def over(call: str) -> None:
        if call == "receive":
            received[0] += 1
            if received[0] > 3:
                raise ClientError({"Error": {"Code": "OverLimit", "Message": "too many in flight"}}, "ReceiveMessage")

    sqs.fault = over
    found = survey(queue, threads=1)
    assert (found.total, found.complete, found.capped) == (30, False, True)
    assert all(copy.visible_at <= sqs.clock() for copy in sqs.boxes["dead"].copies.values())


def test_entries_that_cannot_be_given_back_are_counted() -> None:
    sqs, queue = many(20)
    sqs.refuse = lambda call, id: "InvalidAddress" if call == "change" and id.startswith(("m3:", "m4:")) else None
    with pytest.raises(TriageError, match="2 messages of dead stay hidden for 120 s, none is lost: InvalidAddress"):
        survey(queue, threads=1)


def test_the_blocks_own_error_is_raised_and_what_stays_hidden_is_a_note() -> None:
    sqs, queue = many(5)
    sqs.refuse = lambda call, id: "InvalidAddress" if call == "change" else None

    def look() -> None:
        with Hold(queue, threads=1) as hold:
            hold.drain(lambda batch: None)
            raise KeyError("reader's")

    with pytest.raises(KeyError) as raised:
        look()
    assert any("5 messages of dead stay hidden" in note for note in raised.value.__notes__)


def test_what_is_visible_again_is_not_kept() -> None:
    """A handle whose time is over would end the hold of whoever has received the message since."""
    _, queue = many(5)
    clock = Clock()
    with Hold(queue, threads=1, hold=30, clock=clock) as hold:
        batch = hold.receive()
        clock.now += 31
        hold.keep(batch)
        assert hold.kept == 0
        clock.now -= 31


def test_a_hold_that_is_over_gives_nothing_back() -> None:
    sqs, queue = many(5)
    clock = Clock()

    def look() -> None:
        with Hold(queue, threads=1, hold=30, clock=clock) as hold:
            hold.drain(lambda batch: None)
            sqs.fault = lambda call: pytest.fail("a handle that is over is used") if call == "change" else None
            clock.now += 31

    with pytest.raises(TriageError, match="could not be held"):
        look()


class SlowSqs(FakeSqs):
    """Each call takes a tenth of a second of a clock that runs by calls: a look at many messages lasts long.

    While the heartbeat is up, one receive is answered for each of its calls: however late a thread has its turn on a
    busy machine, the clock does not run away from it.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock)
        self.over = False
        self._turn = threading.Condition()
        self._wakes = 0.0  # when the heartbeat is up again
        self._beside = 0  # receives that are due meanwhile

    def receive_message(self, **options: Any) -> dict[str, Any]:  # type: ignore[override]
        with self._turn:
            assert self._turn.wait_for(lambda: self.clock() < self._wakes or self._beside > 0, timeout=60)
            self._beside -= self.clock() >= self._wakes
            self.clock.now += 0.1
            self._turn.notify_all()
            return super().receive_message(**options)

    def change_message_visibility_batch(self, **options: Any) -> Any:  # type: ignore[override]
        with self._turn:
            self.clock.now += 0.1
            self._beside += 1
            self._turn.notify_all()
            return super().change_message_visibility_batch(**options)

    def pause(self, seconds: float) -> None:
        with self._turn:
            self._wakes, self._beside = self.clock() + seconds, 0
            self._turn.notify_all()
            self._turn.wait_for(lambda: self.over or self.clock() >= self._wakes)

    def end(self) -> None:
        with self._turn:
            self.over = True
            self._turn.notify_all()


def test_a_look_that_takes_many_times_its_hold_counts_nothing_twice() -> None:
    """6,000 letters at ten calls a second: a minute of receives alone, and a renewal of all takes another one."""
    clock = Clock()
    sqs = SlowSqs(clock)
    sqs.box("dead")
    for _ in range(6_000):
        sqs.put("dead", "{}", {"ERROR_CODE": text("Busy")})
    queue = Queue(sqs, "http://fake/000000000000/dead")
    began, seen = clock(), Counter[str]()
    with Hold(queue, threads=4, hold=24, clock=clock, pause=sqs.pause) as hold:
        hold.drain(lambda batch: seen.update(message.id for message in batch))
        sqs.end()
        assert hold.renewals >= 1
    assert clock() - began > 2 * 24
    assert len(seen) == seen.total() == 6_000
    assert all(copy.visible_at <= clock() for copy in sqs.boxes["dead"].copies.values())
