"""What one broker made of the script: the script itself, what ran, and the figures that can be compared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labkit.models._input import ModelError, number, whole
from labkit.models.clouds.vocabulary import Event

__all__ = ["SESSIONS", "Completion", "Report", "Script"]

SESSIONS = ("calm", "dies", "slow", "poison", "twice", "night")


@dataclass(frozen=True)
class Script:
    """What is published and what goes wrong (see :mod:`labkit.models.clouds.scenario`). Times in seconds.

    A session begins ``apart`` after the one before, its steps ``gap`` after each other. ``batch``: messages that a
    worker takes at once. ``work``: of one step; ``slow``: of the slow one. ``again``: until the second publication. The
    consumer is down from ``down_at`` for ``down``; ``night`` begins half an hour into that, or half-way if sooner.
    """

    sessions: Sequence[str] = SESSIONS
    steps: int = 4
    batch: int = 10
    apart: float = 600.0
    gap: float = 0.5
    work: float = 2.0
    slow: float = 90.0
    again: float = 20.0
    down_at: float = 3600.0
    down: float = 8 * 3600.0

    def __post_init__(self) -> None:
        unknown = sorted(set(self.sessions) - set(SESSIONS))
        if unknown:
            raise ModelError(f"sessions must be among {', '.join(SESSIONS)}; got {', '.join(unknown)}.")
        whole("steps", self.steps, low=2)
        whole("batch", self.batch)
        for name in ("apart", "gap", "work", "slow", "again", "down_at", "down"):
            number(name, getattr(self, name), unit="s")


@dataclass(frozen=True)
class Completion:
    """A step ran to its end, and its side effects happened. ``id``: the broker's id of the message."""

    at: float
    body: str
    id: str
    worker: str


@dataclass(frozen=True)
class Report:
    """What one broker made of the script. Properties with names of steps are tuples; times in seconds."""

    script: Script
    history: tuple[Event, ...]
    completions: tuple[Completion, ...]
    left: tuple[str, ...]
    published: tuple[str, ...]

    @property
    def done(self) -> tuple[str, ...]:
        """Steps that ran to their end, in the order of the first time."""
        return tuple(dict.fromkeys(c.body for c in self.completions))

    @property
    def repeats(self) -> int:
        """Runs beyond the first of a step: side effects that happened again."""
        return len(self.completions) - len(self.done)

    @property
    def after_ack(self) -> int:
        """Deliveries of a message that had been acknowledged, with success."""
        acked: set[int] = set()
        count = 0
        for event in self.history:
            if event.what == "acked":
                acked.add(event.message)
            count += event.what == "delivered" and event.message in acked
        return count

    def effects(self, key: str = "") -> int:
        """Side effects of a consumer that remembers each ``key``: ``id`` (the broker's), ``step``, or nothing."""
        keys: dict[str, Callable[[Completion], object]] = {"id": lambda c: (c.body, c.id), "step": lambda c: c.body}
        if key not in {"", *keys}:
            raise ModelError(f"key must be 'id', 'step' or empty; got {key!r}.")
        return len(set(map(keys[key], self.completions))) if key else len(self.completions)

    @property
    def dead(self) -> tuple[str, ...]:
        """Steps in the dead-letter place, in order of arrival."""
        return tuple(dict.fromkeys(e.body for e in self.history if e.what == "dead-lettered"))

    @property
    def lost(self) -> tuple[str, ...]:
        """Steps that are nowhere: never done, not dead-lettered, not waiting."""
        kept = {*self.done, *self.dead, *self.left}
        return tuple(body for body in self.published if body not in kept)

    @property
    def out_of_order(self) -> tuple[str, ...]:
        """Sessions whose steps, as far as they were done, were first done in another order than published."""
        place = {body: n for n, body in enumerate(self.done)}
        found = []
        for session in self.script.sessions:
            places = [place[b] for b in self.published if b.split("/")[0] == session and b in place]
            if places != sorted(places):
                found.append(session)
        return tuple(found)

    @property
    def noticed(self) -> float | None:
        """From the first failure of the poison step to its dead letter: when an alarm on dead letters can ring."""
        failed = next((e.at for e in self.history if e.body == "poison/2" and e.what in ("lapsed", "nacked")), None)
        dead = next((e.at for e in self.history if e.body == "poison/2" and e.what == "dead-lettered"), None)
        return None if failed is None or dead is None else dead - failed

    @property
    def recovered(self) -> float | None:
        """From the consumer's return to the last first run of ``night``; None if a step of it never ran."""
        first = {c.body: c.at for c in reversed(self.completions)}
        night = [body for body in self.published if body.startswith("night/")]
        if not night or any(body not in first for body in night):
            return None
        return max(first[body] for body in night) - (self.script.down_at + self.script.down)

    def row(self) -> dict[str, object]:
        """One row of the comparison."""
        return {
            "done": len(self.done), "run again": self.repeats, "delivered after its ack": self.after_ack,
            "lost": len(self.lost), "dead letters": len(self.dead),
            "out of order": ", ".join(self.out_of_order) or None,
            "dead letter after (s)": self.noticed, "done after the outage (s)": self.recovered,
            "remember by": "step" if self.effects("id") > self.effects("step") else "id or step",
        }  # fmt: skip
