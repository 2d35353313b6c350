"""Distributed Map states, and expressions in JSONata."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .conftest import Aws
from .rows import row
from .states_kit import GUIDE, RECORDED, REFERENCE, States, one

DISTRIBUTED = {"ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"}}
SAME = {**DISTRIBUTED, "StartAt": "I", "States": {"I": {"Type": "Pass", "End": True}}}
# Fails for the items below 3.
SOME = {
    **DISTRIBUTED,
    "StartAt": "I",
    "States": {
        "I": {"Type": "Choice", "Choices": [{"Variable": "$", "NumericLessThan": 3, "Next": "F"}], "Default": "S"},
        "F": {"Type": "Fail", "Error": "Small"},
        "S": {"Type": "Succeed"},
    },
}


def mapped(processor: dict[str, Any], **more: Any) -> dict[str, Any]:
    return one({"Type": "Map", "ItemProcessor": processor, **more})


@pytest.fixture
def states(aws: Aws) -> States:
    return States(aws)


def counts(states: States, run: dict[str, Any]) -> dict[str, Any]:
    [listed] = states.api.list_map_runs(executionArn=run["executionArn"])["mapRuns"]
    return dict(states.api.describe_map_run(mapRunArn=listed["mapRunArn"]))


@row("sfn.map.run", "A distributed Map is a Map run with counts of its items and executions", source=REFERENCE)
def test_run(states: States) -> None:
    run = states.run(mapped(SAME), [1, 2, 3])
    assert json.loads(run["output"]) == [1, 2, 3]
    found = counts(states, run)
    assert found["status"] == "SUCCEEDED"
    assert found["itemCounts"]["succeeded"] == found["executionCounts"]["succeeded"] == 3
    assert found["itemCounts"]["pending"] == found["itemCounts"]["running"] == found["itemCounts"]["failed"] == 0
    assert [kind for kind in states.types(run) if kind.startswith("MapRun")] == ["MapRunStarted", "MapRunSucceeded"]


@row("sfn.map.batches", "ItemBatcher gives each child execution several items", source=f"{GUIDE}: ItemBatcher")
def test_batches(states: States) -> None:
    batcher = {"MaxItemsPerBatch": 2, "BatchInput": {"factor": 3}}
    run = states.run(mapped(SAME, ItemBatcher=batcher), [1, 2, 3])
    assert json.loads(run["output"]) == [
        {"BatchInput": {"factor": 3}, "Items": [1, 2]},
        {"BatchInput": {"factor": 3}, "Items": [3]},
    ]
    found = counts(states, run)
    assert (found["itemCounts"]["total"], found["executionCounts"]["total"]) == (3, 2)


@row(
    "sfn.map.tolerated",
    "A Map run succeeds with as many failures as ToleratedFailureCount allows, and fails with more",
    source=f"{GUIDE}: Tolerated failure threshold",
)
def test_tolerated(states: States) -> None:
    items = list(range(10))
    run = states.run(mapped(SOME, ToleratedFailureCount=3, MaxConcurrency=1), items)
    assert run["status"] == "SUCCEEDED"
    found = counts(states, run)["itemCounts"]
    assert (found["failed"], found["succeeded"]) == (3, 7)
    run = states.run(mapped(SOME, ToleratedFailureCount=2, MaxConcurrency=1), items)
    assert (run["status"], run["error"]) == ("FAILED", "States.ExceedToleratedFailureThreshold")
    assert counts(states, run)["status"] == "FAILED"


@row(
    "sfn.map.percentage",
    "ToleratedFailurePercentage is of all the items",
    source=f"{GUIDE}: Tolerated failure threshold",
)
def test_percentage(states: States) -> None:
    items = list(range(10))
    assert states.run(mapped(SOME, ToleratedFailurePercentage=30), items)["status"] == "SUCCEEDED"
    assert states.run(mapped(SOME, ToleratedFailurePercentage=20), items)["status"] == "FAILED"


@row("sfn.map.either", "A Map run fails beyond either threshold", source=f"{GUIDE}: Tolerated failure threshold")
def test_either(states: States) -> None:
    items = list(range(10))
    for count, percentage, status in ((3, 30, "SUCCEEDED"), (2, 30, "FAILED"), (3, 20, "FAILED")):
        both = {"ToleratedFailureCount": count, "ToleratedFailurePercentage": percentage}
        assert states.run(mapped(SOME, **both), items)["status"] == status


@row("sfn.map.reader", "An ItemReader reads JSON, JSON Lines and CSV from S3", source=f"{GUIDE}: ItemReader")
def test_reader(states: States) -> None:
    s3 = states.aws.client("s3")
    bucket = f"items-{states.aws.account}"
    s3.create_bucket(Bucket=bucket)
    files = {
        "JSON": (b'[{"n":1},{"n":2}]', [{"n": 1}, {"n": 2}]),
        "JSONL": (b'{"n":1}\n{"n":2}\n', [{"n": 1}, {"n": 2}]),
        "CSV": (b"n\n1\n2\n", [{"n": "1"}, {"n": "2"}]),
    }
    for kind, (body, items) in files.items():
        s3.put_object(Bucket=bucket, Key=kind, Body=body)
        config = {"InputType": kind, **({"CSVHeaderLocation": "FIRST_ROW"} if kind == "CSV" else {})}
        reader = {
            "Resource": "arn:aws:states:::s3:getObject",
            "ReaderConfig": config,
            "Parameters": {"Bucket": bucket, "Key": kind},
        }
        assert json.loads(states.run(mapped(SAME, ItemReader=reader))["output"]) == items


@row("sfn.map.writer", "A ResultWriter puts results and a manifest into S3", source=f"{GUIDE}: ResultWriter")
def test_writer(states: States) -> None:
    s3 = states.aws.client("s3")
    bucket = f"results-{states.aws.account}"
    s3.create_bucket(Bucket=bucket)
    parameters = {"Bucket": bucket, "Prefix": "out"}
    writer = {"Resource": "arn:aws:states:::s3:putObject", "Parameters": parameters}
    run = states.run(mapped(SAME, ResultWriter=writer), [1, 2])
    output = json.loads(run["output"])
    where = output["ResultWriterDetails"]
    assert where["Bucket"] == bucket
    manifest = json.loads(s3.get_object(Bucket=bucket, Key=where["Key"])["Body"].read())
    assert manifest["MapRunArn"] == output["MapRunArn"]
    [file] = manifest["ResultFiles"]["SUCCEEDED"]
    results = json.loads(s3.get_object(Bucket=bucket, Key=file["Key"])["Body"].read())
    assert sorted(result["Output"] for result in results) == ["1", "2"]


@row("sfn.jsonata", "JSONata sees the input and the variables", source=f"{RECORDED}/assign, evaluate_jsonata")
def test_jsonata(states: States) -> None:
    definition = {
        "QueryLanguage": "JSONata",
        "StartAt": "A",
        "States": {
            "A": {"Type": "Pass", "Assign": {"said": "{% $states.input.said %}"}, "Next": "B"},
            "B": {"Type": "Pass", "Output": {"all": "{% $said & '!' %}", "sum": "{% $sum([1, 2]) %}"}, "End": True},
        },
    }
    run = states.run(definition, {"said": 'he said "no"'})
    assert json.loads(run["output"]) == {"all": 'he said "no"!', "sum": 3}


@row("sfn.jsonata.functions", "JSONata has $hash, $uuid and $parse", source=f"{GUIDE}: Transforming data with JSONata")
def test_functions(states: States) -> None:
    output = {
        "hash": "{% $hash('a', 'SHA-256') %}",
        "uuid": "{% $length($uuid()) %}",
        "parse": "{% $parse('{\"n\":1}').n %}",
    }
    run = states.run(one({"Type": "Pass", "Output": output}, QueryLanguage="JSONata"))
    digest = "ca978112ca1bbdcafac231b39a23dc4da786eff8147c4e72b9807785afee48bb"
    assert json.loads(run["output"]) == {"hash": digest, "uuid": 36, "parse": 1}


@row(
    "sfn.jsonata.error",
    "An expression that fails is States.QueryEvaluationError, with an event of its own",
    source=f"{RECORDED}/evaluate_jsonata",
)
def test_jsonata_error(states: States) -> None:
    task = {
        "Type": "Task",
        "Resource": "arn:aws:states:::sqs:sendMessage",
        "Arguments": {"QueueUrl": "q", "MessageBody": "{% $unknown(1) %}"},
    }
    failed = states.run(one(task, QueryLanguage="JSONata"))
    assert (failed["status"], failed["error"]) == ("FAILED", "States.QueryEvaluationError")
    assert "EvaluationFailed" in states.types(failed)
    catch = [{"ErrorEquals": ["States.QueryEvaluationError"], "Next": "K"}]
    kept = {"Type": "Pass", "Output": "caught", "End": True}
    both = {"T": {**task, "Catch": catch, "End": True}, "K": kept}
    assert states.run({"QueryLanguage": "JSONata", "StartAt": "T", "States": both})["output"] == '"caught"'
