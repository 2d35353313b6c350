"""Reported: tokens that nobody answers, heartbeats that nobody counts, retries that never match, maps that give up."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from botocore.exceptions import ClientError

from labkit import Lab
from labkit.control.callbacks import Callbacks, StaleToken
from labkit.control.envelope import Envelope
from labkit.control.machines import Machine, MachineError
from labkit.work.answering import answering
from labkit.work.functions import Function
from labkit.work.heartbeat import LeaseLost
from labkit.work.queues import Queue
from labkit.work.worker import Event, Task, Worker

CALLBACK = "arn:aws:states:::sqs:sendMessage.waitForTaskToken"
INVOKE = "arn:aws:states:::lambda:invoke"
RETRY = [{"ErrorEquals": ["States.Timeout"], "IntervalSeconds": 1, "BackoffRate": 1, "MaxAttempts": 1}]


def waiting(lab: Lab, queue: Queue, name: str, **more: Any) -> Machine:
    """A state machine that hands a token to the queue and waits."""
    body = {"token.$": "$$.Task.Token"}
    task = {"Type": "Task", "Resource": CALLBACK, "Parameters": {"QueueUrl": queue.url, "MessageBody": body}, **more}
    return Machine.create(lab, name, {"StartAt": "Ask", "States": {"Ask": {**task, "End": True}}})


def token(queue: Queue) -> str:
    """The next token, taken from the queue for good: whoever has it may die now, and no message comes back."""
    [message] = queue.receive(wait=20)
    queue.delete(message)
    return str(message.json()["token"])


def refusal(call: Any, **arguments: Any) -> str:
    with pytest.raises(ClientError) as refused:
        call(**arguments)
    return str(refused.value.response["Error"]["Code"])


def test_p28_a_lost_callback_hangs_in_silence_unless_the_state_has_a_timeout(lab: Lab) -> None:
    """The worker took the message and died. Nothing fails, so nothing alarms: RUNNING is the last that is heard.

    With TimeoutSeconds the execution fails, and says so to whoever listens.
    """
    queue, heard = Queue.create(lab, "steps"), Queue.create(lab, "heard")
    events = lab.client("events")
    rule = events.put_rule(Name="states", EventPattern=json.dumps({"source": ["aws.states"]}))["RuleArn"]
    heard.allow("events.amazonaws.com", rule)
    events.put_targets(Rule="states", Targets=[{"Id": "heard", "Arn": heard.arn}])

    statuses: dict[str, list[str]] = {"hangs": [], "ends": []}

    def listen() -> None:
        """What has been heard by the end of a second without anything, once there are the three."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            messages = heard.receive(10, wait=1)
            for message in messages:
                detail = message.json()["detail"]
                statuses[detail["name"]].append(detail["status"])
                heard.delete(message)
            if not messages and sum(map(len, statuses.values())) >= 3:
                return

    hangs = waiting(lab, queue, "hangs").start(name="hangs")
    token(queue)
    ends = waiting(lab, queue, "ends", TimeoutSeconds=1).start(name="ends")
    token(queue)
    assert ends.wait(60).error == "States.Timeout"
    with pytest.raises(MachineError, match=r"execution hangs has not ended in 1 s; it stands in Ask"):
        hangs.wait(1)
    assert [event["type"] for event in hangs.history().events][-1] == "TaskSubmitted"
    listen()
    assert {name: sorted(found) for name, found in statuses.items()} == {
        "hangs": ["RUNNING"],
        "ends": ["FAILED", "RUNNING"],
    }


def test_p29_heartbeats_count_only_where_the_state_declares_them_and_a_late_worker_must_stop(lab: Lab) -> None:
    """For months a worker sent heartbeats, all of them accepted, and one run hung for 31 days after its last one."""
    queue, callbacks = Queue.create(lab, "steps"), Callbacks(lab)
    undeclared = waiting(lab, queue, "undeclared", TimeoutSeconds=600).start(name="undeclared")
    unheard = token(queue)
    callbacks.heartbeat(unheard)

    declared = waiting(lab, queue, "declared", TimeoutSeconds=600, HeartbeatSeconds=6, Retry=RETRY).start()
    late = token(queue)
    for _ in range(4):
        time.sleep(1.75)
        callbacks.heartbeat(late)  # longer than HeartbeatSeconds in all, and alive
    again = token(queue)  # no beat for six seconds: the Retry has dispatched anew
    assert again != late
    with pytest.raises(StaleToken):
        callbacks.heartbeat(late)
    assert undeclared.status == "RUNNING"  # its worker has been silent for longer, and nobody notices
    callbacks.succeed(again, "done")
    assert declared.wait(60).output == "done"

    # A worker that is too late is told so by its own heartbeat, and its step by task.check().
    work, events = Queue.create(lab, "work", visibility=30), list[Event]()
    values = {"QueueUrl": work.url, "HeartbeatWindow": 60, "StepTimeout": 600, "Retries": 0, "RetryAfter": 1}
    execution = Machine.create(lab, "agent-step", "agent-step", values=values).start(
        {"conversation_id": "8842", "step": 1, "agent_class": "researcher", "payload": {}}
    )

    def step(task: Task) -> None:
        execution.stop()  # what ends the attempt does not matter to the worker
        for _ in range(400):
            time.sleep(0.05)
            task.check()
        raise AssertionError("the step was not told")

    def seen(event: Event) -> None:
        events.append(event)
        worker.stop()

    worker = Worker(
        work,
        answering(callbacks, work, step),
        visibility=30,
        wait=1,
        keep_alive=callbacks.keep_alive,
        then=callbacks.then,
        on_event=seen,
    )
    worker._handler.every = 0.5  # seconds between two beats; by itself it beats as seldom as the message allows
    worker.run(seconds=60)
    assert [event.kind for event in events] == ["lost"]
    assert isinstance(events[0].error, LeaseLost)
    assert work.depth().total == 0


