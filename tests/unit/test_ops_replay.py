"""Replay against the stand-in: what comes back, to whom, and what a cancel, a name or a dead follower do to it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from labkit import Lab
from labkit.control.bus import Bus
from labkit.control.envelope import Envelope
from labkit.ops import replay
from labkit.ops.faults import Cut, Failing, Fault, Throttled, Unanswered, inject
from labkit.work.queues import Queue

PATIENCE = 60.0  # seconds that a state may take on a machine that stands still for a while
REQUESTED = {"detail-type": ["agent.step.requested"]}
ROLE = "arn:aws:iam::000000000000:role/events"
SLOW = {"lab:replay-rate": "4"}


class Fleet:
    """A bus with an archive and two rules: ``work`` is known to be idempotent, ``mail`` is not."""

    def __init__(self, lab: Lab, **tags: str) -> None:
        self.lab = lab
        self.since = datetime.now(UTC)
        self.bus = Bus.create(lab, "fleet", tags=tags)
        self.archive = replay.Archive.create(lab, self.bus, "steps", pattern=REQUESTED)
        self.queues = {name: Queue.create(lab, name) for name in ("work", "mail")}
        self.bus.rule("work", REQUESTED, self.queues["work"], tags=replay.SAFE)
        self.bus.rule("mail", REQUESTED, self.queues["mail"])

    def publish(self, count: int) -> list[str]:
        envelopes = [
            Envelope.new(conversation_id=f"c{n}", step=0, agent_class="writer", payload={"n": n}) for n in range(count)
        ]
        self.bus.publish(envelopes)
        return [envelope.trace_id for envelope in envelopes]

    def plan(self, **options: Any) -> replay.Plan:
        return replay.plan(self.archive, self.since, datetime.now(UTC), lag=0, **options)

    def events(self, name: str, count: int) -> list[dict[str, Any]]:
        """The events in a queue, once there are ``count``; nothing else may be there."""
        found: list[dict[str, Any]] = []
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end and len(found) < count:
            messages = self.queues[name].receive(wait=1, visibility=300)
            found += [message.json() for message in messages]
            self.queues[name].delete(*messages)
        assert len(found) == count
        assert self.queues[name].depth().total == 0
        return found


def traces(events: list[dict[str, Any]]) -> list[str]:
    return sorted(event["detail"]["trace_id"] for event in events)


@pytest.fixture
def fleet(lab: Lab) -> Fleet:
    return Fleet(lab)


@pytest.fixture
def slow(lab: Lab) -> Iterator[Fleet]:
    made = Fleet(lab, **SLOW)
    yield made
    for found in made.bus.client.list_replays(EventSourceArn=made.archive.arn)["Replays"]:
        replay.Replay(made.bus.client, found["ReplayName"]).cancel(seconds=PATIENCE)


def test_an_outage_is_mended_and_nobody_else_hears_of_it(fleet: Fleet) -> None:
    fleet.bus.client.disable_rule(Name="work", EventBusName=fleet.bus.name)
    sent = sorted(fleet.publish(5))
    assert traces(fleet.events("mail", 5)) == sent
    assert fleet.queues["work"].depth().total == 0
    fleet.bus.client.enable_rule(Name="work", EventBusName=fleet.bus.name)

    made = fleet.plan()
    with pytest.raises(replay.ReplayError, match="mail, a target of rule mail, is not known to be idempotent"):
        replay.start(made)
    assert not fleet.bus.client.list_replays(EventSourceArn=fleet.archive.arn)["Replays"]
    done = replay.start(made.only_safe()).follow(seconds=PATIENCE)
    assert (done.state, done.share) == ("COMPLETED", 1.0)
    events = fleet.events("work", 5)
    assert traces(events) == sent
    assert {event["replay-name"] for event in events} == {made.name}
    assert fleet.queues["mail"].depth().total == 0
    assert fleet.archive.describe().events == 5  # what was replayed is not archived again


def test_allowed_is_allowed(fleet: Fleet) -> None:
    sent = sorted(fleet.publish(2))
    fleet.events("work", 2), fleet.events("mail", 2)
    replay.start(fleet.plan(allow=["mail"])).follow(seconds=PATIENCE)
    assert traces(fleet.events("work", 2)) == traces(fleet.events("mail", 2)) == sent


def test_a_rule_for_live_events_hears_nothing(fleet: Fleet) -> None:
    live = Queue.create(fleet.lab, "live")
    fleet.bus.rule("live", {**REQUESTED, "replay-name": [{"exists": False}]}, live)
    fleet.publish(1)
    assert live.depth().visible == 1
    made = fleet.plan(allow=["mail"])
    assert {route.rule for route in made.reached} == {"work", "mail"}
    with pytest.raises(replay.ReplayError, match="rule live would get nothing: its pattern takes live events only"):
        made.only("live")
    replay.start(made).follow(seconds=PATIENCE)
    fleet.events("work", 2)
    assert live.depth().visible == 1


def test_a_sample_leaves_rules_out(fleet: Fleet) -> None:
    fleet.bus.rule("billing", {**REQUESTED, "detail": {"agent_class": ["billing"]}}, fleet.queues["mail"])
    sample = Envelope.new(conversation_id="c", step=0, agent_class="writer", payload={})
    assert [route.rule for route in fleet.plan(samples=[sample]).reached] == ["mail", "work"]
    assert [route.rule for route in fleet.plan().reached] == ["billing", "mail", "work"]
    elsewhere = {"source": "x", "detail-type": "another", "detail": {}}
    with pytest.raises(replay.ReplayError, match="sample 1 is not in the archive"):
        fleet.plan(samples=[elsewhere])


def test_only_the_range_comes_back(fleet: Fleet) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    for minutes in (30, 90, 31, 150, 32):
        detail = json.dumps({"trace_id": f"t{minutes:03}"})
        entry = {"Source": "s", "DetailType": "agent.step.requested", "Detail": detail, "EventBusName": fleet.bus.name}
        fleet.bus.client.put_events(Entries=[{**entry, "Time": now - timedelta(minutes=minutes)}])
    fleet.events("work", 5)
    made = replay.plan(fleet.archive, now - timedelta(minutes=100), now - timedelta(minutes=31))
    done = replay.start(made.only("work")).follow(seconds=PATIENCE)
    assert traces(fleet.events("work", 3)) == ["t031", "t032", "t090"]
    assert done.last == now - timedelta(minutes=31)


def test_cancelled_half_way(slow: Fleet) -> None:
    slow.publish(200)
    running = replay.start(slow.plan().only("work"))
    shares: list[str] = []
    began = threading.Event()

    def seen(progress: replay.Progress) -> None:
        shares.append(progress.state)
        if progress.last:
            began.set()

    follower = threading.Thread(target=lambda: running.follow(seconds=PATIENCE, on_progress=seen), name="follower")
    follower.start()
    assert began.wait(PATIENCE)
    assert running.cancel(seconds=PATIENCE).state == "CANCELLED"
    follower.join(PATIENCE)
    assert not follower.is_alive()
    assert shares[-1] == "CANCELLED"
    sent = slow.queues["work"].depth().total - 200
    assert 0 < sent < 200
    time.sleep(0.6)  # more than two of its steps
    assert slow.queues["work"].depth().total - 200 == sent
    assert running.cancel(seconds=PATIENCE).state == "CANCELLED"  # once more does no harm


def test_two_at_once(fleet: Fleet) -> None:
    sent = sorted(fleet.publish(30))
    fleet.events("work", 30)
    made = fleet.plan().only("work")
    again = fleet.plan().only("work")
    runs = [replay.start(made), replay.start(again)]
    assert {run.follow(seconds=PATIENCE).state for run in runs} == {"COMPLETED"}
    events = fleet.events("work", 60)
    for plan in (made, again):
        assert traces([event for event in events if event["replay-name"] == plan.name]) == sent


def test_no_more_than_ten(slow: Fleet) -> None:
    slow.publish(400)
    for _ in range(10):
        replay.start(slow.plan().only("work"))
    with pytest.raises(replay.ReplayError, match="10 replays run already"):
        replay.start(slow.plan().only("work"))


def test_a_name_is_used_once(fleet: Fleet) -> None:
    fleet.publish(1)
    first = fleet.plan(name="mend").only("work")
    replay.start(first).follow(seconds=PATIENCE)
    with pytest.raises(replay.ReplayError, match="a replay 'mend' has been before, and its name stays taken"):
        replay.start(fleet.plan(name="mend").only("work"))
    assert replay.start(first).name == "mend"  # this very plan, asked for twice, is one replay
    fleet.events("work", 2)


FOLLOW = """
import sys
import boto3
from labkit.ops import replay
client = boto3.client("events", endpoint_url=sys.argv[1], region_name="us-east-1",
                      aws_access_key_id=sys.argv[2], aws_secret_access_key="test")
