"""Written together: a result of the idempotency store and other rows, in one transaction or not at all.

A step that records its result with one call and something else with a second can die between the two.
``TransactWriteItems`` writes up to 100 items of any tables of an account and Region, or none of them, each under a
condition of its own; when one condition does not hold, the answer says which, and holds the row that was in the way.

Two transactions that touch the same item at once do not wait for each other: DynamoDB cancels one of them
(``TransactionConflict``), and it is the caller who tries again. Each try is a call of its own; within a call the SDK
repeats with the same ``ClientRequestToken``, so that a call whose answer was lost is not made twice.

Source: botocore's model of DynamoDB (TransactWriteItems, TransactionCanceledException).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from labkit.facts import facts
from labkit.models.retry import Exponential, Jitter
from labkit.state.idempotency import IdempotencyStore
from labkit.state.records import DONE, IdempotencyError, Work

__all__ = ["Item", "Reason", "Together", "refused", "write"]

Item = dict[str, Any]  # one action of a transaction: {"Put": …}, {"Update": …}
Reason = Mapping[str, Any]  # why an item cancelled it, {"Code": "None"} where it did not
Beside = Callable[[Sequence[Reason]], Sequence[Item]]

_CANCELLED = str(facts("dynamodb.transact.error"))
_CONDITION = str(facts("dynamodb.transact.condition_code"))
_PASSING = set(str(facts("dynamodb.transact.retried_codes")).split("|"))  # what a later try can cure
_TRIES = 10  # of one transaction, while others are at its items
_ROUNDS = 200  # of a transaction that is put together anew; each refusal means that somebody else got through
_WAIT = Jitter(Exponential(base=0.01, cap=0.5))  # seconds


def write(
    client: Any, items: Sequence[Item], *, sleep: Callable[[float], object] = time.sleep
) -> Sequence[Reason] | None:
    """Write all ``items`` or none. None when they are written, else the reason of each: some condition did not hold.

    While other transactions are at the same items it is tried again, ten times in all. Every other refusal, and the
    last of those, is raised as boto3 has it: nothing is written.
    """
    from botocore.exceptions import ClientError

    failure = 0
    while True:
        try:
            client.transact_write_items(TransactItems=list(items))
        except ClientError as error:
            reasons: Sequence[Reason] = error.response.get("CancellationReasons") or []
            if error.response["Error"]["Code"] != _CANCELLED or not reasons:
                raise
            if any(refused(reason) for reason in reasons):
                return reasons
            failure += 1
            if failure == _TRIES or not {reason["Code"] for reason in reasons} <= {*_PASSING, "None"}:
                raise
            sleep(_WAIT(failure))
        else:
            return None


def refused(reason: Reason) -> bool:
    """Whether this item's condition did not hold."""
    return bool(reason.get("Code") == _CONDITION)


class Together(IdempotencyStore):
    """An idempotency store that records a result together with other rows: both stand, or neither does.

    ``beside`` gives the other actions. It is called with no reasons at first, and when a condition of its own did not
    hold, with the reasons of its items: it returns other actions, for another try, or raises. The fence comes first: a
    worker that has lost its claim gets ``Fenced``, whatever else is in the way.
    """

    beside: Beside
    sleep: Callable[[float], object]

    @classmethod
    def of(cls, store: IdempotencyStore, beside: Beside, *, sleep: Callable[[float], object] = time.sleep) -> Together:
        """``store`` with its lease, window, clock and table, for claims whose results are recorded so."""
        made = cls.__new__(cls)
        vars(made).update(vars(store))
        made.beside, made.sleep = beside, sleep
        return made

    def _update(self, work: Work, update: str, condition: str, values: dict[str, Any], **more: Any) -> dict[str, Any]:
        if values.get(":done") != {"S": DONE}:  # a claim, a renewal, a release
            return super()._update(work, update, condition, values, **more)
        record: Item = {
            "Update": {
                "TableName": self.table,
                "Key": work.key,
                "UpdateExpression": update,
                "ConditionExpression": condition,
                "ExpressionAttributeValues": values,
                "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
            }
        }
        others = self.beside([])
        for failure in range(1, _ROUNDS + 1):
            reasons = write(self.client, [record, *others], sleep=self.sleep)
            if reasons is None:
                return {}
            if refused(reasons[0]):
                raise _blocked(reasons[0])
            others = self.beside(reasons[1:])
            self.sleep(_WAIT(min(failure, 4)))
        raise IdempotencyError(f"{work} was not recorded: {_ROUNDS} times another writer was faster.")


def _blocked(reason: Reason) -> Any:
    """The refusal of the record's own condition, as a plain write would have got it."""
    from botocore.exceptions import ClientError

    answer: Any = {
        "Error": {"Code": str(facts("dynamodb.condition.error")), "Message": reason.get("Message", "")},
        "Item": reason.get("Item", {}),
    }
    return ClientError(answer, "TransactWriteItems")
