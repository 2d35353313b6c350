"""PutTargets and RemoveTargets: what a rule's target may look like.

**On AWS** a rule has at most five targets; ids and the retry policy have bounds; a FIFO queue needs a message group,
a state machine a role; of Input, InputPath and InputTransformer one may be given, and a template may only name what
is defined. The whole call is refused and nothing is changed. A target with an id that is there already replaces it.
The dead-letter queue must be a standard queue in the rule's Region. (Recorded: the sixth target, the ids, the inputs,
the placeholder, the replacement. From public error reports: the message group and the role. Not verified: the retry
policy's text, whether PutTargets or only the delivery refuses a wrong dead-letter queue, and how; removing an unknown
id.)

**MiniStack** checks the form of the ARN only, keeps two targets of one id when they come in one call, and never says
that an id to remove was unknown.

**Here** the checks come before MiniStack's handler.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .events_rules import Refused, Request, check_name, constraint, guard, invalid

MAX_TARGETS = 5
MAX_ID = 64
RETRIES = (0, 185)
AGE = (60, 86_400)
ROLE_SERVICES = frozenset({"states", "codebuild", "codepipeline"})

_PLACEHOLDER = re.compile(r"<([A-Za-z0-9_.\-]+)>")

Target = Mapping[str, Any]


def check_targets(targets: Sequence[Target], existing: Iterable[str], region: str) -> None:
    """Raise :class:`Refused` unless a rule in ``region`` with the targets ``existing`` (ids) can have ``targets``."""
    for position, target in enumerate(targets, 1):
        check_name(target.get("Id") or "", f"targets.{position}.member.id", MAX_ID)
        _check_retry_policy(target.get("RetryPolicy") or {}, f"targets.{position}.member.retryPolicy")
    for target in targets:
        _check_input(target)
        _check_parameters(target)
        _check_dead_letter_queue(target, region)
    if len({*existing, *(target["Id"] for target in targets)}) > MAX_TARGETS:
        raise Refused("LimitExceededException", "The requested resource exceeds the maximum number allowed.")


def _check_retry_policy(policy: Mapping[str, Any], where: str) -> None:
    for member, place, (low, high) in (
        ("MaximumRetryAttempts", "maximumRetryAttempts", RETRIES),
        ("MaximumEventAgeInSeconds", "maximumEventAgeInSeconds", AGE),
    ):
        value = policy.get(member)
        if value is None:
            continue
        if value < low:
            raise constraint(value, f"{where}.{place}", f"have value greater than or equal to {low}")
        if value > high:
            raise constraint(value, f"{where}.{place}", f"have value less than or equal to {high}")


def _check_input(target: Target) -> None:
    if sum(target.get(member) is not None for member in ("Input", "InputPath", "InputTransformer")) > 1:
        raise invalid(f"Only one of Input, InputPath, or InputTransformer must be provided for target {target['Id']}.")
    transformer = target.get("InputTransformer") or {}
    defined = transformer.get("InputPathsMap") or {}
    for name in _PLACEHOLDER.findall(transformer.get("InputTemplate") or ""):
        if name not in defined and not name.startswith("aws.events."):
            raise invalid(f"InputTemplate for target {target['Id']} contains invalid placeholder {name}.")


def _check_parameters(target: Target) -> None:
    arn = target.get("Arn") or ""
    service = arn.split(":")[2] if arn.count(":") >= 5 else ""
    if service == "sqs" and arn.endswith(".fifo") and not (target.get("SqsParameters") or {}).get("MessageGroupId"):
        raise invalid(f"Parameter(s) SqsParameters must be specified for target: {target['Id']}.")
    if service in ROLE_SERVICES and not target.get("RoleArn"):
        raise invalid(f"RoleArn is required for target {arn}.")


def _check_dead_letter_queue(target: Target, region: str) -> None:
    arn = (target.get("DeadLetterConfig") or {}).get("Arn")
    if not arn:
        return
    parts = arn.split(":")
    reason = None
    if len(parts) != 6 or parts[0] != "arn" or parts[2] != "sqs":
        reason = "The dead-letter queue must be an Amazon SQS queue"
    elif arn.endswith(".fifo"):
        reason = "The dead-letter queue must be a standard queue"
    elif parts[3] != region:
        reason = "The dead-letter queue must be in the same Region as the rule"
    if reason:
        raise invalid(f"Parameter DeadLetterConfig.Arn of target {target['Id']} is not valid. Reason: {reason}.")


def last_of_each_id(targets: Sequence[Target]) -> list[Target]:
    """Of targets with one id in one call, the last stands, as it would in two calls."""
    return list({target["Id"]: target for target in targets}.values())


def unknown_ids(rule: str, ids: Iterable[str], existing: Iterable[str]) -> list[dict[str, str]]:
    """The FailedEntries of RemoveTargets."""
    known = set(existing)
    return [
        {
            "TargetId": target,
            "ErrorCode": "ResourceNotFoundException",
            "ErrorMessage": f"Rule '{rule}' does not have a target with the Id '{target}'.",
        }
        for target in ids
        if target not in known
    ]


def page(items: Sequence[Any], start: int, limit: int | None) -> tuple[Sequence[Any], int | None]:
    """One page of a listing, and where the next one starts."""
    end = start + (limit or 100)
    return items[start:end], end if end < len(items) else None


def install() -> None:
    from ministack.core.responses import error_response_json, get_region, json_response
    from ministack.services import eventbridge as eb

    remove = eb._remove_targets
    decode, encode = eb._opaque_offset_decode, eb._opaque_offset_encode

    def stored(request: Request) -> list[Target]:
        return eb._targets.get(eb._rule_key(request.get("Rule"), request.get("EventBusName", "default"))) or []

    def checked(request: Request) -> Request:
        targets = request.get("Targets") or []
        check_targets(targets, [target["Id"] for target in stored(request)], get_region())
        return {**request, "Targets": last_of_each_id(targets)}

    def remove_targets(request: Request) -> tuple:
        failed = unknown_ids(request["Rule"], request.get("Ids") or [], [target["Id"] for target in stored(request)])
        remove(request)
        return json_response({"FailedEntryCount": len(failed), "FailedEntries": failed})

    def list_targets(request: Request) -> tuple:
        shown, following = page(stored(request), decode(request.get("NextToken") or ""), request.get("Limit"))
        answer: dict[str, Any] = {"Targets": list(shown)}
        if following is not None:
            answer["NextToken"] = encode(following)
        return json_response(answer)

    guard(eb, error_response_json, "_put_targets", checked)
    eb._remove_targets = remove_targets
    eb._list_targets_by_rule = list_targets
