"""The bus and the claim check: every entry answered for, rules with all that their deliveries need."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from labkit import Lab
from labkit.control.bus import Bus, BusError, PatternError, PublishError, RetryPolicy
from labkit.control.envelope import Envelope, EnvelopeExpired
from labkit.state.claimcheck import ClaimCheck, ClaimError
from labkit.work.queues import Queue

RESEARCHER = {"detail": {"agent_class": ["researcher"]}}


def make(step: int = 1, size: int = 10, **fields: Any) -> Envelope:
    return Envelope.new(
        conversation_id="8842", step=step, agent_class="researcher", payload={"text": "x" * size}, **fields
    )


class Flaky:
    """An EventBridge client that refuses the entries of chosen steps, a given number of times each."""

    def __init__(self, code: str, times: dict[int, int]) -> None:
        self.code, self.times = code, times
        self.calls: list[int] = []

    def put_events(self, Entries: list[dict[str, Any]]) -> dict[str, Any]:
        self.calls.append(len(Entries))
        results: list[dict[str, str]] = []
        for entry in Entries:
            step = Envelope.parse(entry["Detail"]).step
            if self.times.get(step, 0) > 0:
                self.times[step] -= 1
                results.append({"ErrorCode": self.code, "ErrorMessage": "no"})
            else:
                results.append({"EventId": f"e{step}"})
        return {"FailedEntryCount": 0, "Entries": results}


def test_only_the_entries_that_failed_are_published_again() -> None:
    client = Flaky("ThrottlingException", {2: 1, 4: 2})
    done = Bus(client, "fleet").publish((make(step) for step in range(6)), sleep=lambda _: None)
    assert done.ids == ("e0", "e1", "e2", "e3", "e4", "e5")
    assert client.calls == [6, 2, 1]
    assert (done.calls, done.retried) == (3, 3)


def test_an_entry_that_cannot_succeed_is_named_and_the_others_are_published() -> None:
    client = Flaky("MalformedDetail", {2: 99})
    with pytest.raises(PublishError, match=r"1 of 3 events were not accepted: conv-8842-step-2: MalformedDetail"):
        Bus(client, "fleet").publish([make(1), make(2), make(3)], sleep=lambda _: None)
    assert client.calls == [3]


def test_entries_travel_ten_at_a_time_and_below_the_size_of_a_request() -> None:
    client = Flaky("", {})
    Bus(client, "fleet").publish([make(step) for step in range(23)])
    assert client.calls == [10, 10, 3]
    client.calls.clear()
    Bus(client, "fleet").publish([make(step, 400_000) for step in range(5)])
    assert client.calls == [2, 2, 1]


def test_an_event_over_the_limit_is_refused_before_anything_is_sent() -> None:
    client = Flaky("", {})
    with pytest.raises(BusError, match="give the bus a claim check"):
        Bus(client, "fleet").publish([make(1), make(2, 1_100_000)])
    assert client.calls == []


def test_a_rule_delivers_with_the_policies_it_needs(lab: Lab) -> None:
    queue, dead = Queue.create(lab, "researcher"), Queue.create(lab, "undelivered")
    bus = Bus.create(lab, "fleet")
    bus.rule("researcher", RESEARCHER, queue, dlq=dead)
    bus.publish([make(1), make(2)])
    got = [Envelope.from_event(message.body).step for message in queue.receive(wait=2)]
    assert sorted(got) == [1, 2]
    assert dead.depth().total == 0


def test_a_fifo_target_gets_the_rules_fixed_group(lab: Lab) -> None:
    queue = Queue.create(lab, "lane.fifo", attributes={"ContentBasedDeduplication": True})
    bus = Bus.create(lab, "fleet")
    bus.rule("lane", RESEARCHER, queue, group="researcher")
    bus.publish([make(step) for step in range(3)])
    messages = queue.receive(wait=2)
    assert [Envelope.from_event(message.body).step for message in messages] == [0, 1, 2]
    assert {message.group for message in messages} == {"researcher"}


def test_a_bad_pattern_is_a_sentence(lab: Lab) -> None:
    bus = Bus.create(lab, "fleet")
    with pytest.raises(PatternError, match='the pattern of rule bad is not valid: "b" must be an object or an array'):
        bus.rule("bad", {"detail": {"a": {"b": "c"}}}, Queue.create(lab, "q"))
    with pytest.raises(PatternError):
        bus.matches({"detail": []}, {})


def test_a_refused_rule_leaves_nothing_behind(lab: Lab) -> None:
    bus = Bus.create(lab, "fleet")
    queue = Queue.create(lab, "q")
    lane = Queue.create(lab, "lane.fifo")
    for target, dlq in ((lane, None), (queue, lane)):  # a FIFO target without a group; a FIFO dead-letter queue
        with pytest.raises(BusError, match="got no target"):
            bus.rule("r", RESEARCHER, target, dlq=dlq)
        assert lab.client("events").list_rules(EventBusName="fleet")["Rules"] == []
    with pytest.raises(BusError, match="was not made"):
        Bus.create(lab, "fleet")


@pytest.mark.parametrize("days", [0, -1, 1.5])
def test_a_refused_claim_check_leaves_no_bucket_behind(lab: Lab, days: Any) -> None:
    with pytest.raises(ClaimError, match="whole days"):
        ClaimCheck.create(lab, "claims", expire_days=days)
    assert lab.client("s3").list_buckets()["Buckets"] == []


@pytest.mark.parametrize(("attempts", "age"), [(1.5, 60), (-1, 60), (186, 60), (1, 59), (1, 86_401)])
def test_a_retry_policy_outside_the_limits_is_refused(attempts: Any, age: int) -> None:
    with pytest.raises(BusError, match="RetryPolicy"):
        RetryPolicy(attempts, age)


def test_an_oversized_payload_goes_to_s3_and_comes_back(lab: Lab) -> None:
    claims = ClaimCheck.create(lab, "claims")
    queue = Queue.create(lab, "researcher")
    bus = Bus.create(lab, "fleet", packer=claims)
    bus.rule("researcher", RESEARCHER, queue)
    small, large = make(1, 100), make(2, 2_000_000)
    bus.publish([small, large])
    received = {}
    for message in queue.receive(wait=2):
        envelope = Envelope.from_event(message.body)
        received[envelope.step] = envelope
    assert received[1] == small
    assert received[2].payload is None
    assert received[2].size() < 1_000
    assert claims.unpack(received[2]) == large
    assert claims.pack(large) == received[2]  # the same work is the same object
    objects = lab.client("s3").list_objects_v2(Bucket=claims.bucket)["KeyCount"]
    assert objects == 1


def test_a_payload_that_is_gone_or_altered_is_a_sentence(lab: Lab) -> None:
    claims = ClaimCheck.create(lab, "claims", threshold=100)
    packed = claims.pack(make(1, 1_000))
    assert packed.payload_ref is not None
    claims.client.put_object(Bucket=claims.bucket, Key=packed.payload_ref.key, Body=b"{}")
    with pytest.raises(ClaimError, match="altered"):
        claims.unpack(packed)
    claims.client.delete_object(Bucket=claims.bucket, Key=packed.payload_ref.key)
    with pytest.raises(ClaimError, match="is gone"):
        claims.unpack(packed)


def test_a_worker_refuses_what_has_expired(lab: Lab) -> None:
    queue = Queue.create(lab, "researcher")
    bus = Bus.create(lab, "fleet")
    bus.rule("researcher", RESEARCHER, queue)
    envelope = make(1, ttl_seconds=60)
    bus.publish([envelope])
    [message] = queue.receive(wait=2)
    with pytest.raises(EnvelopeExpired):
        Envelope.from_event(message.body).fresh(lambda: envelope.issued_at + timedelta(minutes=2))
