"""What CreateFunction and UpdateFunctionConfiguration refuse.

**On AWS** a function has a timeout of 1 to 900 s and 128 to 10,240 MB of memory; a package of code needs a runtime that
there is and a handler; names of environment variables are two or more letters, digits and underscores and none of
Lambda's own, and all of them together are at most 4 KB, measured as JSON. The request may have 70,167,211 bytes, the
package 50 MB zipped, code and layers 250 MB unzipped. (Recorded on AWS: runtime, role, environment of 4 KB, the sizes
of request and package, S3. Documented: timeout, memory, names; their texts follow AWS's form. From public reports: the
text for reserved names, and for a missing runtime or handler.)

**MiniStack** checks the unzipped size, the role's existence, and that there is a runtime.

**Here** the rest is checked before it. Another order of checks than AWS's is possible where several things are wrong.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from .lambda_environment import RESERVED

MAX_ENVIRONMENT = 4096
MAX_REQUEST = 70_167_211
MAX_ZIPPED = 52_428_800
MAX_NAME = 64
# The runtimes for which AWS created functions when it was asked in November 2025, in its own order.
RUNTIMES = (
    "nodejs20.x, python3.14, provided.al2023, python3.12, python3.13, nodejs24.x, nodejs22.x, java25, python3.10, "
    "python3.11, java21, ruby3.3, ruby3.4, ruby3.2, python3.8, python3.9, java17, nodejs16.x, dotnet10, dotnet8, "
    "java11, dotnet6, nodejs18.x, provided.al2, java8.al2"
)
RANGES = {"timeout": (1, 900), "memorySize": (128, 10_240)}
ROLE = r"arn:(aws[a-zA-Z-]*)?:iam::\d{12}:role/?[a-zA-Z_0-9+=,.@\-_/]+"
NAME = (
    r"(arn:(aws[a-zA-Z-]*)?:lambda:)?((eusc-)?[a-z]{2}((-gov)|(-iso([a-z]?)))?-[a-z]+-\d{1}:)?(\d{12}:)?(function:)?"
    r"([a-zA-Z0-9-_]+)(:(\$LATEST|[a-zA-Z0-9-_]+))?"
)
VARIABLE = r"[a-zA-Z]([a-zA-Z0-9_])+"

INVALID, VALIDATION = "InvalidParameterValueException", "ValidationException"
Error = tuple[str, str]


def constraint(value: Any, where: str, bound: str) -> str:
    """One constraint that is not met, in AWS's form."""
    return f"Value '{value}' at '{where}' failed to satisfy constraint: Member must {bound}"


def constraint_errors(data: Mapping[str, Any], *, create: bool) -> Iterator[str]:
    """The members that are out of the bounds of the service model."""
    name, role = data.get("FunctionName", ""), data.get("Role")
    if create and not re.fullmatch(NAME, name):
        yield constraint(name, "functionName", f"satisfy regular expression pattern: {NAME}")
    if role is not None and not re.fullmatch(ROLE, role):
        yield constraint(role, "role", f"satisfy regular expression pattern: {ROLE}")
    for where, (lowest, highest) in RANGES.items():
        value = data.get(where[0].upper() + where[1:])
        if value is not None and value < lowest:
            yield constraint(value, where, f"have value greater than or equal to {lowest}")
        elif value is not None and value > highest:
            yield constraint(value, where, f"have value less than or equal to {highest}")


def environment_error(variables: Mapping[str, str]) -> Error | None:
    """What is wrong with a function's environment variables, or None."""
    if not all(re.fullmatch(VARIABLE, name) for name in variables):
        bound = f"Map keys must satisfy constraint: [Member must satisfy regular expression pattern: {VARIABLE}]"
        failed = f"Value at 'environment.variables' failed to satisfy constraint: {bound}"
        return VALIDATION, f"1 validation error detected: {failed}"
    start = "Lambda was unable to configure your environment variables because the environment variables you have "
    reserved = [name for name in variables if name in RESERVED]
    if reserved:
        return INVALID, (
            f"{start}provided contains reserved keys that are currently not supported for modification. "
            f"Reserved keys used in this request: {', '.join(reserved)}"
        )
    measured = json.dumps(dict(variables), separators=(",", ":"), ensure_ascii=False)
    if len(measured.encode(errors="replace")) > MAX_ENVIRONMENT:
        return INVALID, f"{start}provided exceeded the 4KB limit. String measured: {measured}"
    return None


