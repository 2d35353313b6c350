"""Lanes: dead letters on their way back to one destination, a few first. A small state machine.

    PLANNED → CANARY → WATCH → REST → DONE
                  ↘       ↘      ↘
                        STOPPED

``CANARY``: a few letters are sent, then deleted. ``WATCH``: everything else in the dead-letter queue is hidden, so that
whatever appears there is new; the canaries are well when the destination has handled them and none of them is back
(:mod:`labkit.ops.redrive.looks`).
``REST``: the others follow, ten a call, and a letter that comes back stops them, too. ``STOPPED``: nothing else is
moved; everything that was in hand is visible in the dead-letter queue again.

Each letter is **sent, then deleted**. A crash in between doubles it, and loses none: the copies share an
``ORIGINAL_MESSAGE_ID``. A letter whose send had no answer is not deleted, for the same reason.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from enum import StrEnum

from labkit.ops.redrive import looks, moves
from labkit.ops.redrive.care import Care
from labkit.ops.redrive.post import Destination, Fate, Grown, Post
from labkit.ops.triage import check_looked_at
from labkit.ops.triage.draining import Batch
from labkit.ops.triage.holding import Hold
from labkit.ops.triage.letters import Letter, TriageError, counted
from labkit.work.queues import Message, Queue

_MARGIN = 15.0  # seconds for which a letter must still be hidden when it is sent: it is deleted within them
_LOOK = 0.2  # seconds between two looks at the destination


class Step(StrEnum):
    PLANNED = "planned"
    CANARY = "canary"
    WATCH = "watch"
    REST = "rest"
    DONE = "done"
    STOPPED = "stopped"


NEXT: dict[Step, frozenset[Step]] = {
    Step.PLANNED: frozenset({Step.CANARY, Step.REST, Step.STOPPED}),
    Step.CANARY: frozenset({Step.WATCH, Step.DONE, Step.STOPPED}),
    Step.WATCH: frozenset({Step.REST, Step.STOPPED}),
    Step.REST: frozenset({Step.DONE, Step.STOPPED}),
    Step.DONE: frozenset(),
    Step.STOPPED: frozenset(),
}


@dataclass
class Lane:
    """Letters of ``queue`` that ``chosen`` picks, on their way to ``to``; ``letters`` is how many there should be.

    ``unseen``: how many more may be there, in a FIFO queue, which shows the letters of a group a few at a time.
    ``newest``: when the last of the letters that were looked at was sent (epoch seconds): one that is like the canaries
    and newer than that came of them, or of the same fault.
    ``by_move``: whether a move task of SQS takes the rest. ``moved``: how many it has; ``uncounted``: perhaps more.
    ``says``: how it ended, in a sentence. ``trail``: the steps taken.
    """

    queue: Queue
    to: Destination
    chosen: Callable[[Letter], bool]
    letters: int
    unseen: int = 0
    newest: float = math.inf
    by_move: bool = False
    moved: int = 0
    uncounted: bool = False
    says: str = ""
    trail: list[Step] = field(default_factory=lambda: [Step.PLANNED])

    def __post_init__(self) -> None:
        self.post = Post(self.queue, self.to.name)
        self._guard = threading.Lock()
        self._beside: Queue | None = None  # the destination's dead-letter queue, if it is another one
        self._back = ""
        self.others = False  # whether letters have come that a move task would take along to the wrong place
        self._claimed = 0

    @property
    def step(self) -> Step:
        return self.trail[-1]

    @property
    def sent(self) -> int:
        """Letters that are at the destination and no longer here."""
        return self.post.sent + self.moved

    @property
    def doubles(self) -> list[str]:
        """Ids of letters that may be in both queues now."""
        return self.post.doubles

    def enter(self, step: Step, says: str = "") -> None:
        """Go on to ``step``. Raises :class:`TriageError` for one that does not follow: a fault of this module."""
        if step not in NEXT[self.step]:
            raise TriageError(f"a redrive that is {self.step} cannot become {step}.")
        self.trail.append(step)
        self.says = says or self.says

    def fail(self, says: str) -> None:
        """Stop because of an error; what was said already stays."""
        if NEXT[self.step]:
            self.enter(Step.STOPPED, says)
        else:
            self.says = f"{self.says}; {says}"

    def run(self, care: Care) -> None:
        """Take all steps. What the lane says at the end is in :attr:`step` and :attr:`says`; errors are raised, with
        everything that was in hand given back, and leave the lane where it was."""
        dead = self.to.dead_letters()
        self._beside = dead if dead is not None and dead.arn != self.queue.arn else None
        if care.canary:
            self._try_out(care)
        if self.step in (Step.PLANNED, Step.WATCH):
            self.enter(Step.REST)
            if self.by_move and not self.others:
                moves.rest(self, care)
            else:
                self._rest(care)

    def _try_out(self, care: Care) -> None:
        """CANARY and WATCH: returns in WATCH if the canaries are well, else in DONE (nothing to send) or STOPPED."""
        self.enter(Step.CANARY)
        if self._beside:
            check_looked_at(self._beside)
        there = [(each, each.depth().total) for each in (self.queue, self._beside) if each and each.fifo]
        with ExitStack() as stack:
            hold = stack.enter_context(Hold(self.queue, hold=care.hold, threads=1, clock=care.clock))
            canaries = self._send_canaries(hold, care)
            if self.step is not Step.CANARY:
                return
            self.enter(Step.WATCH)
            holds = [hold]
            if self._beside:
                holds.append(stack.enter_context(Hold(self._beside, hold=care.hold, threads=1, clock=care.clock)))
            left = [(queue, total - len(canaries) * (queue is self.queue)) for queue, total in there]
            self._watch(canaries, holds, left, care)

    def _send_canaries(self, hold: Hold, care: Care) -> list[Message]:
        """Take letters until there are enough canaries, send them, delete them; the others are kept hidden."""
        picked = Batch()
        picked.until = float("inf")
        try:
            while len(picked) < care.canary and (batch := hold.receive()):
                wanted = [each for each in batch if self.chosen(Letter.of(each))]
                self.others = self.others or len(wanted) < len(batch)
                mine = wanted[: care.canary - len(picked)]
                picked += mine
                picked.until = min(picked.until, batch.until)
                _drop(batch, mine)
                hold.keep(batch)
            if not picked:
                self.enter(Step.DONE, self.all_sent())
                return []
            self.to.ready()
            hold.check(picked, min(_MARGIN, care.hold / 3))
            gone = self.post.move(picked, self.to.try_out)
            _drop(picked, gone)
        finally:
            hold.keep(picked)
        if picked:
            self.enter(Step.STOPPED, f"a canary {next(iter(self.post.kept), 'was not sent')}")
        self._tell(care)
        return gone

    def _watch(
        self, canaries: Sequence[Message], holds: Sequence[Hold], left: Sequence[tuple[Queue, int]], care: Care
    ) -> None:
        """Return if the canaries are well, enter STOPPED if not. ``left``: how many letters FIFO queues should hold."""
        end = care.clock() + care.within
        gone_since, hidden = None, False
        for number in itertools.count():
            if care.during:
                care.during()
            # The destination first: what leaves it for a dead-letter queue is there before it is gone from here.
            fate, says = self.to.fate()
            if care.handled and fate is not Fate.FAILED:
                fate = Fate.GONE if care.handled(canaries) else Fate.WAITING
            now = care.clock()
            gone_since = (now if gone_since is None else gone_since) if fate is Fate.GONE else None
            settled = gone_since is not None and now - gone_since >= care.settle
            sure = settled or (number > 0 and not hidden)
            if back := looks.look(self, holds, new=hidden, sure=sure, over=lambda: care.clock() >= end):
                self.enter(Step.STOPPED, back)
                return
            hidden = hidden or sure
            if fate is Fate.FAILED:
                self.enter(Step.STOPPED, f"the canary failed: {says}")
                return
            if settled:
                if says := self._behind(left):
                    self.enter(Step.STOPPED, says)
                return
            if now >= end:
                self.enter(Step.STOPPED, f"after {care.within:g} s it is not known whether the canary is well: {says}")
                return
            care.sleep(_LOOK)

    def _behind(self, left: Sequence[tuple[Queue, int]]) -> str:
        """A sentence if a FIFO queue holds more than it should: a canary that is back, behind others of its group."""
        for queue, count in left:
            if (more := queue.depth().total - count) > 0:
                return f"{self.to.name} may still fail: {more} letters have come to {queue.name}, canaries perhaps"
        return ""

    def _rest(self, care: Care) -> None:
        """REST: send and delete what is left, up to the number of letters that was planned."""
        threads = 1 if self.queue.fifo else care.threads
        self._claimed = self.sent
        grown = Grown(self._beside)
        with Hold(self.queue, hold=care.hold, threads=threads, clock=care.clock) as hold:

            def decide(batch: Batch) -> None:
                if mine := self._mine(batch, grown):
                    hold.check(batch, min(_MARGIN, care.hold / 3))
                    _drop(batch, self.post.move(mine, self.to.send))
                    self._tell(care)

            hold.drain(decide, together=threads > 1, enough=self._enough)
        if self._back:
            self.enter(Step.STOPPED, self._back)
        elif self.post.kept:
            why, count = next(iter(self.post.kept.items()))
            self.enter(Step.STOPPED, f"{counted(count)} {why}")
        else:
            self.enter(Step.DONE, self.all_sent())

    def _enough(self) -> bool:
        return bool(self._back) or self._claimed >= self.letters + self.unseen or self.post.in_vain

    def all_sent(self) -> str:
        """A sentence: how many were sent, and how many of the plan were not there any more."""
        missing = self.letters - self.sent
        says = f"sent to {self.to.name}: {counted(self.sent)}"
        return says if missing <= 0 else f"{says}; {missing} of the plan were gone, or in others' hands"

    def _mine(self, batch: Batch, grown: Grown) -> list[Message]:
        """The letters of ``batch`` to be sent now: none once a letter has come back, and no more than planned."""
        letters = [(message, Letter.of(message)) for message in batch]
        with self._guard:
            for message, letter in letters:
                if self.post.is_back(message):
                    self._back = f"a letter is back in {self.queue.name} ({letter.reason}): {self.to.name} still fails"
            self._back = self._back or grown.says(self.sent)
            if self._back:
                return []
            mine = [message for message, letter in letters if self.chosen(letter)]
            mine = mine[: self.letters + self.unseen - self._claimed]
            self._claimed += len(mine)
            return mine

    def _tell(self, care: Care) -> None:
        if care.progress:
            care.progress(self.step, self.sent, max(self.letters, self.sent))


def _drop(batch: Batch, gone: Sequence[Message]) -> None:
    ids = {message.id for message in gone}
    batch[:] = [message for message in batch if message.id not in ids]
