"""Where the items of distributed Map states come from, and where their results go."""

from __future__ import annotations

import gzip
import json
from typing import Any

import pytest

from .conftest import Aws
from .lambda_kit import until
from .rows import row
from .states_kit import GUIDE, RECORDED, REFERENCE, States, caught, inside, one

READER = f"{GUIDE}: ItemReader"
WRITER = f"{GUIDE}: ResultWriter"
SCENARIOS = f"{RECORDED}/scenarios"
GET, LIST = "arn:aws:states:::s3:getObject", "arn:aws:states:::s3:listObjectsV2"
PUT = "arn:aws:states:::s3:putObject"


def processor(state: dict[str, Any] | None = None, kind: str = "STANDARD") -> dict[str, Any]:
    config = {"ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": kind}}
    return {**config, **inside(state or {"Type": "Pass"})}


FAIL_BELOW_2 = {
    "ProcessorConfig": {"Mode": "DISTRIBUTED", "ExecutionType": "STANDARD"},
    "StartAt": "I",
    "States": {
        "I": {"Type": "Choice", "Choices": [{"Variable": "$", "NumericLessThan": 2, "Next": "F"}], "Default": "S"},
        "F": {"Type": "Fail", "Error": "Small", "Cause": "too small"},
        "S": {"Type": "Succeed"},
    },
}


def mapped(child: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    return {"Type": "Map", "ItemProcessor": child or processor(), **more}


class Data:
    """A bucket, and Map states that read from it and write to it."""

    def __init__(self, states: States) -> None:
        self.states = states
        self.s3 = states.aws.client("s3")
        self.bucket = f"data-{states.aws.account}"
        self.s3.create_bucket(Bucket=self.bucket)

    def put(self, key: str, body: bytes | str) -> None:
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=body)

    def get(self, key: str) -> bytes:
        return bytes(self.s3.get_object(Bucket=self.bucket, Key=key)["Body"].read())

    def there(self, key: str) -> bool:
        return bool(self.s3.list_objects_v2(Bucket=self.bucket, Prefix=key).get("Contents"))

    def reader(self, key: str, kind: str = "JSON", **config: Any) -> dict[str, Any]:
        parameters = {"Bucket": self.bucket, "Key": key}
        return {"Resource": GET, "ReaderConfig": {"InputType": kind, **config}, "Parameters": parameters}

    def items(self, reader: dict[str, Any], value: Any = None) -> Any:
        run = self.states.run(one(mapped(ItemReader=reader)), value)
        assert run["status"] == "SUCCEEDED", (run["error"], run["cause"])
        return json.loads(run["output"])

    def refused(self, reader: dict[str, Any], value: Any = None) -> tuple[str, str]:
        """The error and the cause of a run that cannot read its items, from the event of the Map run."""
        run = self.states.run(one(mapped(ItemReader=reader)), value)
        assert self.states.types(run)[-3:] == ["MapRunFailed", "MapStateFailed", "ExecutionFailed"]
        details = self.states.history(run)[-3]["mapRunFailedEventDetails"]
        assert (run["error"], run["cause"]) == (details["error"], details["cause"])
        return details["error"], details["cause"]

    def writer(self, prefix: str = "out", **config: str) -> dict[str, Any]:
        found: dict[str, Any] = {"Resource": PUT, "Parameters": {"Bucket": self.bucket, "Prefix": prefix}}
        return found | ({"WriterConfig": config} if config else {})

    def manifest(self, run_arn: str, prefix: str = "out") -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.get(f"{prefix}/{run_arn.split(':')[-1]}/manifest.json"))
        assert (found["MapRunArn"], found["DestinationBucket"]) == (run_arn, self.bucket)
        return found

    def results(self, run_arn: str, status: str, prefix: str = "out") -> list[Any]:
        """What all the files of one status have, one after the other."""
        found = []
        for file in self.manifest(run_arn, prefix)["ResultFiles"][status]:
            body = self.get(file["Key"])
            assert len(body) == file["Size"]
            found += json.loads(body)
        return found

    def map_run(self, execution: dict[str, Any]) -> dict[str, Any]:
        [listed] = self.states.api.list_map_runs(executionArn=execution["executionArn"])["mapRuns"]
        return dict(self.states.api.describe_map_run(mapRunArn=listed["mapRunArn"]))


@pytest.fixture
def states(aws: Aws) -> States:
    return States(aws)


@pytest.fixture
def data(states: States) -> Data:
    return Data(states)


