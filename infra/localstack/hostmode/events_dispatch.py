"""From an event on a bus to the targets of its rules: attempts, retries, dead-letter queues, metrics.

**On AWS**: see :mod:`parity.events_delivery`, :mod:`parity.events_retry`, :mod:`parity.events_dispatch` and
:mod:`parity.events_cascade`, which hold the rules.

**LocalStack** makes one attempt on a thread of its own, logs a failure and loses the event; it has no dead-letter queue
and no metrics, takes disabled rules for enabled ones, sends a replay to every rule, and gives an event that is passed
on to another bus a new id each time, as often as buses pass it on.

**Here** each matched target becomes an :class:`~parity.events_delivery.Invocation` for the engine that the embedded
stand-in has as well, with LocalStack's sender making the attempt. The first attempts are made in the call that brought
the event, so that a reader finds the message right after ``PutEvents``.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from parity.events_cascade import Cascades, second_hop
from parity.events_delivery import Engine, Failure, clock_scale, series
from parity.events_dispatch import NAMESPACE
from parity.events_envelope import in_order, text
from parity.events_retry import Timer
from parity.events_targets import OfTarget, no_resource
from parity.settings import positive_float

from .events_input import BUS_NAME
from .events_targets import bury, check, failure_of
from .metrics import publish


@dataclass
class Arrival:
    """An event that has come to a bus."""

    provider: Any
    account: str
    region: str
    bus: str
    event: Mapping[str, Any]
    trace_header: Any
    passed_on: bool = False  # it came from another bus

    @property
    def store(self) -> Any:
        return self.provider.get_store(self.region, self.account)

    def count(self, metric: str, rule: str) -> None:
        for dimensions in series(metric, bus=self.bus, rule=rule):
            publish(self.account, self.region, NAMESPACE, metric, dimensions)


@dataclass
class RuleTarget(OfTarget):
    """One event for one target of a rule: the :class:`~parity.events_delivery.Invocation` of LocalStack."""

    arrival: Arrival
    rule: str
    rule_arn: str
    target: Mapping[str, Any]
    sender: Any
    scale: float
    dispatcher: Dispatcher

    def send(self) -> None:
        check(self.target_arn, self.rule_arn, self.target.get("RoleArn"))
        sender = self.sender
        if ":event-bus/" in self.target_arn:
            sender = copy.copy(sender)
            sender.send_event = self._pass_on
        try:
            sender.process_event(dict(self.arrival.event), self.arrival.trace_header)
        except Exception as error:
            failure = failure_of(error)
            if failure is None:
                raise
            raise failure from error

    def _pass_on(self, event: Any, trace_header: Any) -> None:
        """Bring the event to the bus that is the target, as the event that it was where it came from."""
        arrival, provider = self.arrival, self.arrival.provider
        _, _, _, region, account, resource = self.target_arn.split(":", 5)
        store = provider.get_store(region, account)
        bus = store.event_buses.get(resource.split("/", 1)[1])
        if bus is None:
            raise no_resource(self.target_arn)
        if arrival.passed_on:
            raise second_hop(arrival.event["id"])
        if not isinstance(event, dict):
            raise Failure("INVALID_JSON", "The input of an event bus must be a JSON object.")
        passed = {
            **arrival.event,
            "source": self.sender._get_source(event),
            "detail-type": self.sender._get_detail_type(event),
            "resources": self.sender._get_resources(event),
            "detail": event.get("detail", event),
            BUS_NAME: bus.name,
        }
        self.dispatcher.arrive(Arrival(provider, account, region, bus.name, passed, trace_header, passed_on=True))

    def wanted(self) -> bool:
        bus = self.arrival.store.event_buses.get(self.arrival.bus)
        rule = bus.rules.get(self.rule) if bus else None
        target = rule.targets.get(self.target["Id"]) if rule else None
        return bool(target) and target["Arn"] == self.target_arn

    def bury(self, attributes: Mapping[str, str]) -> None:
        event = {name: value for name, value in self.arrival.event.items() if name != BUS_NAME}
        bury(self.dead_letter_arn, text(in_order(event)), self.rule_arn, attributes)

    def count(self, metric: str) -> None:
        self.arrival.count(metric, self.rule)


class Dispatcher:
    """Brings events to the targets of rules."""

    def __init__(self) -> None:
        # HTTP requests get threads of their own; 16 endpoints may hang without holding up a seventeenth for long.
        self._engine = Engine(Timer(), background=ThreadPoolExecutor(16, "events-http").submit)
        self._cascades = Cascades(ThreadPoolExecutor(4, "events-cascade").submit)

    def arrive(self, arrival: Arrival) -> None:
        """Hand an event that has come to a bus to the rules that match it."""
        self._cascades.add(self._matches(arrival), f"event {arrival.event['id']}")

    def fire(self, arrival: Arrival, rule: Any) -> None:
        """Hand the event of a scheduled rule to the targets of that rule."""
        self._cascades.add(self._to_targets(arrival, rule), f"event {arrival.event['id']}")

    def _matches(self, arrival: Arrival) -> Iterator[None]:
        from localstack.utils.event_matcher import matches_event

        provider, event, store = arrival.provider, arrival.event, arrival.store
        bus = store.event_buses.get(arrival.bus)
        matched = False
        for rule in list(bus.rules.values()) if bus else []:
            if rule.state == "DISABLED" or not rule.event_pattern:
                continue
            if not matches_event(rule.event_pattern, dict(event)):
                continue
            archives = [target["Arn"] for target in list(rule.targets.values()) if ":archive/" in target["Arn"]]
            for arn in archives:
                if archive := provider._archive_service_store.get(arn):
                    archive.put_events([dict(event)])
            if archives or not _replayed_to(event, rule.arn, store.replays):
                continue
            matched = True
            arrival.count("MatchedEvents", rule.name)
            yield from self._to_targets(arrival, rule)
        if matched:
            publish(arrival.account, arrival.region, NAMESPACE, "MatchedEvents", {"EventBusName": arrival.bus})

    def _to_targets(self, arrival: Arrival, rule: Any) -> Iterator[None]:
        """Hand the event to each target of the rule, one a step."""
        arrival.count("TriggeredRules", rule.name)
        store, default = arrival.store, positive_float(os.environ, "LAB_CLOCK_SCALE", 1.0)
        tags, bus_arn = store.TAGS.tags, store.event_buses[arrival.bus].arn
        scale = clock_scale(tags.get(rule.arn) or {}, tags.get(bus_arn) or {}, default)
        for target in list(rule.targets.values()):
            sender = arrival.provider._target_sender_store.get(f"{rule.arn}-{target['Id']}")
            if sender is not None:  # a call that puts this target at this moment makes its sender last
                self._engine.deliver(RuleTarget(arrival, rule.name, rule.arn, target, sender, scale, self))
            yield


@lru_cache(1)
def dispatcher() -> Dispatcher:
    """The one of this process."""
    return Dispatcher()


def _replayed_to(event: Mapping[str, Any], rule_arn: str, replays: Mapping[str, Any]) -> bool:
    replay = replays.get(event.get("replay-name", ""))
    rules = replay.destination.get("FilterArns") if replay else None
    return not rules or rule_arn in rules


def install() -> None:
    from localstack.services.events import provider
    from localstack.services.events.provider import EventsProvider
    from localstack.services.events.target import EventsTargetSender, TargetSender
    from localstack.utils.tagging import TaggingService

    def process_rules(self: EventsProvider, params: Mapping[str, Any]) -> None:
        event = params["event_formatted"]
        arrival = Arrival(self, params["account_id"], params["region"], event[BUS_NAME], event, params["trace_header"])
        dispatcher().arrive(arrival)

    def at_once(method: Any, params: Any = None, name: str | None = None) -> None:
        method(params)

    # Named here so that a release without them fails at the start, not at the first event.
    _ = EventsProvider._process_rules_async, EventsProvider.get_store, provider.start_worker_thread
    _ = EventsTargetSender._get_source, EventsTargetSender._get_detail_type, EventsTargetSender._get_resources
    _ = TargetSender.process_event, TaggingService().tags
    EventsProvider._process_rules_async = process_rules
    provider.start_worker_thread = at_once
