"""Care: how careful a redrive is. Its canary, how long it is watched, and who says that it is well."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from labkit.facts import facts
from labkit.ops.triage.holding import HOLD
from labkit.ops.triage.letters import TriageError
from labkit.work.queues import Message

Progress = Callable[[str, int, int], object]  # step, letters sent, of how many
_MOST = 10  # canaries: what one receive brings


@dataclass(frozen=True)
class Care:
    """How careful a redrive is. ``canary``: letters first; ``within``: seconds for their fate; ``settle``: seconds for
    which the destination must stay empty before it is believed (on AWS 60: its counts are approximate for a minute).
    ``during``: called at each look of the watch. ``handled``: whether the canaries were handled, from somebody who
    knows better than the queue's counts (an idempotency store); called with their messages. ``rate``: messages a second
    of a move task, as fast as SQS likes if None. ``hold``: seconds, as in :func:`labkit.ops.triage.survey`."""

    canary: int = 3
    within: float = 60.0
    settle: float = 1.0
    hold: int = HOLD
    threads: int = 8
    rate: int | None = None
    during: Callable[[], object] | None = None
    handled: Callable[[Sequence[Message]], bool] | None = None
    progress: Progress | None = None
    clock: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        if not isinstance(self.canary, int) or isinstance(self.canary, bool) or not 0 <= self.canary <= _MOST:
            raise TriageError(f"a canary has 0 to {_MOST} letters; got {self.canary!r}.")
        longest = float(facts("sqs.visibility.total_max"))
        if not 0 <= self.settle < self.within <= longest:
            raise TriageError(
                f"canaries are watched for up to {longest:.0f} s, and for longer than the destination must stay empty; "
                f"got {self.within!r} s and {self.settle!r} s."
            )
        most = int(facts("sqs.move_task.rate.max"))
        if self.rate is not None and not 1 <= self.rate <= most:
            raise TriageError(f"a move task moves 1 to {most} messages a second; got {self.rate!r}.")
