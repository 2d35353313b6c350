"""The log of a saga: which steps it has committed, in which order, and how to take each of them back.

One table; a saga is one partition of it:

========================  =====================================================================================
``pk``, ``sk``            attributes
========================  =====================================================================================
saga id, ``saga``         the header: ``phase`` (``open`` or ``compensating``) and ``steps``, how many there are
saga id, ``step#…n``      ``step_name``, ``undo_name``, ``undo_data`` (JSON); ``undone`` once it is taken back;
                          ``parked`` (the reason) and ``attempts`` while its undo waits for an operator;
                          ``tries``, how many an operator has granted it since
========================  =====================================================================================

The number of a step is the order of its commit, and it is given in the transaction that commits it: the header counts
on under the condition that it is still where the writer saw it. Two workers that commit at once both want the same
number; one gets it, the other is told the newer count and takes the next. The same condition holds the saga open, so
that no step can slip in behind the list that a compensation has read.

Nothing here expires: a way back is needed for as long as the saga can be taken back. Names are no reserved words.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from labkit.errors import LabError
from labkit.facts import facts
from labkit.state.records import said
from labkit.state.together import Beside, Item, Reason, refused
from labkit.sweep import patiently

OPEN, COMPENSATING = "open", "compensating"
_HEADER, _STEP = "saga", "step#"
_DIGITS = 9  # of a number in its key: text sorts as numbers do
MOST_DATA = 65_536  # bytes: what an undo is given travels in one message with its reason, whatever characters it has

_REFUSED, _CONFLICT = str(facts("dynamodb.condition.error")), str(facts("dynamodb.transact.conflict_error"))
_NEW = "attribute_not_exists(pk)"
_UNCHANGED = "phase = :open AND steps = :before"
_THERE = "attribute_exists(pk)"
_NOT_UNDONE = f"{_THERE} AND attribute_not_exists(undone)"


class SagaError(LabError):
    """A saga refused something; the sentence names saga and step."""


class SagaClosed(SagaError):
    """The saga is being taken back: it takes no further step.

    ``begun`` says whether the step had been at work: then what it did is recorded nowhere and has no way back but the
    one in this worker's hands, ``data``. It must be undone here and now.
    """

    def __init__(self, saga_id: str, step: str, *, begun: bool, data: Any = None) -> None:
        self.saga_id, self.step, self.begun, self.data = saga_id, step, begun, data
        what = "was not recorded; what it did is to be undone here" if begun else "is not to begin"
        super().__init__(f"saga {saga_id} is being taken back: step {step} {what}.")


@dataclass(frozen=True)
class Header:
    """``steps``: how many steps the saga has committed so far."""

    phase: str = OPEN
    steps: int = 0

    @classmethod
    def of(cls, item: Mapping[str, Mapping[str, str]]) -> Header:
        return cls(item["phase"]["S"], int(item["steps"]["N"])) if item else cls()


@dataclass(frozen=True)
class Committed:
    """A step that stands, or stood: its ``number`` in the order of commit, and what its undo is given."""

    saga_id: str
    number: int
    step: str
    undo: str
    data: Any
    undone: bool = False
    parked: str = ""  # why its undo waits for an operator
    tries: int = field(default=0, repr=False)  # that an operator has granted; 0: nobody has

    @classmethod
    def of(cls, item: Mapping[str, Mapping[str, Any]]) -> Committed:
        return cls(
            item["pk"]["S"],
            int(item["sk"]["S"].removeprefix(_STEP)),
            item["step_name"]["S"],
            item["undo_name"]["S"],
            json.loads(item["undo_data"]["S"]),
            "undone" in item,
            item.get("parked", {}).get("S", ""),
            int(item.get("tries", {}).get("N", 0)),
        )

    def __str__(self) -> str:
        return f"step {self.number} ({self.step}) of saga {self.saga_id}"


class SagaLog:
    """The log's table, by client and name. An error of the client comes through as it is."""

    def __init__(self, client: Any, table: str) -> None:
        self.client, self.table = client, table

    def header(self, saga_id: str) -> Header:
        key = self._key(saga_id, _HEADER)
        return Header.of(self.client.get_item(TableName=self.table, Key=key, ConsistentRead=True).get("Item", {}))

    def close(self, saga_id: str) -> None:
        """No step is committed to this saga from now on; also when it has none yet."""
        self._patiently(
            TableName=self.table,
            Key=self._key(saga_id, _HEADER),
            UpdateExpression="SET phase = :compensating, steps = if_not_exists(steps, :none)",
            ExpressionAttributeValues={":compensating": {"S": COMPENSATING}, ":none": {"N": "0"}},
        )

    def steps(self, saga_id: str) -> list[Committed]:
        """The committed steps, in the order of their commit."""
        pages = self.client.get_paginator("query").paginate(
            TableName=self.table,
            KeyConditionExpression="pk = :saga AND begins_with(sk, :step)",
            ExpressionAttributeValues={":saga": {"S": saga_id}, ":step": {"S": _STEP}},
            ConsistentRead=True,
        )
        return [Committed.of(item) for page in pages for item in page["Items"]]

    def step(self, saga_id: str, number: int) -> Committed:
        """One step as it stands. Raises :class:`SagaError` when there is none with this number."""
        key = self._key(saga_id, number)
        item = self.client.get_item(TableName=self.table, Key=key, ConsistentRead=True).get("Item")
        if not item:
            raise SagaError(f"saga {saga_id} has no step {number}.")
        return Committed.of(item)

    # -- what is written together with a record --------------------------------------------------------------------

    def committing(self, header: Header, saga_id: str, step: str, undo: str, data: Callable[[], Any]) -> Beside:
        """Count on and put down the way back. Raises :class:`SagaClosed` when the saga is being taken back."""

        def beside(reasons: Sequence[Reason]) -> list[Item]:
            nonlocal header
            if reasons and refused(reasons[0]):
                header = Header.of(reasons[0].get("Item", {}))
            elif reasons:
                raise SagaError(f"saga {saga_id} has a step {header.steps + 1} that its header does not count.")
            if header.phase != OPEN:
                raise SagaClosed(saga_id, step, begun=True, data=data())
            return [self._count_on(saga_id, header), self._way_back(saga_id, header.steps + 1, step, undo, data())]

        return beside

    def undoing(self, row: Committed) -> Beside:
        """Note that the step is taken back; once only."""

        def beside(reasons: Sequence[Reason]) -> list[Item]:
            if reasons:
                raise SagaError(f"{row} was taken back before, and its record has expired since.")
            return [
                self._on_step(row, "SET undone = :yes REMOVE parked, attempts", _NOT_UNDONE, {":yes": {"BOOL": True}})
            ]

        return beside

    # -- an undo that waits for an operator ------------------------------------------------------------------------

    def park(self, row: Committed, reason: str, attempts: int) -> None:
        values = {":reason": {"S": reason}, ":attempts": {"N": str(attempts)}}
        self._plainly(row, "SET parked = :reason, attempts = :attempts", _NOT_UNDONE, values)

    def unpark(self, row: Committed, tries: int) -> None:
        """Grant the undo ``tries`` more; harmless when it is not parked (any more)."""
        from botocore.exceptions import ClientError

        granted = "SET tries = attempts + :tries REMOVE parked"
        try:
            self._plainly(row, granted, "attribute_exists(parked)", {":tries": {"N": str(tries)}})
        except ClientError as error:
            if error.response["Error"]["Code"] != _REFUSED:
                raise

    # -- the table -------------------------------------------------------------------------------------------------

    def _count_on(self, saga_id: str, header: Header) -> Item:
        values = {":open": {"S": OPEN}, ":now": {"N": str(header.steps + 1)}}
        if header.steps:
            values[":before"] = {"N": str(header.steps)}
        return {
            "Update": {
                "TableName": self.table,
                "Key": self._key(saga_id, _HEADER),
                "UpdateExpression": "SET phase = :open, steps = :now",
                "ConditionExpression": _UNCHANGED if header.steps else _NEW,
                "ExpressionAttributeValues": values,
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        }

    def _way_back(self, saga_id: str, number: int, step: str, undo: str, data: Any) -> Item:
        item = {"step_name": {"S": step}, "undo_name": {"S": undo}, "undo_data": {"S": as_json(data, saga_id, step)}}
        return {
            "Put": {
                "TableName": self.table,
                "Item": {**self._key(saga_id, number), **item},
                "ConditionExpression": _NEW,
            }
        }

    def _on_step(self, row: Committed, update: str, condition: str, values: Mapping[str, Any]) -> Item:
        return {
            "Update": {
                "TableName": self.table,
                "Key": self._key(row.saga_id, row.number),
                "UpdateExpression": update,
                "ConditionExpression": condition,
                "ExpressionAttributeValues": dict(values),
            }
        }

    def _plainly(self, row: Committed, update: str, condition: str, values: Mapping[str, Any]) -> None:
        self._patiently(**self._on_step(row, update, condition, values)["Update"])

    def _patiently(self, **update: Any) -> None:
        """One update; while a transaction is at the same item, DynamoDB refuses it, and it is made again."""
        patiently(lambda: self.client.update_item(**update), _CONFLICT, within=10.0)

    @staticmethod
    def _key(saga_id: str, row: str | int) -> dict[str, dict[str, str]]:
        return {"pk": {"S": saga_id}, "sk": {"S": f"{_STEP}{row:0{_DIGITS}}" if isinstance(row, int) else row}}


def as_json(data: Any, saga_id: str, step: str) -> str:
    """``data`` as it is stored. Raises :class:`SagaError` for what JSON or an item cannot hold."""
    try:
        text = json.dumps(data, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        says = f"the undo data of step {step} of saga {saga_id} is not what JSON can hold: {said(error)}."
        raise SagaError(says) from error
    if size > MOST_DATA:
        raise SagaError(
            f"the undo data of step {step} of saga {saga_id} has {size:,} bytes; the most is {MOST_DATA:,}."
        )
    return text
