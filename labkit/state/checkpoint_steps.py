"""Checkpoint steps: what a stored checkpoint says about its thread, read without the graph.

What makes a node due is a *channel* that is named after it. A state that has ``branch:to:left`` makes ``left`` due;
``join:left+right:merge`` collects who has come, and makes ``merge`` due when both have; ``Send`` objects wait in a
channel of their own. The writes of a step name their node in the path of its task. These names are LangGraph's own and
not documented (read in langgraph 1.2 and langgraph-checkpoint-postgres 3.2); a test compares what is read here with
``graph.get_state_history()``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Step:
    """One checkpoint of a thread.

    ``step`` counts from -1, the input. ``source`` says what made it: ``input``, ``loop`` (a step), ``update`` (a hand),
    ``fork``. ``next`` are the nodes that are due after it, and ``done`` those of them whose writes are kept already.
    ``waits`` holds what unanswered ``interrupt()`` calls asked. ``writes`` counts the pending writes, ``id`` names it.
    """

    step: int
    source: str
    next: tuple[str, ...]
    done: tuple[str, ...]
    waits: tuple[Any, ...]
    writes: int
    id: str

    @classmethod
    def read(cls, found: Any, done: Mapping[str, str]) -> Step:
        """The step that a ``CheckpointTuple`` is; ``done`` are the paths of its finished tasks, by task id."""
        values = found.checkpoint["channel_values"]
        sends = [each.node for each in values.get("__pregel_tasks", ())]
        asked = [
            each.value
            for task, channel, interrupts in found.pending_writes
            if channel == "__interrupt__" and task not in done
            for each in interrupts
        ]
        return cls(
            step=found.metadata["step"],
            source=found.metadata["source"],
            next=tuple(sorted([*_due(values), *sends])),
            done=tuple(sorted(_node(path, sends) for path in done.values())),
            waits=tuple(asked),
            writes=len(found.pending_writes),
            id=found.checkpoint["id"],
        )

    @property
    def left(self) -> tuple[str, ...]:
        """The nodes that a resume runs from here: what is due and not done."""
        return tuple(sorted((Counter(self.next) - Counter(self.done)).elements()))


def _due(values: Mapping[str, Any]) -> Iterator[str]:
    """The nodes that a state makes due. What triggers a node is a channel that is named after it."""
    for channel, value in values.items():
        kind, _, rest = channel.partition(":")
        if channel == "__start__":
            yield channel
        elif kind == "branch":  # "branch:to:NODE", there for one step
            yield rest.partition(":")[2]
        elif kind == "join":  # "join:ONE+OTHER:NODE", which collects who has come
            waited_for, _, node = rest.rpartition(":")
            if set(waited_for.split("+")) == set(value):
                yield node


def _node(path: str, sends: list[str]) -> str:
    """The node of a task: "~__pregel_pull, NODE", or "~__pregel_push, NUMBER, …" for the NUMBER-th Send."""
    kind, name, *_ = path.split(", ")
    return sends[int(name)] if kind.endswith("push") else name
