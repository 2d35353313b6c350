"""Where an execution stands, and how its program goes on from there.

**On AWS** a redriven execution goes on in the state that was entered and not left: with the input and the variables
that it had then, and with its time of entry in ``$$.State.EnteredTime``. The history has no second event for the entry:
the first event of the new attempt follows the old entry's. What a Fail state does to it follows ExecutionRedriven. A
Wait with ``Seconds`` waits for all of them again (Step Functions Developer Guide, "Redrive behavior of individual
states"; recorded on AWS).

**MiniStack** does not know RedriveExecution. moto's interpreter begins a program with its first state.

**Here** each program that runs (the execution's own, a branch's, an iteration's, a child execution's) has a
:class:`Scope`, which says where it stands. When an execution ends without success, :func:`frozen` takes a copy of it,
and a redrive is a new environment that has that copy: whatever is left of the old one can change nothing any more.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from . import states_waits

DATA_LIMIT = "States.DataLimitExceeded"  # the state is run again, with all that is inside
RUNTIME = "States.Runtime"  # so is a distributed Map state


@dataclass
class Inside:
    """What runs inside a state: the branches of a Parallel, the iterations or child executions of a Map."""

    started: int  # the event after which it began
    scopes: list[Scope]
    run: Any = None  # of a distributed Map state: its Map run, with the child executions


@dataclass
class Place:
    """A state that was entered and not left."""

    name: str
    given: Any  # its input; nobody changes it
    variables: dict[str, Any]
    entered: int | None = None  # the event of the entry
    since: str | None = None
    inside: Inside | None = None
    goes_on: bool = False  # with what is inside, when it is tried next

    def take(self) -> Inside | None:
        """What the next attempt goes on with; the one after that begins anew."""
        inside = self.inside if self.goes_on else None
        self.goes_on = False
        return inside


@dataclass
class Scope:
    """A program's run: where it stands, or its output once it has reached its end."""

    place: Place | None = None
    done: bool = False
    output: Any = None
    resumes: bool = field(default=False)

    def end(self, output: Any) -> None:
        self.done, self.output, self.place = True, output, None


def frozen(scope: Scope, error: str | None = None) -> Scope:
    """A copy from which the program can go on after it failed with this error."""
    if scope.done or scope.place is None:
        return Scope(None, scope.done, scope.output)
    place = scope.place
    inside = place.inside
    if inside is not None:
        again = error == DATA_LIMIT or (error == RUNTIME and inside.run is not None)
        inside = None if again and all(one.done for one in inside.scopes) else _frozen_inside(inside, error)
    copy = Place(place.name, place.given, dict(place.variables), place.entered, place.since, inside, inside is not None)
    return Scope(copy, resumes=True)


def _frozen_inside(inside: Inside, error: str | None) -> Inside:
    if inside.run is not None:
        run = inside.run.frozen()
        return Inside(inside.started, [child.scope for child in run.children], run)
    return Inside(inside.started, [frozen(scope, error) for scope in inside.scopes])


@dataclass(frozen=True)
class Instead:
    """The next event of this type in a context is not written down: it has been, or another one is."""

    kind: str
    source: int | None = None  # the event that the next ones follow
    other: tuple[str, dict[str, Any]] | None = None


def script(context: Any, *events: Instead) -> None:
    """Have the next event of each of these types treated so."""
    context.script = [*getattr(context, "script", ()), *events]


def silence(env: Any) -> None:
    """Let nothing inside this environment add to the history any more."""
    for frame in list(env._frames):
        frame.event_history_context.closed = True
        silence(frame)


class Waker:
    """Something to be woken that waits for many things. Looks like an event to :func:`parity.states_waits.wake`."""

    def __init__(self, env: Any) -> None:
        self._env = env

    def set(self) -> None:
        states_waits.wake(self._env)


def own_waits(env: Any) -> Waker:
    """Give an environment waits of its own, which can be woken alone and are woken with those that it had before."""
    outer = env.callback_pool_manager
    env.callback_pool_manager = type(outer)(activity_store=env.activity_store)
    waker = Waker(env)
    outer.waiting.add(waker)
    return waker


def change() -> None:
    _frames()
    _programs()
    _states()
    _events()


def _frames() -> None:
    from moto.stepfunctions.parser.asl.eval.environment import Environment

    opened = Environment.open_frame

    def open_frame(self: Any, event_history_context: Any = None) -> Any:
        frame = opened(self, event_history_context)
        frame.scope = getattr(self, "scope", None)
        return frame

    Environment.open_frame = open_frame


def _programs() -> None:
    from moto.stepfunctions.parser.asl.component.eval_component import EvalComponent
    from moto.stepfunctions.parser.asl.component.program.program import Program

    begin = Program.eval

    def evaluate(self: Any, env: Any) -> None:
        scope = getattr(env, "scope", None)
        if scope is None or not scope.resumes:
            begin(self, env)
        elif env.is_running() or env._program_state is None:
            env.states.reset(scope.place.given)
            env.variable_store._inner_scope.update(scope.place.variables)
            env.next_state_name = scope.place.name
            EvalComponent.eval(self, env)

    Program.eval = evaluate


def _states() -> None:
    from moto.stepfunctions.parser.asl.component.state import state as module
    from moto.stepfunctions.parser.asl.component.state.fail.state_fail import StateFail
    from moto.stepfunctions.parser.asl.component.state.state_continue_with import ContinueWithEnd
    from moto.stepfunctions.parser.asl.eval.program_state import ProgramEnded

    State = module.CommonStateField
    original, set_next, state_data = State._eval_body, State._set_next, module.StateData
    here = threading.local()  # a state's entry: the event, and what the context object says of it, in one thread

    def body(self: Any, env: Any) -> None:
        scope = getattr(env, "scope", None)
        if scope is not None:
            context = env.event_history_context
            if scope.resumes:
                scope.resumes = False
                source = None if isinstance(self, StateFail) else scope.place.entered
                script(context, Instead(self.state_entered_event_type, source))
            else:
                variables = dict(env.variable_store._inner_scope)
                scope.place = Place(self.name, env.states._states_data["input"], variables)
                context.entering = scope.place
            here.place = scope.place
        original(self, env)

    def entered(**values: Any) -> Any:
        place = here.__dict__.pop("place", None)
        if place is not None:
            place.since = values["EnteredTime"] = place.since or values["EnteredTime"]
        return state_data(**values)

    def following(self: Any, env: Any) -> None:
        running = env.is_running()
        set_next(self, env)
        scope = getattr(env, "scope", None)
        ends = running and isinstance(self.continue_with, ContinueWithEnd)
        if scope is not None and ends and isinstance(env._program_state, ProgramEnded):
            scope.end(env.states._states_data["input"])

    State._eval_body = body
    State._set_next = following
    module.StateData = entered


def _events() -> None:
    from moto.stepfunctions.parser.asl.eval.event.event_manager import EventManager

    add = EventManager.add_event

    def add_event(self: Any, context: Any, event_type: Any, event_details: Any = None, **more: Any) -> Any:
        if getattr(context, "closed", False):
            return context.source_event_id
        steps = getattr(context, "script", [])
        step = next((one for one in steps if one.kind == event_type), None)
        if step is not None:
            steps.remove(step)
            if step.source is not None:
                context.source_event_id = step.source
            if step.other is None:
                return context.source_event_id
            event_type, event_details = step.other
        event = add(self, context=context, event_type=event_type, event_details=event_details, **more)
        place = context.__dict__.pop("entering", None)
        if place is not None:
            place.entered = event
        return event

    EventManager.add_event = add_event


def install() -> None:
    from . import states_engine

    states_engine.on_load(change)