def test_p30_a_token_is_used_once_and_a_second_answer_is_a_normal_outcome(lab: Lab) -> None:
    """TaskTimedOut, «Provided task does not exist anymore», for what is closed and for what has expired alike."""
    queue, api, callbacks = Queue.create(lab, "steps"), lab.client("stepfunctions"), Callbacks(lab)
    first = waiting(lab, queue, "first", TimeoutSeconds=600).start()
    used = token(queue)
    api.send_task_success(taskToken=used, output="1")
    assert refusal(api.send_task_success, taskToken=used, output="2") == "TaskTimedOut"
    assert refusal(api.send_task_failure, taskToken=used, error="E", cause="c") == "TaskTimedOut"
    assert first.wait(60).output == 1

    second = waiting(lab, queue, "second", TimeoutSeconds=1).start()
    expired = token(queue)
    assert second.wait(60).error == "States.Timeout"
    assert refusal(api.send_task_success, taskToken=expired, output="1") == "TaskTimedOut"
    assert refusal(api.send_task_success, taskToken="made-up", output="1") == "InvalidToken"

    asked: list[str] = []
    api.meta.events.register("before-call.stepfunctions", lambda model, **_: asked.append(model.name))
    envelope = Envelope.new(conversation_id="8842", step=1, agent_class="a", payload={}, task_token=expired)
    callbacks.then(type("Task", (), {"body": envelope}), {"answer": 42})  # nothing raised: dropped, and counted
    assert (asked, callbacks.counts) == (["SendTaskSuccess"], {"stale": 1})


def test_p32_a_retry_matches_the_exceptions_class_name_so_transient_ones_get_one_of_our_own(lab: Lab) -> None:
    """Retry lists the service's error names, and what the function raises is called otherwise: never retried."""
    source = """
    class ReadTimeoutError(Exception):
        pass

    class TransientError(Exception):
        pass

    def handler(event, context):
        try:
            if event["attempt"] == 0:
                raise ReadTimeoutError("the model did not answer in time")
            return "answered"
        except ReadTimeoutError as error:
            if event["mapped"]:
                raise TransientError(str(error)) from error
            raise
    """
    function = Function.deploy(lab, "model", source=source, timeout=30)

    def machine(name: str, mapped: bool, *errors: str) -> Machine:
        payload = {"attempt.$": "$$.State.RetryCount", "mapped": mapped}
        task = {
            "Type": "Task",
            "Resource": INVOKE,
            "Parameters": {"FunctionName": function.arn, "Payload": payload},
            "Retry": [{"ErrorEquals": list(errors), "IntervalSeconds": 1, "MaxAttempts": 2}],
            "OutputPath": "$.Payload",
            "End": True,
        }
        return Machine.create(lab, name, {"StartAt": "Call", "States": {"Call": task}})

    guessed = machine("guessed", False, "Bedrock.ThrottlingException", "States.Timeout").start()
    own, any_task = machine("own", True, "TransientError").start(), machine("any", False, "States.TaskFailed").start()
    ended = guessed.wait(60)
    assert (ended.status, ended.error) == ("FAILED", "ReadTimeoutError")
    assert len(guessed.history().steps()) == 1
    for mended, error in ((own, "TransientError"), (any_task, "ReadTimeoutError")):
        assert mended.wait(60).output == "answered"
        assert [(row.outcome, row.error) for row in mended.history().steps()] == [
            ("retried", error),
            ("succeeded", None),
        ]


@pytest.mark.parametrize(
    ("tolerance", "status"),
    [
        ({}, "FAILED"),  # none at all, by default
        ({"ToleratedFailurePercentage": 24}, "FAILED"),
        ({"ToleratedFailurePercentage": 25}, "SUCCEEDED"),
        ({"ToleratedFailureCount": 1}, "SUCCEEDED"),
    ],
)
def test_p34_a_map_run_fails_beyond_its_threshold_and_not_at_it(
    lab: Lab, tolerance: dict[str, int], status: str
) -> None:
    """An emulator ignored both fields. One of four items fails here: 25 %."""
    choice = {"Variable": "$.bad", "BooleanEquals": True, "Next": "Broken"}
    states = {
        "Which": {"Type": "Choice", "Choices": [choice], "Default": "Fine"},
        "Broken": {"Type": "Fail", "Error": "Bad", "Cause": "on purpose"},
        "Fine": {"Type": "Pass", "End": True},
    }
    processor = {
        "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"},
        "StartAt": "Which",
        "States": states,
    }
    each = {"Type": "Map", "ItemProcessor": processor, "MaxConcurrency": 1, "End": True, **tolerance}
    machine = Machine.create(lab, "map", {"StartAt": "Each", "States": {"Each": each}})
    execution = machine.start([{"bad": n == 3} for n in range(4)])
    ended = execution.wait(60)
    assert ended.status == status
    assert ended.error == (None if status == "SUCCEEDED" else "States.ExceedToleratedFailureThreshold")
    [run] = machine.client.list_map_runs(executionArn=execution.arn)["mapRuns"]
    found = machine.client.describe_map_run(mapRunArn=run["mapRunArn"])
    assert (found["status"], found["itemCounts"]["failed"], found["itemCounts"]["succeeded"]) == (status, 1, 3)
    assert execution.history().failed == ([] if status == "SUCCEEDED" else ["Each"])
