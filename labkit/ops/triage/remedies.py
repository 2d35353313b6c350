"""Remedies: what to do about each class of failure, and whether a redrive helps before it is done.

A redrive before the fix costs a delivery (or, from a rule, up to its whole retry policy) and brings each letter back
with its retention that much shorter. So each class says when it helps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from labkit.ops.triage.letters import Failure

AFTER, SLOWLY, EACH, NEVER = "after the fix", "now, slowly", "after a look at each", "no"


@dataclass(frozen=True)
class Remedy:
    """``what``: one or two sentences in the imperative. ``redrive``: when a redrive helps."""

    what: str
    redrive: str


REMEDIES: Mapping[Failure, Remedy] = {
    Failure.PERMISSION: Remedy(
        "Let the sender in: the target's resource policy or the rule's role lacks the action.", AFTER
    ),
    Failure.MISSING: Remedy("Make the target again, or point the rule at the one that replaced it.", AFTER),
    Failure.THROTTLED: Remedy("Raise the target's limit, or retry for longer than its busiest hour.", SLOWLY),
    Failure.TIMED_OUT: Remedy("Look for what was slow. Then give the target more time, or the step less to do.", AFTER),
    Failure.UNREACHABLE: Remedy("Check that the target answers again: nothing is wrong with the letters.", SLOWLY),
    Failure.REFUSED: Remedy("Correct the event, or the rule's input: the target will refuse the same again.", EACH),
    Failure.TARGET_FAILED: Remedy("Read the target's log for the first example, and mend the target.", AFTER),
    Failure.WORKER_RAISED: Remedy(
        "Mend what the worker raised, or return the task to its author if its input is wrong.", AFTER
    ),
    Failure.MOVED: Remedy(
        "Look in the workers' logs for the message id: a crash, a step longer than the visibility, or an error that "
        "nobody wrote down.",
        AFTER,
    ),
    Failure.UNREADABLE: Remedy("Read one by hand and find its sender: no reason, and no JSON in the body.", EACH),
    Failure.UNKNOWN: Remedy("Read the first example: this writer's codes are not known here.", EACH),
}


def remedy(failure: Failure) -> Remedy:
    """What to do about ``failure``. There is one for each class."""
    return REMEDIES[failure]
