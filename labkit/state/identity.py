"""Identity: who may call what, for whom. One agent, one tool, the data of one tenant.

An IAM role says what a *function* may do, and every agent behind it may do the same. Here three names decide, and none
of them comes from the model: the *workload* (the agent that calls), the *tenant* that it works for, the *tool*::

    planner, for acme  ── orders___lookup, {"tenant": "acme"}   ──→ a rule permits it            runs
                       ── orders___lookup, {"tenant": "globex"} ──→ not the tenant it works for  refused
                       ── orders___refund, {"tenant": "acme"}   ──→ nothing permits it           refused

The rules are those of Cedar, which AgentCore's Policy speaks (AWS's pages policy-understanding-cedar, policy-scope):
**nothing is permitted unless a rule permits it, and a rule that forbids wins**. Tools are named one by one: an action
has no wildcard. Standard library only: an experiment on paper needs no AWS.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from labkit.errors import LabError

__all__ = ["Decision", "Identity", "Policy", "Refused", "Rule", "Secret", "forbid", "permit"]

When = Callable[[Mapping[str, Any]], bool]


class Refused(LabError):
    """The call was not allowed; the sentence says who wanted what, and which rule was in the way."""


class Secret:
    """A value that shows itself only to who asks for it: not in a log, a traceback or a notebook's output."""

    def __init__(self, value: str) -> None:
        if not isinstance(value, str) or len(value) < 4:
            raise LabError("a secret is text of at least 4 characters; a shorter one could not be told from others.")
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __repr__(self) -> str:
        return "<Secret>"

    def __reduce__(self) -> Any:
        raise TypeError("a Secret is not to be pickled: it would stand in a file or a queue as it is.")


def redact(value: Any, secrets: Iterable[Secret]) -> Any:
    """``value`` (what JSON can hold) with ``***`` wherever a secret stood in its texts and names."""
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret.reveal(), "***")
        return value
    if isinstance(value, Mapping):
        return {redact(key, secrets): redact(each, secrets) for key, each in value.items()}
    return [redact(each, secrets) for each in value] if isinstance(value, (list, tuple)) else value


@dataclass(frozen=True)
class Identity:
    """Who calls: the agent (``workload``), the ``tenant`` that it works for, and the ``user``, if there is one."""

    workload: str
    tenant: str
    user: str = ""

    def __post_init__(self) -> None:
        for name in ("workload", "tenant"):
            value = getattr(self, name)
            if not isinstance(value, str) or not value.strip():
                raise Refused(f"an identity has a {name}, as text; got {value!r:.40}.")


@dataclass(frozen=True)
class Rule:
    """One sentence of a policy. ``tenants`` None: whichever one the agent works for. ``when`` looks at the input."""

    effect: Literal["permit", "forbid"]
    workload: str
    tools: frozenset[str]
    tenants: frozenset[str] | None = None
    when: When | None = field(default=None, compare=False)
    why: str = ""

    def meets(self, identity: Identity, tool: str) -> bool:
        """Whether it speaks of this call, before anybody looks at the input."""
        about = self.tenants is None or identity.tenant in self.tenants
        return self.workload == identity.workload and tool in self.tools and about

    def holds(self, given: Mapping[str, Any]) -> bool:
        """Whether its condition holds. One that fails permits nothing, and forbids."""
        try:
            return self.when is None or bool(self.when(given))
        except Exception:  # noqa: BLE001 - whatever a condition of the reader's raises: the call stays closed
            return self.effect == "forbid"


def permit(
    workload: str, *tools: str, tenants: Collection[str] | None = None, when: When | None = None, why: str = ""
) -> Rule:
    """A rule that lets ``workload`` call these tools. Raises :class:`Refused` for one that names none."""
    return _rule("permit", workload, tools, tenants, when, why)


def forbid(
    workload: str, *tools: str, tenants: Collection[str] | None = None, when: When | None = None, why: str = ""
) -> Rule:
    """A rule that wins over every :func:`permit`. ``why`` is told to who is refused."""
    return _rule("forbid", workload, tools, tenants, when, why)


def _rule(
    effect: Literal["permit", "forbid"],
    workload: str,
    tools: Collection[str],
    tenants: Collection[str] | None,
    when: When | None,
    why: str,
) -> Rule:
    if not tools or any("*" in name for name in (workload, *tools)):
        raise Refused(f"a rule names each tool and one workload, with no wildcard; got {workload!r}, {tools!r:.80}.")
    if isinstance(tenants, str):
        raise Refused(f"tenants is a collection of names; got the text {tenants!r:.40}.")
    return Rule(effect, workload, frozenset(tools), None if tenants is None else frozenset(tenants), when, why)


@dataclass(frozen=True)
class Decision:
    """What a policy says, and why, in a sentence."""

    allowed: bool
    why: str


class Policy:
    """The rules of one gateway. Their order does not matter."""

    simulated: tuple[str, ...] = (
        "An Identity is made by the code that starts the agent. AgentCore issues and checks workload access tokens.",
        "Rules are Python; AgentCore's are Cedar, in a policy engine that is attached to a gateway.",
        "A condition of forbid() that fails counts as true. Cedar leaves out a rule that it cannot evaluate.",
    )

    def __init__(self, *rules: Rule) -> None:
        self.rules = rules

    def may_see(self, identity: Identity, tool: str) -> bool:
        """Whether some input could be permitted: a tool that never can be is not shown to the model."""
        about = [rule for rule in self.rules if rule.meets(identity, tool)]
        never = any(rule.effect == "forbid" and rule.when is None for rule in about)
        return not never and any(rule.effect == "permit" for rule in about)

    def decide(self, identity: Identity, tool: str, given: Mapping[str, Any], tenant: str | None = None) -> Decision:
        """Whether ``identity`` may call ``tool`` with the input ``given``, on data of ``tenant`` (default: its own)."""
        tenant = identity.tenant if tenant is None else tenant
        who = f"agent {identity.workload} may not call {tool} with data of tenant {tenant!r:.60}"
        if tenant != identity.tenant:
            return Decision(False, f"{who}: it works for {identity.tenant}.")
        about = [rule for rule in self.rules if rule.meets(identity, tool)]
        for rule in about:
            if rule.effect == "forbid" and rule.holds(given):
                return Decision(False, f"{who}: a rule forbids it{f', {rule.why}' if rule.why else ''}.")
        allowing = [rule for rule in about if rule.effect == "permit"]
        for rule in allowing:
            if rule.holds(given):
                return Decision(True, rule.why or "a rule permits it.")
        reason = "not with this input" if allowing else "no rule permits it"
        return Decision(False, f"{who}: {reason}.")

    def check(self, identity: Identity, tool: str, given: Mapping[str, Any], tenant: str | None = None) -> None:
        """As :meth:`decide`; raises :class:`Refused` unless it is allowed."""
        decision = self.decide(identity, tool, given, tenant)
        if not decision.allowed:
            raise Refused(decision.why)
