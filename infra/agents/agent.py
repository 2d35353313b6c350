"""What both agents have in common: what they are told, their tool, and what a step gives back.

An agent's *step* is a function of a task: it asks a model, calls the tool that the model wants, and asks again, until
there is an answer. Which framework runs that loop is nobody's business outside: the envelope that comes in and the
result that goes out are the same, and so are the queue, the worker and the idempotency store around it.

Three things are the worker's, and so not the framework's:

* **Trying again.** The SDK and the framework are told to try once. A model that is throttled fails the step, and the
  message comes back later, for any worker. Layers that all try multiply: with the defaults of both, Strands asks a
  throttled model 18 times, boto3's 3 tries in each of its own 6, and holds the message for two minutes meanwhile.
* **Whether to go on.** Before each call that costs money the task is asked whether its message is still this worker's.
* **What it says.** Nothing is printed, and nothing about a run goes anywhere but into the result.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict

from labkit.facts import fact
from labkit.work.worker import Poison, Task, WorkerError

SYSTEM = "You answer questions about the limits of AWS services. Look each number up; never answer from memory."
NAME = "look_up"
DESCRIPTION = "Look up a number of an AWS service by its key, such as sqs.visibility.max."
SCHEMA = {
    "type": "object",
    "properties": {"key": {"type": "string", "description": "the number's key"}},
    "required": ["key"],
}
MOST_TURNS = 6  # calls of the model in one step: one that never stops calling tools must not run up a bill


class Result(TypedDict):
    """What a step gives: the answer, the keys that were looked up, and how often the model was asked."""

    answer: str
    looked_up: list[str]
    turns: int


def question(task: Task) -> str:
    """What is asked. Raises :class:`~labkit.work.tasks.Poison`: no later delivery has a question in it either."""
    asked = (task.body.payload or {}).get("question")
    if not isinstance(asked, str) or not asked.strip():
        raise Poison(f"an agent needs payload.question, a text that is not empty; {task.trace_id} has {asked!r:.80}.")
    return asked


def uses(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tools that a message of Converse's asks for."""
    return [block["toolUse"] for block in message["content"] if "toolUse" in block]


def key_of(use: Mapping[str, Any]) -> str:
    """The key that is to be looked up. A schema is an offer: what the model makes of it is looked at here."""
    if use["name"] != NAME:
        raise ValueError(f"there is no tool {use['name']:.80}; there is {NAME}")
    given = use["input"]
    key = given.get("key") if isinstance(given, Mapping) else None
    if not isinstance(key, str):
        raise ValueError(f"{NAME} needs key, a text; got {given!r:.80}")
    return key


def looked_up(messages: Iterable[Mapping[str, Any]]) -> list[str]:
    """The keys that a conversation has asked for, in its order, where the tool could be called."""
    found = []
    for use in (use for message in messages for use in uses(message)):
        with contextlib.suppress(ValueError):
            found.append(key_of(use))
    return found


def answered(text: str, why: str) -> str:
    """An answer that says something. One that is recorded is final: nobody asks again."""
    if not text.strip():
        raise RuntimeError(f"the agent stopped without an answer: {why}")
    return text.strip()


def look_up(task: Task, key: str) -> str:
    """The tool. What it raises is told to the model, which may ask for something else."""
    note({"trace_id": task.trace_id, "attempt": task.attempt, "looked_up": key, "pid": os.getpid()})
    time.sleep(float(os.environ.get("TOOL_SECONDS", "0")))
    return str(fact(key))


def model_id() -> str:
    """``AGENT_MODEL``: what Bedrock calls a model, or a name that the scripted provider knows."""
    name = os.environ.get("AGENT_MODEL", "")
    if not name:
        raise WorkerError("an agent needs AGENT_MODEL, the id of a model, in its environment.")
    return name


def bedrock_config() -> Any:
    """For a ``bedrock-runtime`` client. ``AWS_ENDPOINT_URL_BEDROCK_RUNTIME`` says where it is, as to any AWS SDK."""
    from botocore.config import Config

    return Config(retries={"total_max_attempts": 1}, connect_timeout=5, read_timeout=60)


def note(line: dict[str, object]) -> None:
    """One line a tool call, to see who did what. One write: what several processes append does not mix."""
    if path := os.environ.get("STEP_LOG"):
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(handle, (json.dumps(line) + "\n").encode())
        os.close(handle)
