"""Events of a memory: their ids, and the order in which they are listed.

**On AWS** an event's id is its eventTimestamp in milliseconds, as 19 digits, and random digits after a ``#``. Events
are listed by id, the newest first. One that names no branch is on ``main``; one without sessionId gets a session of its
own; one without any payload is taken (all captured on AWS: floci-io/floci#3556; the id's number as in
aws/bedrock-agentcore-sdk-python#571). So two events of one millisecond come in any order.

**MiniStack** counts ids from 1 in each session, lists the oldest first, keeps no branch main, and refuses an event
without payload.

**Here** it is as on AWS, the random order included.
"""

from __future__ import annotations

import datetime
import json
import secrets
import uuid
from collections.abc import Mapping
from typing import Any

MAIN = {"name": "main"}


def milliseconds(moment: Any) -> int:
    """An eventTimestamp, epoch seconds or a text in ISO 8601, in milliseconds."""
    if isinstance(moment, str):
        try:
            moment = float(moment)
        except ValueError:
            moment = datetime.datetime.fromisoformat(moment).timestamp()
    return round(float(moment) * 1000)


def event_id(moment: Any, suffix: str) -> str:
    return f"{milliseconds(moment):019d}#{suffix}"


def by_id(event: Mapping[str, Any]) -> str:
    """What events are in order by: their ids, as texts."""
    return str(event["eventId"])


def install() -> None:
    from ministack.services import bedrock_agentcore as agentcore

    create = agentcore._create_event

    def create_event(raw_memory: str, body: Any) -> Any:
        data = agentcore._parse_body(body)
        try:
            event_id(data.get("eventTimestamp"), "")
        except (TypeError, ValueError, OverflowError):
            return agentcore._validation("eventTimestamp is required, a timestamp.")
        asked, empty = dict(data), data.get("payload") == []
        asked.setdefault("sessionId", str(uuid.uuid4()))
        asked.setdefault("branch", MAIN)
        if empty:
            asked["payload"] = [{"json": {}}]
        answer = create(raw_memory, json.dumps(asked))
        if answer[0] != 201:
            return answer
        made = json.loads(answer[2])["event"]
        memory, scope, _ = agentcore._resolve_memory(raw_memory)
        session = agentcore._events_bucket(memory, scope)[made["actorId"]][made["sessionId"]]
        event = next(each for each in session["events"] if each["eventId"] == made["eventId"])
        if "_taken" in event:  # by an earlier request, with the same token
            return answer
        event["_taken"] = True
        event["eventId"] = event_id(data["eventTimestamp"], secrets.token_hex(4))
        if empty:
            event["payload"] = []
        session["events"].sort(key=by_id, reverse=True)
        return agentcore.json_response({"event": agentcore._public_event(event)}, 201)

    agentcore._create_event = create_event
