"""How the items of Map states are put together, and how many there may be.

**On AWS** ``ItemBatcher`` puts items together, up to MaxItemsPerBatch of them and MaxInputBytesPerBatch bytes, into
``{"Items": […]}`` with ``BatchInput`` beside them, and each batch is the input of one child execution (Step Functions
Developer Guide, "ItemBatcher").

**MiniStack** has no batches. moto's grammar does not know ItemBatcher, nor a ToleratedFailurePercentage without a
decimal point; an inline Map state over a thousand items ends its recursion in Python.

**Here** ItemBatcher is taken out of a definition before it is parsed, and given to the Map state that it stood in.
Paths and expressions in it are evaluated for each run, by the interpreter, with the input of the state. Not verified:
the error when they give no whole number above 0 (here: States.Runtime); whether BatchInput counts for
MaxInputBytesPerBatch (here: it does not).
"""

from __future__ import annotations

import json
import threading
from typing import Any

from . import states_fields

LIMITS = ("MaxItemsPerBatch", "MaxInputBytesPerBatch")
PERCENTAGE = "ToleratedFailurePercentage"


def _check(name: str, batcher: Any) -> None:
    known = {*LIMITS, *(f"{limit}Path" for limit in LIMITS), "BatchInput"}
    given = (known - {"BatchInput"}) & set(batcher) if isinstance(batcher, dict) else set()
    constant = [batcher[limit] for limit in given if not isinstance(batcher[limit], str)]
    if not given or not all(_whole(number) for number in constant) or not known.issuperset(batcher or ()):
        raise ValueError(f"The ItemBatcher of {name} must have {' or '.join(LIMITS)}, a whole number above 0.")


def _whole(number: Any) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number > 0


def is_constant(batcher: dict[str, Any]) -> bool:
    """Whether an ItemBatcher is the same for every run."""
    text = json.dumps(batcher)
    return not any(mark in text for mark in ('Path":', '.$":', "{%"))


def template(batcher: dict[str, Any], language: str) -> str:
    """A definition of one Pass state whose output is what an ItemBatcher, or another field, amounts to."""
    if language == "JSONata":
        state: dict[str, Any] = {"Type": "Pass", "Output": batcher, "End": True}
    else:
        paths = {f"{limit}Path": f"{limit}.$" for limit in LIMITS}
        fields = {paths.get(name, name): value for name, value in batcher.items()}
        state = {"Type": "Pass", "Parameters": fields, "End": True}
    return json.dumps({"StartAt": "B", "QueryLanguage": language, "States": {"B": state}})


def understood(definition: str) -> tuple[str, dict[str, Any]]:
    """The definition as the grammar knows it, and the ItemBatcher of each Map state by the state's name."""
    document = json.loads(definition)
    found: dict[str, Any] = {}
    changed = False
    for name, state in states_fields.every(document):
        if state.get("Type") == "Map" and "ItemBatcher" in state:
            found[name] = state.pop("ItemBatcher")
            _check(name, found[name])
        if type(state.get(PERCENTAGE)) is int:
            state[PERCENTAGE] = float(state[PERCENTAGE])
            changed = True
    return (states_fields.written(document), found) if found or changed else (definition, {})


def batches(items: list[Any], most: int | None, room: int | None) -> list[list[Any]]:
    """The items in order, at most ``most`` of them and ``room`` bytes in a batch; an item alone may be larger."""
    out: list[list[Any]] = []
    used = 0
    for item in items:
        weight = len(json.dumps(item, separators=(",", ":"), default=str).encode())
        if not out or (most and len(out[-1]) >= most) or (room and used + weight > room):
            out.append([])
            used = 0
        out[-1].append(item)
        used += weight
    return out


def jobs(items: list[Any], batcher: dict[str, Any] | None) -> list[tuple[Any, int]]:
    """The input of each child execution, and how many items are in it."""
    if not batcher:
        return [(item, 1) for item in items]
    beside = {"BatchInput": batcher["BatchInput"]} if "BatchInput" in batcher else {}
    groups = batches(items, *(batcher.get(limit) for limit in LIMITS))
    return [({**beside, "Items": group}, len(group)) for group in groups]


def evaluate_fields(fields: dict[str, Any], language: str, env: Any) -> Any:
    """What a field that the grammar does not know comes to, with the input and the variables of ``env``."""
    from . import states_engine

    state = states_engine.program(template(fields, language)).states.states["B"]
    frame = env.open_frame()
    try:
        frame.states.reset(env.states.get_input())
        if language == "JSONata":
            state.output.jsonata_template_value.eval(frame)
        else:
            frame.stack.append(env.states.get_input())
            state.parameters.eval(frame)
        return frame.stack.pop()
    finally:
        env.close_frame(frame)


def change() -> None:
    def give(state: Any, batcher: Any) -> None:
        state.iteration_component.item_batcher = batcher
        state.iteration_component.language = "JSONPath" if state._is_language_query_jsonpath() else "JSONata"

    states_fields.learn(understood, give)
    _batchers()
    _many_items()


def _batchers() -> None:
    """The ItemBatcher of a run, evaluated before its items are put together."""
    from moto.stepfunctions.parser.asl.component.state.exec.state_map.iteration.distributed_iteration_component import (
        DistributedIterationComponent,
    )

    evaluate = DistributedIterationComponent._eval_body
    here = threading.local()  # a Map state inside another one runs for several items at a time

    def evaluated(batcher: dict[str, Any], language: str, env: Any) -> dict[str, Any]:
        found: dict[str, Any] = evaluate_fields(batcher, language, env)
        if not all(_whole(found[limit]) for limit in LIMITS if limit in found):
            raise ValueError(f"{' and '.join(LIMITS)} must be whole numbers above 0.")
        return found

    def body(self: Any, env: Any) -> None:
        batcher, before = self.item_batcher, getattr(here, "batcher", None)
        try:
            here.batcher = batcher
            if batcher and not is_constant(batcher):
                here.batcher = evaluated(batcher, self.language, env)
            evaluate(self, env)
        finally:
            here.batcher = before

    DistributedIterationComponent._eval_body = body
    DistributedIterationComponent.batcher = property(lambda self: getattr(here, "batcher", None))


def _many_items() -> None:
    """A worker takes one item after the other; the interpreter's calls itself for each."""
    from moto.stepfunctions.parser.asl.component.state.exec.state_map.iteration.iteration_worker import IterationWorker

    def work(self: Any, job: Any, worker_frame: Any) -> None:
        while job is not None:
            frame = worker_frame.open_inner_frame()
            self._eval_job(env=frame, job=job)
            worker_frame.close_frame(frame)
            failed = isinstance(job.job_output, Exception) or self.stopped()
            following = None if failed else self._job_pool.next_job()
            if following is not None:
                self._job_pool.close_job(job)
                job = following
                continue
            if not failed:  # what follows the state follows its last item
                last = frame.event_history_context.last_published_event_id
                worker_frame.event_history_context.source_event_id = last
            self._env.close_frame(worker_frame)  # before the job: the state goes on when the last job is closed
            self._job_pool.close_job(job)
            return
        self._env.close_frame(worker_frame)

    _ = IterationWorker._eval_pool
    IterationWorker._eval_pool = work


def install() -> None:
    from . import states_engine

    states_engine.on_load(change)
