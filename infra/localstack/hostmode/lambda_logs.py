"""A function's log in LocalStack's CloudWatch Logs.

**On AWS**: see :mod:`parity.lambda_logs`.

**LocalStack** has a thread for each function, which assumes the function's role and writes an invocation's output when
it is over, cut at every line break.

**Here** events are written as they come, and no thread waits for any.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

from parity import lambda_logs

_creating = threading.Lock()


class Stream(lambda_logs.Stream):
    def put(self, messages: Iterable[str]) -> None:
        from moto.logs.models import logs_backends

        backend = logs_backends[self.account][self.region]
        with _creating:
            if self.group not in backend.groups:
                backend.create_log_group(self.group, {})
            if self.name not in backend.groups[self.group].streams:
                backend.create_log_stream(self.group, self.name)
        backend.put_log_events(self.group, self.name, lambda_logs.events_of(messages, time.time()))


def install() -> None:
    from localstack.services.lambda_.invocation.logs import LogHandler
    from localstack.services.lambda_.invocation.version_manager import LambdaVersionManager
    from localstack.services.plugins import SERVICE_PLUGINS
    from moto.logs.models import LogsBackend

    def nothing(*_: Any, **__: Any) -> None:
        """The environment writes its log itself."""

    _ = LogHandler.start_subscriber, LambdaVersionManager.store_logs
    _ = LogsBackend.create_log_group, LogsBackend.create_log_stream, LogsBackend.put_log_events
    SERVICE_PLUGINS.require("logs")  # subscription filters are LocalStack's own
    LogHandler.start_subscriber = nothing
    LambdaVersionManager.store_logs = nothing
