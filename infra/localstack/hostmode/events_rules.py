"""Rules, targets, event buses and archives: what the calls that make, change and delete them refuse.

**On AWS**: see :mod:`parity.events_rules`, :mod:`parity.events_put_targets` and :mod:`parity.events_archive`.

**LocalStack** does not look at names, at the size of a pattern or at its sense, at retry policies, dead-letter queues,
message groups and roles; it deletes a bus with its rules, keeps the first targets of a call that it refuses, and takes
a bus of another account or Region for its own one of that name.

**Here** parity's checks come before LocalStack's handlers. What LocalStack does for itself, as for the rule of an
archive, is not checked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

from parity.events_archive import check_update_archive
from parity.events_put import InvalidRequest
from parity.events_put_targets import check_targets, last_of_each_id
from parity.events_rules import (
    Refused,
    bus_named,
    check_create_bus,
    check_delete_bus,
    check_put_rule,
    invalid,
    no_such_rule,
)

Request = Mapping[str, Any]
Check = Callable[[Any, Any, Request], Mapping[str, Any] | None]  # provider, context, request; arguments to replace

ON_A_BUS = (
    "put_rule",
    "delete_rule",
    "describe_rule",
    "enable_rule",
    "disable_rule",
    "list_rules",
    "put_targets",
    "remove_targets",
    "list_targets_by_rule",
)


def checked(provider: type, handler: str, check: Check) -> None:
    """Put ``check`` before a handler of LocalStack's provider: it raises, or returns arguments to replace."""
    from localstack.aws.api import CommonServiceException

    original = getattr(provider, handler)

    @functools.wraps(original)
    def guarded(self: Any, context: Any, *arguments: Any, **named: Any) -> Any:
        try:
            named |= check(self, context, context.service_request or {}) or {}
        except Refused as refused:
            raise CommonServiceException(refused.code, refused.message, 400, True) from refused
        except InvalidRequest as refused:
            raise CommonServiceException(refused.code, str(refused), 400, True) from refused
        return original(self, context, *arguments, **named)

    setattr(provider, handler, guarded)


def install() -> None:
    from localstack.services.events.provider import EventsProvider
    from localstack.services.events.rule import TARGET_ARN_REGEX
    from localstack.utils.event_matcher import _event_pattern_compiler as compiler

    def buses(self: EventsProvider, context: Any) -> Mapping[str, Any]:
        return self.get_store(context.region, context.account_id).event_buses

    def own(context: Any) -> bool:
        return context.is_internal_call

    def on_bus(self: EventsProvider, context: Any, request: Request) -> None:
        bus_named(request.get("EventBusName"), context.account_id, context.region)

    def put_rule(self: EventsProvider, context: Any, request: Request) -> None:
        if own(context):
            return
        name = bus_named(request.get("EventBusName"), context.account_id, context.region)
        check_put_rule(request, name, buses(self, context))
        if request.get("EventPattern"):
            compiler.compile_event_pattern(request["EventPattern"])

    def put_targets(self: EventsProvider, context: Any, request: Request) -> Mapping[str, Any] | None:
        if own(context):
            return None
        name = bus_named(request.get("EventBusName"), context.account_id, context.region)
        bus = self.get_event_bus(name, self.get_store(context.region, context.account_id))
        if request["Rule"] not in bus.rules:
            raise no_such_rule(request["Rule"], name)
        targets = request.get("Targets") or []
        for target in targets:
            if not TARGET_ARN_REGEX.match(target.get("Arn") or ""):
                raise invalid(
                    f"Parameter {target.get('Arn')} is not valid. Reason: Provided Arn is not in correct format."
                )
        check_targets(targets, bus.rules[request["Rule"]].targets, context.region)
        return {"targets": last_of_each_id(targets)}

    def create_bus(self: EventsProvider, context: Any, request: Request) -> None:
        check_create_bus(request.get("Name") or "", buses(self, context))

    def delete_bus(self: EventsProvider, context: Any, request: Request) -> None:
        bus = buses(self, context).get(request["Name"])
        check_delete_bus(request["Name"], bool(bus and bus.rules))

    def update_archive(self: EventsProvider, context: Any, request: Request) -> None:
        check_update_archive(request)

    for handler in ON_A_BUS:
        checked(EventsProvider, handler, on_bus)
    checked(EventsProvider, "put_rule", put_rule)
    checked(EventsProvider, "put_targets", put_targets)
    checked(EventsProvider, "create_event_bus", create_bus)
    checked(EventsProvider, "delete_event_bus", delete_bus)
    checked(EventsProvider, "update_archive", update_archive)
