"""State machines: definitions filled by name, deployed only where they differ, executions waited for with a bound."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

from labkit import Lab, facts, kinds, sweep
from labkit.control import definitions, executions
from labkit.control.callbacks import Callbacks, StaleToken
from labkit.control.definitions import fill, load, placeholders
from labkit.control.envelope import Envelope
from labkit.control.machines import Execution, Machine, MachineError, Outcome, wait_all
from labkit.control.payloads import PayloadError
from labkit.sweep import Scope
from labkit.work.functions import Function
from labkit.work.queues import Queue

MACHINES = Path(__file__).resolve().parents[2] / "infra" / "machines"


def one(state: dict[str, Any], **top: Any) -> dict[str, Any]:
    return {"StartAt": "T", "States": {"T": {**state, "End": True}}, **top}


PASS = one({"Type": "Pass"})
WAITS = one({"Type": "Wait", "Seconds": 3600})


def agent(lab: Lab, queue: Queue, **values: Any) -> Machine:
    usual = {"QueueUrl": queue.url, "HeartbeatWindow": 30, "StepTimeout": 60, "Retries": 1, "RetryAfter": 1}
    return Machine.create(lab, "agent-step", "agent-step", values={**usual, **values})


def question(step: int = 1) -> dict[str, Any]:
    return {"conversation_id": "8842", "step": step, "agent_class": "researcher", "payload": {"q": "why"}}


# -- definitions ------------------------------------------------------------------------------------------------------


def test_values_go_into_the_strings_of_the_parsed_definition_and_keep_their_type() -> None:
    definition = {
        "TimeoutSeconds": "${Window}",
        "${Key}": {"Url": "${Url}", "Both": "at ${Url} for ${Window} s", "Many": ["${List}", 7, None, True]},
    }
    filled = fill(definition, {"Window": 2, "Url": 'http://x/"quoted"\n', "List": [1, {"a": "${Url}"}]})
    assert filled == {
        "TimeoutSeconds": 2,
        "${Key}": {
            "Url": 'http://x/"quoted"\n',
            "Both": 'at http://x/"quoted"\n for 2 s',
            "Many": [[1, {"a": "${Url}"}], 7, None, True],  # a value is not looked into
        },
    }
    assert definition["TimeoutSeconds"] == "${Window}"


@pytest.mark.parametrize(
    ("definition", "values", "says"),
    [
        ({"a": "${X} ${Y}"}, {"X": 1}, "needs a value for Y"),
        ({"a": "${X}"}, {"X": 1, "Z": 2, "Y": 3}, r"has no placeholder Y, Z; it uses X"),
        ({"a": "b"}, {"X": 1}, r"has no placeholder X; it has none"),
        ({"a": "${X}"}, {"X": object()}, "a value of the definition is not what JSON can hold"),
        ({"a": "${X}"}, {"X": float("nan")}, "not what JSON can hold"),
        ({"a": "on ${X}"}, {"X": [1]}, r"X stands inside a text and is a text or a number; got \[1\]"),
        ({"a": "on ${X}"}, {"X": True}, "X stands inside a text"),
        ({"a": "{% ${X} & 'b' %}"}, {"X": "1"}, "is an expression: assign the value to a variable"),
    ],
)
def test_a_value_that_is_missing_unused_or_no_value_is_named(definition: Any, values: Any, says: str) -> None:
    with pytest.raises(MachineError, match=says):
        fill(definition, values)


def endless() -> dict[str, Any]:
    definition: dict[str, Any] = {"a": "b"}
    definition["again"] = definition
    return definition


def nested(levels: int) -> dict[str, Any]:
    definition: dict[str, Any] = {}
    for _ in range(levels):
        definition = {"a": definition}
    return definition


@pytest.mark.parametrize(
    ("definition", "values", "says"),
    [
        (endless(), {}, "a definition is what JSON can hold; this one is not"),
        (nested(100_000), {}, "a definition is what JSON can hold; this one is not"),
        (nested(450), {}, "nested 200 levels deep at most"),
        ({"a": "${X}"}, {"X": endless()}, "a value of the definition is not what JSON can hold"),
        ({"a": "${X}"}, {"X": nested(450)}, "nested 200 levels deep at most"),
        ({"a": "${X}"}, None, "the values of a definition are a mapping by name; got None"),
        ({"a": "${X}"}, {1: 2, "X": 3}, "the values of a definition are a mapping by name"),
    ],
)
def test_what_has_no_end_or_no_name_is_refused_in_a_sentence(definition: Any, values: Any, says: str) -> None:
    with pytest.raises(MachineError, match=says):
        fill(load(definition), values)


@pytest.mark.parametrize("source", [None, 7, "", b"agent-step"])
def test_a_source_is_a_name_a_path_or_a_mapping(source: Any) -> None:
    with pytest.raises(MachineError, match="a definition is a name, a path or a mapping"):
        load(source)


def test_a_file_that_is_nested_without_end_is_no_json(tmp_path: Path) -> None:
    file = tmp_path / "deep.asl.json"
    file.write_text('{"a":' * 100_000)
    with pytest.raises(MachineError, match="is no JSON"):
        load(file)


def test_a_definition_is_found_by_name_path_or_as_it_is(tmp_path: Path) -> None:
    assert load("agent-step") == load(MACHINES / "agent_step.asl.json") == load(str(MACHINES / "agent_step.asl.json"))
    own = tmp_path / "mine.asl.json"
    own.write_text(json.dumps(PASS))
    assert load(own) == load(PASS) == PASS
    own.write_text("{")
    with pytest.raises(MachineError, match=r"mine\.asl\.json is no JSON"):
        load(own)
    own.write_text("[]")
    with pytest.raises(MachineError, match="is a JSON object; this is list"):
        load(own)
    with pytest.raises(MachineError, match=r"cannot be read: No such file"):
        load(tmp_path / "none.asl.json")
    with pytest.raises(MachineError, match=r"no definition 'agent-stp' in infra/machines; there are agent-step"):
        load("agent-stp")


@pytest.mark.parametrize("file", sorted(MACHINES.glob("*.asl.json")), ids=lambda file: file.name)
def test_every_definition_of_the_course_bounds_its_waits_and_names_its_values(file: Path) -> None:
    definition = load(file)
    for name in placeholders(definition):
        assert name in definition["Comment"], f"{file.name}: the Comment does not name the value {name}"
    for name, state in states_of(definition):
        if str(state.get("Resource", "")).endswith(".waitForTaskToken"):
            assert "TimeoutSeconds" in state or "TimeoutSecondsPath" in state, f"{name} would wait for a year"
            assert "States.TaskFailed" not in str(state.get("Retry")) or "States.Timeout" in str(state.get("Retry"))


def states_of(machine: dict[str, Any]) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for name, state in machine["States"].items():
        found.append((name, state))
        for inside in [*state.get("Branches", ()), *(state[key] for key in ("ItemProcessor",) if key in state)]:
            found += states_of(inside)
    return found


def test_the_research_machine_retries_what_aws_tells_to_retry() -> None:
    transient = set(str(facts("sfn.lambda.retry_errors")).split("|"))
    for name, state in states_of(load("research")):
        if state["Type"] == "Task":
            assert transient <= {error for retry in state["Retry"] for error in retry["ErrorEquals"]}, name


# -- deploying --------------------------------------------------------------------------------------------------------


def test_creating_again_changes_only_what_is_different(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine.create(lab, "one", PASS)
    assert (machine.name, machine.kind, machine.definition) == ("one", "STANDARD", PASS)
    assert kinds.machine_tags(machine.client, machine.arn) == lab.tags
    changes: list[str] = []
    for operation in ("create_state_machine", "update_state_machine"):
        real = getattr(machine.client, operation)
        monkeypatch.setattr(
            machine.client, operation, lambda real=real, **given: changes.append(real.__name__) or real(**given)
        )
    assert Machine.create(lab, "one", json.loads(json.dumps(PASS))).arn == machine.arn
    assert changes == []
    other = one({"Type": "Pass", "Result": 1})
    assert Machine.create(lab, "one", other).definition == other
    assert changes == ["update_state_machine"]
    with pytest.raises(MachineError, match="one is STANDARD and cannot become EXPRESS: delete it first"):
        Machine.create(lab, "one", other, kind="EXPRESS")


@pytest.mark.parametrize(
    ("definition", "says"),
    [
        ({"StartAt": "Nowhere", "States": PASS["States"]}, "definition is not valid"),
        ({"States": PASS["States"]}, "definition is not valid"),
        (one({"Type": "Pass", "Next": "X"}), "definition is not valid"),
        (one({"Type": "Pass", "Comment": "x" * 1_048_576}), r"and Step Functions takes 1,048,576 at most"),
        (one({"Type": "Pass", "Result": float("inf")}), "a definition is what JSON can hold"),
    ],
)
def test_a_definition_that_is_not_valid_is_refused_with_the_findings(lab: Lab, definition: Any, says: str) -> None:
    with pytest.raises(MachineError, match=says):
        Machine.create(lab, "bad", definition)
    assert lab.client("stepfunctions").list_state_machines()["stateMachines"] == []


def test_two_who_create_it_at_once_with_different_definitions_both_do(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Machine.create(lab, "both", PASS)
    client, real = first.client, first.client.describe_state_machine
    gone = client.exceptions.StateMachineDoesNotExist({"Error": {"Code": "StateMachineDoesNotExist"}}, "Describe")
    looks = iter([gone])  # at the first look it is not there yet

    def describe(**arguments: Any) -> Any:
        if (trouble := next(looks, None)) is not None:
            raise trouble
        return real(**arguments)

    monkeypatch.setattr(client, "describe_state_machine", describe)
    second = Machine.create(lab, "both", WAITS)
    assert (second.arn, second.definition) == (first.arn, WAITS)


@pytest.mark.parametrize(
    "arn", ["", "garbage", None, "arn:aws:states:us-east-1:1:stateMachine:m", "arn:aws:states:::x:y:"]
)
def test_an_execution_has_an_arn(arn: Any) -> None:
    with pytest.raises(MachineError, match="an execution has an ARN"):
        Execution(SimpleNamespace(), arn)


def test_findings_are_listed_with_their_place() -> None:
    found = {
        "result": "FAIL",
        "truncated": True,
        "diagnostics": [
            {"severity": "ERROR", "code": "MISSING_TRANSITION_TARGET", "message": "no X", "location": "/States/A/Next"},
            {"severity": "WARNING", "code": "NO_PATH", "message": "a warning"},
            {"severity": "ERROR", "code": "SCHEMA_VALIDATION_FAILED", "message": "no StartAt"},
        ],
    }
    client = SimpleNamespace(validate_state_machine_definition=lambda **given: found)
    with pytest.raises(MachineError) as refused:
        definitions.check(client, PASS, "STANDARD")
    assert str(refused.value).splitlines() == [
        "the definition is not valid:",
        "  /States/A/Next: no X (MISSING_TRANSITION_TARGET)",
        "  no StartAt (SCHEMA_VALIDATION_FAILED)",
        "  and more",
    ]


def test_what_cannot_be_made_is_said_in_one_sentence(lab: Lab) -> None:
    for name in ("x" * 81, "a b", ""):
        with pytest.raises(MachineError, match=rf"underscores, 80 at most; '{name}' is not"):
            Machine.create(lab, name, PASS)
    with pytest.raises(MachineError, match=r"state machine .*:nobody cannot be described: StateMachineDoesNotExist"):
        Machine(lab.client("stepfunctions"), lab.arn("states", "stateMachine:nobody"))


def test_deleting_stops_what_runs_and_twice_is_harmless(lab: Lab) -> None:
    queue = Queue.create(lab, "steps")
    machine = agent(lab, queue)
    for step in range(3):
        machine.start(question(step)).until("Dispatch", 60)
    machine.delete()
    assert lab.client("stepfunctions").list_state_machines()["stateMachines"] == []
    machine.delete()
    messages = queue.receive(10)
    assert len(messages) == 3
    for message in messages:
        with pytest.raises(StaleToken):
            Callbacks(lab).heartbeat(Envelope.parse(message.body).task_token)


def test_a_sweep_removes_machines_and_activities_and_only_those_of_its_scope(lab: Lab) -> None:
    client = lab.client("stepfunctions")
    Machine.create(lab, "lab-mine", WAITS).start()
    Machine.create(lab, "other", PASS)
    Machine.create(lab, "lab-express", PASS, kind="EXPRESS")
    client.create_activity(name="lab-work", tags=[{"key": "lab", "value": lab.name}])
    client.create_activity(name="lab-untagged")
    gone = sweep.delete("stepfunctions", client, Scope("lab-", ("lab", lab.name)))
    assert gone == {"state machine": 2, "activity": 1}
    assert [one["name"] for one in client.list_state_machines()["stateMachines"]] == ["other"]
    assert [one["name"] for one in client.list_activities()["activities"]] == ["lab-untagged"]


def test_machines_go_before_what_they_call() -> None:
    assert sweep.in_order(["sqs", "lambda", "stepfunctions", "events"]) == ["events", "stepfunctions", "lambda", "sqs"]


def test_a_machine_that_stays_is_said_after_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    class Gone(Exception):
        pass

    client = SimpleNamespace(
        exceptions=SimpleNamespace(
            StateMachineDoesNotExist=Gone, StateMachineTypeNotSupported=Gone, ExecutionDoesNotExist=Gone
        ),
        can_paginate=lambda operation: False,
        list_executions=lambda **given: {"executions": []},
        delete_state_machine=lambda **given: {},
        describe_state_machine=lambda **given: {"status": "DELETING"},
    )
    with pytest.raises(Exception, match="state machine stuck is still there 0 s after it was deleted"):
        kinds.delete_machine(client, "arn:aws:states:r:1:stateMachine:stuck", within=0.2)


# -- executions -------------------------------------------------------------------------------------------------------


def test_start_wait_and_the_outcome_is_parsed(lab: Lab) -> None:
    machine = Machine.create(lab, "echo", PASS)
    execution = machine.start({"a": ["ế", 1.5]}, name="first")
    assert execution.wait(60) == Outcome("SUCCEEDED", {"a": ["ế", 1.5]})
    assert execution.outcome is not None
    assert execution.outcome.succeeded
    assert (execution.name, execution.machine, execution.status) == ("first", machine.arn, "SUCCEEDED")
    assert machine.execution("first").arn == execution.arn
    assert machine.start().wait(60).output == {}


def test_a_start_is_idempotent_by_name_and_input_while_it_runs(lab: Lab) -> None:
    machine = Machine.create(lab, "waits", WAITS)
    first = machine.start({"a": 1}, name="conv-1")
    assert machine.start({"a": 1}, name="conv-1").arn == first.arn
    with pytest.raises(MachineError, match="waits was not started: ExecutionAlreadyExists"):
        machine.start({"a": 2}, name="conv-1")
    first.stop("Cancelled", "x" * 40_000)
    ended = first.wait(60)
    assert (ended.status, ended.error) == ("ABORTED", "Cancelled")
    assert ended.cause is not None
    assert ended.cause.endswith("(cut)")
    first.stop()


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("x" * 262_143, r"the input of an execution has 262,145 bytes and Step Functions takes 262,144 at most"),
        ({"a": {1, 2}}, "the input of an execution is not what JSON can hold"),
    ],
)
def test_an_input_that_cannot_be_sent_is_refused(value: Any, says: str) -> None:
    with pytest.raises(PayloadError, match=says):
        Machine.start(SimpleNamespace(), value)  # type: ignore[arg-type]


def test_a_wait_that_is_over_says_where_it_stands_and_the_execution_runs_on(lab: Lab) -> None:
    execution = Machine.create(lab, "waits", WAITS).start(name="conv-1")
    execution.until("T", 60)
    with pytest.raises(MachineError, match=r"execution conv-1 has not ended in 0.3 s; it stands in T"):
        execution.wait(0.3)
    with pytest.raises(MachineError, match=r"execution conv-1 is not in state X after 0.2 s; it stands in T"):
        execution.until("X", 0.2)
    assert execution.status == "RUNNING"


def test_until_means_that_the_token_is_out_and_an_end_is_said(lab: Lab) -> None:
    queue = Queue.create(lab, "steps")
    execution = agent(lab, queue).start(question(), name="conv-1")
    history = execution.until("Dispatch", 60)
    assert history.standing == ["Dispatch"]
    [message] = queue.receive()
    token = Envelope.parse(message.body).task_token
    assert token is not None
    assert token.get_secret_value() not in str(history.events)
    Callbacks(lab).fail(token, "Poison", "never")
    execution.wait(60)
    with pytest.raises(MachineError, match=r"has ended \(FAILED\) and is not in state Dispatch: Poison: never"):
        execution.until("Dispatch", 60)
    with pytest.raises(StaleToken):
        Callbacks(lab).heartbeat(token)


def test_pauses_grow_up_to_the_longest_one_and_end_with_the_bound() -> None:
    now, pauses = [0.0], []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    answers = iter([{"status": "RUNNING"}] * 9 + [{"status": "SUCCEEDED", "output": "1"}])
    client = SimpleNamespace(describe_execution=lambda **given: next(answers))
    execution = Execution(client, "arn:aws:states:r:1:execution:m:x")
    assert execution.wait(60, every=0.4, clock=lambda: now[0], sleep=sleep).output == 1
    assert pauses[0] < pauses[1] < pauses[2]
    assert max(pauses) == pauses[-1] == 0.4
    with pytest.raises(MachineError, match="a wait is 0 s or more"):
        execution.wait(-1)
    with pytest.raises(MachineError, match="a wait is 0 s or more"):
        execution.wait(1, every=0)


def test_two_hundred_are_waited_for_without_two_hundred_looks_a_round(lab: Lab) -> None:
    machine = Machine.create(lab, "soon", one({"Type": "Wait", "Seconds": 1}))
    described: list[str] = []
    real = machine.client.describe_execution
    machine.client.describe_execution = lambda **given: described.append("") or real(**given)
    try:
        started = [machine.start({"n": n}) for n in range(200)]
        outcomes = wait_all(started, 60)
    finally:
        machine.client.describe_execution = real
    assert [outcome.output["n"] for outcome in outcomes] == list(range(200))
    assert len(described) < 400  # each once at its end, and a few that ended between list and look


def test_some_that_do_not_end_are_counted_and_one_is_named(lab: Lab) -> None:
    ends, waits = Machine.create(lab, "ends", PASS), Machine.create(lab, "waits", WAITS)
    started = [ends.start(), waits.start(name="stuck")]
    started[0].wait(60)
    started[1].until("T", 60)
    with pytest.raises(
        MachineError, match=r"1 of 2 executions have not ended in 0.5 s \(stuck, for one: it stands in T"
    ):
        wait_all(started, 0.5)
    assert wait_all([], 1) == []
    assert [each.status for each in wait_all([started[0], started[0]], 60)] == ["SUCCEEDED", "SUCCEEDED"]


def test_a_list_that_is_behind_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """ListExecutions does not show it yet; it runs all the same, and its end is waited for."""
    answers = iter([{"status": "RUNNING"}, {"status": "FAILED", "error": "E", "cause": "c"}])
    pages = SimpleNamespace(paginate=lambda **given: [{"executions": []}])
    client = SimpleNamespace(describe_execution=lambda **given: next(answers), get_paginator=lambda name: pages)
    monkeypatch.setattr(executions, "_FIRST", 0.001)
    execution = Execution(client, "arn:aws:states:r:1:execution:m:x")
    assert wait_all([execution], 5) == [Outcome("FAILED", None, "E", "c")]


def test_a_redrive_that_cannot_be_says_why(lab: Lab) -> None:
    execution = Machine.create(lab, "echo", PASS).start()
    execution.wait(60)
    with pytest.raises(MachineError, match="cannot be redriven: ExecutionNotRedrivable") as refused:
        execution.redrive()
    assert refused.value.code == "ExecutionNotRedrivable"


def test_a_redrive_dispatches_the_same_work_with_another_token(lab: Lab) -> None:
    queue = Queue.create(lab, "steps")
    execution = agent(lab, queue, Retries=0).start(question(), name="conv-1")
    execution.until("Dispatch", 60)
    [message] = queue.receive(wait=2)
    first = Envelope.parse(message.body)
    queue.delete(message)
    Callbacks(lab).fail(first.task_token, ValueError("a bug that has been mended since"))
    assert execution.wait(60).error == "ValueError"
    execution.redrive().until("Dispatch", 60)
    [message] = queue.receive(wait=2)
    second = Envelope.parse(message.body)
    assert (second.trace_id, second.payload) == (first.trace_id, first.payload)
    assert second.task_token != first.task_token
    Callbacks(lab).succeed(second.task_token, {"answer": 42})
    assert execution.wait(60).output == {"answer": 42}
    rows = [(row.attempt, row.entered, row.outcome) for row in execution.history().steps()]
    assert rows == [(1, "start", "failed"), (2, "redrive", "succeeded")]


def test_the_research_machine_splits_works_and_gathers(lab: Lab) -> None:
    bucket, s3 = lab.bucket_name("research"), lab.client("s3")
    s3.create_bucket(Bucket=bucket)
    s3.put_object(Bucket=bucket, Key="items.json", Body=json.dumps([{"item": n} for n in range(5)]))
    split = f"def handler(event, context):\n    return {{'bucket': '{bucket}', 'key': 'items.json'}}\n"
    work = "def handler(event, context):\n    return [one['item'] for one in event['Items']]\n"
    gather = "def handler(event, context):\n    return event['ResultWriterDetails']\n"
    arns = {
        f"{name.title()}Function": Function.deploy(lab, name, source=source, timeout=30).arn
        for name, source in (("split", split), ("research", work), ("gather", gather))
    }
    values = {"ResultBucket": bucket, "BatchSize": 2, "Concurrency": 2, "ToleratedPercentage": 0, **arns}
    execution = Machine.create(lab, "research", "research", values=values).start({"question": "why"}, name="q-1")
    manifest = execution.wait(90).output
    assert manifest["Key"].startswith("results/q-1/")
    found = json.loads(s3.get_object(Bucket=bucket, Key=manifest["Key"])["Body"].read())
    [results] = found["ResultFiles"]["SUCCEEDED"]
    done = json.loads(s3.get_object(Bucket=bucket, Key=results["Key"])["Body"].read())
    assert sorted(n for each in done for n in json.loads(each["Output"])) == [0, 1, 2, 3, 4]
    steps = execution.history().steps()
    assert [(step.state, step.attempt, step.outcome) for step in steps] == [
        (name, 1, "succeeded") for name in ("Split", "Research", "Gather")
    ]


def test_refusals_keep_their_code() -> None:
    error = ClientError({"Error": {"Code": "StateMachineLimitExceeded", "Message": "too many"}}, "CreateStateMachine")
    refused = definitions.refused("it was not made", error)
    assert (str(refused), refused.code) == (
        "it was not made: StateMachineLimitExceeded: too many",
        "StateMachineLimitExceeded",
    )


# -- nobody answers ----------------------------------------------------------------------------------------------------


def test_silence_is_a_sentence_too() -> None:
    class Silent:
        def __getattr__(self, name: str) -> Any:
            def call(*_: Any, **__: Any) -> Any:
                raise EndpointConnectionError(endpoint_url="http://127.0.0.1:1/")

            return call

    execution = Execution(Silent(), "arn:aws:states:us-east-1:1:execution:m:e")
    with pytest.raises(MachineError, match="execution e is not to be described: Could not connect"):
        execution.wait(5)
    with pytest.raises(MachineError, match="execution e has no history: Could not connect"):
        execution.history()
    with pytest.raises(MachineError, match="execution e was not stopped: Could not connect"):
        execution.stop()
    with pytest.raises(MachineError, match="was not checked: Could not connect"):
        definitions.check(Silent(), PASS, "STANDARD")
    with pytest.raises(MachineError, match="cannot be described: Could not connect"):
        Machine(Silent(), execution.machine)