def request_error(data: Mapping[str, Any], *, create: bool) -> Error | None:
    """Code and message with which a request is refused, or None."""
    found = list(constraint_errors(data, create=create))
    if found:
        count = f"{len(found)} validation error{'s' if len(found) > 1 else ''} detected"
        return VALIDATION, f"{count}: {'; '.join(found)}"
    if create and len(data["FunctionName"].split(":")[-1]) > MAX_NAME:
        bound = f"have length less than or equal to {MAX_NAME}"
        return INVALID, "1 validation error detected: " + constraint(data["FunctionName"], "functionName", bound)
    runtime, code = data.get("Runtime"), data.get("Code") or {}
    packaged = data.get("PackageType", "Zip") == "Zip" and "ImageUri" not in code
    if create and packaged and not (runtime and data.get("Handler")):
        return INVALID, "Runtime and Handler are mandatory parameters for functions created with deployment packages."
    if runtime and runtime not in RUNTIMES.split(", "):
        bound = f"Member must satisfy enum value set: [{RUNTIMES}] or be a valid ARN"
        return INVALID, f"Value {runtime} at 'runtime' failed to satisfy constraint: {bound}"
    return environment_error((data.get("Environment") or {}).get("Variables") or {})


def package_error(zipped: str | None) -> Error | None:
    """Why a package, as Base64, is too large, or None."""
    if zipped is None or len(base64.b64decode(zipped)) <= MAX_ZIPPED:
        return None
    return "RequestEntityTooLargeException", f"Zipped size must be smaller than {MAX_ZIPPED} bytes"


def size_error(size: int, operation: str) -> Error | None:
    """Why a request of ``size`` bytes is too large, or None."""
    if size <= MAX_REQUEST:
        return None
    message = f"Request must be smaller than {MAX_REQUEST} bytes for the {operation} operation"
    return "RequestEntityTooLargeException", message


def s3_error(*, bucket: bool, found: bool) -> Error | None:
    """Why code cannot be had from S3, or None: whether there is the bucket, whether the object in it."""
    if bucket and found:
        return None
    reason = "NoSuchKey. S3 Error Message: The specified key does not exist."
    if not bucket:
        reason = "NoSuchBucket. S3 Error Message: The specified bucket does not exist"
    return INVALID, f"Error occurred while GetObject. S3 Error Code: {reason}"


def install() -> None:
    from ministack.services import lambda_svc, s3

    def refused(error: Error | None) -> Any:
        if error is None:
            return None
        status = 413 if error[0] == "RequestEntityTooLargeException" else 400
        return lambda_svc.error_response_json(*error, status)

    def code_error(code: Mapping[str, Any]) -> Error | None:
        bucket, key = code.get("S3Bucket"), code.get("S3Key")
        if not bucket:
            return package_error(code.get("ZipFile"))
        found = lambda_svc._fetch_code_from_s3(bucket, key, version_id=code.get("S3ObjectVersion")) is not None
        return s3_error(bucket=bucket in s3._buckets, found=found)

    create, configure, update = lambda_svc._create_function, lambda_svc._update_config, lambda_svc._update_code

    def create_function(data: Mapping[str, Any]) -> Any:
        error = request_error(data, create=True) or code_error(data.get("Code") or {})
        return refused(error) or create(dict(data))

    def update_configuration(name: str, data: Mapping[str, Any]) -> Any:
        if name not in lambda_svc._functions:
            return configure(name, data)
        return refused(request_error(data, create=False)) or configure(name, data)

    def update_code(name: str, data: Mapping[str, Any]) -> Any:
        if name not in lambda_svc._functions:
            return update(name, data)
        return refused(code_error(data)) or update(name, data)

    handle = lambda_svc.handle_request

    async def handle_request(method: str, path: str, headers: Any, body: bytes, query: Any) -> Any:
        if method == "POST" and path.rstrip("/") == "/2015-03-31/functions":
            too_large = refused(size_error(len(body), "CreateFunction"))
            if too_large:
                return too_large
        return await handle(method, path, headers, body, query)

    _ = lambda_svc._fetch_code_from_s3, s3._buckets, lambda_svc._functions, lambda_svc.error_response_json
    lambda_svc._create_function = create_function
    lambda_svc._update_config = update_configuration
    lambda_svc._update_code = update_code
    lambda_svc.handle_request = handle_request
