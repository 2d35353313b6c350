"""Supervisor: several agents on one workflow, whose state stands in a table and moves under a condition.

Agents do not call each other, and none keeps the workflow in its head. They answer on the bus, and the supervisor
writes down what each answer makes of the workflow (:mod:`~labkit.work.workflow_state`)::

    answer ─ read the row (v7) ─ what follows ─┬─ TransactWriteItems: row v8 if it still is v7, and beside it
                 ▲                             │   one outbox row for each event that is to be published
                 └── somebody was faster ──────┘
    outbox row ─ PutEvents, checked entry by entry ─ delete the row

* **The condition**: two answers at once both see v7, one of them writes v8. The other reads again and finds itself a
  duplicate, or the last of its stage. So a fan-in advances once, whoever comes last.
* **The outbox**: state and events cannot be written together, table and bus are two services. A supervisor that dies
  between them leaves rows of what is still to be said; the next delivery for that workflow says it, or :meth:`repair`.

**What is promised**: an answer counts once; a stage is requested in one transaction with the state that waits for it;
each event is published at least once. It is published twice if the process dies between PutEvents and the delete, or
if a duplicate is handled in just that moment. Copies have one trace id, by which the agents' idempotency store knows
them. Not promised: that ``decide`` is called once a stage. Of several calls, what one of them said is written down.

Behind a queue it is ``Worker(answers, lambda task: supervisor.handle(task.body), parse=json.loads)``.
The index ``todo`` holds what waits: rows to publish, and workflows with a stage that is due. It is one partition,
which AWS lets write a thousand times a second; beyond that its key wants a suffix.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from labkit.control.bus import SOURCE, Bus, PublishError
from labkit.control.envelope import Envelope
from labkit.models._input import number
from labkit.models.retry import Exponential, Jitter
from labkit.state import tables
from labkit.state.together import Item, refused, write
from labkit.work import workflow_state
from labkit.work.each import each
from labkit.work.workflow_state import RUNNING, Answer, Change, Decide, Kind, SupervisorError, Workflow

if TYPE_CHECKING:
    from labkit.lab import Lab

__all__ = ["Supervisor", "SupervisorError", "UnknownWorkflow"]

_ROW, _OUTBOX = "workflow", "outbox#"
_INDEX, _PUBLISH, _WAITING = "todo", "publish", "waiting"
_NEW, _UNCHANGED = "attribute_not_exists(pk)", "version = :before"
_ROUNDS = 200  # of one change; each refusal means that somebody else got through
_WAIT = Jitter(Exponential(base=0.01, cap=0.5))  # seconds between them


class UnknownWorkflow(SupervisorError):
    """An answer for a workflow that was never started, or whose row is gone."""


class Supervisor:
    """Workflows in one table, by client and name; events on ``bus``. :meth:`create` makes one in a lab.

    ``decide`` says what comes next. ``patience``: seconds that the agents of a stage have, before :meth:`expire` fails
    the workflow. ``clock`` gives epoch seconds. Any number of supervisors may work at one table.
    """

    def __init__(
        self,
        client: Any,
        table: str,
        bus: Bus,
        decide: Decide,
        *,
        patience: float = 3_600.0,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.client, self.table, self.bus, self.decide = client, table, bus, decide
        self.patience = number("patience", patience, low=0.001, high=1e9, unit="s")
        self._clock, self._sleep = clock, sleep

    @classmethod
    def create(cls, lab: Lab, name: str, bus: Bus, decide: Decide, **options: Any) -> Supervisor:
        """Make the table in ``lab``, or take the one that it has. Raises :class:`SupervisorError`."""
        made = cls(lab.client("dynamodb"), lab.resource_name(name), bus, decide, **options)
        try:
            tables.ensure(lab, name, ("pk", "sk"), {_INDEX: (_INDEX, "due")})
        except tables.TableError as error:
            raise SupervisorError(str(error)) from error
        return made

    # -- what comes in ---------------------------------------------------------------------------------------------

    def start(self, workflow_id: str, given: Mapping[str, Any]) -> Kind:
        """Start a workflow and request its first stage; ``duplicate`` when it was started before with the same.

        Raises :class:`SupervisorError` when it was started with something else, and what ``decide`` and publishing do.
        """
        try:
            given = json.loads(json.dumps(given, allow_nan=False))
        except (TypeError, ValueError, RecursionError) as error:
            raise SupervisorError(f"workflow {workflow_id} is given what JSON cannot hold: {error}.") from error
        change = workflow_state.begun(workflow_id, given, self.decide, self._clock() + self.patience)
        if not self._written(change, None):
            found = self.look(workflow_id)
            if found is None or found.given != given:
                raise SupervisorError(f"workflow {workflow_id} was started before, with something else.")
            change = Change("duplicate", found)
        self.publish(workflow_id)
        return change.kind

    def handle(self, event: Any) -> Kind:
        """Take an agent's answer, an event as EventBridge delivers it, and publish what follows from it.

        What this raises lets the event come again: nothing is half written. Raises :class:`SupervisorError`,
        :class:`UnknownWorkflow`, :class:`~labkit.control.envelope.EnvelopeError` for what no delivery can cure;
        :class:`~labkit.control.bus.PublishError` when the state stands and an event is not on the bus yet.
        """
        said = Answer.of(event)
        kind = self.record(said)
        if kind != "recorded":  # also after a duplicate: whoever took it first may have died here
            self.publish(said.workflow_id)
        return kind

    def record(self, said: Answer) -> Kind:
        """Write down what an answer makes of its workflow; publish nothing yet."""
        due = self._clock() + self.patience
        return self._change(said.workflow_id, lambda now: workflow_state.after(now, said, self.decide, due))

    def expire(self) -> list[str]:
        """Fail the workflows with a stage that is overdue; returns their ids. An agent that is silent shows so."""

        def overdue(now: Workflow) -> Change:
            if now.phase != RUNNING or now.due >= self._clock():
                return Change("late", now)  # an answer was faster
            silent = ", ".join(f"{agent} ({trace})" for trace, agent in now.waiting.items())
            return workflow_state.failed(now, f"no answer after {self.patience:g} s: {silent}")

        def end(workflow_id: str) -> str:
            kind = self._change(workflow_id, overdue)
            self.publish(workflow_id)
            return workflow_id if kind == "failed" else ""

        return list(filter(None, each(self._todo(_WAITING, self._clock()), end)))

    # -- what goes out ---------------------------------------------------------------------------------------------

    def publish(self, workflow_id: str) -> int:
        """Publish what is still to be said of a workflow, and forget it; returns how many events.

        Raises :class:`~labkit.control.bus.PublishError` with those that the bus did not take: they stay to be said.
        """
        pages = self.client.get_paginator("query").paginate(
            TableName=self.table,
            KeyConditionExpression="pk = :id AND begins_with(sk, :outbox)",
            ExpressionAttributeValues={":id": {"S": workflow_id}, ":outbox": {"S": _OUTBOX}},
            ConsistentRead=True,
        )
        by_type: dict[str, dict[str, Envelope]] = {}  # sort key → event; what is of one type goes in one call
        for item in (item for page in pages for item in page["Items"]):
            waiting = by_type.setdefault(item["detail_type"]["S"], {})
            waiting[item["sk"]["S"]] = Envelope.parse(item["detail"]["S"])
        said, trouble = 0, None
        for detail_type, waiting in by_type.items():
            unsaid: Mapping[str, Any] = {}
            try:
                self.bus.publish(waiting.values(), detail_type=detail_type, source=SOURCE, sleep=self._sleep)
            except PublishError as error:
                unsaid, trouble = error.failed, error
            for row in (row for row, envelope in waiting.items() if envelope.trace_id not in unsaid):
                self.client.delete_item(TableName=self.table, Key=_key(workflow_id, row))
                said += 1
        if trouble is not None:
            raise trouble
        return said

    def repair(self, *, older: float = 60.0) -> int:
        """Publish what has waited for more than ``older`` seconds: whoever was to do it has died. Returns how many."""
        return sum(each(self._todo(_PUBLISH, self._clock() - older), self.publish))

    # -- the table -------------------------------------------------------------------------------------------------

    def look(self, workflow_id: str) -> Workflow | None:
        """The workflow as it stands, or None."""
        found = self.client.get_item(TableName=self.table, Key=_key(workflow_id, _ROW), ConsistentRead=True)
        return Workflow.of(found["Item"]["body"]["S"]) if "Item" in found else None

    def _change(self, workflow_id: str, what: Callable[[Workflow], Change]) -> Kind:
        """Write down ``what`` follows, from the workflow as it stands in the moment of writing."""
        for failure in range(1, _ROUNDS + 1):
            now = self.look(workflow_id)
            if now is None:
                raise UnknownWorkflow(f"there is no workflow {workflow_id}.")
            change = what(now)
            if change.workflow is now or self._written(change, now):
                return change.kind
            self._sleep(_WAIT(min(failure, 4)))
        raise SupervisorError(f"workflow {workflow_id} was not changed: {_ROUNDS} times another writer was faster.")

    def _written(self, change: Change, before: Workflow | None) -> bool:
        """The state and what is to be published, together. False when the state is not as it was ``before``."""
        now = change.workflow
        item = {
            **_key(now.id, _ROW),
            "body": {"S": now.text()},
            "version": {"N": str(now.version)},
            "phase": {"S": now.phase},
        }
        if now.phase == RUNNING:  # else it leaves the index
            item |= {_INDEX: {"S": _WAITING}, "due": {"S": _moment(now.due)}}
        put: dict[str, Any] = {"TableName": self.table, "Item": item, "ConditionExpression": _NEW}
        if before is not None:
            put["ConditionExpression"] = _UNCHANGED
            put["ExpressionAttributeValues"] = {":before": {"N": str(before.version)}}
        rows: list[Item] = [{"Put": put}]
        for detail_type, event in change.events:
            row = {
                **_key(now.id, f"{_OUTBOX}{event.step:09d}"),
                "detail_type": {"S": detail_type},
                "detail": {"S": event.detail()},
                _INDEX: {"S": _PUBLISH},
                "due": {"S": _moment(self._clock())},
            }
            rows.append({"Put": {"TableName": self.table, "Item": row, "ConditionExpression": _NEW}})
        reasons = write(self.client, rows, sleep=self._sleep)
        if reasons is not None and not refused(reasons[0]):
            raise SupervisorError(f"workflow {now.id} has an event to publish that its state does not know of.")
        return reasons is None

    def _todo(self, what: str, until: float) -> Iterator[str]:
        """The ids of workflows that have waited since before ``until``, each once. The index is a moment behind."""
        pages = self.client.get_paginator("query").paginate(
            TableName=self.table,
            IndexName=_INDEX,
            KeyConditionExpression=f"{_INDEX} = :what AND due < :until",
            ExpressionAttributeValues={":what": {"S": what}, ":until": {"S": _moment(until)}},
        )
        # All first: what is done for one of them changes the index.
        yield from dict.fromkeys([item["pk"]["S"] for page in pages for item in page["Items"]])

    def __repr__(self) -> str:
        return f"<Supervisor of {self.table}>"


def _key(workflow_id: str, row: str) -> dict[str, dict[str, str]]:
    return {"pk": {"S": workflow_id}, "sk": {"S": row}}


def _moment(seconds: float) -> str:
    """Epoch seconds as a text that sorts as they do."""
    return f"{max(0.0, seconds):017.3f}"
