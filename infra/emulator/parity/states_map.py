"""Distributed Map runs: their child executions, their counts, the failures that they tolerate, their results in S3.

**On AWS** each item or batch is an execution of its own, with its own history. The run fails with
States.ExceedToleratedFailureThreshold when more items fail than ToleratedFailureCount or ToleratedFailurePercentage
allows, whichever is exceeded; within that, it succeeds. A ResultWriter puts the results into S3 and a manifest
beside them, and the state's output says where (Step Functions Developer Guide, "Tolerated failure threshold for
Distributed Map state", "ResultWriter").

**MiniStack** runs distributed Map states like inline ones. moto's interpreter starts a thread for each item, fails the
run with the first failure, and writes no results.

**Here** a run has at most :data:`WORKERS` threads. Not done: the history and the description of a child execution by
its ARN, UpdateMapRun, results in several files. A threshold of 0 counts as none. Not verified:
the cause of an exceeded threshold; what a failed item leaves in the output of a run that tolerates it (here: null).
"""

from __future__ import annotations

import copy
import json
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .states_batches import jobs

WORKERS = 40  # threads of one run, whatever MaxConcurrency allows
TOO_MANY = "The specified tolerated failure threshold was exceeded"
FILES = ("FAILED", "PENDING", "SUCCEEDED")


def exceeds(failed: int, total: int, count: float | None, percentage: float | None) -> bool:
    """Whether more items failed than the run tolerates: with both thresholds either is enough, with none one item."""
    over_count, over_share = failed > (count or 0), failed * 100 > (percentage or 0) * total
    if count and percentage:
        return over_count or over_share
    return over_share if percentage else over_count


def manifest(bucket: str, prefix: str, run_arn: str, children: list[dict[str, Any]]) -> dict[str, bytes]:
    """The files of a ResultWriter by key; the last is the manifest, which names the others."""
    start = prefix if not prefix or prefix.endswith("/") else f"{prefix}/"
    folder = f"{start}{run_arn.split(':')[-1]}"
    files: dict[str, bytes] = {}
    listed: dict[str, list[dict[str, Any]]] = {status: [] for status in FILES}
    for status in FILES:
        rows = [child for child in children if child["Status"] == status]
        if rows:
            key = f"{folder}/{status}_0.json"
            files[key] = json.dumps(rows).encode()
            listed[status].append({"Key": key, "Size": len(files[key])})
    content = {"DestinationBucket": bucket, "MapRunArn": run_arn, "ResultFiles": listed}
    return {**files, f"{folder}/manifest.json": json.dumps(content).encode()}


class MapRun:
    """One run of a distributed Map state."""

    def __init__(self, env: Any, program: Any, record: Any, inputs: list[tuple[Any, int]], total: int) -> None:
        self._env, self._program, self._record, self._inputs = env, program, record, inputs
        self._total = total
        self._lock = threading.Lock()
        self.exceeded = threading.Event()
        self.children: list[dict[str, Any] | None] = [None] * len(inputs)
        self.outputs: list[Any] = [None] * len(inputs)
        record.item_counter.total.count(total)
        record.item_counter.pending.count(total)
        record.execution_counter.total.count(len(inputs))
        record.execution_counter.pending.count(len(inputs))

    def run(self) -> None:
        """Run all the children, and return when the last has ended."""
        width = min(self._record.max_concurrency or WORKERS, WORKERS, max(1, len(self._inputs)))
        with ThreadPoolExecutor(width, thread_name_prefix="states-map") as pool:
            list(pool.map(self._child, range(len(self._inputs))))

    def _child(self, index: int) -> None:
        if self.exceeded.is_set() or not self._env.is_running():
            return
        value, size = self._inputs[index]
        self._count(size, "pending", "running")
        frame, arn = self._frame(value)
        self._program.eval(frame)
        state = frame.program_state()
        self._env.delete_frame(frame)
        error = getattr(state, "error", None)
        failed = error is not None
        child = {
            "ExecutionArn": arn,
            "Input": json.dumps(value, default=str),
            "StateMachineArn": self._record.map_state_machine_arn,
            "Status": "FAILED" if failed else "SUCCEEDED",
        }
        if failed:
            found = error if isinstance(error, dict) else {}
            child |= {"Error": found.get("error"), "Cause": found.get("cause")}
        else:
            child["Output"] = json.dumps(frame.states.get_input(), default=str)
            self.outputs[index] = json.loads(child["Output"])
        self.children[index] = child
        self._count(size, "running", "failed" if failed else "succeeded")
        bad, given = self._record.item_counter.failed.get(), self._record
        if exceeds(bad, self._total, given.tolerated_failure_count, given.tolerated_failure_percentage):
            self.exceeded.set()

    def _frame(self, value: Any) -> tuple[Any, str]:
        from moto.stepfunctions.parser.asl.eval.event.event_manager import EventHistoryContext, EventManager

        frame = self._env.open_inner_frame(EventHistoryContext.of_program_start())
        frame.event_manager = EventManager()  # a child's history is its own
        arn = f"{self._record.map_state_machine_arn.replace(':stateMachine:', ':execution:')}:{uuid.uuid4()}"
        context = frame.states.context_object.context_object_data
        context["Execution"] = {**context["Execution"], "Id": arn, "Input": value}
        frame.states.reset(copy.deepcopy(value))
        return frame, arn

    def _count(self, size: int, before: str, after: str) -> None:
        with self._lock:
            for counter, number in ((self._record.item_counter, size), (self._record.execution_counter, 1)):
                getattr(counter, before).offset(-number)
                getattr(counter, after).count(number)


