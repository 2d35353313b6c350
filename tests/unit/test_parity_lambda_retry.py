"""Retries of asynchronous events, on a clock that only moves when asked."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from parity.events_retry import Timer
from parity.lambda_attempts import Engine, Event, Function
from parity.lambda_request import Request, current, request_of, trace_header
from parity.lambda_retry import (
    Response,
    RetryPolicy,
    Step,
    after_function_error,
    after_throttle,
    dead_letter_attributes,
    invocation_record,
)

ERROR = {"error": True, "function_error": "Unhandled", "body": {"errorMessage": "boom", "errorType": "E"}}
THROTTLED = {"throttle": True, "error": True, "body": {}}
DONE = {"body": 7}


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


class World:
    """One function that answers each attempt as told, and then for ever as the last time."""

    def __init__(self, *results: Any, **function: Any) -> None:
        self.results = list(results)
        self.clock = Clock()
        self.timer = Timer(self.clock, threaded=False)
        self.times: list[float] = []
        self.seen: list[Any] = []
        self.ends: list[tuple[str, int]] = []
        self.counts: Counter[str] = Counter()
        self.function: Function | None = Function(config={"FunctionArn": "arn"}, run=self.run, **function)
        self.engine = Engine(
            self.timer,
            find=lambda arn: self.function,
            submit=lambda job, *arguments: job(*arguments),
            count=lambda function, metric: self.counts.update([metric]),
            deliver=self.deliver,
        )

    def deliver(self, function: Function, event: Event, condition: str) -> None:
        assert current.get() is None  # what a delivery sets off must not take this event's request for its own
        self.ends.append((condition, event.invocations))

    def run(self, event: Any) -> dict[str, Any]:
        self.times.append(self.clock.now - 1000)
        request = current.get()
        self.seen.append((event, request.identity if request else None))
        result = self.results[min(len(self.times), len(self.results)) - 1]
        if isinstance(result, Exception):
            raise result
        return dict(result)

    def accept(self) -> Event:
        event = Event("arn", {"n": 1}, Request("r-1"), "{}", self.clock())
        self.engine.accept(event)
        return event

    def pass_time(self) -> None:
        """Let the clock run from job to job until nothing is left to do."""
        while (due := self.timer.next_due()) is not None:
            self.clock.now = max(self.clock.now, due)
            self.timer.run_due()


def test_a_success_is_delivered_once() -> None:
    world = World(DONE)
    event = world.accept()
    world.pass_time()
    assert world.ends == [("Success", 1)]
    assert event.response == Response(7)
    assert world.counts == {"AsyncEventsReceived": 1}


def test_two_retries_after_one_minute_and_two_more() -> None:
    world = World(ERROR)
    event = world.accept()
    world.pass_time()
    assert world.times == [0, 60, 180]
    assert world.ends == [("RetriesExhausted", 3)]
    assert world.seen == [({"n": 1}, "r-1")] * 3
    assert event.response == Response({"errorMessage": "boom", "errorType": "E"}, "Unhandled")
    assert world.counts == {"AsyncEventsReceived": 1, "AsyncEventsDropped": 1}


@pytest.mark.parametrize(("retries", "attempts"), [(0, 1), (1, 2), (2, 3)])
def test_maximum_retry_attempts(retries: int, attempts: int) -> None:
    world = World(ERROR, policy=RetryPolicy(retries=retries))
    world.accept()
    world.pass_time()
    assert world.ends == [("RetriesExhausted", attempts)]


def test_a_retry_that_succeeds() -> None:
    world = World(ERROR, DONE)
    world.accept()
    world.pass_time()
    assert (world.times, world.ends) == ([0, 60], [("Success", 2)])


@pytest.mark.parametrize(("age", "times"), [(60, [0]), (61, [0, 60]), (180, [0, 60]), (181, [0, 60, 180])])
def test_an_event_is_given_up_when_its_next_attempt_would_come_too_late(age: int, times: list[int]) -> None:
    world = World(ERROR, policy=RetryPolicy(age=age))
    world.accept()
    world.pass_time()
    assert world.times == times
    condition = "RetriesExhausted" if len(times) == 3 else "EventAgeExceeded"
    assert world.ends == [(condition, len(times))]
    assert world.clock.now - 1000 == times[-1]  # without waiting for the age to pass


def test_an_event_that_was_too_long_in_the_queue() -> None:
    world = World(DONE)
    late = Event("arn", {}, Request("r-1"), "{}", world.clock() - 21_600)
    world.engine.accept(late)
    assert (world.times, world.ends) == ([], [("EventAgeExceeded", 0)])


def test_throttled_attempts_are_none_and_come_back_ever_more_slowly() -> None:
    world = World(*[THROTTLED] * 4, ERROR, THROTTLED, DONE)
    world.accept()
    world.pass_time()
    assert world.times == [0, 1, 3, 7, 15, 75, 91]
    assert world.ends == [("Success", 2)]


def test_throttling_lasts_as_long_as_the_event_is_young_enough() -> None:
    world = World(THROTTLED)
    event = world.accept()
    world.pass_time()
    waits = [later - earlier for earlier, later in zip(world.times, world.times[1:], strict=False)]
    assert waits[:10] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    assert set(waits[9:]) == {300}
    assert 21_000 < world.times[-1] < 21_600
    assert world.ends == [("EventAgeExceeded", 0)]
    assert event.response is None


def test_an_error_of_the_stand_in_is_one_of_the_service(caplog: pytest.LogCaptureFixture) -> None:
    world = World(OSError("no more processes"), DONE)
    world.accept()
    world.pass_time()
    assert (world.times, world.ends) == ([0, 1], [("Success", 1)])
    assert "no more processes" in caplog.text


def test_a_stopped_function_is_not_tried() -> None:
    world = World(DONE, stopped=True)
    world.accept()
    assert (world.times, world.ends) == ([], [("ZeroReservedConcurrency", 0)])


def test_a_function_that_is_gone_loses_its_events() -> None:
    world = World(ERROR)
    world.accept()
    world.function = None
    world.pass_time()
    assert (world.times, world.ends) == ([0], [])


def test_the_clock_scale_changes_how_long_it_takes_and_nothing_else() -> None:
    world = World(ERROR, scale=60.0, policy=RetryPolicy(age=181))
    world.accept()
    world.pass_time()
    assert world.times == [0, 1, 3]
    assert world.ends == [("RetriesExhausted", 3)]


@given(st.integers(0, 2), st.integers(60, 21_600), st.integers(1, 3), st.floats(0, 30_000))
def test_no_attempt_comes_after_the_age(retries: int, age: int, errors: int, now: float) -> None:
    policy = RetryPolicy(retries, age)
    for step in (
        after_function_error(policy, errors=errors, age=now),
        after_throttle(policy, throttles=errors, age=now),
    ):
        assert step.condition or now + step.wait < age
    assert (after_function_error(policy, errors=errors, age=0).condition == "RetriesExhausted") == (errors > retries)


def test_the_first_steps() -> None:
    assert after_function_error(RetryPolicy(), errors=1, age=0) == Step(60)
    assert after_function_error(RetryPolicy(), errors=2, age=60) == Step(120)
    assert after_throttle(RetryPolicy(), throttles=1, age=0) == Step(1)
    assert after_throttle(RetryPolicy(), throttles=99, age=0) == Step(300)


def test_a_policy_has_defaults() -> None:
    assert RetryPolicy.of({}) == RetryPolicy(2, 21_600)
    assert RetryPolicy.of({"MaximumRetryAttempts": 0, "MaximumEventAgeInSeconds": 60}) == RetryPolicy(0, 60)


def test_the_record_of_an_event_that_never_ran_has_no_response() -> None:
    given: dict[str, Any] = {
        "moment": "2026-01-01T00:00:00.000Z",
        "request_id": "r",
        "function_arn": "arn:$LATEST",
        "version": "$LATEST",
        "event": {"a": 1},
    }
    record = invocation_record(**given, condition="ZeroReservedConcurrency", invocations=0, response=None)
    assert set(record) == {"version", "timestamp", "requestContext", "requestPayload"}
    record = invocation_record(**given, condition="Success", invocations=1, response=Response(None))
    assert record["responseContext"] == {"statusCode": 200, "executedVersion": "$LATEST"}
    assert record["responsePayload"] is None


def test_dead_letter_attributes() -> None:
    failed = Response({"errorMessage": "é" * 600}, "Unhandled")
    attributes = dead_letter_attributes("r", failed)
    assert {name: value["StringValue"] for name, value in attributes.items()} == {
        "RequestID": "r",
        "ErrorCode": "200",
        "ErrorMessage": "é" * 512,  # one kilobyte
    }
    assert "ErrorMessage" not in dead_letter_attributes("r", Response("no object"))


def test_what_a_request_brings_along() -> None:
    context = "eyJjdXN0b20iOiB7ImEiOiAxfX0="
    headers = {"x-amz-client-context": context, "x-amzn-trace-id": "Root=1"}
    request = request_of(headers, b'{"a": 1}', synchronous=True)
    assert (request.trace, request.client_context, request.text) == ("Root=1", {"custom": {"a": 1}}, '{"a": 1}')
    assert request_of(headers, b"", synchronous=False).client_context is None
    assert request_of(headers, b"", synchronous=False).text == "{}"
    assert request_of({"x-amz-client-context": "?"}, b"", synchronous=True).client_context is None


def test_the_tracing_header() -> None:
    chance = "0123456789abcdef" * 3
    assert trace_header("Root=1-a", active=True, now=0, chance=chance) == "Root=1-a"
    assert trace_header(None, active=False, now=0x6B0E3A20, chance=chance) == (
        "Root=1-6b0e3a20-0123456789abcdef01234567;Parent=89abcdef01234567;Sampled=0"
    )
