"""What watches a fleet's queues and rules: ``python -m infra.prometheus.watch``, one for a fleet.

``QUEUES``: agent classes and their queues' URLs, ``researcher=https://…/agent-researcher,writer=https://…``.
``DEAD_LETTERS``: URLs of further dead-letter queues, those of EventBridge's targets. ``RULES``: ``bus/rule,bus/rule``.
``PORT``: where the numbers are shown, on this machine alone. Region, credentials and, off AWS, the endpoint come as for
any AWS SDK. It may read attributes of the queues (``sqs:GetQueueAttributes``, ``sqs:GetQueueUrl``) and
``cloudwatch:GetMetricData``, and nothing else.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Any

import boto3
from botocore.config import Config

from labkit.errors import LabError
from labkit.ops.scrape import MetricsError, MetricsPort
from labkit.ops.watch import FleetWatch
from labkit.work.queues import Queue

PORT = 9309
# Three attempts of seven seconds: what hangs is found out before the alarm on it rings.
CONFIG = Config(connect_timeout=2, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 3})
_NOT_ASKED = "not asked"  # a watch needs no ARN of its queues, and asking for it would want an answer


class Clients:
    def client(self, service: str, /) -> Any:
        return boto3.client(service, config=CONFIG)


def make() -> FleetWatch:
    """Raises :class:`~labkit.ops.scrape.MetricsError` for what is missing.

    A queue that does not answer is no reason not to start: that nobody watches it is what will be shown.
    """
    clients = Clients()
    sqs = clients.client("sqs")
    pairs = [pair.partition("=") for pair in _listed("QUEUES")]
    if not pairs or not all(agent and url for agent, _, url in pairs):
        raise MetricsError(f"QUEUES is class=URL, with commas between; got {os.environ.get('QUEUES', '')!r:.120}.")
    rules = [pair.partition("/") for pair in _listed("RULES")]
    if not all(bus and rule for bus, _, rule in rules):
        raise MetricsError(f"RULES is bus/rule, with commas between; got {os.environ.get('RULES', '')!r:.120}.")
    return FleetWatch(
        {agent: Queue(sqs, url, arn=_NOT_ASKED) for agent, _, url in pairs},
        clients=clients,
        dead_letters=[Queue(sqs, url, arn=_NOT_ASKED) for url in _listed("DEAD_LETTERS")],
        rules=[(bus, rule) for bus, _, rule in rules],
    )


def _listed(name: str) -> list[str]:
    return [part.strip() for part in os.environ.get(name, "").split(",") if part.strip()]


def main() -> int:
    end = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, frame: end.set())
    try:
        port = int(os.environ.get("PORT") or PORT)
    except ValueError:
        port = -1  # no port, as the next sentence says
    try:
        with make() as watch, MetricsPort(watch.registry, port):
            watch.start()
            end.wait()
    except LabError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
