"""Creating, changing and deleting functions: states, and what is refused."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from .conftest import Aws
from .lambda_kit import GUIDE, MODEL, RECORDED, REPORTED, configure, function, invoke, log, package, ready, role, until
from .rows import row
from .sqs_helpers import refused

ECHO = "def handler(event, context): return event"
INVALID = "InvalidParameterValueException"


def unchecked(aws: Aws) -> Any:
    """A client that sends what botocore would refuse itself, so that the service's own refusal shows."""
    return boto3.client(
        "lambda",
        endpoint_url=aws.endpoint,
        region_name=aws.region,
        aws_access_key_id=aws.account,
        aws_secret_access_key="test",
        config=Config(parameter_validation=False, retries={"total_max_attempts": 1}),
    )


def create(aws: Aws, **changes: Any) -> dict[str, Any]:
    parameters = {
        "FunctionName": "made",
        "Runtime": "python3.12",
        "Role": role(aws),
        "Handler": "index.handler",
        "Code": {"ZipFile": package(ECHO)},
    } | changes
    given = {name: value for name, value in parameters.items() if value is not None}
    answer: dict[str, Any] = unchecked(aws).create_function(**given)
    return answer


@row("lambda.state.create", "A new function is Pending, then Active and its update Successful", source=RECORDED)
def test_states_of_a_new_function(aws: Aws) -> None:
    made = create(aws)
    assert (made["State"], made["StateReason"], made["StateReasonCode"]) == (
        "Pending",
        "The function is being created.",
        "Creating",
    )
    assert "LastUpdateStatus" not in made
    found = ready(aws, "made")
    assert (found["State"], found["LastUpdateStatus"]) == ("Active", "Successful")
    assert not {"StateReason", "StateReasonCode", "LastUpdateStatusReason"} & set(found)
    assert (found["Timeout"], found["MemorySize"], found["Version"]) == (3, 128, "$LATEST")


def refused_in_time(start: Callable[[int], None], call: Callable[[int], object], text: str) -> None:
    """``call`` is refused while what ``start`` has begun is not over. That is short: it may take some tries."""
    caught = None
    for number in range(100):
        start(number)
        try:
            call(number)
        except ClientError as error:
            caught = error.response
            break
    assert caught is not None, "it was never refused"
    assert caught["Error"] == {"Code": "ResourceConflictException", "Message": text}
    assert caught["ResponseMetadata"]["HTTPStatusCode"] == 409


@row("lambda.state.pending", "While a function is Pending it can be neither invoked nor changed", source=GUIDE)
def test_pending(aws: Aws) -> None:
    api = aws.client("lambda")
    text = "The operation cannot be performed at this time. The function is currently in the following state: Pending"
    for kind, call in {
        "invoked": lambda name: api.invoke(FunctionName=name),
        "changed": lambda name: api.update_function_code(FunctionName=name, ZipFile=package(ECHO)),
        "published": lambda name: api.publish_version(FunctionName=name),
    }.items():
        refused_in_time(
            lambda number, kind=kind: create(aws, FunctionName=f"{kind}-{number}"),  # type: ignore[misc]
            lambda number, kind=kind, call=call: call(f"{kind}-{number}"),  # type: ignore[misc]
            text,
        )
    ready(aws, "invoked-0")
    assert invoke(aws, "invoked-0", 1) == (200, None, 1)


@row("lambda.state.update", "An update leaves the function Active; a second one meanwhile is refused", source=RECORDED)
def test_update(aws: Aws) -> None:
    arn = function(aws, "made", ECHO)
    api = aws.client("lambda")

    def begin(number: int) -> dict[str, Any] | None:
        try:
            answer: dict[str, Any] = api.update_function_configuration(
                FunctionName="made", Description=f"number {number}"
            )
        except api.exceptions.ResourceConflictException:  # the one before is not quite over
            return None
        return answer

    def update(number: int) -> None:
        ready(aws, "made")
        answer = until(lambda: begin(number))
        assert (answer["State"], answer["LastUpdateStatus"], answer["LastUpdateStatusReasonCode"]) == (
            "Active",
            "InProgress",
            "Creating",
        )

    text = f"The operation cannot be performed at this time. An update is in progress for resource: {arn}"
    refused_in_time(update, lambda _: api.update_function_configuration(FunctionName="made", Description="x"), text)
    code = package(ECHO)  # beforehand: the moment is short
    refused_in_time(update, lambda _: api.update_function_code(FunctionName="made", ZipFile=code), text)
    for number in range(8):  # meanwhile, it can be invoked
        update(number)
        assert invoke(aws, "made", number) == (200, None, number)
        ready(aws, "made")
        api.update_function_code(FunctionName="made", ZipFile=package(f"{ECHO}  # {number}"))
        assert invoke(aws, "made", number) == (200, None, number)
    found = ready(aws, "made")
    assert found["Description"] == "number 7"
    assert found["LastUpdateStatus"] == "Successful"


