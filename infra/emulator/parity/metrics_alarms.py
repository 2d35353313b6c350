"""CloudWatch alarms on metrics that services publish about themselves.

**On AWS** an alarm watches one metric, that is one combination of namespace, name and dimensions. It looks at the last
``EvaluationPeriods`` periods and goes to ALARM when ``DatapointsToAlarm`` of them breach; ``TreatMissingData`` says
what a period without data counts as (CloudWatch User Guide, "Alarm evaluation", "Configuring how CloudWatch alarms
treat missing data"). It is evaluated every minute.

**MiniStack** puts together every metric of the same name, whatever its dimensions, so that the alarm on one queue sees
all queues; it knows neither DatapointsToAlarm nor TreatMissingData, and evaluates only when somebody calls
``PutMetricData`` or ``PutMetricAlarm``.

**Here** an alarm sees its own metric, and is evaluated every second and whenever alarms are described: what takes
minutes on AWS takes a second. The period that is under way counts as the newest one. Not modelled: that AWS looks at
more periods than asked when some have no data, metric math, anomaly detection."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from parity import metrics

EVERY = 1.0  # seconds between two evaluations of all alarms
logger = logging.getLogger("parity.metrics")

COMPARISONS: dict[str, Callable[[float, float], bool]] = {
    "GreaterThanOrEqualToThreshold": lambda value, threshold: value >= threshold,
    "GreaterThanThreshold": lambda value, threshold: value > threshold,
    "LessThanThreshold": lambda value, threshold: value < threshold,
    "LessThanOrEqualToThreshold": lambda value, threshold: value <= threshold,
}


def verdict(values: Sequence[float | None], alarm: Mapping[str, Any]) -> str | None:
    """The state for ``values``, one a period and ``None`` without data; ``None`` to leave the alarm alone."""
    breaches = COMPARISONS[alarm["ComparisonOperator"]]
    missing = alarm.get("TreatMissingData") or "missing"
    needed = int(alarm.get("DatapointsToAlarm") or alarm.get("EvaluationPeriods") or 1)
    if all(value is None for value in values):
        return {"missing": "INSUFFICIENT_DATA", "ignore": None, "breaching": "ALARM", "notBreaching": "OK"}[missing]
    breaching = [
        missing == "breaching" if value is None else breaches(value, float(alarm["Threshold"])) for value in values
    ]
    return "ALARM" if sum(breaching) >= needed else "OK"


def periods(now: float, period: int, number: int) -> list[float]:
    """The starts of the last ``number`` periods, the one under way included."""
    newest = now // period * period
    return [newest - back * period for back in reversed(range(number))]


def value_of(
    points: Sequence[metrics.Point], start: float, period: int, statistic: Callable[[list[metrics.Point]], float | None]
) -> float | None:
    """The statistic over one period, or ``None`` without data."""
    inside = [point for point in points if start <= point["Timestamp"] < start + period]
    return statistic(inside) if inside else None


def reason(values: Sequence[float | None], alarm: Mapping[str, Any], statistic: str) -> str:
    known = [value for value in values if value is not None]
    if not known:
        return f"Insufficient Data: no data points in the last {len(values)} period(s)."
    return (
        f"Threshold Crossed: {statistic} was {known} in the last {len(values)} period(s); "
        f"the alarm is on {alarm['ComparisonOperator']} {alarm['Threshold']}."
    )


def install() -> None:
    from ministack.core.responses import request_scope
    from ministack.services import cloudwatch as cw

    def evaluate(alarm: dict[str, Any]) -> None:
        if not alarm.get("MetricName") or alarm.get("ComparisonOperator") not in COMPARISONS:
            return
        dimensions = {d["Name"]: d["Value"] for d in alarm.get("Dimensions") or []}
        statistic = alarm.get("ExtendedStatistic") or alarm.get("Statistic") or "Average"
        period = int(alarm.get("Period") or metrics.MINUTE)
        points = metrics.points_of(alarm["Namespace"], alarm["MetricName"], dimensions)
        values = [
            value_of(points, start, period, lambda inside: cw._stat_value(cw._calc_stats(inside), statistic, inside))
            for start in periods(time.time(), period, int(alarm.get("EvaluationPeriods") or 1))
        ]
        after, why = verdict(values, alarm), reason(values, alarm, statistic)
        with changing:
            before = alarm["StateValue"]
            if after is None or after == before:
                return
            alarm.update(StateValue=after, StateReason=why, StateUpdatedTimestamp=int(time.time()))
        # Actions may come back to this server: no lock is held for them.
        cw._record_history(alarm["AlarmName"], before, after, why)
        cw._dispatch_alarm_actions(alarm, before, after, why)
        cw._evaluate_parent_alarms(alarm)

    def evaluate_all() -> None:
        """Evaluate the alarms of the current account and region."""
        alarms = list(cw._alarms.values())
        if alarms:
            metrics.sample()
        for alarm in alarms:
            try:
                cw._evaluate_alarm(alarm)
            except Exception:
                logger.exception("alarm %s could not be evaluated", alarm.get("AlarmName"))

    def every_second() -> None:
        while True:
            time.sleep(EVERY)
            for account, region in {(key[0], key[1]) for key, _ in cw._alarms.all_items()}:
                with request_scope(account, region):
                    evaluate_all()

    def described(handler: Callable[..., Any]) -> Callable[..., Any]:
        def handle(*arguments: Any) -> Any:
            evaluate_all()
            return handler(*arguments)

        return handle

    changing = threading.Lock()  # or two threads would both report the same change of state
    _ = cw._evaluate_alarm, cw._evaluate_all_alarms, cw._record_history, cw._dispatch_alarm_actions
    _ = cw._evaluate_parent_alarms, cw._stat_value, cw._calc_stats
    cw._evaluate_alarm, cw._evaluate_all_alarms = evaluate, evaluate_all
    for name in ("_describe_alarms", "_describe_alarms_for_metric", "_describe_alarm_history"):
        setattr(cw, name, described(getattr(cw, name)))
    threading.Thread(target=every_second, name="alarms", daemon=True).start()
