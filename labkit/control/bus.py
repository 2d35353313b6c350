"""The bus: publish envelopes, route them by rules, and answer for every entry.

PutEvents can succeed as a call and fail for single entries, and says nothing of what happens afterwards: whether a rule
matched, whether a delivery worked. So publishing checks every entry, and a rule is made with its retry policy, its
dead-letter queue and the two queue policies that its deliveries need, because each of them is missed in silence.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from labkit.control.envelope import Envelope
from labkit.errors import LabError
from labkit.facts import facts
from labkit.models.retry import Exponential, Jitter
from labkit.models.sizes import batches, entry_size

if TYPE_CHECKING:
    from labkit.lab import Lab

SERVICE = "events.amazonaws.com"
REQUESTED = "agent.step.requested"
SOURCE = "fleet.coordinator"

# Entry codes that a later attempt can cure; every other one fails again.
_RETRIED = {"InternalFailure", "InternalException", "ThrottlingException"}
_ATTEMPTS = 5
_WAIT = Jitter(Exponential(base=0.1, cap=2.0))  # seconds between the attempts


class Packer(Protocol):
    """What makes an envelope small enough to travel: :class:`labkit.state.claimcheck.ClaimCheck`."""

    def pack(self, envelope: Envelope) -> Envelope: ...


class Receiver(Protocol):
    """What a rule can deliver to: :class:`labkit.work.queues.Queue`."""

    arn: str
    name: str

    def allow(self, service: str, source_arn: str) -> None: ...


class BusError(LabError):
    """The bus refused something; the sentence says what and why."""


class PatternError(BusError):
    """An event pattern is not valid; the sentence holds EventBridge's reason."""


class PublishError(BusError):
    """Some entries were not accepted. ``failed`` maps trace ids to code and message; the others are on the bus."""

    def __init__(self, total: int, failed: Mapping[str, tuple[str, str]]) -> None:
        self.failed = dict(failed)
        some = "; ".join(f"{trace}: {code} ({message})" for trace, (code, message) in list(failed.items())[:3])
        more = f"; and {len(failed) - 3} more" if len(failed) > 3 else ""
        super().__init__(f"{len(failed)} of {total} events were not accepted: {some}{more}")


@dataclass(frozen=True)
class RetryPolicy:
    """How long EventBridge tries to deliver: whichever limit is reached first.

    ``attempts``: retries after the first try, 0 to 185. ``age``: seconds since the event, 60 to 86,400. Left alone, a
    target gets 185 attempts over 24 hours, which hides an outage for a day; these defaults give up within an hour.
    """

    attempts: int = 24
    age: int = 3600

    def __post_init__(self) -> None:
        for name, value in (("attempts", self.attempts), ("age", self.age)):
            if not isinstance(value, int):
                raise BusError(f"RetryPolicy {name} is {value!r}; it is a whole number.")
            low, high = int(facts(f"events.retry.min_{name}")), int(facts(f"events.retry.max_{name}"))
            if not low <= value <= high:
                raise BusError(f"RetryPolicy {name} is {value}; it can be {low} to {high}.")


@dataclass(frozen=True)
class Published:
    """What publishing came to: ``ids`` of the events in order, ``calls`` made and entries ``retried``."""

    ids: tuple[str, ...]
    calls: int
    retried: int


