"""What CreatePipe and UpdatePipe refuse.

**On AWS** the service model bounds each member. Recorded: a batch that is larger than what the enrichment takes is
ValidationException, whose ``fieldList`` names BatchSize, and whose message is the same list as JSON; a name that is
taken, ConflictException; one that is unknown, NotFoundException. Documented: the batch of the source is no larger than
the target's (10 for a queue, a topic and a bus). What the poller refuses shows later, as CREATE_FAILED or START_FAILED
with "Input parameter is invalid from the request due to : …" (quoted from AWS in public): a window on a FIFO queue,
more than 10 messages without a window, a queue that does not exist (which of these, and with which text: not verified;
here they are those of an event source mapping, whose poller it is). The other texts are not verified either, nor is
the order in which AWS looks at all this. That the role may read the source is checked on AWS when the pipe is made
("The provided customer role does not have permissions to call ReceiveMessage on SQS"); here a role is a name.

**MiniStack** refuses a taken name, a desired state that is none, another Region, and a FIFO topic.

**Here** :func:`check_request` raises :class:`Refused`, and :func:`poller_refusal` says what the poller would say."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from parity import esm_checks
from parity.esm_filter import MAX_FILTERS
from parity.pipes_template import MAX_TEMPLATE

ARN = re.compile(r"arn:aws[a-zA-Z0-9-]*:([a-zA-Z0-9-]+):([a-z]{2,4}(-gov|-de|-iso[a-z]?)?-[a-z]+(-\d)?)?:(\d{12})?:.+")
ROLE = re.compile(r"arn:(aws[a-zA-Z-]*)?:iam::\d{12}:role/?[a-zA-Z0-9+=,.@\-_/]+")
NAME = re.compile(r"[.\-_A-Za-z0-9]{1,64}")
EVENT_SOURCE = re.compile(r"(?!aws\.).*[/.\-_A-Za-z0-9]+.*|\$(\.[\w/-]+(\[(\d+|\*)\])*)*")
TIME_PATH = re.compile(r"\$(\.[\w/-]+(\[(\d+|\*)\])*)*")
TEMPLATE = "InputTemplate"
INVOCATIONS = ("REQUEST_RESPONSE", "FIRE_AND_FORGET")
MAX_ARN, MAX_DESCRIPTION, MAX_PATTERN, MAX_TAGS = 1600, 512, 4096, 50
MAX_BATCH, DEFAULT_BATCH, MAX_WINDOW = 10_000, 10, 300
TARGET_BATCH = {"sqs": 10, "sns": 10, "events": 10}  # by the target's service; the others take what comes
ENRICHMENTS = ("lambda", "states")
TARGETS = ("events", "lambda", "sqs", "states")

Request = Mapping[str, Any]


class Refused(Exception):
    """A refused call."""

    def __init__(self, code: str, message: str, status: int = 400, **members: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status
        self.members = members


def invalid(name: str, message: str) -> Refused:
    """One member that does not go with the others."""
    text = json.dumps({"ValidationErrorFields": [{"Name": name, "Message": message}]}, separators=(",", ":"))
    return Refused("ValidationException", text, fieldList=[{"name": name, "message": message}])


def constraint(where: str, value: object, bound: str) -> Refused:
    """One member that is bad by itself."""
    text = (
        f"1 validation error detected: Value '{value}' at '{where}' failed to satisfy constraint: Member must {bound}"
    )
    return Refused("ValidationException", text, fieldList=[{"name": where, "message": f"Member must {bound}"}])


def not_found(name: str) -> Refused:
    return Refused("NotFoundException", f"Pipe {name} does not exist.", 404)


def taken(name: str) -> Refused:
    message = f"Pipe {name} already exists."
    return Refused("ConflictException", message, 409, resourceId=name, resourceType="Pipe")


def busy(name: str, state: str) -> Refused:
    message = f"Pipe {name} is in the state {state} and cannot be changed."
    return Refused("ConflictException", message, 409, resourceId=name, resourceType="Pipe")


def service_of(arn: Any) -> str:
    return [*str(arn or "").split(":"), "", "", ""][2]


def batch_size(pipe: Request) -> int:
    return int(_inside(pipe, "SourceParameters", "SqsQueueParameters", "BatchSize") or DEFAULT_BATCH)


def window(pipe: Request) -> int:
    return int(_inside(pipe, "SourceParameters", "SqsQueueParameters", "MaximumBatchingWindowInSeconds") or 0)


def _inside(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def check_types(request: Request) -> None:
    """Raise unless each member that holds others is of the type that the service model says."""
    sides = [request.get(name) for name in ("SourceParameters", "EnrichmentParameters", "TargetParameters")]
    parts = [part for side in sides if isinstance(side, Mapping) for name, part in side.items() if name != TEMPLATE]
    filters = _inside(request, "SourceParameters", "FilterCriteria", "Filters")
    objects = [*sides, *parts, request.get("Tags"), *(filters if isinstance(filters, list) else [])]
    if not isinstance(filters, list | None) or not all(isinstance(one, Mapping | None) for one in objects):
        raise Refused("SerializationException", "A member of the request is of the wrong type.")


def check_request(name: str, pipe: Request, refuses_pattern: Callable[[str], bool]) -> None:
    """Raise unless a pipe can be as ``pipe`` says."""
    if not NAME.fullmatch(name):
        raise constraint("name", name, "satisfy regular expression pattern: [\\.\\-_A-Za-z0-9]+, 1 to 64 characters")
    _shape("roleArn", pipe.get("RoleArn"), ROLE)
    _shape("source", pipe.get("Source"), ARN)
    _shape("target", pipe.get("Target"), ARN)
    if pipe.get("Enrichment"):
        _shape("enrichment", pipe["Enrichment"], ARN)
    _length("description", pipe.get("Description"), MAX_DESCRIPTION)
    _one_of("desiredState", pipe.get("DesiredState"), ("RUNNING", "STOPPED"))
    if len(pipe.get("Tags") or {}) > MAX_TAGS:
        raise constraint("tags", "…", f"have length less than or equal to {MAX_TAGS}")
    _check_filters(pipe, refuses_pattern)
    _check_batch(pipe)
    for side in ("EnrichmentParameters", "TargetParameters"):
        where = f"{side[0].lower()}{side[1:]}.inputTemplate"
        _length(where, _inside(pipe, side, TEMPLATE), MAX_TEMPLATE)
    _check_target(pipe)


def _shape(where: str, value: Any, pattern: re.Pattern[str]) -> None:
    if not value:
        raise constraint(where, "null", "not be null")
    if not isinstance(value, str) or len(value) > MAX_ARN or not pattern.fullmatch(value):
        raise constraint(where, value, f"satisfy regular expression pattern: {pattern.pattern}")


def _length(where: str, value: Any, most: int) -> None:
    if value is not None and (not isinstance(value, str) or len(value) > most):
        raise constraint(where, value, f"have length less than or equal to {most}")


def _one_of(where: str, value: Any, values: tuple[str, ...]) -> None:
    if value is not None and value not in values:
        raise constraint(where, value, f"satisfy enum value set: [{', '.join(values)}]")


def _number(where: str, value: Any, least: int, most: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise constraint(where, value, "be an integer")
    if not least <= value <= most:
        bound = f"greater than or equal to {least}" if value < least else f"less than or equal to {most}"
        raise constraint(where, value, f"have value {bound}")


def _check_filters(pipe: Request, refuses_pattern: Callable[[str], bool]) -> None:
    filters = _inside(pipe, "SourceParameters", "FilterCriteria", "Filters") or []
    if len(filters) > MAX_FILTERS:
        where = "sourceParameters.filterCriteria.filters"
        raise constraint(where, f"{len(filters)} filters", f"have length less than or equal to {MAX_FILTERS}")
    for number, entry in enumerate(filters, 1):
        pattern = str(_inside(entry, "Pattern") or "")
        where = f"sourceParameters.filterCriteria.filters.{number}.member.pattern"
        _length(where, pattern, MAX_PATTERN)
        if refuses_pattern(pattern):
            raise invalid("FilterCriteria", "Invalid filter pattern definition.")


def _check_batch(pipe: Request) -> None:
    parameters = _inside(pipe, "SourceParameters", "SqsQueueParameters") or {}
    where = "sourceParameters.sqsQueueParameters"
    _number(f"{where}.batchSize", parameters.get("BatchSize"), 1, MAX_BATCH)
    _number(f"{where}.maximumBatchingWindowInSeconds", parameters.get("MaximumBatchingWindowInSeconds"), 0, MAX_WINDOW)
    size, service = batch_size(pipe), service_of(pipe.get("Target"))
    most = TARGET_BATCH.get(service)
    if most is not None and size > most:
        bound = f"greater than the max supported batch size {most} for target {service}"
        raise invalid("BatchSize", f"The configured batch size {size} is {bound}.")


def _check_target(pipe: Request) -> None:
    arn, parameters = str(pipe["Target"]), pipe.get("TargetParameters") or {}
    if service_of(arn) == "sns" and arn.endswith(".fifo"):
        raise invalid("Target", "SNS FIFO topics are not supported as a pipe target.")
    for kind in ("LambdaFunctionParameters", "StepFunctionStateMachineParameters"):
        where = f"targetParameters.{kind[0].lower()}{kind[1:]}.invocationType"
        _one_of(where, _inside(parameters, kind, "InvocationType"), INVOCATIONS)
    for member in ("MessageGroupId", "MessageDeduplicationId"):
        where = f"targetParameters.sqsQueueParameters.{member[0].lower()}{member[1:]}"
        _length(where, _inside(parameters, "SqsQueueParameters", member), 100)
    bus = parameters.get("EventBridgeEventBusParameters") or {}
    where = "targetParameters.eventBridgeEventBusParameters"
    _length(f"{where}.detailType", bus.get("DetailType"), 128)
    _length(f"{where}.source", bus.get("Source"), 256)
    if bus.get("Source") is not None and not EVENT_SOURCE.fullmatch(bus["Source"]):
        raise constraint(
            f"{where}.source", bus["Source"], "satisfy regular expression pattern: not beginning with aws."
        )
    if bus.get("Time") is not None and not TIME_PATH.fullmatch(str(bus["Time"])):
        raise constraint(f"{where}.time", bus["Time"], "satisfy regular expression pattern: a JSON path")
    if len(bus.get("Resources") or []) > 10:
        raise constraint(f"{where}.resources", "…", "have length less than or equal to 10")


def poller_refusal(pipe: Request, queue: Mapping[str, Any] | None) -> str | None:
    """Why the pipe's poller cannot start, as StateReason shows it; None when it can."""
    enrichment, target = service_of(pipe.get("Enrichment")), service_of(pipe["Target"])
    if pipe.get("Enrichment") and enrichment not in ENRICHMENTS:
        return f"This stand-in for AWS has no enrichment by {enrichment}; it has {' and '.join(ENRICHMENTS)}."
    if target not in TARGETS:
        return f"This stand-in for AWS has no target {target}; it has {', '.join(TARGETS)}."
    try:
        if queue is None:
            raise esm_checks.no_queue()
        settings = {"BatchSize": batch_size(pipe), "MaximumBatchingWindowInSeconds": window(pipe)}
        esm_checks.check_mapping(settings, fifo=bool(queue.get("is_fifo")))
        if queue.get("is_fifo") and settings["BatchSize"] > esm_checks.NEEDS_WINDOW:
            raise esm_checks.invalid(
                f"Batch size {settings['BatchSize']} is greater than 10, the most of a FIFO queue."
            )
    except esm_checks.Refused as refused:
        return f"Input parameter is invalid from the request due to : {refused.message}"
    return None
