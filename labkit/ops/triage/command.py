"""The command ``labkit triage``: look, say, and act only when told to twice (``--redrive --yes``)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from labkit.errors import LabError
from labkit.ops import redrive
from labkit.ops.triage import Progress, survey
from labkit.ops.triage.letters import TriageError
from labkit.ops.triage.places import account, find
from labkit.ops.triage.report import as_json as report
from labkit.ops.triage.report import outcome_lines, plan_lines, survey_lines
from labkit.ops.triage.surveys import Survey

_SETTLE = {True: 60.0, False: 1.0}  # seconds: AWS's counts are approximate for a minute


@dataclass(frozen=True)
class Asked:
    """What the command line says."""

    queue: str
    lab: str | None = None
    sample: int | None = None
    only: tuple[str, ...] = ()
    examples: int = 1
    bodies: bool = False
    redrive: bool = False
    to: str | None = None
    canary: int = 3
    within: float = 120.0
    rate: int | None = None
    yes: bool = False

    def __post_init__(self) -> None:
        if self.redrive and self.sample is not None:
            raise TriageError("a redrive is planned from a look at all letters: leave --sample or --redrive out.")
        if not self.redrive and (self.yes or self.to is not None):
            raise TriageError("--yes and --to belong to --redrive: nothing is sent without it.")


def run(asked: Asked, *, as_json: bool) -> Iterator[str]:
    """The lines to print. Raises :class:`LabError` at the end when a redrive has stopped."""
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        yield from _run(asked, as_json)
    except (BotoCoreError, ClientError) as error:
        raise LabError(f"{asked.queue}: {error}") from error


def _run(asked: Asked, as_json: bool) -> Iterator[str]:
    clients = account(asked.lab, asked.queue)
    queue = find(clients, asked.queue)
    plan: redrive.Plan | None = None
    with _bar("looking") as look:
        if asked.redrive:
            to: Any = asked.to
            if to is not None and not (to.startswith("arn:") and not to.startswith("arn:aws:sqs:")):
                to = find(clients, to)
            plan = redrive.plan(
                queue, clients=clients, only=asked.only or None, to=to, progress=look, examples=asked.examples
            )
            found: Survey = plan.survey
        else:
            found = survey(queue, at_most=asked.sample, examples=asked.examples, bodies=asked.bodies, progress=look)
    if not as_json:
        yield from survey_lines(queue, found, asked.only)
        if plan is not None:
            yield from plan_lines(plan)
    stopped = ""
    if plan is not None and asked.yes and plan.letters:
        stopped = _act(plan, asked, approximate=clients.approximate)
        if not as_json and plan.outcome is not None:
            yield from outcome_lines(plan.outcome)
    elif plan is not None and plan.letters and not as_json:
        yield "Nothing was sent: add --yes to do it."
    if as_json:
        yield json.dumps(report(queue, found, asked.only, plan, acts=asked.yes), indent=2)
    if stopped:
        raise TriageError(stopped)


def _act(plan: redrive.Plan, asked: Asked, *, approximate: bool) -> str:
    """Run the plan; returns why it stopped, "" if it did not."""
    with _bar("sending") as sent:
        try:
            outcome = plan.run(
                canary=asked.canary,
                within=asked.within,
                settle=min(_SETTLE[approximate], asked.within / 2),
                rate=asked.rate,
                progress=lambda _, done, of: sent(done, of),
            )
        except KeyboardInterrupt:
            done = plan.outcome.sent if plan.outcome else 0
            return f"interrupted after {done} letters; what was in hand is in {plan.queue.name} again"
    return "" if outcome.step is redrive.Step.DONE else outcome.says


@contextmanager
def _bar(what: str) -> Iterator[Progress]:
    """A progress bar on stderr, where that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True, disable=not Console(stderr=True).is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)
