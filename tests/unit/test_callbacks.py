"""Callbacks: which refusal is which, what is checked before a call, the quota, a worker's hooks; no token shown."""

from __future__ import annotations

import json
import logging
import threading
import time
import traceback
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from labkit import Lab, facts
from labkit.control.callbacks import CallbackError, Callbacks, NoAnswer, StaleToken, UnknownToken, quota
from labkit.control.envelope import Envelope
from labkit.control.machines import Execution, Machine
from labkit.control.payloads import PayloadError
from labkit.models.bucket import Bucket
from labkit.state.idempotency import IdempotencyStore
from labkit.work.answering import answering
from labkit.work.heartbeat import _refusal
from labkit.work.queues import Queue
from labkit.work.worker import Event, Poison, Task, Worker

TOKEN = "AQCgAAAAKgAAAAMAAAAA-" + "t0k3n" * 20


def refusal(code: str, message: str = "", status: int = 400) -> ClientError:
    response: Any = {"Error": {"Code": code, "Message": message}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(response, "SendTaskSuccess")


class Service:
    """What answers instead of Step Functions: each call takes the next of ``answers``, then all succeed."""

    meta = SimpleNamespace(region_name="us-east-1")

    def __init__(self, *answers: Exception) -> None:
        self.answers, self.calls = list(answers), []  # type: ignore[var-annotated]

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("send_task_"):
            raise AttributeError(name)

        def call(**arguments: Any) -> dict[str, Any]:
            self.calls.append((name, arguments))
            if self.answers:
                raise self.answers.pop(0)
            return {}

        return call


def callbacks(service: Any, **options: Any) -> Callbacks:
    return Callbacks(service, **{"sleep": lambda seconds: None, **options})


def task(token: str | None = TOKEN, **more: Any) -> Any:
    body = Envelope.new(conversation_id="8842", step=7, agent_class="researcher", payload={}, task_token=token)
    return SimpleNamespace(body=body, **more)


# -- one call --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("TaskTimedOut", StaleToken),
        ("TaskDoesNotExist", StaleToken),
        ("InvalidToken", UnknownToken),
        ("InvalidOutput", CallbackError),
        ("AccessDeniedException", CallbackError),
    ],
)
def test_each_refusal_has_its_exception_and_is_not_tried_again(code: str, kind: type[CallbackError]) -> None:
    service = Service(refusal(code, f"something about {TOKEN} here"))
    with pytest.raises(CallbackError, match="something about «token» here") as refused:
        callbacks(service).succeed(TOKEN, {})
    assert type(refused.value) is kind
    assert refused.value.code == code
    assert len(service.calls) == 1


@pytest.mark.parametrize(
    "error",
    [
        refusal("TaskTimedOut", f"about {TOKEN}"),
        refusal("ValidationException", f"Value '{TOKEN}' at 'taskToken'"),
        EndpointConnectionError(endpoint_url=f"http://x/{TOKEN}"),
    ],
)
def test_no_exception_holds_the_token_nor_leads_to_one_that_does(error: Exception) -> None:
    with pytest.raises(CallbackError) as refused:
        callbacks(Service(*[error] * 9)).heartbeat(TOKEN)
    assert TOKEN not in "".join(traceback.format_exception(refused.value))
    assert refused.value.__context__ is None


def test_throttles_and_silence_are_tried_again_a_bounded_number_of_times() -> None:
    slept: list[float] = []
    passing = [
        refusal("ThrottlingException"),
        refusal("X", status=503),
        EndpointConnectionError(endpoint_url="http://x"),
    ]
    service = Service(*passing)
    each = Callbacks(service, sleep=slept.append)
    each.succeed(TOKEN, 1)
    assert (len(service.calls), each.counts) == (4, {"success": 1})
    assert len(slept) == 3
    assert all(0 < pause <= 3 for pause in slept)

    service = Service(*[refusal("ThrottlingException", "Rate exceeded")] * 99)
    with pytest.raises(NoAnswer, match="Rate exceeded") as gone:
        callbacks(service).succeed(TOKEN, 1)
    assert len(service.calls) == 5
    assert isinstance(gone.value, OSError)  # what a worker's heartbeat tries again


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ({"x": object()}, "the output of a callback is not what JSON can hold"),
        ({"x": float("nan")}, "is not what JSON can hold"),
        ("\ud800", "half a character"),
        (
            "x" * (int(facts("sfn.payload.max_bytes")) - 1),
            r"has 262,145 bytes and Step Functions takes 262,144 at most",
        ),
        ("ế" * 90_000, "has 270,002 bytes"),
    ],
)
def test_an_output_that_cannot_be_sent_is_refused_before_the_call(output: Any, says: str) -> None:
    service = Service()
    with pytest.raises(PayloadError, match=says):
        callbacks(service).succeed(TOKEN, output)
    assert service.calls == []


