"""EventBridge Pipes with a queue as the source: the calls, the filter, the enrichment, the templates, the targets."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from .conftest import Aws
from .lambda_kit import function, until
from .pipes_kit import GUIDE, RECORDED, Pipe, batches, filters, piped, template
from .rows import ours, row
from .sqs_helpers import counts, queue, refused
from .states_kit import States, constant

BATCHING = f"{GUIDE}, Amazon EventBridge Pipes batching and concurrency"
ERRORS = f"{GUIDE}, Amazon EventBridge Pipes error handling and troubleshooting"
TEMPLATES = f"{GUIDE}, Amazon EventBridge Pipes input transformation"


@row(
    "pipes.life",
    "A pipe is CREATING, RUNNING, STOPPING, STOPPED, STARTING, UPDATING, DELETING in its turn, then it is gone.",
    source=f"{RECORDED}: CreatePipe, StopPipe, StartPipe, UpdatePipe, DeletePipe, DescribePipe",
)
def test_the_life_of_a_pipe(aws: Aws) -> None:
    pipe = Pipe(aws)
    name = {"Name": pipe.name}
    assert pipe.create(wait=False)["CurrentState"] == "CREATING"
    assert pipe.settled() == "RUNNING"
    with refused("ConflictException", f"Pipe {pipe.name} already exists.", 409):
        pipe.create()
    assert pipe.api.stop_pipe(**name)["CurrentState"] == "STOPPING"
    assert pipe.settled() == "STOPPED"
    pipe.send("waits")
    assert pipe.api.start_pipe(**name)["CurrentState"] == "STARTING"
    assert pipe.settled() == "RUNNING"
    assert json.loads(pipe.arrived(1)[0])["body"] == "waits"
    changes = {"RoleArn": pipe.role, "TargetParameters": template('{"new": <$.body>}')}
    assert pipe.api.update_pipe(**name, **changes)["CurrentState"] == "UPDATING"
    assert pipe.settled() == "RUNNING"
    assert pipe.shown()["Source"] == pipe.arn
    pipe.send("again")
    assert json.loads(pipe.arrived(2)[1]) == {"new": "again"}
    assert pipe.api.delete_pipe(**name)["CurrentState"] == "DELETING"

    def gone() -> bool:
        try:
            pipe.shown()
        except pipe.api.exceptions.NotFoundException as error:
            return str(error.response["Error"]["Message"]) == f"Pipe {pipe.name} does not exist."
        return False

    until(gone, within=120)


@row(
    "pipes.batch.target",
    "A batch that is larger than the target's is refused, and the error names the field: 10 for a queue.",
    source=f"{BATCHING}; {RECORDED}: CreatePipe with an enrichment that takes no batch",
)
def test_the_batch_of_the_target(aws: Aws) -> None:
    pipe = Pipe(aws)
    with pytest.raises(pipe.api.exceptions.ValidationException) as caught:
        pipe.create(SourceParameters=batches(11, 1))
    assert [field["name"] for field in caught.value.response["fieldList"]] == ["BatchSize"]


@row(
    "pipes.create_failed",
    "A pipe whose source does not exist ends in CREATE_FAILED, and its StateReason says why.",
    source=f"{ERRORS}, Pipe failure states; AWS's answer quoted in public error reports",
)
def test_a_pipe_without_a_queue(aws: Aws) -> None:
    pipe = Pipe(aws)
    pipe.create(Source=aws.arn("sqs", "nowhere"))
    assert pipe.settled() == "CREATE_FAILED"
    assert "does not exist" in pipe.shown()["StateReason"]


@row(
    "pipes.filter",
    "What the filter criteria do not take is deleted from the source, unseen.",
    source=f"{GUIDE}, Event filtering in Amazon EventBridge Pipes",
)
def test_the_filter(aws: Aws) -> None:
    pipe = piped(aws, SourceParameters=filters({"body": {"keep": [True]}}), max_receives=1)
    pipe.send(json.dumps({"keep": False}), "plain", json.dumps({"keep": True, "n": 1}))
    assert json.loads(json.loads(pipe.arrived(1)[0])["body"]) == {"keep": True, "n": 1}
    pipe.drained()
    assert counts(pipe.sqs, pipe.dead) == (0, 0, 0)


@row(
    "pipes.template",
    "A template looks into a JSON body; texts get quotes, objects stay objects, a path to nowhere is empty.",
    source=f"{TEMPLATES}; {RECORDED}: the message that a pipe delivered",
)
def test_the_template(aws: Aws) -> None:
    text = '{"m":<$.body.marker>,"v":<$.body.value>,"o":<$.body.o>,"i":<$.body.l[1]>,"s":"<$.body.marker>-x","p":'
    pipe = piped(aws, TargetParameters=template(f"{text}<aws.pipes.pipe-name>}}"))
    pipe.send(json.dumps({"marker": "a", "value": 7, "o": {"k": 1}, "l": [1, 2]}))
    wanted = {"m": "a", "v": 7, "o": {"k": 1}, "i": 2, "s": "a-x", "p": pipe.name}
    assert json.loads(pipe.arrived(1)[0]) == wanted


@row(
    "pipes.template.bare",
    'The lone <$.body> of a JSON body loses its quotes; {"body": <$.body>} keeps them.',
    source=f"{TEMPLATES}, Implicit body data parsing",
)
def test_a_bare_path(aws: Aws) -> None:
    pipe = piped(aws, TargetParameters=template("<$.body>"))
    pipe.send('{"key": "value"}')
    assert pipe.arrived(1)[0].strip('"').replace(" ", "") == "{key:value}"


ENRICH = """
    def handler(event, context):
        assert isinstance(event, list)
        if any(record["body"] == "boom" for record in event):
            raise RuntimeError("boom")
        return [dict(record, more=len(event)) for record in event if record["body"] != "skip"]
