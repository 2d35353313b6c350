"""Distributed Map runs: their child executions, their counts, the failures that they tolerate, their results in S3.

**On AWS** each item or batch is an execution of its own, with its own history. The run fails with
States.ExceedToleratedFailureThreshold when more items fail than ToleratedFailureCount or ToleratedFailurePercentage
allows, whichever is exceeded; within that, it succeeds. A ResultWriter puts the results into S3 and a manifest
beside them, and the state's output says where (Step Functions Developer Guide, "Tolerated failure threshold for
Distributed Map state", "ResultWriter").

**MiniStack** runs distributed Map states like inline ones. moto's interpreter starts a thread for each item, fails the
run with the first failure, and writes no results.

**Here** a run has at most :data:`WORKERS` threads; its children are those of :mod:`parity.states_redrive_children`. A
redriven run writes its results into a folder of that redrive, as recorded on AWS. Not done: UpdateMapRun, results in
several files, results of a run that failed. A threshold of 0 counts as none. Not verified: what a failed item leaves in
the output of a run that tolerates it (here: null).
"""

from __future__ import annotations

import copy
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

from . import states_waits
from .states_batches import jobs
from .states_redrive_children import Child, Children
from .states_redrive_places import Inside, Instead, own_waits, script, silence

WORKERS = 40  # threads of one run, whatever MaxConcurrency allows
TOO_MANY = "The specified tolerated failure threshold was exceeded"
FILES = ("FAILED", "PENDING", "SUCCEEDED")


def exceeds(failed: int, total: int, count: float | None, percentage: float | None) -> bool:
    """Whether more items failed than the run tolerates: with both thresholds either is enough, with none one item."""
    over_count, over_share = failed > (count or 0), failed * 100 > (percentage or 0) * total
    if count and percentage:
        return over_count or over_share
    return over_share if percentage else over_count


def manifest(
    bucket: str, prefix: str, run_arn: str, children: list[dict[str, Any]], redrive: int = 0
) -> dict[str, bytes]:
    """The files of a ResultWriter by key; the last is the manifest, which names the others."""
    start = prefix if not prefix or prefix.endswith("/") else f"{prefix}/"
    folder = f"{start}{run_arn.split(':')[-1]}" + (f"/Redrive-{redrive}" if redrive else "")
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
    """One attempt at a run of a distributed Map state."""

    def __init__(self, env: Any, program: Any, children: Children) -> None:
        self._env, self._program, self._children = env, program, children
        self._lock = threading.Lock()
        self._frames: set[Any] = set()
        self.exceeded = False

    def run(self) -> None:
        """Run all the children that have not succeeded, and return when the last has ended."""
        going = [child for child in self._children.children if not child.scope.done]
        width = min(self._children.run.max_concurrency or WORKERS, WORKERS, max(1, len(going)))
        with ThreadPoolExecutor(width, thread_name_prefix="states-map") as pool:
            list(pool.map(self._child, going))

    def _child(self, child: Child) -> None:
        from moto.stepfunctions.parser.asl.eval.program_state import ProgramError

        if self.exceeded or not self._env.is_running():
            return
        outer, (frame, waker) = self._env.callback_pool_manager, self._frame(child)
        try:
            if not self._children.begin(child, frame, frame.states.context_object.context_object_data):
                return
            with self._lock:
                self._frames.add(frame)
            if self.exceeded:
                self._abort(frame)
            self._program.eval(frame)
            state = frame.program_state()
            self._children.end(child, (state.error or {}) if isinstance(state, ProgramError) else None)
        finally:
            with self._lock:
                self._frames.discard(frame)
            outer.waiting.discard(waker)
            self._env.delete_frame(frame)
        self._look()

    def _look(self) -> None:
        """Abort the rest when more has failed than is tolerated."""
        record = self._children.run
        bad, total = record.item_counter.failed.get(), record.item_counter.total.get()
        if not exceeds(bad, total, record.tolerated_failure_count, record.tolerated_failure_percentage):
            return
        with self._lock:
            self.exceeded = True
            frames = list(self._frames)
        for frame in frames:
            self._abort(frame)

    def _abort(self, frame: Any) -> None:
        if self._children.kind == "STANDARD":  # Express ones are left to end
            frame.set_stop(stop_date=datetime.now(UTC), error=None, cause=None)
            frame.event_history_context.closed = True
            silence(frame)
            states_waits.wake(frame)

    def _frame(self, child: Child) -> tuple[Any, Any]:
        from moto.stepfunctions.parser.asl.eval.event.event_manager import EventHistoryContext

        frame = self._env.open_inner_frame(EventHistoryContext.of_program_start())
        frame.execution_type = self._children.kind
        frame.states.reset(copy.deepcopy(child.value))
        return frame, own_waits(frame)


