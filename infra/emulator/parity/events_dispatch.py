"""From a matched event to its targets.

**On AWS** a rule that matches counts in MatchedEvents and TriggeredRules, and hands the event to each of its targets,
which succeed or fail independently. A replay can be narrowed to some rules (``Destination.FilterArns``), its events
carry ``replay-name`` and are not archived again (botocore's ``StartReplay``; EventBridge User Guide, "Replaying
archived events" and "Monitoring Amazon EventBridge").

**MiniStack** delivers within the matching loop and publishes no metrics, sends a replay to every rule, and archives a
replayed event again when a rule forwards it to another archived bus.

**Here** every matched target becomes an :class:`~parity.events_delivery.Invocation` for the one engine. The clock
scale is read when the event arrives: the rule's tag, else the bus's, else the environment's LAB_CLOCK_SCALE.
"""

from __future__ import annotations

import contextvars
import functools
import logging
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from . import events_envelope, events_http, metrics
from .events_cascade import Cascades, second_hop
from .events_delivery import Engine, Failure, clock_scale, series
from .events_retry import Timer
from .events_targets import OfTarget, no_resource, send_to_function, send_to_queue, send_to_state_machine, send_to_topic
from .settings import positive_float

NAMESPACE = "AWS/Events"
PASSED_ON = "_PassedOn"  # member of the record of an event that a rule of another bus passed on

logger = logging.getLogger("parity.events")


@dataclass
class RuleTarget(OfTarget):
    """One event for one target of a rule: the :class:`~parity.events_delivery.Invocation` of this stand-in."""

    account: str
    region: str
    bus: str
    rule: Mapping[str, Any]
    target: Mapping[str, Any]
    event: str  # the original event as JSON
    deliver: Callable[[], None]  # one attempt, to be made in the rule's account and Region
    scale: float

    @property
    def rule_arn(self) -> str:
        return str(self.rule["Arn"])

    def send(self) -> None:
        from ministack.core.responses import request_scope

        with request_scope(self.account, self.region):
            self.deliver()

    def wanted(self) -> bool:
        from ministack.services import eventbridge as eb

        key = eb._rule_key(self.rule["Name"], self.bus)
        targets = eb._targets.get_scoped(self.account, self.region, key) or []
        return eb._rules.contains_scoped(self.account, self.region, key) and any(
            target["Id"] == self.target["Id"] and target["Arn"] == self.target_arn for target in targets
        )

    def bury(self, attributes: Mapping[str, str]) -> None:
        send_to_queue(self.dead_letter_arn, self.event, self.rule_arn, attributes=attributes)

    def count(self, metric: str) -> None:
        from ministack.core.responses import request_scope

        with request_scope(self.account, self.region):
            count(metric, self.bus, self.rule["Name"])


def count(metric: str, bus: str, rule: str) -> None:
    """Count one in every series of the metric, in the current account and Region."""
    for dimensions in series(metric, bus=bus, rule=rule):
        metrics.count(NAMESPACE, metric, dimensions)


def attempt_for(
    target: Mapping[str, Any], event: Mapping[str, Any], rule: Mapping[str, Any], view: Any
) -> Callable[[], None]:
    """The function that makes one delivery attempt of ``event`` to ``target``."""
    from ministack.core.arn import parse_arn
    from ministack.services import eventbridge as eb

    arn, rule_arn = target["Arn"], rule["Arn"]
    service, resource = arn.split(":")[2], arn.split(":", 5)[5]
    given = input_for(target, rule, view)
    body = events_envelope.text(view.event_with_detail()) if given is None else given
    if service == "sqs":
        group = (target.get("SqsParameters") or {}).get("MessageGroupId")
        return functools.partial(send_to_queue, arn, body, rule_arn, group=group)
    if service == "sns":
        return functools.partial(send_to_topic, arn, body, rule_arn)
    if service == "lambda":
        return functools.partial(send_to_function, arn, body, rule_arn)
    if service == "states":
        return functools.partial(send_to_state_machine, arn, body, target.get("RoleArn"))
    if service == "events" and resource.startswith("api-destination/"):
        return events_http.prepare(arn, body, target, view.event_with_detail())

    def to_bus() -> None:
        if f":{eb.get_region()}:{eb.get_account_id()}:" not in arn or resource.split("/", 1)[1] not in eb._event_buses:
            raise no_resource(arn)
        if event.get(PASSED_ON):
            raise second_hop(event.get("EventId", ""))
        eb._dispatch_to_event_bus(parse_arn(arn), {**event, PASSED_ON: True}, rule, set(), given)

    def nowhere() -> None:
        raise Failure("UNKNOWN", f"This stand-in does not deliver to {service}.", retried=False)

    return to_bus if service == "events" and resource.startswith("event-bus/") else nowhere


