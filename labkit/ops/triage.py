"""Triage: what is in a dead-letter queue, by class of failure, before anybody reads a single message.

A look takes every message into its hands for a moment, since a receive that hides nothing would count the same message
again and again, and then gives all of them back. Nothing is deleted. The receive count of each grows by one: nobody
acts on that in a dead-letter queue, and a queue in which SQS would act on it is refused.

:func:`survey` counts. :class:`held` and :func:`piles` are for decisions: some letters are sent on and deleted, the rest
goes back. :func:`move_ended` waits for what SQS moves by itself.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from labkit.errors import LabError
from labkit.work.dead_letters import CODE, SOURCE
from labkit.work.entries import BatchError
from labkit.work.queues import Message, Queue

MOVED = "moved by SQS"  # after too many receives; the reason is in some worker's log
UNKNOWN = "no reason given"


class TriageError(LabError):
    """A look at a dead-letter queue could not be completed; the sentence says what is still hidden."""


@dataclass(frozen=True)
class Letter:
    """What triage keeps of one dead letter: why it is there, where it came from, and its age. Not its body."""

    id: str
    reason: str
    source: str
    sent_at: float  # epoch seconds of the first send, from which retention counts on a standard queue
    receives: int

    @classmethod
    def of(cls, message: Message) -> Letter:
        code, source = _why(message)
        return cls(message.id, code, source, message.sent_at, message.receives)


@dataclass
class Survey:
    """Dead letters by reason."""

    counts: Counter[str] = field(default_factory=Counter)
    oldest: dict[str, Letter] = field(default_factory=dict)  # by reason: whose retention ends first
    sources: Counter[str] = field(default_factory=Counter)

    def add(self, letter: Letter) -> None:
        self.counts[letter.reason] += 1
        self.sources[letter.source] += 1
        known = self.oldest.get(letter.reason)
        if known is None or letter.sent_at < known.sent_at:
            self.oldest[letter.reason] = letter

    @property
    def total(self) -> int:
        return self.counts.total()

    def rows(self) -> list[tuple[str, int]]:
        """Reason and count, the most frequent first; equals by name."""
        return sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))


def survey(queue: Queue, *, threads: int = 8, hold: int = 300, at_most: int | None = None) -> Survey:
    """Count what is in ``queue`` by reason and give everything back.

    ``hold``: seconds for which the messages are hidden meanwhile; a look that takes longer would count some twice, and
    is refused. ``at_most``: a sample of so many (a few more may be taken). Raises :class:`TriageError`.
    """
    found = Survey()
    with held(queue, threads=threads, hold=hold, at_most=at_most) as messages:
        for message in messages:
            found.add(Letter.of(message))
    return found


def piles(messages: Iterable[Message]) -> dict[str, list[Message]]:
    """Dead letters by reason, in the order in which the reasons come."""
    found: dict[str, list[Message]] = {}
    for message in messages:
        found.setdefault(_why(message)[0], []).append(message)
    return found


class held:
    """Everything that is visible in ``queue``, in the hands of the ``with`` block and given back after it.

    The block gets a list. A message that it takes off that list is decided and not given back: so a canary takes out
    three of a pile, while all the others stay hidden. Send first, then delete, then remove: whatever ends the block in
    between, an error included, doubles a message at worst and loses none. A message that is deleted and still on the
    list cannot be given back, and is reported.

    >>> with held(queue) as messages:      # doctest: +SKIP
    ...     for message in piles(messages)["TimeoutError"][:3]:
    ...         work.send(message.body)
    ...         queue.delete(message)
    ...         messages.remove(message)
    """

    def __init__(self, queue: Queue, *, threads: int = 8, hold: int = 300, at_most: int | None = None) -> None:
        if not 1 <= threads <= 64 or hold < 1 or (at_most is not None and at_most < 1):
            raise TriageError(
                f"a look has 1 to 64 threads and holds for 1 s or more; got {threads}, {hold}, at most {at_most}."
            )
        if queue.redrive()[0] is not None:
            raise TriageError(
                f"{queue.name} has a dead-letter queue of its own: a look would use up a receive of each message."
            )
        self.queue, self.threads, self.hold, self.at_most = queue, threads, hold, at_most
        self.messages: list[Message] = []

    def __enter__(self) -> list[Message]:
        self._started = time.monotonic()
        try:
            with ThreadPoolExecutor(self.threads, thread_name_prefix="labkit-triage") as pool:
                list(pool.map(self._take, range(self.threads)))
            self._in_time()
        except BaseException:
            self._give_back()
            raise
        return self.messages

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._give_back()
        if kind is None:
            self._in_time()

    def _take(self, _: int) -> None:
        while (self.at_most is None or len(self.messages) < self.at_most) and not self._too_long():
            # One empty answer is not the end: a short poll asks only some of the servers. A long one asks all of them.
            batch = self.queue.receive(visibility=self.hold) or self.queue.receive(wait=1, visibility=self.hold)
            if not batch:
                return
            self.messages.extend(batch)

    def _too_long(self) -> bool:
        """Whether the first messages are visible again: they would be taken, and counted, once more."""
        return time.monotonic() - self._started >= self.hold

    def _in_time(self) -> None:
        if self._too_long():
            raise TriageError(f"the look took longer than the {self.hold} s for which it holds: hold them longer.")

    def _give_back(self) -> None:
        def back(part: list[Message]) -> BatchError | None:
            try:
                self.queue.give_back(*part)
            except BatchError as error:
                return error
            return None

        with ThreadPoolExecutor(self.threads, thread_name_prefix="labkit-triage") as pool:
            troubles = [error for error in pool.map(back, _parts(self.messages, 100)) if error]
        hidden = sum(len(error.failed) for error in troubles)
        if hidden:
            raise TriageError(
                f"{hidden} messages of {self.queue.name} stay hidden for {self.hold} s, none is lost: {troubles[0]}"
            )


def move_ended(queue: Queue, *, seconds: float = 30.0) -> dict[str, Any]:
    """The newest move task out of ``queue`` once it is over, as ListMessageMoveTasks has it: see its ``Status``.

    Raises :class:`TriageError` when there is none, or when it still runs after ``seconds``.
    """
    end = time.monotonic() + seconds
    while True:
        tasks = queue.client.list_message_move_tasks(SourceArn=queue.arn).get("Results", [])
        if not tasks:
            raise TriageError(f"no move task was ever started on {queue.name}.")
        task: dict[str, Any] = tasks[0]
        if task["Status"] not in ("RUNNING", "CANCELLING"):
            return task
        if time.monotonic() >= end:
            raise TriageError(f"the move task out of {queue.name} is {task['Status']} after {seconds:g} s.")
        time.sleep(0.1)


def _parts(messages: list[Message], size: int) -> Iterator[list[Message]]:
    return (messages[start : start + size] for start in range(0, len(messages), size))


def _why(message: Message) -> tuple[str, str]:
    """The reason and the source of a dead letter, from wherever it says so."""
    attributes: Mapping[str, str | bytes] = message.attributes
    sources: Iterable[str] = (
        str(attributes.get(SOURCE, "")),
        str(attributes.get("RULE_ARN", "")),
        message.system.get("DeadLetterQueueSourceArn", ""),
    )
    source = next((arn for arn in sources if arn), "")
    for name in (CODE, "ErrorCode"):  # a worker's and a rule's; a function's own dead-letter queue
        if name in attributes:
            return str(attributes[name]), source
    if message.system.get("DeadLetterQueueSourceArn"):
        return MOVED, source
    try:  # a bus of the second version, a function's destination: a record in the body, and no attributes
        body = json.loads(message.body)
    except ValueError:
        return UNKNOWN, source
    if isinstance(body, dict):
        context = body.get("requestContext")
        code = body.get("errorCode") or (context.get("condition") if isinstance(context, dict) else None)
        if isinstance(code, str):
            return code, source
    return UNKNOWN, source