"""


@row(
    "pipes.enrichment",
    "The enrichment gets the batch as an array, and its answer goes on; an empty one goes nowhere and is done.",
    source=f"{GUIDE}, Event enrichment in Amazon EventBridge Pipes",
)
def test_the_enrichment(aws: Aws) -> None:
    arn = function(aws, "enrich", ENRICH)
    pipe = piped(aws, Enrichment=arn, SourceParameters=batches(1))
    pipe.send("skip", "one")
    found = json.loads(pipe.arrived(1)[0])
    assert (found["body"], found["more"]) == ("one", 1)
    pipe.drained()


@row(
    "pipes.enrichment.failure",
    "A batch whose enrichment fails comes back, and goes to the source queue's own dead-letter queue at last.",
    source=f"{ERRORS}, Customer invocation errors, Pipe DLQ behavior",
)
def test_an_enrichment_that_raises(aws: Aws) -> None:
    arn = function(aws, "enrich", ENRICH)
    pipe = piped(aws, Enrichment=arn, SourceParameters=batches(1), visibility=6, max_receives=2)
    pipe.send("boom", "one")
    assert pipe.dead_letters(1) == ["boom"]
    assert [json.loads(body)["body"] for body in pipe.arrived(1)] == ["one"]


TARGET = """
    def handler(event, context):
        assert isinstance(event, list)
        return {"batchItemFailures": [{"itemIdentifier": r["messageId"]} for r in event if r["body"] == "bad"]}
