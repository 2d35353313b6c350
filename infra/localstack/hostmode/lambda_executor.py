"""Execution environments as processes of this machine.

**On AWS**: see :mod:`parity.lambda_sandbox` and what it is made of.

**LocalStack** runs a container for each environment, whose runtime calls back over HTTP; an Init phase that fails has
no log, a client's context is dropped, and an update or the end of a function kills what is running.

**Here** an environment is parity's sandbox: a process group that ends with its environment, and at the latest with
LocalStack, however that ends. Its folders are below TMPDIR; the code in it is linked, so that it stays when LocalStack
removes its own copy. Running invocations come to their end, except at LocalStack's. No more than parity's number of
environments is idle at once.

Functions are Python in zip archives; others are created and fail.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from localstack import config
from localstack.aws.api.lambda_ import InvocationType, PackageType
from localstack.services.lambda_.api_utils import map_config_out
from localstack.services.lambda_.invocation.lambda_models import FunctionVersion, Invocation, InvocationResult
from localstack.services.lambda_.invocation.runtime_executor import RuntimeExecutor
from parity.lambda_environment import Places, credentials, new_places, remove_left_over, variables
from parity.lambda_logs import group_of, stream_name
from parity.lambda_pool import IDLE, MOST_IDLE
from parity.lambda_request import request_of
from parity.lambda_sandbox import Sandbox

from hostmode.lambda_logs import Stream
from hostmode.lambda_recursion import headers_for

HOST = "127.0.0.1"


def link(source: str, target: str) -> str:
    """Let ``target`` be the file ``source``; a later layer's file takes the place of an earlier one's."""
    Path(target).unlink(missing_ok=True)
    os.link(source, target)
    return target


class ProcessExecutor(RuntimeExecutor):
    """What LocalStack asks of an environment, and what parity's sandbox asks of its emulator."""

    alive: ClassVar[set[ProcessExecutor]] = set()

    def __init__(self, id: str, function_version: FunctionVersion) -> None:
        super().__init__(id=id, function_version=function_version)
        name = function_version.id
        self.config = map_config_out(function_version)
        stream = stream_name(time.time(), name.qualifier, id)
        self.stream = Stream(name.account, name.region, group_of(self.config), stream)
        self._sandbox = Sandbox(self.config, name.region, self)
        self.alive.add(self)

    # -- for LocalStack --------------------------------------------------------------------------------------------

    @classmethod
    def prepare_version(cls, function_version: FunctionVersion) -> None:
        settings = function_version.config
        if settings.package_type != PackageType.Zip or not str(settings.runtime or "").startswith("python"):
            raise NotImplementedError("without containers, functions are Python in zip archives")
        for code in (settings.code, *(layer.code for layer in settings.layers)):
            code.prepare_for_execution()

    @classmethod
    def cleanup_version(cls, function_version: FunctionVersion) -> None:
        """Nothing is left of a version but its environments, which end by themselves."""

    def start(self, env_vars: dict[str, str]) -> None:
        """The first invocation runs the Init phase, which belongs to its log."""

    def stop(self) -> None:
        self._sandbox.end()
        self.alive.discard(self)

    def kill(self) -> None:
        self._sandbox.kill()

    def run(self, invocation: Invocation) -> InvocationResult:
        payload = bytes(invocation.payload or b"{}")
        context = {"x-amz-client-context": invocation.client_context or ""}
        request = request_of(context, payload, synchronous=invocation.invocation_type != InvocationType.Event)
        trace = invocation.trace_context.get("aws_trace_header")
        if trace is not None:
            trace.ensure_sampled_exists()
            trace.ensure_parent_exists()
        request = replace(request, identity=invocation.request_id, trace=trace.to_header_str() if trace else None)
        headers = headers_for(invocation)
        ran = self._sandbox.run(payload, request, arn=invocation.invoked_arn, values={}, headers=headers)
        return InvocationResult(invocation.request_id, ran.payload, ran.failed, ran.log)

    def invoke(self, payload: dict[str, str]) -> InvocationResult:
        raise NotImplementedError("an environment's invocations come through run()")

    def get_logs(self) -> str:
        return ""  # they are in CloudWatch Logs

    def get_address(self) -> str:
        return HOST

    def get_endpoint_from_executor(self) -> str:
        return HOST

    def get_runtime_endpoint(self) -> str:
        return f"http://{HOST}:{config.GATEWAY_LISTEN[0].port}"

    # -- for the sandbox -------------------------------------------------------------------------------------------

    def places(self) -> Places:
        places, settings = new_places(), self.function_version.config
        try:
            for code, target in (
                (settings.code, places.task),
                *((layer.code, places.layers) for layer in settings.layers),
            ):
                folder = code.get_unzipped_code_location()
                shutil.copytree(folder, target, copy_function=link, symlinks=True, dirs_exist_ok=True)
        except OSError as error:
            shutil.rmtree(places.task.parent, ignore_errors=True)
            raise FileNotFoundError(f"the code of {self.function_version.qualified_arn} is gone") from error
        return places

    def variables(self, places: Places) -> dict[str, str]:
        return variables(
            self.config,
            region=self.stream.region,
            credentials=credentials(self.stream.account),
            endpoint=self.get_runtime_endpoint(),
            places=places,
            log_group=self.stream.group,
            log_stream=self.stream.name,
        )

    def write(self, events: list[str]) -> None:
        self.stream.put(events)


def install() -> None:
    from localstack.services.lambda_.invocation.execution_environment import ExecutionEnvironment, RuntimeStatus
    from localstack.services.lambda_.invocation.lambda_service import LambdaService

    reserve, release, end = ExecutionEnvironment.reserve, ExecutionEnvironment.release, ExecutionEnvironment.stop
    stop = LambdaService.stop
    idle: OrderedDict[str, Any] = OrderedDict()
    lock = threading.Lock()

    def busy(self: Any) -> None:
        with lock:
            idle.pop(self.id, None)

    def reserve_it(self: Any) -> None:
        reserve(self)
        busy(self)

    def end_it(self: Any) -> None:
        busy(self)
        end(self)

    def release_it(self: Any) -> None:
        if self.status == RuntimeStatus.STOPPED:
            return  # its function was changed while it ran: the sandbox has ended by itself
        release(self)
        with lock:
            idle[self.id] = self
            ended = [idle.popitem(last=False)[1] for _ in range(len(idle) - MOST_IDLE)]
        for environment in ended:
            environment.keepalive_passed()

    def invoke(self: Any, invocation: Invocation) -> InvocationResult:
        return self.runtime_executor.run(invocation)

    def no_variables(self: Any) -> dict[str, str]:
        return {}  # parity's are made with the environment's folders; these would need a role to be assumed

    def stop_all(self: Any) -> None:
        for executor in list(ProcessExecutor.alive):
            executor.kill()
        stop(self)

    _ = ExecutionEnvironment.invoke, ExecutionEnvironment.get_environment_variables
    _ = ExecutionEnvironment.keepalive_passed, config.LAMBDA_KEEPALIVE_MS
    remove_left_over()
    config.LAMBDA_KEEPALIVE_MS = int(IDLE * 1000)
    ExecutionEnvironment.reserve = reserve_it
    ExecutionEnvironment.release = release_it
    ExecutionEnvironment.stop = end_it
    ExecutionEnvironment.invoke = invoke
    ExecutionEnvironment.get_environment_variables = no_variables
    LambdaService.stop = stop_all