@row("lambda.update.running", "An update lets a running invocation come to its end", source=RECORDED)
@pytest.mark.parametrize("change", ["code", "configuration", "delete"])
def test_update_while_it_runs(aws: Aws, change: str) -> None:
    source = "import time\ndef handler(event, context):\n    print('begun')\n    time.sleep(1.5)\n    return 'old'"
    function(aws, "made", source, timeout=10)
    api = aws.client("lambda")
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(invoke, aws, "made")
        until(lambda: any(line.startswith("begun") for line in log(aws, "made")))
        if change == "code":
            api.update_function_code(FunctionName="made", ZipFile=package(ECHO))
        elif change == "configuration":
            api.update_function_configuration(FunctionName="made", Timeout=4)
        else:
            api.delete_function(FunctionName="made")
        assert running.result(timeout=60) == (200, None, "old")
    if change == "code":
        ready(aws, "made")
        assert invoke(aws, "made", "new") == (200, None, "new")


@row("lambda.create.exists", "A name that is taken is refused", source=REPORTED)
def test_exists(aws: Aws) -> None:
    function(aws, "made", ECHO)
    with refused("ResourceConflictException", "Function already exist: made", 409):
        create(aws)


@row("lambda.invoke.unknown", "An unknown function is ResourceNotFoundException, with its ARN", source=RECORDED)
def test_unknown_function(aws: Aws) -> None:
    api = aws.client("lambda")
    arn = aws.arn("lambda", "function:nothing")
    with pytest.raises(api.exceptions.ResourceNotFoundException) as caught:
        api.invoke(FunctionName="nothing")
    answer = caught.value.response
    assert (answer["ResponseMetadata"]["HTTPStatusCode"], answer["Type"]) == (404, "User")
    assert answer["Message"] == answer["Error"]["Message"] == f"Function not found: {arn}:$LATEST"
    with refused("ResourceNotFoundException", f"Function not found: {arn}", 404):
        api.get_function(FunctionName="nothing")
    with refused("ResourceNotFoundException", f"Function not found: {arn}", 404):
        api.delete_function(FunctionName="nothing")
    function(aws, "made", ECHO)
    with refused("ResourceNotFoundException", f"Function not found: {aws.arn('lambda', 'function:made')}:7", 404):
        api.invoke(FunctionName="made", Qualifier="7")


@row("lambda.invoke.request_size", "A payload over 6 MB is refused with HTTP 413", source=REPORTED)
def test_payload_too_large(aws: Aws) -> None:
    function(aws, "echo", "def handler(event, context): return len(event)", timeout=20)
    limit = 6 * 1024 * 1024
    assert invoke(aws, "echo", b'"' + b"x" * (limit - 2) + b'"')[2] == limit - 2
    text = f"Request must be smaller than {limit} bytes for the InvokeFunction operation"
    with refused("RequestEntityTooLargeException", text, 413):
        invoke(aws, "echo", b'"' + b"x" * (limit - 1) + b'"')


@row("lambda.invoke.async_size", "An asynchronous payload over 1 MB is refused with HTTP 413", source=REPORTED)
def test_asynchronous_payload_too_large(aws: Aws) -> None:
    function(aws, "echo", "def handler(event, context): pass")
    limit = 1024 * 1024
    api = aws.client("lambda")
    payload = b'"' + b"x" * (limit - 2) + b'"'
    assert api.invoke(FunctionName="echo", InvocationType="Event", Payload=payload)["StatusCode"] == 202
    text = f"{limit + 1} byte payload is too large for the Event invocation type (limit {limit} bytes)"
    with refused("RequestEntityTooLargeException", text, 413):
        api.invoke(FunctionName="echo", InvocationType="Event", Payload=payload + b" ")


@row("lambda.invoke.not_json", "A payload that is no JSON is InvalidRequestContentException", source=RECORDED)
@pytest.mark.parametrize("payload", [b"{", b"hello", b'"\x87"', b"NaN", b"{} {}"])
def test_payload_is_no_json(aws: Aws, payload: bytes) -> None:
    function(aws, "echo", ECHO)
    with refused("InvalidRequestContentException", status=400) as refusal:
        invoke(aws, "echo", payload)
    assert refusal.message.startswith("Could not parse request body into json: ")


@row("lambda.invoke.dry_run", "DryRun runs nothing and is answered with 204", source=RECORDED)
def test_dry_run(aws: Aws) -> None:
    function(aws, "fails", "def handler(event, context): raise ValueError")
    answer = aws.client("lambda").invoke(FunctionName="fails", InvocationType="DryRun")
    assert (answer["StatusCode"], answer["Payload"].read()) == (204, b"")
    assert "FunctionError" not in answer


