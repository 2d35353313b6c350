"""How EventBridge delivers one event to one target: attempts, retries, dead-letter queue, metrics.

**On AWS** a failure that a retry cannot mend (no permission, the target is gone) goes straight to the target's
dead-letter queue; any other is retried (:mod:`parity.events_retry`), then goes there. The message is the original
event with the attributes RULE_ARN, TARGET_ARN, ERROR_CODE, ERROR_MESSAGE, RETRY_ATTEMPTS and, when a limit of the
retry policy ended the delivery, EXHAUSTED_RETRY_CONDITION. Without a queue, or when the queue cannot be written, the
event is gone, and only a metric says so (EventBridge User Guide, "Using dead-letter queues to process undelivered
events" and "Monitoring Amazon EventBridge").

**MiniStack** makes one attempt, logs a failure and loses the event; there is no queue policy, no dead-letter queue
and no metric.

**Here** the :class:`Engine` makes the first attempt at once, in the call that brought the event, so that a reader
finds the message right after ``PutEvents``; retries run on one timer thread. Chosen by us, for want of a source:

* The event's age counts from its arrival, not from its ``Time``. Waits are divided by the clock scale of the rule or
  bus, time that an attempt really takes is not: a scaled run gives the same attempts as an unscaled one.
* EXHAUSTED_RETRY_CONDITION is absent when no limit was exhausted; all attributes are strings; the texts are ours.
* A rule or target that is removed while a retry is pending ends the delivery: with the target its dead-letter
  configuration is gone too, so the event is dropped and counted in FailedInvocations. A disabled rule does not end
  it.

Nothing here knows MiniStack; :mod:`parity.events_targets` is the adapter.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from .events_retry import Backoff, RetryPolicy, Timer, next_step
from .settings import CLOCK_SCALE, positive_float

# Errors that a retry cannot mend. The first two are AWS's own words; the rest are requests that the target's API
# refuses as wrong, which AWS does not retry either (4xx other than throttling).
NOT_RETRIED = frozenset({"NO_PERMISSIONS", "NO_RESOURCE", "INVALID_PARAMETER", "INVALID_JSON", "SDK_CLIENT_ERROR"})

logger = logging.getLogger("parity.events")


class Failure(Exception):
    """A delivery attempt that failed, as EventBridge would report it in ERROR_CODE and ERROR_MESSAGE."""

    def __init__(self, code: str, message: str, *, retried: bool | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retried = code not in NOT_RETRIED if retried is None else retried


class Invocation(Protocol):
    """One event on its way to one target of one rule."""

    rule_arn: str
    target_arn: str
    policy: RetryPolicy
    scale: float  # how many times faster than real time the waits pass
    blocking: bool  # an attempt may take seconds (HTTP): keep it off the caller's and the timer's thread
    has_dead_letter_queue: bool

    def send(self) -> None:
        """Make one attempt. Raises :class:`Failure`."""

    def wanted(self) -> bool:
        """Whether the rule still has this target."""

    def bury(self, attributes: Mapping[str, str]) -> None:
        """Write the original event to the dead-letter queue. Raises :class:`Failure`."""

    def count(self, metric: str) -> None:
        """Count one for a metric of the rule."""


def dead_letter_attributes(
    *, rule_arn: str, target_arn: str, failure: Failure, retries: int, exhausted: str | None
) -> dict[str, str]:
    """The attributes of a dead-lettered event. ``retries`` does not count the first attempt."""
    attributes = {
        "RULE_ARN": rule_arn,
        "TARGET_ARN": target_arn,
        "ERROR_CODE": failure.code,
        "ERROR_MESSAGE": failure.message,
        "RETRY_ATTEMPTS": str(retries),
    }
    if exhausted:
        attributes["EXHAUSTED_RETRY_CONDITION"] = exhausted
    return attributes


def clock_scale(rule_tags: Mapping[str, str], bus_tags: Mapping[str, str], default: float) -> float:
    """The clock scale of a delivery: the rule's tag, else the bus's, else ``default``."""
    return positive_float(rule_tags, CLOCK_SCALE, positive_float(bus_tags, CLOCK_SCALE, default))


# Which series each metric has: one for the rule, one for its event bus, one for the whole account and Region.
DIMENSIONS: Mapping[str, str] = {
    "MatchedEvents": "rule",  # its series of the bus counts an event once, however many rules it matches
    "TriggeredRules": "rule bus all",
    "Invocations": "rule all",
    "InvocationAttempts": "rule bus all",
    "SuccessfulInvocationAttempts": "rule bus all",
    "RetryInvocationAttempts": "rule bus all",
    "FailedInvocations": "rule",
    "InvocationsSentToDlq": "rule",
    "InvocationsFailedToBeSentToDlq": "rule",
}


def series(metric: str, *, bus: str, rule: str) -> Iterator[dict[str, str]]:
    """The dimensions of each series that one count of ``metric`` goes to.

    A rule of the default bus is named by RuleName alone, one of another bus by EventBusName and RuleName.
    """
    kinds = DIMENSIONS[metric].split()
    if "rule" in kinds:
        yield {"RuleName": rule} if bus == "default" else {"EventBusName": bus, "RuleName": rule}
    if "bus" in kinds:
        yield {"EventBusName": bus}
    if "all" in kinds:
        yield {}


@dataclass
class Delivery:
    """Where one delivery stands: the only state that passes from attempt to attempt."""

    invocation: Invocation
    started: float
    retries: int = 0
    waited: float = 0.0  # seconds on AWS's clock, before scaling

    def age(self, now: float) -> float:
        """The event's age in seconds: real time since it arrived, with each wait counted at its unscaled length."""
        return now - self.started + self.waited * (1 - 1 / self.invocation.scale)