@row("sfn.map.reader.list", "An ItemReader lists what S3 has under a prefix", source=f"{READER}; {SCENARIOS}")
def test_list(data: Data) -> None:
    for number in range(3):
        data.put(f"in/{number}.txt", "abc")
    data.put("other.txt", "")
    reader: dict[str, Any] = {"Resource": LIST, "Parameters": {"Bucket": data.bucket, "Prefix": "in/"}}
    found = data.items(reader)
    assert [item["Key"] for item in found] == ["in/0.txt", "in/1.txt", "in/2.txt"]
    assert all(item["Size"] == 3 and isinstance(item["LastModified"], int) and item["Etag"] for item in found)
    assert len(data.items({**reader, "ReaderConfig": {"MaxItems": 2}})) == 2
    assert data.items({**reader, "Parameters": {"Bucket": data.bucket, "Prefix": "none/"}}) == []


@row("sfn.map.reader.flatten", "LOAD_AND_FLATTEN reads what is inside of the objects listed", source=READER)
def test_flatten(data: Data) -> None:
    data.put("in/a.jsonl", '{"n":1}\n{"n":2}\n')
    data.put("in/b.jsonl.gz", gzip.compress(b'{"n":3}\n'))
    reader = {
        "Resource": LIST,
        "ReaderConfig": {"InputType": "JSONL", "Transformation": "LOAD_AND_FLATTEN"},
        "Parameters": {"Bucket": data.bucket, "Prefix": "in/"},
    }
    assert data.items(reader) == [{"n": 1}, {"n": 2}, {"n": 3}]


@row("sfn.map.reader.pointer", "ItemsPointer leads to an array inside of a file", source=READER)
def test_pointer(data: Data) -> None:
    data.put("nested.json", json.dumps({"shop": {"items": [1, 2, 3]}}))
    assert data.items(data.reader("nested.json", ItemsPointer="/shop/items")) == [1, 2, 3]
    error, _ = data.refused(data.reader("nested.json", ItemsPointer="/shop/none"))
    assert error == "States.ItemReaderFailed"


@row(
    "sfn.map.reader.csv",
    "Rows get empty fields for missing ones, and lose further ones",
    source=f"{READER}; {SCENARIOS}",
)
def test_csv(data: Data) -> None:
    data.put("rows.csv", '1|"two, and"\n3|4|5\n6\n')
    reader = data.reader("rows.csv", "CSV", CSVDelimiter="PIPE", CSVHeaderLocation="GIVEN", CSVHeaders=["a", "b"])
    assert data.items(reader) == [{"a": "1", "b": "two, and"}, {"a": "3", "b": "4"}, {"a": "6", "b": ""}]
    data.put("twice.csv", "a,a\n1,2\n")
    refused = data.refused(data.reader("twice.csv", "CSV", CSVHeaderLocation="FIRST_ROW"))
    assert refused == ("States.ItemReaderFailed", "CSV headers cannot contain duplicates.")


@row("sfn.map.reader.most", "MaxItems and MaxItemsPath bound the items; 0 is no bound", source=SCENARIOS)
def test_most(data: Data) -> None:
    data.put("rows.csv", "n\n1\n2\n3\n")
    data.put("array.json", "[1, 2, 3]")
    header = {"CSVHeaderLocation": "FIRST_ROW"}
    assert data.items(data.reader("rows.csv", "CSV", MaxItems=2, **header)) == [{"n": "1"}, {"n": "2"}]
    by_path = data.reader("array.json", MaxItemsPath="$.most")
    assert data.items(by_path, {"most": 1}) == [1]
    assert data.items(by_path, {"most": 0}) == [1, 2, 3]
    assert data.refused(by_path, {"most": -1}) == ("States.ItemReaderFailed", "field MaxItems must be positive")


@row("sfn.map.reader.error", "What cannot be read fails the run with States.ItemReaderFailed", source=SCENARIOS)
def test_reader_error(data: Data) -> None:
    data.put("object.json", '{"a": 1}')
    assert data.refused(data.reader("object.json")) == (
        "States.ItemReaderFailed",
        "Attempting to map over non-iterable node.",
    )
    error, cause = data.refused(data.reader("missing.json"))
    assert error == "States.ItemReaderFailed"
    assert "NoSuchKey" in cause
    assert data.refused(data.reader("object.json", ItemsPointer="/a"))[0] == "States.ItemReaderFailed"
    state = mapped(ItemReader=data.reader("missing.json"))
    assert data.states.run(caught(state, "States.ItemReaderFailed"))["output"] == '"States.ItemReaderFailed"'


