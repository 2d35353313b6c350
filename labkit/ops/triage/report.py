"""What ``labkit triage`` says: a survey, a plan and its outcome as lines of text, or as what JSON can hold."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from labkit.ops.redrive import Outcome, Plan, Step
from labkit.ops.triage.letters import counted
from labkit.ops.triage.surveys import Group, Survey, moment
from labkit.work.queues import Queue

_UNITS = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def survey_lines(
    queue: Queue, survey: Survey, only: Collection[str] = (), clock: Callable[[], float] = time.time
) -> Iterator[str]:
    """The survey, group by group; ``only``: classes or reasons."""
    seen = "all that it holds" if survey.complete else f"{survey.unseen} more were not seen"
    yield f"{queue.name}: {counted(survey.total)} ({seen})"
    now = clock()
    shown = _shown(survey, only)
    if only and not shown and survey.total:
        yield f"        none of {', '.join(sorted(only))}; there are {', '.join(survey.names())}"
    for group in shown:
        yield f"{group.letters:>7,}  {group.failure}: {group.reason}" + (
            f", from {group.origin}" if group.origin else ""
        )
        until = "kept until" if not survey.fifo else "kept at least until"
        yield (
            f"         oldest {_ago(now - group.oldest)}, newest {_ago(now - group.newest)}, "
            f"{until} {_when(group.ends)}, received {group.most_receives} times at most"
        )
        for one in group.examples:
            named = f"{one.trace_id} " if one.trace_id else ""
            yield f"         e.g. {named}({one.id}): {one.text or 'no text'}"
            if one.body:
                yield f"              {one.body}"
        yield f"         do: {group.remedy.what} Redrive: {group.remedy.redrive}."


def plan_lines(plan: Plan) -> Iterator[str]:
    """What a redrive would do."""
    yield f"A redrive would send {counted(plan.letters)}:" if plan.letters else "A redrive would send nothing."
    for where, failure, count, how in plan.rows():
        yield f"{count:>7,}  {failure} → {where} ({how})"
    for one in plan.refused:
        yield f"{one.letters:>7,}  {one.failure}: stays. {one.says}"


def outcome_lines(outcome: Outcome) -> Iterator[str]:
    """How a redrive ended, and which letters may be in both queues."""
    yield f"{outcome.says[:1].upper()}{outcome.says[1:]}."
    for lane in outcome.lanes:
        yield f"         {lane.to.name}: {counted(lane.sent)}, {' → '.join(lane.trail)}"
    if outcome.doubles:
        yield f"         may be in both queues (same ORIGINAL_MESSAGE_ID): {', '.join(outcome.doubles[:10])}"


def as_json(queue: Queue, survey: Survey, only: Collection[str], plan: Plan | None, *, acts: bool) -> dict[str, Any]:
    """All of it, for programs. Times are ISO 8601, in UTC."""
    found: dict[str, Any] = {
        "queue": queue.arn,
        "letters": survey.total,
        "complete": survey.complete,
        "unseen": survey.unseen,
        "groups": [_group(group) for group in _shown(survey, only)],
    }
    if plan is not None:
        keys = ("destination", "class", "letters", "how")
        found["redrive"] = {
            "dry_run": not acts,
            "would_send": [dict(zip(keys, row, strict=True)) for row in plan.rows()],
            "refused": [
                {"class": str(one.failure), "source": one.source, "letters": one.letters, "why": one.says}
                for one in plan.refused
            ],
        }
        if plan.outcome is not None:
            found["redrive"]["outcome"] = _outcome(plan.outcome)
    return found


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        "done": outcome.step is Step.DONE,
        "sent": outcome.sent,
        "left": outcome.left,
        "doubles": outcome.doubles,
        "says": outcome.says,
        "lanes": [
            {"destination": lane.to.name, "sent": lane.sent, "steps": list(map(str, lane.trail))}
            for lane in outcome.lanes
        ],
    }


def _group(group: Group) -> dict[str, Any]:
    return {
        "class": str(group.failure),
        "reason": group.reason,
        "source": group.source,
        "letters": group.letters,
        "oldest": _iso(group.oldest),
        "newest": _iso(group.newest),
        "kept_until": _iso(group.ends),
        "most_receives": group.most_receives,
        "redrive": group.remedy.redrive,
        "what_to_do": group.remedy.what,
        "examples": [
            {"id": one.id, "trace_id": one.trace_id, "text": one.text, **({"body": one.body} if one.body else {})}
            for one in group.examples
        ],
    }


def _shown(survey: Survey, only: Collection[str]) -> list[Group]:
    return [group for group in survey.groups() if not only or group.failure in only or group.reason in only]


def _ago(seconds: float) -> str:
    """A time span in its largest unit: "3 min ago"; clocks of two machines may differ, so never negative."""
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds // size:.0f} {unit} ago"
    return "just now"


def _when(seconds: float) -> str:
    at = moment(seconds)
    return f"{at:%Y-%m-%d %H:%M} UTC" if at else "nobody knows when"


def _iso(seconds: float) -> str | None:
    at = moment(seconds)
    return at.isoformat(timespec="seconds") if at else None
