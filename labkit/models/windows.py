"""How long must the record of a piece of work stand? As long as anything can still deliver that work again.

The parts, for one event that goes through a bus and a standard queue::

    |-- event age --|---- retention ----|                                 the ordinary road
                    |--------- dead-letter retention --------|            counted from the send, not from the move
                                                             |-- retention --|     a redrive is a new send
    |------------------------- replay horizon ------------------------|-- the same road again

A record that is gone while one of them is under way is a duplicate that somebody approved. Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass

from labkit.facts import facts
from labkit.models._input import number


@dataclass(frozen=True)
class Window:
    """How long the same work can come again, in seconds, from its first publication.

    ``event_age``: how long the bus retries a target. ``retention``: of the work queue. ``dead_letter``: retention of
    its dead-letter queue, 0 when nothing is ever redriven. ``replay``: how far back an archive may be replayed.
    Defaults are AWS's own for a bus and a queue on which nobody set anything. Raises
    :class:`~labkit.models.ModelError` for what is no such time.
    """

    event_age: float = float(facts("events.retry.max_age"))
    retention: float = float(facts("sqs.retention.default"))
    dead_letter: float = 0.0
    replay: float = 0.0

    def __post_init__(self) -> None:
        for name in ("event_age", "retention", "dead_letter", "replay"):
            number(name, getattr(self, name), unit="s")

    @property
    def needed(self) -> float:
        """Seconds for which a record must stand; a longer window costs storage, a shorter one costs a duplicate."""
        once = self.event_age + max(self.retention, self.dead_letter)
        redriven = self.retention if self.dead_letter else 0.0
        return once + redriven + self.replay