@row("sfn.map.reader.arguments", "In JSONata a reader and a writer have Arguments", source=f"{READER}; {WRITER}")
def test_arguments(data: Data) -> None:
    data.put("array.json", "[1, 2]")
    where = {"Bucket": "{% $states.input.bucket %}", "Key": "{% $states.input.key %}"}
    reader = {"Resource": GET, "ReaderConfig": {"InputType": "JSON", "MaxItems": "{% 1 %}"}, "Arguments": where}
    writer = {"Resource": PUT, "Arguments": {"Bucket": "{% $states.input.bucket %}", "Prefix": "{% 'out' & '/x' %}"}}
    definition = one(mapped(ItemReader=reader, ResultWriter=writer), QueryLanguage="JSONata")
    run = data.states.run(definition, {"bucket": data.bucket, "key": "array.json"})
    assert run["status"] == "SUCCEEDED", run["cause"]
    output = json.loads(run["output"])
    assert output["ResultWriterDetails"]["Key"].startswith("out/x/")
    [result] = data.results(output["MapRunArn"], "SUCCEEDED", "out/x")
    assert (result["Input"], result["Output"]) == ("1", "1")


@row("sfn.map.selector", "ItemSelector sees an item's index and value beside the state's input", source=SCENARIOS)
def test_selector(data: Data) -> None:
    data.put("array.json", '["a", "b"]')
    selector = {"at.$": "$$.Map.Item.Index", "item.$": "$$.Map.Item.Value", "of.$": "$.of"}
    state = mapped(ItemReader=data.reader("array.json"), ItemSelector=selector)
    expected = [{"at": 0, "item": "a", "of": 7}, {"at": 1, "item": "b", "of": 7}]
    assert json.loads(data.states.run(one(state), {"of": 7})["output"]) == expected
    item = "$states.context.Map.Item"
    selector = {"at": f"{{% {item}.Index %}}", "item": f"{{% {item}.Value %}}", "of": "{% $states.input.of %}"}
    reader = data.reader("array.json")
    reader["Arguments"] = reader.pop("Parameters")
    definition = one(mapped(ItemReader=reader, ItemSelector=selector), QueryLanguage="JSONata")
    assert json.loads(data.states.run(definition, {"of": 7})["output"]) == expected


@row(
    "sfn.map.batches.bytes",
    "MaxInputBytesPerBatch bounds a batch; BatchInput may be a path",
    source=f"{GUIDE}: ItemBatcher",
)
def test_batches(states: States) -> None:
    items = ["x" * 100] * 5
    batcher = {"MaxInputBytesPerBatchPath": "$.room", "BatchInput": {"who.$": "$.who"}}
    run = states.run(one(mapped(ItemsPath="$.items", ItemBatcher=batcher)), {"items": items, "room": 250, "who": "w"})
    found = json.loads(run["output"])
    assert [len(batch["Items"]) for batch in found] == [2, 2, 1]
    assert all(batch["BatchInput"] == {"who": "w"} for batch in found)
    batcher = {"MaxItemsPerBatch": "{% $states.input.most %}", "BatchInput": {"who": "{% $states.input.who %}"}}
    state = mapped(Items="{% $states.input.items %}", ItemBatcher=batcher)
    run = states.run(one(state, QueryLanguage="JSONata"), {"items": [1, 2, 3], "most": 2, "who": "w"})
    assert [(batch["BatchInput"]["who"], batch["Items"]) for batch in json.loads(run["output"])] == [
        ("w", [1, 2]),
        ("w", [3]),
    ]


@row("sfn.map.paths", "Thresholds and concurrency of a Map run may come from its input", source=SCENARIOS)
def test_paths(data: Data) -> None:
    state = mapped(
        FAIL_BELOW_2,
        ItemsPath="$.items",
        ToleratedFailureCountPath="$.count",
        ToleratedFailurePercentagePath="$.share",
        MaxConcurrencyPath="$.width",
    )
    value = {"items": [0, 1, 2, 3], "count": 2, "share": 50, "width": 3}
    run = data.states.run(one(state), value)
    assert run["status"] == "SUCCEEDED"
    found = data.map_run(run)
    members = ("toleratedFailureCount", "toleratedFailurePercentage", "maxConcurrency")
    assert [found[name] for name in members] == [2, 50.0, 3]
    assert data.states.run(one(state), {**value, "count": 1})["error"] == "States.ExceedToleratedFailureThreshold"
    assert data.states.run(one(state), {**value, "count": "many"})["error"] == "States.Runtime"


@row("sfn.map.express", "Express children are listed with the Map run, and have no history", source=REFERENCE)
def test_express(data: Data) -> None:
    run = data.states.run(one(mapped(processor(kind="EXPRESS"))), [1, 2])
    arn = data.map_run(run)["mapRunArn"]
    children = data.states.api.list_executions(mapRunArn=arn)["executions"]
    assert len(children) == 2
    assert all(":express:" in child["executionArn"] and child["status"] == "SUCCEEDED" for child in children)


