"""The stand-in's replays: the states, whatever the moment of a cancel, and the order of the minutes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parity.events_replays import Run, in_minutes, pause
from parity.events_rules import Refused


@given(st.lists(st.integers(0, 600)), st.integers(0, 600), st.integers(0, 600))
def test_minute_by_minute(times: list[int], start: int, end: int) -> None:
    chosen = in_minutes(list(enumerate(times)), start, end, lambda event: event[1])
    assert sorted(chosen) == [event for event in enumerate(times) if start <= event[1] <= end]
    minutes = [moment // 60 for _, moment in chosen]
    assert minutes == sorted(minutes)
    for minute in set(minutes):  # within one, in the order in which they came
        places = [place for place, moment in chosen if moment // 60 == minute]
        assert places == sorted(places)


@given(st.integers(0, 5), st.integers(-1, 6))
def test_a_cancel_at_any_moment(events: int, cancelled_at: int) -> None:
    """-1: before it runs; n: while event n is being sent; beyond the last one: when it is over."""
    history: list[dict[str, Any]] = []
    sent: list[int] = []
    run = Run("r", lambda changed: history.append(dict(changed)), clock=lambda: 7.0)

    def send(event: int) -> None:
        sent.append(event)
        if event == cancelled_at:
            run.cancel()

    if cancelled_at == -1:
        run.cancel()
    run.go(range(events), send, float, 0)
    states = [changed["State"] for changed in history if "State" in changed]
    if cancelled_at == -1:
        assert (states, sent) == (["CANCELLING", "CANCELLED"], [])
    elif cancelled_at < events:
        assert states == ["RUNNING", "CANCELLING", "CANCELLED"]
        assert sent == [*range(cancelled_at + 1)]
    else:
        assert states == ["RUNNING", "COMPLETED"]
        assert sent == [*range(events)]
    assert history[-1]["ReplayEndTime"] == 7.0
    with pytest.raises(Refused) as raised:
        run.cancel()
    assert raised.value.code == "IllegalStatusException"


def test_a_replay_that_breaks_has_failed() -> None:
    history: dict[str, Any] = {}

    def send(event: int) -> None:
        raise ValueError("the bus is gone")

    Run("r", history.update).go([1], send, float, 0)
    assert (history["State"], history["StateReason"]) == ("FAILED", "ValueError: the bus is gone")


@pytest.mark.parametrize(("tags", "wait"), [({}, 0), ({"lab:replay-rate": "4"}, 0.25), ({"lab:replay-rate": "no"}, 0)])
def test_pause(tags: dict[str, str], wait: float) -> None:
    assert pause(tags) == wait
