"""What a Map run leaves: in the output of its state, or in S3 with a manifest.

**On AWS** a ResultWriter exports the executions of a Map run by their status: ``SUCCEEDED_n.json``, ``FAILED_n.json``
(failed, timed out and aborted ones) and ``PENDING_n.json`` (those that did not begin because the run failed or was
aborted), with up to 5 GB in a file, and a manifest that names them. ``WriterConfig`` says what of a successful
execution is exported (``Transformation``: NONE all of it, COMPACT its output, FLATTEN the elements of an output that is
an array) and how (``OutputType``: JSON, JSONL); alone, it forms the output of the state. What is left of an execution
that failed is always all of it. A writer that cannot write fails the run with States.ResultWriterFailed (Step Functions
Developer Guide, "ResultWriter"). ``resultsWritten`` counts results without a ResultWriter too (recorded on AWS).

**MiniStack** writes no results. moto's interpreter writes a manifest without files and does not know WriterConfig.

**Here** they are as documented, also when the run failed or was stopped. Parameters are evaluated before the first
execution begins. Not verified: that; the names of files in JSON Lines (here: .json too); the state's output in JSON
Lines (here: a string); which fields an execution without success has; the texts of the errors.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from . import states_fields
from .states_batches import evaluate_fields
from .states_map_failures import failure, told
from .states_redrive_rules import fields

GROUPS: Mapping[str, frozenset[str]] = {
    "FAILED": frozenset({"FAILED", "TIMED_OUT", "ABORTED"}),
    "PENDING": frozenset({"PENDING"}),
    "SUCCEEDED": frozenset({"SUCCEEDED"}),
}
LARGEST_FILE = 5 * 1024**3  # bytes
WRITER_CONFIG = {"Transformation": ("NONE", "COMPACT", "FLATTEN"), "OutputType": ("JSON", "JSONL")}
Row = dict[str, Any]


def understood(definition: str) -> tuple[str, dict[str, dict[str, Any]]]:
    """The definition as the grammar knows it, and what it does not know of each ResultWriter, by the state's name."""
    if '"ResultWriter"' not in definition:
        return definition, {}
    document, found = json.loads(definition), {}
    for name, state in states_fields.every(document):
        writer = state.get("ResultWriter")
        if state.get("Type") == "Map" and isinstance(writer, dict):
            found[name] = {field: writer.pop(field) for field in ("WriterConfig", "Arguments") if field in writer}
            if "WriterConfig" in found[name]:
                _check(name, found[name]["WriterConfig"])
            if found[name] and "Parameters" not in writer:  # it exports nothing, or what Arguments say
                del state["ResultWriter"]
    return (states_fields.written(document), found) if any(found.values()) else (definition, {})


def _check(name: str, config: Any) -> None:
    known = isinstance(config, dict) and config and WRITER_CONFIG.keys() >= config.keys()
    if not known or any(value not in WRITER_CONFIG[field] for field, value in config.items()):
        told = "; ".join(f"{field}: {', '.join(values)}" for field, values in WRITER_CONFIG.items())
        raise ValueError(f"The WriterConfig of {name} has other fields or values than {told}.")


def row(child: Any, machine_arn: str) -> Row:
    """All that is exported of one child execution."""
    record = child.record
    if record is None:
        given = json.dumps(child.value, default=str)
        return {"Input": given, "StateMachineArn": machine_arn, "Status": "PENDING"}
    found: Row = {
        "ExecutionArn": record["executionArn"],
        "Input": record["input"],
        "InputDetails": {"Included": True},
        "Name": record["name"],
        "StartDate": record["startDate"],
        "StateMachineArn": machine_arn,
        "Status": child.status,
        "StopDate": record["stopDate"],
    }
    for name, value in fields(record).items():
        if value is not None:
            found[name[0].upper() + name[1:]] = value
    if child.status == "SUCCEEDED":
        return found | {"Output": record["output"], "OutputDetails": {"Included": True}}
    return found | {name: record[name.lower()] for name in ("Error", "Cause") if record.get(name.lower()) is not None}


def transformed(rows: Iterable[Row], how: str) -> list[Any]:
    """What is left of these executions, in their order."""
    left: list[Any] = []
    for one in rows:
        if how == "NONE" or one["Status"] != "SUCCEEDED":
            left.append(one)
            continue
        output = json.loads(one["Output"])
        left.extend(output if how == "FLATTEN" and isinstance(output, list) else [output])
    return left


def files(values: Sequence[Any], kind: str = "JSON", largest: int = LARGEST_FILE) -> list[bytes]:
    """The values in order, in files of at most this many bytes; a value alone may be larger."""
    before, between, after = ("", "\n", "\n") if kind == "JSONL" else ("[", ",", "]")
    filled: list[list[str]] = []
    size = 0
    for value in values:
        text = json.dumps(value, separators=(",", ":"))
        more = len(text) + len(between)  # the text is ASCII
        if not filled or size + more > largest:
            filled.append([])
            size = len(before) + len(after) - len(between)
        filled[-1].append(text)
        size += more
    return [f"{before}{between.join(texts)}{after}".encode() for texts in filled]