@row("sfn.map.writer.files", "A ResultWriter exports executions by their status", source=WRITER)
def test_files(data: Data) -> None:
    state = mapped(FAIL_BELOW_2, ToleratedFailureCount=2, ResultWriter=data.writer())
    run = data.states.run(one(state), [0, 1, 2, 3, 4])
    output = json.loads(run["output"])
    arn = output["MapRunArn"]
    succeeded, failed = data.results(arn, "SUCCEEDED"), data.results(arn, "FAILED")
    assert sorted(result["Output"] for result in succeeded) == ["2", "3", "4"]
    assert sorted((result["Input"], result["Error"], result["Cause"]) for result in failed) == [
        ("0", "Small", "too small"),
        ("1", "Small", "too small"),
    ]
    assert data.manifest(arn)["ResultFiles"]["PENDING"] == []
    [first] = [result for result in succeeded if result["Input"] == "2"]
    assert first.keys() >= {"ExecutionArn", "Name", "StartDate", "StopDate", "StateMachineArn"}
    assert (first["InputDetails"], first["OutputDetails"]) == ({"Included": True}, {"Included": True})
    told = first["Status"], first["RedriveCount"], first["RedriveStatus"], first["RedriveStatusReason"]
    assert told == ("SUCCEEDED", 0, "NOT_REDRIVABLE", "Execution is SUCCEEDED and cannot be redriven")
    child = data.states.api.describe_execution(executionArn=first["ExecutionArn"])
    assert (child["output"], child["name"]) == ("2", first["Name"])
    assert data.map_run(run)["executionCounts"]["resultsWritten"] == 5


@row("sfn.map.writer.none", "Without failures there is no file of them", source=WRITER)
def test_no_failures(data: Data) -> None:
    run = data.states.run(one(mapped(ResultWriter=data.writer())), [1])
    files = data.manifest(json.loads(run["output"])["MapRunArn"])["ResultFiles"]
    assert (files["FAILED"], files["PENDING"], len(files["SUCCEEDED"])) == ([], [], 1)
    assert files["SUCCEEDED"][0]["Key"].endswith("/SUCCEEDED_0.json")


@row("sfn.map.writer.failed", "A failed run exports too: what failed, and what did not begin", source=WRITER)
def test_failed_run(data: Data) -> None:
    state = mapped(FAIL_BELOW_2, MaxConcurrency=1, ResultWriter=data.writer())
    run = data.states.run(one(state), [5, 0, 6, 7])
    assert run["error"] == "States.ExceedToleratedFailureThreshold"
    arn = data.map_run(run)["mapRunArn"]
    found = {
        status: [one["Input"] for one in data.results(arn, status)] for status in ("SUCCEEDED", "FAILED", "PENDING")
    }
    assert found == {"SUCCEEDED": ["5"], "FAILED": ["0"], "PENDING": ["6", "7"]}


@row("sfn.map.writer.aborted", "Children that a failing run aborts are among the failed", source=WRITER)
def test_aborted(data: Data) -> None:
    queue = data.states.queue()
    child = processor(data.states.task(queue))
    arn = data.states.start(data.states.machine(one(mapped(child, ResultWriter=data.writer()))), [1, 2])
    token, _ = data.states.token(queue), data.states.token(queue)
    data.states.api.send_task_failure(taskToken=token, error="E", cause="c")
    run = data.states.ended(arn)
    failed = data.results(data.map_run(run)["mapRunArn"], "FAILED")
    assert sorted(result["Status"] for result in failed) == ["ABORTED", "FAILED"]


def waiting(data: Data, queue: str) -> str:
    """A Map state with a writer, whose children wait for their callbacks."""
    child = processor(data.states.task(queue))
    return data.states.machine(one(mapped(child, MaxConcurrency=1, ResultWriter=data.writer())))


@row("sfn.map.writer.redrive", "A redriven run exports all that succeeded into a folder of its own", source=WRITER)
def test_redriven(data: Data) -> None:
    states, queue = data.states, data.states.queue()
    arn = states.start(waiting(data, queue), [1, 2])
    states.api.send_task_success(taskToken=states.token(queue), output='"kept"')
    states.api.send_task_failure(taskToken=states.token(queue), error="E", cause="c")
    run = data.map_run(states.ended(arn))["mapRunArn"]
    assert (len(data.results(run, "SUCCEEDED")), len(data.results(run, "FAILED"))) == (1, 1)
    states.api.redrive_execution(executionArn=arn)
    states.api.send_task_success(taskToken=states.token(queue), output='"new"')
    where = json.loads(states.ended(arn)["output"])["ResultWriterDetails"]["Key"]
    assert where == f"out/{run.split(':')[-1]}/Redrive-1/manifest.json"
    files = json.loads(data.get(where))["ResultFiles"]
    outputs = [json.loads(one["Output"]) for file in files["SUCCEEDED"] for one in json.loads(data.get(file["Key"]))]
    assert (sorted(outputs), files["FAILED"], files["PENDING"]) == (["kept", "new"], [], [])


