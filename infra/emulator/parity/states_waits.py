"""How long an attempt at a state lasts, and what ends it.

**On AWS** ``TimeoutSeconds`` runs from the attempt's start and nothing prolongs it. ``HeartbeatSeconds`` is the longest
pause between two heartbeats; SendTaskHeartbeat begins it anew. A state without either waits for its callback up to a
year. StopExecution ends whatever an execution waits for, and nothing enters its history afterwards (Step Functions
Developer Guide, "Task workflow state"; API Reference, "SendTaskHeartbeat").

**MiniStack** does not look at HeartbeatSeconds. moto's interpreter needs two threads for a task that waits, lets each
heartbeat prolong the attempt beyond its timeout, lets HeartbeatSeconds bring a timeout of 60 s, and leaves a stopped
execution's waits where they are.

**Here** a task that waits for a callback parks in its execution's own thread; what else an execution waits for, it
waits for on an event that :func:`wake` sets. A call to another service that is under way when an execution stops ends
by itself; its answer is dropped.
"""

from __future__ import annotations

import copy
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

NEVER = 99_999_999  # seconds, the language's own default


class Stopped(BaseException):
    """The execution ended while a state waited. Not an Exception: nothing on the way may take it for a failure."""


def next_wait(heartbeat: float, deadline: float, now: float) -> tuple[float, bool]:
    """How long to wait for a heartbeat, and whether the attempt's own deadline comes first."""
    left = deadline - now
    return (max(0.0, left), True) if left < heartbeat else (heartbeat, False)


class Attempt:
    """One attempt in a thread of its own, because what it calls may take longer than it is allowed to."""

    def __init__(self, work: Callable[[], None]) -> None:
        self._work = work
        self._over = threading.Event()
        self._finished = False
        self._error: BaseException | None = None

    def run(self, seconds: float, waiting: set[threading.Event]) -> bool:
        """Whether it ended in time; raises what it raised, or :class:`Stopped` when somebody set the event."""
        waiting.add(self._over)
        try:
            threading.Thread(target=self._in_thread, name="states-attempt", daemon=True).start()
            in_time = self._over.wait(seconds)
        finally:
            waiting.discard(self._over)
        if self._error is not None:
            raise self._error
        if in_time and not self._finished:
            raise Stopped
        return self._finished

    def _in_thread(self) -> None:
        try:
            self._work()
        except BaseException as error:  # noqa: BLE001 - raised again where the attempt was asked for
            self._error = error
        finally:
            self._finished = True
            self._over.set()


def wake(env: Any) -> None:
    """Wake whatever of this execution waits, and end its tokens. Its program state says already why."""
    pool = env.callback_pool_manager
    for endpoint in list(pool._pool.values()):
        endpoint.interrupt_all()
        if hasattr(endpoint, "notify_activity_task_start"):
            endpoint.notify_activity_task_start(worker_name=None)
    for event in list(pool.waiting):
        event.set()


def change() -> None:
    from moto.stepfunctions.parser.asl.eval.callback.callback import CallbackPoolManager

    made = CallbackPoolManager.__init__

    def init(self: Any, activity_store: Any) -> None:
        made(self, activity_store)
        self.waiting = set()

    CallbackPoolManager.__init__ = init
    _programs()
    _attempts()
    _heartbeats()
    _pauses()


def _programs() -> None:
    from moto.stepfunctions.parser.asl.component.eval_component import EvalComponent
    from moto.stepfunctions.parser.asl.component.program.program import Program

    def evaluate(self: Any, env: Any) -> None:  # a thread more for each otherwise; states_runs has the timeout
        if env.is_running() or env._program_state is None:
            env.next_state_name = self.start_at.start_at_name
            EvalComponent.eval(self, env)

    Program.eval = evaluate


