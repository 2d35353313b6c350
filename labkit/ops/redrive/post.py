"""Post: send, then delete, one batch at a time, and know what may be in both queues.

Two calls are not one. Whatever comes between them (a crash, a lost answer, a delete that fails) leaves a letter in both
queues and loses none, and both copies have the same ``ORIGINAL_MESSAGE_ID``.

:class:`Destination` is what letters are sent to (:mod:`labkit.ops.redrive.destinations` has all kinds), :class:`Sent`
what it says of each, :class:`Post` what follows from that.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from labkit.facts import facts
from labkit.ops.triage.letters import Letter
from labkit.work.dead_letters import LAST, ORIGINAL
from labkit.work.entries import BatchError
from labkit.work.queues import Message, Queue

_RECENT = 10_000  # ids of copies that are recognised when they come back
_WHYS = 100  # what became of letters, kept apart
_IN_VAIN = 100  # letters in a row that the destination did not take: it takes none


class Fate(Enum):
    """What became of the canaries, as far as the destination shows it."""

    WAITING = "not decided"
    GONE = "handled, unless they are in a dead-letter queue"
    FAILED = "failed"


@dataclass
class Sent:
    """The outcome of one send, by the index of the letter.

    ``done``: the id that the copy has (the letter may be deleted). ``unfit``: why this letter cannot be sent there at
    all. ``refused``: why the destination did not take it (nothing was sent). ``unsure``: no answer came (it may have
    been sent: the letter stays, and if it was, there is a double now).
    """

    done: dict[int, str] = field(default_factory=dict)
    unfit: dict[int, str] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    unsure: dict[int, str] = field(default_factory=dict)


class Destination(Protocol):
    """What letters can be sent back to."""

    name: str
    arn: str

    def send(self, letters: Sequence[tuple[Message, Letter]]) -> Sent: ...
    def ready(self) -> None:
        """Raise :class:`LabError` if canaries could not be watched. Called before they are sent; sends nothing."""

    def try_out(self, letters: Sequence[tuple[Message, Letter]]) -> Sent:
        """Send canaries, so that their fate can be seen."""

    def fate(self) -> tuple[Fate, str]:
        """What became of the canaries that were tried out last, and a sentence."""

    def dead_letters(self) -> Queue | None:
        """The queue that a canary comes back to if it fails, where the destination has one."""


Send = Callable[[Sequence[tuple[Message, Letter]]], Sent]


class Post:
    """Letters of ``queue`` on their way to the destination called ``name``. Safe to use from many threads.

    ``sent``: letters that were sent and deleted. ``kept``: how many were not, by what became of them ("could not be
    sent to …"). ``doubles``: ids of letters that may be in both queues now.
    """

    def __init__(self, queue: Queue, name: str) -> None:
        self.queue, self.name = queue, name
        self.sent = 0
        self.kept: dict[str, int] = {}
        self._failed = 0  # letters in a row that the destination did not take
        self._guard = threading.Lock()
        self._recent: dict[str, str] = {}  # ids of copies and their originals, in the order in which they were sent
        self._originals: Counter[str] = Counter()  # of those
        self._kinds: set[tuple[str, str]] = set()
        self._unsure: set[str] = set()

    @property
    def in_vain(self) -> bool:
        """Whether nothing gets through: the destination has taken none of so many letters in a row."""
        return self._failed >= _IN_VAIN

    @property
    def doubles(self) -> list[str]:
        """Ids of letters that may be in both queues now: sent, as far as is known, and not deleted."""
        return sorted(self._unsure)

    def alike(self, letter: Letter) -> bool:
        """Whether letters of the same reason and source were sent."""
        return (letter.reason, letter.source) in self._kinds

    def is_back(self, message: Message) -> bool:
        """Whether this is a copy that we have sent: SQS keeps its id, a worker that buries it notes it.

        A letter that was a double before has the same original, and is not back. Only where a worker had no room for
        its note, the original has to do, and such a double stops the redrive, too.
        """
        noted = message.attributes
        full = LAST not in noted and len(noted) >= int(facts("sqs.message.max_attributes"))
        with self._guard:
            if any(id in self._recent for id in (message.id, noted.get(LAST), noted.get(ORIGINAL))):
                return True
            return full and noted.get(ORIGINAL) in self._originals

    def move(self, messages: Sequence[Message], send: Send) -> list[Message]:
        """Send, then delete what was sent. Returns what is gone from the dead-letter queue."""
        letters = [(message, Letter.of(message)) for message in messages]
        with self._guard:
            self._unsure.update(message.id for message in messages)  # until it is known better, whatever comes
        sent = send(letters)
        gone = [letters[index][0] for index in sorted(sent.done)]
        with self._guard:
            for index, copy in sent.done.items():
                self._recent[copy] = letters[index][1].original
                self._originals[self._recent[copy]] += 1
            while len(self._recent) > _RECENT:
                forgotten = self._recent.pop(next(iter(self._recent)))
                self._originals[forgotten] -= 1
                if not self._originals[forgotten]:
                    del self._originals[forgotten]
            self._kinds.update((letters[index][1].reason, letters[index][1].source) for index in sent.done)
            self._failed = 0 if sent.done else self._failed + len(sent.refused) + len(sent.unsure)
            for not_sent in (sent.unfit, sent.refused):
                self._unsure.difference_update(letters[index][0].id for index in not_sent)
                for says in not_sent.values():
                    self._keep(f"could not be sent to {self.name}: {says}")
            for says in sent.unsure.values():
                self._keep(f"may have got to {self.name} and may be in both queues, no answer came: {says}")
        left: dict[int, tuple[str, str]] = {}
        try:
            self.queue.delete(*gone)
        except BatchError as error:
            left = error.failed
        gone = [message for index, message in enumerate(gone) if index not in left]
        with self._guard:
            self.sent += len(gone)
            self._unsure.difference_update(message.id for message in gone)
            for code, _ in left.values():
                self._keep(f"got to {self.name} and may be in both queues, the delete failed: {code}")
        return gone

    def _keep(self, says: str) -> None:
        if says not in self.kept and len(self.kept) >= _WHYS:
            says = f"did not get to {self.name}, for other reasons"
        self.kept[says] = self.kept.get(says, 0) + 1


class Grown:
    """Whether the destination's own dead-letter queue fills meanwhile: by a tenth of what was sent, and by three."""

    def __init__(self, dead: Queue | None) -> None:
        self._dead = dead
        self._before = dead.depth().total if dead else 0
        self._next = 0

    def says(self, sent: int) -> str:
        if self._dead is None or sent < self._next:
            return ""
        self._next = sent + 100
        grown = self._dead.depth().total - self._before
        return f"{self._dead.name} has {grown} more letters than before" if grown >= max(3, sent / 10) else ""