@row("sfn.map.writer.stopped", "A run that is stopped exports what it has", source=WRITER)
def test_stopped_run(data: Data) -> None:
    states, queue = data.states, data.states.queue()
    arn = states.start(waiting(data, queue), [1, 2, 3])
    states.api.send_task_success(taskToken=states.token(queue), output='"kept"')
    states.token(queue)
    states.api.stop_execution(executionArn=arn)
    run = data.map_run(states.ended(arn))["mapRunArn"]
    until(lambda: data.there(f"out/{run.split(':')[-1]}/manifest.json"))
    found = {status: len(data.results(run, status)) for status in ("SUCCEEDED", "FAILED", "PENDING")}
    assert found == {"SUCCEEDED": 1, "FAILED": 1, "PENDING": 1}


@row("sfn.map.writer.transformation", "COMPACT exports outputs, FLATTEN their elements, JSONL lines", source=WRITER)
def test_transformation(data: Data) -> None:
    items = [[1, 2], [3], {"a": 4}]
    for how, expected in (("COMPACT", items), ("FLATTEN", [1, 2, 3, {"a": 4}])):
        run = data.states.run(one(mapped(ResultWriter=data.writer(Transformation=how, OutputType="JSON"))), items)
        assert data.results(json.loads(run["output"])["MapRunArn"], "SUCCEEDED") == expected
    run = data.states.run(one(mapped(ResultWriter=data.writer(Transformation="COMPACT", OutputType="JSONL"))), items)
    [file] = data.manifest(json.loads(run["output"])["MapRunArn"])["ResultFiles"]["SUCCEEDED"]
    assert [json.loads(line) for line in data.get(file["Key"]).splitlines()] == items


@row("sfn.map.writer.config", "WriterConfig alone forms the state's output", source=WRITER)
def test_config(states: States) -> None:
    def output(**config: str) -> Any:
        state = mapped(FAIL_BELOW_2, ToleratedFailureCount=1, ResultWriter={"WriterConfig": config})
        return json.loads(states.run(one(state), [2, 1])["output"])

    kept, failed = output(Transformation="NONE")
    assert (kept["Status"], kept["Output"], failed["Status"]) == ("SUCCEEDED", "2", "FAILED")
    flat = {"WriterConfig": {"Transformation": "FLATTEN", "OutputType": "JSON"}}
    assert json.loads(states.run(one(mapped(ResultWriter=flat)), [[1, 2], [3]])["output"]) == [1, 2, 3]
    assert output(Transformation="COMPACT")[0] == 2


@row("sfn.map.tolerated.output", "What failed and is tolerated is in the output with its error", source=WRITER)
def test_tolerated_output(states: States) -> None:
    kept, failed = json.loads(states.run(one(mapped(FAIL_BELOW_2, ToleratedFailureCount=1)), [2, 1])["output"])
    assert kept == 2
    assert (failed["Status"], failed["Error"], failed["Input"]) == ("FAILED", "Small", "1")


@row("sfn.map.writer.error", "A writer that cannot write is States.ResultWriterFailed", source=WRITER)
def test_writer_error(data: Data) -> None:
    writer = {"Resource": PUT, "Parameters": {"Bucket": f"none-{data.states.aws.account}", "Prefix": "p"}}
    state = mapped(ResultWriter=writer)
    run = data.states.run(one(state), [1])
    assert (run["status"], run["error"]) == ("FAILED", "States.ResultWriterFailed")
    assert "NoSuchBucket" in run["cause"]
    assert data.map_run(run)["status"] == "FAILED"
    assert data.states.run(caught(state, "States.ResultWriterFailed"), [1])["output"] == '"States.ResultWriterFailed"'


@row(
    "sfn.map.counts.written",
    "resultsWritten counts results without a ResultWriter too",
    source=f"{RECORDED}/test_sfn_api_map_run",
)
def test_written(data: Data) -> None:
    found = data.map_run(data.states.run(one(mapped()), [1, 2]))
    assert found["itemCounts"]["resultsWritten"] == found["executionCounts"]["resultsWritten"] == 2
