"""CloudWatch alarms that are evaluated soon.

**On AWS**: see :mod:`parity.metrics_alarms`, whose rules decide here as well: which periods, which state, which
reason.

**LocalStack** evaluates an alarm once in ``Period * EvaluationPeriods`` seconds, on periods that end at that moment,
and collects them through calls of its own API.

**Here** LocalStack's scheduler evaluates each alarm every second, and describing alarms evaluates them first: what
takes minutes on AWS takes a second. A change of state goes through SetAlarmState, so that history, actions and
composite alarms are LocalStack's. Not evaluated, as in LocalStack: alarms on percentiles, metric math, anomaly
detection.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from parity.metrics_alarms import EVERY, periods, reason, verdict

logger = logging.getLogger("hostmode.metrics")


def values_of(database: Any, account: str, region: str, alarm: dict[str, Any], now: float) -> list[float | None]:
    """The alarm's statistic over its last periods, ``None`` for a period without data."""
    period = int(alarm["Period"])
    starts = periods(now, period, int(alarm["EvaluationPeriods"]))
    metric = {name: alarm[name] for name in ("Namespace", "MetricName")}
    metric["Dimensions"] = [dict(pair) for pair in alarm.get("Dimensions") or []]
    query = {"MetricStat": {"Metric": metric, "Period": period, "Stat": alarm["Statistic"], "Unit": alarm.get("Unit")}}
    found = database.get_metric_data_stat(
        account,
        region,
        query=query,
        start_time=datetime.fromtimestamp(starts[0], UTC),
        end_time=datetime.fromtimestamp(starts[-1] + period, UTC),
        scan_by="TimestampAscending",
    )
    known = dict(zip(found["timestamps"], found["values"], strict=True))
    return [known.get(int(start)) for start in starts]


def install() -> None:
    from localstack.aws.api import RequestContext
    from localstack.services.cloudwatch import provider_v2
    from localstack.services.cloudwatch.alarm_scheduler import AlarmScheduler
    from localstack.services.cloudwatch.models import cloudwatch_stores
    from localstack.utils.aws import arns

    provider_of = provider_v2.CloudwatchProvider
    start = provider_of.on_before_start
    _ = AlarmScheduler._is_alarm_supported, AlarmScheduler.schedule_metric_alarm, provider_of.set_alarm_state

    def evaluate(provider: Any, arn: str) -> None:
        place = arns.parse_arn(arn)
        account, region = place["account"], place["region"]
        known = cloudwatch_stores[account][region].alarms.get(arn)
        if not isinstance(known, provider_v2.LocalStackMetricAlarm):
            return
        alarm = known.alarm
        if not provider.alarm_scheduler._is_alarm_supported(alarm):
            return
        values = values_of(provider.cloudwatch_database, account, region, alarm, time.time())
        after = verdict(values, alarm)
        if after is None or after == alarm["StateValue"]:
            return
        seen = {
            "queryDate": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000+0000"),
            "statistic": alarm["Statistic"],
            "period": alarm["Period"],
            "recentDatapoints": [value for value in values if value is not None],
            "threshold": alarm["Threshold"],
        }
        context = RequestContext(None)  # type: ignore[arg-type]
        context.account_id, context.region = account, region
        why = reason(values, alarm, alarm["Statistic"])
        provider.set_alarm_state(context, alarm["AlarmName"], after, why, json.dumps(seen))

    def failed(error: Exception) -> None:
        logger.error("an alarm could not be evaluated", exc_info=error)

    def schedule(self: Any, alarm_arn: str) -> None:
        self.delete_scheduler_for_alarm(alarm_arn)
        self.scheduled_alarms[alarm_arn] = self.scheduler.schedule(
            evaluate, period=EVERY, fixed_rate=False, args=[self.provider, alarm_arn], on_error=failed
        )

    def started(self: Any) -> None:
        self.alarm_scheduler.provider = self
        start(self)

    def described(describe: Callable[..., Any]) -> Callable[..., Any]:
        def handle(self: Any, context: Any, *arguments: Any, **more: Any) -> Any:
            for arn in list(self.get_store(context.account_id, context.region).alarms):
                try:
                    evaluate(self, arn)
                except Exception as error:  # noqa: BLE001 - one bad alarm must not hide the others
                    failed(error)
            return describe(self, context, *arguments, **more)

        return handle

    AlarmScheduler.schedule_metric_alarm = schedule
    provider_of.on_before_start = started
    for name in ("describe_alarms", "describe_alarms_for_metric", "describe_alarm_history"):
        setattr(provider_of, name, described(getattr(provider_of, name)))
