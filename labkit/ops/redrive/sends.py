"""Sends: what a destination of dead letters must tell, of each letter and of its canaries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from labkit.ops.triage.letters import Letter
from labkit.work.queues import Message, Queue


class Fate(Enum):
    """What became of the canaries, as far as the destination shows it."""

    WAITING = "not decided"
    GONE = "handled, unless they are in a dead-letter queue"
    FAILED = "failed"


@dataclass
class Sent:
    """The outcome of one send, by the index of the letter.

    ``done``: the id that the copy has (the letter may be deleted). ``refused``: why (nothing was sent). ``unsure``: no
    answer came (it may have been sent: the letter stays, and if it was, there is a double now).
    """

    done: dict[int, str] = field(default_factory=dict)
    refused: dict[int, str] = field(default_factory=dict)
    unsure: dict[int, str] = field(default_factory=dict)


class Destination(Protocol):
    """What letters can be sent back to."""

    name: str
    arn: str

    def send(self, letters: Sequence[tuple[Message, Letter]]) -> Sent: ...
    def try_out(self, letters: Sequence[tuple[Message, Letter]]) -> Sent:
        """Send canaries, so that their fate can be seen."""

    def fate(self) -> tuple[Fate, str]:
        """What became of the canaries that were tried out last, and a sentence."""

    def dead_letters(self) -> Queue | None:
        """The queue that a canary comes back to if it fails, where the destination has one."""
