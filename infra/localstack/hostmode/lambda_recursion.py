"""Functions that invoke themselves, or each other, without end.

**On AWS** a function that has been invoked some 16 times in one chain of requests is not invoked once more, but for
functions whose ``RecursiveLoop`` is Allow: Invoke answers RecursiveInvocationException (Lambda Developer Guide, "Use
Lambda recursive loop detection to prevent infinite loops").

**LocalStack** goes on for ever.

**Here** the SDK in a function sends along how many invocations led there, and so does a destination that is a function.
What goes through a queue or a topic is not followed.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

MOST = 16
HEADER = "X-Lab-Invoke-Depth"
DEPTH = "lab_depth"  # in the trace context that LocalStack hands on with an invocation
ALLOW = "Allow"


def headers_for(invocation: Any) -> dict[str, str]:
    """What the SDK's calls in a function carry."""
    return {HEADER: str(invocation.trace_context.get(DEPTH, 1))}


def depth_after(headers: Mapping[str, str]) -> int:
    """How many invocations there are in a chain, with the one that is asked for by a request with these headers."""
    given = headers.get(HEADER, "")
    return (int(given) if given.isdigit() and len(given) < 5 else 0) + 1


def stopped(depth: int, recursive_loop: str | None) -> bool:
    return depth > MOST and recursive_loop != ALLOW


def message(arn: str) -> str:
    return (
        "Lambda has detected your function being invoked in a recursive loop with other Amazon Web Services resources "
        f"and stopped your function's invocation: {arn}"
    )


def install() -> None:
    from localstack.services.lambda_ import api_utils
    from localstack.services.lambda_.invocation.models import lambda_stores
    from localstack.services.lambda_.provider import LambdaProvider

    from hostmode.lambda_requests import refuse

    invoke = LambdaProvider.invoke

    @functools.wraps(invoke)
    def invoke_once_more(self: Any, context: Any, function_name: str, **given: Any) -> Any:
        depth = depth_after(context.request.headers)
        account, region = api_utils.get_account_and_region(function_name, context)
        name = api_utils.get_function_name(function_name, context)
        function = lambda_stores[account][region].functions.get(name)
        if function is not None and stopped(depth, function.recursive_loop):
            refuse(("RecursiveInvocationException", message(function.latest().id.unqualified_arn())))
        context.trace_context[DEPTH] = depth
        return invoke(self, context, function_name=function_name, **given)

    LambdaProvider.invoke = invoke_once_more
