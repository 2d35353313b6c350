"""Sagas: steps that cannot share a transaction, each with a way back that is written down as it commits.

A booking is a room here, a flight there and a payment elsewhere: no database spans them. If the payment is refused, the
flight and the room are given back, newest first::

    book-room ── book-flight ── pay ╳
    cancel-room ◄─ cancel-flight ◄──┘        each undo once, with the data that its step has left

* **No gap.** A step's result and its way back are one transaction (:mod:`labkit.state.together`), fenced by the step's
  claim: there is no instant in which a committed step cannot be undone, and a worker that lost its claim commits
  neither.
* **No latecomer.** The same transaction holds the saga open. Once compensation has begun, a slow worker that wants to
  commit gets :class:`SagaClosed`, and its claim is let go.
* **Newest first, once each.** An undo is work like any other: claimed, leased, fenced, its end recorded. Whoever calls
  :meth:`Sagas.compensate` next, after a crash or beside another, goes on where the last one was.
* **Bounded.** An undo that keeps failing, or keeps killing its worker, is tried ``tries`` times in all, then it goes to
  the saga's dead-letter queue, which has an alarm, and compensation *stops there*: the undos behind it rely on the
  order (a deposit is not paid back for a car that was never returned). The operator mends what is broken and calls
  :meth:`Sagas.redrive`; compensation goes on from that undo.

What this cannot do: see an effect whose worker died between the effect and the commit. The next delivery of the step
meets it, so the step gives the other end a key (``work.trace_id``), or reserves with an expiry. And an undo can run
twice, the first time unrecorded: it must bear that, as a cancellation by number does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any

from labkit.facts import facts
from labkit.models._input import ModelError, whole
from labkit.models.retry import Exponential, Jitter, Wait
from labkit.state.claims import Claim
from labkit.state.idempotency import IdempotencyError, IdempotencyStore, Work
from labkit.state.saga_log import OPEN, Committed, SagaClosed, SagaError, SagaLog, as_json
from labkit.state.together import Together
from labkit.state.undos import End, Report, Undo, Undos
from labkit.work.queues import Queue

if TYPE_CHECKING:
    from labkit.lab import Lab

__all__ = ["Committed", "Report", "SagaClosed", "SagaError", "Sagas", "Step"]

logger = logging.getLogger(__name__)

MINUTE = 60


class Step:
    """One step of a saga at work: a claim whose result is recorded together with the way back.

    A context manager like :class:`~labkit.state.claims.Claim`: when the block raises, the work is let go.
    """

    def __init__(self, saga_id: str, undo: str, store: IdempotencyStore, log: SagaLog, work: Work) -> None:
        header = log.header(saga_id)
        if header.phase != OPEN:
            raise SagaClosed(saga_id, work.consumer, begun=False)
        self.saga_id, self.work = saga_id, work
        self._data: Any = None
        beside = log.committing(header, saga_id, work.consumer, undo, lambda: self._data)
        self.claim: Claim = Together.of(store, beside).claim(work)

    @property
    def done(self) -> bool:
        """Committed, now or by an earlier delivery: ``result`` is there, and nothing is left to do."""
        return self.claim.done

    @property
    def result(self) -> Any:
        return self.claim.result

    def complete(self, result: Any, data: Any) -> Any:
        """Commit: ``result`` for later deliveries, ``data`` for the undo. Returns the result as it was recorded.

        Raises :class:`~labkit.state.claims.Fenced` when the work has been taken over, :class:`SagaClosed` when the saga
        is being taken back, :class:`SagaError` for data that JSON cannot hold: nothing is recorded then.
        """
        as_json(data, self.saga_id, self.work.consumer)
        self._data = data
        return self.claim.complete(result)

    def __enter__(self) -> Step:
        self.claim.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.claim.__exit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<Step of saga {self.saga_id}: {self.claim!r}>"


class Sagas:
    """The sagas of one kind: their log, their undos by name, their dead-letter queue. :meth:`create` makes all of it.

    ``store`` records steps and undos. ``tries``: how often an undo is tried in all, crashes included, before it goes to
    ``dlq``. ``wait`` gives the seconds between two tries. Undos are shorter than the store's lease.
    """

    def __init__(
        self,
        name: str,
        log: SagaLog,
        store: IdempotencyStore,
        undo: Mapping[str, Undo],
        dlq: Queue,
        *,
        tries: int = 3,
        wait: Wait | None = None,
        sleep: Callable[[float], object] = time.sleep,
    ) -> None:
        _settings(name, store, undo, tries)
        self.name, self.log, self.store, self.dlq = name, log, store, dlq
        self.undos = Undos(name, log, store, undo, dlq, tries, wait or Jitter(Exponential(base=0.2, cap=5.0)), sleep)

    @classmethod
    def create(cls, lab: Lab, name: str, *, store: IdempotencyStore, undo: Mapping[str, Undo], **options: Any) -> Sagas:
        """Make table, dead-letter queue and alarm in ``lab``, or take what is there; ``options``: the constructor's.

        Raises :class:`SagaError` for settings that cannot be, before anything is made, and when AWS refuses; what was
        made until then is removed.
        """
        from botocore.exceptions import ClientError, ParamValidationError

        from labkit.state import tables
        from labkit.work.entries import QueueError

        _settings(name, store, undo, options.get("tries", 3))
        client = lab.client("dynamodb")
        log = SagaLog(client, lab.resource_name(name))
        made: list[Callable[[], object]] = []
        try:
            if tables.ensure(lab, name, ("pk", "sk")):
                made.append(lambda: client.delete_table(TableName=log.table))
            keep = {"MessageRetentionPeriod": facts("sqs.retention.max")}
            dlq = Queue.create(lab, f"{name}-undo-dlq", attributes=keep)
            made.append(lambda: dlq.client.delete_queue(QueueUrl=dlq.url))
            _alarm(lab, f"{name}-undo-failed", dlq)
            return cls(name, log, store, undo, dlq, **options)
        except BaseException as error:
            for remove in reversed(made):
                with suppress(Exception):  # why it was not made is the news; what stays is swept with the lab
                    remove()
            if isinstance(error, (ClientError, ParamValidationError, QueueError, tables.TableError)):
                raise SagaError(f"sagas {name!r:.80} were not created: {error}") from error
            raise

    # -- forward ---------------------------------------------------------------------------------------------------

    def step(self, saga_id: str, work: Work, *, undo: str) -> Step:
        """Claim ``work`` as a step of saga ``saga_id``; ``undo`` is the name of what takes it back.

        Use it as a context manager, look whether it is ``done``, and :meth:`Step.complete` it. Steps may run at the
        same time; their order is that of their commits. Raises :class:`SagaClosed` when the saga is being taken back,
        :class:`SagaError` for an undo that nobody knows, and what :meth:`IdempotencyStore.claim` raises.
        """
        _named(saga_id)
        if undo not in self.undos.by_name:
            raise SagaError(
                f"there is no undo {undo!r:.80} for step {work.consumer}; known: {', '.join(self.undos.by_name)}."
            )
        return Step(saga_id, undo, self.store, self.log, work)

    # -- back ------------------------------------------------------------------------------------------------------

    def compensate(self, saga_id: str) -> Report:
        """Take the saga back: no further step is committed, and what is committed is undone, newest first.

        May be called again, after a crash or by another worker. Stops at an undo that goes to the dead-letter queue, or
        that lies there; nothing behind it is touched. Raises :class:`~labkit.state.claims.Busy` while another
        compensator is at one of the undos, ``Fenced`` when this one was too slow for its lease: call again. An error of
        the client comes through as it is.
        """
        _named(saga_id)
        return self._compensate(saga_id, told=0)

    def redrive(self, most: int = 10) -> list[Report]:
        """After the operator has mended the cause: go on with up to ``most`` (1 to 10) sagas of the dead-letter queue.

        Each undo is granted ``tries`` more. Its message is deleted when it is through, and stays when it is not. One
        that is about no step of these sagas stays, too, and is logged. Raises what :meth:`compensate` does; the
        messages not handled yet come back by themselves.
        """
        reports = []
        for message in self.dlq.receive(most):
            try:
                row = self.undos.told_of(message)
            except SagaError as error:  # it must not hold up the others
                logger.warning("message %s stays in %s: %s", message.id, self.dlq.name, error)
                continue
            self.log.unpark(row, self.undos.tries)
            report = self._compensate(row.saga_id, told=row.number)
            reports.append(report)
            if report.failed is None or report.failed.number != row.number:
                self.dlq.delete(message)
            else:
                self.dlq.give_back(message)
        return reports

    def steps(self, saga_id: str) -> list[Committed]:
        """The steps of a saga as they stand, in the order of their commit."""
        return self.log.steps(saga_id)

    def _compensate(self, saga_id: str, told: int) -> Report:
        """``told``: the number of the step whose message lies in the dead-letter queue already."""
        self.log.close(saga_id)
        rows = self.log.steps(saga_id)[::-1]
        undone: list[Committed] = []
        already: list[Committed] = []
        for place, row in enumerate(rows):
            end = self.undos.end(row, told)
            if end is End.PARKED:  # what is behind it relies on the order
                parked = self.log.step(saga_id, row.number)
                return Report(saga_id, tuple(undone), tuple(already), parked, tuple(rows[place + 1 :]))
            (already if end is End.ALREADY else undone).append(row)
        return Report(saga_id, tuple(undone), tuple(already))


def _alarm(lab: Lab, name: str, dlq: Queue) -> None:
    """Ring while a message lies in ``dlq``: somebody has to look."""
    lab.client("cloudwatch").put_metric_alarm(
        AlarmName=lab.resource_name(name),
        AlarmDescription="An undo of a saga has failed for good. Mend its cause, then redrive.",
        Namespace="AWS/SQS",
        MetricName="ApproximateNumberOfMessagesVisible",
        Dimensions=[{"Name": "QueueName", "Value": dlq.name}],
        Statistic="Maximum",
        Period=MINUTE,
        EvaluationPeriods=1,
        Threshold=0,
        ComparisonOperator="GreaterThanThreshold",
        TreatMissingData="notBreaching",
        Tags=[{"Key": key, "Value": value} for key, value in lab.tags.items()],
    )


def _named(saga_id: str) -> None:
    try:
        Work(saga_id, "saga", "")
    except IdempotencyError as error:
        raise SagaError(f"a saga id is 1 to 2048 bytes of text; got {saga_id!r:.80}.") from error


def _settings(name: str, store: IdempotencyStore, undo: Mapping[str, Undo], tries: int) -> None:
    if not isinstance(name, str) or not name:
        raise SagaError(f"sagas need a name; got {name!r:.80}.")
    if not isinstance(store, IdempotencyStore):
        raise SagaError(f"store is an IdempotencyStore; got {store!r:.80}.")
    if not undo or not all(isinstance(key, str) and key and callable(call) for key, call in undo.items()):
        raise SagaError(f"undo is a function for each name, one at least; got {undo!r:.80}.")
    try:
        whole("tries", tries)
    except ModelError as error:
        raise SagaError(f"sagas {name!r:.80}: {error}") from error
