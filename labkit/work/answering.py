"""Answering: a step whose result a state machine waits for, and which of its failures are whose affair.

Two loops try again, and each has its own failures. The queue's redelivery is for what a moment cures: the same token,
no transition paid for, and the state machine does not even learn of it. The state machine's Retry and Catch decide over
the rest: what can never succeed (:class:`~labkit.work.tasks.Poison`), and what has failed at its last receive. Each of
those is told at once, by the name of the exception's class, and not left to a timeout::

    step raises ─┬─ Poison ─────────────┬─ SendTaskFailure ─ dead-letter queue
                 ├─ at the last receive ┘
                 └─ else ─────────────── the message comes back

A message whose token is dead is dropped before its work is paid for: the state has timed out, and if it tries again,
another message with another token is on its way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from labkit.control.callbacks import CallbackError, Callbacks, StaleToken, UnknownToken
from labkit.control.payloads import any_json
from labkit.state.idempotency import Busy, Fenced
from labkit.work.heartbeat import LeaseLost
from labkit.work.queues import Queue, QueueError
from labkit.work.tasks import Poison, Stopped, Task

__all__ = ["answering"]

logger = logging.getLogger(__name__)


def answering(callbacks: Callbacks, queue: Queue, step: Callable[[Task], Any]) -> Callable[[Task], Any]:
    """``step`` for a :class:`~labkit.work.worker.Worker` on ``queue`` whose envelopes carry task tokens.

    Success is not told here: that is ``then``, after the result has been recorded. An envelope without a token is
    worked on like any other. A result that JSON cannot hold is a failure of the step.

    >>> Worker(queue, answering(callbacks, queue, step), store=store,      # doctest: +SKIP
    ...        keep_alive=callbacks.keep_alive, then=callbacks.then)
    """
    _, most = queue.redrive()

    def run(task: Task) -> Any:
        try:
            callbacks.fresh(task)
        except UnknownToken as error:
            raise Poison(f"nobody can be answered: {error}") from None
        except StaleToken as error:
            raise _dropped(queue, task, error) from None
        try:
            result = step(task)
            # Here, and not when it is recorded: that would fail where nobody tells the state machine.
            any_json(f"the result of {task.trace_id}", result)
            return result
        except LeaseLost as lost:
            try:  # perhaps its token: a missed heartbeat ends the attempt, and this message with it
                callbacks.fresh(task)
            except StaleToken as error:
                raise _dropped(queue, task, error) from lost
            except CallbackError:
                pass
            raise
        except (Stopped, Busy, Fenced):
            raise  # another worker has the work, or will have it
        except BaseException as error:
            if isinstance(error, Poison) or task.message.receives >= most:
                _told(callbacks, task, error)
            raise

    return run


def _dropped(queue: Queue, task: Task, stale: StaleToken) -> LeaseLost:
    try:
        queue.delete(task.message)
    except QueueError as error:
        logger.info("%s comes back, although nobody waits for it: %s", task.trace_id, error)
    return LeaseLost(f"message {task.message.id} was dropped: {stale}")


def _told(callbacks: Callbacks, task: Task, error: BaseException) -> None:
    try:
        callbacks.give_up(task, error)
    except Exception as trouble:  # noqa: BLE001 - the step's own error is the news; the state times out instead
        logger.warning("the state machine was not told of %s: %s", task.trace_id, trouble)
