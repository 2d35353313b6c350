"""What a failed invocation answers."""

from __future__ import annotations

import json
import re

import pytest

from .conftest import Aws
from .lambda_kit import GUIDE, RECORDED, REPORTED, RUNTIME, call, function, invoke, tail, until
from .rows import row


def failed(aws: Aws, source: str | dict[str, str], payload: object = None, **options: object) -> dict:
    """The error payload of a function that is expected to fail."""
    function(aws, "fails", source, **options)
    status, error, found = invoke(aws, "fails", payload)
    assert (status, error) == (200, "Unhandled")
    return found


@row(
    "lambda.error.class_name",
    "An exception is answered with its class name as errorType, its text, the request id and the handler's frames",
    source=RECORDED,
)
def test_class_name(aws: Aws) -> None:
    source = """
    class OutOfStock(Exception):
        pass


    def check(item):
        raise OutOfStock(f"no {item} left")


    def handler(event, context):
        check(event["item"])
    """
    function(aws, "fails", source)
    answer = call(aws, "fails", {"item": "thé"})
    assert (answer["StatusCode"], answer["FunctionError"], answer["ExecutedVersion"]) == (200, "Unhandled", "$LATEST")
    assert answer["Payload"] == {
        "errorMessage": "no thé left",
        "errorType": "OutOfStock",
        "requestId": answer["ResponseMetadata"]["RequestId"],
        "stackTrace": [
            '  File "/var/task/index.py", line 11, in handler\n    check(event["item"])\n',
            '  File "/var/task/index.py", line 7, in check\n    raise OutOfStock(f"no {item} left")\n',
        ],
    }


@row("lambda.error.keeps_environment", "An exception leaves the environment as it is", source=GUIDE)
def test_exception_keeps_environment(aws: Aws) -> None:
    source = """
    seen = []


    def handler(event, context):
        seen.append(1)
        if event:
            raise KeyError("x")
        return len(seen)
    """
    function(aws, "counts", source)
    assert [invoke(aws, "counts", fails)[1] for fails in (True, True)] == ["Unhandled"] * 2
    assert invoke(aws, "counts", False)[2] == 3


@row("lambda.error.import_module", "A module that cannot be imported is Runtime.ImportModuleError", source=RUNTIME)
def test_import_error(aws: Aws) -> None:
    found = failed(aws, "import no_such_module\ndef handler(event, context): return 1")
    assert found["errorType"] == "Runtime.ImportModuleError"
    assert found["errorMessage"] == "Unable to import module 'index': No module named 'no_such_module'"
    assert found["stackTrace"] == []


@row("lambda.error.handler_not_found", "A handler that is not there is Runtime.HandlerNotFound", source=RUNTIME)
def test_no_handler(aws: Aws) -> None:
    found = failed(aws, "def other(event, context): return 1")
    assert found["errorType"] == "Runtime.HandlerNotFound"
    assert found["errorMessage"] == "Handler 'handler' missing on module 'index'"


@row("lambda.error.syntax", "A syntax error is Runtime.UserCodeSyntaxError, with the line", source=RUNTIME)
def test_syntax_error(aws: Aws) -> None:
    found = failed(aws, "def handler(event, context):\n    return (1 +\n")
    assert found["errorType"] == "Runtime.UserCodeSyntaxError"
    assert found["errorMessage"].startswith("Syntax error in module 'index': ")
    assert found["stackTrace"][0].startswith('  File "/var/task/index.py" Line 2\n')


@row("lambda.error.init_exception", "An exception during the import is answered under its class name", source=RECORDED)
def test_exception_in_module(aws: Aws) -> None:
    found = failed(aws, "raise LookupError('no settings')")
    assert (found["errorType"], found["errorMessage"], found["requestId"]) == ("LookupError", "no settings", "")
    assert found["stackTrace"][-1] == (
        "  File \"/var/task/index.py\", line 1, in <module>\n    raise LookupError('no settings')\n"
    )


@row("lambda.error.marshal", "A result that is no JSON is Runtime.MarshalError", source=RUNTIME)
def test_unserialisable_result(aws: Aws) -> None:
    found = failed(aws, "def handler(event, context): return {'set': {1, 2}}")
    assert found["errorType"] == "Runtime.MarshalError"
    assert found["errorMessage"] == "Unable to marshal response: Object of type set is not JSON serializable"


@row("lambda.error.exit", "sys.exit is Runtime.ExitError, without a reason when the status is 0", source=RECORDED)
def test_sys_exit(aws: Aws) -> None:
    found = failed(aws, "import sys\ndef handler(event, context): sys.exit(event)", 0)
    assert found["errorType"] == "Runtime.ExitError"
    assert re.fullmatch(
        r"RequestId: [0-9a-f-]{36} Error: Runtime exited without providing a reason", found["errorMessage"]
    )


@row("lambda.error.exit_status", "The end of the process is Runtime.ExitError with status or signal", source=REPORTED)
@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("sys.exit(3)", "exit status 3"),
        ("os._exit(1)", "exit status 1"),
        ("os.kill(os.getpid(), 9)", "signal: killed"),
        ("raise SystemExit('no')", "exit status 1"),
    ],
)
def test_exit_status(aws: Aws, statement: str, reason: str) -> None:
    source = f"import os, sys\nseen = []\ndef handler(event, context):\n    seen.append(1)\n    if event: {statement}\n"
    function(aws, "ends", source + "    return len(seen)")
    answer = call(aws, "ends", True)
    request = answer["ResponseMetadata"]["RequestId"]
    assert answer["FunctionError"] == "Unhandled"
    assert answer["Payload"] == {
        "errorType": "Runtime.ExitError",
        "errorMessage": f"RequestId: {request} Error: Runtime exited with error: {reason}",
    }
    assert invoke(aws, "ends", False) == (200, None, 1)  # a new process


