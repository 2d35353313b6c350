"""The step with LangGraph: the loop is a graph of two nodes, and the model is asked with boto3.

::

    START ─→ ask ─┬─ the model wants a tool ─→ call ─→ ask
                  └─ it has answered ─→ END

With ``CHECKPOINTS_URL`` the run is kept in PostgreSQL, by trace id. A worker that takes over the work of one that was
killed then goes on where that one stood, and asks the model nothing again that it has answered. The claim in the
idempotency store is what keeps two workers from going on with the same thread: LangGraph itself would let them. The
thread stays when its result has been recorded: a fleet deletes it then (``saver.delete_thread``), or its table grows.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Annotated, Any, TypedDict

# Before LangGraph is imported: its runs are told to nobody, whatever the environment says.
os.environ.update(LANGSMITH_TRACING="false", LANGCHAIN_TRACING_V2="false")

import boto3
from langgraph.graph import END, START, StateGraph
from langgraph.runtime import Runtime

from infra.agents.agent import (
    DESCRIPTION,
    MOST_TURNS,
    NAME,
    SCHEMA,
    SYSTEM,
    Result,
    answered,
    bedrock_config,
    key_of,
    look_up,
    looked_up,
    model_id,
    question,
    uses,
)
from labkit.work.worker import Task

TOOLS = {"tools": [{"toolSpec": {"name": NAME, "description": DESCRIPTION, "inputSchema": {"json": SCHEMA}}}]}


class State(TypedDict):
    messages: Annotated[list[dict[str, Any]], operator.add]


@cache
def bedrock() -> Any:
    return boto3.client("bedrock-runtime", config=bedrock_config())


def ask(state: State, runtime: Runtime[Task]) -> State:
    runtime.context.check()
    if turns(state) >= MOST_TURNS:  # counted in the thread: whoever takes it over has no turns of his own
        raise RuntimeError(f"the agent stopped without an answer: {MOST_TURNS} turns were not enough")
    found = bedrock().converse(
        modelId=model_id(), system=[{"text": SYSTEM}], messages=state["messages"], toolConfig=TOOLS
    )
    if found["stopReason"] not in ("end_turn", "tool_use"):
        raise RuntimeError(f"the agent stopped without an answer: {found['stopReason']}")
    message = found["output"]["message"]
    if not uses(message):
        answered(text(message), "it is empty")  # before it is kept: a thread that ends with nothing ends so for ever
    return {"messages": [message]}


def call(state: State, runtime: Runtime[Task]) -> State:
    results: list[dict[str, Any]] = []
    for use in uses(state["messages"][-1]):
        try:
            said, status = look_up(runtime.context, key_of(use)), "success"
        except Exception as error:  # noqa: BLE001 - the model is told, and may ask for something else
            said, status = f"Error: {type(error).__name__} - {error}", "error"
        results.append({"toolResult": {"toolUseId": use["toolUseId"], "content": [{"text": said}], "status": status}})
    return {"messages": [{"role": "user", "content": results}]}


def text(message: dict[str, Any]) -> str:
    return "".join(block.get("text", "") for block in message["content"])


def turns(state: State) -> int:
    return sum(message["role"] == "assistant" for message in state["messages"])


def graph() -> StateGraph[State, Task, State, State]:
    made: StateGraph[State, Task, State, State] = StateGraph(State, context_schema=Task)
    made.add_node("ask", ask)
    made.add_node("call", call)
    made.add_edge(START, "ask")
    made.add_conditional_edges("ask", lambda state: "call" if uses(state["messages"][-1]) else END, ["call", END])
    made.add_edge("call", "ask")
    return made


@contextmanager
def checkpointer() -> Iterator[Any]:
    url = os.environ.get("CHECKPOINTS_URL")
    if not url:
        yield None
        return
    from langgraph.checkpoint.postgres import PostgresSaver

    with PostgresSaver.from_conn_string(url) as saver:
        yield saver


def step(task: Task) -> Result:
    with checkpointer() as saver:
        app = graph().compile(checkpointer=saver)
        # Two nodes a turn, and one more that says so when there were too many.
        config: Any = {"recursion_limit": 2 * MOST_TURNS + 2, "configurable": {"thread_id": task.trace_id}}
        kept = app.get_state(config) if saver else None
        if kept and kept.values and not kept.next:
            state = kept.values  # it came to its end, and whoever ran it died before that was recorded
        else:
            begun = kept and kept.next
            given: Any = None if begun else {"messages": [{"role": "user", "content": [{"text": question(task)}]}]}
            state = app.invoke(given, config, context=task, **({"durability": "sync"} if saver else {}))
    messages = state["messages"]
    return Result(answer=answered(text(messages[-1]), "it is empty"), looked_up=looked_up(messages), turns=turns(state))