@row("lambda.create.bounds", "Timeout is 1-900 s, memory 128-10,240 MB (text by form)", source=GUIDE)
@pytest.mark.parametrize(
    ("name", "value", "bound"),
    [
        ("Timeout", 0, "greater than or equal to 1"),
        ("Timeout", 901, "less than or equal to 900"),
        ("MemorySize", 127, "greater than or equal to 128"),
        ("MemorySize", 10_241, "less than or equal to 10240"),
    ],
)
def test_bounds(aws: Aws, name: str, value: int, bound: str) -> None:
    member = name[0].lower() + name[1:]
    text = (
        f"1 validation error detected: Value '{value}' at '{member}' failed to satisfy constraint: Member must have "
        f"value {bound}"
    )
    with refused("ValidationException", text, 400):
        create(aws, **{name: value})
    function(aws, "made", ECHO)
    with refused("ValidationException", text, 400):
        unchecked(aws).update_function_configuration(FunctionName="made", **{name: value})


@row("lambda.create.mandatory", "A package of code needs a runtime and a handler", source=REPORTED)
@pytest.mark.parametrize("missing", ["Runtime", "Handler"])
def test_mandatory(aws: Aws, missing: str) -> None:
    text = "Runtime and Handler are mandatory parameters for functions created with deployment packages."
    with refused(INVALID, text, 400):
        create(aws, **{missing: None})


@row("lambda.create.runtime", "An unknown runtime is refused", source=RECORDED)
def test_runtime(aws: Aws) -> None:
    for runtime in ("python3.99", "PYTHON3.12", "python2.7"):
        with refused(INVALID, status=400) as refusal:
            create(aws, Runtime=runtime)
        start = f"Value {runtime} at 'runtime' failed to satisfy constraint: Member must satisfy enum value set: ["
        assert refusal.message.startswith(start)
        assert refusal.message.endswith("] or be a valid ARN")


@row("lambda.create.role", "A role that is no ARN of a role is refused", source=RECORDED)
def test_role(aws: Aws) -> None:
    text = (
        "1 validation error detected: Value 'r1' at 'role' failed to satisfy constraint: Member must satisfy regular "
        r"expression pattern: arn:(aws[a-zA-Z-]*)?:iam::\d{12}:role/?[a-zA-Z_0-9+=,.@\-_/]+"
    )
    with refused("ValidationException", text, 400):
        create(aws, Role="r1")


@row("lambda.create.environment_size", "Environment variables are at most 4 KB, as JSON", source=RECORDED)
def test_environment_size(aws: Aws) -> None:
    fits = "x" * (4096 - len('{"BIG":""}'))
    function(aws, "made", ECHO, env={"BIG": fits})
    start = (
        "Lambda was unable to configure your environment variables because the environment variables you have "
        "provided exceeded the 4KB limit. String measured: "
    )
    with refused(INVALID, f'{start}{{"BIG":"{fits}x"}}', 400):
        create(aws, FunctionName="other", Environment={"Variables": {"BIG": f"{fits}x"}})
    with refused(INVALID, f'{start}{{"BIG":"{fits}x"}}', 400):
        configure(aws, "made", Environment={"Variables": {"BIG": f"{fits}x"}})


@row("lambda.create.environment_names", "Reserved names are refused, and names of one character", source=REPORTED)
def test_environment_names(aws: Aws) -> None:
    text = (
        "Lambda was unable to configure your environment variables because the environment variables you have "
        "provided contains reserved keys that are currently not supported for modification. Reserved keys used in "
        "this request: AWS_REGION"
    )
    with refused(INVALID, text, 400):
        create(aws, Environment={"Variables": {"AWS_REGION": "eu-west-1"}})
    for name in ("A", "1A", "A-B", "_AB"):
        with refused("ValidationException", status=400):
            create(aws, Environment={"Variables": {name: "x"}})


@row("lambda.create.zip", "A package that is no zip is refused", source=RECORDED)
def test_no_zip(aws: Aws) -> None:
    text = "Could not unzip uploaded file. Please check your file, then try to upload again."
    with refused(INVALID, text, 400):
        create(aws, Code={"ZipFile": b"hello"})


@row("lambda.create.unzipped_size", "Code and layers are at most 250 MB unzipped", source=RECORDED)
def test_unzipped_size(aws: Aws) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("index.py", ECHO)
        archive.writestr("big", bytes(262_144_000))
    with refused(INVALID, "Unzipped size must be smaller than 262144000 bytes", 400):
        create(aws, Code={"ZipFile": buffer.getvalue()})


