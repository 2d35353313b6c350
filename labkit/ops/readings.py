"""Readings: what is asked of SQS and CloudWatch about a fleet, under the names that Prometheus gets.

====================================================  ==================  ==========================================
name                                                  labels              what
====================================================  ==================  ==========================================
``sqs_queue_depth``                                   queue, agent_class  messages that can be received
``sqs_queue_in_flight``                               queue, agent_class  received and not deleted
``sqs_queue_visibility_timeout_seconds``              queue, agent_class  the queue's own setting
``sqs_queue_oldest_age_seconds``                      queue, agent_class  of the oldest message; from CloudWatch
``sqs_dlq_depth``                                     queue, agent_class  all that a dead-letter queue holds
``eventbridge_retry_invocation_attempts``             bus, rule           in the last :data:`WINDOW` minutes
``eventbridge_invocations_sent_to_dlq``               bus, rule           the same
``eventbridge_invocations_failed_to_be_sent_to_dlq``  bus, rule           the same
====================================================  ==================  ==========================================

What EventBridge counts is a sum over a window, and a gauge: CloudWatch publishes minutes late, and some never (fact
``events.metric.period``). A sum that is taken anew each time needs no memory, and survives a restart.
"""

from __future__ import annotations

from labkit.facts import facts
from labkit.ops.metrics import Clients, latest, sums
from labkit.work.queues import Queue

WINDOW = 10  # minutes over which EventBridge's counts are summed
_AGE = "ApproximateAgeOfOldestMessage"

_QUEUE, _RULE = ("queue", "agent_class"), ("bus", "rule")
GAUGES: dict[str, tuple[tuple[str, ...], str]] = {
    "sqs_queue_depth": (_QUEUE, "Messages that can be received."),
    "sqs_queue_in_flight": (_QUEUE, "Messages that are received and not deleted."),
    "sqs_queue_visibility_timeout_seconds": (_QUEUE, "The queue's own visibility timeout."),
    "sqs_queue_oldest_age_seconds": (_QUEUE, "Age of the oldest message, from CloudWatch."),
    "sqs_dlq_depth": (_QUEUE, "Messages in a dead-letter queue, hidden ones included."),
    "eventbridge_retry_invocation_attempts": (_RULE, f"Retries of deliveries in the last {WINDOW} minutes."),
    "eventbridge_invocations_sent_to_dlq": (_RULE, f"Events sent to the dead-letter queue in {WINDOW} minutes."),
    "eventbridge_invocations_failed_to_be_sent_to_dlq": (_RULE, f"Events lost at it in the last {WINDOW} minutes."),
}
RULES = dict(
    zip(
        (name for name, (labels, _) in GAUGES.items() if labels == _RULE),
        (str(facts(f"events.metric.{key}")) for key in ("retries", "sent_to_dlq", "not_sent_to_dlq")),
        strict=True,
    )
)

Found = dict[tuple[str, tuple[str, ...]], float]  # by name and labels


def queue(of: Queue, agent: str) -> Found:
    """Depth and setting in one call; a second one for the dead-letter queue. Raises what boto3 and the queue do."""
    names = ("ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible", "VisibilityTimeout")
    shown = ("sqs_queue_depth", "sqs_queue_in_flight", "sqs_queue_visibility_timeout_seconds")
    said = of.client.get_queue_attributes(QueueUrl=of.url, AttributeNames=[*names, "RedrivePolicy"])["Attributes"]
    found: Found = {(name, (of.name, agent)): float(said[key]) for name, key in zip(shown, names, strict=True)}
    if policy := said.get("RedrivePolicy"):
        dead = of.dlq if of.dlq is not None and f'"{of.dlq.arn}"' in policy else of.redrive()[0]
        found.update(dead_letters(dead, agent) if dead is not None else {})
    return found


def dead_letters(of: Queue, agent: str) -> Found:
    """All of them: a look at the letters hides them for a moment."""
    return {("sqs_dlq_depth", (of.name, agent)): float(of.depth().total)}


def age(clients: Clients, name: str, agent: str) -> Found:
    """The age of a queue's oldest message. A queue that nobody uses publishes none: that is not the age 0."""
    found = latest(clients, "AWS/SQS", [_AGE], {"QueueName": name}, minutes=WINDOW)[_AGE]
    return {} if found is None else {("sqs_queue_oldest_age_seconds", (name, agent)): found}


def rule(clients: Clients, bus: str, name: str) -> Found:
    """What went wrong between a rule and its targets."""
    series = {"RuleName": name} if bus == "default" else {"EventBusName": bus, "RuleName": name}
    found = sums(clients, "AWS/Events", RULES.values(), series, minutes=WINDOW)
    return {(shown, (bus, name)): found[key] for shown, key in RULES.items()}
