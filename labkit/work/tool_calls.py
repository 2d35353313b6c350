"""Tool calls: run one tool, here or in Lambda, and wait no longer than was said."""

from __future__ import annotations

import base64
import contextvars
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from labkit.errors import LabError
from labkit.state.identity import Identity
from labkit.state.records import said
from labkit.work.functions import Function

Local = Callable[[Mapping[str, Any], Identity], Any]
How = Literal["unknown", "refused", "unfit", "late", "failed"]


class GatewayError(LabError):
    """A gateway cannot be used so; the sentence names the field, the value and the limit."""


class Failed(Exception):
    """A call came to nothing. What it says is for the model; ``how``, in one word, is for the log."""

    def __init__(self, how: How, says: str) -> None:
        self.how = how
        super().__init__(says)


@dataclass(frozen=True)
class Tool:
    """One tool. ``run`` is a deployed :class:`~labkit.work.functions.Function`, or ``run(input, identity)`` here.

    ``schema`` is what an AgentCore gateway takes: :mod:`labkit.work.tool_schema`. ``tenant`` names the field of the
    input that says whose data is meant; without one it is the caller's, and the tool takes it from ``identity``.
    """

    name: str
    description: str
    schema: Mapping[str, Any]
    run: Function | Local
    tenant: str | None = None


class Runner:
    """Runs tools, each call in a thread of its own, so that the wait for it has an end. It knows who is late."""

    def __init__(self) -> None:
        self._late: list[tuple[str, threading.Thread]] = []
        self._guard = threading.Lock()

    def run(self, name: str, tool: Tool, given: Mapping[str, Any], identity: Identity, seconds: float) -> Any:
        """What the tool answers, as JSON has it. Raises :class:`Failed`."""
        if name in self.late():
            raise Failed("late", f"{name} was not called: it is still at work on an earlier call.")
        outcome: list[Any] = []

        def work() -> None:
            try:
                run = tool.run
                answer = _invoke(run, name, given, identity) if isinstance(run, Function) else run(given, identity)
                outcome.append(json.loads(json.dumps(answer, allow_nan=False, ensure_ascii=False).encode()))
            except BaseException as error:  # noqa: BLE001 - it is the model that hears of it
                outcome.append(error)

        thread = threading.Thread(
            target=contextvars.copy_context().run, args=(work,), name=f"labkit-gateway-{name}", daemon=True
        )
        thread.start()
        try:
            thread.join(seconds)
        finally:
            if not outcome:  # an interrupt as well
                with self._guard:
                    self._late.append((name, thread))
        if not outcome:
            raise Failed("late", f"{name} did not answer within {seconds:g} s; whether it did anything is not known.")
        if isinstance(outcome[0], Failed):
            raise outcome[0]
        if isinstance(outcome[0], BaseException):
            raise Failed("failed", f"{name} failed: {type(outcome[0]).__name__}: {said(outcome[0], 300)}")
        return outcome[0]

    def late(self) -> list[str]:
        """The tools that are still at work on a call that was given up."""
        with self._guard:
            self._late = [(name, thread) for name, thread in self._late if thread.is_alive()]
            return [name for name, _ in self._late]

    def close(self, within: float) -> None:
        """Wait for those. Raises :class:`GatewayError` where that is not enough."""
        end = time.monotonic() + within
        with self._guard:
            threads = [thread for _, thread in self._late]
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        if late := self.late():
            raise GatewayError(f"still at work {within:g} s after the gateway was closed: {', '.join(late)}.")


def _invoke(function: Function, name: str, given: Mapping[str, Any], identity: Identity) -> Any:
    """Call the function as a gateway does: the input is the whole event, the tool's name is in the client context."""
    from botocore.exceptions import BotoCoreError, ClientError

    custom = {
        "bedrockAgentCoreToolName": name,
        "labkitWorkload": identity.workload,
        "labkitTenant": identity.tenant,
        "labkitUser": identity.user,
    }
    try:
        answer = function.client.invoke(
            FunctionName=function.name,
            Payload=json.dumps(given, allow_nan=False).encode(),
            ClientContext=base64.b64encode(json.dumps({"custom": custom}).encode()).decode(),
        )
        body = json.loads(answer["Payload"].read() or b"null")
    except (ClientError, BotoCoreError) as error:
        raise Failed("failed", f"{name} could not be called: {said(error, 300)}") from error
    if answer.get("FunctionError"):
        details = body if isinstance(body, dict) else {}
        what = f"{details.get('errorType', answer['FunctionError'])}: {details.get('errorMessage', '')}"
        raise Failed("failed", f"{name} failed: {what[:300]}")
    return body
