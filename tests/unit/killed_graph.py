"""Graphs as a process of their own runs them, for the tests that kill it: a :class:`Run` says what it does."""

from __future__ import annotations

import operator
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, TypedDict

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime
from langgraph.types import Command, interrupt

from labkit import targets
from labkit.state.idempotency import IdempotencyStore, Work


@dataclass(frozen=True)
class Run:
    """One run of graph ``graph`` in thread ``thread``. Every line of ``ledger`` is a thing that has happened.

    In node ``stops`` it stops for good, after the node's effect; ``resume`` answers an interrupt; ``given`` passes
    input again instead of going on; ``guard`` (account, table) puts the effects behind an idempotency store. ``loses``
    has the database hang from that step on, as a network does that is about to fail.
    """

    graph: str
    url: str
    ledger: Path
    thread: str = "thread"
    stops: str = ""
    resume: Any = None
    given: bool = False
    durability: str = "sync"
    guard: tuple[str, str] | None = None
    loses: int | None = None


class State(TypedDict):
    log: Annotated[list[str], operator.add]


def note(run: Run, *words: str) -> None:
    handle = os.open(run.ledger, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(handle, (" ".join(words) + "\n").encode())
    os.close(handle)


def effect(run: Run, name: str) -> None:
    """What a node does to the world: an email, a charge. Here, a line."""
    if run.guard is None:
        return note(run, name)
    account, table = run.guard
    store = IdempotencyStore(targets.connect().client("dynamodb", account), table)
    return store.run(Work.named(f"{run.thread}:{name}", "graph", {}), lambda claim: note(run, name))


def node(name: str) -> Any:
    def work(state: State, runtime: Runtime[Run]) -> dict[str, list[str]]:
        run = runtime.context
        effect(run, name)
        if run.stops == name:
            note(run, "at", name)
            time.sleep(60)
        return {"log": [name]}

    return work


def approve(state: State, runtime: Runtime[Run]) -> dict[str, list[str]]:
    effect(runtime.context, "approve")
    answer = interrupt({"question": "send it?"})
    note(runtime.context, "answered", str(answer))
    if runtime.context.stops == "approve":
        note(runtime.context, "at", "approve")
        time.sleep(60)
    return {"log": [f"approve {answer}"]}


def build(name: str) -> StateGraph[State, Run, State, State]:
    graph: StateGraph[State, Run, State, State] = StateGraph(State, context_schema=Run)
    edges: Sequence[tuple[Any, str]] = {
        "chain": [("plan", "write"), ("write", "send")],
        "fork": [("plan", "left"), ("plan", "right"), (["left", "right"], "merge")],
        "ask": [("plan", "approve"), ("approve", "send")],
    }[name]
    for each in dict.fromkeys([*(end for _, end in edges), "plan"]):
        graph.add_node(each, approve if each == "approve" else node(each))
    graph.add_edge(START, "plan")
    for begin, end in edges:
        graph.add_edge(begin, end)
    graph.add_edge(edges[-1][1], END)
    return graph


class Lossy(PostgresSaver):
    """Its database takes nothing any more from step ``loses`` on, and does not say so."""

    loses: int | None = None
    hangs = False

    def put(self, config: Any, checkpoint: Any, metadata: Any, new_versions: Any) -> Any:
        if self.loses is not None and metadata["step"] >= self.loses:
            time.sleep(60)
        return super().put(config, checkpoint, metadata, new_versions)

    def put_writes(self, config: Any, writes: Any, task_id: str, task_path: str = "") -> None:
        if self.loses is not None and self.get_tuple(config).metadata["step"] >= self.loses - 1:  # type: ignore[union-attr]
            time.sleep(60)
        super().put_writes(config, writes, task_id, task_path)


def main(run: Run) -> None:
    with Lossy.from_conn_string(run.url) as saver:
        assert isinstance(saver, Lossy)
        saver.loses = run.loses
        app = build(run.graph).compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": run.thread}}
        begun = app.get_state(config).next and not run.given
        given: Any = None if begun else {"log": []}
        if run.resume is not None:
            given = Command(resume=run.resume)
        found = app.invoke(given, config, context=run, durability=run.durability)  # type: ignore[arg-type]
        note(run, "result", *found["log"], *(["interrupted"] if "__interrupt__" in found else []))
