"""Gateway: one surface for all tools, whatever is behind them.

An agent sees names and schemas. What runs is a Lambda function or a function in this process, and can move from one to
the other without the agent's code knowing. Each call passes the same four doors::

    toolUse ─→ known? ─→ input fits? ─→ permitted? ─→ run, within seconds ─→ toolResult
               └────────────┴──────────────┴────────────────┴─ what went wrong, as a toolResult of status error

A model can act on an error that it gets as a result: it mends the input, tries another tool, or tells the user. So
:meth:`Gateway.call` answers, whatever the tool does; it raises only for a mistake of the caller's own.

A tool is shown as ``target___tool`` (AWS's page gateway-tool-naming). A Lambda function gets the input as its event,
and the name in ``context.client_context.custom["bedrockAgentCoreToolName"]``, as from AgentCore (public reports; the
page gateway-add-target-lambda): one function behind several tools can tell them apart by nothing else.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from labkit.closing import Closing
from labkit.facts import facts
from labkit.models._input import limit, number
from labkit.state.identity import Identity, Policy, Secret, redact
from labkit.work.functions import Function
from labkit.work.tool_calls import Failed, GatewayError, Runner, Tool
from labkit.work.tool_schema import flaw, misfit

if TYPE_CHECKING:
    from labkit.lab import Lab

__all__ = ["Gateway", "GatewayError", "Tool"]

logger = logging.getLogger(__name__)
logger.addHandler(logging.NullHandler())  # who wants the log says where to; nobody's stderr is it by itself

SEPARATOR = str(facts("agentcore.gateway.separator"))
_TARGET = re.compile(r"([0-9a-zA-Z]-?){1,100}")  # botocore: TargetName
_TOOL = re.compile(r"[a-zA-Z0-9_-]+")  # botocore, bedrock-runtime: ToolName


class Gateway(Closing):
    """Tools by name, behind one ``policy``. ``seconds`` bounds each call; ``secrets`` never come out of one.

    A function of this process that is not back by then cannot be ended: its call is answered with an error, further
    calls of that tool are refused while it is at work, and :meth:`close` says that it is. A context manager, which
    closes; :meth:`create` lets a lab do that.
    """

    simulated: tuple[str, ...] = (
        "Calls do not go through an AgentCore gateway: names, schemas and the Lambda event are as one would make them.",
        "Who calls reaches a Lambda function as labkitWorkload, labkitTenant and labkitUser beside AWS's own names.",
        "An input that does not fit is answered here; what AWS checks before it calls a target is not verified.",
    )

    def __init__(self, policy: Policy, *, seconds: float = 20.0, secrets: Iterable[Secret] = ()) -> None:
        self.policy = policy
        self.seconds = number("seconds", seconds, low=0.01, high=limit("lambda.timeout.max"), unit="s")
        self._secrets = tuple(secrets)
        self._tools: dict[str, Tool] = {}
        self._runner = Runner()

    @classmethod
    def create(cls, lab: Lab, policy: Policy, **options: Any) -> Gateway:
        """A gateway that closes with the lab."""
        gateway = cls(policy, **options)
        lab.on_close("gateway", gateway.close)
        return gateway

    def add(self, target: str, *tools: Tool) -> list[str]:
        """Show ``tools`` under the name of ``target``; returns their whole names. A name that is there is replaced.

        Raises :class:`GatewayError`, and adds none of them then.
        """
        if not isinstance(target, str) or not _TARGET.fullmatch(target):
            raise GatewayError(
                f"a target's name has letters, digits and single hyphens, 100 at most; got {target!r:.60}."
            )
        found = {f"{target}{SEPARATOR}{tool.name}": tool for tool in tools}
        for name, tool in found.items():
            self._check(name, tool)
        self._tools.update(found)
        return list(found)

    def names(self, identity: Identity) -> list[str]:
        """The tools that ``identity`` could be permitted to call, sorted."""
        return sorted(name for name in self._tools if self.policy.may_see(identity, name))

    def tool_config(self, identity: Identity) -> dict[str, Any] | None:
        """``toolConfig`` for Converse: what this caller may use. None where that is nothing: Converse takes no empty
        list."""
        tools = [
            {"toolSpec": {"name": name, "description": tool.description, "inputSchema": {"json": dict(tool.schema)}}}
            for name, tool in ((name, self._tools[name]) for name in self.names(identity))
        ]
        return {"tools": tools} if tools else None

    def call(self, tool_use: Mapping[str, Any], identity: Identity, *, trace_id: str = "") -> dict[str, Any]:
        """Answer one ``toolUse`` block of Converse, as a content block: ``{"toolResult": …}``, within ``seconds``.

        Logged are who called what for whom and how it ended; never an input, a result or what an error says. Raises
        :class:`GatewayError` for a block that is none.
        """
        try:
            use_id, name, given = str(tool_use["toolUseId"]), str(tool_use["name"]), tool_use["input"]
        except (KeyError, TypeError) as error:
            raise GatewayError(f"a toolUse block has toolUseId, name and input; got {tool_use!r:.80}.") from error
        began, ended = time.monotonic(), "success"
        content: dict[str, Any]
        try:
            answer = self._pass(name, given, identity)
            # Converse takes an object there, and nothing else.
            content = {"json": redact(answer if isinstance(answer, dict) else {"result": answer}, self._secrets)}
        except Failed as error:
            content, ended = {"text": redact(str(error), self._secrets)}, error.how
        except RecursionError:
            content = {"text": f"{name:.80}: what went in or came out is nested too deep to be passed on."}
            ended = "failed"
        logger.log(
            logging.INFO if ended == "success" else logging.WARNING,
            "trace %s: %s called %.80s for tenant %s: %s after %.0f ms",
            *(trace_id or "-", identity.workload, name, identity.tenant, ended, (time.monotonic() - began) * 1000),
        )
        status = "success" if ended == "success" else "error"
        return {"toolResult": {"toolUseId": use_id, "content": [content], "status": status}}

    def answer(self, message: Mapping[str, Any], identity: Identity, *, trace_id: str = "") -> dict[str, Any] | None:
        """The user's message that answers all ``toolUse`` blocks of an assistant's, in order; None if it has none."""
        uses = [block["toolUse"] for block in message.get("content", ()) if "toolUse" in block]
        results = [self.call(use, identity, trace_id=trace_id) for use in uses]
        return {"role": "user", "content": results} if results else None

    def close(self, within: float = 5.0) -> None:
        """Wait for calls that were given up. Raises :class:`GatewayError` for those that are still at work."""
        self._runner.close(within)

    def _pass(self, name: str, given: Any, identity: Identity) -> Any:
        """The four doors."""
        tool = self._tools.get(name)
        if tool is None:
            have = ", ".join(self.names(identity)) or "none for this agent"
            raise Failed("unknown", f"there is no tool {name:.80}; there are {have}.")
        if not self.policy.may_see(identity, name):
            raise Failed("refused", self.policy.decide(identity, name, {}).why)
        if wrong := misfit(tool.schema, given):
            raise Failed("unfit", f"{name} was not called: {wrong}.")
        tenant = str(given[tool.tenant]) if tool.tenant else None
        decision = self.policy.decide(identity, name, given, tenant)
        if not decision.allowed:
            raise Failed("refused", decision.why)
        return self._runner.run(name, tool, given, identity, self.seconds)

    def _check(self, name: str, tool: Tool) -> None:
        most = limit("bedrock.tool_name.max_chars")
        if not _TOOL.fullmatch(tool.name) or len(name) > most:
            raise GatewayError(
                f"a tool's whole name has letters, digits, _ and -, {most} at most; got {name!r:.90}, {len(name)}."
            )
        if not isinstance(tool.description, str) or not tool.description.strip():
            raise GatewayError(f"{name} needs a description: it is all that the model knows of it.")
        wrong = flaw(tool.schema)
        if wrong or tool.schema["type"] != "object":
            raise GatewayError(f"{name} cannot be shown: {wrong or 'its input is an object'}.")
        if tool.tenant is not None and tool.tenant not in tool.schema.get("required", ()):
            raise GatewayError(f"{name} takes the tenant from {tool.tenant}, which its schema must require.")
        if isinstance(tool.run, Function):
            # A client that stops waiting calls again, and the tool would run twice.
            patience = min(self.seconds, tool.run.client.meta.config.read_timeout)
            if tool.run.timeout >= patience:
                raise GatewayError(
                    f"{name}: its function may take {tool.run.timeout} s, and nobody waits longer than {patience:g} s."
                )
