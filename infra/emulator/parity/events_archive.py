"""Archives and replays: what CreateArchive, UpdateArchive and StartReplay refuse.

**On AWS** an archive needs a bus that exists, a change of one needs something to change, and a replay needs an archive,
the archive's own bus, a start before its end, and a name that is free; ten replays may run at once (all recorded, with
HTTP 400; in which order the checks come is not). What a replay delivers is in :mod:`parity.events_dispatch`.

**MiniStack** archives a bus that does not exist, starts a replay whose end lies before its start, answers some of the
others with another code or text, and sends all archived events along when an archive is described.

**Here** the checks come before MiniStack's handlers.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any

from .events_rules import Refused, Request, bus_named, guard, invalid, no_such_bus

MAX_ACTIVE = 10


def check_create_archive(request: Request, bus: str, *, buses: Collection[str], archives: Collection[str]) -> None:
    name = request.get("ArchiveName")
    if name in archives:
        raise Refused("ResourceAlreadyExistsException", f"Archive {name} already exists.")
    if bus not in buses:
        raise no_such_bus(bus)


def check_update_archive(request: Request) -> None:
    if not any(request.get(member) is not None for member in ("EventPattern", "RetentionDays", "Description")):
        raise invalid("At least one of EventPattern, RetentionDays or Description must be provided.")


def check_start_replay(
    request: Request, bus: str, *, buses: Collection[str], archives: Mapping[str, Any], replays: Mapping[str, Any]
) -> None:
    """``archives`` are the ARNs of the archives' buses by archive name, ``replays`` the states of replays by name."""
    name = request.get("ReplayName")
    if name in replays:
        raise Refused("ResourceAlreadyExistsException", f"Replay {name} already exists.")
    if bus not in buses:
        raise no_such_bus(bus)
    archive = (request.get("EventSourceArn") or "").rpartition("/")[2]
    if archive not in archives:
        raise invalid(f"Parameter EventSourceArn is not valid. Reason: Archive {archive} does not exist.")
    if archives[archive] != request["Destination"]["Arn"]:
        raise invalid("Parameter Destination.Arn is not valid. Reason: Cross event bus replay is not permitted.")
    start, end = request.get("EventStartTime"), request.get("EventEndTime")
    if isinstance(start, int | float) and isinstance(end, int | float) and start >= end:
        raise invalid("Parameter EventEndTime is not valid. Reason: EventStartTime must be before EventEndTime.")
    if sum(state in ("STARTING", "RUNNING") for state in replays.values()) >= MAX_ACTIVE:
        raise Refused("LimitExceededException", "The requested resource exceeds the maximum number allowed.")


def install() -> None:
    from ministack.core.responses import error_response_json, get_account_id, get_region, json_response
    from ministack.services import eventbridge as eb

    def named(reference: str | None) -> str:
        return bus_named(reference, get_account_id(), get_region())

    def create(request: Request) -> Request:
        bus = named(request.get("EventSourceArn"))
        check_create_archive(request, bus, buses=eb._event_buses, archives=eb._archives)
        return request

    def update(request: Request) -> Request:
        check_update_archive(request)
        return request

    def start(request: Request) -> Request:
        check_start_replay(
            request,
            named((request.get("Destination") or {}).get("Arn")),
            buses=eb._event_buses,
            archives={name: archive["EventSourceArn"] for name, archive in eb._archives.items()},
            replays={name: replay["State"] for name, replay in eb._replays.items()},
        )
        return request

    describe, start_replay = eb._describe_archive, eb._start_replay

    def describe_archive(request: Request) -> tuple:
        status, headers, body = describe(request)
        archive = json.loads(body)
        archive.pop("Events", None)
        return status, headers, json.dumps(archive, ensure_ascii=False).encode()

    def start_with_time(request: Request) -> tuple:
        status, headers, body = start_replay(request)
        if status != 200:
            return status, headers, body
        started = eb._replays[request["ReplayName"]]["ReplayStartTime"]
        return json_response(json.loads(body) | {"ReplayStartTime": started})

    eb._describe_archive = describe_archive
    eb._start_replay = start_with_time
    guard(eb, error_response_json, "_create_archive", create)
    guard(eb, error_response_json, "_update_archive", update)
    guard(eb, error_response_json, "_start_replay", start)
