"""The attempts at one asynchronous event, until it succeeds or is given up.

**On AWS** each attempt has the request id of the Invoke call and runs the function as it is at that moment; an attempt
that is throttled was none (Lambda Developer Guide, "How Lambda handles errors and retries with asynchronous
invocation"; recorded on AWS: ids, an update of the function between two attempts).

**MiniStack** runs all attempts in one thread with the function as it was, and counts throttled ones.

**Here** is the :class:`Engine`; :mod:`parity.lambda_retry` says when, :mod:`parity.lambda_async` is the adapter. Waits
are divided by the clock scale, and count in the event's age at their full length; what an attempt really takes is not
scaled: a scaled run makes the same attempts as an unscaled one. An event whose function is gone is dropped.
"""

from __future__ import annotations

import contextvars
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .events_retry import Timer
from .lambda_request import Request, current
from .lambda_retry import (
    AGE_EXCEEDED,
    SUCCESS,
    ZERO_CONCURRENCY,
    Response,
    RetryPolicy,
    Step,
    after_function_error,
    after_throttle,
)

logger = logging.getLogger("parity.lambda")


@dataclass(frozen=True)
class Function:
    """A function as an attempt finds it: what to run, and what is configured for its asynchronous events."""

    config: Mapping[str, Any]
    run: Callable[[Any], dict[str, Any]]
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    on_success: str | None = None
    on_failure: str | None = None
    dead_letter: str | None = None
    stopped: bool = False  # a reserved concurrency of 0
    scale: float = 1.0


@dataclass
class Event:
    """One event and where it stands."""

    arn: str  # the function as it was addressed, with a version or an alias
    payload: Any
    request: Request
    text: str  # the payload as it came
    arrived: float
    scale: float = 1.0
    waited: float = 0.0  # seconds on AWS's clock
    invocations: int = 0
    throttles: int = 0
    response: Response | None = None
    context: contextvars.Context = field(default_factory=contextvars.copy_context)

    def age(self, now: float) -> float:
        """The age in seconds: real time since it arrived, with each wait counted at its unscaled length."""
        return now - self.arrived + self.waited * (1 - 1 / self.scale)


class Engine:
    """Makes the attempts. ``find`` is the function by its ARN, or None; ``count`` adds to one of its metrics."""

    def __init__(
        self,
        timer: Timer,
        *,
        find: Callable[[str], Function | None],
        submit: Callable[..., Any],
        count: Callable[[Function, str], None],
        deliver: Callable[[Function, Event, str], None],
    ) -> None:
        self._timer = timer
        self._find = find
        self._submit = submit
        self._count = count
        self._deliver = deliver

    def accept(self, event: Event) -> None:
        function = self._find(event.arn)
        if function is not None:
            event.scale = function.scale
            self._count(function, "AsyncEventsReceived")
            self._submit(self._attempt, event)

    def _attempt(self, event: Event) -> None:
        try:
            event.context.copy().run(self._try, event)
        except Exception:
            logger.exception("an asynchronous event for %s was lost to an error of the stand-in", event.arn)

    def _try(self, event: Event) -> None:
        function = self._find(event.arn)
        if function is None:
            return
        if function.stopped:
            self._end(function, event, ZERO_CONCURRENCY)
            return
        if event.age(self._timer.clock()) >= function.policy.age:
            self._end(function, event, AGE_EXCEEDED)
            return
        current.set(event.request)
        try:
            result = function.run(event.payload)
        except Exception:  # an error of ours is one of the service: retried like a throttled attempt
            logger.exception("an attempt at an asynchronous event for %s failed", event.arn)
            result = {"throttle": True}
        if not result.get("throttle"):
            event.invocations += 1
            body, failed = result.get("body"), result.get("function_error") if result.get("error") else None
            event.response = Response(body.decode(errors="replace") if isinstance(body, bytes) else body, failed)
        if not result.get("error") and not result.get("throttle"):
            self._end(function, event, SUCCESS)
            return
        step = self._next(function.policy, event, throttled=bool(result.get("throttle")))
        if step.condition:
            self._end(function, event, step.condition)
            return
        event.waited += step.wait
        self._timer.at(self._timer.clock() + step.wait / event.scale, lambda: self._submit(self._attempt, event))

    def _next(self, policy: RetryPolicy, event: Event, *, throttled: bool) -> Step:
        age = event.age(self._timer.clock())
        if throttled:
            event.throttles += 1
            return after_throttle(policy, throttles=event.throttles, age=age)
        return after_function_error(policy, errors=event.invocations, age=age)

    def _end(self, function: Function, event: Event, condition: str) -> None:
        current.set(None)  # what the delivery sets off, a rule's function for one, is a request of its own
        if condition != SUCCESS:
            self._count(function, "AsyncEventsDropped")
        self._deliver(function, event, condition)
