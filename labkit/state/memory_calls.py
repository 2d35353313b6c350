"""Memory calls: what AgentCore Memory's answers say, and what they leave to the caller."""

from __future__ import annotations

import contextlib
import datetime
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from labkit.errors import LabError
from labkit.models._input import limit
from labkit.state.session_rules import fits_memory

if TYPE_CHECKING:
    from labkit.lab import Lab

_ACTOR = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9_/-]*(:[a-zA-Z0-9_/-]+)*")  # botocore: ActorId
ROLES = ("ASSISTANT", "USER", "TOOL", "OTHER")  # botocore: Role


class AgentMemoryError(LabError):
    """AgentCore Memory refused something, or what was asked for makes no sense. ``code`` is AWS's, where it was AWS."""

    def __init__(self, says: str, code: str = "") -> None:
        self.code = code
        super().__init__(says)


@dataclass(frozen=True)
class Event:
    """One thing that was said. ``at`` is in epoch seconds; ``branch`` is None on the main line."""

    id: str
    role: str
    text: str
    at: float
    branch: str | None = None
    root: str | None = None  # the event that its branch goes on from; the branch's first event says so


@dataclass(frozen=True)
class Record:
    """One thing that is known. ``score`` is from a search: comparable within one answer, and no probability."""

    id: str
    text: str
    namespace: str
    score: float | None = None


@contextlib.contextmanager
def said(what: str) -> Iterator[None]:
    """An error of the client as one of ours, which says ``what`` did not happen."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield
    except ClientError as error:
        code, message = error.response["Error"]["Code"], error.response["Error"]["Message"]
        raise AgentMemoryError(f"{what}: {code}: {message}", code) from error
    except BotoCoreError as error:  # bad input as well: the SDK checks it against AWS's model before it sends
        raise AgentMemoryError(f"{what}: {' '.join(str(error).split())}") from error


def check_session(session: str) -> None:
    """A ``sessionId`` as Memory takes it: shorter than Runtime's may be, and of fewer characters."""
    if not isinstance(session, str) or not fits_memory(session):
        most = limit("agentcore.memory.session_id.max_chars")
        raise AgentMemoryError(
            f"a sessionId of Memory has 1 to {most} letters, digits, - and _, the first one a letter or a digit; "
            f"got {session!r:.60}{f', {len(session)} characters' if isinstance(session, str) else ''}."
        )


def check_actor(actor: str) -> None:
    """An ``actorId`` as Memory takes it. Part of a namespace, where another character could name other actors too."""
    if not isinstance(actor, str) or not 1 <= len(actor) <= 255 or not _ACTOR.fullmatch(actor):
        raise AgentMemoryError(f"an actorId has 1 to 255 letters, digits, -, _, / and inner colons; got {actor!r:.60}.")


def moment(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC)


def is_said(event: Mapping[str, Any]) -> bool:
    """Whether it has words in it, and not only JSON or a document."""
    return any("conversational" in part for part in event["payload"])


def event(raw: Mapping[str, Any]) -> Event:
    parts = [part["conversational"] for part in raw["payload"] if "conversational" in part]
    branch = raw.get("branch") or {}
    return Event(
        raw["eventId"],
        parts[0]["role"],
        "\n".join(part["content"]["text"] for part in parts),
        raw["eventTimestamp"].timestamp(),
        None if branch.get("name") == "main" else branch.get("name"),  # AWS's SDK calls the main line so
        branch.get("rootEventId"),
    )


def line(events: Sequence[Event], branch: str | None) -> list[Event]:
    """The events of a branch, after those of the line that it left, up to where it left it."""
    own = [event for event in events if event.branch == branch]
    root = next((event.root for event in own if event.root), None)
    if branch is None or root is None:
        return own
    others = [event for event in events if event.branch != branch]
    left = next((event for event in others if event.id == root), None)
    if left is None:
        return own  # the event was deleted, and nobody knows any more where it stood
    before = line(others, left.branch)
    return [*before[: before.index(left) + 1], *own]


def record(raw: Mapping[str, Any]) -> Record:
    return Record(raw["memoryRecordId"], raw["content"]["text"], "".join(raw["namespaces"]), raw.get("score"))


def named(control: Any, name: str) -> list[dict[str, Any]]:
    """The memories that were created as ``name``: AWS adds a hyphen and ten characters, and a name has no hyphen."""
    pages = control.get_paginator("list_memories").paginate()
    return [memory for page in pages for memory in page["memories"] if memory["id"].rpartition("-")[0] == name]


def refuse_strangers(lab: Lab, control: Any, memory: Mapping[str, Any]) -> None:
    """Where others own resources in the account, only what carries the lab's tag is deleted."""
    tag = lab.scope.tag
    if tag is None:
        return
    tags = control.list_tags_for_resource(resourceArn=memory["arn"]).get("tags", {})
    if tags.get(tag[0]) != tag[1]:
        raise AgentMemoryError(f"memory {memory['id']} exists and is not this lab's; nothing was changed.")


def settled(control: Any, memory_id: str, within: float, sleep: Callable[[float], object]) -> dict[str, Any]:
    """The memory, once it is ACTIVE: on AWS that takes minutes. Raises :class:`AgentMemoryError` if it is not."""
    end = time.monotonic() + within
    while True:
        found: dict[str, Any] = control.get_memory(memoryId=memory_id)["memory"]
        if found["status"] == "ACTIVE":
            return found
        if found["status"] == "FAILED" or time.monotonic() > end:
            why = found.get("failureReason") or f"it was {found['status']} after {within:g} s"
            raise AgentMemoryError(f"memory {memory_id} does not become active: {why}.")
        sleep(2.0)


def delete(control: Any, memory_id: str, within: float, sleep: Callable[[float], object]) -> None:
    """Delete the memory and all that is in it, and wait until it is gone: its name is free then."""
    end = time.monotonic() + within
    with contextlib.suppress(control.exceptions.ResourceNotFoundException):
        control.delete_memory(memoryId=memory_id)
        while time.monotonic() < end:
            control.get_memory(memoryId=memory_id)
            sleep(1.0)
        raise AgentMemoryError(f"memory {memory_id} is still there {within:g} s after it was deleted.")
