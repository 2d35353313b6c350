"""What Step Functions refuses, limits and names, without the interpreter."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
from parity import (
    states_descriptions,
    states_engine,
    states_events,
    states_executions,
    states_jsonata,
    states_requests,
    states_runs,
)
from parity.states_clients import account_of
from parity.states_errors import ended, is_full, lambda_error
from parity.states_runs import Machine
from parity.states_tokens import Refused
from parity.states_waits import Attempt, Stopped, next_wait

MACHINE = Machine("arn:aws:states:us-east-1:1:stateMachine:m", "m", "{}", "arn:aws:iam::1:role/r", "STANDARD")
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)


def record(**more: Any) -> dict[str, Any]:
    arn = states_executions.execution_arn(MACHINE, "e")
    return states_runs.new_record(arn, "e", MACHINE, '{"n":1}', BEGIN) | more


def task(resource: str) -> dict[str, Any]:
    return {"Type": "Task", "Resource": resource, "End": True}


def test_tasks_are_found_in_branches_and_maps() -> None:
    inner = {"StartAt": "B", "States": {"B": task("b")}}
    states = {
        "A": task("a"),
        "P": {"Type": "Parallel", "Branches": [inner, inner]},
        "M": {"Type": "Map", "ItemProcessor": inner},
        "I": {"Type": "Map", "Iterator": inner},
    }
    assert [path for path, _ in states_engine.tasks({"States": states})] == [
        "/States/A",
        "/States/P/Branches[0]/States/B",
        "/States/P/Branches[1]/States/B",
        "/States/M/ItemProcessor/States/B",
        "/States/I/Iterator/States/B",
    ]


@pytest.mark.parametrize("document", [None, [], "text", {"States": [1]}, {"States": {"A": 1, "B": {"Branches": 2}}}])
def test_what_is_no_definition_has_no_tasks(document: Any) -> None:
    assert list(states_engine.tasks(document)) == []
    assert states_engine.express_error(document) is None


@pytest.mark.parametrize(
    ("resource", "found"),
    [
        ("arn:aws:states:::sqs:sendMessage", None),
        ("arn:aws:lambda:us-east-1:1:function:f", None),
        ("arn:aws:states:::sqs:sendMessage.waitForTaskToken", "'.waitForTaskToken'"),
        ("arn:aws:states:::states:startExecution.sync", "'.sync'"),
        ("arn:aws:states:::states:startExecution.sync:2", "'.sync:2'"),
        ("arn:aws:states:us-east-1:1:activity:a", "Activity ARN"),
    ],
)
def test_what_an_express_state_machine_cannot_do(resource: str, found: str | None) -> None:
    error = states_engine.express_error({"States": {"A": task(resource)}})
    assert error is None if found is None else found in (error or "")


def test_a_forgetful_list_keeps_nothing() -> None:
    kept = states_engine.Forgetful()
    kept.append("thread")
    assert kept == []


def test_another_interpreter_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states_engine, "version", lambda name: "5.2.6")
    with pytest.raises(RuntimeError, match=r"moto 5\.2\.5, and 5\.2\.6 is installed"):
        states_engine.check_pin()


@pytest.mark.parametrize("name", ["", "x" * 81, "a b", "a:b", "a/b", "a*", "tab\t", "ring\x7f", "{a}"])
def test_names_that_an_execution_cannot_have(name: str) -> None:
    with pytest.raises(Refused) as raised:
        states_requests.check_name(name)
    assert raised.value.code == "InvalidName"


@pytest.mark.parametrize("name", ["a", "x" * 80, "order_1-2.3", "größe"])
def test_names_that_it_can_have(name: str) -> None:
    states_requests.check_name(name)


def test_the_same_input_may_be_written_otherwise() -> None:
    running = record()
    assert states_executions.same_execution(running, {"n": 1})
    assert not states_executions.same_execution(running, {"n": 2})
    assert not states_executions.same_execution(record(status="SUCCEEDED"), {"n": 1})


def test_the_arn_of_an_express_execution_is_new_each_time() -> None:
    express = Machine(MACHINE.arn, "m", "{}", MACHINE.role, "EXPRESS")
    first, second = (states_executions.execution_arn(express, "e") for _ in range(2))
    assert first != second
    assert first.startswith("arn:aws:states:us-east-1:1:express:m:e:")
    assert states_executions.execution_arn(MACHINE, "e") == "arn:aws:states:us-east-1:1:execution:m:e"
    with pytest.raises(Refused):
        states_requests.check_arn(first, "execution")
    states_requests.check_arn(states_executions.execution_arn(MACHINE, "e"), "execution")


@pytest.mark.parametrize(
    ("arn", "told"),
    [
        ("no arn", "Invalid Arn: 'Invalid ARN prefix: no arn'"),
        ("arn:aws:sqs:us-east-1:1:q", "Invalid Arn: 'arn:aws:sqs:us-east-1:1:q'"),
        ("arn:aws:states:us-east-1:1:activity:a", "Invalid Arn: 'Resource type not valid in this context: activity'"),
    ],
)
def test_what_is_no_arn_of_a_state_machine(arn: str, told: str) -> None:
    with pytest.raises(Refused) as raised:
        states_requests.check_arn(arn, "stateMachine")
    assert (raised.value.code, raised.value.message) == ("InvalidArn", told)


def test_pages_go_on_where_the_last_one_ended() -> None:
    rows = [(f"2026-01-0{day}", f"arn:{day}", {"n": day}) for day in range(1, 7)]
    first = states_requests.page({"maxResults": 2}, "items", rows, newest_first=False)
    assert [item["n"] for item in first["items"]] == [1, 2]
    asked = {"maxResults": 2, "nextToken": first["nextToken"]}
    assert [item["n"] for item in states_requests.page(asked, "items", rows, newest_first=False)["items"]] == [3, 4]
    without = [row for row in rows if row[1] != "arn:2"]  # the item that the page ended with is gone
    assert [item["n"] for item in states_requests.page(asked, "items", without, newest_first=False)["items"]] == [3, 4]
    rest = states_requests.page({"nextToken": first["nextToken"]}, "items", rows, newest_first=False)
    assert [item["n"] for item in rest["items"]] == [3, 4, 5, 6]
    assert "nextToken" not in rest
    backwards = states_requests.page(asked, "items", [rows[5], rows[0]], newest_first=True)
    assert [item["n"] for item in backwards["items"]] == [1]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ({"maxResults": 1001}, "ValidationException"),
        ({"nextToken": "x" * 1025}, "ValidationException"),
        ({"nextToken": "nonsense"}, "InvalidToken"),
        ({"nextToken": "MQ=="}, "InvalidToken"),
    ],
)
def test_pages_that_nobody_can_ask_for(asked: dict[str, Any], code: str) -> None:
    with pytest.raises(Refused) as raised:
        states_requests.page(asked, "items", [], newest_first=False)
    assert raised.value.code == code


def test_a_history_has_room_for_its_end_alone() -> None:
    events = [{"type": "PassStateEntered"}] * 24_999
    assert is_full(events, "PassStateExited")
    assert not is_full(events, "ExecutionSucceeded")
    assert not is_full(events[:-1], "PassStateExited")


def test_a_description_has_the_names_of_aws_alone() -> None:
    kept = record(_machine={"definition": "{}"}, redriveCount=2)
    shown = states_descriptions.description(kept)
    assert "_machine" not in shown
    assert shown["redriveCount"] == 2


def test_a_description_has_the_output_of_a_success_alone() -> None:
    running = states_descriptions.description(record())
    assert "output" not in running
    assert "stopDate" not in running
    assert running["redriveStatus"] == "NOT_REDRIVABLE"
    done = states_descriptions.description(record(status="SUCCEEDED", output="1", stopDate="2026-01-01T00:00:01.000Z"))
    assert (done["output"], done["outputDetails"]) == ("1", {"included": True})
    failed = states_descriptions.description(record(status="FAILED", error="E"))
    assert (failed["error"], failed["redriveStatus"]) == ("E", "REDRIVABLE")
    assert "events" not in failed


def test_an_express_execution_lasts_five_minutes_at_most() -> None:
    assert [states_runs.time_limit(stated, "EXPRESS") for stated in (None, 10, 1000)] == [300, 10, 300]
    assert [states_runs.time_limit(stated, "STANDARD") for stated in (None, 10, 1000)] == [None, 10, 1000]


def test_an_event_has_times_in_milliseconds_and_no_output_of_a_failure() -> None:
    detail = states_events.detail(record(status="FAILED", output="1", error="E", stopDate="2026-01-01T00:00:01.500Z"))
    assert (detail["startDate"], detail["stopDate"]) == (1767225600000, 1767225601500)
    assert (detail["output"], detail["outputDetails"], detail["error"]) == (None, None, "E")
    assert states_events.detail(record())["error"] is None


def test_an_event_leaves_out_what_is_too_large() -> None:
    large = json.dumps("x" * (248 * 1024))
    detail = states_events.detail(record(status="SUCCEEDED", output=large))
    assert (detail["output"], detail["outputDetails"]) == (None, {"included": False})
    assert (detail["input"], detail["inputDetails"]) == ('{"n":1}', {"included": True})


def test_a_heartbeat_is_not_waited_for_beyond_the_deadline() -> None:
    assert next_wait(10, deadline=100, now=50) == (10, False)
    assert next_wait(10, deadline=100, now=95) == (5, True)
    assert next_wait(10, deadline=100, now=105) == (0, True)


def test_an_attempt_that_ends_in_time() -> None:
    done: list[int] = []
    assert Attempt(lambda: done.append(1)).run(60, set())
    assert done == [1]


def test_an_attempt_raises_what_it_raised() -> None:
    def fail() -> None:
        raise KeyError("so it is")

    with pytest.raises(KeyError):
        Attempt(fail).run(60, set())


def test_an_attempt_that_is_too_late_or_stopped() -> None:
    import threading

    going_on = threading.Event()
    try:
        assert not Attempt(lambda: going_on.wait(60) and None).run(0.01, set())

        class Waiting(set[threading.Event]):
            def add(self, event: threading.Event) -> None:
                super().add(event)
                event.set()  # somebody wakes it at once

        waiting = Waiting()
        with pytest.raises(Stopped):
            Attempt(lambda: going_on.wait(60) and None).run(60, waiting)
        assert not waiting
    finally:
        going_on.set()


def test_a_history_ends_once() -> None:
    assert not ended([])
    assert not ended([{"type": "ExecutionStarted"}])
    assert ended([{"type": "ExecutionStarted"}, {"type": "ExecutionAborted"}])
    assert lambda_error("TooManyRequestsException") == "Lambda.TooManyRequestsException"


def test_the_account_of_a_role() -> None:
    assert account_of("arn:aws:iam::111122223333:role/r") == "111122223333"
    assert account_of("role") == ""


def test_variables_are_declared_as_json() -> None:
    said = 'he said "no"'
    assert states_jsonata.declarations({"$said": said, "$n": 1}) == '$said:="he said \\"no\\"";$n:=1;'
    assert states_jsonata.digest("a", "MD5") == "0cc175b9c0f1b6a831c399e269772661"


def test_only_the_last_ends_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten: list[str] = []
    monkeypatch.setattr(states_runs.Runs, "forget", staticmethod(lambda arn, scope: forgotten.append(arn)))
    runs = states_runs.Runs(running=2, kept=1)

    class Run:
        standard, scope = True, ("1", "us-east-1")

        def __init__(self, arn: str) -> None:
            self.record = {"executionArn": arn}

    both = [Run("a"), Run("b")]
    for run in both:
        assert not runs.full()
        runs.began(run)
    assert runs.full()
    for run in both:
        runs.ended(run)
    assert (forgotten, runs.all(), runs.full()) == (["a"], [], False)
