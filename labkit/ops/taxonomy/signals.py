"""Signals: what can be seen of a fleet from outside, one number each.

None of them moves while nothing is wrong, and none reads a message. CloudWatch's counts outlive what they counted, so
two readings are compared. Most are AWS's own counts; some are the fleet's (what its workers and its provider were
told); the last one is a comparison, of what was sent with what was done, and it alone sees work that vanished without
an error anywhere.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from labkit.ops.taxonomy.fleet import Fleet
from labkit.ops.taxonomy.once import once

__all__ = ["SIGNALS", "Reading", "Signal", "read"]

_RULES = (
    "MatchedEvents", "RetryInvocationAttempts", "FailedInvocations", "InvocationsSentToDlq",
    "InvocationsFailedToBeSentToDlq",
)  # fmt: skip
_QUEUES, _FUNCTIONS = ("NumberOfMessagesReceived", "NumberOfMessagesSent"), ("Errors", "Throttles")


class Reading:
    """One look at a fleet. What several signals need is asked for once."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet

    @once
    def counted(self) -> Counter[str]:
        """CloudWatch's sums since the fleet began, by metric: of both rules, both queues and the function together.

        From a fixed moment on: in a window that moves along, old counts drop out while new ones come.
        """
        fleet, function = self.fleet, self.fleet.made("function")
        rules = [{"EventBusName": fleet.bus.name, "RuleName": rule} for rule in fleet.rules]
        series = [("AWS/Events", name, where) for name in _RULES for where in rules]
        queues = [{"QueueName": queue.name} for queue in fleet.rules.values()]
        series += [("AWS/SQS", name, where) for name in _QUEUES for where in queues]
        if function:
            series += [("AWS/Lambda", name, {"FunctionName": function.name}) for name in _FUNCTIONS]
        queries = []
        for index, (namespace, name, where) in enumerate(series):
            dimensions = [{"Name": key, "Value": value} for key, value in where.items()]
            metric = {"Namespace": namespace, "MetricName": name, "Dimensions": dimensions}
            queries.append({"Id": f"m{index}", "MetricStat": {"Metric": metric, "Period": 60, "Stat": "Sum"}})
        answer = fleet.cloudwatch.get_metric_data(
            MetricDataQueries=queries, StartTime=fleet.began, EndTime=datetime.now(UTC) + timedelta(minutes=1)
        )
        found: Counter[str] = Counter()
        for result in answer["MetricDataResults"]:
            found[series[int(result["Id"][1:])][1]] += sum(result["Values"])
        return found

    @property
    def heard(self) -> Counter[str]:
        """How deliveries to the worker ended."""
        return self.fleet.ledger.events

    @once
    def timed_out(self) -> int:
        """Attempts at a state that were given up, in the histories of all executions."""
        events = (
            event
            for each in self.fleet.executions
            for page in each.client.get_paginator("get_execution_history").paginate(executionArn=each.arn)
            for event in page["events"]
        )
        return sum(event["type"] == "TaskTimedOut" for event in events)

    @once
    def refused(self) -> int:
        """Calls that the provider did not answer."""
        provider = self.fleet.made("provider")
        return provider.hits.count() - provider.hits.count(outcome="ok") if provider else 0

    @once
    def vanished(self) -> int:
        """Sent, not done and in no queue: twice in a row, since what passes from one place to the next is in none."""
        first = self.fleet.missing(self.fleet.outbox)
        if not first:
            return 0
        time.sleep(0.5)
        return min(first, self.fleet.missing(self.fleet.outbox))


@dataclass(frozen=True)
class Signal:
    """``name``, ``where`` it is read, and how: a number, larger when there is more of it."""

    name: str
    where: str
    of: Callable[[Reading], float]

    def read(self, fleet: Fleet) -> float:
        """Its value now."""
        return self.of(Reading(fleet))


def _depths(reading: Reading) -> float:
    return sum(queue.dlq.depth().total for queue in reading.fleet.rules.values() if queue.dlq)


SIGNALS: Mapping[str, Signal] = {
    signal.name: signal
    for signal in (
        Signal("MatchedEvents beyond sent", "AWS/Events", lambda r: r.counted["MatchedEvents"] - r.fleet.published),
        Signal("RetryInvocationAttempts", "AWS/Events", lambda r: r.counted["RetryInvocationAttempts"]),
        Signal("FailedInvocations", "AWS/Events", lambda r: r.counted["FailedInvocations"]),
        Signal("InvocationsSentToDlq", "AWS/Events", lambda r: r.counted["InvocationsSentToDlq"]),
        Signal("InvocationsFailedToBeSentToDlq", "AWS/Events", lambda r: r.counted["InvocationsFailedToBeSentToDlq"]),
        Signal("depth of the rule's DLQ", "SQS", lambda r: r.fleet.rule_dlq.depth().total),
        Signal("depth of a queue's DLQ", "SQS", _depths),
        Signal("received beyond sent", "AWS/SQS", lambda r: r.counted[_QUEUES[0]] - r.counted[_QUEUES[1]]),
        Signal("Errors", "AWS/Lambda", lambda r: r.counted["Errors"]),
        Signal("Throttles", "AWS/Lambda", lambda r: r.counted["Throttles"]),
        Signal(
            "deliveries failed", "worker", lambda r: r.fleet.ledger.events["failed"] + r.fleet.ledger.events["dead"]
        ),
        Signal("messages lost", "worker", lambda r: r.heard["lost"]),
        Signal("TaskTimedOut", "history", lambda r: r.timed_out),
        Signal("executions failed", "Step Functions", lambda r: sum(e.status == "FAILED" for e in r.fleet.executions)),
        Signal("stale callbacks", "worker", lambda r: r.fleet.callbacks.counts["stale"]),
        Signal("calls refused", "provider", lambda r: r.refused),
        Signal("sent, not done, nowhere", "ledger", lambda r: r.vanished),
    )
}


def read(fleet: Fleet) -> dict[str, float]:
    """All of them now."""
    reading = Reading(fleet)
    return {name: signal.of(reading) for name, signal in SIGNALS.items()}
