"""The command ``labkit triage``: look, say, and act only when told to twice (``--redrive --yes``)."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from labkit.errors import LabError
from labkit.ops import redrive
from labkit.ops.triage import Progress, survey
from labkit.ops.triage.letters import TriageError, counted
from labkit.ops.triage.report import as_json as report
from labkit.ops.triage.report import outcome_lines, plan_lines, survey_lines
from labkit.ops.triage.surveys import Survey
from labkit.work.queues import Queue

_AWS_HOST = re.compile(r"sqs\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?")
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
        if not all(self.only):
            raise TriageError("--class names a class of failure, or a reason; this one is empty.")


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
            return f"interrupted after {counted(done)}; what was in hand is in {plan.queue.name} again"
    return "" if outcome.step is redrive.Step.DONE else outcome.says


@contextmanager
def _bar(what: str) -> Iterator[Progress]:
    """A progress bar on stderr, where that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True, disable=not Console(stderr=True).is_terminal) as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, of: bar.update(task, completed=done, total=of)


class Account:
    """Clients of one account, each made once: of a lab's (as ``labkit env`` names it), or of the environment's.

    A lab's resources are not touched: nothing is opened, nothing is swept.
    """

    def __init__(self, lab: str | None, *, endpoint: str | None = None) -> None:
        self._made: dict[str, Any] = {}
        self._endpoint = endpoint
        self._target: Any = None
        self._account = ""
        if lab is not None:
            from labkit import targets

            self._target = targets.connect()
            self._account = self._target.account or targets.account_for(targets.learner(), lab)

    def client(self, service: str, /) -> Any:
        if service not in self._made:
            self._made[service] = self._make(service)
        return self._made[service]

    def _make(self, service: str) -> Any:
        if self._target is not None:
            return self._target.client(service, self._account)
        import boto3
        from botocore.exceptions import BotoCoreError

        try:
            return boto3.client(service, endpoint_url=self._endpoint)
        except (BotoCoreError, ValueError) as error:
            raise LabError(
                f"no client for {service} from the environment: {error}; or name a lab with --lab."
            ) from error

    @property
    def approximate(self) -> bool:
        """Whether counts of messages are AWS's, which take up to a minute to be true."""
        return str(self.client("sqs").meta.endpoint_url).endswith((".amazonaws.com", ".amazonaws.com.cn"))


def account(lab: str | None, queue: str) -> Account:
    """The account to look for ``queue`` in. Without a lab, a URL of some other host than AWS's says where to ask."""
    host = urlsplit(queue).hostname or ""
    endpoint = None
    if lab is None and host and not host.endswith((".amazonaws.com", ".amazonaws.com.cn")):
        given = urlsplit(queue)
        endpoint = os.environ.get("AWS_ENDPOINT_URL_SQS") or os.environ.get("AWS_ENDPOINT_URL")
        endpoint = endpoint or f"{given.scheme}://{given.netloc}"
    return Account(lab, endpoint=endpoint)


def find(clients: Account, name: str) -> Queue:
    """The queue with this URL, ARN or name. Raises :class:`TriageError` when there is none, or no answer.

    A queue is asked for by its name alone, so the answer can be of the same name in another Region or account: refused.
    """
    from botocore.exceptions import BotoCoreError, ClientError

    client = clients.client("sqs")
    if name.startswith(("http://", "https://")):
        found = Queue(client, name)
        region = _AWS_HOST.fullmatch(urlsplit(name).hostname or "")
        if region and found.arn.split(":")[3] != region[1]:
            raise TriageError(f"{name} is in another Region than {found.arn}: set AWS_REGION to {region[1]}.")
        return found
    options = {"QueueName": name}
    if name.startswith("arn:"):
        parts = name.split(":")
        if len(parts) != 6 or parts[2] != "sqs":
            raise TriageError(f"{name!r} is no ARN of a queue.")
        options = {"QueueName": parts[5], "QueueOwnerAWSAccountId": parts[4]}
    try:
        found = Queue(client, client.get_queue_url(**options)["QueueUrl"])
    except ClientError as error:
        if error.response["Error"]["Code"].endswith(("NonExistentQueue", "QueueDoesNotExist")):
            raise TriageError(f"there is no queue {name!r} in this account and Region.") from error
        raise TriageError(f"queue {name!r} could not be asked for: {error}") from error
    except BotoCoreError as error:
        raise TriageError(f"queue {name!r} could not be asked for: {error}") from error
    if name.startswith("arn:") and found.arn != name:
        raise TriageError(f"there is no queue {name!r} here; the one of that name here is {found.arn}.")
    return found
