"""Rules and event buses: what the calls that make, change and delete them refuse.

**On AWS** a rule needs a pattern or a schedule, a schedule only works on the default bus, names have a form and a
length, a rule with targets and a bus with rules cannot be deleted, the default bus never can. Calls on a rule or bus
that does not exist answer ResourceNotFoundException, all with HTTP 400; deleting what does not exist succeeds. A bus
may be named by its ARN. (Recorded: the deletions, the missing rule and bus, the schedule on another bus. From public
error reports: the bus with rules. Not verified: the texts for the missing pattern, the name of a rule, a pattern over
the quota of 2,048 characters.)

**MiniStack** takes a rule with neither pattern nor schedule, deletes rules with their targets and buses with their
rules, knows a bus only by name, and words some errors otherwise.

**Here** each handler is preceded by a check; what passes is MiniStack's.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping
from typing import Any

NAME = r"[\.\-_A-Za-z0-9]+"
MAX_RULE_NAME = 64
MAX_BUS_NAME = 256
MAX_PATTERN = 2048  # a quota, which AWS raises on request up to the API's own 4,096

Request = Mapping[str, Any]


class Refused(Exception):
    """An answer with HTTP 400."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


def invalid(message: str) -> Refused:
    return Refused("ValidationException", message)


def not_found(message: str) -> Refused:
    return Refused("ResourceNotFoundException", message)


def constraint(value: Any, where: str, bound: str) -> Refused:
    """The refusal of a value that does not have the form that the API's model gives it."""
    return invalid(
        f"1 validation error detected: Value '{value}' at '{where}' failed to satisfy constraint: Member must {bound}"
    )


def check_name(value: str, where: str, longest: int) -> None:
    """Raise :class:`Refused` unless ``value`` is a name of 1 to ``longest`` characters."""
    if len(value) > longest:
        raise constraint(value, where, f"have length less than or equal to {longest}")
    if not re.fullmatch(NAME, value):
        raise constraint(value, where, f"satisfy regular expression pattern: {NAME}")


def bus_named(reference: str | None, account: str, region: str) -> str:
    """The name of the bus that a request means: nothing is the default bus, an ARN must be of account and Region."""
    if not reference:
        return "default"
    if not reference.startswith("arn:"):
        return reference
    parts = reference.split(":", 5)
    kind, _, name = parts[-1].partition("/")
    if len(parts) != 6 or parts[2] != "events" or kind != "event-bus" or not name:
        raise invalid("Parameter EventBusName is not valid. Reason: Provided Arn is not in correct format.")
    if parts[3:5] != [region, account]:
        raise not_found(f"Event bus {reference} does not exist.")
    return name


def no_such_rule(rule: str | None, bus: str) -> Refused:
    return not_found(f"Rule {rule} does not exist on EventBus {bus}.")


def no_such_bus(bus: str) -> Refused:
    return not_found(f"Event bus {bus} does not exist.")


def check_put_rule(request: Request, bus: str, buses: Mapping[str, Any]) -> None:
    check_name(request.get("Name") or "", "name", MAX_RULE_NAME)
    pattern, schedule = request.get("EventPattern"), request.get("ScheduleExpression")
    if not pattern and not schedule:
        raise invalid("Parameter(s) EventPattern or ScheduleExpression must be specified.")
    if isinstance(pattern, str) and len(pattern) > MAX_PATTERN:
        raise Refused(
            "InvalidEventPatternException",
            f"Event pattern is not valid. Reason: Event pattern exceeds {MAX_PATTERN} characters",
        )
    if bus not in buses:
        raise no_such_bus(bus)
    if schedule and bus != "default":
        raise invalid("ScheduleExpression is supported only on the default event bus.")


def check_delete_rule(has_targets: bool, bus: str, buses: Mapping[str, Any]) -> None:
    if bus not in buses:
        raise no_such_bus(bus)
    if has_targets:
        raise invalid("Rule can't be deleted since it has targets.")


def check_create_bus(name: str, buses: Mapping[str, Any]) -> None:
    check_name(name, "name", MAX_BUS_NAME)
    if name in buses:
        raise Refused("ResourceAlreadyExistsException", f"Event bus {name} already exists.")


def check_delete_bus(name: str, has_rules: bool) -> None:
    if name == "default":
        raise invalid("Cannot delete event bus default.")
    if has_rules:
        raise invalid("EventBus can't be deleted since it has rules.")


def install() -> None:
    from ministack.core.responses import error_response_json, get_account_id, get_region
    from ministack.services import eventbridge as eb

    def named(reference: str | None) -> str:
        return bus_named(reference, get_account_id(), get_region())

    def key_of(request: Request, member: str = "Name") -> str:
        return eb._rule_key(request.get(member), request["EventBusName"])

    def need_rule(request: Request, member: str = "Name") -> None:
        if request["EventBusName"] not in eb._event_buses:
            raise no_such_bus(request["EventBusName"])
        if key_of(request, member) not in eb._rules:
            raise no_such_rule(request.get(member), request["EventBusName"])

    def need_bus(request: Request) -> None:
        if request["EventBusName"] not in eb._event_buses:
            raise no_such_bus(request["EventBusName"])

    def put_rule(request: Request) -> None:
        check_put_rule(request, request["EventBusName"], eb._event_buses)

    def delete_rule(request: Request) -> None:
        check_delete_rule(bool(eb._targets.get(key_of(request))), request["EventBusName"], eb._event_buses)

    def create_bus(request: Request) -> None:
        check_create_bus(request.get("Name") or "", eb._event_buses)

    def describe_bus(request: Request) -> None:
        if request["Name"] not in eb._event_buses:
            raise no_such_bus(request["Name"])

    def delete_bus(request: Request) -> None:
        has_rules = any(rule.get("EventBusName") == request["Name"] for rule in eb._rules.values())
        check_delete_bus(request["Name"], has_rules)

    def on_bus(check: Callable[[Request], None], member: str = "EventBusName") -> Callable[[Request], Request]:
        def checked(request: Request) -> Request:
            resolved = {**request, member: named(request.get(member))}
            check(resolved)
            return resolved

        return checked

    def only(check: Callable[[Request], None]) -> Callable[[Request], Request]:
        def checked(request: Request) -> Request:
            check(request)
            return request

        return checked

    guard(eb, error_response_json, "_put_rule", on_bus(put_rule))
    guard(eb, error_response_json, "_delete_rule", on_bus(delete_rule))
    guard(eb, error_response_json, "_list_rules", on_bus(need_bus))
    for handler in ("_describe_rule", "_enable_rule", "_disable_rule"):
        guard(eb, error_response_json, handler, on_bus(need_rule))
    for handler in ("_put_targets", "_remove_targets", "_list_targets_by_rule"):
        guard(eb, error_response_json, handler, on_bus(functools.partial(need_rule, member="Rule")))
    guard(eb, error_response_json, "_create_event_bus", only(create_bus))
    guard(eb, error_response_json, "_describe_event_bus", on_bus(describe_bus, "Name"))
    guard(eb, error_response_json, "_delete_event_bus", on_bus(delete_bus, "Name"))


def guard(
    module: Any, answer: Callable[[str, str, int], tuple], handler: str, check: Callable[[Request], Request]
) -> None:
    """Put ``check`` before a handler: it returns the request to go on with, or raises :class:`Refused`."""
    original = getattr(module, handler)

    @functools.wraps(original)
    def guarded(request: Request) -> tuple:
        try:
            request = check(request)
        except Refused as refused:
            return answer(refused.code, refused.message, 400)
        return original(request)

    setattr(module, handler, guarded)
