"""Idempotency: claim, lease, fence. One step of work, however often it is delivered, has one recorded result.

Delivery is at least once: a timeout ends early, a worker dies after the work and before the delete, an event is
replayed. So every delivery first *claims* the work, named by what it is (trace id and consumer) and never by how it
came (message id, receipt, event id)::

    worker A   claim ── renew ── renew ─╳ dies               (nothing recorded)
               |<- lease ->|  |<- lease ->|
    worker B          claim: Busy             claim ─────── complete ── delete
    worker A'                                        wakes up: complete -> Fenced, and learns the newer result
    worker C                                                              claim: done, the stored result

* **Claim**: a conditional write. It takes work that nobody has; where a row stands, a second one takes it over if it
  was abandoned or has expired, and whoever is first gets it.
* **Lease**: a claim holds until a moment, and is renewed while the worker lives. Shorter than the message's visibility,
  so that the message that comes back after a crash finds the lease already over.
* **Fence**: only the owner of the newest claim may record a result. A worker that was slow and not dead is refused.

What this cannot do: two workers can *run* the same step, one of them unknowing. At most one result is recorded; an
outside effect (a charge, an email) needs a key of its own at the other end: pass on ``work.trace_id``, or
:attr:`Claim.attempt`, which grows with every takeover.

Clocks are the workers' own; the lease must be longer than they differ. Only ``labkit.errors``, ``facts`` and a boto3
client are needed: this module travels into Lambda functions.
"""

from __future__ import annotations

import copy
import functools
import math
import time
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from labkit.models.windows import Window
from labkit.state.claims import Busy, Claim, Fenced, IdempotencyError, PayloadMismatch, Work
from labkit.state.objects import Objects
from labkit.state.records import DONE, RUNNING, Record

if TYPE_CHECKING:
    from labkit.lab import Lab

__all__ = ["Busy", "Claim", "Fenced", "IdempotencyError", "IdempotencyStore", "PayloadMismatch", "Window", "Work"]

R = TypeVar("R")

# What a claim may take. Everything else blocks it, and the row that blocks comes back with the refusal.
_FRESH = "attribute_not_exists(pk)"  # nobody has ever claimed this work
_ABANDONED = "step_state = :running AND lease_until < :now AND payload_hash = :hash"  # its worker died, or let go
_EXPIRED = "expires_at < :now AND lease_until < :now"  # said here, because TTL deletes days late
_TAKE_OVER = (
    "SET step_state = :running, claimed_by = :me, lease_until = :until, expires_at = :expires, payload_hash = :hash "
    "REMOVE step_result, result_ref ADD attempt :one"
)
_OWNED = "claimed_by = :me AND step_state = :running"  # the fence


