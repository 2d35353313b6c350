"""What a fleet's steps have left behind, and the account of it: sent, done, dead, lost, duplicated."""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field

from labkit.errors import LabError

__all__ = ["Account", "Ledger", "TaxonomyError"]


class TaxonomyError(LabError):
    """Something that was waited for did not come; the sentence says what."""


@dataclass(frozen=True)
class Account:
    """What became of everything that was sent. ``runs`` counts beginnings of steps, which is what is paid for."""

    sent: int
    done: int  # has a line in the ledger
    dead: int  # is in a dead-letter queue
    lost: int  # not in the ledger, and in no queue
    duplicated: int  # further lines in the ledger
    runs: int


@dataclass
class Ledger:
    """The outside world: which steps were begun, and which were done, by trace id. Threads share it.

    Nothing here prevents a second line. That there is none is what the store, the lease and the fence are for.
    """

    runs: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    events: Counter[str] = field(default_factory=Counter)  # how deliveries to the worker ended, by kind
    _guard: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def begins(self, trace_id: str) -> None:
        self._write(self.runs, trace_id)

    def ends(self, trace_id: str) -> None:
        self._write(self.done, trace_id)

    def hears(self, kind: str) -> None:
        self._write(self.events, kind)

    def _write(self, book: Counter[str], line: str) -> None:
        with self._guard:
            book[line] += 1
