"""What the items of a distributed Map state are: ItemBatcher, and files in JSON Lines.

**On AWS** ``ItemBatcher`` puts items together, up to MaxItemsPerBatch of them and MaxInputBytesPerBatch bytes, into
``{"Items": […]}`` with ``BatchInput`` beside them, and each batch is the input of one child execution (Step Functions
Developer Guide, "ItemBatcher"). An ItemReader reads JSON, JSON Lines and CSV from S3.

**MiniStack** has no batches. moto's grammar does not know ItemBatcher, nor a ToleratedFailurePercentage without a
decimal point, nor its reader JSON Lines.

**Here** ItemBatcher is taken out of a definition before it is parsed, and given to the Map state that it stood in.
Only whole numbers and a constant BatchInput are taken: a ``MaxItemsPerBatchPath``, a BatchInput with paths and an
expression in one are refused.
"""

from __future__ import annotations

import functools
import json
import threading
from typing import Any

LIMITS = ("MaxItemsPerBatch", "MaxInputBytesPerBatch")
PERCENTAGE = "ToleratedFailurePercentage"


def _check(name: str, batcher: Any) -> None:
    known = {*LIMITS, "BatchInput"}
    numbers = [batcher[limit] for limit in LIMITS if limit in batcher] if isinstance(batcher, dict) else []
    whole = all(isinstance(number, int) and not isinstance(number, bool) and number > 0 for number in numbers)
    if not numbers or not whole or not known.issuperset(batcher or ()):
        raise ValueError(f"The ItemBatcher of {name} must have {' or '.join(LIMITS)}, a whole number above 0.")
    if any(mark in json.dumps(batcher.get("BatchInput")) for mark in ('.$":', "{%")):
        raise ValueError(f"The BatchInput of {name} must be constant here.")


def understood(definition: str) -> tuple[str, dict[str, Any]]:
    """The definition as the grammar knows it, and the ItemBatcher of each Map state by the state's name."""
    found: dict[str, Any] = {}
    changed = False

    def walk(program: Any) -> None:
        nonlocal changed
        states = program.get("States") if isinstance(program, dict) else None
        for name, state in states.items() if isinstance(states, dict) else ():
            if not isinstance(state, dict):
                continue
            if state.get("Type") == "Map" and "ItemBatcher" in state:
                found[name] = state.pop("ItemBatcher")
                _check(name, found[name])
            if type(state.get(PERCENTAGE)) is int:
                state[PERCENTAGE] = float(state[PERCENTAGE])
                changed = True
            branches = state.get("Branches")
            for inner in (state.get("ItemProcessor"), state.get("Iterator"), *(branches or ())):
                walk(inner)

    document = json.loads(definition)
    walk(document)
    return (json.dumps(document), found) if found or changed else (definition, {})


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


def lines(text: str) -> list[Any]:
    """The values in a file of JSON Lines."""
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def change() -> None:
    from moto.stepfunctions.parser.asl.component.state.exec.state_map.state_map import StateMap
    from moto.stepfunctions.parser.asl.parse.asl_parser import AmazonStateLanguageParser

    parse, props = AmazonStateLanguageParser.parse, StateMap.from_state_props
    here = threading.local()  # states are made while their definition is parsed, in one thread

    def parsed(definition: str) -> Any:
        text, here.batchers = understood(definition)
        return parse(text)

    def from_state_props(self: Any, state_props: Any) -> None:
        props(self, state_props)
        self.iteration_component.batcher = getattr(here, "batchers", {}).get(self.name)

    AmazonStateLanguageParser.parse = staticmethod(parsed)
    StateMap.from_state_props = from_state_props
    _json_lines()


@functools.cache
def _lines_class() -> Any:
    from moto.stepfunctions.parser.asl.component.state.exec.state_map.item_reader.eval.resource_output_transformer import (  # noqa: E501
        transformer,
    )

    class Lines(transformer.ResourceOutputTransformer):  # type: ignore[misc]
        def _eval_body(self, env: Any) -> None:
            config, text = env.stack.pop(), env.stack.pop()
            env.stack.append(lines(text)[: config["MaxItemsValue"]])

        def __reduce__(self) -> Any:  # a parsed definition is copied for each execution
            return _lines_reader, ()

    return Lines


def _lines_reader() -> Any:
    return _lines_class()()


def _json_lines() -> None:
    from moto.stepfunctions.parser.asl.component.state.exec.state_map.item_reader import item_reader_decl
    from moto.stepfunctions.parser.asl.component.state.exec.state_map.item_reader.reader_config.input_type import (
        InputType,
    )

    make, known = InputType.__init__, item_reader_decl.resource_output_transformer_for

    def init(self: Any, input_type: str) -> None:
        if input_type == "JSONL":
            self.input_type_value = input_type
        else:
            make(self, input_type)

    def transformer_for(input_type: Any) -> Any:
        return _lines_reader() if input_type.input_type_value == "JSONL" else known(input_type)

    InputType.__init__ = init
    item_reader_decl.resource_output_transformer_for = transformer_for


def install() -> None:
    from . import states_engine

    states_engine.on_load(change)
