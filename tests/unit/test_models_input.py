"""Whatever a model is asked, it answers with a number or with one sentence of its own."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from labkit.models import prices, workflows
from labkit.models._input import ModelError, flag, number, one_of, whole
from labkit.models.amplification import calls, idle_receives
from labkit.models.costs import Pod, bill
from labkit.models.delivery import Policy, Retries
from labkit.models.fan_out import MapRun, OpenRuns
from labkit.models.fit import Case, judge
from labkit.models.limits import Room, walls
from labkit.models.migration import Migration, RollingWindow
from labkit.models.workload import Workload

HUGE = 10**400
STRANGE = [
    -1, 0, math.nan, math.inf, -math.inf, 1e300, 5e-324, HUGE, -HUGE, 10**5000, "3", "no", None, True, [], {}, b"x",
    np.int64(3), np.float64(2.5), np.array([1, 2]), 1j, object(),
]  # fmt: skip


def rolled(**asked: Any) -> Any:
    now = asked.pop("now", 1.0)
    window = RollingWindow(**asked)
    return [window.take(now), window.take(now)]


def moved(**asked: Any) -> Any:
    every = asked.pop("every", 1.0)
    return [Migration(**asked).seconds, Migration.corrections(3, every=every)]


def ran(**asked: Any) -> Any:
    run = MapRun(**asked)
    return [run.rate, run.seconds, run.open_at_once]


def retried(**asked: Any) -> Any:
    retries = Retries(Policy(3, 70), asked.pop("wait", None))
    return [retries.times(), retries.attempts_by(asked.pop("by", 3)), retries.delivered_at(asked.pop("down", 3))]


def worked(**asked: Any) -> Any:
    w = Workload(**asked)
    usd = bill(w)
    return [calls(w).rows(), usd.total, usd.per_conversation, [wall.percent for wall in walls(w)], w.open_conversations]


def executed(**asked: Any) -> Any:
    executions = asked.pop("executions", 5)
    one = workflows.Express(**asked)
    return [one.usd, one.month(executions), one.billed_mb]


# What is asked, what is fixed, and the fields that are set to each of STRANGE.
ASKED: list[tuple[Callable[..., Any], dict[str, Any], tuple[str, ...]]] = [
    (worked, {}, tuple(Workload.__dataclass_fields__)),
    (lambda **asked: [wall.percent for wall in walls(Workload(), Room(**asked))], {}, ("workers", "pods", "express",
     "window", "region", "v2_buses")),
    (lambda **asked: judge(Case(**asked)).rows(), {}, tuple(Case.__dataclass_fields__)),
    (lambda **asked: bill(Workload(), **asked).total, {}, ("model", "lambda_mb", "pod")),
    (lambda **asked: Pod(**asked).needed(Workload()), {}, ("vcpu", "gb", "slots")),
    (idle_receives, {"workers": 1}, ("workers", "wait", "round_trip")),
    (prices.chunks, {"kb": 1, "of_bytes": 65_536}, ("kb", "of_bytes")),
    (prices.sqs, {"messages": 10}, ("messages", "kb", "per_call", "fifo")),
    (prices.writes, {"count": 1}, ("count", "kb", "transactional")),
    (prices.tokens, {"inputs": 1, "outputs": 1}, ("inputs", "outputs", "model")),
    (executed, {"seconds": 3}, ("seconds", "definition_kb", "data_kb", "branches", "executions")),
    (workflows.human_gate, {"wait": 3}, ("wait", "kind")),
    (workflows.poll_for_human, {"wait": 3, "every": 2}, ("wait", "every", "transitions")),
    (retried, {}, ("wait", "by", "down")),
    (rolled, {}, ("most", "seconds", "now")),
    (moved, {"targets": 0, "create_seconds": 2}, ("targets", "create_seconds", "buses", "every")),
    (ran, {"items": 3, "child_seconds": 2}, ("items", "child_seconds", "express", "concurrency")),
    (lambda **asked: OpenRuns(**asked).wanted, {"rate": 0, "seconds": 0}, ("rate", "seconds")),
]  # fmt: skip


def answer(ask: Callable[..., Any], asked: dict[str, Any]) -> list[float] | ModelError:
    try:
        return numbers(ask(**asked))
    except ModelError as error:
        return error


def numbers(found: Any) -> list[float]:
    if isinstance(found, (list, tuple)):
        return [each for part in found for each in numbers(part)]
    return [found] if isinstance(found, (int, float)) else []


@pytest.mark.parametrize(("ask", "fixed", "fields"), ASKED)
def test_a_number_or_a_sentence(ask: Callable[..., Any], fixed: dict[str, Any], fields: tuple[str, ...]) -> None:
    for field in fields:
        for value in STRANGE:
            said = answer(ask, {**fixed, field: value})
            if isinstance(said, ModelError):
                assert len(str(said)) < 250
                assert "must be" in str(said)
            else:
                assert all(math.isfinite(each) and each >= 0 for each in said), (field, value)


def test_what_no_float_can_hold_is_named() -> None:
    with pytest.raises(ModelError, match="rate must be at least 0; got a number of about 401 digits"):
        number("rate", HUGE)
    with pytest.raises(ModelError, match=r"steps must be a whole number from 1 to 1e\+15; got a number of about 401"):
        whole("steps", HUGE)
    with pytest.raises(ModelError, match=r"kb must be from 0 to 1e\+15 KB; got inf"):
        number("kb", math.inf, unit="KB", finite=True)
    assert number("cap", math.inf) == math.inf


def test_a_text_is_no_switch() -> None:
    with pytest.raises(ModelError, match="human must be True or False; got 'no'"):
        flag("human", "no")  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="kind must be one of a, b; got 'c'"):
        one_of("kind", "c", ("a", "b"))
