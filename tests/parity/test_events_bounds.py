"""What one rule or one setting can do to the others: rules that pass events to each other's buses, clock scales."""

from __future__ import annotations

import time

import pytest

from .conftest import Aws
from .events_kit import ROLE, Events, attributes_of
from .rows import ours, row

GUIDE = "EventBridge User Guide: Sending events between event buses; AWS's error quoted in public"


@pytest.fixture
def events(aws: Aws) -> Events:
    return Events(aws)


def passes_on(events: Events, source: str, target: str, name: str = "", **more: object) -> str:
    rule = events.rule(name or f"to-{target}", bus=source)
    arn = events.aws.arn("events", f"event-bus/{target}")
    events.target(rule, arn, RoleArn=ROLE.format(account=events.aws.account), **more)
    return rule.name


@row(
    "events.kinds.bus_once",
    "An event that came from another bus is passed on to no third one, it goes to the dead-letter queue.",
    source=GUIDE,
)
def test_no_second_hop(events: Events) -> None:
    dead, first, second, third = (events.queue(name) for name in ("dead", "a", "b", "c"))
    for bus, queue in (("a", first), ("b", second), ("c", third)):
        events.target(events.rule(f"{bus}-queue", bus=bus), queue.arn)
    passes_on(events, "a", "b")
    passes_on(events, "b", "a", dlq=dead)
    passes_on(events, "b", "c", dlq=dead)
    identity = events.put(bus="a")
    assert [event["id"] for event in events.events(first, settle=0.2) + events.events(second)] == [identity] * 2
    messages = events.messages(dead, 2)
    assert {attributes_of(message)["ERROR_CODE"] for message in messages} == {"THIRD_ACCOUNT_HOP_DETECTED"}
    assert {attributes_of(message)["RETRY_ATTEMPTS"] for message in messages} == {"0"}
    events.nothing_in(third)


@ours("how long AWS takes is no promise; the stand-in must not stand still")
@pytest.mark.parametrize(("buses", "rules"), [(2, 5), (7, 1), (2, 20)])
def test_buses_that_send_to_each_other_hold_nobody_up(events: Events, buses: int, rules: int) -> None:
    names = [f"bus{number}" for number in range(buses)]
    for name in names:
        events.api.create_event_bus(Name=name)
    for source in names:
        for target in names:
            for number in range(rules if source != target else 0):
                passes_on(events, source, target, f"{target}-{number}")
    queue = events.queue("q")
    events.target(events.rule("last", bus=names[1]), queue.arn)
    started = time.monotonic()
    events.put(bus=names[0])
    assert time.monotonic() - started < 30
    events.messages(queue, rules, settle=0.2)


@ours("no limit of AWS is near; ours keeps one event from flooding the stand-in")
def test_a_rule_of_a_bus_for_the_bus_itself_ends(events: Events) -> None:
    queue = events.queue("q")
    events.target(events.rule("queue"), queue.arn)
    passes_on(events, "default", "default")
    started = time.monotonic()
    events.put()
    assert time.monotonic() - started < 30
    events.messages(queue, 2, settle=0.2)


@ours("AWS makes all deliveries of an event in the background; here, the first 200 are made at once")
def test_many_deliveries_go_on_in_the_background(events: Events) -> None:
    queues = [events.queue(f"q{number}") for number in range(5)]
    targets = [{"Id": queue.arn.rpartition(":")[2], "Arn": queue.arn} for queue in queues]
    for number in range(50):
        events.api.put_targets(Rule=events.rule(f"r{number}").name, Targets=targets)
    events.put()
    for queue in queues:
        events.messages(queue, 50, settle=0.1)


@ours("the tag is ours; a value out of range killed the thread that makes all retries")
@pytest.mark.parametrize("scale", ["1e-11", "1e-300", "1e300", "-1"])
def test_a_clock_scale_out_of_range_counts_as_none(events: Events, scale: str) -> None:
    events.target(events.rule("slow", tags={"lab:clock-scale": scale}), events.queue("q", fault="THROTTLING").arn)
    dead = events.queue("dead")
    fast = events.rule("fast", tags={"lab:clock-scale": "200000"})
    events.target(fast, events.queue("r", fault="THROTTLING").arn, dlq=dead, RetryPolicy={"MaximumRetryAttempts": 2})
    events.put()
    assert attributes_of(events.messages(dead)[0])["RETRY_ATTEMPTS"] == "2"