def test_the_largest_output_passes_and_none_is_null() -> None:
    service = Service()
    largest = "x" * (int(facts("sfn.payload.max_bytes")) - 2)
    callbacks(service).succeed(TOKEN, largest)
    callbacks(service).succeed(TOKEN)
    assert [json.loads(call[1]["output"]) for call in service.calls] == [largest, None]


def test_a_failure_is_called_as_its_exception_and_a_long_cause_is_cut_with_a_mark() -> None:
    service = Service()
    each = callbacks(service)
    each.fail(TOKEN, TimeoutError("the model did not answer"))
    each.fail(TOKEN, "TransientError", "x" * 40_000)
    each.fail(TOKEN, "Odd", "half \ud800 a character")
    first, second, third = (call[1] for call in service.calls)
    assert (first["error"], first["cause"]) == ("TimeoutError", "the model did not answer")
    assert len(second["cause"]) == facts("sfn.cause.max_chars")
    assert second["cause"].endswith("… (cut)")
    assert third["cause"] == "half ? a character"
    for name in ("", "E" * 257, 7):
        with pytest.raises(PayloadError, match=r"1 to 256 characters; got (0|257) characters|got int"):
            each.fail(TOKEN, name)  # type: ignore[arg-type]
    assert len(service.calls) == 3