def change() -> None:
    from moto.stepfunctions.parser.api import HistoryEventType
    from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import (
        FailureEvent,
        FailureEventException,
    )
    from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name import StatesErrorName
    from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name_type import StatesErrorNameType
    from moto.stepfunctions.parser.asl.component.state.exec.state_map import state_map as module
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

    here = threading.local()  # the Map run that is redriven in this thread
    execute, new_record, body = (
        module.StateMap._eval_execution,
        module.MapRunRecord,
        DistributedIterationComponent._eval_body,
    )

    def eval_execution(self: Any, env: Any) -> None:
        place = env.scope.place
        children = place.inside.run if place.goes_on else None
        if children is not None:
            children.redrive()
            run = children.run
            details = {"mapRunArn": run.map_run_arn, "redriveCount": run.redrive_count}
            redriven = HistoryEventType.MapRunRedriven, EventDetails(mapRunRedrivenEventDetails=details)
            script(env.event_history_context, Instead(HistoryEventType.MapRunStarted, None, redriven))
            here.run = run
        try:
            execute(self, env)
        finally:
            here.__dict__.pop("run", None)

    def record(**values: Any) -> Any:
        return here.__dict__.pop("run", None) or new_record(**values)

    def eval_body(self: Any, env: Any) -> None:
        place, eval_input = env.scope.place, env.stack[-1]
        if not place.goes_on:
            details = env.aws_execution_details
            kind = str(getattr(self, "children_kind", "STANDARD"))
            scope = details.account, details.region
            children = Children(eval_input.map_run_record, kind, details.role_arn, scope)
            place.inside = Inside(env.event_history_context.source_event_id, [], children)
        elif place.inside.run.children:  # it goes on with the items that it had read
            eval_input.item_reader, eval_input.input_items = None, []
        body(self, env)

    def map_run(self: Any, env: Any, eval_input: Any) -> None:
        items, inside = env.stack.pop(), env.scope.place.inside
        env.scope.place.take()
        children = inside.run
        if not children.children:
            selector = eval_input.item_selector or eval_input.parameters
            chosen = [selected(env, selector, index, item) for index, item in enumerate(items)]
            children.fill(jobs(chosen, getattr(self, "batcher", None)))
        inside.scopes = [child.scope for child in children.children]
        children.run.children = children.children
        run = MapRun(env, self._get_iteration_program(), children)
        run.run()
        if not env.is_running():
            children.close()
            raise states_waits.Stopped
        if run.exceeded:
            children.close()
            name = StatesErrorName(typ=StatesErrorNameType.StatesExceedToleratedFailureThreshold)
            details = EventDetails(mapRunFailedEventDetails={"error": name.error_name, "cause": TOO_MANY})
            kind = HistoryEventType.TaskFailed
            raise FailureEventException(FailureEvent(env=env, error_name=name, event_type=kind, event_details=details))
        env.stack.append(children.outputs())

    def put_results(env: Any, resource_runtime_part: Any, state_credentials: Any) -> None:
        parameters, _ = env.stack.pop(), env.stack.pop()
        client = ResourceEvalS3._get_s3_client(resource_runtime_part, state_credentials)
        record = env.map_run_record_pool_manager.get_all()[-1]
        rows = [child.row(record.map_state_machine_arn) for child in record.children]
        redrive = getattr(record, "redrive_count", 0)
        files = manifest(parameters["Bucket"], parameters.get("Prefix", ""), record.map_run_arn, rows, redrive)
        for key, body in files.items():
            client.put_object(Bucket=parameters["Bucket"], Key=key, Body=body)
        record.execution_counter.results_written.count(len(record.children))
        record.item_counter.results_written.count(
            record.item_counter.succeeded.get() + record.item_counter.failed.get()
        )
        details = {"Bucket": parameters["Bucket"], "Key": [*files][-1]}
        env.stack.append({"MapRunArn": record.map_run_arn, "ResultWriterDetails": details})

    _ = DistributedIterationComponent._map_run, ResourceEvalS3._handle_put_object, ResourceEvalS3._get_s3_client
    module.StateMap._eval_execution = eval_execution
    module.MapRunRecord = record
    DistributedIterationComponent._eval_body = eval_body
    DistributedIterationComponent._map_run = map_run
    ResourceEvalS3._handle_put_object = staticmethod(put_results)


def install() -> None:
    from . import states_engine

    states_engine.on_load(change)
