"""Pending, Active, InProgress, Successful: when a function can be invoked and when it can be changed.

**On AWS** a new function is Pending for a moment; until it is Active, Invoke, UpdateFunctionCode,
UpdateFunctionConfiguration and PublishVersion fail with ResourceConflictException. An update leaves the function
Active, with LastUpdateStatus InProgress; a second update in this time fails likewise, an invocation does not.
(Recorded on AWS: the states, the answers, the conflict of two updates. Documented: what fails while a function is
Pending; the text of that error is from public reports.)

**MiniStack** puts the function back to Pending for every update, and lets everything through all the time.

**Here** a function is Pending, or its update in progress, for 0.2 s, where AWS takes about a second. Not done: during
an update AWS still runs the code of before; here an invocation finds the new one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

SECONDS = 0.2
UPDATING = {"LastUpdateStatusReason": "The function is being created.", "LastUpdateStatusReasonCode": "Creating"}
# Members that AWS leaves out where MiniStack sends them empty.
OPTIONAL = (
    "KMSKeyArn",
    "LastUpdateStatusReason",
    "LastUpdateStatusReasonCode",
    "Layers",
    "StateReason",
    "StateReasonCode",
    "VpcConfig",
)

_OPERATION = re.compile(r"/2015-03-31/functions/([^/]+)/(code|configuration|versions|invocations)/?")


def conflict(config: Mapping[str, Any], *, change: bool) -> str | None:
    """Why a function in this state cannot be invoked or, with ``change``, be changed; or None."""
    start = "The operation cannot be performed at this time."
    if config.get("State") == "Pending":
        return f"{start} The function is currently in the following state: Pending"
    if change and config.get("LastUpdateStatus") == "InProgress":
        return f"{start} An update is in progress for resource: {config['FunctionArn']}"
    return None


def shown(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration as AWS shows it: without empty members, and without an update while it is being created."""
    hidden = {name for name in OPTIONAL if not config.get(name)}
    if not (config.get("VpcConfig") or {}).get("SubnetIds"):
        hidden.add("VpcConfig")
    if config.get("State") == "Pending":
        hidden |= {"LastUpdateStatus", "LastUpdateStatusReason", "LastUpdateStatusReasonCode"}
    return {name: value for name, value in config.items() if name not in hidden}


def install() -> None:
    from ministack.services import lambda_svc

    handle = lambda_svc.handle_request

    async def handle_request(method: str, path: str, headers: Any, body: bytes, query: Any) -> Any:
        found = _OPERATION.fullmatch(unquote(path)) if method in ("PUT", "POST") else None
        if found:
            record = lambda_svc._functions.get(lambda_svc._resolve_request_scoped_name(found[1])) or {}
            message = conflict(record.get("config") or {}, change=found[2] != "invocations")
            if message:
                return lambda_svc.error_response_json("ResourceConflictException", message, 409)
        return await handle(method, path, headers, body, query)

    def updating(update: Any) -> Any:
        def change(name: str, data: Any) -> Any:
            answer = update(name, data)
            if answer[0] != 200:
                return answer
            config = lambda_svc._functions[name]["config"]
            config |= {"State": "Active", "StateReason": "", "StateReasonCode": ""} | UPDATING
            return lambda_svc.json_response({**config, "Version": json.loads(answer[2])["Version"]})

        return change

    def showing(action: Any) -> Any:
        """The action, with the configurations in its answer as AWS shows them."""

        def act(*arguments: Any, **more: Any) -> Any:
            status, headers, body = action(*arguments, **more)
            if status >= 300:
                return status, headers, body
            found = json.loads(body)
            if "Configuration" in found:
                found["Configuration"] = shown(found["Configuration"])
            elif "FunctionArn" in found:
                found = shown(found)
            for many in ("Functions", "Versions"):
                if many in found:
                    found[many] = [shown(config) for config in found[many]]
            return status, headers, json.dumps(found).encode()

        return act

    _ = lambda_svc._LAMBDA_STATE_TRANSITION_DELAY, lambda_svc._resolve_request_scoped_name, lambda_svc._functions
    lambda_svc._LAMBDA_STATE_TRANSITION_DELAY = SECONDS
    lambda_svc.handle_request = handle_request
    for name in ("_update_code", "_update_config"):
        setattr(lambda_svc, name, showing(updating(getattr(lambda_svc, name))))
    for name in (
        "_create_function",
        "_get_function",
        "_get_function_config",
        "_list_functions",
        "_list_versions",
        "_publish_version",
    ):
        setattr(lambda_svc, name, showing(getattr(lambda_svc, name)))
