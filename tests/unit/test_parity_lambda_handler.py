"""How the Python runtime finds a handler, calls it, and reports what it raises."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from parity import lambda_handler as runtime
from parity.lambda_handler import Context, Fault, answer, error_payload, error_text, load, marshal, name_on_aws

HEADER = {"request_id": "r-1", "arn": "arn:f", "deadline": 0.0}


@pytest.fixture
def task(tmp_path: Path) -> Iterator[Path]:
    """A task root that modules are imported from, as in an execution environment."""
    before = list(sys.path), list(sys.path_hooks), set(sys.modules)
    runtime.import_from(str(tmp_path))
    sys.path.insert(0, str(tmp_path))
    yield tmp_path
    sys.path[:], sys.path_hooks[:] = before[0], before[1]
    sys.path_importer_cache.clear()
    for name in set(sys.modules) - before[2]:
        del sys.modules[name]


def context(**changes: Any) -> Context:
    return Context(HEADER | changes, {}, lambda text: None)


def test_an_exception_is_its_class_name_and_the_handlers_frames(task: Path) -> None:
    (task / "shop.py").write_text("def sell():\n    raise LookupError('none left')\n")
    (task / "index.py").write_text("import shop\ndef handler(event, context):\n    return shop.sell()\n")
    handler, failure = load("index.handler")
    assert failure is None
    kind, payload = answer(handler, b"{}", context())  # type: ignore[arg-type]
    assert kind == "error"
    assert json.loads(payload) == {
        "errorMessage": "none left",
        "errorType": "LookupError",
        "requestId": "r-1",
        "stackTrace": [
            '  File "/var/task/index.py", line 3, in handler\n    return shop.sell()\n',
            "  File \"/var/task/shop.py\", line 2, in sell\n    raise LookupError('none left')\n",
        ],
    }


def test_a_modules_file_is_where_it_really_is(task: Path) -> None:
    (task / "index.py").write_text("def handler(event, context): return __file__")
    handler, _ = load("index.handler")
    assert answer(handler, b"null", context())[1] == json.dumps(str(task / "index.py")).encode()  # type: ignore[arg-type]


def test_handlers_in_packages_are_named_with_dots_or_slashes(task: Path) -> None:
    (task / "app").mkdir()
    (task / "app" / "main.py").write_text("def run(event, context): return event")
    for name in ("app.main.run", "app/main.run"):
        handler, failure = load(name)
        assert handler is not None, failure


@pytest.mark.parametrize(
    ("source", "name", "kind", "message"),
    [
        ("", "index.handler", "Runtime.HandlerNotFound", "Handler 'handler' missing on module 'index'"),
        (
            "import nothing_here",
            "index.handler",
            "Runtime.ImportModuleError",
            "Unable to import module 'index': No module named 'nothing_here'",
        ),
        (
            "",
            "nowhere.handler",
            "Runtime.ImportModuleError",
            "Unable to import module 'nowhere': No module named 'nowhere'",
        ),
        (
            "",
            "sys.exit",
            "Runtime.BuiltInModuleConflict",
            "Cannot use built-in module sys as a handler module",
        ),
        (
            "",
            "handler",
            "Runtime.MalformedHandlerName",
            "Bad handler 'handler': not enough values to unpack (expected 2, got 1)",
        ),
        ("x = {}['a']", "index.handler", "KeyError", "'a'"),
    ],
)
def test_what_keeps_a_handler_from_being_found(task: Path, source: str, name: str, kind: str, message: str) -> None:
    (task / "index.py").write_text(source)
    handler, failure = load(name)
    assert handler is None
    assert failure is not None
    assert (failure["errorType"], failure["errorMessage"], failure["requestId"]) == (kind, message, "")


def test_a_syntax_error_names_file_and_line(task: Path) -> None:
    (task / "index.py").write_text("def handler(event, context):\n    return )\n")
    _, failure = load("index.handler")
    assert failure is not None
    assert failure["errorMessage"] == "Syntax error in module 'index': unmatched ')' (index.py, line 2)"
    assert failure["stackTrace"][0].rstrip() == '  File "/var/task/index.py" Line 2\n        return )'


@pytest.mark.parametrize("end", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_what_is_no_exception_is_not_caught(end: BaseException) -> None:
    def handler(event: Any, context: Any) -> None:
        raise end

    with pytest.raises(type(end)):
        answer(handler, b"{}", context())


@pytest.mark.parametrize(
    ("result", "payload"),
    [
        (None, b"null"),
        ({"a": [1, 2.5, True]}, b'{"a": [1, 2.5, true]}'),
        ("ä😀", '"ä😀"'.encode()),
        (b"\x00as it is", b"\x00as it is"),
        ({"n": Decimal("5"), "x": Decimal("1.25")}, b'{"n": 5, "x": 1.25}'),
        ((1, 2), b"[1, 2]"),
    ],
)
def test_results(result: Any, payload: bytes) -> None:
    assert marshal(result) == payload


@pytest.mark.parametrize("result", [{1, 2}, object(), {(1, 2): 3}, "\ud800"])
def test_a_result_that_is_no_json(result: Any) -> None:
    with pytest.raises(Fault, match="Unable to marshal response: ") as caught:
        marshal(result)
    assert caught.value.kind == "Runtime.MarshalError"


def test_a_result_that_contains_itself() -> None:
    loop: list[Any] = []
    loop.append(loop)
    kind, payload = answer(lambda event, context: loop, b"{}", context())
    assert kind == "error"
    assert json.loads(payload)["errorMessage"] == "Unable to marshal response: Circular reference detected"


def test_an_error_is_one_log_event_with_no_break_spaces() -> None:
    payload = {"errorType": "E", "errorMessage": "m", "stackTrace": ['  File "x", line 1\n    raise E\n']}
    assert error_text(payload) == (
        "[ERROR] E: m\nTraceback (most recent call last):\n"
        '\u00a0\u00a0File "x", line 1\n\u00a0\u00a0\u00a0\u00a0raise E'
    )
    assert error_text({**payload, "errorMessage": ""}).startswith("[ERROR] E\n")


def test_an_exception_without_a_frame_of_the_handler() -> None:
    with pytest.raises(ValueError, match="x") as caught:
        raise ValueError("x")
    assert len(error_payload(caught.value)["stackTrace"]) == 1


def test_python_s_own_modules_are_named_as_on_aws() -> None:
    shown = name_on_aws(json.decoder.__file__)
    assert shown == f"/var/lang/lib/python{sys.version_info[0]}.{sys.version_info[1]}/json/decoder.py"
    assert name_on_aws("/elsewhere/x.py") == "/elsewhere/x.py"


def test_the_context() -> None:
    environment = {
        "AWS_LAMBDA_FUNCTION_NAME": "shop",
        "AWS_LAMBDA_FUNCTION_VERSION": "3",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "256",
        "AWS_LAMBDA_LOG_GROUP_NAME": "/aws/lambda/shop",
        "AWS_LAMBDA_LOG_STREAM_NAME": "s",
    }
    logged: list[str] = []
    client = {"client": {"app_title": "App"}, "custom": {"a": 1}}
    found = Context(HEADER | {"client_context": client}, environment, logged.append)
    assert (found.function_name, found.function_version, found.memory_limit_in_mb) == ("shop", "3", "256")
    assert (found.log_group_name, found.log_stream_name) == ("/aws/lambda/shop", "s")
    assert (found.aws_request_id, found.invoked_function_arn) == ("r-1", "arn:f")
    assert found.get_remaining_time_in_millis() == 0  # never negative
    assert found.client_context.client.app_title == "App"  # type: ignore[union-attr]
    assert found.client_context.client.app_version_code is None  # type: ignore[union-attr]
    assert (found.client_context.custom, found.client_context.env) == ({"a": 1}, None)  # type: ignore[union-attr]
    found.log(7)
    assert logged == ["7"]
    assert repr(found).startswith("LambdaContext([aws_request_id=r-1,")
