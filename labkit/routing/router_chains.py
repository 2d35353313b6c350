"""Chains of groups: where a call goes when a group does not answer, and why every chain must end.

There are two kinds, and LiteLLM keeps them apart for a reason::

    fallbacks                 agent-primary is down, throttled, full    -> leave the failure domain
    context_window_fallbacks  the conversation is too long for a group  -> a larger window, nothing else helps

A chain that comes back to where it began (A falls back to B, B to A) turns one outage into calls that circle. LiteLLM
breaks the circle at run time, where it meets a group that it has tried; here it does not load.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from labkit.routing.router_outcome import RouterConfigError

if TYPE_CHECKING:
    from labkit.routing.router_config import RouterConfig

__all__ = ["Chains", "check", "reached", "read"]

Chains = Mapping[str, tuple[str, ...]]


def read(found: Any, name: str) -> Chains:
    """LiteLLM's form, a list of one-entry mappings, as one mapping. Raises :class:`RouterConfigError`."""
    if found is not None and not isinstance(found, list):
        raise RouterConfigError(f"{name} must be a list of group: [groups]; got {found!r:.60}.")
    chains: dict[str, tuple[str, ...]] = {}
    for entry in found or ():
        if not isinstance(entry, Mapping) or not all(
            isinstance(targets, list) and targets and all(isinstance(each, str) for each in targets)
            for targets in entry.values()
        ):
            raise RouterConfigError(f"{name} must be a list of group: [groups]; got {entry!r:.60}.")
        for group, targets in entry.items():
            if group in chains:
                raise RouterConfigError(f"{name} of {group} are said twice; say them once.")
            chains[group] = tuple(targets)
    return chains


def check(config: RouterConfig) -> None:
    """Every chain leads to groups that exist, and ends; windows grow where they must. Raises RouterConfigError."""
    _leads_somewhere(config, "fallbacks", config.fallbacks)
    _leads_somewhere(config, "context_window_fallbacks", config.context_window_fallbacks)
    _sizes_are_known(config)
    for group, targets in config.context_window_fallbacks.items():
        sizes = [config.window(name) or 0 for name in (group, *targets)]
        if sizes != sorted(set(sizes)):
            shown = ", ".join(f"{name} {size:,}" for name, size in zip((group, *targets), sizes, strict=True))
            raise RouterConfigError(f"context_window_fallbacks must lead to larger and larger windows; got {shown}.")
    for group, targets in config.fallbacks.items():
        for target in targets:
            here, there = config.window(group), config.window(target)
            if here and there and there < here and not config.enable_pre_call_checks:
                raise RouterConfigError(
                    f"fallbacks: {group} takes {here:,} tokens and {target} only {there:,}; "
                    "set router_settings.enable_pre_call_checks, so that what does not fit is not sent there."
                )


def reached(config: RouterConfig, group: str) -> set[str]:
    """``group``, and every group to which a call to it may come."""
    found, ahead = {group}, [group]
    while ahead:
        name = ahead.pop()
        chains = (config.fallbacks, config.context_window_fallbacks)
        further = {each for chain in chains for each in chain.get(name, ())} - found
        found |= further
        ahead += further
    return found


def _leads_somewhere(config: RouterConfig, name: str, chains: Chains) -> None:
    for group, targets in chains.items():
        for each in (group, *targets):
            if each not in config.groups:
                raise RouterConfigError(
                    f"{name}: {group} leads to {', '.join(targets)}, and {each} is no group of model_list; "
                    f"those are {', '.join(config.groups)}."
                )
    for group in chains:
        if path := _circle(chains, group, (group,)):
            raise RouterConfigError(f"{name} go in a circle: {' -> '.join(path)}. A chain must end.")


def _circle(chains: Chains, group: str, path: tuple[str, ...]) -> tuple[str, ...]:
    for each in chains.get(group, ()):
        if each in path:
            return (*path[path.index(each) :], each)
        if found := _circle(chains, each, (*path, each)):
            return found
    return ()


def _sizes_are_known(config: RouterConfig) -> None:
    sized = {name for group, targets in config.context_window_fallbacks.items() for name in (group, *targets)}
    for each in config.deployments:
        if each.window is None and (config.enable_pre_call_checks or each.group in sized):
            raise RouterConfigError(
                f"model_info.max_input_tokens of {each.id} is missing: without it nobody can tell what fits there."
            )