class Engine:
    """Delivers events: first attempt at once, retries when their time has come, each to exactly one end."""

    def __init__(
        self,
        timer: Timer,
        *,
        backoff: Backoff | None = None,
        chance: Callable[[], float] = random.random,
        background: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        self._timer = timer
        self._backoff = backoff or Backoff()
        self._chance = chance
        self._background = background or (lambda job: job())

    def deliver(self, invocation: Invocation) -> None:
        """Take one event for one target. Never raises: what becomes of it shows in the queue and the metrics."""
        self._start(Delivery(invocation, self._timer.clock()))

    def _start(self, delivery: Delivery) -> None:
        attempt = partial(self._attempt, delivery)
        if delivery.invocation.blocking:
            self._background(attempt)
        else:
            attempt()

    def _attempt(self, delivery: Delivery) -> None:
        try:
            self._try(delivery)
        except Exception:
            logger.exception("a delivery to %s was lost to an error of the stand-in", delivery.invocation.target_arn)

    def _try(self, delivery: Delivery) -> None:
        invocation = delivery.invocation
        if delivery.retries and not invocation.wanted():
            self._count_lost(invocation)
            return
        invocation.count("InvocationAttempts")
        if delivery.retries:
            invocation.count("RetryInvocationAttempts")
        try:
            invocation.send()
        except Failure as failure:
            self._failed(delivery, failure)
        except Exception as error:  # an error of ours must not cost the event
            logger.exception("a delivery attempt to %s broke", invocation.target_arn)
            self._failed(delivery, Failure("INTERNAL_ERROR", f"Internal error: {type(error).__name__}."))
        else:
            invocation.count("SuccessfulInvocationAttempts")
            invocation.count("Invocations")

    def _failed(self, delivery: Delivery, failure: Failure) -> None:
        if not failure.retried:
            self._give_up(delivery, failure, None)
            return
        invocation = delivery.invocation
        now = self._timer.clock()
        step = next_step(
            invocation.policy,
            self._backoff,
            retries=delivery.retries,
            age=delivery.age(now),
            chance=self._chance(),
        )
        delivery.waited += step.wait
        due = now + step.wait / invocation.scale
        if step.exhausted is None:
            delivery.retries += 1
            self._timer.at(due, partial(self._start, delivery))
        elif step.wait:
            self._timer.at(due, partial(self._expire, delivery, failure, step.exhausted))
        else:
            self._give_up(delivery, failure, step.exhausted)

    def _expire(self, delivery: Delivery, failure: Failure, exhausted: str) -> None:
        if delivery.invocation.wanted():
            self._give_up(delivery, failure, exhausted)
        else:
            self._count_lost(delivery.invocation)

    def _give_up(self, delivery: Delivery, failure: Failure, exhausted: str | None) -> None:
        invocation = delivery.invocation
        self._count_lost(invocation)
        if not invocation.has_dead_letter_queue:
            return
        attributes = dead_letter_attributes(
            rule_arn=invocation.rule_arn,
            target_arn=invocation.target_arn,
            failure=failure,
            retries=delivery.retries,
            exhausted=exhausted,
        )
        try:
            invocation.bury(attributes)
        except Failure as lost:
            logger.info("an event for %s reached no dead-letter queue: %s", invocation.target_arn, lost.message)
            invocation.count("InvocationsFailedToBeSentToDlq")
        except Exception:
            logger.exception("the dead-letter queue of %s could not be written", invocation.target_arn)
            invocation.count("InvocationsFailedToBeSentToDlq")
        else:
            invocation.count("InvocationsSentToDlq")

    @staticmethod
    def _count_lost(invocation: Invocation) -> None:
        invocation.count("Invocations")
        invocation.count("FailedInvocations")
