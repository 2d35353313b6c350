"""Pipes: from a queue, through a filter and an enrichment, to a target, without a consumer of one's own.

A pipe polls its queue as an event source mapping does, and the same rules hold: what fails comes back when the
visibility timeout ends, the queue's own redrive policy decides when it is a dead letter, and a duplicate can happen at
any time. Three things are easily missed. A function and a state machine get a JSON array, also for a single message. A
template that is a lone ``<$.body>`` loses the quotes of a JSON body; wrap it: ``{"body": "<$.body>"}``. And with a
batching window the poller hides messages for longer than the queue says (``facts("pipes.window.visibility")`` and the
window), and so long a failure waits.

The pipe's role gives it permission, not the policies of queue and function. Emulators take any role.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from labkit import kinds, sweep
from labkit.errors import LabError
from labkit.facts import facts
from labkit.models.retry import Exponential

if TYPE_CHECKING:
    from labkit.lab import Lab
    from labkit.work.queues import Queue

_POLLS = Exponential(base=0.1, factor=1.5, cap=2.0)  # seconds between two looks at a pipe that is changing
_WITHIN = 300.0  # seconds for one to come into a state; AWS says "typically a minute or two"

Template = Mapping[str, Any] | str


class Addressed(Protocol):
    """What a pipe can send to: anything with an ARN. A queue, a function, a state machine, a bus."""

    @property
    def arn(self) -> str: ...


class PipeError(LabError):
    """A pipe was refused or did not come into its state; the sentence says which and why."""


class Pipe:
    """One pipe, by client and name. :meth:`create` makes one in a lab and waits until it runs."""

    def __init__(self, client: Any, name: str) -> None:
        self.client, self.name = client, name

    @classmethod
    def create(
        cls,
        lab: Lab,
        name: str,
        source: Queue,
        target: Addressed | str,
        *,
        filters: Sequence[Mapping[str, Any]] = (),
        enrichment: Addressed | str | None = None,
        template: Template | None = None,
        batch: int = 1,
        window: int = 0,
        group: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        role: str | None = None,
        tags: Mapping[str, str] | None = None,
        within: float = _WITHIN,
    ) -> Pipe:
        """Make a pipe from ``source`` to ``target`` (an object with an ``arn``, or an ARN) and wait until it runs.

        ``filters`` are event patterns on the message; one that matches none of them is deleted, unseen. ``enrichment``
        is a function or an Express state machine: it gets a list of messages and returns what goes on. ``template``
        shapes each item for the target; in a mapping, a value ``"<$.body.n>"`` that is nothing but a path becomes what
        the path leads to, with its type. ``batch`` messages at most at once, gathered for up to ``window`` seconds.
        ``group`` is the message group for a FIFO target, a text or a path such as
        ``$.attributes.MessageGroupId``; the message id is the deduplication id. ``parameters`` are further
        TargetParameters. A Standard state machine is started and not waited for; everything else is waited for.
        ``role`` is an ARN: needed on AWS.

        Raises :class:`PipeError`; a pipe that does not come to run is deleted again.
        """
        from botocore.exceptions import BotoCoreError, ClientError

        _check(source, batch, window, filters)
        arn = _arn(target)
        if arn.endswith(".fifo") and group is None:
            raise PipeError(f"pipe {name}: {arn} is a FIFO queue; say which message group its messages belong to.")
        shaped: dict[str, Any] = {**_invocation(lab, arn), **(parameters or {})}
        if template is not None:
            shaped["InputTemplate"] = template_text(template)
        if group is not None:
            ids = {"MessageGroupId": group}
            if arn.endswith(".fifo"):
                ids["MessageDeduplicationId"] = "$.messageId"
            shaped["SqsQueueParameters"] = {**ids, **shaped.get("SqsQueueParameters", {})}
        polled: dict[str, Any] = {"SqsQueueParameters": {"BatchSize": batch}}
        if window:
            polled["SqsQueueParameters"]["MaximumBatchingWindowInSeconds"] = window
        if filters:
            polled["FilterCriteria"] = {"Filters": [{"Pattern": json.dumps(pattern)} for pattern in filters]}
        client, full = lab.client("pipes"), lab.resource_name(name)
        said: dict[str, Any] = {"Enrichment": _arn(enrichment)} if enrichment is not None else {}
        if shaped:
            said["TargetParameters"] = shaped
        if labels := {**lab.tags, **(tags or {})}:
            said["Tags"] = labels
        try:
            client.create_pipe(
                Name=full, RoleArn=_role(lab, role), Source=source.arn, Target=arn, SourceParameters=polled, **said
            )
        except ClientError as error:
            raise PipeError(f"pipe {name} was not made: {error.response['Error']['Message']}") from error
        except BotoCoreError as error:
            raise PipeError(f"pipe {name} was not made: {error}") from error
        pipe = cls(client, full)
        try:
            pipe.wait("RUNNING", within=within)
        except PipeError:
            pipe.delete()
            raise
        return pipe

    @property
    def state(self) -> str:
        """CREATING, RUNNING, STOPPING, STOPPED, STARTING, UPDATING, DELETING, or one that ends in FAILED."""
        return str(self._shown()["CurrentState"])

    @property
    def reason(self) -> str:
        """Why the pipe is in its state; empty while AWS does not say."""
        return str(self._shown().get("StateReason") or "")

    def wait(
        self,
        state: str,
        *,
        within: float = _WITHIN,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Wait until the pipe is in ``state``. Raises :class:`PipeError` when it failed, or is late."""
        end, looks = clock() + within, 0
        while (found := self._shown())["CurrentState"] != state:
            now = found["CurrentState"]
            if now.endswith("FAILED"):
                raise PipeError(f"pipe {self.name} is {now}, not {state}: {found.get('StateReason') or 'no reason'}")
            if clock() >= end:
                raise PipeError(f"pipe {self.name} is {now}, not {state}, after {within:g} s.")
            looks += 1
            sleep(_POLLS(looks))

    def stop(self) -> None:
        """Stop polling, and wait until that is so. A batch that is under way is finished."""
        self._ask(lambda: self.client.stop_pipe(Name=self.name))
        self.wait("STOPPED")

    def start(self) -> None:
        """Poll again, and wait until that is so."""
        self._ask(lambda: self.client.start_pipe(Name=self.name))
        self.wait("RUNNING")

    def delete(self) -> None:
        """Delete the pipe and wait until it is gone; queue and target stay."""
        kinds.delete_pipe(self.client, self.name)

    def _shown(self) -> Any:
        return self._ask(lambda: self.client.describe_pipe(Name=self.name))

    def _ask(self, call: Callable[[], Any]) -> Any:
        from botocore.exceptions import BotoCoreError, ClientError

        try:
            return sweep.patiently(call, "ConflictException")  # a change that is under way refuses the next one
        except ClientError as error:
            raise PipeError(f"pipe {self.name}: {error.response['Error']['Message']}") from error
        except BotoCoreError as error:
            raise PipeError(f"pipe {self.name}: {error}") from error

    def __repr__(self) -> str:
        return f"<Pipe {self.name}>"


