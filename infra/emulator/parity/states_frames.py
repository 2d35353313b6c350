"""What a state inside of another one sees, and by which name its failure is known outside.

**On AWS** the states of a Map's iteration see the item in ``$$.Map.Item``, whatever their kind, and times in the
context object are of the form 2019-03-26T20:14:13.192Z (Step Functions Developer Guide, "Accessing execution data from
the Context object"). An error of a state in an iteration or a branch keeps its name, ``States.…`` as well, so that the
Retry and the Catch of the Map or Parallel state can match it ("Handling errors").

**MiniStack** runs iterations without such a context. moto's interpreter gives a Task a frame of its own, into which the
item is not handed on, and ends the execution with States.Runtime when an error whose name begins with ``States.``
leaves an iteration.

**Here** frames inherit the item of the innermost Map, and errors keep their names.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any


def stamp(moment: datetime) -> str:
    """A moment as the context object has it."""
    return datetime.isoformat(moment.astimezone(UTC), timespec="milliseconds").replace("+00:00", "Z")


def change() -> None:
    _items()
    _names()
    _times()


def _items() -> None:
    from moto.stepfunctions.parser.asl.eval.environment import Environment

    inner = Environment.as_inner_frame_of.__func__  # type: ignore[attr-defined]

    def with_item(cls: Any, env: Any, *arguments: Any, **more: Any) -> Any:
        frame = inner(cls, env, *arguments, **more)
        context = env.states.context_object.context_object_data
        if "Map" in context:
            frame.states.context_object.context_object_data["Map"] = context["Map"]
        return frame

    Environment.as_inner_frame_of = classmethod(with_item)


def _names() -> None:
    from moto.stepfunctions.parser.asl.component.common.error_name.custom_error_name import CustomErrorName
    from moto.stepfunctions.parser.asl.component.common.error_name.states_error_name import StatesErrorName
    from moto.stepfunctions.parser.asl.component.state.exec.state_map.iteration import iteration_worker
    from moto.stepfunctions.parser.asl.component.state.exec.state_parallel import branches_decl

    def named(error_name: str | None) -> Any:
        if error_name is not None and error_name.startswith("States."):
            return StatesErrorName.from_name(error_name)
        return CustomErrorName(error_name=error_name)

    _ = iteration_worker.CustomErrorName, branches_decl.CustomErrorName
    iteration_worker.CustomErrorName = named
    branches_decl.CustomErrorName = named


def _times() -> None:
    from moto.stepfunctions.parser.asl.component.state import state as module

    class Now(datetime):
        def isoformat(self, *_: Any, **__: Any) -> str:
            return stamp(self)

    class Datetime:
        """The module ``datetime``, as far as the interpreter's states use it."""

        datetime, timezone, UTC = Now, module.datetime.timezone, UTC

    _ = module.datetime.datetime
    module.datetime = Datetime


def install() -> None:
    from . import states_engine

    states_engine.on_load(change)
