"""Undos: how one step of a saga is taken back, and what becomes of an undo that cannot be.

An undo is tried a bounded number of times. The claims of the idempotency store do the counting, so that a try that
killed its worker counts as well, and so does one of another compensator.
"""

from __future__ import annotations

import enum
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from labkit.errors import LabError
from labkit.models.retry import Wait
from labkit.state.idempotency import IdempotencyStore, Work
from labkit.state.records import said
from labkit.state.saga_log import Committed, SagaError, SagaLog
from labkit.state.together import Together
from labkit.work.queues import Message, Queue

Undo = Callable[[Any], object]  # is given the data that its step has left; what it returns is not kept


class End(enum.Enum):
    """How the undo of one step ended."""

    UNDONE = "undone"
    ALREADY = "undone before"
    PARKED = "in the dead-letter queue"


@dataclass(frozen=True)
class Report:
    """What one compensation did, each list newest step first.

    ``undone`` now; ``already`` undone before; ``failed``: the one that waits in the dead-letter queue, with its reason
    in ``parked``; ``waiting``: those behind it.
    """

    saga_id: str
    undone: tuple[Committed, ...] = ()
    already: tuple[Committed, ...] = ()
    failed: Committed | None = None
    waiting: tuple[Committed, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether everything that the saga had committed is undone."""
        return self.failed is None


class _UndoFailed(Exception):
    """An undo raised; its own error is the cause."""


@dataclass(frozen=True)
class Undos:
    """The undos of one kind of saga, by name; ``tries`` of each in all, ``wait`` between them."""

    name: str
    log: SagaLog
    store: IdempotencyStore
    by_name: Mapping[str, Undo]
    dlq: Queue
    tries: int
    wait: Wait
    sleep: Callable[[float], object]

    def end(self, row: Committed, told: int = 0) -> End:
        """Undo a step. ``told``: the number of the step whose message lies in the dead-letter queue already.

        Raises ``Busy`` while another compensator is at it, ``Fenced`` when another has taken it over.
        """
        if row.undone:
            return End.ALREADY
        if row.parked:
            return End.PARKED
        work = Work.named(row.saga_id, f"{self.name}/{row.number}/undo", row.data)
        store = Together.of(self.store, self.log.undoing(row))
        allowed = row.tries or self.tries
        reason = ""
        while True:
            with store.claim(work) as claim:
                if claim.done:
                    return End.ALREADY
                if claim.attempt > allowed:
                    self._park(row, claim.attempt, reason, told)
                    claim.release(reason)
                    return End.PARKED
                try:
                    self._call(row)
                except _UndoFailed as failed:
                    reason = f"{type(failed.__cause__).__name__}: {failed}"
                    claim.release(reason)
                else:
                    claim.complete(None)
                    return End.UNDONE
            if claim.attempt < allowed:
                self.sleep(self.wait(claim.attempt))

    def told_of(self, message: Message) -> Committed:
        """The step that a message of the dead-letter queue is about. Raises :class:`SagaError` where there is none."""
        try:
            body = message.json()
        except (LabError, RecursionError):
            body = None
        if not isinstance(body, dict) or body.get("saga") != self.name:
            raise SagaError(f"it is not about sagas {self.name!r:.80}.")
        saga_id, number = body.get("saga_id"), body.get("number")
        if not isinstance(saga_id, str) or not saga_id or not isinstance(number, int) or number < 1:
            raise SagaError(f"it names no step: saga {saga_id!r:.80}, number {number!r:.40}.")
        return self.log.step(saga_id, number)

    def _call(self, row: Committed) -> None:
        try:
            if row.undo not in self.by_name:
                raise SagaError(f"this worker knows no undo {row.undo!r:.80}.")
            self.by_name[row.undo](row.data)
        except Exception as error:
            raise _UndoFailed(said(error)) from error

    def _park(self, row: Committed, attempts: int, reason: str, told: int) -> None:
        """To the dead-letter queue, then say so in the log: a crash between sends it twice, and loses it never."""
        if self.log.step(row.saga_id, row.number).parked:
            return  # by a compensator that was faster
        reason = reason or "its worker died each time"
        if row.number != told:
            about = {"saga": self.name, "saga_id": row.saga_id, "number": row.number, "step": row.step}
            why = {"undo": row.undo, "data": row.data, "reason": reason}
            self.dlq.send(json.dumps({**about, **why}))  # as ASCII: SQS does not take every character
        self.log.park(row, reason, attempts)
