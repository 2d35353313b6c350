"""Outcome: what a routed call came to, and what went wrong on the way there.

A router that hides its failures is as bad as none: "context window exceeded" from the third model says nothing about
the rate limit at the first one that sent the call there. So every attempt that failed is kept, in order, whether the
call got its answer in the end (:class:`Routed`) or not (:class:`NoAnswer`, which is classified by the *first* of them:
the others are its consequences).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from labkit.errors import LabError

__all__ = [
    "AGAIN", "CALLERS", "PLACES", "Attempt", "Benched", "NoAnswer", "Routed", "RouterConfigError", "RouterError",
    "beginning", "kind_of", "retry_after",
]  # fmt: skip

_SAYS = 240  # characters of an error that are kept

# LiteLLM's exceptions, by the first name in the order of their bases that is here: it maps every provider's onto them.
_KINDS = {
    "RouterRateLimitError": "cooldown",
    "ContextWindowExceededError": "context",
    "ContentPolicyViolationError": "content",
    "RateLimitError": "throttled",
    "Timeout": "timeout",
    "APIConnectionError": "connection",
    "ServiceUnavailableError": "overloaded",
    "BadGatewayError": "overloaded",
    "InternalServerError": "error",
    "AuthenticationError": "denied",
    "PermissionDeniedError": "denied",
    "NotFoundError": "missing",
    "BadRequestError": "invalid",
    "UnprocessableEntityError": "invalid",
    "APIError": "error",
    "NothingSaid": "error",
}
AGAIN = frozenset({"throttled", "timeout", "connection", "overloaded", "error"})  # the same call may do better later
PLACES = frozenset({"denied", "missing"})  # says something about the deployment: another one of its group may do
CALLERS = frozenset({"invalid", "content"})  # says something about the request: no other model is asked


class RouterError(LabError):
    """The router cannot do as asked; the sentence says why."""


class RouterConfigError(RouterError, ValueError):
    """A router's configuration that cannot be: the sentence names the place, the value and what is allowed."""


class NothingSaid(RouterError):
    """A provider answered with success and nothing in it: LiteLLM lets an empty list of choices pass."""

    def __init__(self, deployment: str) -> None:
        self.failed_deployment_id = deployment
        super().__init__("the provider's answer holds no choice.")


class Benched(NamedTuple):
    """Why a deployment is in cooldown, as an HTTP status, and for how many ``seconds`` more."""

    status: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt that failed.

    ``kind``: ``throttled``, ``overloaded``, ``error``, ``timeout``, ``connection``; ``context`` (too long),
    ``invalid``, ``content``, ``denied``, ``missing``; ``full`` (no permit) and ``cooldown`` (every deployment is
    benched): nobody was called in these two, and ``deployment`` is empty, as it is where a check before the call
    refused. ``error`` is the exception's class, ``says`` its beginning. ``retry_after``: seconds, where somebody said.
    """

    group: str
    deployment: str
    kind: str
    error: str
    says: str
    seconds: float
    status: int | None = None
    retry_after: float | None = None

    @classmethod
    def of(cls, error: BaseException, kind: str, group: str, seconds: float) -> Attempt:
        """What ``error`` says about an attempt: LiteLLM notes on it which deployment it had picked."""
        at, status = getattr(error, "failed_deployment_id", None) or "", getattr(error, "status_code", None)
        again = getattr(error, "retry_in", None) if kind == "full" else retry_after(error)
        return cls(group, str(at), kind, type(error).__name__, beginning(error), seconds, status, again)

    @classmethod
    def benched(cls, group: str, benched: Collection[Benched]) -> Attempt:
        """Nobody was called: the whole group is in cooldown."""
        says = f"all of it is benched, after {', '.join(sorted({each.status for each in benched}))}"
        return cls(group, "", "cooldown", "", says, 0.0, retry_after=min(each.seconds for each in benched))

    def __str__(self) -> str:
        at = f" at {self.deployment}" if self.deployment else ""
        return f"{self.group}: {self.kind}{at} ({self.says})"


@dataclass(frozen=True, slots=True)
class Routed:
    """The answer. ``group`` and ``deployment`` served it; ``attempts`` are those that failed before, oldest first.

    ``seconds``: the whole call, with waits for permits and between attempts. ``response`` is LiteLLM's, with tool calls
    and all: in OpenAI's form, whatever the provider's dialect.
    """

    text: str
    finish: str
    group: str
    deployment: str
    asked: str  # the group that the caller named
    input_tokens: int
    output_tokens: int
    seconds: float
    attempts: tuple[Attempt, ...] = ()
    response: Any = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, response: Any, asked: str, group: str, seconds: float, attempts: Sequence[Attempt]) -> Routed:
        """LiteLLM's ``response``, as an answer of ``group``."""
        choice, usage, kept = response.choices[0], response.usage, tuple(attempts)
        said, at = choice.message.content or "", str(response._hidden_params.get("model_id") or "")
        counts = usage.prompt_tokens, usage.completion_tokens
        return cls(said, choice.finish_reason or "", group, at, asked, *counts, seconds, kept, response)

    @property
    def fell_back(self) -> bool:
        """Another group than the one asked for has answered."""
        return self.group != self.asked


class NoAnswer(RouterError):
    """No group answered. ``attempts`` are all that failed, oldest first; ``__cause__`` is the first one's exception.

    ``kind`` is the first attempt's. ``again``: one of the groups may do better later, so let the message come back; in
    ``retry_in`` seconds at the earliest, where somebody said so. Else it is a poison message, or a configuration to be
    mended.
    """

    def __init__(self, asked: str, attempts: Sequence[Attempt]) -> None:
        self.asked, self.attempts = asked, tuple(attempts)
        self.first = self.attempts[0]
        self.kind = self.first.kind
        self.again = any(each.kind in (*AGAIN, "full", "cooldown") for each in self.attempts)
        self.retry_in = min((each.retry_after for each in attempts if each.retry_after is not None), default=0.0)
        shown = []
        for _, run in itertools.groupby(self.attempts, key=lambda each: (each.group, each.deployment, each.kind)):
            same = list(run)
            shown.append(f"{same[0]}" + (f", {len(same)} times" if len(same) > 1 else ""))
        super().__init__(f"{asked} got no answer. {'; then '.join(shown)}.")


def kind_of(error: BaseException) -> str:
    """The kind of LiteLLM's exception: see :class:`Attempt`. Empty for what is no provider's failure."""
    names = (each.__name__ for each in type(error).__mro__)
    return next((_KINDS[name] for name in names if name in _KINDS), "")


def retry_after(error: BaseException) -> float | None:
    """Seconds until somebody wants to be asked again: the provider's header, or the end of a cooldown.

    OpenAI says it twice, in whole seconds and in milliseconds; its SDK keeps to the finer one, and so does this.
    """
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    finer: Any = headers.get("retry-after-ms")
    said: Any = headers.get("retry-after", getattr(error, "cooldown_time", None))
    for value, unit in ((finer, 0.001), (said, 1.0)):
        try:
            return max(0.0, float(value) * unit)
        except (TypeError, ValueError):
            continue  # nothing, or a date
    return None


def beginning(error: BaseException) -> str:
    """How an error begins, in one line and without LiteLLM's repetitions of its class's name."""
    text = re.sub(r'\{"message": ?"([^"]*)"\}', r"\1", " ".join(str(error).split()))  # Bedrock's answer, as it came
    for name in (f"litellm.{type(error).__name__}: ", "litellm.BadRequestError: ", f"{type(error).__name__}: "):
        text = text.removeprefix(name)
    return text.rstrip(".")[:_SAYS] or type(error).__name__
