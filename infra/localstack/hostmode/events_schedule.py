"""Rules with a schedule.

**On AWS** a scheduled rule sends an event of the source aws.events to its targets, as any other rule does: with
permissions, retries and dead-letter queues, and not while it is disabled (EventBridge User Guide, "Creating a rule that
runs on a schedule").

**LocalStack** starts a job at each PutTargets, so that a rule whose targets were put twice fires twice; a job goes on
after its rule has been deleted or disabled; a delivery that fails is logged.

**Here** only the newest job of a rule fires, while the rule is enabled, and :mod:`hostmode.events_dispatch` delivers.
LocalStack's scheduler looks once a minute.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .events_dispatch import Arrival, dispatcher
from .events_input import BUS_NAME


def install() -> None:
    from localstack.services.events.provider import EventsProvider
    from localstack.utils.strings import long_uid
    from localstack.utils.time import TIMESTAMP_FORMAT_TZ, timestamp
    from localstack.utils.xray.trace_header import TraceHeader

    newest: dict[str, object] = {}  # the job of each rule

    def job_of(self: EventsProvider, account: str, region: str, rule: Any) -> Callable[..., None]:
        name, bus_name, arn = rule.name, rule.event_bus_name, rule.arn

        def job(*_: Any) -> None:
            bus = self.get_store(region, account).event_buses.get(bus_name)
            current = bus.rules.get(name) if bus else None
            if newest.get(arn) is not job or current is None or current.state == "DISABLED":
                return
            event = {
                "version": "0",
                "id": long_uid(),
                "detail-type": "Scheduled Event",
                "source": "aws.events",
                "account": account,
                "time": timestamp(format=TIMESTAMP_FORMAT_TZ),
                "region": region,
                "resources": [arn],
                "detail": {},
                BUS_NAME: bus_name,
            }
            header = TraceHeader().ensure_root_exists()
            dispatcher().fire(Arrival(self, account, region, bus_name, event, header), current)

        newest[arn] = job
        return job

    _ = EventsProvider._get_scheduled_rule_job_function
    EventsProvider._get_scheduled_rule_job_function = job_of
