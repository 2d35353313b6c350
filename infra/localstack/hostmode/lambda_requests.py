"""What CreateFunction, the updates, PublishVersion, Invoke and the settings of asynchronous events refuse.

**On AWS**: see :mod:`parity.lambda_validation`, :mod:`parity.lambda_states`, :mod:`parity.lambda_invoke` and
:mod:`parity.lambda_event_config`.

**LocalStack** checks a part of it: neither bounds nor reserved names, neither the size nor the JSON of a payload; a
function that is Pending is an internal error.

**Here** the rules are asked before LocalStack's own checks.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Mapping
from typing import Any

from parity.lambda_event_config import setting_error
from parity.lambda_invoke import TOO_LARGE, payload_error, size_error
from parity.lambda_states import conflict
from parity.lambda_validation import Error, request_error

STATUS = {TOO_LARGE: 413, "ResourceConflictException": 409}
PLAIN = frozenset({TOO_LARGE, "ValidationException"})  # errors without a Type


def refuse(error: Error | None) -> None:
    """Raise an error of the rules as LocalStack's."""
    from localstack.aws.api import CommonServiceException

    if error is not None:
        code, message = error
        kind = type(code, (CommonServiceException,), {})
        found = kind(code, message, STATUS.get(code, 400), sender_fault=True)
        if code not in PLAIN:
            found.Type = "User"
        raise found


def install() -> None:
    from localstack.services.lambda_ import api_utils
    from localstack.services.lambda_.invocation.models import lambda_stores
    from localstack.services.lambda_.provider import LambdaProvider

    def configuration(context: Any, reference: str) -> Mapping[str, Any] | None:
        """What GetFunctionConfiguration shows of a function, or None where there is none."""
        account, region = api_utils.get_account_and_region(reference, context)
        name = api_utils.get_function_name(reference, context)
        function = lambda_stores[account][region].functions.get(name)
        return api_utils.map_config_out(function.latest()) if function and "$LATEST" in function.versions else None

    def check_state(context: Any, reference: str, *, change: bool) -> bool:
        """Whether the function is there; refused while it is on its way."""
        found = configuration(context, reference)
        message = conflict(found, change=change) if found else None
        refuse(("ResourceConflictException", message) if message else None)
        return found is not None

    def before(name: str, check: Callable[..., Any]) -> None:
        """Have ``check`` called with what the operation ``name`` is called with; what it returns is added to that."""
        operation = getattr(LambdaProvider, name)

        @functools.wraps(operation)
        def checked(self: Any, context: Any, *arguments: Any, **given: Any) -> Any:
            given |= check(context, *arguments, **given) or {}
            return operation(self, context, *arguments, **given)

        setattr(LambdaProvider, name, checked)

    def create(context: Any, request: Mapping[str, Any]) -> None:
        refuse(request_error(request, create=True))

    def configure(context: Any, request: Mapping[str, Any]) -> None:
        if check_state(context, request["FunctionName"], change=True):
            refuse(request_error(request, create=False))

    def update_code(context: Any, request: Mapping[str, Any]) -> None:
        check_state(context, request["FunctionName"], change=True)

    def publish(context: Any, function_name: str, **_: Any) -> None:
        check_state(context, function_name, change=True)

    def invoke(context: Any, function_name: str, payload: Any = None, **more: Any) -> dict[str, Any]:
        body = payload.read() if payload else b""
        if message := size_error(len(body), more.get("invocation_type") or ""):
            refuse((TOO_LARGE, message))
        message = payload_error(body)
        refuse(("InvalidRequestContentException", message) if message else None)
        check_state(context, function_name, change=False)
        return {"payload": io.BytesIO(body) if body else None}

    def settings(context: Any, function_name: str, **given: Any) -> None:
        members = {
            "MaximumRetryAttempts": given.get("maximum_retry_attempts"),
            "MaximumEventAgeInSeconds": given.get("maximum_event_age_in_seconds"),
            "DestinationConfig": given.get("destination_config"),
        }
        if configuration(context, function_name) is not None:
            refuse(setting_error(members))

    for name, check in {
        "create_function": create,
        "update_function_configuration": configure,
        "update_function_code": update_code,
        "publish_version": publish,
        "invoke": invoke,
        "put_function_event_invoke_config": settings,
        "update_function_event_invoke_config": settings,
    }.items():
        before(name, check)
