"""Router: which model answers, and who is asked when it does not.

A model's name in the code ties a fleet to that model's outage. So the code names a *group*, and a file says who is in
it and where to go when it fails (:mod:`labkit.routing.router_config`)::

    router = Router.load(gates={"agent-overflow": gate})
    answer = router.complete("agent-primary", "Summarise …", max_tokens=500)
    answer.text, answer.group, answer.deployment, answer.attempts

    agent-primary   [ a | b ]   LiteLLM picks one at random, benches the one that fails too often (cooldown),
        |                       translates to its dialect; an attempt that may do better is repeated, num_retries times
        | fallbacks             the group is down, throttled or full: leave it
    agent-overflow  [ o ]       behind its gate: the whole fleet comes here at once

LiteLLM's Router does what happens inside a group. The walk from group to group is made here, for two reasons. A permit
of the fleet's gate is held for exactly one attempt: not while waiting between two, and not while another group is
asked. And what failed first stays in sight. So there is one layer that retries, this one: LiteLLM's Router and the
providers' SDKs are told 0.

LiteLLM is imported with the first call, which takes seconds; :meth:`Router.warm` does it beforehand. Streams are not
routed: half an answer cannot be moved to another model. How cooldowns work, and which threads LiteLLM keeps:
:mod:`labkit.routing.router_litellm`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from labkit.closing import Closing
from labkit.models._input import ModelError, number
from labkit.models.retry import Exponential, Jitter, Wait
from labkit.routing import router_chains
from labkit.routing.permits import GateFull
from labkit.routing.router_config import RouterConfig
from labkit.routing.router_litellm import Groups
from labkit.routing.router_outcome import (
    AGAIN,
    CALLERS,
    PLACES,
    Attempt,
    Benched,
    NoAnswer,
    Routed,
    RouterConfigError,
    RouterError,
    kind_of,
)

if TYPE_CHECKING:
    from labkit.lab import Lab

__all__ = ["Attempt", "NoAnswer", "Permitting", "Routed", "Router", "RouterConfig", "RouterConfigError", "RouterError"]

_OURS = {"model", "messages", "stream", "timeout", "num_retries", "max_retries", "disable_fallbacks", "fallbacks"}
_LONGEST = 86_400.0


class Permitting(Protocol):
    """What may stand in front of a group: :class:`labkit.routing.gate.Gate`, or anything that counts.

    ``permit`` waits for ``within`` seconds at most, then raises GateFull or TimeoutError; what it returns is entered,
    and left when the attempt is over.
    """

    def permit(self, *, within: float = ...) -> AbstractContextManager[Any]: ...


# Told of an attempt in a group as it begins; what it returns is told the response, or the kind and the error. Neither
# may raise.
Watch = Callable[[str], Callable[[Any, str, Exception | None], object]]


class Router(Closing):
    """Routes calls as ``config`` says. Threads may share one. Raises :class:`RouterConfigError` for what cannot be.

    ``gates``: by group, what gives permits; ``within``: seconds to wait for one. ``wait``: the pause before a repeated
    attempt, which is left out where the group has another deployment to try; ``patience``: the longest such pause, in
    seconds. Where a provider wants more, the group is left at once.
    """

    def __init__(
        self,
        config: RouterConfig,
        *,
        gates: Mapping[str, Permitting] | None = None,
        within: float = 5.0,
        wait: Wait | None = None,
        patience: float = 8.0,
        lab: Lab | None = None,
        sleep: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if not isinstance(config, RouterConfig):
            raise RouterConfigError(f"config must be a RouterConfig; got {config!r:.80}.")
        self.config, self.gates = config, dict(gates or {})
        for group, gate in self.gates.items():
            if group not in config.groups:
                raise RouterConfigError(f"gates: {group!r:.60} is no group; those are {', '.join(config.groups)}.")
            lease, most = getattr(gate, "lease", None), config.slowest(group)
            if lease is not None and lease <= most:
                raise RouterConfigError(
                    f"the gate of {group} has a lease of {lease:g} s, and a call may take {most:g} s: "
                    "its permit would be given away while the call runs."
                )
        try:
            self.within = number("within", within, high=_LONGEST, unit="s")
            self.patience = number("patience", patience, high=_LONGEST, unit="s")
        except ModelError as error:
            raise RouterConfigError(f"a router cannot work so: {error}") from error
        self._wait = wait if wait is not None else Jitter(Exponential(0.5, cap=8))
        self._sleep, self._clock = sleep, clock
        self.watch: Watch | None = None
        self._groups = Groups(config)
        if lab is not None:
            lab.on_close("model router", self.close)

    @classmethod
    def load(cls, path: str | Path | None = None, *, environ: Mapping[str, str] = os.environ, **options: Any) -> Router:
        """The router of a file, by default the course's. Raises :class:`RouterConfigError`, before any call."""
        return cls(RouterConfig.load(path, environ=environ), **options)

    # -- calls -----------------------------------------------------------------------------------------------------

    def complete(self, group: str, messages: str | Sequence[Mapping[str, Any]], **options: Any) -> Routed:
        """Ask ``group``, and then whoever stands in for it. ``options`` are the model's: max_tokens, tools …

        It ends within :meth:`longest` seconds. Raises :class:`NoAnswer`, with all that failed, and :class:`RouterError`
        for a call that cannot be. What is no failure of a provider comes through, such as an error of a gate's table.
        """
        if group not in self.config.groups:
            raise RouterError(f"{group!r:.60} is no group; those are {', '.join(self.config.groups)}.")
        if taken := sorted(_OURS & options.keys()):
            raise RouterError(f"{', '.join(taken)} is the router's to set, not a call's.")
        self.warm()  # not on the call's time
        began = self._clock()
        asked = [{"role": "user", "content": messages}] if isinstance(messages, str) else list(messages)
        attempts: list[Attempt] = []
        causes: list[BaseException | None] = []
        ahead, seen = [group], {group}
        while ahead:
            name = ahead.pop(0)
            response = self._ask(name, asked, options, attempts, causes)
            if response is not None:
                return Routed.of(response, group, name, self._clock() - began, attempts)
            last = attempts[-1]
            if last.kind in CALLERS and {each.group for each in attempts} == {group}:
                break
            # Too long is too long: only a larger window helps, or who is still ahead and may have one.
            chains = self.config.context_window_fallbacks if last.kind == "context" else self.config.fallbacks
            further = [each for each in chains.get(name, ()) if each not in seen]
            ahead = [*further, *ahead]
            seen.update(further)
        raise NoAnswer(group, attempts) from causes[0]

    def longest(self, group: str) -> float:
        """Seconds that a call to ``group`` takes at most: what a message's visibility has to cover.

        A provider that sends its answer byte by byte can take longer: the timeout is one of silence.
        """
        total, retries = 0.0, self.config.num_retries
        for name in router_chains.reached(self.config, group):
            once = self.config.slowest(name) + (self.within if name in self.gates else 0)
            total += (1 + retries) * once + retries * self.patience
        return total

    def benched(self, group: str) -> dict[str, Benched]:
        """The deployments of ``group`` that are in cooldown now, by id, as this process sees it."""
        return self._groups.benched(group)

    @property
    def litellm(self) -> Any:
        """LiteLLM's Router, made on first use. Raises :class:`RouterConfigError` where it refuses a deployment."""
        return self._groups.router

    # -- one group -------------------------------------------------------------------------------------------------

    def _ask(
        self,
        group: str,
        messages: list[Any],
        options: Mapping[str, Any],
        attempts: list[Attempt],
        causes: list[BaseException | None],
    ) -> Any:
        """The response, or None: what failed has been added to ``attempts``, the exceptions to ``causes``."""
        members = len(self.config.members(group))
        for failure in itertools.count(1):
            began = self._clock()
            if len(benched := self.benched(group)) == members:
                attempts.append(Attempt.benched(group, benched.values()))
                causes.append(None)
                return None
            response, kind, cause = self._try(group, messages, options)
            if cause is None:
                return response
            if not kind:
                for each in attempts:
                    cause.add_note(f"Before that, {each}")
                raise cause
            attempts.append(Attempt.of(cause, kind, group, self._clock() - began))
            causes.append(cause)
            may_do = kind in AGAIN or (kind in PLACES and members > 1)
            if not may_do or failure > self.config.num_retries:
                return None
            pause = self._pause(group, failure, attempts[-1])
            if pause is None:
                return None
            if pause:
                self._sleep(pause)
        return None

    def _try(self, group: str, messages: list[Any], options: Mapping[str, Any]) -> tuple[Any, str, Exception | None]:
        """One attempt: the response, or the error and its kind."""
        if self.watch is None:
            return self._permitted(group, messages, options)
        told = self.watch(group)
        found = self._permitted(group, messages, options)
        told(*found)
        return found

    def _permitted(
        self, group: str, messages: list[Any], options: Mapping[str, Any]
    ) -> tuple[Any, str, Exception | None]:
        """The same, with a permit where the group has a gate."""
        with contextlib.ExitStack() as held:
            if group in self.gates:
                try:
                    held.enter_context(self.gates[group].permit(within=self.within))
                except Exception as error:  # noqa: BLE001 - as below: the permit is no reason to forget what failed
                    return None, "full" if isinstance(error, (GateFull, TimeoutError)) else "", error
            try:
                return self._groups.attempt(group, messages, options), "", None
            except Exception as error:  # noqa: BLE001 - it is kept, and raised where it is no provider's
                return None, kind_of(error), error

    def _pause(self, group: str, failure: int, last: Attempt) -> float | None:
        """Seconds before the next attempt in this group; None where it should be left."""
        left = len(self.config.members(group)) - len(self.benched(group))
        if left != 1:
            return 0.0 if left else None
        pause = max(self._wait(failure), last.retry_after or 0.0)
        return pause if pause <= self.patience else None

    def warm(self) -> Router:
        """Import LiteLLM now, which the first call would do otherwise."""
        _ = self.litellm
        return self

    def close(self) -> None:
        """Take the router's registrations from LiteLLM. Closing twice is harmless."""
        self._groups.close()

    def __repr__(self) -> str:
        return f"<Router of {', '.join(self.config.groups)}>"