def change() -> None:
    from moto.stepfunctions.parser.api import HistoryEventType
    from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import (
        FailureEvent,
        FailureEventException,
    )
    from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name import StatesErrorName
    from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name_type import StatesErrorNameType
    from moto.stepfunctions.parser.asl.component.state.exec.state_map.iteration.distributed_iteration_component import (
        DistributedIterationComponent,
    )
    from moto.stepfunctions.parser.asl.component.state.exec.state_map.result_writer.resource_eval.resource_eval_s3 import (  # noqa: E501
        ResourceEvalS3,
    )
    from moto.stepfunctions.parser.asl.eval.event.event_detail import EventDetails
    from moto.stepfunctions.parser.asl.eval.states import ItemData, MapData

    def selected(env: Any, selector: Any, index: int, item: Any) -> Any:
        if selector is None:
            return item
        frame = env.open_frame()
        frame.states.context_object.context_object_data["Map"] = MapData(Item=ItemData(Index=index, Value=item))
        value = env.stack[-1] if env.stack else env.states.get_input()
        frame.states.reset(value)
        frame.stack.append(value)
        selector.eval(frame)
        env.delete_frame(frame)
        return frame.stack[-1]

    def map_run(self: Any, env: Any, eval_input: Any) -> None:
        items, record = env.stack.pop(), eval_input.map_run_record
        selector = eval_input.item_selector or eval_input.parameters
        chosen = [selected(env, selector, index, item) for index, item in enumerate(items)]
        inputs = jobs(chosen, getattr(self, "batcher", None))
        run = MapRun(env, self._get_iteration_program(), record, inputs, len(items))
        run.run()
        record.children = [child for child in run.children if child]
        if run.exceeded.is_set():
            name = StatesErrorName(typ=StatesErrorNameType.StatesExceedToleratedFailureThreshold)
            details = EventDetails(mapRunFailedEventDetails={"error": name.error_name, "cause": TOO_MANY})
            kind = HistoryEventType.TaskFailed
            raise FailureEventException(FailureEvent(env=env, error_name=name, event_type=kind, event_details=details))
        env.stack.append(run.outputs)

    def put_results(env: Any, resource_runtime_part: Any, state_credentials: Any) -> None:
        parameters, _ = env.stack.pop(), env.stack.pop()
        client = ResourceEvalS3._get_s3_client(resource_runtime_part, state_credentials)
        record = env.map_run_record_pool_manager.get_all()[-1]
        files = manifest(parameters["Bucket"], parameters.get("Prefix", ""), record.map_run_arn, record.children)
        for key, body in files.items():
            client.put_object(Bucket=parameters["Bucket"], Key=key, Body=body)
        record.execution_counter.results_written.count(len(record.children))
        record.item_counter.results_written.count(
            record.item_counter.succeeded.get() + record.item_counter.failed.get()
        )
        details = {"Bucket": parameters["Bucket"], "Key": [*files][-1]}
        env.stack.append({"MapRunArn": record.map_run_arn, "ResultWriterDetails": details})

    _ = DistributedIterationComponent._map_run, ResourceEvalS3._handle_put_object, ResourceEvalS3._get_s3_client
    DistributedIterationComponent._map_run = map_run
    ResourceEvalS3._handle_put_object = staticmethod(put_results)


def install() -> None:
    from . import states_engine

    states_engine.on_load(change)
