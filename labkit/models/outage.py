"""An outage inside one group: some of its deployments are dead, and each attempt picks one at random.

What a retry can do follows from that alone. With ``dead`` of ``deployments`` down, a call fails only if every one of
its attempts meets a dead one::

    share of calls lost = (dead / deployments) ^ (1 + retries)          and it goes on for as long as the outage

A cooldown takes a deployment out of the draw once it has failed ``allowed_fails + 1`` times, for as long as a window
lasts. From then on nothing is lost; so a window costs a fixed number of bad calls, and not a share of all::

    one of two dead, 2 retries, 1,000 calls a window     no cooldown: 125 lost     cooldown: less than one

Nobody in the group can help when all of it is dead. A fallback group can: it is outside.

What this leaves out: failures are counted together only within one window (calls that come more slowly never bench),
and calls that run side by side find out together, so that a busy fleet loses a few more at the start of each window.
Counters are each process's own: every worker pays for its own window. Standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from labkit.models._input import ModelError, number, whole

__all__ = ["Outage", "Window"]

_MOST = 8  # deployments, retries and allowed failures: the states of a window are counted one by one


@dataclass(frozen=True)
class Window:
    """The start of one cooldown window, on average: ``calls`` until the last dead deployment is benched, ``lost`` of
    them, and ``hits`` on dead deployments, which are always as many."""

    calls: float
    lost: float
    hits: int


@dataclass(frozen=True)
class Outage:
    """``dead`` of ``deployments`` fail every call; each call has ``1 + retries`` attempts, one after the other.

    ``fallback``: a group outside that answers. Raises :class:`~labkit.models._input.ModelError` for what cannot be.

    >>> outage = Outage(deployments=2, dead=1, retries=2)
    >>> outage.leak, outage.window(allowed_fails=2).hits
    (0.125, 3)
    """

    deployments: int = 2
    dead: int = 1
    retries: int = 0
    fallback: bool = False

    def __post_init__(self) -> None:
        whole("deployments", self.deployments, high=_MOST)
        whole("dead", self.dead, low=0, high=self.deployments)
        whole("retries", self.retries, low=0, high=_MOST)

    @property
    def leak(self) -> float:
        """The share of calls, from 0 to 1, that get no answer where nobody is benched."""
        return 0.0 if self.fallback else (self.dead / self.deployments) ** (1 + self.retries)

    @property
    def hits(self) -> float:
        """Calls of dead deployments for each call of the group, on average, where nobody is benched: they are waited
        for, and some of them are paid for."""
        part = self.dead / self.deployments
        return float(sum(part**attempt for attempt in range(1, 2 + self.retries)))

    def window(self, allowed_fails: int) -> Window:
        """What the start of one window costs, with a cooldown on failure ``allowed_fails + 1``."""
        left = whole("allowed_fails", allowed_fails, low=0, high=_MOST) + 1
        if self.dead == self.deployments:
            raise ModelError("a window ends with a deployment that answers; all of them are dead.")
        calls, lost = _until_benched(self.deployments - self.dead, (left,) * self.dead, self.retries)
        return Window(calls, 0.0 if self.fallback else lost, left * self.dead)

    def share(self, calls: float, *, allowed_fails: int) -> float:
        """The share of ``calls`` in one window that get no answer, with a cooldown."""
        number("calls", calls, low=1)
        if self.fallback or not self.dead:
            return 0.0
        if self.dead == self.deployments:
            return 1.0  # benched or not: nobody answers
        return min(self.leak, self.window(allowed_fails).lost / calls)


@cache
def _until_benched(alive: int, left: tuple[int, ...], retries: int) -> tuple[float, float]:
    """Calls, and calls lost among them, until no dead deployment is in the draw. ``left``: failures that each still
    has, sorted."""
    if not left:
        return 0.0, 0.0
    # A call that meets a living deployment changes nothing: the draw begins anew. So the first attempt is drawn until
    # it meets a dead one, which takes 1 / part calls.
    part = len(left) / (alive + len(left))
    calls, lost = _dead_one(alive, left, retries, 1)
    return calls + 1 / part - 1, lost


@cache
def _dead_one(alive: int, left: tuple[int, ...], retries: int, attempt: int) -> tuple[float, float]:
    """The same, where this attempt of a call has met a dead deployment; its call is among those counted."""
    calls = lost = 0.0
    for place, failures in enumerate(left):
        rest = left[:place] + left[place + 1 :]
        after = tuple(sorted((*rest, failures - 1))) if failures > 1 else rest
        if attempt > retries:  # that was the last attempt
            further = _until_benched(alive, after, retries)
            here = (1 + further[0], 1 + further[1])
        else:
            part = len(after) / (alive + len(after))
            served = _until_benched(alive, after, retries)
            again = _dead_one(alive, after, retries, attempt + 1) if after else (0.0, 0.0)
            here = (part * again[0] + (1 - part) * (1 + served[0]), part * again[1] + (1 - part) * served[1])
        calls, lost = calls + here[0] / len(left), lost + here[1] / len(left)
    return calls, lost