@row(
    "lambda.error.timeout",
    "A time-out is Sandbox.Timedout; the next invocation finds a new process and the old /tmp",
    source=RECORDED,
)
def test_timeout(aws: Aws) -> None:
    source = """
    import os, tempfile, time

    seen = []
    path = os.path.join(tempfile.gettempdir(), os.environ["KEPT"])


    def handler(event, context):
        seen.append(1)
        with open(path, "a") as file:
            file.write(".")
        time.sleep(event)
        return [len(seen), open(path).read()]
    """
    function(aws, "sleeps", source, timeout=4, env={"KEPT": f"kept-{aws.account}"})
    assert invoke(aws, "sleeps", 0)[2] == [1, "."]
    answer = call(aws, "sleeps", 30)
    assert answer["FunctionError"] == "Unhandled"
    assert answer["Payload"] == {
        "errorType": "Sandbox.Timedout",
        "errorMessage": (
            f"RequestId: {answer['ResponseMetadata']['RequestId']} Error: Task timed out after 4.00 seconds"
        ),
    }
    assert invoke(aws, "sleeps", 0)[2] == [1, "..."]


@row("lambda.error.response_size", "An answer over 6,291,556 bytes is Function.ResponseSizeTooLarge", source=RECORDED)
def test_response_too_large(aws: Aws) -> None:
    function(aws, "large", "def handler(event, context): return 'x' * event", timeout=20)
    limit = 6_291_556
    status, error, found = invoke(aws, "large", limit - 2)
    assert (status, error, len(found)) == (200, None, limit - 2)
    for _ in range(2):  # the environment serves on
        assert invoke(aws, "large", limit - 1)[1:] == (
            "Unhandled",
            {
                "errorType": "Function.ResponseSizeTooLarge",
                "errorMessage": f"Response payload size exceeded maximum allowed payload size ({limit} bytes).",
            },
        )


@row("lambda.answer.any_output", "Whatever a handler writes, the answer is its own", source=GUIDE)
@pytest.mark.parametrize(
    "statement",
    [
        'print(\'{"status": "ok"}\')',
        "print('no line break', end='')",
        "os.write(1, bytes(range(256)))",
        "os.close(1); os.close(2)",
        "sys.stdout.close(); sys.stderr.close()",
        "[print('x' * 99) for _ in range(20_000)]",
        "print('x' * 3_000_000)",
        "subprocess.Popen(['sh', '-c', 'while :; do echo spam; done'])",
        "threading.Thread(target=lambda: [print('late') for _ in iter(int, 1)], daemon=True).start()",
    ],
    ids=["json", "no-newline", "binary", "closed", "closed-streams", "lines", "long-line", "child", "thread"],
)
def test_output_cannot_spoil_the_answer(aws: Aws, statement: str) -> None:
    source = f"import os, subprocess, sys, threading\ndef handler(event, context):\n    {statement}\n    return event"
    function(aws, "noisy", source, timeout=20)
    assert invoke(aws, "noisy", {"ä": "😀"}) == (200, None, {"ä": "😀"})
    aws.client("lambda").delete_function(FunctionName="noisy")


@row("lambda.answer.json", "Any JSON value goes in and comes out", source=GUIDE)
def test_any_json(aws: Aws) -> None:
    function(aws, "echo", "def handler(event, context): return event")
    for value in (None, 0, -1.5, "", "a\u2028b", [], [1, [None]], {}, {"": {"ключ": "значение"}}, "\u0000", True):
        assert invoke(aws, "echo", value) == (200, None, {} if value is None else value)
    answer = aws.client("lambda").invoke(FunctionName="echo", Payload=b"null")
    assert json.loads(answer["Payload"].read()) is None
    answer = aws.client("lambda").invoke(FunctionName="echo")  # no payload at all
    assert json.loads(answer["Payload"].read()) == {}


@row("lambda.error.catch_by_name", "A state machine catches a function's error by its class name", source=GUIDE)
def test_step_functions_see_the_class_name(aws: Aws) -> None:
    arn = function(aws, "fails", "class Busy(Exception): pass\ndef handler(event, context): raise Busy('later')")
    machine = {
        "StartAt": "Call",
        "States": {
            "Call": {
                "Type": "Task",
                "Resource": arn,
                "Catch": [{"ErrorEquals": ["Busy"], "ResultPath": "$.caught", "Next": "Caught"}],
                "End": True,
            },
            "Caught": {"Type": "Pass", "End": True},
        },
    }
    states = aws.client("stepfunctions")
    made = states.create_state_machine(
        name="catches", definition=json.dumps(machine), roleArn=f"arn:aws:iam::{aws.account}:role/states"
    )["stateMachineArn"]
    execution = states.start_execution(stateMachineArn=made, input="{}")["executionArn"]
    found = until(lambda: (e := states.describe_execution(executionArn=execution))["status"] != "RUNNING" and e)
    assert found["status"] == "SUCCEEDED"
    caught = json.loads(found["output"])["caught"]
    assert caught["Error"] == "Busy"
    assert json.loads(caught["Cause"])["errorMessage"] == "later"


@row("lambda.log.tail", "LogType Tail returns the last 4 KB of the invocation's log", source=GUIDE)
def test_tail(aws: Aws) -> None:
    function(aws, "talks", "def handler(event, context):\n    for n in range(1000): print('line', n)")
    found = tail(aws, "talks")
    assert 4000 < len(found.encode()) <= 4096
    assert "line 999\nEND RequestId: " in found
    assert "line 1\n" not in found
