"""Human gates on a real table, with real tokens: one answer stands, it arrives, and one that is too late is told so."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from labkit import Lab
from labkit.control import trace_context
from labkit.control.approvals import AlreadyAnswered, ApprovalError, Approvals, NoSuchRequest, Request, TooLate
from labkit.control.callbacks import NoAnswer
from labkit.control.envelope import Envelope
from labkit.control.machines import Execution, Machine
from labkit.control.trace_context import TraceContext
from labkit.ops.spans.states import spans_of
from labkit.state.idempotency import IdempotencyStore, Work
from labkit.state.saga import Sagas
from labkit.work.queues import Queue

STEPS = ["room", "flight", "car"]


def until(look: Callable[[], Any], within: float = 60.0) -> Any:
    end = time.monotonic() + within
    while not (found := look()):
        assert time.monotonic() < end, "it did not come to that"
        time.sleep(0.05)
    return found


class Flow:
    """The approval flow of infra/machines, with a worker of its own that does steps and takes them back."""

    def __init__(self, lab: Lab, team: int, lead: int) -> None:
        self.approvals = Approvals.create(lab, "approvals")
        self.queue = Queue.create(lab, "steps", visibility=30)
        self.store = IdempotencyStore.create(lab, "records")
        self.contexts: list[TraceContext | None] = []  # of what the worker was sent
        self.undone: list[str] = []
        self.broken: set[str] = set()
        self.sagas = Sagas.create(
            lab, "trips", store=self.store, undo={"cancel": self.cancel}, tries=2, sleep=lambda _: None
        )
        values = {
            "ApprovalsTable": self.approvals.table, "Team": "team", "Lead": "lead", "TeamSeconds": team,
            "LeadSeconds": lead, "StepQueue": self.queue.url, "HeartbeatWindow": 20, "StepTimeout": 60, "Retries": 1,
        }  # fmt: skip
        self.machine = Machine.create(lab, "approval", "approval", values=values)

    def cancel(self, data: str) -> None:
        if f"cancel-{data}" in self.broken:
            raise ConnectionError("the other end is down")
        self.undone.append(data)

    def start(self, name: str = "trip") -> Execution:
        return self.machine.start({"question": "Book the trip?", "steps": STEPS}, name=name)

    def asked(self, group: str) -> Request:
        [request] = until(lambda: self.approvals.pending(group))
        return request

    def work(self, execution: Execution) -> Any:
        """Handle what the flow sends until it has ended; its outcome."""
        callbacks = self.approvals.callbacks

        def one() -> Any:
            for message in self.queue.receive(1, wait=0):
                envelope = Envelope.model_validate(message.json())
                self.contexts.append(trace_context.carried(envelope))
                payload: Any = envelope.payload
                if envelope.agent_class == "saga-undo":
                    report = self.sagas.compensate(payload["saga"])
                    if report.failed is None:
                        callbacks.succeed(envelope.task_token, {"undone": len(report.undone)})
                    else:
                        callbacks.fail(envelope.task_token, "UndoFailed", report.failed.parked)
                elif payload["step"] in self.broken:
                    callbacks.fail(envelope.task_token, "NoRoom", f"{payload['step']} is full")
                else:
                    with self.sagas.step(payload["saga"], Work.of(envelope, payload["step"]), undo="cancel") as step:
                        step.complete("booked", payload["step"])
                    callbacks.succeed(envelope.task_token, "booked")
                self.queue.delete(message)
            return execution.client.describe_execution(executionArn=execution.arn)["status"] != "RUNNING"

        until(one)
        return execution.client.describe_execution(executionArn=execution.arn)


@pytest.fixture
def flow(lab: Lab) -> Flow:
    return Flow(lab, team=60, lead=60)


def token(flow: Flow, request: Request) -> str:
    item = flow.approvals.client.get_item(TableName=flow.approvals.table, Key={"pk": {"S": request.id}})["Item"]
    return str(item["task_token"]["S"])


# -- answers -----------------------------------------------------------------------------------------------------------


def test_an_approval_is_recorded_and_the_steps_are_done(flow: Flow) -> None:
    execution = flow.start()
    request = flow.asked("team")
    assert (request.question, request.state) == ("Book the trip?", "pending")
    taken = flow.approvals.approve(request.id, "Kim", "as agreed")
    assert (taken.state, taken.decided_by, taken.note, taken.delivered) == ("approved", "Kim", "as agreed", True)
    assert flow.work(execution)["status"] == "SUCCEEDED"
    assert [row.step for row in flow.sagas.steps("trip")] == STEPS
    assert flow.approvals.pending("team") == []


def test_the_trace_goes_on_after_the_humans_answer_with_a_span_for_each_step_and_for_what_takes_them_back(
    flow: Flow,
) -> None:
    flow.broken.add(STEPS[-1])
    cause = TraceContext.root()
    execution = flow.machine.start({"question": "Book?", "steps": STEPS, **cause.headers()}, name="trip")
    flow.approvals.approve(flow.asked("team").id, "Kim")
    assert flow.work(execution)["status"] == "FAILED"
    top, *states = spans_of(execution)
    assert (top.trace_id, top.parent_id) == (cause.trace_id, cause.span_id)
    asked = [each.span_id for each in states if each.name in ("Step", "Compensate")]
    assert [each.name for each in states].count("Step") == len(STEPS)
    sent = [each for each in flow.contexts if each is not None]
    assert {each.trace_id for each in sent} == {cause.trace_id}
    assert [each.span_id for each in sent] == asked


def test_a_rejection_ends_without_effect(flow: Flow) -> None:
    execution = flow.start()
    flow.approvals.reject(flow.asked("team").id, "Kim")
    assert flow.work(execution)["status"] == "SUCCEEDED"
    assert flow.sagas.steps("trip") == []
    assert flow.queue.depth().total == 0


def test_a_double_answer_is_told_which_one_stands_and_the_same_again_is_harmless(flow: Flow) -> None:
    flow.start()
    request = flow.asked("team")
    flow.approvals.approve(request.id, "Kim")
    assert flow.approvals.approve(request.id, "Kim").delivered
    for answer, by in ((flow.approvals.reject, "Kim"), (flow.approvals.approve, "Lee")):
        with pytest.raises(AlreadyAnswered, match="was approved by Kim already") as raised:
            answer(request.id, by)
        assert raised.value.request.decided_by == "Kim"


def test_of_many_answers_at_once_one_stands(flow: Flow) -> None:
    flow.start()
    request = flow.asked("team")

    def answer(number: int) -> str:
        try:
            return str(flow.approvals.decide(request.id, "approved" if number % 2 else "rejected", f"p{number}").state)
        except AlreadyAnswered:
            return ""

    with ThreadPoolExecutor(8) as pool:
        assert sum(bool(state) for state in pool.map(answer, range(8))) == 1


def test_a_delivery_that_was_interrupted_is_settled(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    execution = flow.start()
    request = flow.asked("team")
    succeed = flow.approvals.callbacks.succeed

    def silent(*_: Any) -> None:
        raise NoAnswer("Step Functions does not answer.")

    monkeypatch.setattr(flow.approvals.callbacks, "succeed", silent)
    with pytest.raises(NoAnswer):
        flow.approvals.reject(request.id, "Kim")
    standing = flow.approvals.look(request.id)
    assert (standing.state, standing.delivered) == ("rejected", False)
    with pytest.raises(AlreadyAnswered):
        flow.approvals.approve(request.id, "Lee")
    monkeypatch.setattr(flow.approvals.callbacks, "succeed", succeed)
    [settled] = flow.approvals.settle()
    assert (settled.id, settled.delivered) == (request.id, True)
    assert flow.approvals.settle() == []
    assert flow.work(execution)["status"] == "SUCCEEDED"


def test_a_delivery_that_was_heard_and_not_noted_is_no_expiry(flow: Flow, monkeypatch: pytest.MonkeyPatch) -> None:
    flow.start()
    request = flow.asked("team")
    succeed = flow.approvals.callbacks.succeed

    def heard(*arguments: Any) -> None:
        succeed(*arguments)
        raise NoAnswer("the answer was lost")

    monkeypatch.setattr(flow.approvals.callbacks, "succeed", heard)
    with pytest.raises(NoAnswer):
        flow.approvals.reject(request.id, "Kim")
    monkeypatch.setattr(flow.approvals.callbacks, "succeed", succeed)
    [settled] = flow.approvals.settle()
    assert (settled.state, settled.delivered) == ("rejected", True)


def test_an_answer_to_a_gate_that_has_gone_is_too_late_and_says_so(flow: Flow) -> None:
    execution = flow.start()
    request = flow.asked("team")
    execution.client.stop_execution(executionArn=execution.arn)
    for _ in range(2):
        with pytest.raises(TooLate, match="has expired: the workflow has gone on without an answer"):
            flow.approvals.approve(request.id, "Kim")
    assert flow.approvals.look(request.id).state == "expired"


def test_the_token_shows_nowhere(flow: Flow, caplog: pytest.LogCaptureFixture) -> None:
    flow.start()
    request = flow.asked("team")
    secret = token(flow, request)
    errors = []
    flow.approvals.approve(request.id, "Kim")
    try:
        flow.approvals.reject(request.id, "Lee")
    except AlreadyAnswered as error:
        errors.append(str(error) + repr(error.request))
    assert errors
    for shown in (repr(request), str(request), repr(flow.approvals), caplog.text, *errors):
        assert secret not in shown


@pytest.mark.parametrize("by", ["", "two\nlines", "x" * 129, None, "#x"])
def test_an_approver_has_a_name(flow: Flow, by: Any) -> None:
    with pytest.raises(ApprovalError, match="an approver is a text of 1 to 128 characters"):
        flow.approvals.approve("trip/AskTeam", by)


@pytest.mark.parametrize("name", ["nobody/AskTeam", "", "x" * 3000, None])
def test_a_request_that_is_not_there(flow: Flow, name: Any) -> None:
    with pytest.raises(NoSuchRequest, match="there is no request"):
        flow.approvals.approve(name, "Kim")


# -- time, and failing steps -------------------------------------------------------------------------------------------


def test_no_answer_escalates_with_a_new_token_and_the_first_gate_is_closed(lab: Lab) -> None:
    flow = Flow(lab, team=1, lead=60)
    execution = flow.start()
    second = flow.asked("lead")
    first = flow.approvals.look("trip/AskTeam")
    assert token(flow, second) != token(flow, first)
    assert flow.approvals.pending("team") == []
    assert (first.group, first.state) == ("team", "expired")
    with pytest.raises(TooLate):
        flow.approvals.approve(first.id, "Kim")
    flow.approvals.approve(second.id, "Lee")
    assert flow.work(execution)["status"] == "SUCCEEDED"
    assert len(flow.sagas.steps("trip")) == len(STEPS)


def test_no_answer_at_all_is_a_no(lab: Lab) -> None:
    flow = Flow(lab, team=1, lead=1)
    execution = flow.start()
    ended = flow.work(execution)
    assert ended["status"] == "SUCCEEDED"
    assert '"done":false' in ended["output"].replace(" ", "")
    assert flow.sagas.steps("trip") == []
    assert flow.approvals.look("trip/AskLead").state == "expired"


def test_a_failing_step_takes_back_what_was_done_and_keeps_the_first_error(flow: Flow) -> None:
    flow.broken = {"car"}
    execution = flow.start()
    flow.approvals.approve(flow.asked("team").id, "Kim")
    ended = flow.work(execution)
    assert (ended["status"], ended["error"], ended["cause"]) == ("FAILED", "NoRoom", "car is full")
    assert flow.undone == ["flight", "room"]


def test_an_undo_that_fails_fails_the_execution_and_a_redrive_goes_on(flow: Flow) -> None:
    flow.broken = {"car", "cancel-room"}
    execution = flow.start()
    flow.approvals.approve(flow.asked("team").id, "Kim")
    ended = flow.work(execution)
    assert (ended["status"], ended["error"]) == ("FAILED", "UndoFailed")
    assert flow.undone == ["flight"]
    assert flow.sagas.dlq.depth().total == 1
    flow.broken = {"car"}
    [report] = flow.sagas.redrive()
    assert report.complete
    assert flow.undone == ["flight", "room"]
    execution.client.redrive_execution(executionArn=execution.arn)
    again = flow.work(execution)
    assert (again["status"], again["error"]) == ("FAILED", "NoRoom")
    assert flow.undone == ["flight", "room"]


# -- races, and rows that nobody should have written -------------------------------------------------------------------


class Behind:
    """Step Functions whose histories end before the first event of ``kind`` at the first ``looks``, and go on then."""

    def __init__(self, client: Any, looks: int, kind: str) -> None:
        self.client, self.looks, self.kind = client, looks, kind

    def __getattr__(self, name: str) -> Any:
        return getattr(self.client, name)

    def get_paginator(self, name: str) -> Any:
        return self

    def paginate(self, **arguments: Any) -> Any:
        self.looks -= 1

        def there() -> tuple[list[Any], int] | None:
            events = self.client.get_execution_history(executionArn=arguments["executionArn"])["events"]
            places = [place for place, event in enumerate(events) if event["type"] == self.kind]
            return (events, places[0]) if places else None

        events, place = until(there)
        return [{"events": events[:place] if self.looks >= 0 else events}]


@pytest.mark.parametrize("kind", ["TaskSucceeded", "ExecutionStarted"])
def test_an_answer_that_was_heard_is_no_expiry_while_the_history_is_behind(
    flow: Flow, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    execution = flow.start()
    request = flow.asked("team")
    callbacks, slept = flow.approvals.callbacks, list[float]()
    succeed = callbacks.succeed

    def heard_twice(*arguments: Any) -> None:
        succeed(*arguments)  # by another process, at the same moment
        succeed(*arguments)

    monkeypatch.setattr(callbacks, "succeed", heard_twice)
    monkeypatch.setattr(callbacks, "client", Behind(callbacks.client, 3, kind))
    flow.approvals._sleep = slept.append
    taken = flow.approvals.reject(request.id, "Kim")
    assert (taken.state, taken.delivered, len(slept)) == ("rejected", True, 3)
    assert execution.wait(60).output["decision"]["by"] == "Kim"


def gate(lab: Lab, table: str, seconds: int | str, after: dict[str, Any]) -> Machine:
    """A gate that can be entered again: the same request, asked anew."""
    item = {
        "pk": "{% $states.context.Execution.Name & '/Ask' %}", "gate_state": "pending", "asked_of": "team",
        "open_in": "team", "asked_at": "{% $now() %}", "answer_until": "soon", "question": '{"asked": "Go?"}',
        "execution": "{% $states.context.Execution.Id %}", "task_token": "{% $states.context.Task.Token %}",
    }  # fmt: skip
    ask = {
        "Type": "Task",
        "Resource": "arn:aws:states:::aws-sdk:dynamodb:putItem.waitForTaskToken",
        "Arguments": {"TableName": table, "Item": {key: {"S": value} for key, value in item.items()}},
        "TimeoutSeconds": seconds,
        "Catch": [{"ErrorEquals": ["States.Timeout"], "Next": "Late"}],
        **after,
    }
    again = {"Type": "Choice", "Choices": [{"Condition": "{% $states.input.approved %}", "Next": "Done"}]}
    states = {"Ask": ask, "Again": {**again, "Default": "Ask"}, "Late": {"Type": "Fail"}, "Done": {"Type": "Succeed"}}
    return Machine.create(lab, "gate", {"QueryLanguage": "JSONata", "StartAt": "Ask", "States": states})


def test_an_answer_to_an_earlier_round_does_not_pass_for_one_that_came_too_late(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    approvals = Approvals.create(lab, "approvals")
    seconds = "{% $exists($states.input.approved) ? 1 : 60 %}"  # only the second round is one that nobody answers
    execution = gate(lab, approvals.table, seconds, {"Next": "Again"}).start(name="loop")
    first = until(lambda: approvals.pending("team"))[0]
    approvals.reject(first.id, "Kim")
    [second] = until(lambda: approvals.pending("team"))
    assert (second.id, second.token == first.token) == (first.id, False)
    succeed = approvals.callbacks.succeed

    def late(*arguments: Any) -> None:
        execution.wait(60)
        succeed(*arguments)

    monkeypatch.setattr(approvals.callbacks, "succeed", late)
    with pytest.raises(TooLate):
        approvals.approve(first.id, "Kim")
    assert approvals.look(first.id).state == "expired"


def test_a_late_answer_does_not_close_the_next_round(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    approvals = Approvals.create(lab, "approvals")
    execution = gate(lab, approvals.table, 60, {"Next": "Again"}).start(name="loop")
    [request] = until(lambda: approvals.pending("team"))
    succeed = approvals.callbacks.succeed

    def late(*arguments: Any) -> None:
        execution.stop()  # and meanwhile it is asked anew, and answered by another
        row = approvals.client.get_item(TableName=approvals.table, Key={"pk": {"S": request.id}})["Item"]
        anew = {"task_token": {"S": "another"}, "decided_by": {"S": "Lee"}}
        approvals.client.put_item(TableName=approvals.table, Item={**row, **anew})
        succeed(*arguments)

    monkeypatch.setattr(approvals.callbacks, "succeed", late)
    with pytest.raises(TooLate):
        approvals.approve(request.id, "Kim")
    standing = approvals.look(request.id)
    assert (standing.state, standing.decided_by, standing.delivered) == ("approved", "Lee", False)


def test_a_token_that_somebody_else_has_used_for_another_answer_is_no_approval(
    flow: Flow, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow.start()
    request = flow.asked("team")
    flow.approvals.callbacks.succeed(request.token, {"approved": False})
    with pytest.raises(TooLate):
        flow.approvals.approve(request.id, "Kim")
    assert flow.approvals.look(request.id).state == "expired"


def test_rows_that_cannot_be_settled_do_not_hold_up_the_others(
    flow: Flow, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    flow.start()
    request = flow.asked("team")
    row = flow.approvals.client.get_item(TableName=flow.approvals.table, Key={"pk": {"S": request.id}})["Item"]
    answered = {**row, "gate_state": {"S": "approved"}, "open_in": {"S": "#undelivered"}, "asked_at": {"S": "0"}}
    dead = flow.start("dead")
    other = until(lambda: [each for each in flow.approvals.pending("team") if each.id != request.id])[0]
    dead.stop()
    for number, odd in enumerate(
        [
            {"task_token": {"S": "made up"}},
            {"task_token": {"S": other.token}, "execution": {"S": "arn:aws:states:us-east-1:1:execution:x:y"}},
            {"task_token": {"S": other.token}, "execution": {"S": ""}},
            {"gate_state": {"S": "perhaps"}},
            {"question": {"S": "[" * 100_000}},
            {"question": {"N": "1"}},
        ]
    ):
        item = {**answered, **odd, "pk": {"S": f"odd-{number}\n"}}
        flow.approvals.client.put_item(TableName=flow.approvals.table, Item=item)
    flow.approvals.client.put_item(TableName=flow.approvals.table, Item={**answered, "asked_at": {"S": "9"}})
    flow.approvals._sleep = lambda _: None
    settled = {each.id: each.state for each in flow.approvals.settle()}
    assert settled == {request.id: "approved"}
    assert caplog.text.count("odd-") >= 6
    assert other.token not in caplog.text


def test_a_question_that_cannot_be_read_hides_no_other(flow: Flow) -> None:
    flow.start()
    request = flow.asked("team")
    row = flow.approvals.client.get_item(TableName=flow.approvals.table, Key={"pk": {"S": request.id}})["Item"]
    deep = {"pk": {"S": "odd"}, "question": {"S": "[" * 100_000}, "asked_at": {"S": "0"}}
    flow.approvals.client.put_item(TableName=flow.approvals.table, Item={**row, **deep})
    assert [each.id for each in flow.approvals.pending("team")] == [request.id]


def test_no_decision_is_recorded_that_could_never_be_delivered(flow: Flow) -> None:
    flow.start()
    request = flow.asked("team")
    row = flow.approvals.client.get_item(TableName=flow.approvals.table, Key={"pk": {"S": request.id}})["Item"]
    del row["task_token"]
    flow.approvals.client.put_item(TableName=flow.approvals.table, Item=row)
    with pytest.raises(ApprovalError, match="is no request of a gate"):
        flow.approvals.approve(request.id, "Kim")
    item = flow.approvals.client.get_item(TableName=flow.approvals.table, Key={"pk": {"S": request.id}})["Item"]
    assert item["gate_state"]["S"] == "pending"


@pytest.mark.parametrize("by", [" ", "two\x85lines", "two\u2028lines", "half \ud800", "x\x00"])
def test_a_name_is_one_line_of_whole_characters(flow: Flow, by: str) -> None:
    with pytest.raises(ApprovalError, match="an approver is a text of 1 to 128 characters"):
        flow.approvals.approve("trip/AskTeam", by)


def test_what_is_half_a_character_is_refused_before_it_is_sent(flow: Flow) -> None:
    with pytest.raises(ApprovalError, match="a note is a text"):
        flow.approvals.approve("trip/AskTeam", "Kim", "half \ud800")
    with pytest.raises(NoSuchRequest):
        flow.approvals.approve("trip \ud800", "Kim")


def test_odd_notes_and_names_come_through_as_they_are(flow: Flow) -> None:
    execution = flow.start()
    note = 'Ünï \u202e"<b>\n\x00{% $x %}${Y} \U0001f600'
    flow.approvals.reject(flow.asked("team").id, "Zoë / Ö", note)
    assert execution.wait(60).output["decision"] == {
        "approved": False, "by": "Zoë / Ö", "note": note, "request": "trip/AskTeam",
    }  # fmt: skip
