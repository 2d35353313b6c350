"""Routes: where a dead letter may be sent back to, and which may not be sent at all.

A letter goes back to where it was going when it died, and nowhere else: the queue that it came from, or the one target
that a rule could not reach. Putting an event on its bus again would bring it to *every* rule that matches, to those
that had it long ago as well, so that is never done here: see :mod:`labkit.ops.replay` for the tool that does.

====================  ===================================================================================
letter of             goes back to
====================  ===================================================================================
SQS, a worker         the queue it came from
a rule                ``TARGET_ARN``: a queue, a function or a state machine; nothing that transforms its input
a destination         the function, with the event that the record holds
a function's queue    what ``to`` names: the letter does not say which function
a bus, version 2      nothing: the record holds event ids, not the events
anything else         what ``to`` names
====================  ===================================================================================
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from labkit.ops.metrics import Clients
from labkit.ops.triage.letters import Letter, TriageError, Writer
from labkit.work.queues import Message, Queue

KINDS = {"sqs": "queue", "lambda": "function", "states": "state machine"}


@dataclass(frozen=True)
class Route:
    """Where letters go. ``group``: the message group that a rule gives to what it sends to a FIFO queue."""

    arn: str
    group: str = ""

    @property
    def kind(self) -> str:
        return KINDS.get(service(self.arn), "")


@dataclass(frozen=True)
class Refusal:
    """Why letters of one kind cannot be sent back; one sentence."""

    says: str


def service(arn: str) -> str:
    parts = arn.split(":")
    return parts[2] if len(parts) >= 6 and parts[0] == "arn" else ""


def named(to: Queue | str | None) -> Route | None:
    """The route that the caller names. Raises :class:`TriageError` for an ARN that nothing can be sent to."""
    if to is None:
        return None
    arn = to.arn if isinstance(to, Queue) else to
    route = Route(arn)
    if not isinstance(arn, str) or not route.kind or (route.kind == "state machine" and ":stateMachine:" not in arn):
        raise TriageError(f"letters go to a queue, a function or a state machine, by its ARN; {arn!r} is none of them.")
    return route


class Routes:
    """The route of each letter, asked of AWS once for each rule. ``clients`` makes boto3 clients (a lab does)."""

    def __init__(self, clients: Clients | None, to: Queue | str | None) -> None:
        self._clients = clients
        self._to = named(to)
        self._rules: dict[tuple[str, str], Route | Refusal] = {}

    def of(self, letter: Letter) -> Route | Refusal:
        if letter.writer is Writer.BUS_V2:
            return Refusal(
                "A bus of the second version records ids, not events: publish them again from their own source."
            )
        if self._to:
            return self._to
        if letter.writer in (Writer.SQS, Writer.WORKER):
            route = Route(letter.source)
            return route if route.kind == "queue" else Refusal("The letter names no source queue: say where to.")
        if letter.writer is Writer.RULE:
            key = (letter.source, letter.target)
            if key not in self._rules:
                self._rules[key] = self._of_rule(*key)
            return self._rules[key]
        if letter.writer is Writer.DESTINATION:
            route = Route(letter.source)
            return route if route.kind == "function" else Refusal("The record names no function: say where to.")
        if letter.writer is Writer.FUNCTION:
            return Refusal("A function's dead letter does not say which function it was: say where to.")
        return Refusal("Nobody wrote down where this letter came from: say where to, after a look at it.")

    def _of_rule(self, rule: str, target: str) -> Route | Refusal:
        if not Route(target).kind:
            what = service(target) or "unknown"
            return Refusal(
                f"Targets of the kind {what!r} are not sent to from here, and putting the event on the bus again would "
                "bring it to every rule that matches."
            )
        if self._clients is None:
            return Refusal("Whether the rule changes its input cannot be asked without clients: say where to.")
        from botocore.exceptions import BotoCoreError, ClientError

        bus, _, name = rule.split(":", 5)[-1].removeprefix("rule/").rpartition("/")
        try:
            targets = self._clients.client("events").list_targets_by_rule(
                Rule=name, **({"EventBusName": bus} if bus else {})
            )["Targets"]
        except (BotoCoreError, ClientError) as error:
            return Refusal(f"The rule {name} could not be asked for its targets ({error}): say where to.")
        mine = [each for each in targets if each["Arn"] == target]
        if not mine:
            return Refusal(f"The rule {name} no longer has this target: say where to.")
        if len(mine) > 1 or any(each.get(key) for each in mine for key in ("Input", "InputPath", "InputTransformer")):
            return Refusal(
                f"The rule {name} changes its input, and the letter holds the event as it came: say where to, if that "
                "is what the target can read."
            )
        return Route(target, mine[0].get("SqsParameters", {}).get("MessageGroupId", ""))


def payload(message: Message, letter: Letter) -> str:
    """What a function or a state machine is called with: the event. Raises :class:`TriageError` where there is none."""
    if letter.writer is not Writer.DESTINATION:
        text = message.body
    else:
        record: Any = json.loads(message.body)  # it has been read as JSON before
        if "requestPayload" not in record:
            raise TriageError(f"letter {letter.id} is a record without the event that the function was called with.")
        text = json.dumps(record["requestPayload"])
    try:
        json.loads(text)
    except (ValueError, RecursionError) as error:
        raise TriageError(f"letter {letter.id} holds no JSON, and a function is called with nothing else.") from error
    return text