def _prepared(
    target: Mapping[str, Any], event: Mapping[str, Any], rule: Mapping[str, Any], view: Any
) -> Callable[[], None]:
    try:
        return attempt_for(target, event, rule, view)
    except Exception as error:  # one target's input must cost neither the other targets nor the request
        logger.exception("the input of a target of %s cannot be made", rule["Arn"])
        message = f"The input of the target cannot be made: {type(error).__name__}."

    def fail() -> None:
        raise Failure("INVALID_PARAMETER", message)

    return fail


def input_for(target: Mapping[str, Any], rule: Mapping[str, Any], view: Any) -> str | None:
    """What the target is configured to receive in place of the event, or None."""
    from ministack.services import eventbridge as eb

    if target.get("InputTransformer"):
        return eb._apply_input_transformer(target["InputTransformer"], rule, view)
    if target.get("Input"):
        return target["Input"]
    if target.get("InputPath"):
        whole = view.event_with_detail()
        return events_envelope.text(events_envelope.at_path(whole, target["InputPath"], whole))
    return None


def install() -> None:
    from ministack.core.responses import get_account_id, get_region
    from ministack.services import eventbridge as eb

    # Named here so that a release without them fails at the start, not at the first delivery.
    _ = eb._dispatch_to_event_bus, eb._apply_input_transformer, eb._rule_key, eb._dispatch_event
    _ = eb._tags, eb._targets, eb._rules, eb._replays, eb._event_buses
    _ = eb._resolve_http_parameters, eb._build_api_destination_request, eb._connection_auth_headers
    _ = eb._api_destination_send_sync, eb._api_destinations, eb._connections

    scale = positive_float(os.environ, "LAB_CLOCK_SCALE", 1.0)
    # HTTP requests get threads of their own; 16 endpoints may hang without holding up a seventeenth for long.
    pool = ThreadPoolExecutor(16, "events-http")
    rest = ThreadPoolExecutor(4, "events-cascade")
    cascades = Cascades(lambda job: rest.submit(contextvars.copy_context().run, job))
    timer = Timer()
    engine = Engine(timer, background=pool.submit)
    invoke, archive, reset = eb._invoke_target, eb._archive_event, eb.reset

    def invoke_target(
        target: Mapping[str, Any], event: Mapping[str, Any], rule: Mapping[str, Any], view: Any = None
    ) -> None:
        if not rule.get("Arn", "").startswith("arn:aws:events:"):
            invoke(target, event, rule, view)  # EventBridge Scheduler calls this too, under rules of its own
            return
        view = view or eb._pattern_event_view(event)
        bus = rule.get("EventBusName", "default")
        bus_arn = (eb._event_buses.get(bus) or {}).get("Arn", "")
        engine.deliver(
            RuleTarget(
                account=get_account_id(),
                region=get_region(),
                bus=bus,
                rule=rule,
                target=target,
                event=events_envelope.text(view.event_with_detail()),
                deliver=_prepared(target, event, rule, view),
                scale=clock_scale(eb._tags.get(rule["Arn"]) or {}, eb._tags.get(bus_arn) or {}, scale),
            )
        )

    def dispatch_event(event: Mapping[str, Any], view: Any = None) -> None:
        cascades.add(deliveries(event, view), f"event {event.get('EventId')}")

    def deliveries(event: Mapping[str, Any], view: Any) -> Iterator[None]:
        bus = event.get("EventBusName", "default")
        seen = set(event.get("_DispatchPath") or [])
        view = view or eb._pattern_event_view(event)
        matched = False
        for key, rule in eb._rules.items():
            if rule.get("EventBusName", "default") != bus or key in seen or rule.get("State") == "DISABLED":
                continue
            if not rule.get("EventPattern") or not eb._matches_pattern_view(rule["EventPattern"], view, f"rule {key}"):
                continue
            if rule.get("ManagedBy") or not replayed_to(event, rule["Arn"]):
                continue  # an archive's own rule has no target here: archives are asked one by one
            matched = True
            count("MatchedEvents", bus, rule["Name"])
            count("TriggeredRules", bus, rule["Name"])
            for target in list(eb._targets.get(key) or []):
                eb._invoke_target(target, event, rule, view)
                yield
        if matched:
            metrics.count(NAMESPACE, "MatchedEvents", {"EventBusName": bus})

    def replayed_to(event: Mapping[str, Any], rule_arn: str) -> bool:
        replay = eb._replays.get(event["ReplayName"]) if event.get("ReplayName") else None
        rules = ((replay or {}).get("Destination") or {}).get("FilterArns")
        return not rules or rule_arn in rules

    def archive_event(event: Mapping[str, Any], view: Any = None) -> None:
        if event.get("ReplayName") is None:  # a replayed event is not archived a second time, on any bus
            archive({name: value for name, value in event.items() if name != PASSED_ON}, view)

    def forget() -> None:
        timer.clear()
        reset()

    eb._invoke_target = invoke_target
    eb._dispatch_event = dispatch_event
    eb._archive_event = archive_event
    eb.reset = forget
