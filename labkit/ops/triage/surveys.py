"""Surveys: what a look at a dead-letter queue has found, by class of failure, reason and source. Counts, no messages.

Memory does not grow with the queue: a survey keeps a number, two times and a few examples for each group, and no more
than a thousand groups; a writer that makes up a new reason for each letter fills the group of all the others.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from labkit.ops.terminal import one_line
from labkit.ops.triage.letters import Failure, Letter
from labkit.ops.triage.masking import masked, masked_body
from labkit.ops.triage.remedies import Remedy, remedy
from labkit.work.queues import Depth, Queue

if TYPE_CHECKING:
    import pandas as pd

OTHERS = "other reasons"
_GROUPS = 1_000
_MOST_NAME = 128  # characters of a reason
_MOST_TEXT, _MOST_BODY = 200, 1_000


@dataclass(frozen=True, slots=True)
class Example:
    """One letter of a group, fit to be shown: no task token is in it. ``body`` is "" unless asked for."""

    id: str
    trace_id: str
    text: str
    body: str = ""


@dataclass(slots=True)
class Group:
    """Letters of one class, reason and source. ``oldest``, ``newest``: epoch seconds of their sends; ``ends``: when the
    first of them runs out of retention (in a FIFO queue not before: retention starts anew with the move there, and SQS
    does not say when that was). ``most_receives``: of all receives of one letter, this look's included."""

    failure: Failure
    reason: str
    source: str
    letters: int = 0
    oldest: float = float("inf")
    newest: float = 0.0
    ends: float = float("inf")
    most_receives: int = 0
    examples: list[Example] = field(default_factory=list)

    @property
    def remedy(self) -> Remedy:
        return remedy(self.failure)

    @property
    def origin(self) -> str:
        """The name of the source: of a queue, a rule or a function."""
        return name_of(self.source)