class Bus:
    """One event bus, by client and name. :meth:`create` makes one in a lab."""

    def __init__(
        self, client: Any, name: str, *, packer: Packer | None = None, tags: Mapping[str, str] | None = None
    ) -> None:
        self.client = client
        self.name = name
        self.packer = packer
        self._tags = dict(tags or {})

    @classmethod
    def create(cls, lab: Lab, name: str, *, packer: Packer | None = None, tags: Mapping[str, str] | None = None) -> Bus:
        """Make a bus in ``lab``. With ``packer``, oversized payloads go to S3 by themselves."""
        from botocore.exceptions import ClientError, ParamValidationError

        client, full = lab.client("events"), lab.resource_name(name)
        try:
            client.create_event_bus(Name=full, Tags=_tag_list({**lab.tags, **(tags or {})}))
        except (ClientError, ParamValidationError) as error:
            raise BusError(f"bus {name!r} was not made: {error}") from error
        return cls(client, full, packer=packer, tags=lab.tags)

    @property
    def arn(self) -> str:
        """The bus's ARN, as EventBridge has it."""
        return str(self.client.describe_event_bus(Name=self.name)["Arn"])

    def entry(self, envelope: Envelope, *, detail_type: str = REQUESTED, source: str = SOURCE) -> dict[str, Any]:
        """The PutEvents entry for an envelope, packed if need be. Raises :class:`BusError` when it can never fit."""
        packed = self.packer.pack(envelope) if self.packer else envelope
        made = {"EventBusName": self.name, "Source": source, "DetailType": detail_type, "Detail": packed.detail()}
        size, limit = entry_size(made), int(facts("events.put.request_bytes"))
        if size >= limit:
            raise BusError(
                f"the event of {envelope.trace_id} has {size} bytes and the bus takes less than {limit}; "
                "give the bus a claim check."
            )
        return made

    def publish(
        self,
        envelopes: Iterable[Envelope],
        *,
        detail_type: str = REQUESTED,
        source: str = SOURCE,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Published:
        """Publish envelopes in as few calls as the bus allows, entry by entry.

        Entries that failed and may succeed later are sent again, alone, five times at most. Raises
        :class:`PublishError` with those that did not get on the bus; the others are on it.
        """
        from botocore.exceptions import BotoCoreError

        listed = list(envelopes)
        entries = [self.entry(envelope, detail_type=detail_type, source=source) for envelope in listed]
        sizes = [entry_size(entry) for entry in entries]
        ids: dict[int, str] = {}
        failed: dict[str, tuple[str, str]] = {}
        calls = retried = 0
        most, most_bytes = int(facts("events.put.entries")), int(facts("events.put.request_bytes")) - 1  # "less than"
        for waiting in batches(
            range(len(entries)), sizes.__getitem__, max_items=most, max_bytes=most_bytes, what="entry"
        ):
            for attempt in range(1, _ATTEMPTS + 1):
                try:
                    answer = self.client.put_events(Entries=[entries[index] for index in waiting])
                except BotoCoreError as error:  # the call may have arrived or not: nobody knows of these entries
                    failed.update({listed[index].trace_id: ("Unknown", str(error)) for index in waiting})
                    break
                calls += 1
                again = []
                for index, result in zip(waiting, answer["Entries"], strict=True):
                    if "EventId" in result:
                        ids[index] = result["EventId"]
                    elif result["ErrorCode"] in _RETRIED and attempt < _ATTEMPTS:
                        again.append(index)
                    else:
                        failed[listed[index].trace_id] = (result["ErrorCode"], result.get("ErrorMessage", ""))
                if not again:
                    break
                retried += len(again)
                waiting = again
                sleep(_WAIT(attempt))
        if failed:
            raise PublishError(len(listed), failed)
        return Published(tuple(ids[index] for index in range(len(listed))), calls, retried)

    def rule(
        self,
        name: str,
        pattern: Mapping[str, Any],
        target: Receiver,
        *,
        retry: RetryPolicy | None = None,
        dlq: Receiver | None = None,
        group: str | None = None,
        tags: Mapping[str, str] | None = None,
    ) -> str:
        """Route events that match ``pattern`` to ``target`` and return the rule's ARN.

        Target and ``dlq`` get the queue policy that lets this rule send. ``group`` is the message group of everything
        that this rule sends to a FIFO or fair queue: a fixed name, EventBridge takes no path into the event. Raises
        :class:`PatternError` or :class:`BusError`.
        """
        from botocore.exceptions import ClientError, ParamValidationError

        try:
            listed = self.client.list_rules(EventBusName=self.name, NamePrefix=name)["Rules"]
            existed = any(rule["Name"] == name for rule in listed)
            arn = self.client.put_rule(
                Name=name,
                EventBusName=self.name,
                EventPattern=json.dumps(pattern),
                Tags=_tag_list({**self._tags, **(tags or {})}),
            )["RuleArn"]
        except ClientError as error:
            message = error.response["Error"]["Message"]
            if error.response["Error"]["Code"] == "InvalidEventPatternException":
                raise PatternError(f"the pattern of rule {name} is not valid: {_reason(message)}") from error
            raise BusError(f"rule {name} was not made: {message}") from error
        except ParamValidationError as error:
            raise BusError(f"rule {name} was not made: {error}") from error
        for receiver in (target, dlq):
            if receiver is not None:
                receiver.allow(SERVICE, arn)
        policy = retry or RetryPolicy()
        made: dict[str, Any] = {
            "Id": target.name.replace(".", "-"),
            "Arn": target.arn,
            "RetryPolicy": {"MaximumRetryAttempts": policy.attempts, "MaximumEventAgeInSeconds": policy.age},
        }
        if dlq is not None:
            made["DeadLetterConfig"] = {"Arn": dlq.arn}
        if group is not None:
            made["SqsParameters"] = {"MessageGroupId": group}
        try:
            self._put_target(name, made)
        except BusError:
            if not existed:  # nothing half-made stays; the queue policies name a rule that is not there
                self.client.delete_rule(Name=name, EventBusName=self.name)
            raise
        return str(arn)

    def _put_target(self, rule: str, target: Mapping[str, Any]) -> None:
        from botocore.exceptions import ClientError, ParamValidationError

        try:
            answer = self.client.put_targets(Rule=rule, EventBusName=self.name, Targets=[target])
        except ClientError as error:
            raise BusError(f"rule {rule} got no target: {error.response['Error']['Message']}") from error
        except ParamValidationError as error:
            raise BusError(f"rule {rule} got no target: {error}") from error
        if answer["FailedEntryCount"]:
            fault = answer["FailedEntries"][0]
            raise BusError(f"rule {rule} got no target: {fault.get('ErrorCode')}, {fault.get('ErrorMessage')}")

    def matches(self, pattern: Mapping[str, Any], event: Mapping[str, Any]) -> bool:
        """Whether EventBridge would match ``event`` (a whole one, as it is delivered). Raises :class:`PatternError`."""
        from botocore.exceptions import ClientError

        try:
            answer = self.client.test_event_pattern(EventPattern=json.dumps(pattern), Event=json.dumps(event))
        except ClientError as error:
            raise PatternError(f"the pattern is not valid: {_reason(error.response['Error']['Message'])}") from error
        return bool(answer["Result"])

    def __repr__(self) -> str:
        return f"<Bus {self.name}>"


def _reason(message: str) -> str:
    return message.removeprefix("Event pattern is not valid. Reason: ").split("\n")[0]


def _tag_list(tags: Mapping[str, str]) -> Sequence[dict[str, str]]:
    return [{"Key": key, "Value": value} for key, value in tags.items()]
