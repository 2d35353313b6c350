"""State machines, versions, aliases and activities: what the API answers and refuses."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import Aws
from .rows import row
from .states_kit import GUIDE, RECORDED, REFERENCE, States, constant, one, refused

API = f"{RECORDED}/test_sfn_api"
PASS = one({"Type": "Pass"})
OTHER = one({"Type": "Succeed"})


@pytest.fixture
def states(aws: Aws) -> States:
    return States(aws)


def made(states: States, name: str = "m", definition: Any = PASS, **more: Any) -> dict[str, Any]:
    answer: dict[str, Any] = states.api.create_state_machine(
        name=name, definition=json.dumps(definition), roleArn=states.role, **more
    )
    return answer


@row("sfn.api.create.idempotent", "Making the same state machine again is no error", source=API)
def test_create(states: States) -> None:
    first = made(states)
    again = made(states)
    assert (first["stateMachineArn"], first["creationDate"]) == (again["stateMachineArn"], again["creationDate"])
    error = ("StateMachineAlreadyExists", f"State Machine Already Exists: '{first['stateMachineArn']}'")
    parameters = {"name": "m", "roleArn": states.role}
    assert refused(states.api.create_state_machine, definition=json.dumps(OTHER), **parameters) == error
    spaced = json.dumps(PASS, indent=1)  # the text counts, not what it means
    assert refused(states.api.create_state_machine, definition=spaced, **parameters) == error


@row("sfn.api.name", "A state machine's name has no white space, brackets or such", source=f"{API}; {REFERENCE}")
def test_name(states: States) -> None:
    create = states.unchecked().create_state_machine
    for name in ("a b", "a:b", "a*", "", "x" * 81):
        code, message = refused(create, name=name, definition=json.dumps(PASS), roleArn=states.role)
        assert (code, message) == ("InvalidName", f"Invalid Name: '{name}'")


@row("sfn.api.arn", "What is no ARN of the kind that is asked for is InvalidArn", source=API)
def test_arn(states: States) -> None:
    error = ("InvalidArn", "Invalid Arn: 'Invalid ARN prefix: no arn'")
    calls: list[tuple[Callable[..., Any], str]] = [
        (states.api.describe_state_machine, "stateMachineArn"),
        (states.api.delete_state_machine, "stateMachineArn"),
        (states.api.list_executions, "stateMachineArn"),
        (states.api.start_execution, "stateMachineArn"),
        (states.api.describe_execution, "executionArn"),
        (states.api.get_execution_history, "executionArn"),
        (states.api.describe_activity, "activityArn"),
        (states.api.get_activity_task, "activityArn"),
    ]
    for call, member in calls:
        assert refused(call, **{member: "no arn"}) == error
    activity = states.aws.arn("states", "activity:a")
    assert refused(states.api.describe_state_machine, stateMachineArn=activity)[0] == "InvalidArn"


@row("sfn.api.describe", "A state machine that does not exist is told by its ARN", source=API)
def test_describe(states: States) -> None:
    arn = states.aws.arn("states", "stateMachine:none")
    error = ("StateMachineDoesNotExist", f"State Machine Does Not Exist: '{arn}'")
    for call in (states.api.describe_state_machine, states.api.list_executions, states.api.list_state_machine_versions):
        assert refused(call, stateMachineArn=arn) == error
    found = states.api.describe_state_machine(stateMachineArn=made(states)["stateMachineArn"])
    assert found["status"] == "ACTIVE"
    assert found["tracingConfiguration"] == {"enabled": False}
    assert found["loggingConfiguration"] == {"level": "OFF", "includeExecutionData": False}


@row("sfn.api.revision", "A revision id comes with the first change, and changes with each", source=API)
def test_revision(states: States) -> None:
    arn = made(states)["stateMachineArn"]

    def revision() -> str | None:
        found: str | None = states.api.describe_state_machine(stateMachineArn=arn).get("revisionId")
        return found

    assert revision() is None
    answer = states.api.update_state_machine(stateMachineArn=arn, definition=json.dumps(OTHER))
    first = revision()
    assert first is not None
    assert answer["revisionId"] == first
    assert states.api.update_state_machine(stateMachineArn=arn, definition=json.dumps(OTHER))["revisionId"] == first
    states.api.update_state_machine(stateMachineArn=arn, roleArn=f"{states.role}2")
    assert revision() not in (None, first)


@row("sfn.api.update.nothing", "An update without a change is MissingRequiredParameter", source=API)
def test_update_nothing(states: States) -> None:
    arn = made(states)["stateMachineArn"]
    code, message = refused(states.api.update_state_machine, stateMachineArn=arn)
    assert code == "MissingRequiredParameter"
    assert message.startswith("Either the definition, the role ARN, the LoggingConfiguration, or the Tracing")


@row("sfn.api.versions", "A revision has one version, whose number is never used again", source=f"{API}_versioning")
def test_versions(states: States) -> None:
    arn = made(states)["stateMachineArn"]
    publish = states.api.publish_state_machine_version
    first = publish(stateMachineArn=arn)["stateMachineVersionArn"]
    assert first == publish(stateMachineArn=arn)["stateMachineVersionArn"] == f"{arn}:1"
    answer = states.api.update_state_machine(stateMachineArn=arn, definition=json.dumps(OTHER), publish=True)
    assert answer["stateMachineVersionArn"] == f"{arn}:2"
    states.api.delete_state_machine_version(stateMachineVersionArn=f"{arn}:2")
    assert publish(stateMachineArn=arn)["stateMachineVersionArn"] == f"{arn}:3"
    listed = states.api.list_state_machine_versions(stateMachineArn=arn)["stateMachineVersions"]
    assert [version["stateMachineVersionArn"] for version in listed] == [f"{arn}:3", f"{arn}:1"]
    assert json.loads(states.api.describe_state_machine(stateMachineArn=first)["definition"]) == PASS


@row("sfn.api.version.conflict", "A version of a revision that is gone is refused", source=f"{API}_versioning")
def test_version_conflict(states: States) -> None:
    arn = made(states)["stateMachineArn"]
    publish = states.api.publish_state_machine_version
    old = states.api.update_state_machine(stateMachineArn=arn, definition=json.dumps(OTHER))["revisionId"]
    new = states.api.update_state_machine(stateMachineArn=arn, definition=json.dumps(PASS))["revisionId"]
    assert refused(publish, stateMachineArn=arn, revisionId=old) == (
        "ConflictException",
        f"Failed to publish the State Machine version for revision {old}. The current State Machine revision is {new}.",
    )
    assert publish(stateMachineArn=arn, revisionId=new)["stateMachineVersionArn"] == f"{arn}:1"


@row("sfn.api.alias", "An alias leads to versions; making the same one again is no error", source=f"{API}_aliasing")
def test_alias(states: States) -> None:
    arn = made(states, definition=one(constant(1)), publish=True)["stateMachineArn"]
    states.api.update_state_machine(stateMachineArn=arn, definition=json.dumps(one(constant(2))))
    routes = [{"stateMachineVersionArn": f"{arn}:1", "weight": 100}]
    create = states.api.create_state_machine_alias
    alias = create(name="live", routingConfiguration=routes)["stateMachineAliasArn"]
    assert create(name="live", routingConfiguration=routes)["stateMachineAliasArn"] == alias == f"{arn}:live"
    run = states.ended(states.start(alias))
    assert (run["output"], run["stateMachineVersionArn"], run["stateMachineAliasArn"]) == ("1", f"{arn}:1", alias)
    listed = states.api.list_executions(stateMachineArn=alias)["executions"]
    assert [item["executionArn"] for item in listed] == [run["executionArn"]]
    used = states.api.describe_state_machine_for_execution(executionArn=run["executionArn"])
    assert json.loads(used["definition"]) == one(constant(1))
    code, message = refused(states.api.delete_state_machine_version, stateMachineVersionArn=f"{arn}:1")
    assert code == "ConflictException"
    assert message.endswith("Current list of aliases referencing this version: [live]")


@row("sfn.api.alias.routes", "An alias has one or two versions whose weights make 100", source=f"{API}_aliasing")
def test_alias_routes(states: States) -> None:
    arn = made(states, publish=True)["stateMachineArn"]
    create = states.api.create_state_machine_alias

    def route(target: str, weight: int) -> dict[str, Any]:
        return {"stateMachineVersionArn": target, "weight": weight}

    for routes, told in (
        ([route(f"{arn}:1", 70)], "Sum of routing configuration weights must equal 100. Received: [70]"),
        ([route(arn, 100)], f"Routing configuration must contain state machine version ARNs. Received: [{arn}]"),
        (
            [route(f"{arn}:1", 50)] * 2,
            f"Routing configuration must contain distinct state machine version ARNs. Received: [{arn}:1, {arn}:1]",
        ),
    ):
        assert refused(create, name="live", routingConfiguration=routes) == ("ValidationException", told)
    code, message = refused(create, name="123", routingConfiguration=[route(f"{arn}:1", 100)])
    assert code == "ValidationException"
    assert "Member must satisfy regular expression pattern" in message


@row("sfn.api.pages", "Lists come in pages; a token that was not given is InvalidToken", source=f"{API}; {REFERENCE}")
def test_pages(states: States) -> None:
    for number in range(5):
        made(states, f"m-{number}")
    pages = list(states.api.get_paginator("list_state_machines").paginate(PaginationConfig={"PageSize": 2}))
    names = [[machine["name"] for machine in page["stateMachines"]] for page in pages]
    assert names == [["m-0", "m-1"], ["m-2", "m-3"], ["m-4"]]
    machine = states.aws.arn("states", "stateMachine:m-0")
    arns = [states.start(machine) for _ in range(3)]
    for arn in arns:
        states.ended(arn)
    paginator = states.api.get_paginator("list_executions").paginate(
        stateMachineArn=machine, PaginationConfig={"PageSize": 2}
    )
    assert sorted(item["executionArn"] for page in paginator for item in page["executions"]) == sorted(arns)
    listing = states.unchecked().list_state_machines
    assert refused(listing, nextToken="nonsense") == ("InvalidToken", "Invalid Token: 'Invalid token'")
    code, message = refused(listing, maxResults=1001)
    assert code == "ValidationException"
    assert "Value '1001' at 'maxResults'" in message


@row("sfn.api.filter", "A statusFilter that is none is a ValidationException", source=API)
def test_filter(states: States) -> None:
    arn = made(states)["stateMachineArn"]
    code, message = refused(states.api.list_executions, stateMachineArn=arn, statusFilter="succeeded")
    assert code == "ValidationException"
    values = "[SUCCEEDED, TIMED_OUT, PENDING_REDRIVE, ABORTED, FAILED, RUNNING]"
    assert message.endswith(f"Member must satisfy enum value set: {values}")


@row(
    "sfn.api.activity", "Making an activity again or removing one that is gone is no error", source=f"{API}_activities"
)
def test_activity(states: States) -> None:
    first = states.api.create_activity(name="a")
    again = states.api.create_activity(name="a")
    arn = first["activityArn"]
    assert (again["activityArn"], again["creationDate"]) == (arn, first["creationDate"])
    for _ in range(2):
        states.api.delete_activity(activityArn=arn)
    error = ("ActivityDoesNotExist", f"Activity Does Not Exist: '{arn}'")
    assert refused(states.api.describe_activity, activityArn=arn) == error
    assert refused(states.api.get_activity_task, activityArn=arn) == error
    assert refused(states.unchecked().create_activity, name="a b") == ("InvalidName", "Invalid Name: 'a b'")


@row("sfn.api.activity.task", "GetActivityTask waits for a task, whose state goes on with its result", source=REFERENCE)
def test_activity_task(states: States) -> None:
    arn = states.api.create_activity(name="a")["activityArn"]
    run = states.start(states.machine(one({"Type": "Task", "Resource": arn})), {"n": 1})
    task = states.api.get_activity_task(activityArn=arn, workerName="w")
    assert json.loads(task["input"]) == {"n": 1}
    states.api.send_task_success(taskToken=task["taskToken"], output="2")
    assert states.ended(run)["output"] == "2"
    started = next(event for event in states.history(run) if event["type"] == "ActivityStarted")
    assert started["activityStartedEventDetails"] == {"workerName": "w"}


@row("sfn.api.activity.gone", "A state of an activity that is gone is States.Runtime", source=f"{RECORDED}/activities")
def test_activity_gone(states: States) -> None:
    arn = states.api.create_activity(name="a")["activityArn"]
    machine = states.machine(one({"Type": "Task", "Resource": arn}))
    states.api.delete_activity(activityArn=arn)
    run = states.ended(states.start(machine))
    text = "An error occurred while executing the state 'T' (entered at the event id #2). "
    text += f"The activity {arn} does not exist."
    assert (run["status"], run["error"], run["cause"]) == ("FAILED", "States.Runtime", text)


@row("sfn.api.tags", "A version of a state machine has no tags", source=f"{API}_tagging")
def test_tags(states: States) -> None:
    arn = made(states, publish=True)["stateMachineVersionArn"]
    error = ("ResourceNotFound", f"Resource not found: '{arn}'")
    assert refused(states.api.tag_resource, resourceArn=arn, tags=[{"key": "a", "value": "b"}]) == error


@row(
    "sfn.api.variables", "A description says which states refer to which variables", source=f"{API}_variable_references"
)
def test_variables(states: States) -> None:
    definition = {
        "StartAt": "A",
        "QueryLanguage": "JSONata",
        "States": {
            "A": {"Type": "Pass", "Assign": {"x": 1}, "Next": "B"},
            "B": {"Type": "Pass", "Output": "{% $x %}", "End": True},
        },
    }
    found = states.api.describe_state_machine(stateMachineArn=states.machine(definition))
    assert found["variableReferences"] == {"B": ["x"]}
    assert "variableReferences" not in states.api.describe_state_machine(stateMachineArn=states.machine(PASS))


@row(
    "sfn.events.failed",
    "Entries that EventBridge refuses fail a task with EventBridge.FailedEntry and the answer as its cause",
    source=f"{RECORDED}/services/test_events_task_service",
)
def test_failed_entry(states: States) -> None:
    entries = [{"Source": "s", "DetailType": "t", "Detail": "no JSON"}]
    task = {"Type": "Task", "Resource": "arn:aws:states:::events:putEvents", "Parameters": {"Entries": entries}}
    run = states.run(one(task))
    assert (run["status"], run["error"]) == ("FAILED", "EventBridge.FailedEntry")
    cause = json.loads(run["cause"])
    assert cause["FailedEntryCount"] == 1
    assert cause["Entries"][0]["ErrorCode"] == "MalformedDetail"


@row("sfn.map.batch.paths", "ItemBatcher takes its limits and its input from the state's input", source=REFERENCE)
def test_batch_paths(states: States) -> None:
    processor = {"ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}, **one({"Type": "Pass"})}
    processor = json.loads(json.dumps(processor).replace('"T"', '"P"'))
    batcher = {"MaxItemsPerBatchPath": "$.most", "BatchInput": {"day.$": "$.day"}}
    state = {"Type": "Map", "ItemsPath": "$.items", "ItemBatcher": batcher, "ItemProcessor": processor}
    run = states.run(one(state), {"most": 2, "day": "Monday", "items": [1, 2, 3]})
    assert json.loads(run["output"]) == [
        {"BatchInput": {"day": "Monday"}, "Items": [1, 2]},
        {"BatchInput": {"day": "Monday"}, "Items": [3]},
    ]


@row("sfn.map.many", "An inline Map state goes over thousands of items", source=REFERENCE)
def test_many(states: States) -> None:
    inner = {"StartAt": "P", "States": {"P": constant(0)}}
    state = {
        "Type": "Map",
        "MaxConcurrency": 1,
        "ItemProcessor": inner,
        "ResultSelector": {"n.$": "States.ArrayLength($)"},
    }
    arn = states.start(states.machine(one(state)), list(range(1200)))
    assert states.ended(arn)["output"] == '{"n":1200}'


@row(
    "sfn.history.most",
    "A history has 25,000 events at most; an execution that needs more of them fails",
    source=f"{GUIDE}: Avoid reaching the history quota",
)
def test_most_events(states: States) -> None:
    rule = {"Variable": "$.stop", "BooleanEquals": True, "Next": "C"}
    definition = {
        "StartAt": "A",
        "States": {
            "A": {"Type": "Pass", "Next": "B"},
            "B": {"Type": "Choice", "Choices": [rule], "Default": "A"},
            "C": {"Type": "Succeed"},
        },
    }
    run = states.ended(states.start(states.machine(definition), {"stop": False}), within=100)
    text = "The execution reached the maximum number of history events (25000)."
    assert (run["status"], run["error"], run["cause"]) == ("FAILED", "States.Runtime", text)
    [last] = states.api.get_execution_history(executionArn=run["executionArn"], reverseOrder=True, maxResults=1)[
        "events"
    ]
    assert (last["id"], last["type"]) == (25_000, "ExecutionFailed")


@row("sfn.choice.none", "A Choice without a match and a Default ends the execution with States.Runtime", source=GUIDE)
def test_no_choice(states: States) -> None:
    rule = {"Variable": "$.n", "NumericEquals": 1, "Next": "B"}
    definition = {"StartAt": "A", "States": {"A": {"Type": "Choice", "Choices": [rule]}, "B": {"Type": "Succeed"}}}
    run = states.run(definition, {"n": 2})
    text = "An error occurred while executing the state 'A' (entered at the event id #2). "
    text += "Failed to transition out of the state. The state does not point to a next state."
    assert (run["status"], run["error"], run["cause"]) == ("FAILED", "States.Runtime", text)


@row("sfn.api.map_run.update", "A Map run can be changed while it runs, and not afterwards", source=REFERENCE)
def test_update_map_run(states: States) -> None:
    queue = states.queue()
    processor = {"ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}, "StartAt": "P"}
    processor["States"] = {"P": {**states.task(queue), "End": True}}
    arn = states.start(states.machine(one({"Type": "Map", "ItemProcessor": processor})), [1, 2])
    tokens = [states.token(queue) for _ in range(2)]
    [listed] = states.api.list_map_runs(executionArn=arn)["mapRuns"]
    run = listed["mapRunArn"]
    states.api.update_map_run(mapRunArn=run, toleratedFailureCount=1)
    assert states.api.describe_map_run(mapRunArn=run)["toleratedFailureCount"] == 1
    states.api.send_task_failure(taskToken=tokens[0], error="E")
    states.api.send_task_success(taskToken=tokens[1], output="1")
    assert states.ended(arn)["status"] == "SUCCEEDED"
    assert refused(states.api.update_map_run, mapRunArn=run, maxConcurrency=1)[0] == "ValidationException"
    unknown = run.rpartition(":")[0] + ":none"
    assert refused(states.api.update_map_run, mapRunArn=unknown, maxConcurrency=1)[0] == "ResourceNotFound"
