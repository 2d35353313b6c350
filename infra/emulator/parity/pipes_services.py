"""What a pipe touches, as an interface: its source queue, and the services of its enrichment and its target.

**On AWS** a pipe calls other services with their public APIs, in its own account and Region, and reacts to what they
answer in one of four ways: the service took it; it took it in part; it refused (the batch goes back to the source); it
asked for patience (the batch is tried again with the same receive).

**MiniStack** has all services in one process.

**Here** :class:`Services` has two implementations: :mod:`parity.pipes_inside` calls the other services of this process,
:mod:`parity.pipes_beside` those of another emulator, which lacks Pipes, over AWS's protocols. :func:`refusal` says what
an error code means to a pipe; it is the same for both."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from parity import esm_poller
from parity.esm_records import Record

THROTTLES = frozenset(
    {
        "ExecutionLimitExceeded",
        "RequestThrottled",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
MISSING = frozenset(
    {
        "AWS.SimpleQueueService.NonExistentQueue",
        "QueueDoesNotExist",
        "ResourceNotFoundException",
        "StateMachineDoesNotExist",
    }
)
UNSUPPORTED = "StateMachineTypeNotSupported"
HIDDEN = 420 + 30  # seconds, and the batching window: how long a poller that gathers hides what it receives

Takes = Callable[[Record], bool]
Message = dict[str, Any]  # the members of SendMessage, without the queue


class Failed(Exception):
    """The whole batch goes back. ``missing``: what was called does not exist."""

    def __init__(self, message: str, *, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


class Unsupported(Failed):
    """The state machine cannot be called like this, now or later."""


class Throttled(Exception):
    """Another attempt may succeed, with the same receive."""


class Unreached(Throttled):
    """Nothing answers: the service did not refuse, it is not there at the moment."""


class Stopped(Exception):
    """The pipe cannot work as it is, and stops itself."""


def refusal(code: str, message: str) -> Exception:
    """What a service's error means to the pipe that called it."""
    text = f"{code}: {message}"
    if code in THROTTLES:
        return Throttled(text)
    if code == UNSUPPORTED:
        return Unsupported(text)
    return Failed(text, missing=code in MISSING)


class Source(esm_poller.Queue, Protocol):
    """The hands of one pipe's poller in its source queue."""

    def serves(self, queue: Mapping[str, Any]) -> bool:
        """Whether ``queue`` (see :meth:`Services.glance`) still is the one that this source reads."""

    def configure(self, window: int, takes: Takes) -> Takes:
        """The pipe was made or changed. Returns what remains for the poller to filter."""

    def close(self) -> None:
        """Receive no more, and keep nothing that was received and not handed over."""

    def ended(self, within: float) -> bool:
        """Whether nothing of it is at work any more, at the latest after ``within`` seconds."""


class Services(Protocol):
    """The services around a pipe. All calls are made in the scope of the pipe's account and Region.

    What cannot be done raises :class:`Failed` or :class:`Throttled`.
    """

    def queue(self, arn: str) -> Mapping[str, Any] | None:
        """The queue, with ``is_fifo``; None where there is none."""

    def glance(self, arn: str) -> Mapping[str, Any] | None:
        """The same for whoever looks every second: it costs no call, and may not notice that the queue is gone."""

    def source(self, pipe: Mapping[str, Any], queue: Mapping[str, Any], gone: Callable[[], None]) -> Source:
        """Begin to read ``queue``. ``gone()`` is called when it turns out not to exist."""

    def send(self, arn: str, messages: Sequence[Message], *, ordered: bool) -> set[int]:
        """Send to a queue. Returns the indices of what was not taken; ``ordered``: and all that comes after it."""

    def put(self, bus: str, entries: Sequence[dict[str, Any]]) -> set[int]:
        """Put events on a bus. Returns the indices of what was not taken."""

    def call(self, function: str, payload: str) -> Any:
        """Invoke a function and wait for its answer."""

    def send_to(self, function: str, payload: str) -> None:
        """Have a function invoked."""

    def run(self, machine: str, payload: str) -> Mapping[str, Any]:
        """Have an Express state machine execute, and wait for the answer of StartSyncExecution."""

    def start(self, machine: str, payload: str) -> None:
        """Start an execution."""

    def count(self, namespace: str, name: str, dimensions: Mapping[str, str], value: float, unit: str) -> None:
        """Count for a metric; never raises, never waits."""


def each(number: int, send: Callable[[int], None], *, ordered: bool) -> set[int]:
    """Send each item, and return the indices of those that failed. Raises when what was called does not exist."""
    failed: set[int] = set()
    for index in range(number):
        if failed and ordered:
            failed.add(index)
            continue
        try:
            send(index)
        except Failed as error:
            if error.missing and index == 0:
                raise
            failed.add(index)
    return failed
