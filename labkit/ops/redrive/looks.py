"""Looks: what has come to the dead-letter queues since the canaries were sent, hidden with all that was there before.

Two looks decide something: one hides everything, so that whatever comes later is new, and the last one says that no
canary has come back. Both ask all of SQS's servers, which takes a long poll of a second. The others ask in passing, and
what they miss, a later one finds. The first look is one of those: of a canary that is handled, or fails, within moments
the second look is the last.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TYPE_CHECKING

from labkit.ops.triage.holding import Hold
from labkit.ops.triage.letters import Letter

if TYPE_CHECKING:
    from labkit.ops.redrive.lanes import Lane


def look(lane: Lane, holds: Sequence[Hold], *, new: bool, sure: bool, over: Callable[[], bool]) -> str:
    """Take everything that is visible into the holds; a sentence if what is among it stops the redrive, "" if not.

    ``new``: all that is visible has come since the look before. ``sure``: until all servers have said that there is no
    more. All queues are asked at the same time, since each of them may take its second. ``over``: whether the time is
    up, since a look ends with the letters, and there are queues to which they come without end.
    """
    stop = threading.Event()

    def came_back(hold: Hold, sure: bool) -> str:
        return _came_back(lane, hold, new=new, sure=sure, over=over, stop=stop)

    for hold in holds:
        if back := came_back(hold, False):
            return back
    if not sure:
        return ""
    with ThreadPoolExecutor(len(holds), thread_name_prefix="labkit-redrive") as pool:
        asked = [pool.submit(came_back, hold, True) for hold in holds]
        try:
            return next(filter(None, (each.result() for each in as_completed(asked))), "")
        finally:
            stop.set()  # one sentence is enough; and who interrupts does not wait for the letters to end


def _came_back(
    lane: Lane, hold: Hold, *, new: bool, sure: bool, over: Callable[[], bool], stop: threading.Event
) -> str:
    while not stop.is_set() and (batch := hold.receive(sure=sure)):
        hold.keep(batch)
        for message in batch:
            letter = Letter.of(message)
            if hold.queue is lane.queue and not lane.chosen(letter):
                lane.others = True
            if lane.post.is_back(message):
                return f"a canary is back in {hold.queue.name} ({letter.reason}): {lane.to.name} still fails"
            if (new or letter.sent_at > lane.newest) and not hold.queue.fifo and lane.post.alike(letter):
                return (
                    f"{lane.to.name} may still fail: another letter has come to {hold.queue.name} "
                    f"({letter.reason}), or somebody else's look has given it back"
                )
        if over():
            return f"letters come to {hold.queue.name} without end: it is not known whether the canary is well"
    return ""
