"""Archives and replays: what CreateArchive, UpdateArchive and StartReplay refuse.

**On AWS** an archive needs a bus that exists, a change of one needs something to change, and a replay needs an archive,
the archive's own bus, a start before its end, and a name that is free; ten replays may run at once (all recorded, with
HTTP 400; in which order the checks come is not). What a replay delivers is in :mod:`parity.events_dispatch`.

An archive has a rule on its bus, ``Events-Archive-NAME``, which the service manages and which keeps replayed events out
(EventBridge User Guide; its name and ManagedBy as seen in public; not verified: that it keeps the bus from deletion).

**MiniStack** archives a bus that does not exist, starts a replay whose end lies before its start, answers some of the
others with another code or text, sends all archived events along when an archive is described, and lists replays with
few of their members, all at once. It has no such rule.

**Here** the checks come before MiniStack's handlers; StartReplay and CancelReplay are replaced, with a
:class:`~parity.events_replays.Run` for each replay on a thread of its own.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection, Mapping
from typing import Any

from .events_replays import ACTIVE, Run, in_minutes, pause
from .events_rules import Refused, Request, bus_named, guard, invalid, no_such_bus

MAX_ACTIVE = 10
MANAGED_BY = "prod.vhs.events.aws.internal"
LISTED = (  # what ListReplays says of each one (recorded)
    "ReplayName",
    "EventSourceArn",
    "State",
    "StateReason",
    "EventStartTime",
    "EventEndTime",
    "EventLastReplayedTime",
    "ReplayStartTime",
    "ReplayEndTime",
)


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
    if sum(state in ACTIVE for state in replays.values()) >= MAX_ACTIVE:
        raise Refused("LimitExceededException", "The requested resource exceeds the maximum number allowed.")


def managed_rule(archive: str) -> str:
    """The name of an archive's own rule."""
    return f"Events-Archive-{archive}"


def managed_pattern(pattern: str | None) -> str:
    """The pattern of an archive's own rule: the archive's, for live events only."""
    return json.dumps({**json.loads(pattern or "{}"), "replay-name": [{"exists": False}]})


def time_of(event: Mapping[str, Any]) -> float:
    return float(event.get("Time") or 0)


def install() -> None:
    from ministack.core.responses import (
        error_response_json,
        get_account_id,
        get_region,
        json_response,
        request_scope,
    )
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

    describe, reset = eb._describe_archive, eb.reset
    made, changed, deleted = eb._create_archive, eb._update_archive, eb._delete_archive
    runs: dict[tuple[str, str, str], Run] = {}
    _ = eb._start_replay, eb._cancel_replay, eb._list_replays, eb._dispatch_event, eb._coerce_timestamp, eb._tags
    _ = eb._rules, eb._targets, eb._rule_key, eb._rule_arn

    def describe_archive(request: Request) -> tuple:
        status, headers, body = describe(request)
        archive = json.loads(body)
        archive.pop("Events", None)
        return status, headers, json.dumps(archive, ensure_ascii=False).encode()

    def with_rule(handler: Any) -> Any:
        def handled(request: Request) -> tuple:
            answer = handler(request)
            name = request["ArchiveName"]
            if answer[0] == 200:
                archive = eb._archives[name]
                bus, rule = named(archive["EventSourceArn"]), managed_rule(name)
                key = eb._rule_key(rule, bus)
                eb._rules[key] = {
                    "Name": rule,
                    "Arn": eb._rule_arn(rule, bus),
                    "EventBusName": bus,
                    "EventPattern": managed_pattern(archive["EventPattern"]),
                    "State": "ENABLED",
                    "ManagedBy": MANAGED_BY,
                    "CreatedBy": get_account_id(),
                    "CreationTime": archive["CreationTime"],
                }
                eb._targets[key] = [{"Id": rule, "Arn": f"arn:aws:events:{get_region()}:::"}]
            return answer

        return handled

    def delete_archive(request: Request) -> tuple:
        archive = eb._archives.get(request.get("ArchiveName"))
        answer = deleted(request)
        if archive:
            key = eb._rule_key(managed_rule(archive["ArchiveName"]), named(archive["EventSourceArn"]))
            eb._rules.pop(key, None)
            eb._targets.pop(key, None)
        return answer

    def start_replay(request: Request) -> tuple:
        account, region, name = get_account_id(), get_region(), request["ReplayName"]
        archive = eb._archives[request["EventSourceArn"].rpartition("/")[2]]
        bus_arn = request["Destination"]["Arn"]
        bus = named(bus_arn)
        replay = {
            "ReplayName": name,
            "ReplayArn": f"arn:aws:events:{region}:{account}:replay/{name}",
            "EventSourceArn": request["EventSourceArn"],
            "EventStartTime": eb._coerce_timestamp(request.get("EventStartTime", time.time())),
            "EventEndTime": eb._coerce_timestamp(request.get("EventEndTime", time.time())),
            "Destination": request["Destination"],
            "State": "STARTING",
            "ReplayStartTime": time.time(),
            **({"Description": request["Description"]} if request.get("Description") else {}),
        }
        events = in_minutes(archive.get("Events", []), replay["EventStartTime"], replay["EventEndTime"], time_of)
        run = Run(name, replay.update)
        eb._replays[name], runs[account, region, name] = replay, run
        answer = {key: replay[key] for key in ("ReplayArn", "State", "ReplayStartTime")}
        wait = pause(eb._tags.get(bus_arn) or {})

        def send(event: Mapping[str, Any]) -> None:
            eb._dispatch_event({**event, "EventBusName": bus, "ReplayName": name})

        def work() -> None:
            with request_scope(account, region):
                run.go(events, send, time_of, wait)
            runs.pop((account, region, name), None)

        threading.Thread(target=work, name=f"replay-{name}", daemon=True).start()
        return json_response(answer)

    def cancel_replay(request: Request) -> tuple:
        name = request.get("ReplayName") or ""
        if name not in eb._replays:
            return error_response_json("ResourceNotFoundException", f"Replay {name} does not exist.", 400)
        replay = eb._replays[name]
        run = runs.get((get_account_id(), get_region(), name)) or over(name, replay["State"])
        try:
            run.cancel()
        except Refused as refused:
            return error_response_json(refused.code, refused.message, 400)
        return json_response({"ReplayArn": replay["ReplayArn"], "State": "CANCELLING"})

    def over(name: str, state: str) -> Run:
        run = Run(name, lambda changed: None)
        run.state = state
        return run

    def list_replays(request: Request) -> tuple:
        prefix, state, source = (request.get(key) or "" for key in ("NamePrefix", "State", "EventSourceArn"))
        found = [
            {key: replay[key] for key in LISTED if key in replay}
            for name, replay in sorted(eb._replays.items())
            if name.startswith(prefix)
            and state in ("", replay["State"])
            and source in ("", replay["EventSourceArn"])
            and name > (request.get("NextToken") or "")
        ]
        page = found[: request.get("Limit") or 100]
        token = {"NextToken": page[-1]["ReplayName"]} if len(page) < len(found) else {}
        return json_response({"Replays": page, **token})

    def forget() -> None:
        for run in list(runs.values()):
            run.forget()
        runs.clear()
        reset()

    eb._create_archive, eb._update_archive, eb._delete_archive = with_rule(made), with_rule(changed), delete_archive
    eb._describe_archive, eb._list_replays = describe_archive, list_replays
    eb._start_replay, eb._cancel_replay = start_replay, cancel_replay
    eb.reset = forget
    guard(eb, error_response_json, "_create_archive", create)
    guard(eb, error_response_json, "_update_archive", update)
    guard(eb, error_response_json, "_start_replay", start)
