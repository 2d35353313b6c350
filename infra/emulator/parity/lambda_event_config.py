"""PutFunctionEventInvokeConfig and its siblings: how often, until when, and where to.

**On AWS** a function, a version or an alias has a configuration of its own for asynchronous events; without a qualifier
it is that of $LATEST, and its ARN says so. Put replaces all settings, Update the given ones, and what is not set is not
shown. A destination is a queue, topic, function, bus or, on failure, a bucket; a function must exist and be another
one. (Recorded on AWS: the answers and errors below, Put, Update, Get, List, Delete.)

**MiniStack** shows the defaults as if they were set, has no Update, and takes any function as a destination.

**Here** the five actions are replaced. Not verified: the order in which AWS checks what is wrong at once; whether it
looks for a queue or topic when it is configured (here not: it shows at delivery).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

SETTINGS = ("MaximumRetryAttempts", "MaximumEventAgeInSeconds", "DestinationConfig")
SERVICES = frozenset({"sqs", "sns", "lambda", "events", "s3"})
RANGES = {"MaximumRetryAttempts": (0, 2), "MaximumEventAgeInSeconds": (60, 21_600)}

_PATH = re.compile(r"/2019-09-25/functions/([^/]+)/event-invoke-config/?")


def setting_error(data: Mapping[str, Any]) -> tuple[str, str] | None:
    """Code and message for settings that are missing or out of range, or None."""
    if not any(data.get(name) is not None for name in SETTINGS):
        return (
            "InvalidParameterValueException",
            "You must specify at least one of error handling or destination setting.",
        )
    for name, (lowest, highest) in RANGES.items():
        value = data.get(name)
        if value is not None and not lowest <= value <= highest:
            bound = f"greater than or equal to {lowest}" if value < lowest else f"less than or equal to {highest}"
            where = name[0].lower() + name[1:]
            failed = f"Value '{value}' at '{where}' failed to satisfy constraint: Member must have value {bound}"
            return "ValidationException", f"1 validation error detected: {failed}"
    return None


def destination_error(config: Mapping[str, Any] | None, function_arn: str, known: Any) -> str | None:
    """What is wrong with destinations, or None. ``known(arn)`` says whether the function ``arn`` exists."""
    given = {kind: ((config or {}).get(kind) or {}).get("Destination") for kind in ("OnSuccess", "OnFailure")}
    for kind, arn in given.items():
        if not arn:
            continue
        service = arn.split(":")[2] if arn.count(":") >= 5 else ""
        if service not in SERVICES or (service == "s3" and kind == "OnSuccess"):
            return f"The provided destination config {_as_java(given)} is invalid."
        if service == "lambda":
            if ":".join(arn.split(":")[:7]) == function_arn:
                return "You can't specify the function as a destination for itself."
            if not known(arn):
                return f"The destination ARN {arn} is invalid."
    return None


def _as_java(given: Mapping[str, str | None]) -> str:
    shown = (
        f"{kind[0].lower()}{kind[1:]}=" + (f"{kind}(destination={arn})" if arn else "null")
        for kind, arn in given.items()
    )
    return f"DestinationConfig({', '.join(shown)})"


def merged(before: Mapping[str, Any], data: Mapping[str, Any], arn: str, now: float) -> dict[str, Any]:
    """The configuration of ``arn`` with the settings of ``data`` in place of those of ``before``."""
    kept = {name: before[name] for name in SETTINGS if name in before}
    kept |= {name: data[name] for name in SETTINGS if data.get(name) is not None}
    destinations = kept.get("DestinationConfig") or {}
    kept["DestinationConfig"] = {kind: destinations.get(kind) or {} for kind in ("OnSuccess", "OnFailure")}
    return {"FunctionArn": arn, "LastModified": now, **kept}


def install() -> None:
    from ministack.services import lambda_svc

    def refused(code: str, message: str) -> Any:
        return lambda_svc.error_response_json(code, message, 404 if code == "ResourceNotFoundException" else 400)

    def key(qualifier: str | None) -> str:
        return "" if qualifier in (None, "$LATEST") else str(qualifier)

    def arn_of(name: str, qualifier: str | None) -> str:
        return f"{lambda_svc._func_arn(name)}:{key(qualifier) or '$LATEST'}"

    def has_none(name: str, qualifier: str | None) -> Any:
        message = f"The function {arn_of(name, qualifier)} doesn't have an EventInvokeConfig"
        return refused("ResourceNotFoundException", message)

    def configs(name: str) -> dict[str, Any]:
        found: dict[str, Any] = (lambda_svc._functions.get(name) or {}).setdefault("event_invoke_configs", {})
        return found

    def known(arn: str) -> bool:
        return lambda_svc._get_func_record_for_ref(arn)[0] is not None

    def put(name: str, qualifier: str | None, data: Mapping[str, Any], *, replace: bool = True) -> Any:
        function = lambda_svc._functions.get(name)
        if function is None or not lambda_svc._function_qualifier_exists(function, qualifier):
            return refused("ResourceNotFoundException", "The function doesn't exist.")
        if error := setting_error(data):
            return refused(*error)
        if message := destination_error(data.get("DestinationConfig"), lambda_svc._func_arn(name), known):
            return refused("InvalidParameterValueException", message)
        before = configs(name).get(key(qualifier))
        if not replace and before is None:
            return has_none(name, qualifier)
        config = merged({} if replace else before, data, arn_of(name, qualifier), time.time())
        configs(name)[key(qualifier)] = config
        return lambda_svc.json_response(config)

    def get(name: str, qualifier: str | None = None) -> Any:
        found = configs(name).get(key(qualifier)) if name in lambda_svc._functions else None
        return lambda_svc.json_response(found) if found else has_none(name, qualifier)

    def delete(name: str, qualifier: str | None = None) -> Any:
        if name not in lambda_svc._functions or configs(name).pop(key(qualifier), None) is None:
            return has_none(name, qualifier)
        return 204, {}, b""

    def listed(name: str, query: Any) -> Any:
        if name not in lambda_svc._functions:
            return refused("ResourceNotFoundException", "The function doesn't exist.")
        return lambda_svc.json_response({"FunctionEventInvokeConfigs": list(configs(name).values())})

    handle = lambda_svc.handle_request

    async def handle_request(method: str, path: str, headers: Any, body: bytes, query: Any) -> Any:
        found = _PATH.fullmatch(unquote(path)) if method == "POST" else None
        if found is None:
            return await handle(method, path, headers, body, query)
        name, in_name = lambda_svc._resolve_request_scoped_name_and_qualifier(found[1])
        qualifier = lambda_svc._qualifier_from_path_or_query(in_name, query)
        return put(name, qualifier, json.loads(body or b"{}"), replace=False)

    _ = lambda_svc._func_arn, lambda_svc._functions, lambda_svc._function_qualifier_exists
    _ = lambda_svc._resolve_request_scoped_name_and_qualifier, lambda_svc._qualifier_from_path_or_query
    _ = lambda_svc._get_func_record_for_ref, lambda_svc.error_response_json, lambda_svc.json_response
    for name, replacement in {
        "_put_event_invoke_config": put,
        "_get_event_invoke_config": get,
        "_delete_event_invoke_config": delete,
        "_list_function_event_invoke_configs": listed,
    }.items():
        _ = getattr(lambda_svc, name)
        setattr(lambda_svc, name, replacement)
    lambda_svc.handle_request = handle_request
