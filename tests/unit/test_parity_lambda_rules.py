"""Small rules of Lambda: log lines, failures, environment, limits, states, destinations."""

from __future__ import annotations

import base64
import io
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from parity.lambda_concurrency import reservation_error, throttled
from parity.lambda_destinations import Undelivered, send_message, text_of
from parity.lambda_environment import (
    RESERVED,
    Places,
    credentials,
    make_places,
    remove_left_over,
    search_path,
    variables,
)
from parity.lambda_event_config import destination_error, merged, setting_error
from parity.lambda_failures import exited, timed_out, too_large
from parity.lambda_invoke import Answer, error_body, payload_error, size_error
from parity.lambda_logs import init_line, moment_text, report_line, start_line, stream_name
from parity.lambda_metrics import dimensions
from parity.lambda_pool import belongs, retire, surplus
from parity.lambda_states import conflict, shown
from parity.lambda_validation import constraint_errors, environment_error, package_error, request_error, s3_error
from parity.lambda_validation import size_error as request_size_error

PLACES = Places(Path("/e/task"), Path("/e/opt"), Path("/e/tmp"), Path("/r"))
CONFIG = {
    "FunctionName": "shop",
    "FunctionArn": "arn:aws:lambda:us-east-1:123456789012:function:shop:live",
    "Runtime": "python3.12",
    "MemorySize": 256,
    "Version": "3",
    "Handler": "index.handler",
}


def environment(**own: str) -> dict[str, str]:
    return variables(
        {**CONFIG, "Environment": {"Variables": own}},
        region="eu-west-1",
        credentials=credentials("123456789012"),
        endpoint="http://127.0.0.1:4566",
        places=PLACES,
        log_group="/aws/lambda/shop",
        log_stream="s",
    )


def test_a_function_overrides_what_it_may_and_nothing_else() -> None:
    found = environment(TZ="Asia/Tokyo", PATH="/own", TABLE="t", AWS_REGION="mars-1", _HANDLER="x.y")
    assert (found["TZ"], found["PATH"], found["TABLE"]) == ("Asia/Tokyo", "/own", "t")
    assert (found["AWS_REGION"], found["_HANDLER"]) == ("eu-west-1", "index.handler")
    assert found["AWS_EXECUTION_ENV"] == "AWS_Lambda_python3.12"
    assert found["AWS_ACCESS_KEY_ID"] == "123456789012"
    assert (found["LAMBDA_TASK_ROOT"], found["TMPDIR"], found["HOME"]) == ("/e/task", "/e/tmp", "/e/tmp")


