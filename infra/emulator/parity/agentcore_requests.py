"""What AgentCore refuses of a request before it looks for the memory or the runtime.

**On AWS** the members of a request have the patterns and bounds of the service model, and anything else is a
ValidationException: "1 validation error detected: Value at 'sessionId' failed to satisfy constraint: …" (botocore:
bedrock-agentcore service model; the text as quoted in aws/bedrock-agentcore-sdk-python#18, there for CreateMemory).

**MiniStack** compares patterns of what is created, without lengths, and nothing of what is read.

**Here** they are checked first, one at a time: AWS names all that are wrong. Not checked: sizes in bytes, metadata
filters, and the members of the entries of a batch, which MiniStack refuses entry by entry (not verified).
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

SESSION_WORD = r"[a-zA-Z0-9][a-zA-Z0-9-_]*"
ACTOR = r"[a-zA-Z0-9][a-zA-Z0-9-_/]*(?::[a-zA-Z0-9-_/]+)*[a-zA-Z0-9-_/]*"
EVENT = r"[0-9]+#[a-fA-F0-9]+"
NAMESPACE = r"[a-zA-Z0-9/*][a-zA-Z0-9-_/*]*(?::[a-zA-Z0-9-_/*]+)*[a-zA-Z0-9-_/*]*"
METADATA = r"[a-zA-Z0-9\s._:/=+@-]*"
TEXTS = {  # lengths and pattern
    "actorId": (1, 255, ACTOR),
    "sessionId": (1, 100, SESSION_WORD),
    "branch.name": (1, 100, SESSION_WORD),
    "branch.rootEventId": (1, 100, EVENT),
    "eventId": (1, 100, EVENT),
    "namespace": (1, 1024, NAMESPACE),
    "namespacePath": (1, 1024, NAMESPACE),
    "searchCriteria.searchQuery": (1, 10_000, r"(?s:.*)"),
    "runtimeSessionId": (33, 256, r"(?s:.*)"),
    "metadata.key": (1, 128, METADATA),
    "metadata.value": (0, 256, METADATA),
}
NUMBERS = {"maxResults": (1, 100), "searchCriteria.topK": (1, 100)}
LISTS = {"payload": 100, "metadata": 15, "records": 100}
ROLES = ("ASSISTANT", "USER", "TOOL", "OTHER")
START = "1 validation error detected: Value at '{}' failed to satisfy constraint: Member must {}"


class Refused(Exception):
    """A request is refused with a ValidationException of this message."""


def refusal(member: str, bound: str) -> Refused:
    return Refused(START.format(member, bound))


def check_text(member: str, value: Any) -> None:
    """Raise :class:`Refused` unless a text that is there has the length and the pattern of its member."""
    if value is None:
        return
    low, high, pattern = TEXTS[member]
    if not isinstance(value, str) or len(value) < low:
        raise refusal(member, f"have length greater than or equal to {low}")
    if len(value) > high:
        raise refusal(member, f"have length less than or equal to {high}")
    if not re.fullmatch(pattern, value):
        raise refusal(member, f"satisfy regular expression pattern: {pattern}")


def check_number(member: str, value: Any) -> None:
    low, high = NUMBERS[member]
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or value < low:
        raise refusal(member, f"have value greater than or equal to {low}")
    if value > high:
        raise refusal(member, f"have value less than or equal to {high}")


def check_list(member: str, value: Any) -> None:
    if value is not None and len(value) > LISTS[member]:
        raise refusal(member, f"have length less than or equal to {LISTS[member]}")


def members(data: Any) -> Iterator[tuple[str, Any]]:
    """The members of a body by name, those of its structures as ``structure.member``."""
    if not isinstance(data, Mapping):
        return
    for name, value in data.items():
        yield name, value
        if isinstance(value, Mapping):
            yield from ((f"{name}.{inner}", held) for inner, held in value.items())


def check_body(data: Mapping[str, Any]) -> None:
    """Raise :class:`Refused` unless all that is known of the members of a body holds."""
    for name, value in members(data):
        if name in TEXTS:
            check_text(name, value)
        if name in NUMBERS:
            check_number(name, value)
        if name in LISTS:
            check_list(name, value)
    metadata = data.get("metadata")
    for key, value in metadata.items() if isinstance(metadata, Mapping) else ():
        check_text("metadata.key", key)
        check_text("metadata.value", value.get("stringValue") if isinstance(value, Mapping) else value)
    for number, part in enumerate(data.get("payload") or (), 1):
        said = part.get("conversational") if isinstance(part, Mapping) else None
        if said is not None and said.get("role") not in ROLES:
            where = f"payload.{number}.member.conversational.role"
            raise refusal(where, f"satisfy enum value set: [{', '.join(ROLES)}]")


def check_somewhere(data: Mapping[str, Any]) -> None:
    """Raise :class:`Refused` unless it is said where records are to be looked for."""
    if not data.get("namespace") and not data.get("namespacePath"):
        raise Refused("Either namespace or namespacePath is required.")


def parsed(body: Any) -> dict[str, Any]:
    """A body as an object; what is none is MiniStack's affair."""
    try:
        found = json.loads(body) if body else {}
    except (ValueError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def install() -> None:
    from ministack.services import bedrock_agentcore as agentcore

    def answered(operation: Callable[..., Any], check: Callable[..., None]) -> Callable[..., Any]:
        @functools.wraps(operation)
        def answer(*arguments: Any) -> Any:
            try:
                check(*arguments)
            except Refused as error:
                return agentcore._validation(str(error))
            return operation(*arguments)

        return answer

    def of_body(_memory: str, body: Any) -> None:
        check_body(parsed(body))

    def of_search(_memory: str, body: Any) -> None:
        check_body(parsed(body))
        check_somewhere(parsed(body))

    def of_session(_memory: str, actor: str, session: str, last: Any) -> None:
        check_text("actorId", unquote(actor))
        check_text("sessionId", unquote(session))
        if isinstance(last, str):
            check_text("eventId", unquote(last))
        else:
            check_body(parsed(last))

    def of_call(_runtime: str, headers: Mapping[str, str], *_: Any) -> None:
        check_text("runtimeSessionId", headers.get("x-amzn-bedrock-agentcore-runtime-session-id"))

    checks: dict[str, Callable[..., None]] = {
        "_create_event": of_body,
        "_list_events": of_session,
        "_get_event": of_session,
        "_delete_event": of_session,
        "_batch_create_memory_records": of_body,
        "_list_memory_records": of_search,
        "_retrieve_memory_records": of_search,
        "_invoke_agent_runtime": of_call,
    }
    for name, check in checks.items():
        setattr(agentcore, name, answered(getattr(agentcore, name), check))
