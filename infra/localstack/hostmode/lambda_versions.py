"""From one version of a function to the next, and the end of one.

**On AWS** an update lets running invocations come to their end, and none fails because of it (see
:mod:`parity.lambda_pool`).

**LocalStack** refuses an invocation that has found the version of before when that is being stopped, or starts it after
its code was removed; six threads at most make versions ready and stop others, and stopping one takes up to three
seconds.

**Here** such an invocation goes to the version that has taken over, and nobody waits for the end of others.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

WORKERS = 32

_services: list[Any] = []


def service() -> Any:
    """LocalStack's ``LambdaService`` of this process."""
    return _services[0]


def install() -> None:
    from localstack.services.lambda_.invocation.event_manager import LambdaEventManager
    from localstack.services.lambda_.invocation.internal_sqs_queue import get_fake_sqs_client
    from localstack.services.lambda_.invocation.lambda_service import LambdaService
    from localstack.services.lambda_.invocation.version_manager import LambdaVersionManager

    make, invoke, stop_events = LambdaService.__init__, LambdaVersionManager.invoke, LambdaEventManager.stop

    def make_service(self: Any, *arguments: Any, **more: Any) -> None:
        make(self, *arguments, **more)
        self.task_executor.shutdown()
        self.task_executor = ThreadPoolExecutor(WORKERS, thread_name_prefix="lambda-service-task")
        _services[:] = [self]

    def successor(manager: Any) -> Any:
        found = service().lambda_running_versions.get(manager.function_arn)
        return found if found is not manager else None

    def invoke_current(self: Any, *, invocation: Any) -> Any:
        if self.shutdown_event.is_set() and (newer := successor(self)):
            return newer.invoke(invocation=invocation)
        try:
            return invoke(self, invocation=invocation)
        except FileNotFoundError:  # its code was removed a moment ago
            newer = successor(self)
            if newer is None:
                raise
            return newer.invoke(invocation=invocation)

    def stop_at_once(self: Any) -> None:
        queue = get_fake_sqs_client().queue_manager.queues.get(self.event_queue_url)
        if queue is not None:
            queue.shutdown()  # ends the receive that the thread is in
        stop_events(self)

    _ = LambdaService.stop_version, LambdaVersionManager.start
    LambdaService.__init__ = make_service
    LambdaVersionManager.invoke = invoke_current
    LambdaEventManager.stop = stop_at_once