def manifest(
    bucket: str,
    prefix: str,
    run_arn: str,
    rows: Sequence[Row],
    *,
    redrive: int = 0,
    config: Mapping[str, str] | None = None,
    largest: int = LARGEST_FILE,
) -> dict[str, bytes]:
    """The files of a ResultWriter by key; the last is the manifest, which names the others."""
    start = prefix if not prefix or prefix.endswith("/") else f"{prefix}/"
    folder = f"{start}{run_arn.split(':')[-1]}" + (f"/Redrive-{redrive}" if redrive else "")
    how, kind = (config or {}).get("Transformation", "NONE"), (config or {}).get("OutputType", "JSON")
    written: dict[str, bytes] = {}
    listed: dict[str, list[dict[str, Any]]] = {group: [] for group in GROUPS}
    for group, statuses in GROUPS.items():
        values = transformed([one for one in rows if one["Status"] in statuses], how)
        for number, body in enumerate(files(values, kind, largest)):
            key = f"{folder}/{group}_{number}.json"
            written[key] = body
            listed[group].append({"Key": key, "Size": len(body)})
    content = {"DestinationBucket": bucket, "MapRunArn": run_arn, "ResultFiles": listed}
    return {**written, f"{folder}/manifest.json": json.dumps(content).encode()}


def output(rows: Sequence[Row], config: Mapping[str, str] | None) -> Any:
    """The output of a state whose results are not exported."""
    values = transformed(rows, (config or {}).get("Transformation", "COMPACT"))
    if (config or {}).get("OutputType") == "JSONL":
        return "".join(body.decode() for body in files(values, "JSONL"))
    return values


class Results:
    """Where the results of one attempt at a Map run go."""

    def __init__(self, component: Any, env: Any) -> None:
        self._config = getattr(component, "writer_more", {}).get("WriterConfig")
        self._place = _evaluated(component, env)
        self._env = env
        self._account, self._region = env.aws_execution_details.account, env.aws_execution_details.region

    def of(self, children: Any) -> Any:
        """Write what has to be written, and count it; the state's output."""
        run = children.run
        rows = [row(child, run.map_state_machine_arn) for child in children.children]
        begun = [child for child in children.children if child.record is not None]
        found = output(rows, self._config) if self._place is None else self._written(run, rows)
        for counter, number in (
            (run.execution_counter.results_written, len(begun)),
            (run.item_counter.results_written, sum(child.size for child in begun)),
        ):
            counter.offset(number - counter.get())
        return found

    def unsuccessful(self, children: Any) -> None:
        """The same for a run that is failing or was stopped, whose reason is told and not the writer's."""
        if self._place is not None:
            try:
                self.of(children)
            except Exception:  # noqa: BLE001 - the run has failed already
                return

    def _written(self, run: Any, rows: Sequence[Row]) -> dict[str, Any]:
        from .states_clients import client

        bucket, prefix = self._place or ("", "")
        redrive = getattr(run, "redrive_count", 0)
        written = manifest(bucket, prefix, run.map_run_arn, rows, redrive=redrive, config=self._config)
        s3 = client(self._account, self._region, "s3")
        try:
            for key, body in written.items():
                s3.put_object(Bucket=bucket, Key=key, Body=body)
        except Exception as error:  # noqa: BLE001 - whatever S3 refuses
            raise failure(self._env, "StatesResultWriterFailed", told(error)) from None
        return {"MapRunArn": run.map_run_arn, "ResultWriterDetails": {"Bucket": bucket, "Key": [*written][-1]}}


def _evaluated(component: Any, env: Any) -> tuple[str, str] | None:
    writer, arguments = getattr(component, "writer", None), getattr(component, "writer_more", {}).get("Arguments")
    if arguments is not None:
        found = evaluate_fields(arguments, "JSONata", env)
    elif writer is not None:
        writer.parargs.eval(env=env)
        found = env.stack.pop()
    else:
        return None
    bucket = found.get("Bucket") if isinstance(found, dict) else None
    if not isinstance(bucket, str):
        raise failure(env, "StatesResultWriterFailed", "The ResultWriter must name a Bucket")
    return bucket, str(found.get("Prefix") or "")


def change() -> None:
    from moto.stepfunctions.parser.asl.component.state.exec.state_map.iteration.distributed_iteration_component import (
        DistributedIterationComponent,
    )

    def give(state: Any, found: Any) -> None:
        component = state.iteration_component
        if isinstance(component, DistributedIterationComponent):
            component.writer, state.result_writer = state.result_writer, None  # the run writes, before it has succeeded
            component.writer_more = found or {}

    states_fields.learn(understood, give)


def install() -> None:
    from . import states_engine

    states_engine.on_load(change)