def _attempts() -> None:
    from moto.stepfunctions.parser.asl.component.state.exec import execute_state as states
    from moto.stepfunctions.parser.asl.component.state.exec.state_map.state_map import StateMap
    from moto.stepfunctions.parser.asl.component.state.exec.state_parallel.state_parallel import StateParallel
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.service import state_task_service_callback as of

    def evaluate(self: Any, env: Any) -> None:
        self.timeout.eval(env=env)
        seconds = env.stack.pop()
        frame = env.open_frame()
        frame.states.reset(input_value=env.states.get_input())
        frame.stack = copy.deepcopy(env.stack)
        failure: BaseException | None = None
        in_time = True
        parks = isinstance(self, of.StateTaskServiceCallback) and self.resource.condition == "waitForTaskToken"
        try:
            if parks:
                frame.deadline = time.monotonic() + seconds
                self._eval_execution(frame)
            else:
                attempt = Attempt(lambda: self._eval_execution(frame))
                in_time = attempt.run(seconds, env.callback_pool_manager.waiting)
        except BaseException as error:  # noqa: BLE001 - raised again once the frame is closed
            failure = error
        frame.set_ended()
        env.close_frame(frame)
        if not env.is_running():
            raise Stopped
        if failure is not None:
            raise failure
        if not in_time:
            raise states.EvalTimeoutError
        _results(self, env, frame.stack.pop())

    def _results(self: Any, env: Any, output: Any) -> None:
        env.stack.append(output)
        if not self._is_language_query_jsonpath():
            env.states.set_result(output)
        if self.assign_decl:
            self.assign_decl.eval(env=env)
        if self.result_selector:
            self.result_selector.eval(env=env)
        if self.result_path:
            self.result_path.eval(env)
        else:
            env.states.reset(input_value=env.stack.pop())

    def silent(kind: Any) -> None:
        original = kind._eval_state

        def eval_state(self: Any, env: Any) -> None:
            try:
                original(self, env)
            except Stopped:
                return

        kind._eval_state = eval_state

    _ = states.ExecutionState._evaluate_with_timeout
    states.ExecutionState._evaluate_with_timeout = evaluate
    for kind in (states.ExecutionState, StateMap, StateParallel):
        if "_eval_state" in vars(kind):
            silent(kind)

    props = states.ExecutionState.from_state_props

    def from_state_props(self: Any, state_props: Any) -> None:
        props(self, state_props)
        if getattr(self.timeout, "is_default", False):  # what HeartbeatSeconds alone brings
            self.timeout = states.TimeoutSeconds(timeout_seconds=NEVER, is_default=True)

    states.ExecutionState.from_state_props = from_state_props


def _heartbeats() -> None:
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.service import state_task_service_callback as of

    def wait(self: Any, env: Any, callback_endpoint: Any, heartbeat_endpoint: Any) -> Any:
        heartbeat = heartbeat_endpoint._heartbeat_seconds
        deadline = getattr(env, "deadline", None) or time.monotonic() + NEVER
        beat, last = True, False
        while env.is_running():
            # Before the first wait as well: a quick worker may have answered before there was anything to wait on.
            outcome = callback_endpoint.get_outcome()
            if outcome is not None:
                return outcome
            if not beat:
                return None if last else of.HeartbeatTimedOut()
            seconds, last = next_wait(heartbeat, deadline, time.monotonic())
            heartbeat_endpoint._heartbeat_seconds = seconds
            beat = heartbeat_endpoint.clear_and_wait()
        return None

    _ = of.StateTaskServiceCallback._wait_for_task_token_heartbeat
    of.StateTaskServiceCallback._wait_for_task_token_heartbeat = wait


def _pauses() -> None:
    """The pause before a retry and a Wait state end with the execution."""
    from moto.stepfunctions.parser.asl.component.common.retry import retrier_decl
    from moto.stepfunctions.parser.asl.component.state.wait.wait_function.wait_function import WaitFunction

    evaluate = retrier_decl.RetrierDecl._eval_body
    here = threading.local()

    def pause(env: Any, seconds: float) -> None:
        event, waiting = threading.Event(), env.callback_pool_manager.waiting
        waiting.add(event)
        if env.is_running():
            event.wait(max(0.0, seconds))
        waiting.discard(event)

    def body(self: Any, env: Any) -> None:
        here.env = env
        evaluate(self, env)

    def sleep(seconds: float) -> None:
        pause(here.env, seconds)
        if not here.env.is_running():
            raise Stopped

    def interval(self: Any, env: Any, wait_seconds: float) -> None:
        pause(env, wait_seconds)

    _ = retrier_decl.time.sleep, WaitFunction._wait_interval
    retrier_decl.RetrierDecl._eval_body = body
    retrier_decl.time = SimpleNamespace(sleep=sleep)
    WaitFunction._wait_interval = interval


def install() -> None:
    from . import states_engine

    states_engine.on_load(change)
