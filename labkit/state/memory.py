"""Memory: what is to survive a session, in Amazon Bedrock AgentCore Memory.

Two kinds, and the way between them::

    CreateEvent ──→ events of (actor, session): who said what, immutable, for some days       short-term
                       │  extraction, later: one strategy, one kind of record
                       ▼
                    records of a namespace: "/strategies/…/actors/ann/" → "Ann takes no milk"     long-term
    RetrieveMemoryRecords ◄── by meaning, within one namespace

* **Events** are read back by actor and session: after a session's environment is gone, they are the conversation.
  A *branch* goes on from an earlier event and leaves what came after it alone: another try, another agent.
* **Records** are what a *strategy* makes of events: SEMANTIC (facts), SUMMARIZATION (of one session), USER_PREFERENCE,
  EPISODIC (what was tried and what came of it), CUSTOM. There is no procedural one. A search names a ``namespace``
  exactly, or as a ``namespacePath`` all that lies below: so it ends with a slash, or ``actors/ann`` would be the
  beginning of ``actors/anna``.

All calls are AWS's own, through boto3. What no emulator does is in :attr:`Memory.simulated`. Shapes and limits:
botocore's models of bedrock-agentcore and bedrock-agentcore-control; namespaces: AWS's page memory-organization.
"""

from __future__ import annotations

import threading
import time
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from labkit.facts import facts
from labkit.models._input import limit
from labkit.state import memory_calls as calls
from labkit.state.memory_calls import ROLES, AgentMemoryError, Event, Record

if TYPE_CHECKING:
    from labkit.lab import Lab

__all__ = ["AgentMemoryError", "Event", "Memory", "Record"]

_BATCH = 100  # records in one BatchCreateMemoryRecords (botocore: MemoryRecordsCreateInputList)
_ACTOR = "/strategies/{memoryStrategyId}/actors/{actorId}/"
_SESSION = _ACTOR + "sessions/{sessionId}/"
# How CreateMemory names the strategies, and where their records go.
_STRATEGIES = {
    "SEMANTIC": ("semanticMemoryStrategy", _ACTOR),
    "SUMMARIZATION": ("summaryMemoryStrategy", _SESSION),
    "USER_PREFERENCE": ("userPreferenceMemoryStrategy", _ACTOR),
    "EPISODIC": ("episodicMemoryStrategy", _SESSION),
    "CUSTOM": ("customMemoryStrategy", _ACTOR),
}
_MAKING = threading.Lock()
_MADE: weakref.WeakKeyDictionary[Lab, dict[str, Memory]] = weakref.WeakKeyDictionary()


