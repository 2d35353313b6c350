"""The parts of the taxonomy's fleet that take time to start: each is made when a row asks for it first."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from labkit.ops.taxonomy.once import once
from labkit.state.idempotency import IdempotencyStore
from labkit.work.queues import Queue

if TYPE_CHECKING:
    from labkit.control.machines import Machine
    from labkit.lab import Lab
    from labkit.routing.provider import Provider
    from labkit.work.functions import Function

PRIMARY, FALLBACK = "sonnet", "other"  # models
# One cold start at a time: on a stand-in it takes this machine's processor, and the other rows need that, too.
_COLD = threading.Lock()
_MISTAKE = {"pk": {"S": "mistake"}, "sk": {"S": "caller"}}


class Parts:
    """A function behind ``calls``, a state machine in front of ``queue``, a model with one to stand in for it."""

    lab: Lab
    name: str
    queue: Queue
    calls: Queue
    store: IdempotencyStore
    timeout: int  # seconds, of the function
    visibility: int  # seconds, of the worker's queue; within them a heartbeat must come

    def made(self, part: str) -> Any:
        """``function``, ``machine`` or ``provider`` where it has been made, else None."""
        return self.__dict__.get(part)

    @once
    def function(self) -> Function:
        """The caller's step as a Lambda function, fed by its queue. What it does, it writes into its log."""
        from labkit.work.functions import Function

        environment = {"STEPS_TABLE": self.store.table}
        made = Function.deploy(self.lab, f"{self.name}-caller", "taxonomy_step", env=environment, timeout=self.timeout)
        with _COLD:
            made.invoke({"Records": []})  # its cold start is behind it
        made.map_queue(self.calls, window=1)  # the window gathers one batch
        return made

    def logged(self, word: str) -> Counter[str]:
        """Lines of the function's log that begin with ``word``, by trace id."""
        function: Function | None = self.made("function")
        lines = [line.split() for line in function.logs() if line.startswith(f"{word} ")] if function else []
        return Counter(line[1] for line in lines)

    @contextmanager
    def mistaken(self, mistake: str) -> Iterator[None]:
        """Let the function make a ``mistake`` of its handler's for the time of a block."""
        item = {**_MISTAKE, "what": {"S": mistake}}
        try:
            self.store.client.put_item(TableName=self.store.table, Item=item)
            yield
        finally:
            self.store.client.delete_item(TableName=self.store.table, Key=_MISTAKE)

    @once
    def machine(self) -> Machine:
        """The state machine that sends a step to the work queue and waits for its token."""
        from labkit.control.machines import Machine

        times = {"HeartbeatWindow": self.visibility, "StepTimeout": max(60, 2 * self.visibility), "RetryAfter": 1}
        return Machine.create(
            self.lab, f"{self.name}-step", "agent_step", values={"QueueUrl": self.queue.url, "Retries": 9, **times}
        )

    @once
    def provider(self) -> Provider:
        """The models' API, on this machine."""
        from labkit.routing.provider import Provider, Script

        return Provider(Script(default="Hello."), lab=self.lab)

    @once
    def _bedrock(self) -> Any:
        return self.provider.bedrock()

    def converse(self, prompt: str) -> Any:
        """Ask the first model, and the second one where the first fails: the fallback of a router, and no more.

        :class:`labkit.routing.router.Router` is the real one. Its LiteLLM takes longer to import than all rows to run.
        """
        from botocore.exceptions import ClientError

        said = [{"role": "user", "content": [{"text": prompt}]}]
        try:
            return self._bedrock.converse(modelId=PRIMARY, messages=said)
        except ClientError:
            return self._bedrock.converse(modelId=FALLBACK, messages=said)
