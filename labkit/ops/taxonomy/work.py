"""The taxonomy's rows of the work plane: queue → worker, queue → function."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from labkit.ops.faults import Cut, inject
from labkit.ops.taxonomy.doomed import doomed
from labkit.ops.taxonomy.fleet import Fleet
from labkit.ops.taxonomy.row import Row
from labkit.state.idempotency import Work
from labkit.work.queues import Message, Queue
from labkit.work.tasks import Task

_SOON = 2  # seconds of visibility while a function fails: it need not be long, as nothing good is under way


@contextmanager
def crash(fleet: Fleet) -> Iterator[None]:
    """A worker dies after its claim, in the middle of its step."""

    def meet(message: Message) -> None:
        envelope = json.loads(message.body)["detail"]
        fleet.store.claim(Work.of(envelope, "researcher"))
        fleet.ledger.begins(envelope["trace_id"])

    with doomed(fleet, meet):
        yield


@contextmanager
def poison(fleet: Fleet) -> Iterator[None]:
    """Every delivery of a message makes its step raise."""

    def fails(task: Task) -> None:
        fleet.ledger.begins(task.trace_id)
        raise ValueError("the step cannot read this")

    with fleet.stepping(fails):
        yield


@contextmanager
def swallowed(fleet: Fleet) -> Iterator[None]:
    """The step catches what goes wrong and returns: the message counts as done, and is deleted."""

    def careless(task: Task) -> None:
        fleet.ledger.begins(task.trace_id)
        with suppress(Exception):
            raise TimeoutError("the tool does not answer")

    with fleet.stepping(careless):
        yield


@contextmanager
def lost_heartbeats(fleet: Fleet) -> Iterator[None]:
    """The worker is alive and its step is slow, but no extension of the visibility comes through."""

    def slow(task: Task) -> str:
        if fleet.ledger.runs[task.trace_id]:  # somebody else is at it
            return fleet.work(task)
        fleet.ledger.begins(task.trace_id)
        fleet.until(lambda: fleet.ledger.done[task.trace_id], "the second run of a step")
        task.check()  # raises: the message is not ours any more
        fleet.ledger.ends(task.trace_id)
        return "done twice"

    with inject(fleet.queue.client, Cut(), "ChangeMessageVisibility"), fleet.stepping(slow):
        yield


@contextmanager
def throttled_function(fleet: Fleet) -> Iterator[None]:
    """The function may not run at all: messages are received for it, and come back."""
    function = fleet.function
    try:
        function.set_concurrency(0)
        with hidden_for(fleet.calls, _SOON):
            yield
    finally:
        function.set_concurrency(None)


def answering(mistake: str, seconds: int = _SOON) -> Callable[[Fleet], AbstractContextManager[None]]:
    """An injector: the function makes a mistake (``infra/functions/taxonomy_step`` has them), and its messages stay
    hidden for ``seconds``."""

    @contextmanager
    def broken(fleet: Fleet) -> Iterator[None]:
        _ = fleet.function
        with fleet.mistaken(mistake), hidden_for(fleet.calls, seconds):
            yield

    return broken


@contextmanager
def hidden_for(queue: Queue, seconds: int) -> Iterator[None]:
    """``queue`` with another visibility timeout, for the time of a block."""
    name = "VisibilityTimeout"
    asked = queue.client.get_queue_attributes(QueueUrl=queue.url, AttributeNames=[name])["Attributes"]
    try:
        queue.client.set_queue_attributes(QueueUrl=queue.url, Attributes={name: str(seconds)})
        yield
    finally:
        queue.client.set_queue_attributes(QueueUrl=queue.url, Attributes={name: asked[name]})


def call(fleet: Fleet) -> list[str]:
    """Three messages for the function."""
    return fleet.send(to="caller")


def call_until_dead(fleet: Fleet) -> list[str]:
    """The same, and a wait until SQS has given them up."""
    ids = call(fleet)
    dead = fleet.calls.dlq
    assert dead is not None
    fleet.until(lambda: dead.depth().total == len(ids), "three messages to be dead letters")
    return ids


def redrive(fleet: Fleet, ids: list[str]) -> None:
    """Wait until the last one is dead, or done, and move them back."""
    fleet.until(lambda: not fleet.queue.depth().total + fleet.calls.depth().total, "the queues to be empty")
    for queue in (fleet.queue, fleet.calls):
        fleet.redrive(queue)


def resend(fleet: Fleet, ids: list[str]) -> None:
    """Wait until the queues are empty, and send again what the ledger lacks."""
    fleet.until(lambda: not fleet.queue.depth().total + fleet.calls.depth().total, "the queues to be empty")
    fleet.resend(ids)


_WORKER, _FUNCTION = "queue → worker", "queue → function"
_OUTBOX = "mend, forget the records that say done, publish again what the ledger lacks"

ROWS = (
    Row(
        "worker-crash", _WORKER, "the worker dies", "the message comes back after its visibility",
        "received beyond sent", "the next worker takes over: its lease has ended", "visibility, lease", crash,
    ),
    Row(
        "poison", _WORKER, "poison message", "the same message again and again, then a dead letter",
        "depth of a queue's DLQ", "mend the step, then a move task", "maxReceiveCount", poison, recover=redrive,
    ),
    Row(
        "swallowed", _WORKER, "the step swallows its exception", "all is well: done, deleted, no error",
        "sent, not done, nowhere", _OUTBOX, "none", swallowed, recover=resend, silent=True,
    ),
    Row(
        "heartbeats-lost", _WORKER, "heartbeats do not come through", "the step runs twice",
        "messages lost", "the first worker is told, and stops; the fence refuses it", "visibility, lease",
        lost_heartbeats, drive=lambda fleet: fleet.send(1),
    ),
    Row(
        "function-throttled", _FUNCTION, "no concurrency", "dead letters of messages that no handler ever saw",
        "Throttles", "give it concurrency, then a move task", "maxReceiveCount", throttled_function,
        drive=call_until_dead, recover=redrive,
    ),
    Row(
        "function-raises", _FUNCTION, "an exception leaves the handler", "the whole batch comes back",
        "Errors", "mend the step, then a move task; the rule's DLQ never has it", "maxReceiveCount",
        answering("raises"), drive=call_until_dead, recover=redrive,
    ),
    Row(
        "answer-malformed", _FUNCTION, "a partial response that Lambda cannot read", "the whole batch comes back",
        "received beyond sent", "mend the answer, then a move task: the store answers for what was done",
        "maxReceiveCount", answering("malformed"), drive=call_until_dead, recover=redrive,
    ),
    Row(
        "answer-empty", _FUNCTION, "an answer that says nothing", "all is well: the batch is deleted",
        "sent, not done, nowhere", _OUTBOX, "none", answering("nothing", Fleet.timeout), drive=call, recover=resend,
        silent=True,
    ),
)  # fmt: skip

__all__ = ["ROWS", "hidden_for"]