running = replay.Replay.of(client, sys.argv[3])
running.follow(seconds=600, on_progress=lambda progress: print(progress.state, flush=True))
"""


def test_a_follower_that_is_killed_takes_nothing_with_it(slow: Fleet) -> None:
    slow.publish(8)
    slow.events("work", 8)
    running = replay.start(slow.plan().only("work"))
    arguments = [slow.bus.client.meta.endpoint_url, slow.lab.account, running.name]
    follower = subprocess.Popen([sys.executable, "-c", FOLLOW, *arguments], stdout=subprocess.PIPE, text=True)
    assert follower.stdout is not None
    assert follower.stdout.readline().strip() in ("STARTING", "RUNNING", "COMPLETED")
    follower.send_signal(signal.SIGKILL)
    follower.wait(PATIENCE)
    follower.stdout.close()
    done = replay.Replay.of(slow.bus.client, running.name).follow(seconds=PATIENCE)
    assert done.state == "COMPLETED"
    slow.events("work", 8)


def test_following_is_bounded_and_the_replay_goes_on(slow: Fleet) -> None:
    slow.publish(40)
    running = replay.start(slow.plan().only("work"))
    ticks = iter(range(0, 100, 10))
    with pytest.raises(replay.ReplayError, match="after 20 s, and goes on"):
        running.follow(seconds=20, clock=lambda: float(next(ticks)), sleep=lambda _: None)
    assert not running.look().over


def test_a_rule_that_changed_is_planned_again(fleet: Fleet) -> None:
    made = fleet.plan().only("work")
    other = Queue.create(fleet.lab, "other")
    targets = [{"Id": "other", "Arn": other.arn}]
    fleet.bus.client.put_targets(Rule="work", EventBusName=fleet.bus.name, Targets=targets)
    with pytest.raises(replay.ReplayError, match="rule work has changed since the plan was made"):
        replay.start(made)


def test_what_is_not_there(lab: Lab, fleet: Fleet) -> None:
    client = lab.client("events")
    with pytest.raises(replay.ReplayError, match="there is no archive 'nowhere'"):
        replay.Archive(client, "nowhere")
    with pytest.raises(replay.ReplayError, match="there is no replay 'nothing'"):
        replay.Replay.of(client, "nothing")
    with pytest.raises(replay.ReplayError, match="replay nothing was not cancelled"):
        replay.Replay(client, "nothing").cancel()
    for name in ("a" * 49, "a b", "", None):
        with pytest.raises(replay.ReplayError, match="a name has at most 48"):
            replay.Archive.create(lab, fleet.bus, name)  # type: ignore[arg-type]
    with pytest.raises(replay.ReplayError, match="archive 'other' was not made: its pattern is no JSON"):
        replay.Archive.create(lab, fleet.bus, "other", pattern={"source": {"a"}})
    with pytest.raises(replay.ReplayError, match="archive 'other' was not made: Event bus nowhere does not exist"):
        replay.Archive.create(lab, Bus(client, "nowhere"), "other")
    with pytest.raises(replay.ReplayError, match="archive 'steps' was not made"):
        replay.Archive.create(lab, fleet.bus, "steps")
    assert repr(fleet.archive) == "<Archive steps of bus fleet>"


@pytest.mark.parametrize("fault", [Throttled(), Failing(), Cut()])
def test_a_service_that_stumbles_is_one_sentence(fleet: Fleet, fault: Fault) -> None:
    client = fleet.bus.client
    made = fleet.plan().only("work")
    for operation in ("DescribeArchive", "ListRules", "ListTargetsByRule", "ListTagsForResource"):
        with inject(client, fault, operation) as stumbled, pytest.raises(replay.Unheard, match="could not be"):
            fleet.plan()
        assert stumbled.made
    with inject(client, fault, "StartReplay"), pytest.raises(replay.ReplayError, match=r"not started|nobody knows"):
        replay.start(made)
    assert not client.list_replays(EventSourceArn=fleet.archive.arn)["Replays"]
    running = replay.start(made)
    with inject(client, fault, "CancelReplay"), pytest.raises(replay.Unheard, match="cancel it again"):
        running.cancel()
    with inject(client, fault, "DescribeReplay"), pytest.raises(replay.Unheard, match="could not be looked at"):
        running.look()
    assert running.follow(seconds=PATIENCE).state == "COMPLETED"


def test_a_start_whose_answer_is_lost_starts_once(fleet: Fleet) -> None:
    sent = sorted(fleet.publish(3))
    fleet.events("work", 3)
    made = fleet.plan().only("work")
    with inject(fleet.bus.client, Unanswered(), "StartReplay", times=1) as fault:
        running = replay.start(made)  # botocore asks again, and is told that the name is taken
    assert fault.made == 1
    running.follow(seconds=PATIENCE)
    assert traces(fleet.events("work", 3)) == sent


def test_a_bus_with_more_rules_than_a_page(fleet: Fleet) -> None:
    client = fleet.bus.client
    for number in range(120):
        rule = {"Name": f"rule-{number:03}", "EventBusName": fleet.bus.name, "EventPattern": json.dumps(REQUESTED)}
        client.put_rule(**rule)
    last = [
        {"Id": name, "Arn": fleet.lab.arn("sqs", name)} if name != "bus" else {"Id": name, "Arn": arn, "RoleArn": ROLE}
        for name, arn in [("a", ""), ("b", ""), ("c", ""), ("d", ""), ("bus", fleet.lab.arn("events", "event-bus/x"))]
    ]
    assert not client.put_targets(Rule="rule-119", EventBusName=fleet.bus.name, Targets=last)["FailedEntryCount"]
    made = fleet.plan()
    assert len(made.routes) == 122
    assert {target.name for route, target in made.unsafe if route.rule == "rule-119"} == {"a", "b", "c", "d", "x"}
    replay.start(made.only_safe()).cancel(seconds=PATIENCE)