def test_nothing_of_the_stand_ins_own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_OF_THE_READER", "x")
    found = environment()
    assert "SECRET_OF_THE_READER" not in found
    allowed = {"AWS_ENDPOINT_URL", "AWS_DISABLE_HOST_PREFIX_INJECTION", "AWS_XRAY_CONTEXT_MISSING", "HOME", "LANG"}
    allowed |= {"LC_CTYPE", "PATH", "PWD", "TMPDIR", "TZ", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH"}
    assert set(found) <= RESERVED | allowed


def test_the_folders_of_layers_that_are_there(tmp_path: Path) -> None:
    assert search_path(tmp_path) == []
    packages = tmp_path / "python" / "lib" / "python3.12" / "site-packages"
    packages.mkdir(parents=True)
    assert search_path(tmp_path) == [str(packages), str(tmp_path / "python")]


def test_folders_of_a_stand_in_that_was_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as package:
        package.writestr("index.py", "")
    layer = io.BytesIO()
    with zipfile.ZipFile(layer, "w") as package:
        package.writestr("python/tools.py", "")
    monkeypatch.setattr("parity.lambda_environment.runtime_folder", lambda: tmp_path / "runtime")
    places = make_places(archive.getvalue(), [layer.getvalue()], zipfile.ZipFile.extractall)
    assert (places.task / "index.py").exists()
    assert (places.layers / "python" / "tools.py").exists()
    (tmp_path / "of-somebody-else").mkdir()
    remove_left_over()
    assert [path.name for path in tmp_path.iterdir()] == ["of-somebody-else"]


def test_log_lines() -> None:
    assert stream_name(0, "$LATEST", "abc") == "1970/01/01/[$LATEST]abc"
    assert moment_text(1.5) == "1970-01-01T00:00:01.500Z"
    assert start_line("r", "7") == "START RequestId: r Version: 7\n"
    assert init_line("python3.12", "us-east-1").startswith("INIT_START Runtime Version: python:3.12.")
    assert report_line("r", 0.0030149, size=128, used=36) == (
        "REPORT RequestId: r\tDuration: 3.01 ms\tBilled Duration: 4 ms\tMemory Size: 128 MB\tMax Memory Used: 36 MB\t\n"
    )
    cold = report_line("r", 0.003, size=128, used=36, init=0.1101, status="Status: timeout")
    assert "\tBilled Duration: 114 ms\t" in cold  # the Init phase is billed too
    assert cold.endswith("\tInit Duration: 110.10 ms\tStatus: timeout\t\n")


def test_failures_of_the_platform() -> None:
    failure = timed_out("r", 3, "T")
    assert failure.payload == (
        b'{"errorType":"Sandbox.Timedout","errorMessage":"RequestId: r Error: Task timed out after 3.00 seconds"}'
    )
    assert failure.text == "T r Task timed out after 3.00 seconds\n\n"


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (0, "Runtime exited without providing a reason"),
        (1, "Runtime exited with error: exit status 1"),
        (-9, "Runtime exited with error: signal: killed"),
        (-15, "Runtime exited with error: signal: terminated"),
        (-64, "Runtime exited with error: signal: signal 64"),
    ],
)
def test_ends_of_the_process(status: int, reason: str) -> None:
    failure = exited("r", status)
    assert failure.message == f"RequestId: r Error: {reason}"
    assert failure.text == f"RequestId: r Error: {reason}\nRuntime.ExitError\n"


def test_the_largest_answer() -> None:
    assert too_large(b"x" * 6_291_556) is None
    failure = too_large(b"x" * 6_291_557)
    assert failure is not None
    assert failure.kind == "Function.ResponseSizeTooLarge"


@pytest.mark.parametrize(
    ("size", "kind", "refused"),
    [
        (6_291_456, "RequestResponse", False),
        (6_291_457, "RequestResponse", True),
        (1_048_576, "Event", False),
        (1_048_577, "Event", True),
        (1_048_577, "RequestResponse", False),
    ],
)
def test_sizes_of_payloads(size: int, kind: str, refused: bool) -> None:
    assert (size_error(size, kind) is not None) == refused


@pytest.mark.parametrize(
    ("payload", "good"),
    [(b"", True), (b"null", True), (b'"\xc3\xa4"', True), (b'"\xe4"', False), (b"NaN", False), (b"[" * 99_999, False)],
)
def test_payloads(payload: bytes, good: bool) -> None:
    assert (payload_error(payload) is None) == good


def test_error_bodies() -> None:
    body = {"__type": "X", "message": "m", "Reason": "r"}
    assert error_body("TooManyRequestsException", body) == {"Type": "User", "message": "m", "Reason": "r"}
    assert error_body("ResourceNotFoundException", {"message": "m"}) == {"Type": "User", "Message": "m"}
    assert error_body("ValidationException", {"message": "m"}) == {"message": "m"}


def test_the_request_id_of_an_answer_stands() -> None:
    answer = Answer({"x-amzn-requestid": "ours"})
    answer.update({"x-amzn-requestid": "theirs", "other": "1"})
    assert answer == {"x-amzn-requestid": "ours", "other": "1"}


