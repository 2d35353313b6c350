"""A function's log: one stream per execution environment, and the lines of the platform around the handler's.

**On AWS** an environment has one log stream for its whole life, ``YYYY/MM/DD/[version]id``. An invocation writes
START, what the handler wrote, END and REPORT into it; an environment that starts writes INIT_START before. REPORT has
the durations, the memory, on a cold start the Init Duration, which is billed too since August 2025, and the status when
there was no answer. ``LogType=Tail`` returns the last 4 KB of what was logged from START on. (Recorded on AWS: the
lines and their tabs, the stream's name. From public logs: billing, status.)

**MiniStack** makes a stream for every invocation and writes it when the invocation is over; the tail has none of the
platform's lines.

**Here** events are put into CloudWatch Logs as they are written, in the API's own way, so that subscription filters and
Live Tail see them. Not done: ``LogFormat`` JSON, in which AWS writes the platform's lines and the logging module's
records as JSON; a function with it gets the text format.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

_creating = threading.Lock()


def stream_name(moment: float, version: str, identity: str) -> str:
    return f"{datetime.fromtimestamp(moment, UTC):%Y/%m/%d}/[{version}]{identity}"


def moment_text(moment: float) -> str:
    """A time as log lines show it: 2026-01-31T12:00:00.123Z."""
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def init_line(runtime: str, region: str) -> str:
    """INIT_START, with a runtime version that is none of AWS's."""
    name = runtime.replace("python", "python:")
    return f"INIT_START Runtime Version: {name}.lab\tRuntime Version ARN: arn:aws:lambda:{region}::runtime:lab\n"


def init_report_line(seconds: float, status: str) -> str:
    """INIT_REPORT, which is there only when the Init phase was no success; ``status`` says why."""
    return f"INIT_REPORT Init Duration: {seconds * 1000:.2f} ms\tPhase: init\t{status}\n"


def start_line(request_id: str, version: str) -> str:
    return f"START RequestId: {request_id} Version: {version}\n"


def end_line(request_id: str) -> str:
    return f"END RequestId: {request_id}\n"


def report_line(
    request_id: str, seconds: float, *, size: int, used: int, init: float | None = None, status: str = ""
) -> str:
    """REPORT. ``seconds`` is the invocation's duration, ``init`` that of a cold start; ``size``, ``used`` in MB."""
    duration = seconds * 1000
    billed = math.ceil(duration + (init or 0) * 1000)
    parts = [
        f"REPORT RequestId: {request_id}",
        f"Duration: {duration:.2f} ms",
        f"Billed Duration: {billed} ms",
        f"Memory Size: {size} MB",
        f"Max Memory Used: {used} MB",
    ]
    if init is not None:
        parts.append(f"Init Duration: {init * 1000:.2f} ms")
    if status:
        parts.append(status)
    return "\t".join(parts) + "\t\n"


def events_of(messages: Iterable[str], now: float) -> list[dict[str, Any]]:
    """What was written, as PutLogEvents takes it. CloudWatch Logs has no empty events: an empty line is a line break,
    as on AWS."""
    return [{"timestamp": int(now * 1000), "message": message or "\n"} for message in messages]


@dataclass(frozen=True)
class Stream:
    """Where an environment's log goes."""

    account: str
    region: str
    group: str
    name: str

    def put(self, messages: Iterable[str]) -> None:
        """Write events with the time of now. The group and the stream are made when they are not there."""
        from ministack.core.responses import request_scope
        from ministack.services import cloudwatch_logs

        events = events_of(messages, time.time())
        with request_scope(self.account, self.region):
            self._ensure()
            cloudwatch_logs._put_log_events(
                {"logGroupName": self.group, "logStreamName": self.name, "logEvents": events}
            )

    def _ensure(self) -> None:
        from ministack.services import cloudwatch_logs

        group = cloudwatch_logs._log_groups.get(self.group)
        if group is not None and self.name in group["streams"]:
            return
        with _creating:  # both answer with an error when it is there already, which is as good
            cloudwatch_logs._create_log_group({"logGroupName": self.group})
            cloudwatch_logs._create_log_stream({"logGroupName": self.group, "logStreamName": self.name})


def group_of(config: Mapping[str, Any]) -> str:
    return (config.get("LoggingConfig") or {}).get("LogGroup") or f"/aws/lambda/{config['FunctionName']}"


def install() -> None:
    """Nothing is replaced here; a release without one of these names fails at the start, not at the first event."""
    from ministack.services import cloudwatch_logs

    _ = cloudwatch_logs._put_log_events, cloudwatch_logs._create_log_group, cloudwatch_logs._create_log_stream
    _ = cloudwatch_logs._log_groups