@row("lambda.create.s3", "Code that is not in S3 is refused", source=RECORDED)
def test_code_in_s3(aws: Aws) -> None:
    s3 = aws.client("s3")
    start = "Error occurred while GetObject. S3 Error Code: "
    bucket = f"code-{aws.account}"
    with refused(INVALID, f"{start}NoSuchBucket. S3 Error Message: The specified bucket does not exist", 400):
        create(aws, Code={"S3Bucket": bucket, "S3Key": "code.zip"})
    s3.create_bucket(Bucket=bucket)
    with refused(INVALID, f"{start}NoSuchKey. S3 Error Message: The specified key does not exist.", 400):
        create(aws, Code={"S3Bucket": bucket, "S3Key": "code.zip"})
    s3.put_object(Bucket=bucket, Key="code.zip", Body=package(ECHO))
    create(aws, Code={"S3Bucket": bucket, "S3Key": "code.zip"})
    ready(aws, "made")
    assert invoke(aws, "made", "hello")[2] == "hello"


@row(
    "lambda.event_config.put",
    "PutFunctionEventInvokeConfig replaces all settings; what is not set is not shown",
    source=RECORDED,
)
def test_put_event_config(aws: Aws) -> None:
    arn = function(aws, "made", ECHO)
    api = aws.client("lambda")
    api.put_function_event_invoke_config(FunctionName="made", MaximumRetryAttempts=2, MaximumEventAgeInSeconds=60)
    api.put_function_event_invoke_config(FunctionName="made", MaximumRetryAttempts=0)
    found = api.get_function_event_invoke_config(FunctionName="made", Qualifier="$LATEST")
    for name in ("ResponseMetadata", "LastModified"):
        del found[name]
    assert found == {
        "FunctionArn": f"{arn}:$LATEST",
        "MaximumRetryAttempts": 0,
        "DestinationConfig": {"OnSuccess": {}, "OnFailure": {}},
    }


@row("lambda.event_config.update", "UpdateFunctionEventInvokeConfig changes the given settings", source=RECORDED)
def test_update_event_config(aws: Aws) -> None:
    arn = function(aws, "made", ECHO)
    api = aws.client("lambda")
    text = f"The function {arn}:$LATEST doesn't have an EventInvokeConfig"
    with refused("ResourceNotFoundException", text, 404):
        api.update_function_event_invoke_config(FunctionName="made", MaximumRetryAttempts=1)
    api.put_function_event_invoke_config(FunctionName="made", MaximumEventAgeInSeconds=60)
    answer = api.update_function_event_invoke_config(FunctionName="made", MaximumRetryAttempts=1)
    assert (answer["MaximumEventAgeInSeconds"], answer["MaximumRetryAttempts"]) == (60, 1)
    assert len(api.list_function_event_invoke_configs(FunctionName="made")["FunctionEventInvokeConfigs"]) == 1
    api.delete_function_event_invoke_config(FunctionName="made")
    with refused("ResourceNotFoundException", text, 404):
        api.get_function_event_invoke_config(FunctionName="made")


@row("lambda.event_config.refused", "A config without settings, and destinations that cannot be", source=RECORDED)
def test_refused_event_config(aws: Aws) -> None:
    arn = function(aws, "made", ECHO)
    api = aws.client("lambda")
    with refused("ResourceNotFoundException", "The function doesn't exist.", 404):
        api.put_function_event_invoke_config(FunctionName="nothing", MaximumRetryAttempts=1)
    with refused(INVALID, "You must specify at least one of error handling or destination setting.", 400):
        api.put_function_event_invoke_config(FunctionName="made")
    other = arn.replace("made", "nothing")
    for destination, text in {
        arn: "You can't specify the function as a destination for itself.",
        other: f"The destination ARN {other} is invalid.",
        arn.replace(":lambda:", ":iam:"): (
            "The provided destination config DestinationConfig(onSuccess=OnSuccess(destination="
            f"{arn.replace(':lambda:', ':iam:')}), onFailure=null) is invalid."
        ),
    }.items():
        with refused(INVALID, text, 400):
            api.put_function_event_invoke_config(
                FunctionName="made", DestinationConfig={"OnSuccess": {"Destination": destination}}
            )


@row("lambda.event_config.bounds", "Retries are 0-2, the event's age 60-21,600 s (text by form)", source=MODEL)
@pytest.mark.parametrize(
    ("name", "value"),
    [("MaximumRetryAttempts", 3), ("MaximumEventAgeInSeconds", 59), ("MaximumEventAgeInSeconds", 21_601)],
)
def test_event_config_bounds(aws: Aws, name: str, value: int) -> None:
    function(aws, "made", ECHO)
    with refused("ValidationException", status=400):
        unchecked(aws).put_function_event_invoke_config(FunctionName="made", **{name: value})
