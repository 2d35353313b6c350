"""Triage: what is in a dead-letter queue, by class of failure, before anybody reads a single message.

A look takes every message into its hands for a moment, since a receive that hides nothing would count the same message
again and again, and then gives all of them back. Nothing is deleted. The receive count of each grows by one: nobody
acts on that in a dead-letter queue, and a queue in which SQS would act on it is refused.

:func:`survey` counts, in constant memory: bodies are read and dropped, receipt handles wait in a file
(:mod:`labkit.ops.triage.holding`). :func:`held` and :func:`piles` are for decisions: some letters are sent on and
deleted, the rest goes back. :func:`move_ended` waits for what SQS moves by itself. To act on what a survey finds, see
:mod:`labkit.ops.redrive`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any

from labkit.ops.triage.holding import HOLD, Hold
from labkit.ops.triage.letters import MOVED, UNKNOWN, Failure, Letter, TriageError
from labkit.ops.triage.surveys import Example, Group, Survey
from labkit.work.entries import passing
from labkit.work.queues import Message, Queue

__all__ = ["MOVED", "UNKNOWN", "Example", "Failure", "Group", "Letter", "Survey", "TriageError"]
__all__ += ["check_looked_at", "held", "move_ended", "piles", "survey"]

_SILENCE = 30.0  # seconds for which SQS may be silent about a move task that is under way
Progress = Callable[[int, int], object]  # done, of how many (as far as known)


def check_looked_at(queue: Queue) -> None:
    """Raise :class:`TriageError` if a look at ``queue`` would do harm: if SQS acts on its receive counts."""
    if queue.redrive()[0] is not None:
        raise TriageError(
            f"{queue.name} has a dead-letter queue of its own: a look would use up a receive of each message."
        )


def survey(
    queue: Queue,
    *,
    threads: int = 8,
    hold: int = HOLD,
    at_most: int | None = None,
    examples: int = 3,
    bodies: bool = False,
    progress: Progress | None = None,
    each: Callable[[Letter], object] | None = None,
) -> Survey:
    """Count what is in ``queue`` by class of failure, reason and source, and give everything back.

    ``hold``: seconds for which the messages are hidden, renewed while the look lasts; a look that is killed hides them
    for no longer than that. ``at_most``: a sample of so many. ``examples``: how many of each
    group are kept, with their bodies if ``bodies`` (task tokens are masked). ``progress`` is called with the number of
    letters seen and the number that the queue held at the beginning, ``each`` with every letter.

    What the survey could not see it says: :attr:`Survey.complete`. A FIFO queue shows no more of a group while some of
    it are held, and SQS holds no more than 120,000 messages at a time. Raises :class:`TriageError`.
    """
    _check_at_most(at_most)
    if not isinstance(examples, int) or not 0 <= examples <= 100:
        raise TriageError(f"a survey keeps 0 to 100 examples of each group; got {examples!r}.")
    check_looked_at(queue)
    found = Survey.of(queue, examples=examples, bodies=bodies)
    of = queue.depth().visible

    def note(batch: list[Message]) -> None:
        for message in batch:
            letter = Letter.of(message)
            found.add(letter, message.body)
            if each:
                each(letter)
        if progress:
            progress(found.total, max(of, found.total))

    with Hold(queue, hold=hold, threads=threads) as look:
        look.drain(note, at_most=at_most)
        there = queue.depth()
        found.seen_of(there, sampled=at_most is not None and found.total >= at_most, capped=look.capped)
    return found


def piles(messages: Iterable[Message]) -> dict[str, list[Message]]:
    """Dead letters by reason, in the order in which the reasons come."""
    found: dict[str, list[Message]] = {}
    for message in messages:
        found.setdefault(Letter.of(message).reason, []).append(message)
    return found


class held:
    """Everything that is visible in ``queue``, in the hands of the ``with`` block and given back after it.

    The block gets a list. A message that it takes off that list is decided and not given back: so a canary takes out
    three of a pile, while all the others stay hidden. Send first, then delete, then remove: whatever ends the block in
    between, an error included, doubles a message at worst and loses none. A message that is deleted and still on the
    list cannot be given back, and is reported. All bodies are in memory; :func:`survey` needs none.

    >>> with held(queue) as messages:      # doctest: +SKIP
    ...     for message in piles(messages)["TimeoutError"][:3]:
    ...         work.send(message.body)
    ...         queue.delete(message)
    ...         messages.remove(message)
    """

    def __init__(self, queue: Queue, *, threads: int = 8, hold: int = HOLD, at_most: int | None = None) -> None:
        _check_at_most(at_most)
        self.messages: list[Message] = []
        self._at_most = at_most
        self._hold = Hold(
            queue, hold=hold, threads=threads, handles=lambda: [message.receipt for message in self.messages]
        )
        check_looked_at(queue)

    def __enter__(self) -> list[Message]:
        self._hold.__enter__()
        try:
            self._hold.drain(self.messages.extend, at_most=self._at_most)  # the batches are kept as they are
        except BaseException as error:
            self._hold.__exit__(type(error), error, error.__traceback__)
            raise
        return self.messages

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        self._hold.__exit__(kind, error, trace)


def move_ended(
    queue: Queue, *, seconds: float = 30.0, each: Callable[[dict[str, Any]], object] | None = None
) -> dict[str, Any]:
    """The newest move task out of ``queue`` once it is over, as ListMessageMoveTasks has it: see its ``Status``.

    ``each`` is given the task at every look. Raises :class:`TriageError` when there is none, or when it still runs
    after ``seconds``, and what boto3 does when SQS refuses to say, or has not answered for half a minute.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    end = time.monotonic() + seconds
    answered = time.monotonic()
    while True:
        try:
            tasks = queue.client.list_message_move_tasks(SourceArn=queue.arn).get("Results", [])
        except (BotoCoreError, ClientError) as error:
            if not passing(error) or time.monotonic() >= min(end, answered + _SILENCE):
                raise
            time.sleep(1)
            continue
        answered = time.monotonic()
        if not tasks:
            raise TriageError(f"no move task was ever started on {queue.name}.")
        task: dict[str, Any] = tasks[0]
        if each:
            each(task)
        if task["Status"] not in ("RUNNING", "CANCELLING"):
            return task
        if time.monotonic() >= end:
            raise TriageError(f"the move task out of {queue.name} is {task['Status']} after {seconds:g} s.")
        time.sleep(0.1)


def _check_at_most(at_most: int | None) -> None:
    if at_most is not None and (not isinstance(at_most, int) or isinstance(at_most, bool) or at_most < 1):
        raise TriageError(f"a look takes at most 1 message or more; at_most is {at_most!r}.")
