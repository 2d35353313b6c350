"""The step with Strands: the framework has the loop, and calls the tool by itself.

An ``Agent`` remembers its conversation and serves one call at a time, so each step makes its own; the model with its
client is shared. Importing Strands takes seconds, so this module is imported when a worker is made, and not when its
first message waits.
"""

from __future__ import annotations

import logging
from functools import cache

from strands import Agent, tool
from strands.hooks import BeforeModelCallEvent
from strands.models import BedrockModel
from strands.types.exceptions import EventLoopException

from infra.agents.agent import (
    DESCRIPTION,
    MOST_TURNS,
    NAME,
    SCHEMA,
    SYSTEM,
    Result,
    answered,
    bedrock_config,
    look_up,
    looked_up,
    model_id,
    question,
)
from labkit.work.worker import Task

# What fails is raised, and the worker's to say. Where no logging is set up, Python would print it to stderr as well.
logging.getLogger("strands").addHandler(logging.NullHandler())


@cache
def model() -> BedrockModel:
    return BedrockModel(model_id=model_id(), boto_client_config=bedrock_config())


def step(task: Task) -> Result:
    @tool(name=NAME, description=DESCRIPTION, inputSchema={"json": SCHEMA})
    def look(key: str) -> str:
        return look_up(task, key)

    def still_ours(event: BeforeModelCallEvent) -> None:
        task.check()

    agent = Agent(
        model=model(),
        system_prompt=SYSTEM,
        tools=[look],
        hooks=[still_ours],
        callback_handler=None,  # the default one prints what the model says
        retry_strategy=None,  # the default one sleeps and tries again, for two minutes
    )
    try:
        found = agent(question(task), limits={"turns": MOST_TURNS})
    except EventLoopException as wrapped:  # the worker knows its own errors by their class
        raise wrapped.original_exception from None
    if found.stop_reason != "end_turn":
        raise RuntimeError(f"the agent stopped without an answer: {found.stop_reason}")
    answer = answered(str(found), "it is empty")
    return Result(answer=answer, looked_up=looked_up(agent.messages), turns=found.metrics.cycle_count)
