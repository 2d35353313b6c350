"""The branches of Parallel states and the iterations of inline Map states, from their start or from where they stood.

**On AWS** a redrive of a Parallel or an inline Map state runs the branches and iterations that failed, were aborted or
had not begun; the others keep their output. Neither the state nor what goes on inside it is started again in the
history (Step Functions Developer Guide, "Redrive behavior of individual states"; recorded on AWS).

**MiniStack** does not know RedriveExecution. moto's interpreter leaves the other branches and iterations alone when
one fails: they go on until the execution ends.

**Here** each has a :class:`~parity.states_redrive_places.Scope` in its state's place, and the first failure ends the
others, with what they wait for. Not done: the events of what was aborted (TaskStateAborted, MapIterationAborted).
"""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

from . import states_waits
from .states_redrive_places import Inside, Instead, Scope, Waker, own_waits, script, silence


class Gathering:
    """Wait until all have ended, or the first has failed."""

    def __init__(self, number: int) -> None:
        self._left = number
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.failure: Any = None
        if number == 0:
            self._over.set()

    def ended(self, failure: Any = None) -> None:
        with self._lock:
            self._left -= 1
            if self._over.is_set():
                return
            self.failure = failure
            if failure is not None or self._left == 0:
                self._over.set()

    def wait(self) -> None:
        self._over.wait()


def scopes_for(place: Any, number: int, started: int) -> list[Scope]:
    """The scopes of what runs inside a state: those with which it goes on, or new ones."""
    kept = place.take()
    scopes = kept.scopes if kept is not None and len(kept.scopes) == number else [Scope() for _ in range(number)]
    place.inside = Inside(started, scopes)
    return list(scopes)


def abort(env: Any) -> None:
    """End what still runs inside this environment; nothing of it enters the history any more."""
    silence(env)
    for frame in list(env._frames):
        frame.set_stop(stop_date=datetime.now(UTC), error=None, cause=None)
    states_waits.wake(env)


def change() -> None:
    _parallel()
    _map()


def _parallel() -> None:
    from moto.stepfunctions.parser.api import ExecutionFailedEventDetails, HistoryEventType
    from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import (
        FailureEvent,
        FailureEventException,
    )
    from moto.stepfunctions.parser.asl.component.state.exec.state_parallel import branches_decl
    from moto.stepfunctions.parser.asl.component.state.exec.state_parallel.state_parallel import StateParallel
    from moto.stepfunctions.parser.asl.eval.event.event_detail import EventDetails
    from moto.stepfunctions.parser.asl.eval.program_state import ProgramError

    execute = StateParallel._eval_execution

    def eval_execution(self: Any, env: Any) -> None:
        place = env.scope.place
        if place.goes_on:
            script(env.event_history_context, Instead(HistoryEventType.ParallelStateStarted, place.inside.started))
        execute(self, env)

    def run(program: Any, frame: Any, gathering: Gathering) -> None:
        try:
            program.eval(frame)
        finally:
            state = frame.program_state()
            gathering.ended((state.error or {}) if isinstance(state, ProgramError) else None)

    def branches(self: Any, env: Any) -> None:
        value = env.stack.pop()
        scopes = scopes_for(env.scope.place, len(self.programs), env.event_history_context.source_event_id)
        outer, waker = env.callback_pool_manager, own_waits(env)
        frames = []
        for scope in scopes:
            frame = env.open_inner_frame()
            frame.scope = scope
            frame.states.reset(scope.output if scope.done else value)
            frames.append(frame)
        going = [pair for pair in zip(self.programs, frames, strict=True) if not pair[1].scope.done]
        gathering = Gathering(len(going))
        for program, frame in going:
            threading.Thread(target=run, args=(program, frame, gathering), name="states-branch", daemon=True).start()
        gathering.wait()
        if gathering.failure is not None:
            abort(env)
        outer.waiting.discard(waker)
        for frame in frames:
            env.close_frame(frame)
        if gathering.failure is None:
            env.stack.append([frame.states.get_input() for frame in frames])
            return
        details = ExecutionFailedEventDetails(
            **{name: gathering.failure[name] for name in ("error", "cause") if name in gathering.failure}
        )
        raise FailureEventException(
            FailureEvent(
                env=env,
                error_name=branches_decl.CustomErrorName(error_name=details.get("error")),
                event_type=HistoryEventType.ExecutionFailed,
                event_details=EventDetails(executionFailedEventDetails=details),
            )
        )

    StateParallel._eval_execution = eval_execution
    branches_decl.BranchesDecl._eval_body = branches


def _map() -> None:
    from moto.stepfunctions.parser.api import HistoryEventType
    from moto.stepfunctions.parser.asl.component.state.exec.state_map.iteration.inline_iteration_component import (
        InlineIterationComponent,
    )
    from moto.stepfunctions.parser.asl.component.state.exec.state_map.iteration.iteration_worker import IterationWorker
    from moto.stepfunctions.parser.asl.component.state.exec.state_map.iteration.job import JobClosed, JobPool
    from moto.stepfunctions.parser.asl.component.state.exec.state_map.state_map import StateMap

    execute, eval_job = StateMap._eval_execution, IterationWorker._eval_job

    def eval_execution(self: Any, env: Any) -> None:
        place = env.scope.place
        if place.goes_on:
            script(env.event_history_context, Instead(HistoryEventType.MapStateStarted, place.inside.started))
        execute(self, env)

    def jobs(program: Any, items: list[Any], scopes: list[Scope]) -> tuple[Any, int]:
        pool = JobPool(job_program=program, job_inputs=items)
        for job in list(pool._open_jobs):
            job.scope = scopes[job.job_index]
            if job.scope.done:
                pool._open_jobs.remove(job)
                pool._closed_jobs.add(JobClosed(job.job_index, job.scope.output))
        return pool, len(pool._open_jobs)

    def iterations(self: Any, env: Any) -> None:
        eval_input = env.stack.pop()
        items = eval_input.input_items
        scopes = scopes_for(env.scope.place, len(items), env.event_history_context.source_event_id)
        pool, number = jobs(self._get_iteration_program(), items, scopes)
        outer = env.callback_pool_manager
        waker: Waker = own_waits(env)
        for _ in range(min(eval_input.max_concurrency or number, number)):
            self._launch_worker(env=env, eval_input=eval_input, job_pool=pool)
        pool.await_jobs()
        failure = pool.get_worker_exception()
        if failure is not None:
            abort(env)
        outer.waiting.discard(waker)
        if failure is not None:
            raise failure
        env.stack.append([closed.job_output for closed in pool.get_closed_jobs()])

    def iteration(self: Any, env: Any, job: Any) -> None:
        env.scope = job.scope
        if job.scope.resumes:
            script(env.event_history_context, Instead(HistoryEventType.MapIterationStarted))
        eval_job(self, env, job)

    StateMap._eval_execution = eval_execution
    InlineIterationComponent._eval_body = iterations
    IterationWorker._eval_job = iteration


def install() -> None:
    from . import states_engine

    states_engine.on_load(change)