@pytest.mark.parametrize(
    ("key", "account", "version", "expected"),
    [
        ("1:us-east-1:shop:$LATEST", "1", "$LATEST", True),
        ("1:us-east-1:shop:$LATEST", "2", "$LATEST", False),
        ("1:us-east-1:shop:3", "1", "$LATEST", False),
        ("1:us-east-1:shop:3", "1", None, True),
        ("1:us-east-1:other:3", None, None, False),
    ],
)
def test_whose_environments(key: str, account: str | None, version: str | None, expected: bool) -> None:
    assert belongs(key, "shop", version=version, account=account, region="us-east-1") == expected


def test_environments_at_work_are_retired() -> None:
    busy, idle = SimpleNamespace(in_use=True, retired=False), SimpleNamespace(in_use=False, retired=False)
    assert retire([busy, idle]) == [idle]
    assert (busy.retired, idle.retired) == (True, False)


def test_idle_environments_that_are_too_many_or_too_old() -> None:
    def used(at: float, busy: bool = False) -> Any:
        return SimpleNamespace(in_use=busy, last_used=at)

    old, older, new, busy = used(20), used(10), used(30), used(0, busy=True)
    pools = {"a": [old, busy], "b": [older], "c": [new]}
    assert surplus(pools, most=3, oldest=0) == []
    assert surplus(pools, most=2, oldest=0) == [older]
    assert pools == {"a": [old, busy], "c": [new]}
    assert surplus(pools, most=2, oldest=25) == [old]
    assert pools == {"a": [busy], "c": [new]}


def test_states() -> None:
    pending = {"State": "Pending", "LastUpdateStatus": "InProgress", "FunctionArn": "arn"}
    updating = {"State": "Active", "LastUpdateStatus": "InProgress", "FunctionArn": "arn"}
    assert conflict(pending, change=False) is not None
    assert conflict(updating, change=False) is None
    assert (conflict(updating, change=True) or "").endswith("resource: arn")
    assert conflict({"State": "Active", "LastUpdateStatus": "Successful"}, change=True) is None
    assert "LastUpdateStatus" not in shown(pending)
    assert shown(
        {"State": "Active", "StateReason": "", "Layers": [], "VpcConfig": {"SubnetIds": []}, "Description": ""}
    ) == {
        "State": "Active",
        "Description": "",
    }


def test_reservations() -> None:
    assert reservation_error(900, []) is None
    assert reservation_error(901, []) is not None
    assert reservation_error(400, [500]) is None
    assert reservation_error(401, [500, 0]) is not None
    assert throttled("account")["body"]["Reason"] == "ConcurrentInvocationLimitExceeded"


def test_the_series_of_a_metric() -> None:
    assert list(dimensions(CONFIG)) == [
        {},
        {"FunctionName": "shop"},
        {"FunctionName": "shop", "Resource": "shop:live"},
    ]


def create(**changes: Any) -> dict[str, Any]:
    return {
        "FunctionName": "shop",
        "Runtime": "python3.12",
        "Handler": "index.handler",
        "Role": "arn:aws:iam::123456789012:role/lambda",
        "Code": {"ZipFile": "UEs="},
    } | changes


def test_a_good_request() -> None:
    assert request_error(create(), create=True) is None
    assert request_error({"Timeout": 900, "MemorySize": 10_240}, create=False) is None
    assert request_error(create(Runtime=None, Handler=None, Code={"ImageUri": "x"}), create=True) is None


@pytest.mark.parametrize(
    "changes",
    [
        {"FunctionName": "no spaces"},
        {"FunctionName": "x" * 65},
        {"Role": "lambda"},
        {"Timeout": 0},
        {"Timeout": 901},
        {"MemorySize": 127},
        {"MemorySize": 10_241},
        {"Runtime": "python4"},
        {"Runtime": None},
        {"Handler": ""},
        {"Environment": {"Variables": {"x": "1"}}},
        {"Environment": {"Variables": {"AWS_LAMBDA_RUNTIME_API": "1"}}},
        {"Environment": {"Variables": {"BIG": "x" * 4096}}},
    ],
)
def test_refused_requests(changes: dict[str, Any]) -> None:
    assert request_error(create(**changes), create=True) is not None


