"""Approvals: a human gate whose request is a row, written by the state machine itself.

The gate is a state that puts a row into a table and waits (``aws-sdk:dynamodb:putItem.waitForTaskToken``). No function
polls, and nothing is between the two that could lose the request: the row is there, with its token, or the state has
failed. Whoever is asked answers here::

    asked ─┬─ approved / rejected   recorded on condition, then delivered with the token
           └─ expired               nobody answered in time: the state machine closed the row and went on

* **Recorded first.** The decision is a conditional write on a request that is still open, so of two answers one stands,
  and the other is told which (:class:`AlreadyAnswered`). Then the token is sent. A crash between the two leaves a
  decision that is not delivered; :meth:`Approvals.settle` delivers those.
* **In time, or not at all.** When the gate has timed out, the token is dead: the request is marked as expired and the
  approver is told so (:class:`TooLate`). An approval that had no effect must not stand in the books as one that had.

=================  =============================================================================================
attribute          meaning
=================  =============================================================================================
``pk``             execution's name and state: one request, the newest where an execution was redriven
``gate_state``     ``pending``, ``approved``, ``rejected``, ``expired``
``open_in``        who is asked while it is pending, ``#undelivered`` until the token is sent, then gone: the
                   key of a sparse index, so that neither list reads what is finished
``asked_at``       ISO 8601, as the state machine has it
``answer_until``   the same; from then on the state machine has gone on
``question``       JSON: an object whose ``asked`` is what is asked, of any type
``execution``      ARN
``task_token``     read by :meth:`Approvals.decide` and :meth:`Approvals.settle` alone
``decided_by`` …   ``decided_at``, ``note``: the answer
=================  =============================================================================================

Who may read the table can answer for anybody: on AWS the role of the approval service is the only one that may.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from labkit.control.callbacks import Callbacks, StaleToken
from labkit.control.history import read
from labkit.errors import LabError
from labkit.facts import facts

if TYPE_CHECKING:
    from labkit.lab import Lab

__all__ = ["AlreadyAnswered", "ApprovalError", "Approvals", "NoSuchRequest", "Request", "TooLate"]

logger = logging.getLogger(__name__)

State = Literal["pending", "approved", "rejected", "expired"]
Decision = Literal["approved", "rejected"]
PENDING: State = "pending"
EXPIRED: State = "expired"
APPROVED: Decision = "approved"
REJECTED: Decision = "rejected"
INDEX = "open"
_UNDELIVERED = "#undelivered"
_MOST_NOTE = 1_000  # characters: our choice, a note is no document
_REFUSED = str(facts("dynamodb.condition.error"))
_WHO = re.compile(r"[^\x00-\x1f\x7f#][^\x00-\x1f\x7f]{0,127}")


class ApprovalError(LabError):
    """An answer cannot be taken; the sentence says why."""


class NoSuchRequest(ApprovalError):
    """There is no request of this id."""


class AlreadyAnswered(ApprovalError):
    """Another answer stands: ``request`` has it."""

    def __init__(self, request: Request) -> None:
        self.request = request
        super().__init__(f"request {request.id} was {request.state} by {request.decided_by} already.")


class TooLate(ApprovalError):
    """Nobody waits for the answer any more: ``request`` has expired, and the workflow has gone on without it."""

    def __init__(self, request: Request) -> None:
        self.request = request
        super().__init__(f"request {request.id} has expired: the workflow has gone on without an answer.")


@dataclass(frozen=True)
class Request:
    """One request, without its token. ``question`` is parsed; ``group`` was asked; times are ISO 8601."""

    id: str
    state: State
    group: str
    question: Any
    execution: str
    asked_at: str
    answer_until: str
    decided_by: str | None = None
    decided_at: str | None = None
    note: str = ""
    delivered: bool = False
    _token: str = field(default="", repr=False, compare=False)

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> Request:
        """From a row. Raises :class:`ApprovalError` for one that no gate has written."""
        text = {key: str(value.get("S", "")) for key, value in item.items()}
        try:
            return cls(
                id=text["pk"],
                state=text["gate_state"],  # type: ignore[arg-type]
                group=text["asked_of"],
                question=json.loads(text["question"]).get("asked"),
                execution=text["execution"],
                asked_at=text["asked_at"],
                answer_until=text["answer_until"],
                decided_by=text.get("decided_by"),
                decided_at=text.get("decided_at"),
                note=text.get("note", ""),
                delivered=text["gate_state"] in (APPROVED, REJECTED) and "open_in" not in text,
                _token=text["task_token"],
            )
        except (KeyError, ValueError, AttributeError) as error:
            raise ApprovalError(f"row {text.get('pk', '')!r:.80} is no request of a gate: {error!r}.") from None


class Approvals:
    """The requests of one table, by clients and name. :meth:`create` makes the table in a lab."""

    def __init__(
        self,
        client: Any,
        table: str,
        callbacks: Callbacks,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.client, self.table, self.callbacks, self._now = client, table, callbacks, now

    @classmethod
    def create(cls, lab: Lab, name: str) -> Approvals:
        """Make the table and its index in ``lab``. Raises :class:`ApprovalError` when AWS refuses."""
        from botocore.exceptions import ClientError, ParamValidationError, WaiterError

        client, table = lab.client("dynamodb"), lab.resource_name(name)
        attributes = [{"AttributeName": each, "AttributeType": "S"} for each in ("pk", "open_in", "asked_at")]
        keys = [{"AttributeName": "open_in", "KeyType": "HASH"}, {"AttributeName": "asked_at", "KeyType": "RANGE"}]
        try:
            client.create_table(
                TableName=table,
                AttributeDefinitions=attributes,
                KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
                GlobalSecondaryIndexes=[
                    {"IndexName": INDEX, "KeySchema": keys, "Projection": {"ProjectionType": "ALL"}}
                ],
                BillingMode="PAY_PER_REQUEST",
                Tags=[{"Key": key, "Value": value} for key, value in lab.tags.items()],
            )
            client.get_waiter("table_exists").wait(TableName=table, WaiterConfig={"Delay": 1, "MaxAttempts": 30})
        except (ClientError, ParamValidationError, WaiterError) as error:
            raise ApprovalError(f"table {name!r:.80} for approvals was not made: {error}") from error
        return cls(client, table, Callbacks(lab))

    def pending(self, group: str) -> list[Request]:
        """What ``group`` is asked and has not answered, the oldest first. A moment behind: an index lists it."""
        return list(self._open(_named("a group", group)))

    def look(self, id: str) -> Request:
        """One request as it stands. Raises :class:`NoSuchRequest`."""
        item = self.client.get_item(TableName=self.table, Key=_key(_id(id)), ConsistentRead=True).get("Item")
        if item is None:
            raise NoSuchRequest(f"there is no request {id!r:.80}.")
        return Request.of(item)

    def approve(self, id: str, by: str, note: str = "") -> Request:
        """Approve, in the name of ``by``: :meth:`decide`."""
        return self.decide(id, APPROVED, by, note)

    def reject(self, id: str, by: str, note: str = "") -> Request:
        """Reject, in the name of ``by``: :meth:`decide`."""
        return self.decide(id, REJECTED, by, note)

    def decide(self, id: str, decision: Decision, by: str, note: str = "") -> Request:
        """Record the decision, then tell the state machine. The same answer by the same person again is harmless.

        Raises :class:`AlreadyAnswered`, :class:`TooLate`, :class:`NoSuchRequest`, :class:`ApprovalError` for a name or
        a note that cannot be; what :meth:`Callbacks.succeed` raises when the token did not come through: the decision
        stands then, and :meth:`settle` delivers it.
        """
        if decision not in (APPROVED, REJECTED):
            raise ApprovalError(f"a request is approved or rejected; got {decision!r:.40}.")
        if not isinstance(note, str) or len(note) > _MOST_NOTE:
            raise ApprovalError(f"a note is a text of {_MOST_NOTE:,} characters at most.")
        found = self._record(_id(id), decision, _named("an approver", by), note)
        if found.state == EXPIRED:
            raise TooLate(found)
        if (found.state, found.decided_by) != (decision, by):
            raise AlreadyAnswered(found)
        return found if found.delivered else self._deliver(found)

    def settle(self) -> list[Request]:
        """Deliver the decisions that were recorded and whose token did not come through; as they stand then.

        Run it now and then, and at the start of whatever takes answers. Two at once are harmless.
        """
        settled = []
        for request in self._open(_UNDELIVERED):
            try:
                settled.append(self._deliver(request))
            except TooLate as late:
                settled.append(late.request)
        return settled

    # ---------------------------------------------------------------------------------------------------------------

    def _record(self, id: str, decision: str, by: str, note: str) -> Request:
        """Write the decision if none stands; the request as it stands after that."""
        from botocore.exceptions import ClientError

        values = {":pending": PENDING, ":decision": decision, ":by": by, ":at": self._stamp(), ":note": note}
        try:
            answer = self.client.update_item(
                TableName=self.table,
                Key=_key(id),
                UpdateExpression="SET gate_state = :decision, decided_by = :by, decided_at = :at, note = :note, "
                "open_in = :undelivered",
                ConditionExpression="gate_state = :pending",
                ExpressionAttributeValues=_texts({**values, ":undelivered": _UNDELIVERED}),
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != _REFUSED:
                raise
            standing = error.response.get("Item")
            if not standing:
                raise NoSuchRequest(f"there is no request {id!r:.80}.") from None
            return Request.of(standing)
        return Request.of(answer["Attributes"])

    def _deliver(self, request: Request) -> Request:
        """Send the token with the decision. Raises :class:`TooLate` when nobody waited for it any more."""
        output = {
            "approved": request.state == APPROVED,
            "by": request.decided_by,
            "note": request.note,
            "request": request.id,
        }
        try:
            self.callbacks.succeed(request._token, output)
        except StaleToken:
            # It expired, or an earlier delivery was heard and its answer lost. The history knows which.
            if not self._heard(request):
                raise TooLate(self._close(request, EXPIRED)) from None
        return self._close(request, request.state)

    def _heard(self, request: Request) -> bool:
        """Whether this request's answer has ended the state."""
        for event in read(self.callbacks.client, request.execution).events:
            output = (event.get("taskSucceededEventDetails") or {}).get("output", "")
            try:
                told = json.loads(output)
            except ValueError:
                continue
            if isinstance(told, dict) and told.get("request") == request.id:
                return True
        return False

    def _close(self, request: Request, state: str) -> Request:
        from botocore.exceptions import ClientError

        try:
            answer = self.client.update_item(
                TableName=self.table,
                Key=_key(request.id),
                UpdateExpression="SET gate_state = :state REMOVE open_in",
                ConditionExpression="gate_state = :was",
                ExpressionAttributeValues=_texts({":state": state, ":was": request.state}),
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != _REFUSED:
                raise
            return Request.of(error.response["Item"])  # somebody else settled it meanwhile
        return Request.of(answer["Attributes"])

    def _open(self, key: str) -> Iterator[Request]:
        pages = self.client.get_paginator("query").paginate(
            TableName=self.table,
            IndexName=INDEX,
            KeyConditionExpression="open_in = :key",
            ExpressionAttributeValues=_texts({":key": key}),
        )
        for page in pages:
            for item in page["Items"]:
                try:
                    yield Request.of(item)
                except ApprovalError as error:  # it must not hide the others
                    logger.warning("%s", error)

    def _stamp(self) -> str:
        return self._now().astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

    def __repr__(self) -> str:
        return f"<Approvals {self.table}>"


def _named(what: str, text: str) -> str:
    if isinstance(text, str) and _WHO.fullmatch(text):
        return text
    raise ApprovalError(f"{what} is a text of 1 to 128 characters on one line that begins with no #; got {text!r:.80}.")


def _id(text: str) -> str:
    if isinstance(text, str) and 1 <= len(text.encode(errors="replace")) <= int(
        facts("dynamodb.key.partition.max_bytes")
    ):
        return text
    raise NoSuchRequest(f"there is no request {text!r:.80}.")


def _key(id: str) -> dict[str, dict[str, str]]:
    return _texts({"pk": id})


def _texts(values: Mapping[str, str]) -> dict[str, dict[str, str]]:
    return {key: {"S": value} for key, value in values.items()}
