"""One execution environment, from its cold start through its invocations to its end.

**On AWS** a cold start runs the Init phase, for which there are 10 s; if it takes longer, it is done again as a part of
the first invocation, within the function's timeout. An exception leaves the environment as it is: the next invocation
finds the module's variables. A time-out or the end of the process resets it: a new process, the same ``/tmp``, the same
log stream, and no Init Duration in the REPORT line (Lambda Developer Guide, "Understanding the Lambda execution
environment lifecycle"; recorded on AWS: variables and files after an exception and after a time-out).

**MiniStack** starts a new process after every exception, has no limit of its own for the Init phase, and gives handlers
the stand-in's environment.

**Here** :class:`Environment` takes the place of MiniStack's worker for Python functions; other runtimes stay as they
are. Not done: AWS repeats an Init phase that failed before it reports the failure, so that a module's side effects
happen twice; here they happen once.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import threading
import time
import uuid
from collections.abc import Mapping
from typing import Any

from . import lambda_logs as logs
from .lambda_environment import Places, credentials, make_places, remove_left_over, search_path, variables
from .lambda_failures import Failure, exited, timed_out, too_large
from .lambda_output import Tail
from .lambda_process import Outcome, Process
from .lambda_request import Request, current, trace_header

INIT_LIMIT = 10.0  # seconds
# What an environment is made for. AWS makes new ones after any change of a function.
MADE_FOR = (
    "CodeSha256",
    "Environment",
    "Handler",
    "Layers",
    "LoggingConfig",
    "MemorySize",
    "Runtime",
    "Timeout",
    "TracingConfig",
    "Version",
)
DEFAULTS = {"Timeout": 3, "MemorySize": 128, "Version": "$LATEST", "Layers": ()}


def parsed(payload: bytes) -> Any:
    """A payload as its callers within the stand-in want it: the JSON value, or the bytes when it is none."""
    try:
        return json.loads(payload)
    except ValueError:
        return payload


class Environment:
    """An execution environment of a Python function. It has what MiniStack's pool asks of a worker."""

    def __init__(self, name: str, config: Mapping[str, Any], code: bytes) -> None:
        from ministack.services import lambda_svc

        account, region = lambda_svc._account_region_from_function_config(config)
        self.config = {**DEFAULTS, **config}  # CloudFormation's functions have what their template says
        stream = logs.stream_name(time.time(), self.config["Version"], uuid.uuid4().hex)
        self.in_use = False
        self.retired = False
        self.last_used = time.time()
        self.stream = logs.Stream(account, region, logs.group_of(config), stream)
        self._code = code
        self._lock = threading.Lock()
        self._proc = None  # MiniStack ends a worker's process by this name; ours ends in _discard_tmpdir
        self._folders: Places | None = None
        self._process: Process | None = None
        self._fresh = True  # no process has run in it yet
        self._tail = Tail()

    def serves(self, config: Mapping[str, Any]) -> bool:
        """Whether it was made for this configuration: an update may have come between a request and its turn."""
        return all(self.config.get(name) == {**DEFAULTS, **config}.get(name) for name in MADE_FOR)

    def run(self, event: bytes, request: Request, *, arn: str, values: Mapping[str, str], depth: int) -> dict[str, Any]:
        """Run one invocation. ``values`` are variables for it alone, ``depth`` counts the hops that led here."""
        from ministack.core.lambda_runtime import INVOKE_DEPTH_HEADER

        with self._lock:
            timeout = float(self.config["Timeout"])
            active = (self.config.get("TracingConfig") or {}).get("Mode") == "Active"
            trace = trace_header(request.trace, active=active, now=time.time(), chance=secrets.token_hex(20))
            outcome, init = self._initialised()
            self._tail = Tail()
            self._log([logs.start_line(request.identity, self.config["Version"])])
            began = time.monotonic()
            if outcome.kind == "timeout":  # the Init phase is done again, within the invocation
                outcome = self._start(timeout)
            if outcome.kind == "ready":
                header = {
                    "request_id": request.identity,
                    "arn": arn,
                    "deadline": time.time() + timeout - (time.monotonic() - began),
                    "client_context": request.client_context,
                    "variables": {**values, "_X_AMZN_TRACE_ID": trace},
                    "headers": {INVOKE_DEPTH_HEADER: str(depth)},
                }
                assert self._process is not None
                outcome = self._process.invoke(header, event, began + timeout)
            seconds = timeout if outcome.kind == "timeout" else time.monotonic() - began
            return self._finished(outcome, request.identity, seconds, init)

    def _finished(self, outcome: Outcome, identity: str, seconds: float, init: float | None) -> dict[str, Any]:
        failure = self._failure(outcome, identity)
        used = self._process.memory if self._process else 0
        if outcome.kind not in ("result", "error"):
            self._end_process()
        if failure is not None and failure.text:
            self._log([failure.text])
        status = failure.status if failure else ""
        if outcome.kind == "failed":
            status = f"Status: error\tError Type: {parsed(outcome.payload)['errorType']}"
        size = int(self.config["MemorySize"])
        report = logs.report_line(identity, seconds, size=size, used=used, init=init, status=status)
        self._log([logs.end_line(identity), report])
        payload = failure.payload if failure else outcome.payload
        result: dict[str, Any] = {"body": parsed(payload), "log": str(self._tail), "log_source": "environment"}
        if failure is not None or outcome.kind != "result":
            result |= {"error": True, "function_error": "Unhandled"}
        return result | {"duration": seconds}

    def _failure(self, outcome: Outcome, identity: str) -> Failure | None:
        if outcome.kind == "timeout":
            return timed_out(identity, float(self.config["Timeout"]), logs.moment_text(time.time()))
        if outcome.kind == "exited":
            return exited(identity, outcome.status)
        return too_large(outcome.payload) if outcome.kind == "result" else None

    def _initialised(self) -> tuple[Outcome, float | None]:
        """See to it that a process waits for events; how that went, and how long a cold start took."""
        if self._process is not None and self._process.alive():
            return Outcome("ready"), None
        cold, self._fresh = self._fresh, False
        self._log([logs.init_line(self.config["Runtime"], self.stream.region)])
        began = time.monotonic()
        outcome = self._start(INIT_LIMIT)
        took = time.monotonic() - began
        if outcome.kind in ("failed", "exited"):
            kind = parsed(outcome.payload)["errorType"] if outcome.kind == "failed" else "Runtime.ExitError"
            self._log([logs.init_report_line(took, f"Status: error\tError Type: {kind}")])
        elif outcome.kind == "timeout":
            self._log([logs.init_report_line(INIT_LIMIT, "Status: timeout")])
        return outcome, took if cold and outcome.kind == "ready" else None

    def _start(self, limit: float) -> Outcome:
        self._end_process()
        until = time.monotonic() + limit
        places = self._places()
        given = variables(
            self.config,
            region=self.stream.region,
            credentials=self._credentials(),
            endpoint=f"http://127.0.0.1:{os.environ['GATEWAY_PORT']}",
            places=places,
            log_group=self.stream.group,
            log_stream=self.stream.name,
        )
        self._process = Process(places.task, given, self._log)
        return self._process.start(
            handler=self.config["Handler"],
            task_root=str(places.task),
            layers=search_path(places.layers),
            packages=[str(places.runtime)],
            until=until,
        )

    def _places(self) -> Places:
        """The environment's folders, which are made with its first process and stay for the next one."""
        from ministack.services import lambda_svc

        if self._folders is None:
            layers = [lambda_svc._resolve_layer_zip(layer) for layer in self.config["Layers"]]
            extract = lambda_svc._extract_zip_preserving_mode
            self._folders = make_places(self._code, [layer for layer in layers if layer], extract)
        return self._folders

    def _credentials(self) -> Mapping[str, str]:
        from ministack import app
        from ministack.core import lambda_runtime

        found: Mapping[str, str] = lambda_runtime.execution_credentials(self.config)
        return found if app.AUTH else credentials(self.stream.account)

    def _log(self, events: list[str]) -> None:
        for event in events:
            self._tail.add(event)
        self.stream.put(events)

    def _end_process(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()

    def _spawn(self) -> None:
        """Initialise it now. MiniStack calls this when a version with SnapStart is published."""
        outcome, _ = self._initialised()
        if outcome.kind != "ready":
            raise RuntimeError(f"the Init phase has ended with {outcome.kind}")

    def _discard_tmpdir(self) -> None:
        """The environment's end, by the name that MiniStack's pool calls it."""
        self._end_process()
        folders, self._folders = self._folders, None
        if folders is not None:
            shutil.rmtree(folders.task.parent, ignore_errors=True)

    def invoke(self, event: Any, request_id: str, **_: Any) -> dict[str, Any]:
        """One invocation in MiniStack's own shape, for its WebSocket APIs."""
        request = Request(request_id)
        result = self.run(json.dumps(event).encode(), request, arn=self.config["FunctionArn"], values={}, depth=0)
        if result.get("error"):
            return {"status": "error", "error": str(result["body"].get("errorMessage")), "log": result["log"]}
        return {"status": "ok", "result": result["body"], "log": result["log"]}


def install() -> None:
    from ministack.core import lambda_runtime
    from ministack.services import lambda_svc

    class_for, execute, emit = (
        lambda_runtime._worker_class_for,
        lambda_svc._execute_function_warm,
        lambda_svc._emit_lambda_logs,
    )

    def is_python(config: Mapping[str, Any]) -> bool:
        return str(config.get("Runtime", "")).startswith("python")

    def worker_class(config: Mapping[str, Any]) -> Any:
        return Environment if is_python(config) else class_for(config)

    def acquire(config: Mapping[str, Any], code: bytes) -> Environment:
        name, version = config["FunctionName"], config.get("Version", "$LATEST")
        while True:
            environment: Environment = lambda_svc.acquire_worker(name, config, code, qualifier=version)[0]
            if environment.serves(config):
                return environment
            environment.retired = True
            lambda_svc.release_worker(environment)

    def warm(function: Mapping[str, Any], event: Any, request_id: str) -> dict[str, Any]:
        config = function.get("config") or function
        if not is_python(config) or not function.get("code_zip"):
            return execute(function, event, request_id)
        lambda_svc._ensure_reaper_thread()
        environment = acquire(config, function["code_zip"])
        try:
            return environment.run(
                json.dumps(event).encode(),
                current.get() or Request(request_id),
                arn=config["FunctionArn"],
                values=lambda_svc._durable_env_overlay(),
                depth=lambda_svc._invoke_depth.get(),
            )
        finally:
            lambda_svc.release_worker(environment)

    def emit_unless_written(*arguments: Any, log_source: str | None = None, **more: Any) -> None:
        if log_source != "environment":
            emit(*arguments, log_source=log_source, **more)

    _ = lambda_svc._resolve_layer_zip, lambda_svc._extract_zip_preserving_mode, lambda_svc.acquire_worker
    _ = lambda_svc._account_region_from_function_config, lambda_svc._ensure_reaper_thread
    _ = lambda_svc._durable_env_overlay, lambda_svc._invoke_depth, lambda_runtime.execution_credentials
    _ = lambda_runtime.INVOKE_DEPTH_HEADER
    remove_left_over()
    lambda_runtime._worker_class_for = worker_class
    lambda_svc._execute_function_warm = warm
    lambda_svc._emit_lambda_logs = emit_unless_written