class Memory:
    """One memory, by clients and id. :meth:`create` makes one in a lab; ``strategies`` is kind → strategy id.

    ``clock`` gives the epoch seconds that events and records carry.
    """

    simulated: tuple[str, ...] = (
        "Extraction: AWS runs it by itself, some time after the event, with a model, within a quota of tokens.",
        "Here extract() runs it when called, with a function of yours, and nothing is metered or consolidated.",
        "Search: AWS compares meanings. The stand-in counts the words that query and record share.",
        "Expiry: events expire after days on AWS; in the stand-in they do not.",
    )

    def __init__(
        self, client: Any, memory_id: str, strategies: Mapping[str, str], *, clock: Callable[[], float] = time.time
    ) -> None:
        self.client, self.id, self.strategies, self.clock = client, memory_id, dict(strategies), clock
        self._guard = threading.Lock()
        self._latest: dict[tuple[str, str], int] = {}  # by actor and session: the newest event's time, in ms

    @classmethod
    def create(
        cls,
        lab: Lab,
        name: str,
        strategies: Sequence[str] = ("SEMANTIC", "SUMMARIZATION", "USER_PREFERENCE"),
        *,
        days: int = 30,
        clock: Callable[[], float] = time.time,
        within: float = 300.0,
        sleep: Callable[[float], object] = time.sleep,
    ) -> Memory:
        """Make a memory in ``lab`` whose events stay for ``days``, and wait until it can be used.

        One that this lab has made already is taken with what is in it; one that an interrupted run has left is deleted
        first. It is deleted with the lab. Raises :class:`AgentMemoryError`.
        """
        known = str(facts("agentcore.memory.strategies")).split("|")
        for kind in strategies:
            if kind not in known:
                raise AgentMemoryError(f"a memory strategy is one of {', '.join(known)}; {kind!r:.40} is not.")
        full = lab.resource_name(name).replace("-", "_")
        with _MAKING:  # of two threads one makes it; the other would take it for what an interrupted run has left
            made = _MADE.setdefault(lab, {})
            if full in made:
                made[full].clock = clock
                return made[full]
            control = lab.client("bedrock-agentcore-control")
            with calls.said("the memory was not made"):
                for left in calls.named(control, full):
                    calls.refuse_strangers(lab, control, left)
                    calls.delete(control, left["id"], within, sleep)
                inputs = [
                    {_STRATEGIES[kind][0]: {"name": kind.lower(), "namespaceTemplates": [_STRATEGIES[kind][1]]}}
                    for kind in strategies
                ]
                memory_id = control.create_memory(
                    name=full, eventExpiryDuration=days, memoryStrategies=inputs, tags=lab.tags
                )["memory"]["id"]
                lab.on_close(f"memory {full}", lambda: calls.delete(control, memory_id, within, sleep))
                found = calls.settled(control, memory_id, within, sleep)
            ids = {strategy["type"]: strategy["strategyId"] for strategy in found.get("strategies", [])}
            made[full] = cls(lab.client("bedrock-agentcore"), memory_id, ids, clock=clock)
            return made[full]

    # -- short-term ------------------------------------------------------------------------------------------------

    def say(self, actor: str, session: str, role: str, text: str, *, branch: str | None = None) -> Event:
        """CreateEvent: ``role`` (USER, ASSISTANT, TOOL, OTHER) says ``text``, on the main line or on a branch."""
        return self._create(actor, session, role, text, {"branch": {"name": branch}} if branch else {})

    def fork(self, actor: str, session: str, after: Event, branch: str, role: str, text: str) -> Event:
        """CreateEvent: begin ``branch`` after an earlier event. What came after that stays where it is."""
        return self._create(actor, session, role, text, {"branch": {"name": branch, "rootEventId": after.id}})

    def events(self, actor: str, session: str, *, branch: str | None = None) -> list[Event]:
        """ListEvents, to its last page: what was said, the oldest first.

        A branch comes with what led to it: the line that it left, up to the event that it goes on from. Events that
        several writers stored for one millisecond come in any order: AWS knows no other one.
        """
        calls.check_actor(actor)
        calls.check_session(session)
        where = {"memoryId": self.id, "actorId": actor, "sessionId": session}
        with calls.said("the events were not listed"):
            pages = self.client.get_paginator("list_events").paginate(
                **where, PaginationConfig={"PageSize": limit("agentcore.memory.page.max")}
            )
            found = [calls.event(event) for page in pages for event in page["events"] if calls.is_said(event)]
        found.sort(key=lambda event: event.id)  # listed with the newest first; an id begins with the time
        return calls.line(found, branch)

    def _create(self, actor: str, session: str, role: str, text: str, branch: Mapping[str, Any]) -> Event:
        calls.check_actor(actor)
        calls.check_session(session)
        if role not in ROLES:
            raise AgentMemoryError(f"a role is one of {', '.join(ROLES)}; {role!r:.40} is not.")
        with calls.said("the event was not stored"):
            answer = self.client.create_event(
                memoryId=self.id,
                actorId=actor,
                sessionId=session,
                eventTimestamp=calls.moment(self._moment(actor, session)),
                payload=[{"conversational": {"content": {"text": text}, "role": role}}],
                clientToken=uuid.uuid4().hex,  # one call, however often the SDK has to send it
                **branch,
            )
        return calls.event(answer["event"])

    def _moment(self, actor: str, session: str) -> float:
        """Now, or a millisecond after the session's newest event from here: what AWS has them in order by."""
        with self._guard:
            now = max(round(self.clock() * 1000), self._latest.get((actor, session), 0) + 1)
            self._latest[actor, session] = now
        return now / 1000

    # -- long-term -------------------------------------------------------------------------------------------------

    def namespace(self, kind: str, actor: str, session: str = "") -> str:
        """Where the records of a strategy lie: for an actor, or for one of the actor's sessions."""
        if kind not in self.strategies:
            have = ", ".join(self.strategies) or "no strategy"
            raise AgentMemoryError(f"this memory has {have}; {kind!r:.40} is not among them.")
        calls.check_actor(actor)
        template = _STRATEGIES[kind][1]
        if session:
            calls.check_session(session)
        if "{sessionId}" in template and not session:
            raise AgentMemoryError(f"{kind} keeps its records by session; say which one.")
        return template.format(memoryStrategyId=self.strategies[kind], actorId=actor, sessionId=session)

    def remember(self, kind: str, actor: str, texts: Sequence[str], *, session: str = "") -> list[str]:
        """BatchCreateMemoryRecords: write records yourself; returns their ids. Every entry of the answer is looked at.

        Raises :class:`AgentMemoryError` when one was refused: the sentence says which, and how many were stored.
        """
        namespace, most = self.namespace(kind, actor, session), limit("agentcore.memory.record.max_chars")
        if isinstance(texts, str):  # or each of its letters would be a record
            raise AgentMemoryError(f"texts is a list of memory records; got the text {texts!r:.40}.")
        for text in texts:
            if not isinstance(text, str) or not 1 <= len(text) <= most:
                raise AgentMemoryError(f"a memory record has 1 to {most} characters of text; got {text!r:.40}.")
        made: list[str] = []
        for start in range(0, len(texts), _BATCH):
            records = [
                {
                    "requestIdentifier": str(start + number),
                    "namespaces": [namespace],
                    "content": {"text": text},
                    "timestamp": calls.moment(self.clock()),
                    "memoryStrategyId": self.strategies[kind],
                }
                for number, text in enumerate(texts[start : start + _BATCH])
            ]
            with calls.said("the records were not stored"):
                answer = self.client.batch_create_memory_records(
                    memoryId=self.id, records=records, clientToken=uuid.uuid4().hex
                )
            made += [record["memoryRecordId"] for record in answer["successfulRecords"]]
            for failed in answer["failedRecords"]:
                raise AgentMemoryError(
                    f"record {failed.get('requestIdentifier')} was refused: {failed.get('errorMessage')}; "
                    f"{len(made)} of {len(texts)} were stored."
                )
        return made

    def recall(self, kind: str, actor: str, query: str, *, session: str = "", top: int = 5) -> list[Record]:
        """RetrieveMemoryRecords: what is known that has to do with ``query``, the best first."""
        with calls.said("nothing was recalled"):
            answer = self.client.retrieve_memory_records(
                memoryId=self.id,
                namespace=self.namespace(kind, actor, session),
                searchCriteria={"searchQuery": query, "memoryStrategyId": self.strategies[kind], "topK": top},
                maxResults=top,  # else a page has 20
            )
        return [calls.record(record) for record in answer["memoryRecordSummaries"]]

    def extract(
        self, actor: str, session: str, how: Mapping[str, Callable[[list[Event]], Sequence[str]]]
    ) -> dict[str, int]:
        """Simulated: what the strategies make of a session's main line. ``how`` is kind → events → texts.

        Returns how many records each kind got. Calling it twice stores them twice; AWS's would be consolidated.
        """
        events = self.events(actor, session)
        made = {}
        for kind, summary in how.items():
            inside = session if "{sessionId}" in _STRATEGIES.get(kind, ("", ""))[1] else ""
            made[kind] = len(self.remember(kind, actor, list(summary(events)), session=inside))
        return made