@dataclass
class Survey:
    """Dead letters by reason (``counts``, ``rows()``), and by class of failure, reason and source (``groups()``).

    ``unseen``: letters that the queue held beside those seen, visible or in the hands of others; approximate on AWS.
    """

    counts: Counter[str] = field(default_factory=Counter)
    oldest: dict[str, Letter] = field(default_factory=dict)  # by reason: whose retention ends first
    sources: Counter[str] = field(default_factory=Counter)
    retention: float = float("inf")
    fifo: bool = False
    examples: int = 3
    bodies: bool = False
    unseen: int = 0
    sampled: bool = False
    capped: bool = False
    _groups: dict[tuple[Failure, str, str], Group] = field(default_factory=dict)

    @classmethod
    def of(cls, queue: Queue, *, examples: int, bodies: bool) -> Survey:
        answer = queue.client.get_queue_attributes(QueueUrl=queue.url, AttributeNames=["MessageRetentionPeriod"])
        retention = float(answer.get("Attributes", {}).get("MessageRetentionPeriod", "inf"))
        return cls(retention=retention, fifo=queue.fifo, examples=examples, bodies=bodies)

    def add(self, letter: Letter, body: str = "") -> None:
        """Count ``letter``; ``body`` is read for its trace id if it becomes an example, and dropped."""
        key = (letter.failure, letter.reason[:_MOST_NAME], letter.source)
        if key not in self._groups and len(self._groups) >= _GROUPS:
            key = (letter.failure, OTHERS, "")
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = Group(*key)
        reason, source = key[1:]
        self.counts[reason] += 1
        self.sources[source] += 1
        group.letters += 1
        group.newest = max(group.newest, letter.sent_at)
        group.most_receives = max(group.most_receives, letter.receives)
        if letter.sent_at < group.oldest:
            group.oldest = letter.sent_at
            group.ends = letter.sent_at + self.retention
        known = self.oldest.get(reason)
        if known is None or letter.sent_at < known.sent_at:
            self.oldest[reason] = letter
        if len(group.examples) < self.examples:
            text = masked(letter.text, _MOST_TEXT)
            shown = masked_body(body, _MOST_BODY) if self.bodies else ""
            group.examples.append(Example(letter.id, trace_of(body), text, shown))

    def seen_of(self, there: Depth, *, sampled: bool, capped: bool) -> None:
        """Note what the queue holds at the end of the look, while all that was seen is in flight."""
        self.sampled, self.capped = sampled, capped
        self.unseen = there.visible + there.delayed + max(0, there.in_flight - self.total)

    @property
    def total(self) -> int:
        return self.counts.total()

    @property
    def complete(self) -> bool:
        """Whether the look saw every letter that was there."""
        return not self.unseen and not self.capped

    def rows(self) -> list[tuple[str, int]]:
        """Reason and count, the most frequent first; equals by name."""
        return sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))

    def names(self) -> list[str]:
        """The classes and reasons that there are, sorted: what a choice of letters can name."""
        return sorted({*map(str, self.by_class()), *self.counts})

    def groups(self) -> list[Group]:
        """The groups, largest first; equals by name."""
        return sorted(self._groups.values(), key=lambda one: (-one.letters, one.failure, one.reason, one.source))

    def by_class(self) -> Counter[Failure]:
        found: Counter[Failure] = Counter()
        for group in self._groups.values():
            found[group.failure] += group.letters
        return found

    def table(self) -> list[dict[str, Any]]:
        """A row for each group, for a table: what it is, how many, and what to do."""
        return [
            {
                "class": str(group.failure),
                "reason": group.reason,
                "source": group.origin,
                "letters": group.letters,
                "redrive": group.remedy.redrive,
                "what to do": group.remedy.what,
            }
            for group in self.groups()
        ]

    def frame(self) -> pd.DataFrame:
        """The groups as a frame, with the times of the oldest and newest letter and the end of retention (UTC)."""
        import pandas as pd

        rows = [
            {
                "class": str(group.failure),
                "reason": group.reason,
                "source": group.origin,
                "letters": group.letters,
                "oldest": moment(group.oldest),
                "newest": moment(group.newest),
                "ends": moment(group.ends),
                "receives": group.most_receives,
                "redrive": group.remedy.redrive,
            }
            for group in self.groups()
        ]
        columns = ["class", "reason", "source", "letters", "oldest", "newest", "ends", "receives", "redrive"]
        return pd.DataFrame(rows, columns=columns)

    def matrix(self) -> dict[str, dict[str, float]]:
        """Letters by class and source, as :func:`labkit.teach.plots.bars` takes them; the largest class first."""
        found: dict[str, dict[str, float]] = {}
        for failure, _ in sorted(self.by_class().items(), key=lambda item: (-item[1], item[0])):
            of = [group for group in self.groups() if group.failure is failure]
            row = found.setdefault(str(failure), {})
            for group in of:
                name = group.origin or "no source given"
                row[name] = row.get(name, 0.0) + group.letters
        return found


def moment(seconds: float) -> datetime | None:
    """Epoch seconds as a time of UTC; None where there is none (infinite, or beyond what a date can be)."""
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def name_of(arn: str) -> str:
    """The last part of an ARN: of ``arn:aws:events:…:rule/fleet/to-work`` it is ``to-work``."""
    resource = arn.split(":", 5)[-1]
    if arn.count(":") >= 6:  # arn:aws:lambda:region:account:function:name:version
        resource = arn.split(":")[6]
    return resource.rsplit("/", 1)[-1]


def trace_of(body: str) -> str:
    """The trace id that a body names: an envelope's, in an event or as it is, or in a function's record; "" if none."""
    try:
        held: Any = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    for path in ((), ("detail",), ("requestPayload",), ("requestPayload", "detail")):
        inner = held
        for step in path:
            inner = inner.get(step) if isinstance(inner, Mapping) else None
        if isinstance(inner, Mapping) and isinstance(found := inner.get("trace_id"), str):
            return one_line(found, _MOST_NAME)
    return ""
