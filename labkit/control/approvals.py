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
  approver is told so (:class:`TooLate`). An approval that had no effect must not stand in the books as one that had,
  nor the reverse: a dead token may be one that this very answer has used up. So the execution's history decides, by
  what ended the attempt that the token belongs to, and it is given some seconds to say so.

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

import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from labkit.control.approval_requests import (
    APPROVED,
    EXPIRED,
    PENDING,
    REJECTED,
    AlreadyAnswered,
    ApprovalError,
    Decision,
    NoSuchRequest,
    Request,
    TooLate,
    fate,
)
from labkit.control.callbacks import CallbackError, Callbacks, NoAnswer, StaleToken
from labkit.facts import facts

if TYPE_CHECKING:
    from labkit.lab import Lab

__all__ = ["AlreadyAnswered", "ApprovalError", "Approvals", "NoSuchRequest", "Request", "TooLate"]

logger = logging.getLogger(__name__)

INDEX = "open"
_UNDELIVERED = "#undelivered"
_MOST_NOTE = 1_000  # characters: our choice, a note is no document
_REFUSED = str(facts("dynamodb.condition.error"))
_WHO = re.compile(r"(?!#)(?=.*\S)[^\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]{1,128}")
_LOOKS, _PAUSE = 10, 0.5  # at a history that does not say yet how the attempt ended, and the seconds between them


class Approvals:
    """The requests of one table, by clients and name. :meth:`create` makes the table in a lab."""

    def __init__(
        self,
        client: Any,
        table: str,
        callbacks: Callbacks,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        self.client, self.table, self.callbacks, self._now, self._sleep = client, table, callbacks, now, sleep

    @classmethod
    def create(cls, lab: Lab, name: str) -> Approvals:
        """Make the table and its index in ``lab``, or take those that it has. Raises :class:`ApprovalError`."""
        from labkit.state import tables

        client, table = lab.client("dynamodb"), lab.resource_name(name)
        try:
            tables.ensure(lab, name, ("pk",), {INDEX: ("open_in", "asked_at")})
        except tables.TableError as error:
            raise ApprovalError(str(error)) from error
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
        stands then, and :meth:`settle` delivers it. An error of the table's client comes through as it is.
        """
        if decision not in (APPROVED, REJECTED):
            raise ApprovalError(f"a request is approved or rejected; got {decision!r:.40}.")
        if not isinstance(note, str) or len(note) > _MOST_NOTE or not _whole(note):
            raise ApprovalError(f"a note is a text of {_MOST_NOTE:,} characters at most.")
        found = self._record(_id(id), decision, _named("an approver", by), note)
        if found.state == EXPIRED:
            raise TooLate(found)
        if (found.state, found.decided_by) != (decision, by):
            raise AlreadyAnswered(found)
        return found if found.delivered else self._deliver(found)

    def settle(self) -> list[Request]:
        """Deliver the decisions that were recorded and whose token did not come through; as they stand then.

        Run it now and then, and at the start of whatever takes answers. Two at once are harmless. A request that cannot
        be settled is logged, stays as it is, and does not hold up the others; raises
        :class:`~labkit.control.callbacks.NoAnswer` when nobody answers at all.
        """
        settled = []
        for request in self._open(_UNDELIVERED):
            try:
                settled.append(self._deliver(request))
            except TooLate as late:
                settled.append(late.request)
            except NoAnswer:
                raise
            except (ApprovalError, CallbackError) as error:
                logger.warning("the answer to request %r stays undelivered: %s", request.id, error)
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
                ConditionExpression="gate_state = :pending AND attribute_exists(task_token)",
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
            self.callbacks.succeed(request.token, output)
            heard = True
        except StaleToken:
            # It expired, or an earlier delivery was heard and its answer lost. The history knows which.
            heard = self._heard(request)
        closed = self._close(request, request.state if heard else EXPIRED)
        if closed.state == EXPIRED:
            raise TooLate(closed)
        return closed

    def _heard(self, request: Request) -> bool:
        """Whether this answer has ended the attempt whose token is dead. Histories may be a moment behind."""
        from botocore.exceptions import ClientError, ParamValidationError

        for look in range(_LOOKS):
            if look:
                self._sleep(_PAUSE)
            try:
                pages = self.callbacks.client.get_paginator("get_execution_history").paginate(
                    executionArn=request.execution
                )
                seen, heard = fate((event for page in pages for event in page["events"]), request)
            except (ClientError, ParamValidationError) as error:
                code = getattr(error, "response", {}).get("Error", {}).get("Code", type(error).__name__)
                raise ApprovalError(
                    f"nobody waits for the answer to request {request.id!r:.80}, and its execution's history, which "
                    f"says whether it was heard, cannot be read: {code}."
                ) from None
            if heard is not None:
                return heard
        if not seen:
            raise ApprovalError(
                f"nobody waits for the answer to request {request.id!r:.80}, and its execution has never asked it."
            )
        return False  # cut off with the branch that it was in: that leaves no event of its own

    def _close(self, request: Request, state: str) -> Request:
        from botocore.exceptions import ClientError

        values = {":state": state, ":was": request.state, ":token": request.token}
        try:
            answer = self.client.update_item(
                TableName=self.table,
                Key=_key(request.id),
                UpdateExpression="SET gate_state = :state REMOVE open_in",
                # The token as well: where the state was entered again, another request has the same id by now.
                ConditionExpression="gate_state = :was AND task_token = :token",
                ExpressionAttributeValues=_texts(values),
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        except ClientError as error:
            if error.response["Error"]["Code"] != _REFUSED:
                raise
            standing = error.response.get("Item") or {}
            if standing.get("task_token") == {"S": request.token}:
                return Request.of(standing)  # somebody else settled it meanwhile
            return replace(request, state=state, delivered=state != EXPIRED)  # type: ignore[arg-type]
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
    most = int(facts("dynamodb.key.partition.max_bytes"))
    if isinstance(text, str) and _whole(text) and 1 <= len(text.encode()) <= most:
        return text
    raise NoSuchRequest(f"there is no request {text!r:.80}.")


def _whole(text: str) -> bool:
    """Whether UTF-8 can hold it: a lone surrogate is half a character."""
    return text.encode(errors="replace").decode() == text


def _key(id: str) -> dict[str, dict[str, str]]:
    return _texts({"pk": id})


def _texts(values: Mapping[str, str]) -> dict[str, dict[str, str]]:
    return {key: {"S": value} for key, value in values.items()}