"""


@row(
    "pipes.target.lambda.partial",
    "A function as the target names the messages that failed; only those come back.",
    source=f"{BATCHING}, Partial batch failure",
)
def test_a_function_that_reports(aws: Aws) -> None:
    arn = function(aws, "target", TARGET)
    pipe = Pipe(aws, visibility=6, max_receives=2)
    pipe.send("good", "bad", "fine")
    pipe.create(Target=arn)
    assert pipe.dead_letters(1) == ["bad"]
    pipe.drained()
    assert counts(pipe.sqs, pipe.dead)[1] == 1


@row(
    "pipes.target.states",
    "A Standard state machine is started with the batch as a JSON array, also for one message.",
    source=f"{BATCHING}; {GUIDE}, Amazon EventBridge Pipes targets",
)
def test_a_state_machine(aws: Aws) -> None:
    states = States(aws)
    machine = states.machine({"StartAt": "T", "States": {"T": constant({})}})
    fire = {"StepFunctionStateMachineParameters": {"InvocationType": "FIRE_AND_FORGET"}}
    pipe = piped(aws, Target=machine, TargetParameters=fire | template('{"n": <$.body.n>}'))
    pipe.send(json.dumps({"n": 3}))
    started = until(lambda: states.api.list_executions(stateMachineArn=machine)["executions"])
    assert json.loads(states.ended(started[0]["executionArn"])["input"]) == [{"n": 3}]
    pipe.drained()


@row(
    "pipes.target.states.sync",
    "A Standard state machine cannot be called synchronously: the pipe stops itself and says so; nothing is lost.",
    source=f"{ERRORS}, Pipe failure states",
)
def test_a_standard_machine_called_synchronously(aws: Aws) -> None:
    machine = States(aws).machine({"StartAt": "T", "States": {"T": constant({})}})
    pipe = piped(aws, Target=machine)
    pipe.send("one")
    shown = until(lambda: found if (found := pipe.shown())["CurrentState"] == "STOPPED" else None)
    assert "Standard" in shown["StateReason"]
    assert sum(counts(pipe.sqs, pipe.url)) == 1


@row(
    "pipes.target.bus",
    "Events on a bus have the detail type and the source that the pipe says, by paths as well.",
    source=f"{GUIDE}, Amazon EventBridge Pipes targets, Dynamic path parameters",
)
def test_a_bus(aws: Aws) -> None:
    events = aws.client("events")
    bus = events.create_event_bus(Name="bus")["EventBusArn"]
    rule = events.put_rule(Name="all", EventBusName="bus", EventPattern=json.dumps({"source": ["fleet"]}))["RuleArn"]
    pipe = Pipe(aws)
    statement = {"Effect": "Allow", "Principal": {"Service": "events.amazonaws.com"}, "Action": "sqs:SendMessage"}
    statement |= {"Resource": pipe.out_arn, "Condition": {"ArnEquals": {"aws:SourceArn": rule}}}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    pipe.sqs.set_queue_attributes(QueueUrl=pipe.out, Attributes={"Policy": policy})
    events.put_targets(Rule="all", EventBusName="bus", Targets=[{"Id": "1", "Arn": pipe.out_arn}])
    bus_parameters = {"DetailType": "$.body.kind", "Source": "fleet"}
    pipe.create(
        Target=bus,
        TargetParameters={"EventBridgeEventBusParameters": bus_parameters, "InputTemplate": '{"n": <$.body.n>}'},
    )
    pipe.send(json.dumps({"kind": "step", "n": 1}))
    event = json.loads(pipe.arrived(1)[0])
    assert (event["detail-type"], event["source"], event["detail"]) == ("step", "fleet", {"n": 1})


@row(
    "pipes.target.fifo",
    "A FIFO source keeps the order of each group, and a FIFO target takes group and deduplication id by path.",
    source=f"{GUIDE}, Amazon Simple Queue Service as a source; Dynamic path parameters",
)
def test_fifo_to_fifo(aws: Aws) -> None:
    ids = {"MessageGroupId": "$.attributes.MessageGroupId", "MessageDeduplicationId": "$.messageId"}
    parameters: dict[str, Any] = {"SqsQueueParameters": ids, "InputTemplate": '{"n": <$.body>}'}
    pipe = piped(aws, fifo=True, target="target.fifo", TargetParameters=parameters)
    pipe.send(*map(str, range(12)), group="a")
    bodies: list[int] = []

    def look() -> bool:
        answer = pipe.sqs.receive_message(QueueUrl=pipe.out, MaxNumberOfMessages=10)
        for message in answer.get("Messages", []):
            bodies.append(json.loads(message["Body"])["n"])
            pipe.sqs.delete_message(QueueUrl=pipe.out, ReceiptHandle=message["ReceiptHandle"])
        return len(bodies) >= 12

    until(look)
    assert bodies == list(range(12))


@row(
    "pipes.window.visibility",
    "With a batching window the poller hides messages for 7.5 minutes and more, whatever the queue's timeout is.",
    source=f"{ERRORS}, Amazon SQS source retry timing with maxBatchWindowInSeconds",
)
def test_the_visibility_with_a_window(aws: Aws) -> None:
    arn = function(aws, "target", "def handler(event, context): raise RuntimeError(len(event))")
    pipe = Pipe(aws, visibility=1, max_receives=1)
    pipe.send("one")
    pipe.create(Target=arn, SourceParameters=batches(10, 1))
    until(lambda: counts(pipe.sqs, pipe.url) == (0, 1, 0))
    with pytest.raises(AssertionError):
        pipe.dead_letters(1, within=4)
    assert counts(pipe.sqs, pipe.url) == (0, 1, 0)


@row(
    "pipes.target.killed",
    "Messages survive a target that is gone for a while: they come back, and arrive when it is there again.",
    source=f"{ERRORS}, Customer invocation errors",
)
def test_the_target_is_killed_in_the_middle(aws: Aws) -> None:
    pipe = piped(aws, visibility=4)
    numbers = [f"n{number}" for number in range(100)]

    def have(wanted: list[str]) -> bool:  # some of them twice, perhaps: what was not deleted in time comes again
        return {json.loads(body)["body"] for body in pipe.arrived(0)} == set(wanted)

    pipe.send(*numbers[:50])
    until(lambda: have(numbers[:50]))
    pipe.sqs.delete_queue(QueueUrl=pipe.out)
    pipe.send(*numbers[50:])
    until(lambda: counts(pipe.sqs, pipe.url)[1] > 0)
    pipe.out = queue(pipe.sqs, "target")
    until(lambda: have(numbers))
    pipe.drained()


@row(
    "pipes.many",
    "Five hundred messages go through an enrichment and a template: none is lost.",
    source=f"{GUIDE}, Amazon Simple Queue Service as a source",
)
def test_five_hundred_messages(aws: Aws) -> None:
    arn = function(aws, "enrich", ENRICH)
    pipe = piped(aws, Enrichment=arn, TargetParameters=template('{"n": <$.body>}'), visibility=120)
    pipe.send(*(f"n{number}" for number in range(500)))
    pipe.arrived(500, within=90)
    pipe.drained()
    assert Counter(json.loads(body)["n"] for body in pipe.bodies) == Counter(f"n{number}" for number in range(500))


@row(
    "pipes.target.bus.partial",
    "Of the events that a bus refuses, only those come back; the others are on the bus and gone from the queue.",
    source=f"{BATCHING}, Partial batch failure",
)
def test_a_bus_that_refuses_some(aws: Aws) -> None:
    bus = aws.client("events").create_event_bus(Name="bus")["EventBusArn"]
    pipe = Pipe(aws, visibility=5, max_receives=1)
    pipe.send('{"source": "mine"}', '{"source": "aws.mine"}')
    parameters = {"EventBridgeEventBusParameters": {"Source": "$.body.source"}}
    pipe.create(Target=bus, TargetParameters=parameters)
    assert pipe.dead_letters(1) == ['{"source": "aws.mine"}']
    pipe.drained()
    assert counts(pipe.sqs, pipe.dead)[:2] == (0, 1)


@row(
    "pipes.enrichment.express",
    "An Express state machine enriches as well: the batch is its input, its output goes on.",
    source=f"{GUIDE}, Event enrichment in Amazon EventBridge Pipes",
)
def test_an_express_machine_enriches(aws: Aws) -> None:
    machine = States(aws).machine({"StartAt": "T", "States": {"T": {"Type": "Pass", "End": True}}}, "EXPRESS")
    pipe = piped(aws, Enrichment=machine, EnrichmentParameters=template('{"n": <$.body.n>}'))
    pipe.send(json.dumps({"n": 4}))
    assert json.loads(pipe.arrived(1)[0]) == {"n": 4}


@row(
    "pipes.target.lambda.async",
    "With FIRE_AND_FORGET a function that raises costs the pipe nothing: the message is gone from the source.",
    source=f"{GUIDE}, Amazon EventBridge Pipes concepts, Invocation types; {ERRORS}",
)
def test_fire_and_forget(aws: Aws) -> None:
    arn = function(aws, "target", "def handler(event, context): raise RuntimeError(len(event))")
    how = {"LambdaFunctionParameters": {"InvocationType": "FIRE_AND_FORGET"}}
    pipe = piped(aws, Target=arn, TargetParameters=how, max_receives=1)
    pipe.send("one")
    pipe.drained()
    assert counts(pipe.sqs, pipe.dead) == (0, 0, 0)


@row(
    "pipes.metrics",
    "Executions are counted in AWS/EventBridge/Pipes by PipeName: Invocations, EventCount, ExecutionFailed …",
    source=f"{GUIDE}, Monitoring Amazon EventBridge Pipes; {RECORDED}: the sums of one execution",
)
def test_the_metrics(aws: Aws) -> None:
    pipe = piped(aws)
    pipe.send("one")
    pipe.arrived(1)
    pipe.drained()
    now = datetime.now(UTC)
    wanted = {"Invocations": 1.0, "EventCount": 1.0, "ExecutionFailed": 0.0}

    def sums() -> dict[str, float]:
        found = {}
        for name in wanted:
            answer = aws.client("cloudwatch").get_metric_statistics(
                Namespace="AWS/EventBridge/Pipes",
                MetricName=name,
                Dimensions=[{"Name": "PipeName", "Value": pipe.name}],
                StartTime=now - timedelta(minutes=5),
                EndTime=now + timedelta(minutes=5),
                Period=60,
                Statistics=["Sum"],
            )
            if answer["Datapoints"]:
                found[name] = sum(point["Sum"] for point in answer["Datapoints"])
        return found

    until(lambda: sums() == wanted, within=200)


@ours("how AWS shows a pipe whose source was deleted is not documented")
def test_the_queue_is_removed_underneath(aws: Aws) -> None:
    pipe = piped(aws)
    pipe.sqs.delete_queue(QueueUrl=pipe.url)
    shown = until(lambda: found if (found := pipe.shown())["CurrentState"] == "STOPPED" else None)
    assert pipe.arn in shown["StateReason"]
    pipe.api.start_pipe(Name=pipe.name)
    assert pipe.settled() == "START_FAILED"
    pipe.url = queue(pipe.sqs, "source")
    pipe.api.start_pipe(Name=pipe.name)
    assert pipe.settled() == "RUNNING"
    pipe.send("one")
    assert json.loads(pipe.arrived(1)[0])["body"] == "one"
