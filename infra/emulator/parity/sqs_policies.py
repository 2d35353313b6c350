"""RedrivePolicy and RedriveAllowPolicy: who may use which queue as a dead-letter queue.

**On AWS** a RedrivePolicy is checked when it is set: fields, range, the dead-letter queue's existence, its type. The
dead-letter queue's RedriveAllowPolicy says which queues may name it: ``allowAll`` (default), ``denyAll``, or
``byQueue`` with up to ten source ARNs (Developer Guide, "Using dead-letter queues"; API reference SetQueueAttributes).
It is checked when a source queue is created or changed; a policy that comes later leaves existing sources alone.
``ListDeadLetterSourceQueues`` names them (API reference).

Texts: those for a missing maxReceiveCount, a missing dead-letter queue and a wrong type were quoted from AWS in public,
the others agree between several copies; all have the code InvalidParameterValue. That a refused source queue gets
InvalidParameterValue is not verified, its text is ours. The texts for a bad RedriveAllowPolicy are not verified.

**MiniStack** has one text for every bad RedrivePolicy, under InvalidAttributeValue, does not compare types, stores a
RedriveAllowPolicy without a look at it, and does not know ListDeadLetterSourceQueues.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from parity import sqs_errors as errors
from parity.sqs_errors import SqsError
from parity.sqs_mailbox import Queue, redrive_policy
from parity.sqs_queues import page, page_limit

MAX_SOURCES = 10
Handler = Callable[[dict[str, Any], str], dict[str, Any]]
_CANNOT = "Amazon SQS can't create the redrive allow policy"
_FIELDS = ("maxReceiveCount", "deadLetterTargetArn")


@dataclass(frozen=True)
class Source:
    """The queue that gets a RedrivePolicy."""

    arn: str
    fifo: bool


def _refused(policy: str, reason: str) -> SqsError:
    return errors.invalid_value("RedrivePolicy", policy, reason)


def check_redrive_policy(policy: str, source: Source | None, find: Callable[[str], Queue | None]) -> None:
    """Raise unless ``source`` may have this RedrivePolicy. ``find`` gives the queue for an ARN."""
    try:
        fields = json.loads(policy)
    except (ValueError, RecursionError):
        fields = None
    if not isinstance(fields, dict):
        text = "Invalid value for the parameter RedrivePolicy. Reason: Redrive policy is not a valid JSON map."
        raise SqsError("InvalidParameterValue", text)
    for name in _FIELDS:
        if name not in fields:
            raise _refused(policy, f"Redrive policy does not contain mandatory attribute: {name}.")
    if set(fields) - set(_FIELDS):
        raise _refused(policy, f"Only following attributes are supported: [{', '.join(_FIELDS)}].")
    count = str(fields["maxReceiveCount"])
    if not (count.isascii() and count.isdigit() and len(count) <= 9 and 1 <= int(count) <= 1000):
        reason = f"Invalid value for maxReceiveCount: {count}, valid values are from 1 to 1000 both inclusive."
        raise _refused(policy, reason)
    arn = str(fields["deadLetterTargetArn"])
    parts = arn.split(":")
    if len(parts) != 6 or parts[0] != "arn":
        raise _refused(policy, "Dead-letter target ARN should be fully qualified ARN.")
    if parts[2] != "sqs":
        raise _refused(policy, "Only SQS queues are valid resources for deadLetterTargetArn.")
    same_place = source is None or parts[3:5] == source.arn.split(":")[3:5]
    if source is not None and arn == source.arn:
        return  # a queue may name itself, even while it is being created
    target = find(arn) if same_place else None
    if target is None:
        raise _refused(policy, "Dead letter target does not exist.")
    if source is None:
        return
    if bool(target.get("is_fifo")) != source.fifo:
        raise _refused(policy, "Dead-letter queue must be same type of queue as the source..")  # both dots are AWS's
    if not admits(target["attributes"].get("RedriveAllowPolicy"), source.arn):
        raise _refused(policy, "The redrive allow policy of the dead-letter queue does not permit this source queue.")


def admits(allow_policy: str | None, source_arn: str) -> bool:
    """Whether a dead-letter queue with this RedriveAllowPolicy takes ``source_arn`` as a source."""
    fields = json.loads(allow_policy) if allow_policy else {}
    permission = fields.get("redrivePermission", "allowAll")
    return permission == "allowAll" or (permission == "byQueue" and source_arn in fields.get("sourceQueueArns", []))


def check_allow_policy(policy: str) -> None:
    """Raise unless ``policy`` is a RedriveAllowPolicy."""
    try:
        fields = json.loads(policy)
    except (ValueError, RecursionError):
        fields = None
    arns = fields.get("sourceQueueArns") if isinstance(fields, dict) else None
    if (
        not isinstance(fields, dict)
        or fields.get("redrivePermission") not in ("allowAll", "denyAll", "byQueue")
        or set(fields) - {"redrivePermission", "sourceQueueArns"}
        or not (arns is None or (isinstance(arns, list) and all(isinstance(arn, str) for arn in arns)))
    ):
        reason = f"{_CANNOT}, as it’s in an unsupported format."
        raise SqsError("InvalidParameterValue", f"Invalid value for the parameter RedriveAllowPolicy. Reason: {reason}")
    reason = None
    if fields["redrivePermission"] != "byQueue":
        if arns is not None:
            reason = "To specify one or more source queue ARNs, you must set redrivePermission to byQueue."
    elif not arns:
        reason = (
            "When you specify the byQueue permission type, you must also specify one or more sourceQueueArns values."
        )
    elif len(arns) > MAX_SOURCES:
        reason = f"The maximum number of source queue ARNs you can specify is {MAX_SOURCES}."
    if reason:
        raise errors.invalid_value("RedriveAllowPolicy", policy, f"{_CANNOT}. {reason}")


def sources_of(queues: Iterable[Queue], arn: str) -> list[Queue]:
    """Those of ``queues`` that use the queue ``arn`` as their dead-letter queue."""
    return [queue for queue in queues if (redrive_policy(queue) or ("",))[0] == arn]


def install() -> None:
    from ministack.services import sqs

    create, change = sqs._HANDLERS["CreateQueue"], sqs._HANDLERS["SetQueueAttributes"]
    _ = sqs._validate_redrive_policy, sqs._queue_by_arn, sqs._externalize_url

    checked: ContextVar[bool] = ContextVar("redrive policy checked", default=False)

    def without_source(policy: str) -> None:
        check_redrive_policy(policy, None, sqs._queue_by_arn)

    def after_check(handler: Handler, data: dict[str, Any], url: str) -> dict[str, Any]:
        token = checked.set(True)
        try:
            return handler(data, url)
        finally:
            checked.reset(token)

    def check(attributes: dict[str, Any], source: Source) -> None:
        if attributes.get("RedrivePolicy"):
            check_redrive_policy(str(attributes["RedrivePolicy"]), source, sqs._queue_by_arn)
        if attributes.get("RedriveAllowPolicy"):
            check_allow_policy(str(attributes["RedriveAllowPolicy"]))

    def create_queue(data: dict[str, Any], url: str) -> dict[str, Any]:
        name = data.get("QueueName", "")
        attributes = dict(data.get("Attributes") or {})
        arn = f"arn:aws:sqs:{sqs.get_region()}:{sqs.get_account_id()}:{name}"
        check(attributes, Source(arn, name.endswith(".fifo")))
        for policy in ("RedrivePolicy", "RedriveAllowPolicy"):
            if attributes.get(policy) == "":
                del attributes[policy]
        return after_check(create, {**data, "Attributes": attributes}, url)

    def set_queue_attributes(data: dict[str, Any], url: str) -> dict[str, Any]:
        queue = sqs._get_q(data.get("QueueUrl") or url, "sqs:SetQueueAttributes")
        check(data.get("Attributes") or {}, Source(queue["attributes"]["QueueArn"], bool(queue["is_fifo"])))
        return after_check(change, data, url)

    def list_sources(data: dict[str, Any], url: str) -> dict[str, Any]:
        queue = sqs._get_q(data.get("QueueUrl") or url, "sqs:ListDeadLetterSourceQueues")
        limit = page_limit(data.get("MaxResults"))
        found = sorted(q["url"] for q in sources_of(sqs._queues.values(), queue["attributes"]["QueueArn"]))
        urls, token = page(found, limit, data.get("NextToken"))
        result: dict[str, Any] = {"queueUrls": [sqs._externalize_url(found_url) for found_url in urls]}
        return {**result, "NextToken": token} if token else result

    # Called by the two handlers that are wrapped here, after ours, and by CloudFormation, which tells no source.
    sqs._validate_redrive_policy = lambda policy: None if checked.get() else without_source(policy)
    sqs._HANDLERS["CreateQueue"] = sqs._act_create_queue = create_queue
    sqs._HANDLERS["SetQueueAttributes"] = sqs._act_set_queue_attributes = set_queue_attributes
    sqs._HANDLERS["ListDeadLetterSourceQueues"] = list_sources