class Mute(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize(
    ("error", "called", "says"),
    [
        (Mute(), "Mute", "(its text could not be had)"),
        (type("X" * 300, (Exception,), {})("why"), "X" * 256, "why"),
        (type("", (Exception,), {})("why"), "Exception", "why"),
        (ExceptionGroup("two", [ValueError(), KeyError()]), "ExceptionGroup", "two (2 sub-exceptions)"),
        (KeyboardInterrupt(), "KeyboardInterrupt", ""),
        (ValueError("nul \x00 half \ud800"), "ValueError", "nul \x00 half ?"),
    ],
)
def test_every_exception_can_be_told(error: BaseException, called: str, says: str) -> None:
    service = Service()
    assert callbacks(service).give_up(task(), error)
    [(_, sent)] = service.calls
    assert (sent["error"], sent["cause"]) == (called, says)


def test_a_token_with_half_a_character_is_none() -> None:
    service = Service()
    with pytest.raises(UnknownToken, match="half a character"):
        callbacks(service).succeed("\ud800")
    assert service.calls == []


@pytest.mark.parametrize("token", ["", "x" * 2049, None, 17])
def test_what_can_be_no_token_is_refused_without_a_call(token: Any) -> None:
    service = Service()
    with pytest.raises(UnknownToken, match=r"a task token (is a text|has 1 to 2,048 characters)"):
        callbacks(service).heartbeat(token)
    assert service.calls == []


# -- the quota -------------------------------------------------------------------------------------------------------


def test_the_quota_is_that_of_the_region_for_each_api() -> None:
    assert (quota("us-east-1").size, quota("us-east-1").rate) == (3000, 500)
    assert (quota("eu-central-1").size, quota("eu-central-1").rate) == (1500, 300)
    slept: list[float] = []
    each = Callbacks(Service(), bucket=Bucket(2, 10, clock=lambda: 0.0, sleep=slept.append))
    for _ in range(2):
        each.succeed(TOKEN)
        each.heartbeat(TOKEN)
        each.fail(TOKEN, "E")
    assert slept == []
    each.heartbeat(TOKEN)
    assert slept == [pytest.approx(0.1)]


def test_a_try_after_a_throttle_takes_a_token_too() -> None:
    slept: list[float] = []
    service = Service(refusal("ThrottlingException"))
    Callbacks(service, bucket=Bucket(1, 10, clock=lambda: 0.0, sleep=slept.append), sleep=lambda seconds: None).succeed(
        "t"
    )
    assert slept == [pytest.approx(0.1)]


# -- hooks -----------------------------------------------------------------------------------------------------------


def test_an_envelope_without_a_token_is_left_alone() -> None:
    service = Service()
    each, plain = callbacks(service), task(None)
    each.fresh(plain)
    each.then(plain, {"answer": 42})
    assert each.keep_alive(plain) == ()
    assert each.give_up(plain, ValueError("x")) is False
    assert service.calls == []


def test_a_stale_token_ends_a_workers_heartbeat_and_no_answer_does_not() -> None:
    [beat] = callbacks(Service(*[refusal("ThrottlingException")] * 5, refusal("TaskTimedOut", "gone"))).keep_alive(
        task()
    )
    assert _refusal(beat) is None
    assert _refusal(beat) == "the task does not wait any more: gone."


def test_then_counts_a_stale_token_and_is_done() -> None:
    each = callbacks(Service(refusal("TaskTimedOut")))
    each.then(task(), {"answer": 42})
    each.then(task(), {"answer": 42})
    assert each.counts == {"stale": 1, "success": 1}


def test_then_fails_the_task_when_its_result_can_never_be_sent() -> None:
    service = Service()
    callbacks(service).then(task(), "x" * 300_000)
    [(name, arguments)] = service.calls
    assert (name, arguments["error"]) == ("send_task_failure", "PayloadError")
    assert "claim check" in arguments["cause"]


def test_give_up_says_whether_anybody_was_told() -> None:
    each = callbacks(Service(refusal("TaskTimedOut")))
    assert each.give_up(task(), ValueError("x")) is False
    assert each.give_up(task(), ValueError("x")) is True


def test_threads_share_one_and_every_call_is_counted() -> None:
    each = callbacks(Service())
    threads = [threading.Thread(target=lambda: [each.succeed(TOKEN) for _ in range(50)]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert each.counts == {"success": 400}


def test_it_needs_nothing_that_a_lambda_function_has_not() -> None:
    from labkit.work.packages import Settings, from_source

    modules = ("control/callbacks", "control/payloads", "models/bucket", "models/_input")
    package = from_source(
        "from labkit.control.callbacks import Callbacks\ndef handler(event, context): ...\n", Settings(labkit=modules)
    )
    assert "labkit/control/callbacks.py" in package.files


# -- a worker whose work a state machine waits for -------------------------------------------------------------------


class TransientError(Exception):
    """A step's own, for what passes."""


class Fleet:
    """A queue, the agent's state machine in front of it, and a worker behind it."""

    def __init__(self, lab: Lab, *, window: int = 30, retries: int = 1, receives: int = 3) -> None:
        self.queue = Queue.create(lab, "steps", visibility=30, dlq=True, max_receives=receives)
        self.store = IdempotencyStore.create(lab, "results", lease=20)
        self.callbacks = Callbacks(lab)
        values = {
            "QueueUrl": self.queue.url,
            "HeartbeatWindow": window,
            "StepTimeout": 60,
            "Retries": retries,
            "RetryAfter": 1,
        }
        self.machine = Machine.create(lab, "agent-step", "agent-step", values=values)
        self.events: list[Event] = []
        self.ran: list[str] = []

    def start(self) -> Execution:
        given = {"conversation_id": "8842", "step": 7, "agent_class": "researcher", "payload": {"q": "why"}}
        execution = self.machine.start(given, name="conv-8842")
        execution.until("Dispatch", 60)
        return execution

    def step(self, task: Task) -> dict[str, Any]:
        self.ran.append(task.body.trace_id)
        return {"answer": 42}

    def work(self, step: Any = None, *, once: bool = False, **options: Any) -> list[str]:
        """Let a worker empty the queue, or have one delivery; what became of each."""

        def seen(event: Event) -> None:
            self.events.append(event)
            if once:
                worker.stop()

        worker = Worker(
            self.queue,
            answering(self.callbacks, self.queue, step or self.step),
            **{
                "store": self.store,
                "visibility": 30,
                "wait": 1,
                "keep_alive": self.callbacks.keep_alive,
                "then": self.callbacks.then,
                "on_event": seen,
                **options,
            },
        )
        before = len(self.events)
        worker.run(until_empty=True, seconds=60)
        return [event.kind for event in self.events[before:]]


@pytest.fixture
def fleet(lab: Lab) -> Fleet:
    return Fleet(lab)


def test_a_worker_answers_with_the_recorded_result(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="labkit")
    execution = fleet.start()
    assert fleet.work() == ["done"]
    assert execution.wait(60).output == {"answer": 42}
    assert fleet.callbacks.counts == {"heartbeat": 1, "success": 1}
    assert fleet.ran == ["conv-8842-step-7"]


def test_poison_is_told_at_once_and_ends_in_the_dead_letter_queue(fleet: Fleet) -> None:
    execution = fleet.start()

    def poison(task: Task) -> None:
        raise Poison("this question can never be answered")

    assert fleet.work(poison) == ["dead"]
    ended = execution.wait(60)
    assert (ended.status, ended.error, ended.cause) == ("FAILED", "Poison", "this question can never be answered")
    assert execution.history().failed == ["GivenUp"]


def test_the_queue_tries_again_first_and_the_state_machine_decides_after_the_last_receive(lab: Lab) -> None:
    """Three receives by the queue, one failure told; the state's Retry for TransientError then dispatches anew."""
    fleet = Fleet(lab, receives=2)
    execution = fleet.start()
    left = [3]

    def flaky(task: Task) -> dict[str, int]:
        left[0] -= 1
        if left[0] >= 1:
            raise TransientError("try later")
        return {"answer": 42}

    def at_once(failure: int) -> float:
        return 0.0

    kinds = fleet.work(flaky, retry=at_once)
    assert kinds[:2] == ["failed", "dead"]
    if len(kinds) == 2:  # the second dispatch came after the queue had been seen empty
        execution.until("Dispatch", 60)
        kinds += fleet.work(flaky)
    assert kinds == ["failed", "dead", "done"]
    assert execution.wait(60).output == {"answer": 42}
    rows = [(row.attempt, row.outcome, row.error) for row in execution.history().steps()]
    assert rows == [(1, "retried", "TransientError"), (2, "succeeded", None)]


@pytest.mark.parametrize("result", [float("nan"), {1, 2}, "half \ud800"])
def test_a_result_that_json_cannot_hold_is_told_and_not_waited_for(lab: Lab, result: Any) -> None:
    fleet = Fleet(lab, receives=1)
    execution = fleet.start()
    assert fleet.work(lambda task: result) == ["dead"]
    ended = execution.wait(60)
    assert (ended.status, ended.error) == ("FAILED", "PayloadError")
    assert ended.cause is not None
    assert "the result of conv-8842-step-7 is not what JSON can hold" in ended.cause


def test_a_message_whose_token_is_dead_is_dropped_before_its_work_is_paid_for(fleet: Fleet) -> None:
    execution = fleet.start()
    execution.stop("Cancelled", "the caller hung up")
    assert fleet.work() == ["lost"]
    assert fleet.ran == []
    assert fleet.queue.depth().total == 0
    assert fleet.queue.dlq is not None
    assert fleet.queue.dlq.depth().total == 0
    assert "was dropped: the task does not wait any more" in str(fleet.events[0].error)


def test_a_made_up_token_is_poison(fleet: Fleet) -> None:
    envelope = Envelope.new(conversation_id="1", step=1, agent_class="a", payload={}, task_token="made-up")
    fleet.queue.send(envelope.detail())
    assert fleet.work() == ["dead"]
    assert isinstance(fleet.events[0].error, Poison)
    assert fleet.ran == []


def test_a_missed_heartbeat_dispatches_again_and_the_late_worker_is_refused_with_one_result_recorded(lab: Lab) -> None:
    """The worker is silent for longer than the window; another one has answered when it comes back."""
    fleet = Fleet(lab, window=5)
    execution = fleet.start()
    [old] = fleet.queue.receive(wait=20, visibility=600)
    dead = Envelope.parse(old.body)
    end = time.monotonic() + 60
    while len((history := execution.history()).steps()) < 2 or not history.waits_in("Dispatch"):
        assert time.monotonic() < end, "it was not dispatched again"
        time.sleep(0.1)
    with pytest.raises(StaleToken):
        fleet.callbacks.succeed(dead.task_token, {"answer": "late"})
    assert fleet.work(once=True) == ["done"]
    assert execution.wait(60).output == {"answer": 42}
    assert [(row.attempt, row.entered, row.outcome) for row in execution.history().steps()] == [
        (1, "start", "retried"),
        (2, "retry", "succeeded"),
    ]
    # The late twin has its message again: the result stands, and nobody is waiting.
    fleet.queue.hide(old, 0)
    assert fleet.work() == ["replayed"]
    assert fleet.ran == ["conv-8842-step-7"]
    assert fleet.callbacks.counts["stale"] >= 2


def test_no_token_in_a_log_an_event_or_a_dead_letters_reason(fleet: Fleet, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="labkit")
    execution = fleet.start()
    tokens: list[str] = []

    def broken(task: Task) -> None:
        tokens.append(task.body.task_token.get_secret_value())
        raise Poison(f"cannot work on {task.body}")

    assert fleet.work(broken) == ["dead"]
    assert fleet.queue.dlq is not None
    [letter] = fleet.queue.dlq.receive(wait=20)
    [token] = tokens
    seen = [caplog.text, str(letter.attributes), str(fleet.events[0].error), str(execution.wait(60).cause)]
    seen.append(str(execution.history().events))
    assert [text for text in seen if token in text] == []
    assert token in letter.body  # it is what a redrive sends on
