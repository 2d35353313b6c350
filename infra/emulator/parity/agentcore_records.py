"""Records of a memory: where they are looked for, their times, and batches that are sent twice.

**On AWS** ``namespace`` is compared exactly, and ``namespacePath`` has all that lies at it or below it. A record has
the timestamp that it came with, and beside it createdAt, the time at which it was written. A batch that comes again
with its clientToken is stored once (botocore: bedrock-agentcore service model).

**MiniStack** compares both exactly, but for asterisks; it has one time, the timestamp as createdAt; and it stores a
batch as often as it comes.

**Here** a path is the beginning of a namespace, as AWS's advice to end it with a slash says (Developer Guide, "Memory
organization"). Not verified: a path without a slash at its end, and both members in one request (here: namespace).
"""

from __future__ import annotations

import json
import time
from collections import OrderedDict
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

REMEMBERED = 10_000
EXACT, BELOW = "exact", "below"
Scope = tuple[str, str]


def scope_of(data: Mapping[str, Any]) -> Scope:
    """Where a request looks for records."""
    if data.get("namespace"):
        return EXACT, data["namespace"]
    return BELOW, data.get("namespacePath") or ""


def matches(scope: Sequence[str], namespaces: Sequence[str]) -> bool:
    """Whether a record with these namespaces is within the scope."""
    how, where = scope
    return where in namespaces if how == EXACT else any(namespace.startswith(where) for namespace in namespaces)


class Answers:
    """The answers to requests that had a token, the newest of them."""

    def __init__(self, remembered: int = REMEMBERED) -> None:
        self._answers: OrderedDict[Hashable, Any] = OrderedDict()
        self._remembered = remembered

    def get(self, key: Hashable) -> Any:
        return self._answers.get(key)

    def keep(self, key: Hashable, answer: Any) -> None:
        self._answers[key] = answer
        while len(self._answers) > self._remembered:
            self._answers.popitem(last=False)


def install() -> None:
    from ministack.services import bedrock_agentcore as agentcore

    answers = Answers()
    create, listed, retrieve = (
        getattr(agentcore, f"_{name}_memory_records") for name in ("batch_create", "list", "retrieve")
    )

    def scoped(operation: Any) -> Any:
        def answer(raw_memory: str, body: Any) -> Any:
            data = agentcore._parse_body(body)
            return operation(raw_memory, json.dumps({**data, "namespace": scope_of(data)}))

        return answer

    def batch_create(raw_memory: str, body: Any) -> Any:
        memory, scope, error = agentcore._resolve_memory(raw_memory)
        token = agentcore._parse_body(body).get("clientToken")
        key = (scope or (agentcore.get_account_id(), agentcore.get_region()), memory, token)
        if error is None and token and (before := answers.get(key)):
            return before
        answer = create(raw_memory, body)
        if answer[0] == 201:
            stored = agentcore._records_bucket(memory, scope)
            for made in json.loads(answer[2])["successfulRecords"]:
                record = stored[made["memoryRecordId"]]
                record["timestamp"], record["createdAt"] = record["createdAt"], time.time()
            if token:
                answers.keep(key, answer)
        return answer

    _ = agentcore._namespace_matches
    agentcore._namespace_matches = matches
    agentcore._batch_create_memory_records = batch_create
    agentcore._list_memory_records, agentcore._retrieve_memory_records = scoped(listed), scoped(retrieve)
