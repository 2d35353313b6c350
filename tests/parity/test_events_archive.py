"""Archives and replays: what is refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError

from .conftest import Aws
from .events_kit import RECORDED, Events
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
