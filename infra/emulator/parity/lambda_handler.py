"""How the Python runtime finds a handler, calls it, and reports what it raises.

**On AWS** that is the package awslambdaric, whose source is public. An exception becomes ``{"errorMessage",
"errorType", "requestId", "stackTrace"}``, with the name of its class as type and the handler's own frames; a result
that is no JSON, a missing module or a missing handler have types of their own (``Runtime.MarshalError``,
``Runtime.ImportModuleError``, ``Runtime.HandlerNotFound``). What is no ``Exception`` is not caught: ``sys.exit`` ends
the process. ``memory_limit_in_mb`` is a string. (Recorded on AWS: the payloads, the log lines, the context.)

**MiniStack** reports every exception as Runtime.HandlerError without a stack trace, and a result that is no JSON too.

**Here** the same is written anew. This module runs inside the execution environment, where it is loaded by
:mod:`parity.lambda_bootstrap`; it imports nothing but the standard library.

* Code below the task root is compiled under the name that it has on AWS, so that every stack trace reads
  ``File "/var/task/index.py"``, wherever the folder really is. The frames of Python's own modules and of AWS's packages
  are renamed in what is answered.
* JSON is written by the standard library, where AWS uses simplejson: a Decimal becomes the nearest int or float, and a
  named tuple a list.
* The interpreter is the stand-in's own, whatever version the function's ``Runtime`` names.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Any

TASK_ROOT = "/var/task"
NO_BREAK_SPACE = "\u00a0"  # AWS indents a logged stack trace with it, so that no viewer takes the indentation away

# Folders of this machine, and what they are called on AWS.
ELSEWHERE = {os.path.dirname(os.__file__): f"/var/lang/lib/python{sys.version_info[0]}.{sys.version_info[1]}"}

Handler = Callable[[Any, "Context"], Any]


class Fault(Exception):
    """An error of the runtime, not of the handler's own code."""

    def __init__(self, kind: str, message: str, trace: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.kind = f"Runtime.{kind}"
        self.message = message
        self.trace = list(trace)


def error_payload(error: BaseException, request_id: str = "") -> dict[str, Any]:
    """What AWS answers for an exception: the class name, and the frames from the handler's on."""
    if isinstance(error, Fault):
        message, kind, trace = error.message, error.kind, error.trace
    else:
        frames = traceback.extract_tb(error.__traceback__)
        while len(frames) > 1 and frames[0].filename == __file__:
            del frames[0]
        message, kind = str(error), type(error).__name__
        # Without columns: AWS's frames have no markers (^^^^) under their lines.
        plain = [(name_on_aws(frame.filename), frame.lineno, frame.name, frame.line) for frame in frames]
        trace = traceback.format_list(traceback.StackSummary.from_list(plain))
    return {"errorMessage": message, "errorType": kind, "requestId": request_id, "stackTrace": trace}


def name_on_aws(path: str) -> str:
    """A file's path, with what AWS would show for the folder in place of this machine's."""
    for folder, shown in ELSEWHERE.items():
        if path.startswith(folder + os.sep):
            return shown + path[len(folder) :]
    return path


def error_text(payload: Mapping[str, Any]) -> str:
    """An error payload as the one log event that AWS writes for it."""
    kind, message = payload["errorType"], payload["errorMessage"]
    lines = [f"[ERROR] {kind}" + (f": {message}" if message else ""), "Traceback (most recent call last):"]
    for entry in payload["stackTrace"]:
        for line in entry.splitlines():
            bare = line.lstrip(" ")
            lines.append(NO_BREAK_SPACE * (len(line) - len(bare)) + bare)
    return "\n".join(lines)


def find_handler(name: str) -> Handler:
    """Import what ``module.function`` names. Raises :class:`Fault`, or whatever the module raises itself."""
    module, dot, function = name.rpartition(".")
    if not dot:
        raise Fault("MalformedHandlerName", f"Bad handler '{name}': not enough values to unpack (expected 2, got 1)")
    if module.split(".")[0] in sys.builtin_module_names:
        raise Fault("BuiltInModuleConflict", f"Cannot use built-in module {module} as a handler module")
    try:
        found = importlib.import_module(module.replace("/", "."))
    except ImportError as error:
        raise Fault("ImportModuleError", f"Unable to import module '{module}': {error}") from error
    except SyntaxError as error:
        where = f'  File "{error.filename}" Line {error.lineno}\n    {error.text}'
        raise Fault("UserCodeSyntaxError", f"Syntax error in module '{module}': {error}", [where]) from error
    try:
        handler: Handler = getattr(found, function)
    except AttributeError:
        raise Fault("HandlerNotFound", f"Handler '{function}' missing on module '{module}'") from None
    return handler


def load(name: str) -> tuple[Handler | None, dict[str, Any] | None]:
    """The handler, or the payload of the error that importing it ended in. What is no Exception comes out of here."""
    try:
        return find_handler(name), None
    except Exception as error:  # noqa: BLE001 - whatever a module raises when it is imported is the answer
        return None, error_payload(error)


class TaskLoader(importlib.machinery.SourceFileLoader):
    """Compiles the code below the task root under its name on AWS; ``__file__`` stays what it really is."""

    root = ""

    def get_code(self, fullname: str) -> Any:
        path = self.get_filename(fullname)
        return self.source_to_code(self.get_data(path), path.replace(self.root, TASK_ROOT, 1))


def import_from(root: str) -> None:
    """Let modules below ``root`` be imported by :class:`TaskLoader`."""
    machinery = importlib.machinery
    loader = type("Loader", (TaskLoader,), {"root": root})
    hook = machinery.FileFinder.path_hook(
        (machinery.ExtensionFileLoader, machinery.EXTENSION_SUFFIXES),
        (loader, machinery.SOURCE_SUFFIXES),
        (machinery.SourcelessFileLoader, machinery.BYTECODE_SUFFIXES),
    )

    def below_root(path: str) -> Any:
        if path != root and not path.startswith(root + os.sep):
            raise ImportError(path)
        return hook(path)

    sys.path_hooks.insert(0, below_root)
    sys.path_importer_cache.clear()


class Context:
    """What a handler gets beside the event."""

    def __init__(self, header: Mapping[str, Any], environment: Mapping[str, str], log: Callable[[str], None]) -> None:
        self.aws_request_id: str = header["request_id"]
        self.invoked_function_arn: str = header["arn"]
        self.function_name = environment.get("AWS_LAMBDA_FUNCTION_NAME")
        self.function_version = environment.get("AWS_LAMBDA_FUNCTION_VERSION")
        self.memory_limit_in_mb = environment.get("AWS_LAMBDA_FUNCTION_MEMORY_SIZE")  # a string, on AWS too
        self.log_group_name = environment.get("AWS_LAMBDA_LOG_GROUP_NAME")
        self.log_stream_name = environment.get("AWS_LAMBDA_LOG_STREAM_NAME")
        self.tenant_id: str | None = None
        self.identity = _Fields(cognito_identity_id=None, cognito_identity_pool_id=None)
        self.client_context = _client_context(header.get("client_context"))
        self._deadline: float = header["deadline"]
        self._log = log

    def get_remaining_time_in_millis(self) -> int:
        return max(0, int((self._deadline - time.time()) * 1000))

    def log(self, message: object) -> None:
        self._log(str(message))

    def __repr__(self) -> str:
        shown = ",".join(f"{name}={value}" for name, value in vars(self).items() if not name.startswith("_"))
        return f"LambdaContext([{shown}])"


class _Fields:
    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)

    def __repr__(self) -> str:
        return f"({','.join(f'{name}={value}' for name, value in vars(self).items())})"


