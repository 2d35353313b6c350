"""Rows: the conditional writes on the idempotency table. What a claim may take, and what only its owner may change.

A single write that meets a transaction on its item is refused (``TransactionConflictException``: botocore's model of
DynamoDB) and is no transaction itself, so that nobody tries again unless this does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from labkit.facts import facts
from labkit.models.retry import Exponential, Jitter
from labkit.state.records import RUNNING, Record, Work

# What a claim may take. Everything else blocks it, and the row that blocks comes back with the refusal.
_FRESH = "attribute_not_exists(pk)"  # nobody has ever claimed this work
_ABANDONED = "step_state = :running AND lease_until < :now AND payload_hash = :hash"  # its worker died, or let go
_EXPIRED = "expires_at < :now AND lease_until < :now"  # said here, because TTL deletes days late
_TAKE_OVER = (
    "SET step_state = :running, claimed_by = :me, lease_until = :until, expires_at = :expires, payload_hash = :hash "
    "REMOVE step_result, result_ref ADD attempt :one"
)
_OWNED = "claimed_by = :me AND step_state = :running"  # the fence
_REFUSED = str(facts("dynamodb.condition.error"))
_CONFLICT = str(facts("dynamodb.transact.conflict_error"))
_TRIES = 10  # of one write, while transactions are at its item
_WAIT = Jitter(Exponential(base=0.01, cap=0.5))  # seconds between them


class Rows:
    """The rows of one table, by client and name. An error of the client comes through as it is."""

    def __init__(self, client: Any, table: str) -> None:
        self.client, self.table = client, table

    def look(self, work: Work) -> Record | None:
        """The record as it stands, or None: for tests, triage and curiosity. Not for decisions: claim the work."""
        item = self.client.get_item(TableName=self.table, Key=work.key, ConsistentRead=True).get("Item")
        return Record.of(item) if item else None

    def _take(self, work: Work, me: str, now: float, until: float, expires: int) -> Record:
        """Try to put ``me`` into the row. Returns it as it stands then: mine, or in the way, or gone meanwhile."""
        claimed = {
            "step_state": {"S": RUNNING},
            "claimed_by": {"S": me},
            "lease_until": moment(until),
            "expires_at": {"N": str(expires)},
            "payload_hash": {"S": work.digest},
            "attempt": {"N": "1"},
        }
        # The ordinary case, in the cheapest form.
        found = _blocked_by(
            lambda: self.client.put_item(
                TableName=self.table,
                Item={**work.key, **claimed},
                ConditionExpression=_FRESH,
                # The row that blocks comes with the refusal: no second read, which could see another one.
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
        )
        if found is None:
            return Record.of(claimed)
        if not found.claimable(work, now):
            return found  # and it can be mine, where the SDK repeated a call that had been heard
        values = {
            ":running": claimed["step_state"],
            ":me": claimed["claimed_by"],
            ":until": claimed["lease_until"],
            ":now": moment(now),
            ":expires": claimed["expires_at"],
            ":hash": claimed["payload_hash"],
            ":one": claimed["attempt"],
        }
        taken: dict[str, Any] = {}
        either = f"({_ABANDONED}) OR ({_EXPIRED})"
        found = _blocked_by(
            lambda: taken.update(self._update(work, _TAKE_OVER, either, values, ReturnValues="UPDATED_NEW"))
        )
        # Another worker was faster, by this moment; or it was me, as above.
        return Record.of(taken["Attributes"]) if found is None else found

    def _owned(self, work: Work, owner: str, update: str, values: dict[str, Any]) -> Record | None:
        """An update that only the owner of the newest claim may make. None, or what stands there instead: the fence."""
        values = {":me": {"S": owner}, ":running": {"S": RUNNING}, **values}
        return _blocked_by(lambda: self._update(work, update, _OWNED, values))

    def _update(self, work: Work, update: str, condition: str, values: dict[str, Any], **more: Any) -> dict[str, Any]:
        answer: dict[str, Any] = self.client.update_item(
            TableName=self.table,
            Key=work.key,
            UpdateExpression=update,
            ConditionExpression=condition,
            ExpressionAttributeValues=values,
            ReturnValuesOnConditionCheckFailure="ALL_OLD",
            **more,
        )
        return answer


def _blocked_by(write: Callable[[], object]) -> Record | None:
    """None when the write went through, else the row that its condition did not hold for (or an empty one)."""
    from botocore.exceptions import ClientError

    failure = 0
    while True:
        try:
            write()
        except ClientError as error:
            # By its code: client.exceptions makes its classes at the first use, and two threads may get two of each.
            code = error.response["Error"]["Code"]
            if code == _REFUSED:
                return Record.of(error.response.get("Item", {}))
            failure += 1
            if code != _CONFLICT or failure == _TRIES:
                raise
        else:
            return None
        time.sleep(_WAIT(failure))


def moment(seconds: float) -> dict[str, str]:
    """Epoch seconds as an attribute, to the millisecond."""
    return {"N": f"{seconds:.3f}"}
