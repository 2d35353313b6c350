"""Archives that can be replayed.

**On AWS** StartReplay answers at once, with STARTING, and the events follow (recorded). What a replay delivers, and to
which rules, is in :mod:`parity.events_archive` and :mod:`parity.events_dispatch`.

**LocalStack** keeps the time of an archived event as a text and reads it as a time, so that a replay of an archive that
holds anything is an InternalError; it replays before it answers, with COMPLETED, and does not look at an archive's
pattern again when that changes.

**Here** an archived event has its time. The events are still replayed before the answer: a reader who waits until
DescribeReplay says COMPLETED need not wait.
"""

from __future__ import annotations

import functools
from datetime import datetime
from typing import Any


def with_time(event: dict[str, Any]) -> dict[str, Any]:
    """The event with its time as LocalStack's archives read it."""
    time = event["time"]
    return {**event, "time": datetime.fromisoformat(time) if isinstance(time, str) else time}


def install() -> None:
    from localstack.services.events.archive import ArchiveService
    from localstack.services.events.provider import EventsProvider

    put_events, update, start = ArchiveService.put_events, ArchiveService.update, EventsProvider.start_replay
    _ = ArchiveService._create_archive_rule

    def put_with_time(self: ArchiveService, events: list[dict[str, Any]]) -> None:
        put_events(self, [with_time(event) for event in events])

    def update_with_rule(self: ArchiveService, description: Any, event_pattern: Any, retention_days: Any) -> None:
        update(self, description, event_pattern, retention_days)
        if event_pattern is not None:
            self._create_archive_rule()

    @functools.wraps(start)
    def start_replay(self: EventsProvider, *arguments: Any, **named: Any) -> dict[str, Any]:
        return {**start(self, *arguments, **named), "State": "STARTING"}

    ArchiveService.put_events = put_with_time
    ArchiveService.update = update_with_rule
    EventsProvider.start_replay = start_replay