def template_text(template: Template) -> str:
    """The text of an input template. Raises :class:`PipeError` when it is longer than a pipe takes."""
    text = template if isinstance(template, str) else _unquoted(template)
    most = int(facts("pipes.template.max_chars"))
    if len(text) > most:
        raise PipeError(f"the input template has {len(text)} characters; a pipe takes {most}.")
    return text


def _unquoted(value: Any) -> str:
    """JSON, in which a text that is nothing but a variable stands without quotes, to keep the variable's type."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json.dumps(str(key))}:{_unquoted(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ",".join(map(_unquoted, value)) + "]"
    lone = isinstance(value, str) and value.startswith(("<$", "<aws.pipes.")) and value.find(">") == len(value) - 1
    try:
        return str(value) if lone else json.dumps(value, ensure_ascii=False)
    except TypeError as error:
        raise PipeError(f"the input template holds {value!r}, which JSON cannot hold.") from error


def _check(source: Queue, batch: int, window: int, filters: Sequence[Mapping[str, Any]]) -> None:
    most, longest = int(facts("pipes.batch.max")), int(facts("pipes.window.max"))
    if not 1 <= batch <= most:
        raise PipeError(f"batch is {batch}; it can be 1 to {most}.")
    if not 0 <= window <= longest:
        raise PipeError(f"window is {window} s; it can be 0 to {longest}.")
    if source.fifo and window:
        raise PipeError(f"{source.name} is a FIFO queue: it has no batching window; window is {window}.")
    if len(filters) > int(facts("pipes.filters.max")):
        raise PipeError(f"{len(filters)} filters were given; a pipe has {facts('pipes.filters.max')} at most.")


def _arn(thing: Addressed | str) -> str:
    found = thing if isinstance(thing, str) else getattr(thing, "arn", None)
    if not isinstance(found, str) or not found.startswith("arn:"):
        raise PipeError(f"{thing!r} has no ARN that a pipe could call.")
    return found


def _invocation(lab: Lab, arn: str) -> dict[str, Any]:
    """How the target is called: a Standard state machine cannot be waited for."""
    from botocore.exceptions import ClientError

    if arn.split(":")[2] != "states":
        return {}
    try:
        kind = lab.client("stepfunctions").describe_state_machine(stateMachineArn=arn)["type"]
    except ClientError as error:
        raise PipeError(f"{arn} cannot be a target: {error.response['Error']['Message']}") from error
    how = "FIRE_AND_FORGET" if kind == "STANDARD" else "REQUEST_RESPONSE"
    return {"StepFunctionStateMachineParameters": {"InvocationType": how}}


def _role(lab: Lab, role: str | None) -> str:
    if role is not None:
        return role
    if lab.target.name == "aws":
        raise PipeError("on AWS a pipe needs a role: give role the ARN of one that EventBridge Pipes can assume.")
    return f"arn:aws:iam::{lab.account}:role/lab-pipe"
