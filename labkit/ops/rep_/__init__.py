"""Replay: an archive of a bus, and its events sent once more.

In four moves, none of which can be left out::

    plan ── which rules match, and which of their targets bear it ── refused, or narrowed
    start ─ StartReplay, to the rules of the plan and no others
    follow  until it is over: EventBridge does the work, so whoever follows may die and another one take over
    verify  the side effects before and after: recovered, lost 0, duplicated 0

What to know of archives (EventBridge User Guide, "Archiving and replaying events"; botocore's StartReplay): an archive
holds one bus's events, and is replayed to that bus only. Events reach it late, about ten minutes. Its counts may lag by
a day. A replayed event has its old ``time``, an additional field ``replay-name``, and is not archived again. A replay
goes minute by minute, within a minute in any order, at a rate that follows the account's PutEvents quota and does not
count against it: the consumers get history as fast as it comes. Ten replays may run at once. Not verified: whether the
event's ``id`` stays the same. So a consumer recognizes its work by the envelope's ``trace_id``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from labkit.facts import facts
from labkit.ops.replay_archive import Archive, ArchiveState
from labkit.ops.replay_effects import Source, Verdict, count, rows, verify
from labkit.ops.replay_plan import Plan, plan
from labkit.ops.replay_routes import SAFE, ReplayError, Route, Target

__all__ = [
    "SAFE",
    "Archive",
    "ArchiveState",
    "Plan",
    "Progress",
    "Replay",
    "ReplayError",
    "Route",
    "Source",
    "Target",
    "Verdict",
    "count",
    "plan",
    "rows",
    "start",
    "verify",
]

OVER = ("COMPLETED", "CANCELLED", "FAILED")


@dataclass(frozen=True)
class Progress:
    """How far a replay is. ``last``: the time of the last event sent; ``share``: how much of the range that is."""

    state: str
    last: datetime | None
    share: float
    reason: str = ""

    @property
    def over(self) -> bool:
        return self.state in OVER


class Replay:
    """One replay on AWS, by its name. It runs there, whoever follows it; :meth:`of` finds one again."""

    def __init__(self, client: Any, name: str) -> None:
        self.client = client
        self.name = name

    @classmethod
    def of(cls, client: Any, name: str) -> Replay:
        """The replay called ``name``, started by anyone. Raises :class:`ReplayError` when there is none."""
        found = cls(client, name)
        found.look()
        return found

    def look(self) -> Progress:
        """How far it is now. Raises :class:`ReplayError` when there is no such replay."""
        answer = self._described()
        since, until, last = answer["EventStartTime"], answer["EventEndTime"], answer.get("EventLastReplayedTime")
        share = 0.0 if last is None else min(1.0, max(0.0, (last - since) / (until - since)))
        return Progress(answer["State"], last, 1.0 if answer["State"] == "COMPLETED" else share, _reason(answer))

    def follow(
        self,
        *,
        seconds: float = 3600.0,
        on_progress: Callable[[Progress], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Progress:
        """Wait until it is over, COMPLETED or CANCELLED, for ``seconds`` at most; ``on_progress`` gets each change.

        Raises :class:`ReplayError` when it FAILED, and when the time is up: the replay goes on then.
        """
        end, wait, seen = clock() + seconds, 0.05, None
        while True:
            progress = self.look()
            if on_progress and progress != seen:
                on_progress(progress)
            seen = progress
            if progress.state == "FAILED":
                raise ReplayError(f"replay {self.name} failed: {progress.reason or 'no reason given'}.")
            if progress.over:
                return progress
            if clock() >= end:
                raise ReplayError(f"replay {self.name} is {progress.state} after {seconds:g} s, and goes on.")
            sleep(wait)
            wait = min(5.0, wait * 1.5)

    def cancel(self, *, seconds: float = 60.0) -> Progress:
        """Stop it, and wait until it has. What was sent before is not taken back; one that is over is left as it is.

        Raises :class:`ReplayError` when it has not stopped after ``seconds``.
        """
        from botocore.exceptions import ClientError

        try:
            self.client.cancel_replay(ReplayName=self.name)
        except ClientError as error:
            if error.response["Error"]["Code"] != "IllegalStatusException":  # over, or stopping already
                raise ReplayError(
                    f"replay {self.name} was not cancelled: {error.response['Error']['Message']}"
                ) from error
        return self.follow(seconds=seconds)

    def _described(self) -> Mapping[str, Any]:
        from botocore.exceptions import ClientError, ParamValidationError

        try:
            answer: Mapping[str, Any] = self.client.describe_replay(ReplayName=self.name)
        except (ClientError, ParamValidationError) as error:
            raise ReplayError(f"there is no replay {self.name!r}: {error}") from error
        return answer

    def __repr__(self) -> str:
        return f"<Replay {self.name}>"


def start(plan: Plan) -> Replay:
    """Start what the plan says, to the rules that it names. Raises :class:`ReplayError`: nothing has begun then.

    The rules are read once more: one that has changed since the plan was made has to be planned again. Only a call that
    nobody answered leaves open whether it has begun: the error says so, and :meth:`Replay.of` finds out.
    """
    from botocore.exceptions import BotoCoreError, ClientError, ParamValidationError

    plan.check()
    archive = plan.archive
    _unchanged(plan)
    try:
        archive.client.start_replay(
            ReplayName=plan.name,
            Description=f"labkit {plan.token}",
            EventSourceArn=archive.arn,
            EventStartTime=plan.since,
            EventEndTime=plan.until,
            Destination={"Arn": archive.bus_arn, "FilterArns": [route.arn for route in plan.reached]},
        )
    except ParamValidationError as error:
        raise ReplayError(f"replay {plan.name!r} was not started: {error}") from error
    except BotoCoreError as error:
        raise ReplayError(f"nobody knows whether replay {plan.name} has begun; Replay.of tells. {error}") from error
    except ClientError as error:
        code, message = error.response["Error"]["Code"], error.response["Error"]["Message"]
        if code == "ResourceAlreadyExistsException":
            replay = Replay(archive.client, plan.name)
            if replay._described().get("Description") == f"labkit {plan.token}":
                return replay  # an answer that got lost on the way: the client asked twice
            raise ReplayError(f"a replay {plan.name!r} has been before, and its name stays taken.") from error
        if code == "LimitExceededException":
            most = int(facts("events.replay.concurrent"))
            raise ReplayError(
                f"{most} replays run already, and no more may at once: {plan.name} was not started."
            ) from error
        raise ReplayError(f"replay {plan.name} was not started: {message}") from error
    return Replay(archive.client, plan.name)


def _unchanged(plan: Plan) -> None:
    now = {route.arn: route for route in plan.look(only={route.arn for route in plan.reached})}
    for route in plan.reached:
        if now.get(route.arn) != route:
            raise ReplayError(f"rule {route.rule} has changed since the plan was made: plan again.")


def _reason(answer: Mapping[str, Any]) -> str:
    return str(answer.get("StateReason", ""))
