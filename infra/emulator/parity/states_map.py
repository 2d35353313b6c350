"""Distributed Map runs: their child executions, their counts, the failures that they tolerate.

**On AWS** each item or batch is an execution of its own, with its own history. The run fails with
States.ExceedToleratedFailureThreshold when more items fail than ToleratedFailureCount or ToleratedFailurePercentage
allows, whichever is exceeded; within that, it succeeds (Step Functions Developer Guide, "Tolerated failure threshold
for Distributed Map state").

**MiniStack** runs distributed Map states like inline ones. moto's interpreter starts a thread for each item, and fails
the run with the first failure.

**Here** a run has at most :data:`WORKERS` threads; its children are those of :mod:`parity.states_redrive_children`, its
results those of :mod:`parity.states_results`. A threshold of 0 counts as none. Not verified: which events precede
ExecutionFailed when the results that are joined are over 256 KiB (here: MapRunSucceeded and MapStateSucceeded).
"""

from __future__ import annotations

import copy
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from . import states_waits
from .states_batches import jobs
from .states_map_live import Live, halt, write_end
from .states_redrive_children import COUNTERS, Child, Children
from .states_redrive_places import Inside, Instead, own_waits, script
from .states_results import Results

WORKERS = 40  # threads of one run, whatever MaxConcurrency allows
TOO_MANY = "The specified tolerated failure threshold was exceeded"


def exceeds(failed: int, total: int, count: float | None, percentage: float | None) -> bool:
    """Whether more items failed than the run tolerates: with both thresholds either is enough, with none one item."""
    over_count, over_share = failed > (count or 0), failed * 100 > (percentage or 0) * total
    if count and percentage:
        return over_count or over_share
    return over_share if percentage else over_count


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
        live: Live | None = None
        try:
            if not self._children.begin(child, frame, frame.states.context_object.context_object_data):
                return
            with self._lock:
                self._frames.add(frame)
            live = Live(frame, child.record or {}, self._children.kind)
            live.begin()
            if self.exceeded:
                self._abort(frame)
            self._program.eval(frame)
            alone = live.ended()
            if alone is not None and not child.scope.done:
                write_end(self._children, child, *alone, COUNTERS[alone[0]])
            else:
                state = frame.program_state()
                self._children.end(child, (state.error or {}) if isinstance(state, ProgramError) else None)
        finally:
            with self._lock:
                self._frames.discard(frame)
            if live is not None:
                live.end()
            outer.waiting.discard(waker)
            self._env.delete_frame(frame)
        self._look()

    def _look(self) -> None:
        """Abort the rest when more has failed than is tolerated."""
        record = self._children.run
        counter = record.item_counter
        bad, total = counter.failed.get() + counter.timed_out.get(), counter.total.get()
        if not exceeds(bad, total, record.tolerated_failure_count, record.tolerated_failure_percentage):
            return
        with self._lock:
            self.exceeded = True
            frames = list(self._frames)
        for frame in frames:
            self._abort(frame)

    def _abort(self, frame: Any) -> None:
        if self._children.kind == "STANDARD":  # Express ones are left to end
            halt(frame)

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
        results = Results(self, env)
        run = MapRun(env, self._get_iteration_program(), children)
        run.run()
        if run.exceeded or not env.is_running():
            children.close()
            results.unsuccessful(children)
        if not env.is_running():
            raise states_waits.Stopped
        if run.exceeded:
            name = StatesErrorName(typ=StatesErrorNameType.StatesExceedToleratedFailureThreshold)
            details = EventDetails(mapRunFailedEventDetails={"error": name.error_name, "cause": TOO_MANY})
            kind = HistoryEventType.TaskFailed
            raise FailureEventException(FailureEvent(env=env, error_name=name, event_type=kind, event_details=details))
        env.stack.append(results.of(children))

    _ = DistributedIterationComponent._map_run
    module.StateMap._eval_execution = eval_execution
    module.MapRunRecord = record
    DistributedIterationComponent._eval_body = eval_body
    DistributedIterationComponent._map_run = map_run


def install() -> None:
    from . import states_engine

    states_engine.on_load(change)
