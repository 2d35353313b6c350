"""What a pipe is made of, what an update makes of it, and what of it is shown.

**On AWS** (recorded) DescribePipe shows everything, with an empty EnrichmentParameters when there are none, and without
what was never set. Documented (API Reference, "UpdatePipe"): an update changes what it names and leaves the rest, but
the parameters of one service (``SqsQueueParameters`` …) are replaced as a whole; an empty InputTemplate, Enrichment or
list of filters removes it. Not verified: that the batch size is shown when nobody gave one.

**MiniStack** keeps names, ARNs and states, and drops all parameters.

**Here** a pipe is a dictionary of the members of its requests; :mod:`parity.pipes_states` has its states."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

from parity import pipes_checks as checks
from parity import pipes_states as states

CHANGEABLE = ("Description", "DesiredState", "RoleArn", "Enrichment", "Target", "LogConfiguration", "KmsKeyIdentifier")
PARAMETERS = ("SourceParameters", "EnrichmentParameters", "TargetParameters")
SHOWN = ("Arn", "Name", "Description", "DesiredState", "Source", "Enrichment", "Target", "RoleArn", "LogConfiguration")

Pipe = dict[str, Any]


def merged(parameters: Mapping[str, Any], changes: Mapping[str, Any]) -> Pipe:
    """Parameters after an update: what it names is replaced, and what it empties is gone."""
    after = {**parameters, **copy.deepcopy(dict(changes))}
    return {name: value for name, value in after.items() if value not in (None, "", {}, {"Filters": []})}


def changed(pipe: Mapping[str, Any], request: Mapping[str, Any]) -> Pipe:
    """``pipe`` with what a request sets."""
    after = {**pipe, **{name: request[name] for name in CHANGEABLE if request.get(name) is not None}}
    for name in PARAMETERS:
        after[name] = merged(pipe.get(name) or {}, request.get(name) or {})
    queue = {"BatchSize": checks.DEFAULT_BATCH, **(after["SourceParameters"].get("SqsQueueParameters") or {})}
    after["SourceParameters"]["SqsQueueParameters"] = queue
    if not after.get("Enrichment"):
        after.pop("Enrichment", None)
    return after


def brief(pipe: Mapping[str, Any], now: float) -> Pipe:
    """The pipe as the calls show it that change it."""
    return {
        **{name: pipe[name] for name in ("Arn", "Name", "DesiredState")},
        "CurrentState": states.state(pipe, now),
        **{name: int(pipe[name]) for name in ("CreationTime", "LastModifiedTime")},
    }


def shown(pipe: Mapping[str, Any], now: float) -> Pipe:
    """The pipe as DescribePipe shows it."""
    found = brief(pipe, now) | {name: pipe[name] for name in SHOWN if pipe.get(name)}
    found |= {name: pipe[name] for name in PARAMETERS if pipe.get(name)}
    why = states.reason(pipe, now)
    return (
        found
        | {"EnrichmentParameters": pipe.get("EnrichmentParameters") or {}, "Tags": pipe.get("Tags") or {}}
        | ({"StateReason": why} if why else {})
    )


def summary(pipe: Mapping[str, Any], now: float) -> Pipe:
    """The pipe as ListPipes shows it."""
    why = states.reason(pipe, now)
    found = brief(pipe, now) | {name: pipe[name] for name in ("Source", "Target", "Enrichment") if pipe.get(name)}
    return found | ({"StateReason": why} if why else {})
