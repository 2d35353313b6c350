"""Histories as rows: retries, catches, branches, iterations, redrives; and never a task token among them."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from labkit import Lab
from labkit.control.callbacks import Callbacks
from labkit.control.history import History, Step, redacted
from labkit.control.machines import Execution, Machine
from labkit.work.queues import Queue

CALLBACK = "arn:aws:states:::sqs:sendMessage.waitForTaskToken"
NOON = datetime(2026, 11, 11, 12, 0, tzinfo=UTC)


class Events:
    """A history written by hand, a second an event: ``add("TaskScheduled", 2, …)`` follows event 2."""

    def __init__(self) -> None:
        self.made: list[dict[str, Any]] = []
        self.add("ExecutionStarted", 0)

    def add(self, kind: str, before: int | None = None, **details: Any) -> int:
        number = len(self.made) + 1
        event = {
            "id": number,
            "previousEventId": number - 1 if before is None else before,
            "type": kind,
            "timestamp": NOON + timedelta(seconds=number),
        }
        if details:
            family = kind
            for state in ("Entered", "Exited"):
                if kind.endswith(f"State{state}"):
                    family = f"state{state}"
            event[f"{family[0].lower()}{family[1:]}EventDetails"] = details
        self.made.append(event)
        return number

    def entered(self, kind: str, name: str, before: int | None = None) -> int:
        return self.add(f"{kind}StateEntered", before, name=name, input="{}")

    def exited(self, kind: str, name: str, before: int | None = None, output: str = "{}") -> int:
        return self.add(f"{kind}StateExited", before, name=name, output=output)

    def scheduled(self, before: int | None = None, resource: str = "invoke", parameters: str = "{}") -> int:
        return self.add("TaskScheduled", before, resource=resource, parameters=parameters)

    @property
    def history(self) -> History:
        return History(self.made)

    def rows(self) -> list[tuple[Any, ...]]:
        return [(row.state, row.attempt, row.entered, row.outcome, row.error) for row in self.history.steps()]


# -- as AWS writes them -----------------------------------------------------------------------------------------------


def test_attempts_of_a_task_their_seconds_and_what_took_each_failure() -> None:
    events = Events()
    events.entered("Task", "Call", 0)
    for error in ("TransientError", "States.Timeout"):
        events.scheduled()
        events.add("TaskStarted", resource="invoke")
        events.add("TaskTimedOut" if error == "States.Timeout" else "TaskFailed", error=error, cause="x")
    events.exited("Task", "Call", output='{"Error":"States.Timeout","Cause":""}')
    events.entered("Pass", "Handle")
    events.exited("Pass", "Handle")
    events.add("ExecutionSucceeded", output="{}")
    assert events.history.steps() == [
        Step("Call", 1, "start", "retried", "TransientError", 1, 3.0),
        Step("Call", 2, "retry", "caught", "States.Timeout", 0, 2.0),
        Step("Handle", 1, "catch", "succeeded", None, 0, 1.0),
    ]
    assert (events.history.status, events.history.standing, events.history.failed) == ("SUCCEEDED", [], [])


def test_a_loop_enters_a_state_again_and_that_is_no_retry() -> None:
    events = Events()
    before = 0
    for _ in range(2):
        events.entered("Pass", "Step", before)
        before = events.exited("Pass", "Step")
    assert events.rows() == [("Step", 1, "start", "succeeded", None), ("Step", 1, "next", "succeeded", None)]


def test_branches_are_told_apart_although_their_events_are_mixed() -> None:
    events = Events()
    events.entered("Parallel", "Both", 0)
    fork = events.add("ParallelStateStarted")
    left, right = events.entered("Task", "Left", fork), events.entered("Task", "Right", fork)
    first, second = events.scheduled(left), events.scheduled(right)
    failed = events.add("TaskFailed", second, error="E", cause="c")
    again = events.scheduled(failed)
    done = events.add("TaskSucceeded", first)
    events.exited("Task", "Left", done)
    history = events.history
    assert history.standing == ["Both", "Right"]
    assert [(row.state, row.attempt, row.outcome, row.where) for row in history.steps()] == [
        ("Both", 1, "standing", ""),
        ("Left", 1, "succeeded", "Both: Left"),
        ("Right", 1, "retried", "Both: Right"),
        ("Right", 2, "standing", "Both: Right"),
    ]
    events.add("TaskFailed", again, error="E", cause="c")
    events.add("ParallelStateFailed")
    events.add("ExecutionFailed", error="E", cause="c")
    assert events.history.failed == ["Both", "Right"]
    assert events.history.standing == []


def test_a_branch_that_fails_aborts_the_others_and_a_retry_of_the_whole_begins_anew() -> None:
    events = Events()
    events.entered("Parallel", "Both", 0)
    for _ in range(2):
        fork = events.add("ParallelStateStarted")
        events.entered("Wait", "Slow", fork)
        events.entered("Fail", "Broken", fork)
    events.add("ParallelStateFailed")
    events.exited("Parallel", "Both", output='{"Error":"Boom","Cause":"c"}')
    assert [(row.state, row.attempt, row.outcome, row.where) for row in events.history.steps()] == [
        ("Both", 1, "retried", ""),
        ("Both", 2, "caught", ""),
        ("Slow", 1, "aborted", "Both: Slow"),
        ("Broken", 1, "failed", "Both: Broken"),
        ("Slow", 1, "aborted", "Both: Slow, attempt 2"),
        ("Broken", 1, "failed", "Both: Broken, attempt 2"),
    ]
    assert events.history.steps()[1].error == "Boom"


def test_a_parallel_inside_of_a_parallel_fails_alone() -> None:
    events = Events()
    events.entered("Parallel", "Outer", 0)
    fork = events.add("ParallelStateStarted")
    events.entered("Parallel", "Inner", fork)
    events.add("ParallelStateStarted")
    events.entered("Fail", "Broken")
    failed = events.add("ParallelStateFailed")
    events.add("ParallelStateStarted", failed)  # the outer one's Retry: the inner one has given up
    events.entered("Parallel", "Inner")
    assert [(row.state, row.attempt, row.outcome) for row in events.history.steps()] == [
        ("Outer", 1, "retried"),
        ("Outer", 2, "standing"),
        ("Inner", 1, "failed"),
        ("Broken", 1, "failed"),
        ("Inner", 1, "standing"),
    ]


def test_iterations_carry_their_number_also_when_one_begins_inside_of_another() -> None:
    events = Events()
    events.entered("Map", "Each", 0)
    began = events.add("MapStateStarted", length=2)
    ends = []
    for index in range(2):
        events.add("MapIterationStarted", began if index == 0 else ends[0], name="Each", index=index)
        events.entered("Pass", "One")
        ends.append(events.exited("Pass", "One"))
    events.add("MapIterationSucceeded", ends[0], name="Each", index=0)
    events.add("MapIterationSucceeded", ends[1], name="Each", index=1)
    events.add("MapStateSucceeded")
    events.exited("Map", "Each", ends[1])
    assert [(row.state, row.where, row.entered, row.outcome) for row in events.history.steps()] == [
        ("Each", "", "start", "succeeded"),
        ("One", "Each 0", "start", "succeeded"),
        ("One", "Each 1", "start", "succeeded"),
    ]


def test_a_map_run_is_one_attempt() -> None:
    events = Events()
    events.entered("Map", "Each", 0)
    events.add("MapStateStarted", length=0)
    events.add("MapRunStarted", mapRunArn="arn")
    events.add("MapRunFailed", error="States.ExceedToleratedFailureThreshold", cause="c")
    events.add("MapStateFailed")
    events.add("ExecutionFailed", error="States.ExceedToleratedFailureThreshold", cause="c")
    assert events.rows() == [("Each", 1, "start", "failed", "States.ExceedToleratedFailureThreshold")]


def test_a_redrive_goes_on_at_the_old_entry_and_a_retry_after_it_is_a_retry() -> None:
    events = Events()
    entry = events.entered("Task", "Call", 0)
    events.scheduled()
    events.add("TaskFailed", error="Bug", cause="c")
    events.add("ExecutionFailed", error="Bug", cause="c")
    assert events.history.failed == ["Call"]
    events.add("ExecutionRedriven", redriveCount=1)
    events.scheduled(entry)
    assert (events.history.status, events.history.standing) == ("RUNNING", ["Call"])
    events.add("TaskFailed", error="Bug", cause="c")
    events.scheduled()
    events.add("TaskSucceeded")
    events.exited("Task", "Call")
    assert events.rows() == [
        ("Call", 1, "start", "failed", "Bug"),
        ("Call", 2, "redrive", "retried", "Bug"),
        ("Call", 3, "retry", "succeeded", None),
    ]


def test_a_redrive_goes_on_in_the_branches_that_failed_or_were_aborted() -> None:
    events = Events()
    events.entered("Parallel", "Both", 0)
    fork = events.add("ParallelStateStarted")
    left, right = events.entered("Task", "Left", fork), events.entered("Task", "Right", fork)
    events.scheduled(left)
    events.add("TaskSucceeded")
    events.exited("Task", "Left")
    events.scheduled(right)
    events.add("TaskFailed", error="Bug", cause="c")
    events.add("ParallelStateFailed")
    events.add("ExecutionFailed", error="Bug", cause="c")
    events.add("ExecutionRedriven", redriveCount=1)
    events.scheduled(right)
    assert [(row.state, row.attempt, row.entered, row.outcome) for row in events.history.steps()] == [
        ("Both", 1, "start", "failed"),
        ("Both", 2, "redrive", "standing"),
        ("Left", 1, "start", "succeeded"),
        ("Right", 1, "start", "failed"),
        ("Right", 2, "redrive", "standing"),
    ]


@pytest.mark.parametrize(
    ("end", "outcome"), [("ExecutionAborted", "aborted"), ("ExecutionTimedOut", "timed out"), (None, "standing")]
)
def test_what_stands_when_the_execution_ends_ends_as_it_does(end: str | None, outcome: str) -> None:
    events = Events()
    events.entered("Wait", "Pause", 0)
    if end:
        events.add(end, error="States.Timeout")
    [row] = events.history.steps()
    assert row.outcome == outcome
    assert events.history.standing == ([] if end else ["Pause"])
    assert (row.seconds is None) == (end is None)


def test_a_state_that_fails_without_an_event_of_its_own_has_the_executions_error() -> None:
    events = Events()
    events.entered("Choice", "Which", 0)
    events.add("ExecutionFailed", error="States.NoChoiceMatched", cause="c")
    assert events.rows() == [("Which", 1, "start", "failed", "States.NoChoiceMatched")]


# -- no token ---------------------------------------------------------------------------------------------------------

TOKEN = "AQCgAAAAKgAAAAMAAAAA" * 8


@pytest.mark.parametrize(
    "sent",
    [
        {"MessageBody": {"task_token": TOKEN, "input": "why"}},
        {"MessageBody": json.dumps({"token": TOKEN})},
        {"Payload": {"deep": [{"TaskToken": TOKEN}]}},
        {"MessageBody": {"t": TOKEN}},
        {"MessageBody": TOKEN},
    ],
)
def test_the_token_is_hidden_wherever_it_stands(sent: Any) -> None:
    events = Events()
    events.entered("Task", "Call", 0)
    events.scheduled(resource="sendMessage.waitForTaskToken", parameters=json.dumps(sent))
    events.add("TaskSubmitted", resource="sendMessage.waitForTaskToken", output=json.dumps({"echo": [TOKEN]}))
    events.add("TaskFailed", error="E", cause=f"could not answer {TOKEN}")
    events.exited("Task", "Call", output=json.dumps({"Cause": f"could not answer {TOKEN}"}))
    shown = str(events.history.events)
    assert TOKEN not in shown
    assert "«hidden: it holds the task token»" in shown
    assert "could not answer «token»" in shown


@pytest.mark.parametrize("levels", [900, 100_000])
def test_a_document_that_is_nested_deeply_is_searched_or_hidden_as_far_as_it_can_be_read(levels: int) -> None:
    deep = '{"a":' * levels + json.dumps({"task_token": TOKEN}) + "}" * levels
    events = Events()
    events.entered("Task", "Call", 0)
    events.scheduled(resource="sendMessage.waitForTaskToken", parameters=deep)
    events.add("TaskFailed", error="E", cause="odd")
    assert TOKEN not in str(events.history.events)


def test_the_token_is_found_inside_of_something_longer_and_odd_ones_too() -> None:
    events = Events()
    odd = "a token: of «another» kind"
    sent = {"body": [{"token": TOKEN}, {"taskToken": odd}], "tokenizer": "wordpiece-large"}
    events.entered("Task", "Call", 0)
    events.scheduled(resource="invoke.waitForTaskToken", parameters=json.dumps(sent))
    events.add("TaskFailed", error="E", cause=f"POST /answer?token={TOKEN}&by=wordpiece-large; {odd}")
    cause = events.history.events[-1]["taskFailedEventDetails"]["cause"]
    assert cause == "POST /answer?token=«token»&by=wordpiece-large; «token»"


def test_a_thousand_tokens_are_replaced_in_one_pass() -> None:
    events = Events()
    tokens = [f"{number:04}-{TOKEN}" for number in range(1000)]
    for token in tokens:
        events.entered("Task", "Call", 0)
        events.scheduled(resource="sendMessage.waitForTaskToken", parameters=json.dumps({"token": token}))
        events.exited("Task", "Call", output=json.dumps({"echo": token, "text": "word " * 50}))
    shown = str(events.history.events)
    assert TOKEN not in shown
    assert shown.count("«token»") == 1000


@given(data=st.data())
def test_a_history_with_holes_is_read_as_far_as_it_goes(data: st.DataObject) -> None:
    """A page is missing, details were left out: whatever is there is shown, and nothing breaks."""
    whole = complicated().made
    kept = data.draw(st.lists(st.sampled_from(whole), unique_by=lambda event: event["id"]))
    kept.sort(key=lambda event: event["id"])
    bare = data.draw(st.booleans())
    shown = [{k: v for k, v in event.items() if not (bare and k.endswith("Details"))} for event in kept]
    history = History(shown)
    assert len(history) == len(kept)
    assert all(step.attempt >= 1 and step.outcome for step in history.steps())
    assert set(history.standing) <= {step.state for step in history.steps()}


def complicated() -> Events:
    """Branches, iterations, a retry, a catch, a failure, a redrive."""
    events = Events()
    events.entered("Parallel", "Both", 0)
    fork = events.add("ParallelStateStarted")
    events.entered("Map", "Each", fork)
    began = events.add("MapStateStarted", length=2)
    for index in range(2):
        events.add("MapIterationStarted", began, name="Each", index=index)
        events.entered("Task", "One")
        events.scheduled()
        events.add("TaskFailed", error="E", cause="c")
        events.scheduled()
        events.add("TaskSucceeded")
        events.exited("Task", "One")
        events.add("MapIterationSucceeded", name="Each", index=index)
    events.add("MapStateSucceeded")
    events.exited("Map", "Each")
    entry = events.entered("Task", "Call", fork)
    events.scheduled()
    events.add("TaskFailed", error="E", cause="c")
    events.add("ParallelStateFailed")
    events.add("ExecutionFailed", error="E", cause="c")
    events.add("ExecutionRedriven", redriveCount=1)
    events.scheduled(entry)
    events.add("TaskSucceeded")
    joined = events.exited("Task", "Call")
    events.add("ParallelStateSucceeded", joined)
    events.exited("Parallel", "Both", joined)
    events.add("ExecutionSucceeded", output="{}")
    return events


def test_the_story_grows_event_by_event_and_ends_with_nothing_standing() -> None:
    history = complicated().history
    counts = [len(history.upto(count).steps()) for count in range(len(history) + 1)]
    assert counts == sorted(counts)
    assert (history.status, history.standing, history.failed) == ("SUCCEEDED", [], [])
    assert [(row.state, row.attempt, row.outcome) for row in history.steps() if row.entered == "redrive"] == [
        ("Both", 2, "succeeded"),
        ("Call", 2, "succeeded"),
    ]


def test_a_nested_executions_input_is_searched_as_well() -> None:
    events = Events()
    events.made[0]["executionStartedEventDetails"] = {"input": json.dumps({"order": 7, "TaskToken": TOKEN})}
    [started] = redacted(events.made)
    assert json.loads(started["executionStartedEventDetails"]["input"]) == {"order": 7, "TaskToken": "«token»"}
    assert TOKEN in str(events.made)  # what was given is as it was


def test_what_is_no_token_stays_readable() -> None:
    events = Events()
    events.entered("Task", "Call", 0)
    sent = {"MessageBody": {"trace_id": "conv-8842-" + "x" * 40, "task_token": TOKEN}}
    events.scheduled(resource="sendMessage.waitForTaskToken", parameters=json.dumps(sent))
    events.exited("Task", "Call", output=json.dumps({"trace_id": "conv-8842-" + "x" * 40, "tokens": 17}))
    assert (
        events.history.events[-1]["stateExitedEventDetails"]["output"]
        == events.made[-1]["stateExitedEventDetails"]["output"]
    )


# -- as the target writes them ----------------------------------------------------------------------------------------


def asks(queue: Queue) -> dict[str, Any]:
    """Of a state that sends its token to ``queue``, and waits for the answer."""
    body = {"t.$": "$$.Task.Token"}
    return {"Type": "Task", "Resource": CALLBACK, "Parameters": {"QueueUrl": queue.url, "MessageBody": body}}


def run(lab: Lab, definition: dict[str, Any], value: Any = None) -> Execution:
    execution = Machine.create(lab, "one", definition).start(value)
    execution.wait(60)
    return execution


def rows(execution: Execution) -> list[tuple[Any, ...]]:
    return [(row.state, row.attempt, row.entered, row.outcome, row.error) for row in execution.history().steps()]


def test_a_callback_that_times_out_twice_is_caught(lab: Lab) -> None:
    queue = Queue.create(lab, "steps")
    task = {
        **asks(queue),
        "TimeoutSeconds": 1,
        "Retry": [{"ErrorEquals": ["States.Timeout"], "IntervalSeconds": 1, "MaxAttempts": 1}],
        "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Handle"}],
        "End": True,
    }
    execution = run(lab, {"StartAt": "Call", "States": {"Call": task, "Handle": {"Type": "Pass", "End": True}}})
    assert rows(execution) == [
        ("Call", 1, "start", "retried", "States.Timeout"),
        ("Call", 2, "retry", "caught", "States.Timeout"),
        ("Handle", 1, "catch", "succeeded", None),
    ]
    tokens = [json.loads(message.body)["t"] for message in queue.receive(10, wait=1)]
    assert len(set(tokens)) == 2
    assert [token for token in tokens if token in str(execution.history().events)] == []


def test_branches_iterations_and_a_failure_in_one_of_them(lab: Lab) -> None:
    queue = Queue.create(lab, "pauses")
    pause = {
        **asks(queue),
        "TimeoutSeconds": 60,
        "Next": "Broken",
    }
    definition = {
        "StartAt": "Both",
        "States": {
            "Both": {
                "Type": "Parallel",
                "Branches": [
                    {
                        "StartAt": "Each",
                        "States": {
                            "Each": {
                                "Type": "Map",
                                "ItemsPath": "$.items",
                                "ItemProcessor": {
                                    "StartAt": "One",
                                    "States": {"One": {"Type": "Pass", "End": True}},
                                },
                                "End": True,
                            }
                        },
                    },
                    {
                        "StartAt": "Pause",
                        "States": {
                            "Pause": pause,  # until the other branch is through
                            "Broken": {"Type": "Fail", "Error": "Boom", "Cause": "on purpose"},
                        },
                    },
                ],
                "End": True,
            }
        },
    }
    execution = Machine.create(lab, "one", definition).start({"items": [1, 2]})
    execution.until("Pause", 60)
    end = time.monotonic() + 60
    while ("Each", "succeeded") not in [(row.state, row.outcome) for row in execution.history().steps()]:
        assert time.monotonic() < end
        time.sleep(0.05)
    [message] = queue.receive(wait=2)
    Callbacks(lab).succeed(json.loads(message.body)["t"])
    execution.wait(60)
    found = sorted((row.state, row.where, row.outcome) for row in execution.history().steps())
    assert found == [
        ("Both", "", "failed"),
        ("Broken", "Both: Pause", "failed"),
        ("Each", "Both: Each", "succeeded"),
        ("One", "Both: Each / Each 0", "succeeded"),
        ("One", "Both: Each / Each 1", "succeeded"),
        ("Pause", "Both: Pause", "succeeded"),
    ]
    assert execution.history().failed == ["Both", "Broken"]


def test_a_long_history_is_read_to_its_end(lab: Lab) -> None:
    loop = {
        "StartAt": "Each",
        "States": {
            "Each": {
                "Type": "Map",
                "ItemProcessor": {"StartAt": "One", "States": {"One": {"Type": "Pass", "End": True}}},
                "End": True,
            }
        },
    }
    execution = run(lab, loop, list(range(300)))
    history = execution.history()
    assert len(history) > 1000
    assert sum(row.outcome == "succeeded" for row in history.steps()) == 301


def test_a_redriven_execution_goes_on_where_it_failed(lab: Lab) -> None:
    queue = Queue.create(lab, "steps")
    call = {
        **asks(queue),
        "TimeoutSeconds": 60,
        "End": True,
    }
    branches = [
        {"StartAt": name, "States": {name: state}}
        for name, state in (("Fine", {"Type": "Pass", "End": True}), ("Call", call))
    ]
    definition = {
        "StartAt": "First",
        "States": {
            "First": {"Type": "Pass", "Next": "Both"},
            "Both": {"Type": "Parallel", "Branches": branches, "End": True},
        },
    }
    execution = Machine.create(lab, "one", definition).start()

    def answer(end: Any) -> None:
        execution.until("Call", 60)
        [message] = queue.receive(wait=2)
        end(json.loads(message.body)["t"])
        queue.delete(message)

    answer(lambda token: Callbacks(lab).fail(token, "Bug", "c"))
    assert execution.wait(60).error == "Bug"
    execution.redrive()
    answer(lambda token: Callbacks(lab).succeed(token, 42))
    assert execution.wait(60).output == [{}, 42]
    found = [(row.state, row.attempt, row.entered, row.outcome) for row in execution.history().steps()]
    assert sorted(found) == [
        ("Both", 1, "next", "failed"),
        ("Both", 2, "redrive", "succeeded"),
        ("Call", 1, "start", "failed"),
        ("Call", 2, "redrive", "succeeded"),
        ("Fine", 1, "start", "succeeded"),
        ("First", 1, "start", "succeeded"),
    ]
