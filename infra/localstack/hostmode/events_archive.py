"""Archives that can be replayed.

**On AWS** StartReplay answers at once, with STARTING, and the events follow (recorded). What it refuses is in
:mod:`parity.events_archive`, what it sends and in which states it is in :mod:`parity.events_replays`, to which rules in
:mod:`parity.events_dispatch`.

**LocalStack** keeps the time of an archived event as a text and reads it as a time, so that a replay of an archive that
holds anything is an InternalError; it replays before it answers, with COMPLETED, whole minutes in the order of arrival,
leaves a cancelled replay in CANCELLING for ever, runs any number at once, does not look at an archive's pattern again
when that changes, and shows an archive's own rule as one of the user's.

**Here** an archived event has its time, and each replay is a :class:`~parity.events_replays.Run` on its own thread.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from parity.events_archive import MANAGED_BY, check_start_replay, managed_rule
from parity.events_replays import Run, in_minutes, pause
from parity.events_rules import bus_named

from .events_rules import checked

MEMBERS = {"State": "state", "EventLastReplayedTime": "event_last_replayed_time", "ReplayEndTime": "replay_end_time"}


def with_time(event: dict[str, Any]) -> dict[str, Any]:
    """The event with its time as LocalStack's archives read it."""
    time = event["time"]
    return {**event, "time": datetime.fromisoformat(time) if isinstance(time, str) else time}


def time_of(event: Mapping[str, Any]) -> float:
    return event["time"].timestamp()


def install() -> None:
    from localstack.services.events.archive import ArchiveService
    from localstack.services.events.provider import EventsProvider

    put_events, update = ArchiveService.put_events, ArchiveService.update
    start, cancel = EventsProvider.start_replay, EventsProvider.cancel_replay
    shown = EventsProvider._rule_to_api_type_rule
    runs: dict[str, Run] = {}
    _ = ArchiveService._create_archive_rule, EventsProvider.create_replay_service, EventsProvider._process_entries

    def put_with_time(self: ArchiveService, events: list[dict[str, Any]]) -> None:
        put_events(self, [with_time(event) for event in events])

    def update_with_rule(self: ArchiveService, description: Any, event_pattern: Any, retention_days: Any) -> None:
        update(self, description, event_pattern, retention_days)
        if event_pattern is not None:
            self._create_archive_rule()

    def check_start(self: EventsProvider, context: Any, request: Mapping[str, Any]) -> None:
        store = self.get_store(context.region, context.account_id)
        check_start_replay(
            {**request, **{end: request[end].timestamp() for end in ("EventStartTime", "EventEndTime")}},
            bus_named(request["Destination"]["Arn"], context.account_id, context.region),
            buses=store.event_buses,
            archives={name: archive.event_source_arn for name, archive in store.archives.items()},
            replays={name: replay.state for name, replay in store.replays.items()},
        )

    @functools.wraps(start)
    def start_replay(self: EventsProvider, context: Any, *_: Any, **__: Any) -> dict[str, Any]:
        request, store = context.service_request, self.get_store(context.region, context.account_id)
        service = self.create_replay_service(
            request["ReplayName"],
            context.region,
            context.account_id,
            request["EventSourceArn"],
            request["Destination"],
            request["EventStartTime"],
            request["EventEndTime"],
            request.get("Description"),
        )
        replay = service.replay
        replay.replay_start_time = datetime.now(UTC)
        store.replays[replay.name] = replay
        archived = list(self._archive_service_store[request["EventSourceArn"]].archive.events.values())
        events = in_minutes(archived, replay.event_start_time.timestamp(), replay.event_end_time.timestamp(), time_of)
        wait = pause(store.TAGS.tags.get(request["Destination"]["Arn"]) or {})

        def show(changed: Mapping[str, Any]) -> None:
            for member, value in changed.items():
                time = datetime.fromtimestamp(value, UTC) if member.endswith("Time") else value
                setattr(replay, MEMBERS.get(member, member), time)

        def send(event: dict[str, Any]) -> None:
            self._process_entries(context, service.re_format_events_from_archive([event], replay.name))

        run = runs[replay.arn] = Run(replay.name, show)
        answer = {"ReplayArn": replay.arn, "State": "STARTING", "ReplayStartTime": replay.replay_start_time}
        threading.Thread(target=run.go, args=(events, send, time_of, wait), name="events-replay", daemon=True).start()
        return answer

    def cancel_run(self: EventsProvider, context: Any, request: Mapping[str, Any]) -> None:
        store = self.get_store(context.region, context.account_id)
        runs[self.get_replay(request["ReplayName"], store).arn].cancel()

    @functools.wraps(cancel)
    def cancel_replay(self: EventsProvider, context: Any, *_: Any, **__: Any) -> dict[str, Any]:
        store = self.get_store(context.region, context.account_id)
        return {"ReplayArn": store.replays[context.service_request["ReplayName"]].arn, "State": "CANCELLING"}

    def as_managed(self: EventsProvider, rule: Any) -> dict[str, Any]:
        archives = [arn.rpartition("/")[2] for target in rule.targets.values() if ":archive/" in (arn := target["Arn"])]
        managed = {"ManagedBy": MANAGED_BY} if rule.name in map(managed_rule, archives) else {}
        return shown(self, rule) | managed

    ArchiveService.put_events = put_with_time
    ArchiveService.update = update_with_rule
    EventsProvider.start_replay, EventsProvider.cancel_replay = start_replay, cancel_replay
    EventsProvider._rule_to_api_type_rule = as_managed
    checked(EventsProvider, "start_replay", check_start)
    checked(EventsProvider, "cancel_replay", cancel_run)
