"""What CreateEventSourceMapping and UpdateEventSourceMapping refuse for a queue.

**On AWS**

* the service model bounds each number: BatchSize 1 to 10,000, the window 0 to 300 seconds, MaximumConcurrency 2 to
  1,000, and so on;
* recorded: a BatchSize above 10 without a window, a queue or a function that does not exist, a second mapping of the
  same queue and function, a destination, a pattern that is none, no event source at all;
* quoted from AWS in public: a visibility timeout below the function's timeout, a window for a FIFO queue, a
  StartingPosition;
* documented: MaximumConcurrency and provisioned mode exclude each other, a mapping in provisioned mode has at least 2
  pollers, a mapping has at most five filters. Code and texts of these are not verified, nor is the order in which AWS
  looks at all this.

The visibility timeout is looked at when the mapping is made or changed, not when the queue is.

**MiniStack** accepts everything but a MaximumConcurrency out of bounds.

**Here** :func:`check_request` and :func:`check_mapping` raise :class:`Refused`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from parity.esm_filter import MAX_FILTERS, patterns_of
from parity.esm_response import REPORT

# Members, where they are, least, most: of the service model
BOUNDS: tuple[tuple[str, ...], ...] = (
    ("BatchSize",),
    ("MaximumBatchingWindowInSeconds",),
    ("ScalingConfig", "MaximumConcurrency"),
    ("ProvisionedPollerConfig", "MinimumPollers"),
    ("ProvisionedPollerConfig", "MaximumPollers"),
)
LEAST_MOST = {
    "BatchSize": (1, 10_000),
    "MaximumBatchingWindowInSeconds": (0, 300),
    "MaximumConcurrency": (2, 1_000),
    "MinimumPollers": (1, 200),
    "MaximumPollers": (1, 10_000),
}
MAX_PATTERN = 4_096  # characters
NEEDS_WINDOW = 10  # messages: a larger BatchSize does
LEAST_POLLERS = 2
# Of Kinesis, DynamoDB Streams and Kafka only.
FOREIGN = (
    "BisectBatchOnFunctionError",
    "DestinationConfig",
    "MaximumRecordAgeInSeconds",
    "MaximumRetryAttempts",
    "ParallelizationFactor",
    "TumblingWindowInSeconds",
)

Request = Mapping[str, Any]


class Refused(Exception):
    """A refused call."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.status = status


def invalid(message: str) -> Refused:
    return Refused("InvalidParameterValueException", message)


def constraint(value: object, where: str, bound: str) -> Refused:
    text = (
        f"1 validation error detected: Value '{value}' at '{where}' failed to satisfy constraint: Member must {bound}"
    )
    return Refused("ValidationException", text)


def not_found() -> Refused:
    return Refused("ResourceNotFoundException", "The resource you requested does not exist.", 404)


def in_use(verb: str) -> Refused:
    return Refused("ResourceInUseException", f"Cannot {verb} the event source mapping because it is in use.")


def no_source() -> Refused:
    return invalid("Unrecognized event source.")


def no_function() -> Refused:
    return invalid("Function does not exist")


def no_queue() -> Refused:
    return invalid(
        "Error occurred while ReceiveMessage. SQS Error Code: AWS.SimpleQueueService.NonExistentQueue. "
        "SQS Error Message: The specified queue does not exist."
    )


def duplicate(arn: str, function: str, uuid: str) -> Refused:
    return Refused(
        "ResourceConflictException",
        f'An event source mapping with SQS arn (" {arn} ") and function (" {function} ") already exists. '
        f"Please update or delete the existing mapping with UUID {uuid}",
        409,
    )


def check_request(request: Request, refuses_pattern: Callable[[str], bool]) -> None:
    """Raise unless each member of a request is good by itself."""
    for path in BOUNDS:
        value: Any = request
        for name in path:
            value = (value or {}).get(name)
        if value is not None:
            where = ".".join(name[0].lower() + name[1:] for name in path)
            _check_number(value, where, *LEAST_MOST[path[-1]])
    for kind in request.get("FunctionResponseTypes") or []:
        if kind != REPORT:
            raise constraint(
                f"[{kind}]",
                "functionResponseTypes",
                f"satisfy constraint: [Member must satisfy enum value set: [{REPORT}]]",
            )
    for name in FOREIGN:
        if request.get(name):
            raise invalid(f"Unsupported {name} parameter for given event source mapping type.")
    if request.get("StartingPosition"):
        raise invalid("StartingPosition is not valid for SQS event sources.")
    _check_patterns(patterns_of(request), refuses_pattern)


def _check_number(value: Any, where: str, least: int, most: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise constraint(value, where, "be an integer")
    if value < least:
        raise constraint(value, where, f"have value greater than or equal to {least}")
    if value > most:
        raise constraint(value, where, f"have value less than or equal to {most}")


def _check_patterns(patterns: list[str], refuses_pattern: Callable[[str], bool]) -> None:
    for pattern in patterns:
        if len(pattern) > MAX_PATTERN:
            where = "filterCriteria.filters.1.member.pattern"
            raise constraint(pattern, where, f"have length less than or equal to {MAX_PATTERN}")
    if len(patterns) > MAX_FILTERS:
        raise invalid(f"A mapping has at most {MAX_FILTERS} filters, and {len(patterns)} were given.")
    if any(map(refuses_pattern, patterns)):
        raise invalid("Invalid filter pattern definition.")


def check_mapping(mapping: Request, *, fifo: bool) -> None:
    """Raise unless the members of a mapping go together."""
    size, window = mapping["BatchSize"], mapping["MaximumBatchingWindowInSeconds"]
    if fifo and window:
        raise invalid("Batching window is not supported for FIFO queues")
    if size > NEEDS_WINDOW and not window:
        raise invalid(
            "Maximum batch window in seconds must be greater than 0 if maximum batch size is greater than "
            f"{NEEDS_WINDOW}"
        )
    pollers = mapping.get("ProvisionedPollerConfig") or {}
    if not pollers:
        return
    if mapping.get("ScalingConfig"):
        raise invalid("ScalingConfig and ProvisionedPollerConfig cannot be used together.")
    least, most = pollers.get("MinimumPollers"), pollers.get("MaximumPollers")
    if min(least or LEAST_POLLERS, most or LEAST_POLLERS) < LEAST_POLLERS:
        raise invalid(f"An Amazon SQS event source mapping has at least {LEAST_POLLERS} pollers.")
    if least and most and least > most:
        raise invalid(f"MinimumPollers {least} is greater than MaximumPollers {most}.")


def check_timeouts(visibility: int, timeout: int) -> None:
    """Raise when messages would become visible again while the function may still be running."""
    if visibility < timeout:
        raise invalid(
            f"Queue visibility timeout: {visibility} seconds is less than Function timeout: {timeout} seconds"
        )
