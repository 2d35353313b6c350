"""Execution environments in MiniStack's pool.

**On AWS**: see :mod:`parity.lambda_sandbox`.

**MiniStack** keeps a worker per environment, which speaks with its process over the standard streams and gives handlers
the stand-in's environment.

**Here** :class:`Environment` takes the place of MiniStack's worker for Python functions; other runtimes stay as they
are.
"""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Mapping
from typing import Any

from . import lambda_logs as logs
from .lambda_environment import Places, credentials, make_places, remove_left_over, variables
from .lambda_request import Request, current
from .lambda_sandbox import Sandbox, parsed

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
        self._proc = None  # MiniStack ends a worker's process by this name; ours ends in _discard_tmpdir
        self._sandbox = Sandbox(self.config, region, self)

    def serves(self, config: Mapping[str, Any]) -> bool:
        """Whether it was made for this configuration: an update may have come between a request and its turn."""
        return all(self.config.get(name) == {**DEFAULTS, **config}.get(name) for name in MADE_FOR)

    def run(self, event: bytes, request: Request, *, arn: str, values: Mapping[str, str], depth: int) -> dict[str, Any]:
        """Run one invocation. ``values`` are variables for it alone, ``depth`` counts the hops that led here."""
        from ministack.core.lambda_runtime import INVOKE_DEPTH_HEADER

        headers = {INVOKE_DEPTH_HEADER: str(depth)}
        ran = self._sandbox.run(event, request, arn=arn, values=values, headers=headers)
        result: dict[str, Any] = {"body": parsed(ran.payload), "log": ran.log, "log_source": "environment"}
        if ran.failed:
            result |= {"error": True, "function_error": "Unhandled"}
        return result | {"duration": ran.seconds}

    def places(self) -> Places:
        from ministack.services import lambda_svc

        layers = [lambda_svc._resolve_layer_zip(layer) for layer in self.config["Layers"]]
        extract = lambda_svc._extract_zip_preserving_mode
        return make_places(self._code, [layer for layer in layers if layer], extract)

    def variables(self, places: Places) -> dict[str, str]:
        return variables(
            self.config,
            region=self.stream.region,
            credentials=self._credentials(),
            endpoint=f"http://127.0.0.1:{os.environ['GATEWAY_PORT']}",
            places=places,
            log_group=self.stream.group,
            log_stream=self.stream.name,
        )

    def write(self, events: list[str]) -> None:
        self.stream.put(events)

    def _credentials(self) -> Mapping[str, str]:
        from ministack import app
        from ministack.core import lambda_runtime

        found: Mapping[str, str] = lambda_runtime.execution_credentials(self.config)
        return found if app.AUTH else credentials(self.stream.account)

    def _spawn(self) -> None:
        """Initialise it now. MiniStack calls this when a version with SnapStart is published."""
        outcome = self._sandbox.initialise()
        if outcome.kind != "ready":
            raise RuntimeError(f"the Init phase has ended with {outcome.kind}")

    def _discard_tmpdir(self) -> None:
        """The environment's end, by the name that MiniStack's pool calls it."""
        self._sandbox.end()

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