def _client_context(given: Mapping[str, Any] | None) -> _Fields | None:
    if given is None:
        return None
    names = ("installation_id", "app_title", "app_version_name", "app_version_code", "app_package_name")
    client = given.get("client")
    found = None if client is None else _Fields(**{name: client.get(name) for name in names})
    return _Fields(client=found, custom=given.get("custom"), env=given.get("env"))


def _number(value: Any) -> int | float:
    if not isinstance(value, Decimal):
        raise TypeError(f"Object of type {type(value).__name__} is not JSON serializable")
    whole = value.is_finite() and value == value.to_integral_value()
    return int(value) if whole else float(value)


def marshal(result: Any) -> bytes:
    """A handler's result as the answer's payload: JSON, or bytes as they are."""
    if isinstance(result, bytes):
        return result
    try:
        return json.dumps(result, ensure_ascii=False, default=_number).encode()
    except Exception as error:
        raise Fault("MarshalError", f"Unable to marshal response: {error}") from error


def answer(handler: Handler, event: bytes, context: Context) -> tuple[str, bytes]:
    """Call the handler: ``result`` or ``error``, and the payload. Only what is no Exception comes out of here."""
    try:
        return "result", marshal(handler(json.loads(event), context))
    except Exception as error:  # noqa: BLE001 - whatever a handler raises is its answer
        payload = error_payload(error, context.aws_request_id)
        context.log(error_text(payload))
        return "error", json.dumps(payload).encode()