class IdempotencyStore:
    """Records of work in one DynamoDB table (``pk`` = trace id, ``sk`` = consumer).

    ``lease``: seconds that a claim holds unless renewed. ``window``: seconds that a record stands, by default what
    ``covers`` needs; a shorter one is refused. ``objects``: where results go that are larger than ``inline`` bytes
    (DynamoDB bills writes by the KB and ends at 400 KB). ``clock`` gives epoch seconds.
    """

    def __init__(
        self,
        client: Any,
        table: str,
        *,
        lease: float = 60.0,
        window: float | None = None,
        covers: Window | None = None,
        objects: Objects | None = None,
        inline: int = 65_536,
        clock: Callable[[], float] = time.time,
    ) -> None:
        needed = (covers or Window()).needed
        self.window = needed if window is None else window
        if not 0 < lease <= self.window:
            raise IdempotencyError(f"a lease is longer than 0 s and not longer than the window; it is {lease!r} s.")
        if self.window < needed:
            raise IdempotencyError(
                f"a window of {self.window:g} s is too short: the same work can come again for {needed:g} s."
            )
        self.client, self.table = client, table
        self.lease = lease
        self.objects, self.inline = objects, inline
        self.clock = clock

    @classmethod
    def create(cls, lab: Lab, name: str, **options: Any) -> IdempotencyStore:
        """Make the table in ``lab``, with TTL on; ``options`` are the constructor's. Bad ones are refused first."""
        client = lab.client("dynamodb")
        store = cls(client, lab.resource_name(name), **options)
        client.create_table(
            TableName=store.table,
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key in ("pk", "sk")],
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            BillingMode="PAY_PER_REQUEST",
            Tags=[{"Key": key, "Value": value} for key, value in lab.tags.items()],
        )
        client.get_waiter("table_exists").wait(TableName=store.table, WaiterConfig={"Delay": 1, "MaxAttempts": 30})
        client.update_time_to_live(
            TableName=store.table, TimeToLiveSpecification={"Enabled": True, "AttributeName": "expires_at"}
        )
        return store

    # -- the three moves -------------------------------------------------------------------------------------------

    def claim(self, work: Work) -> Claim:
        """Claim ``work``. The claim is ``done``, with the stored ``result``, when the work has been done before.

        Raises :class:`Busy` while another worker's lease lives, and :class:`PayloadMismatch` when the record stands for
        another payload. An error of the client (the table does not answer) comes through as it is: nothing is claimed,
        or a claim that nobody knows of ends with its lease.
        """
        now, me = self.clock(), uuid.uuid4().hex
        until = now + self.lease
        claimed = {
            "step_state": {"S": RUNNING},
            "claimed_by": {"S": me},
            "lease_until": _moment(until),
            "expires_at": _expiry(now + self.window),
            "payload_hash": {"S": work.digest},
            "attempt": {"N": "1"},
        }
        refused = self.client.exceptions.ConditionalCheckFailedException
        try:
            # The ordinary case, in the cheapest form.
            self.client.put_item(
                TableName=self.table,
                Item={**work.key, **claimed},
                ConditionExpression=_FRESH,
                # The row that blocks comes with the refusal: no second read, which could see another one.
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
            )
            return Claim(self, work, me, 1, until)
        except refused as error:
            found = Record.of(error.response.get("Item", {}))
        if found.claimable(work, now):
            try:
                answer = self._update(
                    work,
                    _TAKE_OVER,
                    f"({_ABANDONED}) OR ({_EXPIRED})",
                    {
                        ":running": claimed["step_state"],
                        ":me": claimed["claimed_by"],
                        ":until": claimed["lease_until"],
                        ":now": _moment(now),
                        ":expires": claimed["expires_at"],
                        ":hash": claimed["payload_hash"],
                        ":one": claimed["attempt"],
                    },
                    ReturnValues="UPDATED_NEW",
                )
                return Claim(self, work, me, int(answer["Attributes"]["attempt"]["N"]), until)
            except refused as error:  # another worker was faster, by this moment
                found = Record.of(error.response.get("Item", {}))
        if found.owner == me and found.running:
            return Claim(self, work, me, found.attempt, until)  # the client repeated a call that had been heard
        if found.digest != work.digest:
            raise PayloadMismatch(work, found)
        if found.running:
            raise Busy(work, found, max(0.0, found.lease_until - now))
        return Claim(self, work, found.owner, found.attempt, 0.0, stored=found.value(self.objects, work))

    def renew(self, claim: Claim) -> float:
        """Let the lease begin anew; returns until when it holds. Raises :class:`Fenced` when the claim is lost."""
        until = self.clock() + self.lease
        self._owned(claim, "SET lease_until = :until", {":until": _moment(until)})
        return until

    def record(self, claim: Claim, result: Any) -> Any:
        """Record the result for good. Returns it as every later caller will see it (JSON has lists, no tuples).

        Raises :class:`Fenced` when the work has been taken over, :class:`IdempotencyError` for a result that JSON or
        the table cannot hold: nothing is recorded then.
        """
        name, value, result = Record.stored(result, claim.work, self.objects, self.inline)
        # Only an earlier attempt can have left a failure behind.
        forget = " REMOVE failure" if claim.attempt > 1 else ""
        self._owned(
            claim,
            f"SET step_state = :done, {name} = :value, expires_at = :expires{forget}",
            {":done": {"S": DONE}, ":value": value, ":expires": _expiry(self.clock() + self.window)},
        )
        return result

    def release(self, claim: Claim, reason: str = "") -> None:
        """Let go at once, so that the next delivery need not wait for the lease. ``reason`` stays in the record."""
        self._owned(
            claim,
            "SET lease_until = :never, failure = :reason",
            {":never": _moment(0), ":reason": {"S": reason[:1000]}},
        )

    def look(self, work: Work) -> Record | None:
        """The record as it stands, or None: for tests, triage and curiosity. Not for decisions: see :meth:`claim`."""
        item = self.client.get_item(TableName=self.table, Key=work.key, ConsistentRead=True).get("Item")
        return Record.of(item) if item else None

    # -- ways to use it --------------------------------------------------------------------------------------------

    def run(self, work: Work, step: Callable[[Claim], R]) -> R:
        """The result of ``work``: recorded before, or of ``step(claim)`` now. What the step raises releases the claim.

        The lease is not renewed here: the step is shorter than the lease, or calls ``claim.renew()``, or runs in a
        :class:`labkit.work.worker.Worker`, which does it.
        """
        with self.claim(work) as claim:
            if not claim.done:
                claim.complete(step(claim))
            result: R = claim.result
            return result

    def idempotent(self, consumer: str) -> Callable[[Callable[[Any], R]], Callable[[Any], R]]:
        """Decorate a step that takes an envelope: it runs once for each trace id, and later calls get its result."""

        def decorate(step: Callable[[Any], R]) -> Callable[[Any], R]:
            @functools.wraps(step)
            def once(envelope: Any) -> R:
                return self.run(Work.of(envelope, consumer), lambda _: step(envelope))

            return once

        return decorate

    def for_invocation(self, context: Any) -> IdempotencyStore:
        """This store with the lease of one Lambda invocation: the time that it has left.

        Lambda ends the invocation then, so nobody can be at work on an expired lease, and nothing has to be renewed.
        """
        store = copy.copy(self)
        store.lease = max(0.001, context.get_remaining_time_in_millis() / 1000)
        return store

    # -- the table -------------------------------------------------------------------------------------------------

    def _owned(self, claim: Claim, update: str, values: dict[str, Any]) -> None:
        """An update that only the owner of the newest claim may make: the fence."""
        try:
            self._update(claim.work, update, _OWNED, {":me": {"S": claim.owner}, ":running": {"S": RUNNING}, **values})
        except self.client.exceptions.ConditionalCheckFailedException as refused:
            found = Record.of(refused.response.get("Item", {}))
            if found.owner == claim.owner and found.done and ":done" in values:
                return  # the client repeated a call that had been heard: it is our own result that stands there
            raise Fenced(claim.work, found, self.objects) from None

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


def _moment(seconds: float) -> dict[str, str]:
    return {"N": f"{seconds:.3f}"}


def _expiry(seconds: float) -> dict[str, str]:
    return {"N": str(math.ceil(seconds))}  # TTL takes whole seconds
