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

from labkit.models._input import ModelError, number, whole
from labkit.models.windows import Window
from labkit.state.claims import Busy, Claim, Fenced, IdempotencyError, PayloadMismatch, Work
from labkit.state.objects import Objects
from labkit.state.records import DONE, MOST_INLINE, Placed, Record
from labkit.state.rows import Rows, moment

if TYPE_CHECKING:
    from labkit.lab import Lab

__all__ = ["Busy", "Claim", "Fenced", "IdempotencyError", "IdempotencyStore", "PayloadMismatch", "Window", "Work"]

R = TypeVar("R")

_LONGEST = 1e9  # seconds, 31 years: a record that never expires is a mistake, and no number for the table's TTL
_TRIES = 3  # rows that vanish between two calls: each try is another one


class IdempotencyStore(Rows):
    """Records of work in one DynamoDB table (``pk`` = trace id, ``sk`` = consumer).

    ``lease``: seconds that a claim holds unless renewed. ``window``: seconds that a record stands, by default what
    ``covers`` needs; a shorter one is refused. ``objects``: where results go that are larger than ``inline`` bytes
    (DynamoDB bills writes by the KB and ends at 400 KB). ``clock`` gives epoch seconds. Raises
    :class:`IdempotencyError` for what cannot be; stores with other leases and windows may share the table.
    """

    def __init__(
        self,
        client: Any,
        table: str,
        *,
        lease: float = 40.0,
        window: float | None = None,
        covers: Window | None = None,
        objects: Objects | None = None,
        inline: int = 65_536,
        clock: Callable[[], float] = time.time,
    ) -> None:
        needed = (covers or Window()).needed
        try:
            self.window = number("window", needed if window is None else window, high=_LONGEST, unit="s")
            self.inline = whole("inline", inline, low=0, high=MOST_INLINE)
            number("lease", lease, unit="s")
        except ModelError as error:
            raise IdempotencyError(f"a store cannot work so: {error}") from error
        if objects is not None and not isinstance(objects, Objects):
            raise IdempotencyError(f"objects is what Objects.create makes; got {objects!r:.80}.")
        if not 0 < lease <= self.window:
            raise IdempotencyError(
                f"a lease is longer than 0 s and not longer than the window of {self.window:g} s; it is {lease!r} s."
            )
        if self.window < needed:
            raise IdempotencyError(
                f"a window of {self.window:g} s is too short: the same work can come again for {needed:g} s."
            )
        super().__init__(client, table)
        self.lease = lease
        self.objects = objects
        self.clock = clock

    @classmethod
    def create(cls, lab: Lab, name: str, **options: Any) -> IdempotencyStore:
        """Make the table in ``lab``, with TTL on, or take the one that it has; bad ``options`` are refused before.

        Raises :class:`IdempotencyError` when DynamoDB refuses the table.
        """
        from labkit.state import tables

        client = lab.client("dynamodb")
        store = cls(client, lab.resource_name(name), **options)
        try:
            tables.ensure(lab, name, ("pk", "sk"))
        except tables.TableError as error:
            raise IdempotencyError(str(error)) from error
        expires = client.describe_time_to_live(TableName=store.table)["TimeToLiveDescription"]
        if expires["TimeToLiveStatus"] not in ("ENABLED", "ENABLING"):
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
        for _ in range(_TRIES):
            now, me = self.clock(), uuid.uuid4().hex
            until = now + self.lease
            found = self._take(work, me, now, until, self._expires(now))
            if found.owner == me and found.running:
                return Claim(self, work, me, found.attempt, until)
            if found.state:
                break  # else TTL has deleted the row that had been in the way: there is nothing in the way now
        else:
            raise IdempotencyError(f"{work} could not be claimed: its row came and went {_TRIES} times.")
        if found.digest != work.digest:
            raise PayloadMismatch(work, found)
        if found.running:
            raise Busy(work, found, max(0.0, found.lease_until - now))
        return Claim(self, work, found.owner, found.attempt, 0.0, stored=found.value(self.objects, work))

    def renew(self, claim: Claim) -> float:
        """Let the lease begin anew; returns until when it holds. Raises :class:`Fenced` when the claim is lost."""
        now = self.clock()
        until = now + self.lease
        self._fenced(
            claim,
            "SET lease_until = :until, expires_at = :expires",  # TTL must not delete what somebody is at work on
            {":until": moment(until), ":expires": {"N": str(self._expires(now))}},
        )
        return until

    def place(self, work: Work, result: Any) -> Placed:
        """The first half of recording: the result made ready, in S3 if it is large. Nothing points there yet.

        Raises :class:`IdempotencyError` for a result that JSON or the table cannot hold.
        """
        return Record.stored(result, work, self.objects, self.inline)

    def record(self, claim: Claim, placed: Placed) -> Any:
        """Record the result for good. Returns it as every later caller will see it (JSON has lists, no tuples).

        Raises :class:`Fenced` when the work has been taken over: nothing is recorded then.
        """
        name, value, result = placed
        # Only an earlier attempt can have left a failure behind.
        forget = " REMOVE failure" if claim.attempt > 1 else ""
        self._fenced(
            claim,
            f"SET step_state = :done, {name} = :value, expires_at = :expires{forget}",
            {":done": {"S": DONE}, ":value": value, ":expires": {"N": str(self._expires(self.clock()))}},
        )
        return result

    def release(self, claim: Claim, reason: str = "") -> None:
        """Let go at once, so that the next delivery need not wait for the lease. ``reason`` stays in the record."""
        self._fenced(
            claim,
            "SET lease_until = :never, failure = :reason",
            {":never": moment(0), ":reason": {"S": reason[:1000].encode(errors="replace").decode()}},
        )

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

    def _fenced(self, claim: Claim, update: str, values: dict[str, Any]) -> None:
        """An update that the claim may make while it is the newest one. Raises :class:`Fenced`."""
        found = self._owned(claim.work, claim.owner, update, values)
        if found is None or (found.owner == claim.owner and found.done and ":done" in values):
            return  # or the client repeated a call that had been heard: it is our own result that stands there
        raise Fenced(claim.work, found, self.objects)

    def _expires(self, now: float) -> int:
        """When TTL may delete the row: never while the lease lives (one for an invocation can exceed the window)."""
        return math.ceil(now + max(self.window, self.lease))  # TTL takes whole seconds
