"""The taxonomy's rows of the workflow: worker → state machine, and the state machine itself."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from labkit.control.callbacks import StaleToken
from labkit.ops.taxonomy.doomed import doomed
from labkit.ops.taxonomy.fleet import WITHIN, Fleet
from labkit.ops.taxonomy.row import Row
from labkit.work.queues import Message
from labkit.work.tasks import Poison, Task


class NoSuchTool(Poison):
    """What the step says of a tool that nobody has deployed."""


@contextmanager
def token_held(fleet: Fleet) -> Iterator[None]:
    """A worker deletes its message first, and dies with the token: nothing brings the message back."""
    with doomed(fleet, lambda message: fleet.queue.delete(message)):
        yield


@contextmanager
def token_stale(fleet: Fleet) -> Iterator[None]:
    """The same worker was not dead, only late: it answers when the attempt is over and the next one has the work."""
    kept: list[str] = []
    over = threading.Event()

    def meet(message: Message) -> None:
        kept.append(json.loads(message.body)["task_token"])
        fleet.queue.delete(message)

    def late() -> None:
        while not over.wait(0.1):
            if kept and all(execution.status != "RUNNING" for execution in fleet.executions):
                try:
                    fleet.callbacks.succeed(kept[0], "late")
                except StaleToken:
                    return  # counted where it was raised: the right answer is to stop

    thread = threading.Thread(target=late, name="labkit-taxonomy-late", daemon=True)
    with doomed(fleet, meet):
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join(WITHIN)


@contextmanager
def state_fails(fleet: Fleet) -> Iterator[None]:
    """The step can never succeed, and says so: the execution fails at its state."""

    def refuses(task: Task) -> None:
        fleet.ledger.begins(task.trace_id)
        error = NoSuchTool("there is no such tool")
        fleet.callbacks.give_up(task, error)
        raise error

    with fleet.stepping(refuses):
        yield


def redrive(fleet: Fleet, ids: list[str]) -> None:
    """Go on where the executions failed. The dead letters follow: their tokens are stale, their work is done."""
    fleet.until(lambda: all(each.status != "RUNNING" for each in fleet.executions), "the executions to fail")
    fleet.until(lambda: not fleet.queue.depth().total, "the dead letters to be there")
    for execution in fleet.executions:
        if execution.status == "FAILED":
            execution.redrive()
    fleet.redrive(fleet.queue)


_HOP = "worker → state machine"

ROWS = (
    Row(
        "token-held", _HOP, "the worker dies holding the token", "an execution stands still",
        "TaskTimedOut", "a retry sends fresh work with a new token", "HeartbeatSeconds, TimeoutSeconds", token_held,
        drive=lambda fleet: fleet.begin(1),
    ),
    Row(
        "token-stale", _HOP, "a late answer", "SendTaskSuccess is refused: TaskTimedOut",
        "stale callbacks", "stop: another attempt has the work", "HeartbeatSeconds, TimeoutSeconds", token_stale,
        drive=lambda fleet: fleet.begin(1),
    ),
    Row(
        "state-failed", "state machine", "a step fails after its retries", "an execution ends at a state",
        "executions failed", "mend, then redrive the execution", "MaxAttempts of each error class", state_fails,
        drive=lambda fleet: fleet.begin(2), recover=redrive,
    ),
)  # fmt: skip

__all__ = ["ROWS", "NoSuchTool"]
