"""Post: send, then delete, one batch at a time, and know what may be in both queues.

Two calls are not one. Whatever comes between them (a crash, a lost answer, a delete that fails) leaves a letter in both
queues and loses none, and both copies have the same ``ORIGINAL_MESSAGE_ID``.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence

from labkit.ops.redrive.sends import Sent
from labkit.ops.triage.letters import Letter
from labkit.work.dead_letters import ORIGINAL
from labkit.work.entries import BatchError
from labkit.work.queues import Message, Queue

_RECENT = 10_000  # ids of copies that are recognised when they come back

Send = Callable[[Sequence[tuple[Message, Letter]]], Sent]


class Post:
    """Letters of ``queue`` on their way to the destination called ``name``. Safe to use from many threads.

    ``sent``: letters that were sent and deleted. ``kept``: letters that could not be sent, by why. ``doubles``: ids of
    letters that may be in both queues now.
    """

    def __init__(self, queue: Queue, name: str) -> None:
        self.queue, self.name = queue, name
        self.sent = 0
        self.kept: dict[str, int] = {}
        self._guard = threading.Lock()
        self._recent: deque[str] = deque(maxlen=_RECENT)
        self._kinds: set[tuple[str, str]] = set()
        self._unsure: set[str] = set()

    @property
    def doubles(self) -> list[str]:
        """Ids of letters that may be in both queues now: sent, as far as is known, and not deleted."""
        return sorted(self._unsure)

    def alike(self, letter: Letter) -> bool:
        """Whether letters of the same reason and source were sent."""
        return (letter.reason, letter.source) in self._kinds

    def is_back(self, message: Message) -> bool:
        """Whether this is a copy that we have sent: SQS keeps its id, a worker notes it as the original's."""
        return message.id in self._recent or message.attributes.get(ORIGINAL) in self._recent

    def move(self, messages: Sequence[Message], send: Send) -> list[Message]:
        """Send, then delete what was sent. Returns what is gone from the dead-letter queue."""
        letters = [(message, Letter.of(message)) for message in messages]
        with self._guard:
            self._unsure.update(message.id for message in messages)  # until it is known better, whatever comes
        sent = send(letters)
        gone = [letters[index][0] for index in sorted(sent.done)]
        with self._guard:
            self._recent.extend(sent.done.values())
            self._kinds.update((letters[index][1].reason, letters[index][1].source) for index in sent.done)
            self._unsure.difference_update(letters[index][0].id for index in sent.refused)
            for says in sent.refused.values():
                self._keep(says)
            for says in sent.unsure.values():
                self._keep(f"no answer came ({says})")
        left: set[int] = set()
        try:
            self.queue.delete(*gone)
        except BatchError as error:
            left = set(error.failed)
        gone = [message for index, message in enumerate(gone) if index not in left]
        with self._guard:
            self.sent += len(gone)
            self._unsure.difference_update(message.id for message in gone)
            for _ in left:
                self._keep(f"sent to {self.name}, but not deleted: they are in both queues")
        return gone

    def _keep(self, says: str) -> None:
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
