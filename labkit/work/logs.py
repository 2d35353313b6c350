"""Logs: what functions wrote, as lines in the order of time.

Each execution environment of a function writes a log stream of its own, with Lambda's own lines around each call. Here
the streams of a group are one, and Lambda's lines are left out unless they are asked for. A line that was written
through ``logging`` has level, time, request id and message, with tabs between; one that was printed is as it was.

On AWS a line can be read some seconds after it was written, and lines of different streams can come out of order.
"""

from __future__ import annotations

import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

_PLATFORM = re.compile(r"(START|END|REPORT) RequestId: |(INIT_START|INIT_REPORT|XRAY|EXTENSION|TELEMETRY)\b")


def is_platform(line: str) -> bool:
    """Whether Lambda wrote the line, and not the function."""
    return _PLATFORM.match(line) is not None


class Log:
    """One log group, by client and name (``/aws/lambda/agent-step``)."""

    def __init__(self, client: Any, group: str) -> None:
        self.client, self.group = client, group

    def make(self, tags: Mapping[str, str]) -> bool:
        """Make the group; False when it was there."""
        try:
            self.client.create_log_group(logGroupName=self.group, tags=dict(tags))
        except self.client.exceptions.ResourceAlreadyExistsException:
            return False
        return True

    def lines(self, since: float | None = None, *, limit: int = 1000, platform: bool = False) -> list[str]:
        """The newest ``limit`` lines since the moment ``since`` (epoch seconds), in order; none if there is no group.

        ``platform`` lets in Lambda's own lines: START, END, REPORT and their like.
        """
        return list(deque((event["message"].rstrip("\n") for event in self._events(since, platform)), maxlen=limit))

    def follow(
        self,
        seconds: float,
        *,
        since: float | None = None,
        platform: bool = False,
        every: float = 0.5,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Iterator[str]:
        """Yield lines as they are logged, for ``seconds``; the group is read ``every`` so many seconds.

        ``since`` (epoch seconds) is where the lines begin, now unless told. Take it before what you follow can start:
        a mapping reads its queue from the moment it is made. What was seen is counted, not cut off at a time: a line
        that comes late is not lost.
        """
        start = clock()
        since = start if since is None else since
        seen: Counter[tuple[str, int, str]] = Counter()
        while True:
            left = start + seconds - clock()  # before the look: what is logged until the end is still seen
            found: Counter[tuple[str, int, str]] = Counter()
            for event in self._events(since, platform):
                line = (event["logStreamName"], event["timestamp"], event["message"])
                found[line] += 1
                if found[line] > seen[line]:
                    seen[line] += 1
                    yield line[2].rstrip("\n")
            if left <= 0:
                return
            sleep(min(every, left))

    def _events(self, since: float | None, platform: bool) -> list[dict[str, Any]]:
        """What was logged, in order of time; within one millisecond as CloudWatch gives it."""
        options = {} if since is None else {"startTime": int(since * 1000)}
        pages = self.client.get_paginator("filter_log_events").paginate(logGroupName=self.group, **options)
        try:
            found = [event for page in pages for event in page["events"]]
        except self.client.exceptions.ResourceNotFoundException:
            return []
        found.sort(key=lambda event: event["timestamp"])
        return [event for event in found if platform or not is_platform(event["message"])]

    def __repr__(self) -> str:
        return f"<Log {self.group}>"
