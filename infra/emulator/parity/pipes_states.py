"""The states of a pipe: what it is, what it is on its way to, and why.

**On AWS** (recorded) CreatePipe answers ``CREATING`` and the pipe becomes ``RUNNING`` or ``STOPPED``, as DesiredState
said; UpdatePipe answers ``UPDATING``, StartPipe ``STARTING``, StopPipe ``STOPPING``, DeletePipe ``DELETING`` with the
desired state ``DELETED``, and the pipe can be read until it is gone. Each takes seconds, a creation "typically a minute
or two" (User Guide). A new pipe shows no StateReason until it is there; then it reads ``USER_INITIATED``, and ``User
initiated`` once the poller has been started or stopped. What fails afterwards shows as ``CREATE_FAILED``,
``START_FAILED`` and so on, with the reason. A pipe that stops itself (User Guide, "Pipe failure states") shows why.
Not verified: that a call for a pipe which is on its way somewhere is ConflictException; the state that a pipe whose
source is gone, or whose target keeps being missing, ends in (here ``STOPPED``, while the desired state stays).

**MiniStack** changes states at once and never says why.

**Here** each change takes :data:`LAG`: long enough that code which does not wait meets the pipe that is not yet there.
What is being processed when a pipe is stopped is finished; on AWS, too, it takes a moment until nothing comes any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LAG = 0.2  # seconds
TRANSITION = "Transition"  # member of a pipe's record, not of answers
SETTLED = "USER_INITIATED"
POLLER = "User initiated"
BUSY = frozenset({"CREATING", "UPDATING", "STARTING", "STOPPING", "DELETING"})

Pipe = Mapping[str, Any]


def state(pipe: Pipe, now: float) -> str:
    """The state that AWS would show at the moment ``now`` (epoch seconds)."""
    passing = pipe.get(TRANSITION)
    if passing and now < passing["Until"]:
        return str(passing["State"])
    return str(pipe["CurrentState"])


def reason(pipe: Pipe, now: float) -> str | None:
    """Why the pipe is in its state; None while a new one is being made."""
    passing = pipe.get(TRANSITION)
    if passing and now < passing["Until"]:
        return passing["Reason"] or None
    return pipe.get("StateReason") or None


def move(pipe: dict[str, Any], through: str, to: str, why: str, now: float) -> None:
    """Send the pipe through one state to another, which it is in after :data:`LAG`."""
    pipe[TRANSITION] = {"State": through, "Until": now + LAG, "Reason": reason(pipe, now)}
    pipe |= {"CurrentState": to, "StateReason": why, "LastModifiedTime": now}


def stop(pipe: dict[str, Any], why: str, now: float) -> None:
    """The pipe stops itself."""
    pipe.pop(TRANSITION, None)
    pipe |= {"CurrentState": "STOPPED", "StateReason": why, "LastModifiedTime": now}


def settled(pipe: Pipe, now: float) -> bool:
    return state(pipe, now) not in BUSY


def deleted(pipe: Pipe, now: float) -> bool:
    """Whether a deletion is done, so that nothing is left to be read."""
    passing = pipe.get(TRANSITION) or {}
    return passing.get("State") == "DELETING" and bool(now >= passing["Until"])


def receives(pipe: Pipe, now: float) -> bool:
    """Whether the pipe polls its source."""
    if deleted(pipe, now) or pipe["CurrentState"] != "RUNNING":
        return False
    return state(pipe, now) in ("RUNNING", "UPDATING")
