"""Claims: one worker's hold on one piece of work, and how it ends."""

from __future__ import annotations

import threading
from types import TracebackType
from typing import TYPE_CHECKING, Any

from labkit.state.objects import Objects
from labkit.state.records import IdempotencyError, Record, Work, said

if TYPE_CHECKING:
    from labkit.state.idempotency import IdempotencyStore

__all__ = ["Busy", "Claim", "Fenced", "IdempotencyError", "PayloadMismatch", "Work"]

_NOT_DONE = object()


class Busy(IdempotencyError):
    """Another worker's lease lives. Let the message come back, after ``retry_in`` seconds; never delete it."""

    def __init__(self, work: Work, record: Record, retry_in: float) -> None:
        self.work, self.record, self.retry_in = work, record, retry_in
        super().__init__(f"{work} is being done by another worker, whose lease holds for {retry_in:.1f} s more.")


class PayloadMismatch(IdempotencyError):
    """The same name, another payload: two different pieces of work share a trace id. Running or answering is wrong."""

    def __init__(self, work: Work, record: Record) -> None:
        self.work, self.record = work, record
        super().__init__(
            f"{work} was claimed with another payload: its SHA-256 begins {record.digest[:12]}, this one's "
            f"{work.digest[:12]}."
        )


class Fenced(IdempotencyError):
    """The claim was lost: somebody took the work over. What this worker did is not recorded.

    ``record`` is what stands there now; :meth:`newer` its result, once it is done.
    """

    def __init__(self, work: Work, record: Record, objects: Objects | None = None, *, why: str = "") -> None:
        self.work, self.record, self._objects = work, record, objects
        if not why:
            newer = "a newer claim is at work" if record.running else "its record is gone"
            why = "a newer result stands" if record.done else newer
        super().__init__(f"{work} is not known to be this worker's any more: {why}.")

    def of(self, claim: Claim | None) -> bool:
        """Whether it is this claim that was lost, and not one that a step made beside it."""
        return claim is not None and claim.work == self.work

    def newer(self) -> Any:
        """The result that stands. Raises :class:`IdempotencyError` while there is none."""
        if not self.record.done:
            raise IdempotencyError(f"{self.work} has no result yet.")
        return self.record.value(self._objects, self.work)


class Claim:
    """The right to do one piece of work, until the lease ends; or its result, when it is ``done``.

    As a context manager it releases the work when the block raises, so that the next delivery can go on at once.
    ``attempt`` counts the claims of this work: a fencing token for whatever the step writes elsewhere.
    """

    def __init__(
        self,
        store: IdempotencyStore,
        work: Work,
        owner: str,
        attempt: int,
        lease_until: float,
        *,
        stored: Any = _NOT_DONE,
    ) -> None:
        self.work, self.owner, self.attempt = work, owner, attempt
        self.lease_until = lease_until
        self.replayed = stored is not _NOT_DONE  # done before this claim was made
        self._store = store
        self._result = stored
        self._over = self.replayed
        self._guard = threading.Lock()  # a heartbeat renews in a thread of its own

    @property
    def done(self) -> bool:
        return self._result is not _NOT_DONE

    @property
    def result(self) -> Any:
        """The recorded result. Raises :class:`IdempotencyError` while there is none."""
        if not self.done:
            raise IdempotencyError(f"{self.work} is claimed and has no result yet.")
        return self._result

    def renew(self) -> None:
        """Hold on for one more lease. Raises :class:`Fenced` when the work has been taken over."""
        with self._guard:
            if not self._over:
                self.lease_until = self._store.renew(self)

    def check(self) -> None:
        """Raise :class:`Fenced` if this worker cannot know that it still holds the work: its lease has run out."""
        if not self._over and self._store.clock() >= self.lease_until:
            raise Fenced(self.work, Record(owner=self.owner), why="its lease has run out")

    def complete(self, result: Any) -> Any:
        """Record ``result``; returns it as it was recorded. Raises :class:`Fenced` when a newer claim owns the work.

        A lease that has run out is no obstacle as long as nobody has taken the work over: the work is done, after all.
        """
        self._not_over()
        # A large result is on its way to S3 for a while: no renewal may have to wait for that.
        placed = self._store.place(self.work, result)
        with self._guard:
            self._not_over()
            self._result = self._store.record(self, placed)
            self._over = True
            return self._result

    def _not_over(self) -> None:
        if self._over:
            raise IdempotencyError(f"the claim on {self.work} is over: a result is recorded once.")

    def release(self, reason: str = "") -> bool:
        """Let go; harmless when the claim is over. False when the work had been taken over already."""
        with self._guard:
            if self._over:
                return True
            self._over = True
            try:
                self._store.release(self, reason)
            except Fenced:
                return False
            return True

    def __enter__(self) -> Claim:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._over:
            return
        if error is None:
            self.release("the block ended without a result")
            raise IdempotencyError(f"the block that claimed {self.work} ended without complete(); it was released.")
        try:
            self.release(f"{type(error).__name__}: {said(error)}")
        except Exception as trouble:  # noqa: BLE001 - the step's own error is the news; the lease ends by itself
            error.add_note(
                f"The claim on {self.work} could not be released ({said(trouble)}); its lease runs out instead."
            )

    def __repr__(self) -> str:
        state = "done" if self.done else "over" if self._over else "held"
        return f"<Claim on {self.work}, attempt {self.attempt}, {state}>"