def test_several_constraints_are_counted() -> None:
    data = create(Timeout=0, MemorySize=1)
    assert len(list(constraint_errors(data, create=True))) == 2
    error = request_error(data, create=True)
    assert error is not None
    assert error[1].startswith("2 validation errors detected: Value '0' at 'timeout' failed")


def test_the_environment_is_measured_as_json_in_bytes() -> None:
    fits = "é" * ((4096 - len('{"KEY":""}')) // 2)
    assert environment_error({"KEY": fits}) is None
    assert environment_error({"KEY": f"{fits}x"}) is not None
    assert environment_error({"TZ": "UTC", "PATH": "/x", "LANG": "C"}) is None


def test_packages() -> None:
    assert package_error(None) is None
    assert package_error(base64.b64encode(bytes(100)).decode()) is None
    assert package_error(base64.b64encode(bytes(52_428_801)).decode()) is not None
    assert request_size_error(70_167_211, "CreateFunction") is None
    assert request_size_error(70_167_212, "CreateFunction") == (
        "RequestEntityTooLargeException",
        "Request must be smaller than 70167211 bytes for the CreateFunction operation",
    )
    assert s3_error(bucket=True, found=True) is None
    assert "NoSuchBucket" in (s3_error(bucket=False, found=False) or ("", ""))[1]
    assert "NoSuchKey" in (s3_error(bucket=True, found=False) or ("", ""))[1]


def test_settings_of_asynchronous_events() -> None:
    assert setting_error({}) is not None
    assert setting_error({"MaximumRetryAttempts": 0}) is None
    assert setting_error({"DestinationConfig": {}}) is None
    assert (setting_error({"MaximumRetryAttempts": 3}) or ("", ""))[1].endswith("less than or equal to 2")
    assert (setting_error({"MaximumEventAgeInSeconds": 59}) or ("", ""))[1].endswith("greater than or equal to 60")
    config = merged({"MaximumRetryAttempts": 1}, {"MaximumEventAgeInSeconds": 60}, "arn", 5.0)
    assert config == {
        "FunctionArn": "arn",
        "LastModified": 5.0,
        "MaximumRetryAttempts": 1,
        "MaximumEventAgeInSeconds": 60,
        "DestinationConfig": {"OnSuccess": {}, "OnFailure": {}},
    }


def test_destinations_that_cannot_be() -> None:
    own = "arn:aws:lambda:us-east-1:123456789012:function:shop"
    other = own.replace("shop", "other")
    queue, bucket = "arn:aws:sqs:us-east-1:123456789012:q", "arn:aws:s3:::b"

    def error(arn: str, kind: str = "OnSuccess", known: bool = True) -> str | None:
        return destination_error({kind: {"Destination": arn}}, own, lambda _: known)

    assert error(queue) is None
    assert error(other) is None
    assert error(other, known=False) == f"The destination ARN {other} is invalid."
    assert error(own) == error(f"{own}:live") == "You can't specify the function as a destination for itself."
    assert error(bucket, "OnFailure") is None
    assert "onSuccess=OnSuccess(destination=arn:aws:s3:::b), onFailure=null" in (error(bucket) or "")
    assert destination_error(None, own, lambda _: True) is None


@pytest.mark.parametrize("arn", ["arn:aws:sqs:us-east-1:1:q.fifo", "arn:aws:sns:us-east-1:1:t.fifo", "arn:aws:s3:::b"])
def test_what_takes_no_message(arn: str) -> None:
    with pytest.raises(Undelivered):
        send_message(arn, "{}")


def test_a_record_as_text() -> None:
    assert text_of({"a": "ä"}) == '{"a": "ä"}'
    assert text_of({"a": "\ud800"}) == '{"a": "\\ud800"}'
