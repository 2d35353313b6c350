"""Tags of memories and runtimes.

**On AWS** TagResource adds to the tags that a resource was created with, UntagResource takes some away, and
ListTagsForResource shows what there is; a resource that is not there is a ResourceNotFoundException (botocore:
bedrock-agentcore-control service model). Its documentation names runtimes, gateways and tools as what can be tagged;
CreateMemory takes tags as well. Not verified: that the three operations take a memory.

**MiniStack** stores the tags that a memory is created with, and has none of the three operations.

**Here** they are there, for memories and runtimes; a runtime begins without tags, whatever it was created with.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import unquote

PREFIX = "/tags/"
MOST = 50


def changed(tags: Mapping[str, str], add: Mapping[str, str], remove: Iterable[str]) -> dict[str, str]:
    """The tags of a resource after a change."""
    gone = set(remove)
    return {key: value for key, value in {**tags, **add}.items() if key not in gone}


def keys_of(query: Mapping[str, Any]) -> list[str]:
    """The tag keys that a request of UntagResource names."""
    given = query.get("tagKeys", [])
    return [given] if isinstance(given, str) else list(given)


def install() -> None:
    from ministack.services import bedrock_agentcore as agentcore

    handle = agentcore.handle_request

    def named(arn: str) -> Any:
        """The record of a memory or a runtime, or None."""
        owner = agentcore._arn_owner(arn)
        if owner is None:
            return None
        known = {"arn": agentcore._memories, "agentRuntimeArn": agentcore._runtimes}
        return next((r for key, store in known.items() for r in store.values_scoped(*owner) if r[key] == arn), None)

    async def handle_request(method: str, path: str, headers: Any, body: bytes, query: Mapping[str, Any]) -> Any:
        if not path.startswith(PREFIX):
            return await handle(method, path, headers, body, query)
        arn = unquote(path.removeprefix(PREFIX))
        record = named(arn)
        if record is None:
            return agentcore._not_found(f"Resource {arn} not found")
        before = record.get("_tags", {})
        if method == "GET":
            return agentcore.json_response({"tags": before})
        add = agentcore._parse_body(body).get("tags", {}) if method == "POST" else {}
        after = changed(before, add, keys_of(query) if method == "DELETE" else ())
        if len(after) > MOST:
            return agentcore._validation(f"A resource has at most {MOST} tags.")
        record["_tags"] = after
        return 204, {}, b""

    agentcore.handle_request = handle_request
