"""The taxonomy's rows of the control plane: publisher → bus, rule → target, rule → dead-letter queue."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from labkit.ops.faults import Unanswered, inject
from labkit.ops.taxonomy.fleet import Fleet
from labkit.ops.taxonomy.row import Row
from labkit.work.queues import Queue

RULE = "researcher"


@contextmanager
def lost_answer(fleet: Fleet) -> Iterator[None]:
    """The bus takes the events and its answer is lost: the publisher's SDK sends them again."""
    with inject(fleet.bus.client, Unanswered(), "PutEvents", times=1):
        yield


@contextmanager
def throttled_target(fleet: Fleet) -> Iterator[None]:
    """The target refuses deliveries as too many. On the stand-in: AWS gives no way to cause it on a queue."""
    with tagged(fleet.queue, {"lab:fault": "THROTTLING"}):
        yield


@contextmanager
def no_permission(fleet: Fleet) -> Iterator[None]:
    """The target's queue policy is gone: the most frequent mistake of a deployment."""
    with without_policy(fleet.queue):
        yield


@contextmanager
def wrong_target(fleet: Fleet) -> Iterator[None]:
    """The rule names a queue that does not exist."""
    with retargeted(fleet, Arn=f"{fleet.queue.arn}-v2"):
        yield


@contextmanager
def no_dlq(fleet: Fleet) -> Iterator[None]:
    """The target has no dead-letter queue, and its policy is gone."""
    with retargeted(fleet, DeadLetterConfig=None), without_policy(fleet.queue):
        yield


@contextmanager
def broken_dlq(fleet: Fleet) -> Iterator[None]:
    """The target has a dead-letter queue that lets nobody in."""
    with without_policy(fleet.rule_dlq), without_policy(fleet.queue):
        yield


# -- the means -----------------------------------------------------------------------------------------------------


@contextmanager
def tagged(queue: Queue, tags: Mapping[str, str]) -> Iterator[None]:
    """``queue`` with more tags, or others, for the time of a block."""
    before = queue.client.list_queue_tags(QueueUrl=queue.url).get("Tags", {})
    try:
        queue.client.tag_queue(QueueUrl=queue.url, Tags=dict(tags))
        yield
    finally:
        queue.client.untag_queue(QueueUrl=queue.url, TagKeys=list(tags))
        if old := {key: before[key] for key in tags if key in before}:
            queue.client.tag_queue(QueueUrl=queue.url, Tags=old)


@contextmanager
def without_policy(queue: Queue) -> Iterator[None]:
    """``queue`` without its policy, for the time of a block."""
    asked = queue.client.get_queue_attributes(QueueUrl=queue.url, AttributeNames=["Policy"])
    policy = asked.get("Attributes", {}).get("Policy", "")
    try:
        queue.client.set_queue_attributes(QueueUrl=queue.url, Attributes={"Policy": ""})
        yield
    finally:
        queue.client.set_queue_attributes(QueueUrl=queue.url, Attributes={"Policy": policy})


@contextmanager
def retargeted(fleet: Fleet, **changes: Any) -> Iterator[None]:
    """The rule's target with ``changes``, for the time of a block; None takes a field away."""
    where = {"Rule": RULE, "EventBusName": fleet.bus.name}
    [target] = fleet.bus.client.list_targets_by_rule(**where)["Targets"]
    changed = {name: value for name, value in {**target, **changes}.items() if value is not None}
    try:
        fleet.bus.client.put_targets(**where, Targets=[changed])
        yield
    finally:
        fleet.bus.client.put_targets(**where, Targets=[target])


def send_on(fleet: Fleet, ids: list[str]) -> None:
    fleet.send_on()


def resend(fleet: Fleet, ids: list[str]) -> None:
    fleet.resend(ids)


_HOP = "rule → target"
_RETRIES = "RetryPolicy: 24 retries or 1 h"
_SENT_ON = "mend, then read, send on, delete: no move task takes a rule's letters"
_OUTBOX = "the sender keeps an outbox and publishes again what the ledger lacks"

ROWS = (
    Row(
        "answer-lost", "publisher → bus", "the answer of PutEvents is lost", "each event is there twice",
        "MatchedEvents beyond sent", "one record for each trace id: the second delivery runs nothing",
        "the client's attempts", lost_answer,
    ),
    Row(
        "target-throttled", _HOP, "target unavailable or throttled", "events come late",
        "RetryInvocationAttempts", "EventBridge's own retries", _RETRIES, throttled_target, recover=send_on,
    ),
    Row(
        "target-forbidden", _HOP, "no permission", "nothing arrives; not one retry",
        "depth of the rule's DLQ", _SENT_ON, "no wait: NO_PERMISSIONS is not retried", no_permission, recover=send_on,
    ),
    Row(
        "target-gone", _HOP, "the target does not exist", "nothing arrives; not one retry",
        "depth of the rule's DLQ", _SENT_ON, "no wait: NO_RESOURCE is not retried", wrong_target, recover=send_on,
    ),
    Row(
        "no-dlq", _HOP, "the same without a dead-letter queue", "nothing, anywhere",
        "FailedInvocations", _OUTBOX, "none", no_dlq, recover=resend, silent=True,
    ),
    Row(
        "dlq-broken", "rule → its DLQ", "the dead-letter queue lets nobody in", "nothing, anywhere",
        "InvocationsFailedToBeSentToDlq", _OUTBOX, "none", broken_dlq, recover=resend, silent=True,
    ),
)  # fmt: skip

__all__ = ["ROWS", "retargeted", "tagged", "without_policy"]
