"""Archives and replays: what is refused."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from .conftest import Aws
from .events_kit import GUIDE, MODEL, RECORDED, Events
from .rows import row

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def events(aws: Aws) -> Events:
    return Events(aws)


def error(call: Any, **arguments: Any) -> tuple[str, str]:
    with pytest.raises(ClientError) as raised:
        call(**arguments)
    assert raised.value.response["ResponseMetadata"]["HTTPStatusCode"] == 400
    found = raised.value.response["Error"]
    return found["Code"], found["Message"]


def archive(events: Events, name: str = "a", bus: str = "default") -> str:
    source = events.aws.arn("events", f"event-bus/{bus}")
    return str(events.api.create_archive(ArchiveName=name, EventSourceArn=source)["ArchiveArn"])


def replay(events: Events, **more: Any) -> dict[str, Any]:
    return {
        "ReplayName": "r",
        "EventSourceArn": events.aws.arn("events", "archive/a"),
        "EventStartTime": NOW,
        "EventEndTime": NOW + timedelta(hours=1),
        "Destination": {"Arn": events.aws.arn("events", "event-bus/default")},
    } | more


@row("events.archive.create", "An archive needs a bus that exists and a name that is free", source=RECORDED)
def test_create(events: Events) -> None:
    source = events.aws.arn("events", "event-bus/nowhere")
    assert error(events.api.create_archive, ArchiveName="a", EventSourceArn=source) == (
        "ResourceNotFoundException",
        "Event bus nowhere does not exist.",
    )
    archive(events)
    source = events.aws.arn("events", "event-bus/default")
    assert error(events.api.create_archive, ArchiveName="a", EventSourceArn=source) == (
        "ResourceAlreadyExistsException",
        "Archive a already exists.",
    )


@row("events.archive.update", "UpdateArchive needs something to change", source=RECORDED)
def test_update(events: Events) -> None:
    archive(events)
    assert error(events.api.update_archive, ArchiveName="a") == (
        "ValidationException",
        "At least one of EventPattern, RetentionDays or Description must be provided.",
    )


@row("events.replay.start", "StartReplay answers with its ARN, its time and STARTING", source=RECORDED)
def test_start(events: Events) -> None:
    archive(events)
    answer = events.api.start_replay(**replay(events))
    assert answer["ReplayArn"] == events.aws.arn("events", "replay/r")
    assert answer["State"] == "STARTING"
    assert isinstance(answer["ReplayStartTime"], datetime)


@row(
    "events.replay.refused",
    "A replay needs an archive that exists, its own bus, a start before its end, a free name",
    source=RECORDED,
)
def test_refused(events: Events) -> None:
    start = events.api.start_replay
    assert error(start, **replay(events)) == (
        "ValidationException",
        "Parameter EventSourceArn is not valid. Reason: Archive a does not exist.",
    )
    archive(events)
    for end in (NOW, NOW - timedelta(seconds=10)):
        assert error(start, **replay(events, EventEndTime=end)) == (
            "ValidationException",
            "Parameter EventEndTime is not valid. Reason: EventStartTime must be before EventEndTime.",
        )
    elsewhere = {"Arn": events.aws.arn("events", "event-bus/fleet")}
    missing = ("ResourceNotFoundException", "Event bus fleet does not exist.")
    assert error(start, **replay(events, Destination=elsewhere)) == missing
    events.api.create_event_bus(Name="fleet")
    assert error(start, **replay(events, Destination=elsewhere)) == (
        "ValidationException",
        "Parameter Destination.Arn is not valid. Reason: Cross event bus replay is not permitted.",
    )
    start(**replay(events))
    assert error(start, **replay(events)) == ("ResourceAlreadyExistsException", "Replay r already exists.")


# ---- what an archive and a replay show of themselves


def state(events: Events, *wanted: str, name: str = "r") -> dict[str, Any]:
    """DescribeReplay, once the state is one of ``wanted``."""
    end = time.monotonic() + 60
    while True:
        found: dict[str, Any] = events.api.describe_replay(ReplayName=name)
        if found["State"] in wanted:
            return found
        assert time.monotonic() < end, found["State"]
        time.sleep(0.05)


def put_at(events: Events, *ages: int) -> list[datetime]:
    """One event for each age in seconds; returns their times."""
    now = datetime.now(UTC).replace(microsecond=0)
    times = [now - timedelta(seconds=age) for age in ages]
    for moment in times:
        events.put({"at": moment.isoformat()}, Time=moment)
    return times


@row(
    "events.archive.rule",
    "An archive has a managed rule on its bus, for its pattern and without replayed events",
    source=GUIDE,
)
def test_managed_rule(events: Events) -> None:
    source = events.aws.arn("events", "event-bus/default")
    events.api.create_archive(ArchiveName="a", EventSourceArn=source, EventPattern=json.dumps({"source": ["x"]}))
    [rule] = events.api.list_rules()["Rules"]
    assert rule["Name"] == "Events-Archive-a"
    assert rule["ManagedBy"]
    assert json.loads(rule["EventPattern"]) == {"source": ["x"], "replay-name": [{"exists": False}]}
    events.api.delete_archive(ArchiveName="a")
    assert events.api.list_rules()["Rules"] == []


@row(
    "events.replay.range",
    "A replay takes the events whose own time lies in its range; EventLastReplayedTime is the time of the last one",
    source=MODEL,
)
def test_range(events: Events) -> None:
    archive(events)
    queue = events.queue("q")
    events.target(events.rule(), queue.arn)
    times = put_at(events, 7200, 3600, 3500, 600)
    events.messages(queue, 4)
    start, end = times[1] - timedelta(minutes=2), times[2] + timedelta(minutes=2)
    events.api.start_replay(**replay(events, EventStartTime=start, EventEndTime=end))
    again = events.events(queue, 2)
    assert {event["time"] for event in again} == {f"{moment:%Y-%m-%dT%H:%M:%SZ}" for moment in times[1:3]}
    assert state(events, "COMPLETED")["EventLastReplayedTime"] == times[2]


@row(
    "events.replay.list",
    "ListReplays says of each replay its range, its times and its state; a page ends with a token",
    source=RECORDED,
)
def test_list(events: Events) -> None:
    archive(events)
    for name in ("r1", "r2", "r3"):
        events.api.start_replay(**replay(events, ReplayName=name))
        state(events, "COMPLETED", name=name)
    answer = events.api.list_replays(NamePrefix="r", Limit=2)
    assert [found["ReplayName"] for found in answer["Replays"]] == ["r1", "r2"]
    assert set(answer["Replays"][0]) == {
        "EventEndTime",
        "EventSourceArn",
        "EventStartTime",
        "ReplayEndTime",
        "ReplayName",
        "ReplayStartTime",
        "State",
    }
    rest = events.api.list_replays(NamePrefix="r", NextToken=answer["NextToken"])
    assert [found["ReplayName"] for found in rest["Replays"]] == ["r3"]
    assert "NextToken" not in rest


def slowly(events: Events, count: int) -> None:
    """A bus whose replays take their time, with so many events in its archive. On AWS each replay takes minutes."""
    events.api.create_event_bus(Name="slow", Tags=[{"Key": "lab:replay-rate", "Value": "5"}])
    archive(events, bus="slow")
    for _ in range(count // 10):
        entry = {"Source": "lab.orders", "DetailType": "d", "Detail": "{}", "EventBusName": "slow"}
        events.api.put_events(Entries=[entry] * 10)


def from_slow(events: Events, **more: Any) -> dict[str, Any]:
    now = datetime.now(UTC)
    return replay(
        events,
        EventStartTime=now - timedelta(minutes=5),
        EventEndTime=now + timedelta(minutes=5),
        Destination={"Arn": events.aws.arn("events", "event-bus/slow")},
        **more,
    )


@row("events.replay.cancel", "CancelReplay answers CANCELLING, and the replay ends CANCELLED", source=RECORDED)
def test_cancel(events: Events) -> None:
    slowly(events, 300)
    events.api.start_replay(**from_slow(events))
    state(events, "RUNNING")
    assert events.api.cancel_replay(ReplayName="r")["State"] == "CANCELLING"
    assert isinstance(state(events, "CANCELLED")["ReplayEndTime"], datetime)


@row("events.replay.cancel_over", "Only a replay that is STARTING or RUNNING can be cancelled", source=MODEL)
def test_cancel_when_over(events: Events) -> None:
    archive(events)
    events.api.start_replay(**replay(events))
    state(events, "COMPLETED")
    assert error(events.api.cancel_replay, ReplayName="r")[0] == "IllegalStatusException"
    assert error(events.api.cancel_replay, ReplayName="none")[0] == "ResourceNotFoundException"


@row(
    "events.replay.limit",
    "Ten replays may run at once; an eleventh is refused (the text is not recorded)",
    source=GUIDE,
)
def test_limit(events: Events) -> None:
    slowly(events, 300)
    for number in range(10):
        events.api.start_replay(**from_slow(events, ReplayName=f"r{number}"))
    assert error(events.api.start_replay, **from_slow(events))[0] == "LimitExceededException"
    for number in range(10):
        events.api.cancel_replay(ReplayName=f"r{number}")
        state(events, "CANCELLED", name=f"r{number}")
    events.api.start_replay(**from_slow(events))
    events.api.cancel_replay(ReplayName="r")
